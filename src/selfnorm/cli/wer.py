"""`selfnorm wer`: word error rates, how sure they are, and where the errors are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from selfnorm.bootstrap import Comparison, Interval
    from selfnorm.wer import Errors

Words = Mapping[str, tuple[str, ...]]  # of each utterance

FEWEST = 10  # utterances, or speakers, from which a p says something
SHOWN = 40  # sets in a table; beyond, those with the most words


@dataclass(frozen=True)
class Row:
    """A set of utterances, or all of them."""

    errors: "Errors"
    interval: "Interval | None"  # None: no words
    oracle: "Errors | None" = None
    other: "Errors | None" = None
    comparison: "Comparison | None" = None

    def fields(self) -> dict[str, Any]:
        """The keys that scripts rely on."""
        found = {**_counts(self.errors), "interval": self.interval and [self.interval.low, self.interval.high]}
        if self.oracle:
            found["oracle"] = _counts(self.oracle)
        if self.other:
            found["against"] = _counts(self.other)
            other = self.comparison  # None: no words
            found["difference"] = other and other.difference
            found["difference_interval"] = other and [other.interval.low, other.interval.high]
            found["p"] = other and other.p
        return found


def wer(
    references: Annotated[
        Path, typer.Argument(help="What was said: Kaldi text, .trn, CTM, STM, JSONL; plain or packed.")
    ],
    hypotheses: Annotated[Path, typer.Argument(help="What was heard, in any of these; of n-best lists, the first.")],
    against: Annotated[
        Path | None, typer.Option(help="Another system's hypotheses, to compare with.", show_default=False)
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Count utterances without a hypothesis as deletions.")
    ] = False,
    speakers: Annotated[
        Path | None, typer.Option(help="Kaldi's utt2spk: sets are speakers.", show_default=False)
    ] = None,
    by_speaker: Annotated[
        bool, typer.Option("--by-speaker", help="Intervals and p for other speakers, not other utterances.")
    ] = False,
    oracle: Annotated[
        list[Path] | None, typer.Option(help="Lattices or n-best lists: what is the least?", show_default=False)
    ] = None,
    words: Annotated[
        Path | None, typer.Option(help="Kaldi's words.txt, for Kaldi's lattices.", show_default=False)
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", help="Words that differ only in case are the same word, as in sclite.")
    ] = False,
    worst: Annotated[int, typer.Option(help="How many utterances to show.", min=0)] = 3,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Count word errors as NIST's sclite does: per set and in all, with intervals; alone or against another system.

    Case counts unless --ignore-case is given; sclite ignores it unless told not to.
    A set is what comes before the first _ of an utterance's name, or before the first - where there is no _.
    """
    from selfnorm.cli.wer_inputs import match, nearest_of, read, speakers_of, tell_case
    from selfnorm.lattices.transcripts import set_of

    if by_speaker and speakers is None:
        raise ValueError("--by-speaker needs to know the speakers; give --speakers utt2spk")
    said = read(references, ignore_case)
    heard, unheard, unknown = match(said, hypotheses, references, allow_missing, ignore_case)
    other = match(said, against, references, allow_missing, ignore_case)[0] if against else None
    nearest, broken = nearest_of(said, oracle, words, references, allow_missing, ignore_case) if oracle else (None, 0)
    sets = speakers_of(said, speakers) if speakers else {name: set_of(name) for name in said}
    rows, total = score(said, heard, sets, other, nearest, by_speaker)
    if json:
        found = total.fields() | {"missing": unheard, "left_out": unknown}
        print_json(found | {"sets": {name: row.fields() for name, row in rows.items()}})
    else:
        from selfnorm.cli.alignment import show_changed, show_worst, terminal

        console = terminal()
        _show(console, rows, total, "speaker" if speakers else "set", against)
        if other is not None:
            show_changed(console, said, heard, other, worst)
        else:
            show_worst(console, said, heard, worst)
    tell_case(said, {hypotheses: heard} | ({against: other} if against and other else {}))
    if broken:
        raise typer.Exit(1)


