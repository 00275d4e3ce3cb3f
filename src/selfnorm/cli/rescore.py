"""`selfnorm rescore`: lattices and n-best lists, a second time, with a better language model."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell

if TYPE_CHECKING:
    from selfnorm.cli.wer import Row
    from selfnorm.rescoring import Setting
    from selfnorm.rescoring.second_pass import Outcome

Words = dict[str, tuple[str, ...]]


def hidden(kind: str) -> Any:
    return typer.Option(help=kind, show_default=False)


def rescore(
    lattices: Annotated[list[Path], typer.Argument(help="HTK or Kaldi lattices, n-best lists; files or folders.")],
    to: Annotated[Path, typer.Option(help="Folder for words, scales and what else is asked for.")],
    model: Annotated[Path | None, hidden("A run: the neural language model.")] = None,
    ngram: Annotated[Path | None, hidden("An n-gram model in ARPA format, mixed in word by word.")] = None,
    ngram_weight: Annotated[float, typer.Option(help="Of the n-gram in the mixture.", min=0, max=1)] = 0.5,
    weight: Annotated[float, typer.Option(help="Of the new scores; 0 is the first pass.", min=0, max=1)] = 1.0,
    lm_scale: Annotated[float | None, hidden("Of language model scores; else the header's, else 1.")] = None,
    word_penalty: Annotated[float | None, hidden("Added for each word; else the header's, else 0.")] = None,
    scales: Annotated[Path | None, hidden("A scales.json of an earlier run, instead of these five.")] = None,
    references: Annotated[Path | None, hidden("What was said: Kaldi text, .trn, CTM or JSONL.")] = None,
    tune_on: Annotated[list[Path] | None, hidden("Development lattices to tune the scales on.")] = None,
    tune_references: Annotated[Path | None, hidden("What was said in them.")] = None,
    cross_validate: Annotated[int | None, hidden("Tune in so many folds, each on all others.")] = None,
    words: Annotated[Path | None, hidden("Kaldi's words.txt.")] = None,
    old_ngram: Annotated[Path | None, hidden("The first pass's n-gram: only its share is replaced.")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Take log Z off; slow, for comparison.")] = False,
    algorithm: Annotated[str, typer.Option(help="auto, push_forward, path_cover, exact, nbest.")] = "auto",
    beam: Annotated[float, typer.Option(help="In units of the LM scale.")] = 10.0,
    hypotheses: Annotated[int, typer.Option(help="Most at a node; 0: any number.", min=0)] = 16,
    order: Annotated[int, typer.Option(help="Words that recombination compares; -1: all.", min=-1, max=64)] = -1,
    unknown: Annotated[str, typer.Option(help="What unknown words get: a penalty, share=N or keep.")] = "share=10000",
    least_risk: Annotated[
        bool, typer.Option("--least-risk", help="Words with the fewest errors to be expected.")
    ] = False,
    carry_over: Annotated[bool, typer.Option("--carry-over", help="Histories go on with the speaker.")] = False,
    speakers: Annotated[Path | None, hidden("Kaldi's utt2spk; else names up to the first _ or -.")] = None,
    output: Annotated[str | None, hidden("Lattices to write: replaced or expanded.")] = None,
    nbest: Annotated[int, typer.Option(help="Hypotheses of a lattice to list.", min=0)] = 0,
    budget: Annotated[int, typer.Option(help="Histories that go through the network at a time.", min=1)] = 4096,
    max_arcs: Annotated[int, typer.Option(help="Of one lattice; larger ones are refused.", min=1)] = 2_000_000,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at what cannot be read.")] = False,
    device: Annotated[str | None, hidden("cpu, cuda, cuda:1; else a GPU when there is one.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Give lattices and n-best lists new language model scores, and find the best words.

    total = acoustic + lm_scale ((1 - weight) lattice_lm + weight new) + word_penalty for each word. Scores of
    self-normalized models are used as they are.
    """
    from selfnorm import lattices as formats
    from selfnorm.lattices import transcripts
    from selfnorm.rescoring import Rescorer, Search, Setting
    from selfnorm.rescoring.results import KINDS
    from selfnorm.rescoring.second_pass import Output, Tally, load_scales, second_pass

    if (tune_on is None) != (tune_references is None):
        raise ValueError("--tune-on and --tune-references go together; give development lattices and their words")
    if tune_on is not None and cross_validate is not None:
        raise ValueError("--tune-on and --cross-validate are two ways to tune; choose one")
    if cross_validate is not None and references is None:
        raise ValueError("--cross-validate needs to know what was said; give --references")
    if output is not None and output not in KINDS:
        raise ValueError(f"--output {output!r}: choose from {', '.join(KINDS)}")
    search = Search(None if order < 0 else order, hypotheses or None, beam)
    penalty, keep = unknown_words(unknown)
    setting = load_scales(scales) if scales else Setting(lm_scale, weight, word_penalty, ngram_weight, penalty)
    said = transcripts.read(references) if references else None
    developed = transcripts.read(tune_references) if tune_references else None
    scorers = _scorers(model, ngram, old_ngram, normalize, device) if setting.weight else {}
    rescorer = Rescorer(scorers, setting, algorithm, search, keep, budget)
    tally = Tally(report=_refuse if strict else tell)

    def read(paths: list[Path]) -> Iterator[Any]:
        return tally.good(formats.read(paths, words=words, max_arcs=max_arcs))

    with _counting() as progress:
        outcome = second_pass(
            read(lattices),
            rescorer,
            Output(to, output, nbest, words),
            references=said,
            develop=(read(tune_on), developed) if tune_on and developed else None,
            folds=cross_validate,
            speaker=_speaker(speakers) if carry_over else None,
            risk=least_risk,
            progress=progress,
        )
    if not outcome.results:
        raise ValueError(f"{lattices[0]}: holds no lattice or list that could be read; see what was said of them above")
    rows, total = _errors(outcome, said) if said else ({}, None)
    if json:
        print_json(_fields(outcome, tally.failed, tally.arcs, rows, total))
    else:
        _show(outcome, to, tally.failed, tally.arcs, rows, total)
    if tally.failed:
        raise typer.Exit(1)


