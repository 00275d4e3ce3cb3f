"""What `selfnorm rescore` shows: the scales, the errors before and after, and a counter on the way."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfnorm.cli.options import some, tell

if TYPE_CHECKING:
    from selfnorm.cli.wer import Row
    from selfnorm.rescoring.second_pass import Outcome

Words = dict[str, tuple[str, ...]]


def errors(outcome: "Outcome", said: Words) -> "tuple[dict[str, Row], Row | None]":
    """Of the utterances that have a reference, if there are any; the first pass is what they are compared with."""
    from selfnorm.cli.wer import score
    from selfnorm.lattices.transcripts import set_of

    results = {result.utterance: result for result in outcome.results if result.utterance in said}
    if not results:
        tell(
            f"no utterance has a reference: {outcome.results[0].utterance} is the first utterance, {next(iter(said))} "
            "the first reference; name them alike (the hypotheses were written)"
        )
        return {}, None
    if missing := len(outcome.results) - len(results):
        tell(f"{missing:,} utterances have no reference; their errors were not counted")
    if lost := uncounted(outcome, said):
        tell(
            f"{len(lost):,} of {len(said):,} references were not counted ({some(lost)}): there was nothing to rescore "
            f"for them that could be read; the WER is of the other {len(results):,}"
        )
    chosen = {name: said[name] for name in results}
    heard = {name: result.words for name, result in results.items()}
    first = {name: result.first for name, result in results.items()}
    return score(chosen, heard, {name: set_of(name) for name in chosen}, first)


def uncounted(outcome: "Outcome", said: Words) -> list[str]:
    """The references whose utterances were not rescored."""
    rescored = {result.utterance for result in outcome.results}
    return [name for name in said if name not in rescored]


def fields(
    outcome: "Outcome", failed: int, arcs: int, rows: "dict[str, Row]", total: "Row | None", said: Words | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"utterances": len(outcome.results), "failed": failed, "arcs": arcs}
    headers = _of_headers(outcome)
    scales, *folds = (
        {name: headers[name] if value is None else value for name, value in asdict(setting).items()}
        for setting in (outcome.setting, *(outcome.folds or ()))
    )
    found |= {"seconds": outcome.seconds, "scales": scales, "unknown": outcome.unknown}
    if folds:
        found["folds"] = folds
    if total is not None:
        found["wer"] = total.fields() | {"sets": {name: row.fields() for name, row in rows.items()}}
        found["wer"]["not_counted"] = len(uncounted(outcome, said or {}))
    return found


def show(outcome: "Outcome", to: Path, failed: int, arcs: int, rows: "dict[str, Row]", total: "Row | None") -> None:
    from rich.console import Console

    from selfnorm.cli.wer import compared, draw_table

    console = Console()
    utterances = len(outcome.results)
    if not outcome.unknown and outcome.setting.weight:
        console.print(
            "neither --model nor --ngram: nothing was rescored, the first pass's scores decided", highlight=False
        )
    for line in scale_lines(outcome):
        console.print(line, highlight=False, soft_wrap=True)
    if total is not None:
        columns = ["set", "WER %", "first pass", "difference", "95 % interval", "p"]
        draw_table(console, columns, map(compared, rows.items()), compared(("all", total)))
    speed = f"{arcs / outcome.seconds:,.0f} arcs/s" if outcome.seconds else ""
    bad = f", {failed} could not be read" if failed else ""
    line = f"{to}: {utterances:,} utterances{bad}, {arcs:,} arcs in {outcome.seconds:.1f} s ({speed})"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def scale_lines(outcome: "Outcome") -> Iterator[str]:
    """The settings; what one leaves to the headers is shown as these say it."""
    of_headers = {name: _span(value) for name, value in _of_headers(outcome).items()}
    settings = outcome.folds or [outcome.setting]
    for number, setting in enumerate(settings, start=1):
        fold = f"fold {number}: " if len(settings) > 1 else ""
        shown = [
            f"{name.replace('_', ' ')} {of_headers[name] if value is None else f'{value:.3f}'}"
            for name, value in asdict(setting).items()
        ]
        yield fold + ", ".join(shown)


def _of_headers(outcome: "Outcome") -> "dict[str, float | list[float]]":
    """The scales that results were decided with, the least and the most of them where they differ."""
    found: dict[str, float | list[float]] = {}
    for name, values in zip(("lm_scale", "word_penalty"), zip(*(result.scales for result in outcome.results))):
        least, most = min(values), max(values)
        found[name] = least if least == most else [least, most]
    return found


def _span(value: "float | list[float]") -> str:
    return " to ".join(f"{each:.3f}" for each in (value if isinstance(value, list) else [value]))


@contextmanager
def counting() -> Iterator[Callable[[int], None]]:
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