def score(
    said: Words,
    heard: Words,
    sets: Mapping[str, str],
    other: Words | None = None,
    nearest: "Mapping[str, Errors] | None" = None,
    by_speaker: bool = False,
) -> tuple[dict[str, Row], Row]:
    """A row for each set, where there are several, and one for all, for which `by_speaker` draws whole sets."""
    from selfnorm.bootstrap import bootstrap, compare
    from selfnorm.wer import Errors, counts_by_name

    errors = counts_by_name(said, heard)
    others = counts_by_name(said, other) if other is not None else None

    def row(names: Sequence[str], groups: Sequence[str] | None = None) -> Row:
        here = [errors[name] for name in names]
        total = sum(here, Errors())
        least = sum((nearest[name] for name in names), Errors()) if nearest is not None else None
        interval = bootstrap(here, groups=groups) if total.words else None
        if others is None:
            return Row(total, interval, least)
        there = [others[name] for name in names]
        comparison = compare(here, there, groups=groups) if total.words else None
        if comparison and len(set(groups or names)) < FEWEST:
            comparison = replace(comparison, p=None)
        return Row(total, interval, least, sum(there, Errors()), comparison)

    names = list(said)
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(sets[name], []).append(name)
    several = 1 < len(parts) < len(names)  # a set for each utterance says nothing
    rows = {part: row(parts[part]) for part in sorted(parts)} if several else {}
    return rows, row(names, [sets[name] for name in names] if by_speaker else None)


def _counts(errors: "Errors") -> dict[str, Any]:
    return {
        "wer": 100 * errors.rate if errors.words or not errors.total else None,
        "substitutions": errors.substitutions,
        "deletions": errors.deletions,
        "insertions": errors.insertions,
        "words": errors.words,
        "utterances": errors.utterances,
        "wrong": errors.wrong,
    }


def _show(console: "Console", rows: Mapping[str, Row], total: Row, kind: str, against: Path | None) -> None:
    for line in kaldi_lines(total.errors):
        console.print(line, highlight=False, markup=False)
    shown = sorted(rows, key=lambda name: -rows[name].errors.words)[:SHOWN]
    listed = [(name, rows[name]) for name in rows if name in shown]
    if len(shown) < len(rows):
        kind = f"{kind} ({SHOWN} of {len(rows)}, those with the most words; all with --json)"
    columns = [kind, "utterances", "words", "sub", "del", "ins", "WER %", "95 % interval"]
    draw_table(
        console, [*columns, *(["oracle %"] if total.oracle else [])], map(_cells, listed), _cells(("all", total))
    )
    if against is not None:
        columns = [kind, "WER %", "against", "difference", "95 % interval", "p"]
        console.print(f"against {against}", highlight=False, markup=False, soft_wrap=True)
        draw_table(console, columns, map(compared, listed), compared(("all", total)))


def kaldi_lines(errors: "Errors") -> Iterator[str]:
    """As Kaldi's compute-wer prints them; scripts that look for these lines find them."""
    e = errors
    counts = f"{e.total} / {e.words}, {e.insertions} ins, {e.deletions} del, {e.substitutions} sub"
    yield f"%WER {100 * e.rate:.2f} [ {counts} ]"
    yield f"%SER {100 * e.wrong / max(1, e.utterances):.2f} [ {e.wrong} / {e.utterances} ]"


def draw_table(console: "Console", columns: list[str], rows: Iterable[list[str]], last: list[str]) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns[:1], box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(escape(row[0]), *row[1:])
    table.add_section()
    table.add_row(*last, style="bold")
    console.print(table)


def _cells(named: tuple[str, Row]) -> list[str]:
    name, row = named
    e = row.errors
    counts = (e.utterances, e.words, e.substitutions, e.deletions, e.insertions)
    cells = [name, *(f"{count:,}" for count in counts), f"{100 * e.rate:.2f}", _interval(row.interval)]
    return cells if row.oracle is None else [*cells, f"{100 * row.oracle.rate:.2f}"]


def compared(named: tuple[str, Row]) -> list[str]:
    """Green where the difference is for us, red where it is for the other; plain where it may be chance."""
    name, row = named
    other = f"{100 * row.other.rate:.2f}" if row.other else ""
    found = row.comparison
    if found is None:
        return [name, f"{100 * row.errors.rate:.2f}", other, "", "", ""]
    sure = found.p is not None and found.p < 0.05
    colour = "" if not sure else "[green]" if found.difference < 0 else "[red]"
    p = "-" if found.p is None else "< 0.001" if found.p < 0.001 else f"{found.p:.3f}"
    difference = f"{colour}{found.difference:+.2f}"
    return [name, f"{100 * row.errors.rate:.2f}", other, difference, _interval(found.interval, "+"), f"{colour}{p}"]


def _interval(interval: "Interval | None", sign: str = "") -> str:
    return f"{interval.low:{sign}.2f} … {interval.high:{sign}.2f}" if interval else ""