def unknown_words(policy: str) -> tuple[float, bool]:
    """The penalty of unknown words, and whether they keep the lattice's score."""
    import math

    try:
        if policy == "keep":
            return 0.0, True
        if policy.startswith("share="):
            return -math.log(int(policy.removeprefix("share="))), False
        return float(policy), False
    except ValueError:
        raise ValueError(
            f"--unknown {policy!r}: give keep, share=N (N words share the score of <unk>) or a penalty such as -5"
        ) from None


def _scorers(
    model: Path | None, ngram: Path | None, old: Path | None, normalize: bool, device: str | None
) -> dict[str, Any]:
    from selfnorm.rescoring import NEURAL, NGRAM, OLD
    from selfnorm.scorers import Neural, NGram

    found: dict[str, Any] = {}
    if model is not None:
        if not model.is_dir():
            raise ValueError(f"{model}: there is no such folder; give a run that `selfnorm train` wrote")
        found[NEURAL] = Neural.load(model, device)
        if normalize:
            found[NEURAL].normalized()
    for name, path in ((NGRAM, ngram), (OLD, old)):
        if path is not None:
            if not path.is_file():
                raise ValueError(f"{path}: there is no such file; give an n-gram model in ARPA format")
            found[name] = NGram.load(path)
    if old is not None and len(found) == 1:
        raise ValueError("--old-ngram alone replaces nothing; give --model or --ngram too")
    return found


def _refuse(sentence: str) -> None:
    raise ValueError(sentence)


def _speaker(path: Path | None) -> Callable[[str], str]:
    from selfnorm.cli.wer import set_of
    from selfnorm.lattices import transcripts

    if path is None:
        return set_of
    known = transcripts.read(path)

    def speaker(utterance: str) -> str:
        if len(known.get(utterance, ())) != 1:
            raise ValueError(f"{path}: utterance {utterance} has no speaker there; give each utterance one")
        return known[utterance][0]

    return speaker


def _errors(outcome: "Outcome", said: Words) -> "tuple[dict[str, Row], Row | None]":
    """Of the utterances that have a reference; the first pass is what they are compared with."""
    from selfnorm.cli.wer import score, set_of

    results = {result.utterance: result for result in outcome.results if result.utterance in said}
    if not results:
        tell("no utterance has a reference; errors were not counted")
        return {}, None
    chosen = {name: said[name] for name in results}
    heard = {name: result.words for name, result in results.items()}
    first = {name: result.first for name, result in results.items()}
    return score(chosen, heard, first, sets={name: set_of(name) for name in chosen})


def _fields(outcome: "Outcome", failed: int, arcs: int, rows: "dict[str, Row]", total: "Row | None") -> dict[str, Any]:
    fields: dict[str, Any] = {"utterances": len(outcome.results), "failed": failed, "arcs": arcs}
    fields |= {"seconds": outcome.seconds, "scales": asdict(outcome.setting)}
    if outcome.folds:
        fields["folds"] = [asdict(setting) for setting in outcome.folds]
    if total is not None:
        fields["wer"] = total.fields() | {"sets": {name: row.fields() for name, row in rows.items()}}
    return fields


def _show(outcome: "Outcome", to: Path, failed: int, arcs: int, rows: "dict[str, Row]", total: "Row | None") -> None:
    from rich.console import Console

    from selfnorm.cli.wer import compared, draw_table

    console = Console()
    utterances = len(outcome.results)
    for line in scale_lines(outcome.folds or [outcome.setting]):
        console.print(line, highlight=False)
    if total is not None:
        columns = ["set", "WER %", "first pass", "difference", "95 % interval", "p"]
        draw_table(console, columns, map(compared, rows.items()), compared(("all", total)))
    speed = f"{arcs / outcome.seconds:,.0f} arcs/s" if outcome.seconds else ""
    bad = f", {failed} could not be read" if failed else ""
    console.print(
        f"{to}: {utterances:,} utterances{bad}, {arcs:,} arcs in {outcome.seconds:.1f} s ({speed})", highlight=False
    )


def scale_lines(settings: "list[Setting]") -> Iterator[str]:
    for number, setting in enumerate(settings, start=1):
        fold = f"fold {number}: " if len(settings) > 1 else ""
        shown = [
            f"{name.replace('_', ' ')} {'of the header' if value is None else f'{value:.3f}'}"
            for name, value in asdict(setting).items()
        ]
        yield fold + ", ".join(shown)


@contextmanager
def _counting() -> Iterator[Callable[[int], None]]:
    """Utterances done, on a terminal; silent elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("rescoring"), TextColumn("{task.completed} utterances"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rescoring", total=None)
        yield lambda done: bar.update(task, completed=done)
