"""`selfnorm rescore`: lattices and n-best lists, a second time, with a better language model."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from math import isfinite, log
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell

if TYPE_CHECKING:
    from selfnorm.cli.wer import Row
    from selfnorm.rescoring import Setting
    from selfnorm.rescoring.second_pass import Outcome

Words = dict[str, tuple[str, ...]]


def option(panel: str, help: str, *names: str, **more: Any) -> Any:
    """An option in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


INPUT, MODELS, SCALES, TUNING, SEARCH, OUTPUT = "Input", "Models", "Scales", "Tuning", "Search", "Output"
SHARE = {"min": 0, "max": 1, "metavar": "NUMBER"}
FILE, NUMBER, COUNT = {"metavar": "FILE"}, {"metavar": "NUMBER"}, {"metavar": "N"}


def rescore(
    lattices: Annotated[
        list[Path], typer.Argument(help="HTK or Kaldi lattices, n-best lists: files or folders.", metavar="LATTICES")
    ],
    *,
    words: Annotated[Path | None, option(INPUT, "Kaldi's words.txt.", **FILE)] = None,
    references: Annotated[
        Path | None, option(INPUT, "What was said, to count errors: Kaldi text, .trn, CTM, JSONL.", **FILE)
    ] = None,
    max_arcs: Annotated[int, option(INPUT, "Of one lattice; larger ones are refused.", min=1, **COUNT)] = 2_000_000,
    strict: Annotated[bool, option(INPUT, "Stop at what cannot be read.", "--strict")] = False,
    model: Annotated[Path | None, option(MODELS, "The neural language model.", metavar="RUN")] = None,
    ngram: Annotated[Path | None, option(MODELS, "An n-gram model (ARPA), mixed in word by word.", **FILE)] = None,
    ngram_weight: Annotated[float, option(MODELS, "Of the n-gram in the mixture.", **SHARE)] = 0.5,
    old_ngram: Annotated[
        Path | None, option(MODELS, "The first pass's n-gram: only its part of the scores is replaced.", **FILE)
    ] = None,
    unknown: Annotated[
        str, option(MODELS, "For unknown words: share=N (of <unk>), a penalty, or keep (the old).", metavar="HOW")
    ] = "share=10000",
    normalize: Annotated[bool, option(MODELS, "Take log Z off: slow, for comparison.", "--normalize")] = False,
    device: Annotated[
        str | None, option(MODELS, "cpu, cuda, cuda:1; else a GPU if there is one.", metavar="NAME")
    ] = None,
    weight: Annotated[float, option(SCALES, "Of the new scores; 0 is the first pass.", **SHARE)] = 1.0,
    lm_scale: Annotated[
        float | None, option(SCALES, "Else the header's, else 1; for Kaldi 1/acwt, often 10.", **NUMBER)
    ] = None,
    word_penalty: Annotated[
        float | None, option(SCALES, "Added for each word; else the header's, else 0.", **NUMBER)
    ] = None,
    scales: Annotated[Path | None, option(SCALES, "The scales.json of an earlier run, in their place.", **FILE)] = None,
    tune_on: Annotated[
        list[Path] | None, option(TUNING, "Development lattices or lists; may be repeated.", metavar="LATTICES")
    ] = None,
    tune_references: Annotated[Path | None, option(TUNING, "What was said in them.", **FILE)] = None,
    cross_validate: Annotated[
        int | None, option(TUNING, "In so many folds, each with what is best for all others.", **COUNT)
    ] = None,
    algorithm: Annotated[str, option(SEARCH, "push_forward, path_cover, exact, nbest.", metavar="NAME")] = "auto",
    beam: Annotated[float, option(SEARCH, "In units of the LM scale.", min=0, **NUMBER)] = 10.0,
    hypotheses: Annotated[int, option(SEARCH, "At most at a node; 0: any number.", min=0, **COUNT)] = 16,
    order: Annotated[int, option(SEARCH, "Words that recombination compares; -1: all.", min=-1, max=64, **COUNT)] = -1,
    least_risk: Annotated[
        bool, option(SEARCH, "The words with the fewest errors to be expected.", "--least-risk")
    ] = False,
    carry_over: Annotated[
        bool, option(SEARCH, "Histories go on with the speaker's next utterance.", "--carry-over")
    ] = False,
    speakers: Annotated[
        Path | None, option(SEARCH, "Kaldi's utt2spk; else names up to the first _ or -.", **FILE)
    ] = None,
    budget: Annotated[int, option(SEARCH, "Histories in one batch of the network.", min=1, **COUNT)] = 4096,
    to: Annotated[Path, option(OUTPUT, "For the best words and the scales.", metavar="FOLDER")],
    output: Annotated[
        str | None, option(OUTPUT, "Lattices: replaced (new scores) or expanded (by history).", metavar="KIND")
    ] = None,
    nbest: Annotated[int, option(OUTPUT, "Best hypotheses of each lattice to list.", min=0, **COUNT)] = 0,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Give lattices and n-best lists new language model scores, and find the best words.

    selfnorm rescore lattices --model runs/books --references refs.txt --cross-validate 5 --to out

    total = acoustic + lm_scale ((1 - weight) lattice_lm + weight new) + word_penalty for each word

    Scores of self-normalized models are used as they are.
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
    tally, developing = (Tally(report=_refuse if strict else tell) for _ in range(2))

    def read(paths: list[Path], tally: Tally) -> Iterator[Any]:
        return tally.good(formats.read(paths, words=words, max_arcs=max_arcs))

    with _counting() as progress:
        outcome = second_pass(
            read(lattices, tally),
            rescorer,
            Output(to, output, nbest, words),
            references=said,
            develop=(read(tune_on, developing), developed) if tune_on and developed else None,
            folds=cross_validate,
            speaker=_speaker(speakers) if carry_over else None,
            risk=least_risk,
            progress=progress,
        )
    if tally.notes:
        more = f"; {tally.notes - 1:,} more such notes: see `selfnorm lattice`" if tally.notes > 1 else ""
        tell(f"{tally.note}{more}")
    failed = tally.failed + developing.failed
    rows, total = _errors(outcome, said) if said else ({}, None)
    if json:
        print_json(_fields(outcome, failed, tally.arcs, rows, total))
    else:
        _show(outcome, to, failed, tally.arcs, rows, total)
    if failed:
        raise typer.Exit(1)


def unknown_words(policy: str) -> tuple[float, bool]:
    """The penalty of unknown words, and whether they keep the lattice's score."""
    try:
        if policy == "keep":
            return 0.0, True
        if policy.startswith("share="):
            return -log(int(policy.removeprefix("share="))), False
        if not isfinite(float(policy)):
            raise ValueError
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
    if missing := len(outcome.results) - len(results):
        tell(f"{missing:,} utterances have no reference; their errors were not counted")
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
        console.print(line, highlight=False, soft_wrap=True)
    if total is not None:
        columns = ["set", "WER %", "first pass", "difference", "95 % interval", "p"]
        draw_table(console, columns, map(compared, rows.items()), compared(("all", total)))
    speed = f"{arcs / outcome.seconds:,.0f} arcs/s" if outcome.seconds else ""
    bad = f", {failed} could not be read" if failed else ""
    line = f"{to}: {utterances:,} utterances{bad}, {arcs:,} arcs in {outcome.seconds:.1f} s ({speed})"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


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
