"""`selfnorm lattice`: what is in a lattice: size, density, best path, the path nearest to a reference, a picture."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import NO_SCALE, Debug, Json, print_json, tell
from selfnorm.files import check_unread, write_whole

if TYPE_CHECKING:
    from selfnorm.lattices import Broken, Lattice, Utterance
    from selfnorm.lattices.summary import Heard, Summary
    from selfnorm.wer import Errors

FILES = (".txt", ".trn", ".jsonl", ".ctm", ".stm")  # of references; what ends so is no word


def lattice(
    file: Annotated[Path, typer.Argument(help="HTK lattice, Kaldi archive or a folder of them; plain, .gz, .bz2.")],
    reference: Annotated[
        str | None,
        typer.Option(help="The true words, or a file of them: Kaldi text, .trn, CTM, STM, JSONL.", show_default=False),
    ] = None,
    utterance: Annotated[str | None, typer.Option(help="Only this utterance.", show_default=False)] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the best paths into this file.", show_default=False)] = None,
    paths: Annotated[int, typer.Option(help="How many paths are drawn.", min=1, max=100)] = 8,
    words: Annotated[
        Path | None, typer.Option(help="words.txt with the words of Kaldi's ids.", show_default=False)
    ] = None,
    lm_scale: Annotated[
        float | None, typer.Option(help="Else the header's, else 1; for Kaldi 1/acwt.", show_default=False)
    ] = None,
    word_penalty: Annotated[
        float | None, typer.Option(help="For each word; else the header's, else 0.", show_default=False)
    ] = None,
    max_arcs: Annotated[int, typer.Option(help="Larger lattices are refused.", min=1)] = 2_000_000,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a lattice: nodes, arcs, density, best path, the path nearest to a reference; of several, a table."""
    from selfnorm.lattices import Broken, drawing, files, read
    from selfnorm.lattices.summary import summarize

    known = _References(reference)
    if svg:
        check_unread(svg, [words, known.path, *(path for path, _ in files(file))])
    found: list[Summary] = []
    broken: list[Broken] = []
    for each in _chosen(read([file], words=words, max_arcs=max_arcs), utterance, file):
        if isinstance(each, Broken):
            broken.append(each)
            continue
        if found and (svg or known.words is not None):
            one = "--svg draws one" if svg else "--reference has the words of one"
            raise ValueError(f"{file}: holds several lattices, but {one}; choose it with --utterance")
        if lm_scale is None and not found and "kind" in each.header:  # Kaldi's
            tell(f"{each.utterance}: {NO_SCALE}; 1 is taken")
        each = _scaled(each, lm_scale, word_penalty)
        said = known.of(each.utterance)
        found.append(summarize(each, said))
        picture = drawing.svg(each, said, paths) if svg else ""
    if not found:
        raise ValueError(_nothing(broken, utterance, file))
    if svg:
        write_whole(svg, picture.encode())
    for each in broken:
        tell(f"selfnorm: {each.sentence}")
    if json:
        drawn = {"svg": str(svg)} if svg else {}
        rows = [_fields(summary) for summary in found]
        print_json({"utterances": len(found), "failed": len(broken), "lattices": rows, **_sums(found), **drawn})
    elif len(found) == 1:
        _show_one(found[0], svg)
    else:
        failed = f", {len(broken)} failed" if broken else ""
        _show_all(found, f"{len(found)} lattices{failed}: {file}")
    if broken:
        raise typer.Exit(1)


def _scaled(lattice: "Lattice", lm: float | None, penalty: float | None) -> "Lattice":
    given = {name: value for name, value in (("lm", lm), ("penalty", penalty)) if value is not None}
    return replace(lattice, scales=replace(lattice.scales, **given))


class _References:
    """The words of an utterance, from a file or as they are."""

    def __init__(self, given: str | None) -> None:
        self.path: Path | None = None
        self.words: tuple[str, ...] | None = None
        self.file: dict[str, tuple[str, ...]] | None = None
        if given is not None and os.path.isfile(given):  # of a long sentence Path.is_file raises that the name is long
            from selfnorm.lattices import transcripts

            self.path = Path(given)
            self.file = transcripts.read(self.path)
        elif given is not None:
            self.words = tuple(given.split())
            if len(self.words) == 1 and given.endswith(FILES):
                raise ValueError(f"{given}: there is no such file; give a file of references, or the true words")

    def of(self, utterance: str) -> tuple[str, ...] | None:
        if self.file is None:
            return self.words
        if utterance not in self.file:
            tell(f"selfnorm: the references do not have the utterance {utterance}; add it, or look at its name")
        return self.file.get(utterance)


def _chosen(items: "Iterator[Utterance]", utterance: str | None, file: Path) -> "Iterator[Lattice | Broken]":
    """The one that is asked for, or all; an n-best list is no lattice."""
    from selfnorm.lattices import Broken, NBest

    for each in items:
        if utterance is None or each.utterance == utterance:
            said = f"{file}: {each.utterance} is an n-best list; this shows lattices, `selfnorm wer` takes lists"
            yield Broken(each.utterance, said) if isinstance(each, NBest) else each
            if utterance is not None:
                return


def _nothing(broken: "Sequence[Broken]", utterance: str | None, file: Path) -> str:
    if not broken:
        what = "holds no lattice" if utterance is None else f"holds no utterance {utterance!r}"
        return f"{file}: {what}; give another file or name"
    rest = f" (and {len(broken) - 1} more cannot be read)" if len(broken) > 1 else ""
    return broken[0].sentence + rest


def _fields(summary: "Summary") -> dict[str, Any]:
    return {
        "utterance": summary.utterance,
        "nodes": summary.nodes,
        "arcs": summary.arcs,
        "words": summary.words,
        "seconds": summary.seconds,
        "arcs_per_second": summary.arcs_per_second,
        "arcs_per_word": summary.arcs_per_word,
        "best": _heard(summary.best),
        **({"nearest": _heard(summary.nearest)} if summary.nearest else {}),
        "notes": list(summary.notes),
    }


def _heard(heard: "Heard") -> dict[str, Any]:
    errors = {} if heard.errors is None else _counts(heard.errors)
    return {"words": list(heard.words), "score": heard.score, **errors}


def _counts(errors: "Errors") -> dict[str, Any]:
    kinds = {"substitutions": errors.substitutions, "deletions": errors.deletions, "insertions": errors.insertions}
    return {"errors": errors.total, **kinds, "wer": 100 * errors.rate}


def _sums(found: "Sequence[Summary]") -> dict[str, Any]:
    """Errors of all that have a reference: of the best paths, and of the nearest ones."""
    from selfnorm.wer import Errors

    measured = [summary for summary in found if summary.nearest]
    if not measured:
        return {}
    best = sum((summary.best.errors or Errors() for summary in measured), Errors())
    nearest = sum(((summary.nearest and summary.nearest.errors) or Errors() for summary in measured), Errors())
    return {"reference_words": best.words, "best": _counts(best), "nearest": _counts(nearest)}


def _show_one(summary: "Summary", svg: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(summary.utterance), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in _rows(summary):
        table.add_row(name, Text(value))  # words are no markup, whatever brackets they have
    console = Console()
    console.print(table)
    if svg:
        print(svg)


def _rows(summary: "Summary") -> Iterator[tuple[str, str]]:
    yield "nodes", f"{summary.nodes:,}"
    yield "arcs", f"{summary.arcs:,}"
    yield "different words", f"{summary.words:,}"
    if summary.seconds is not None:
        yield "duration", f"{summary.seconds:.2f} s"
    yield "density", "  ".join(_density(summary))
    yield "best path", _said(summary.best)
    yield "", " ".join(summary.best.words)
    if summary.nearest:
        yield "nearest to the reference", _said(summary.nearest)
        yield "", " ".join(summary.nearest.words)
    for note in summary.notes:
        yield "note", note


def _density(summary: "Summary") -> Iterator[str]:
    if summary.arcs_per_second is not None:
        yield f"{summary.arcs_per_second:,.0f} arcs/s"
    if summary.arcs_per_word is not None:
        yield f"{summary.arcs_per_word:,.1f} arcs/word"


def _said(heard: "Heard") -> str:
    said = f"score {heard.score:,.2f}"
    if (errors := heard.errors) is None:
        return said
    kinds = f"{errors.substitutions} S, {errors.deletions} D, {errors.insertions} I"
    return f"{said}, {errors.total} errors ({kinds}) in {errors.words} words"


def _show_all(found: "Sequence[Summary]", title: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    sums = _sums(found)
    caption = "errors / words of the best path and of the one nearest to the reference" if sums else None
    table = Table(title=Text(title), title_justify="left", show_footer=True, caption=caption, caption_justify="left")
    table.add_column("utterance", footer="in all", overflow="fold", min_width=12)
    for name, footer in _columns(found, sums):
        table.add_column(name, footer=footer, justify="right", no_wrap=True)
    for summary in found:
        table.add_row(Text(summary.utterance), *_cells(summary, bool(sums)))
    Console().print(table)


def _columns(found: "Sequence[Summary]", sums: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What stands above and below each column of numbers."""
    yield "nodes", f"{sum(summary.nodes for summary in found):,}"
    yield "arcs", f"{sum(summary.arcs for summary in found):,}"
    seconds = sum(summary.seconds or 0.0 for summary in found)
    yield "seconds", f"{seconds:,.1f}" if seconds else ""
    yield "arcs/word", ""
    for name in ("best", "nearest") if sums else ():
        yield name, f"{sums[name]['wer']:.1f} %"
    if not sums:
        yield "score", ""


def _cells(summary: "Summary", measured: bool) -> Iterator[str]:
    yield f"{summary.nodes:,}"
    yield f"{summary.arcs:,}"
    yield "" if summary.seconds is None else f"{summary.seconds:.2f}"
    yield "" if summary.arcs_per_word is None else f"{summary.arcs_per_word:,.1f}"
    if not measured:
        yield f"{summary.best.score:,.1f}"
    elif summary.nearest and summary.best.errors and summary.nearest.errors:
        yield f"{summary.best.errors.total} / {summary.best.errors.words}"
        yield f"{summary.nearest.errors.total} / {summary.nearest.errors.words}"
