"""`selfnorm ngram`: text to an n-gram model in an ARPA file."""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from selfnorm.cli.options import Debug, Json, now_and_then, print_json
from selfnorm.cores import cores
from selfnorm.files import check_unread

if TYPE_CHECKING:
    from selfnorm.ngrams.estimate import Summary

STAGES = {"read": "Reading", "count": "Counting", "weigh": "Weighing", "write": "Writing"}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

Show = Callable[[str, int, int], None]


def ngram(
    text: Annotated[list[Path], typer.Argument(help="Training text: UTF-8, one sentence per line; plain, .gz, .bz2.")],
    to: Annotated[Path, typer.Option(help="The ARPA file to write; .gz and .bz2 pack it.")],
    order: Annotated[int, typer.Option(help="Length of the longest n-grams.")] = 4,
    prune: Annotated[
        str,
        typer.Option(help='Leave out n-grams with at most this count, from unigrams up: "0 0 1"; the last goes on.'),
    ] = "0",
    vocab: Annotated[
        Path | None, typer.Option(help="Word list; n-grams with other words are left out.", show_default=False)
    ] = None,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="A blank line is an empty sentence.")] = False,
    memory: Annotated[str, typer.Option(help="Memory for arrays (K, M, G); larger ones lie on the disk.")] = "4G",
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Estimate an n-gram model (interpolated modified Kneser-Ney)."""
    from selfnorm.corpus.numbered import Numbered
    from selfnorm.ngrams.estimate import estimate_arpa
    from selfnorm.vocabulary import Vocabulary

    thresholds, limit = _thresholds(prune), _bytes(memory)
    check_unread(to, [*text, vocab])
    vocabulary = None if vocab is None else Vocabulary.load(vocab)
    with _progress() as show:
        source = Numbered(text, keep_empty, show)
        summary = estimate_arpa(source, to, order, thresholds, vocabulary, limit, cores(), show)
    print_json(summary.as_dict()) if json else _show(summary)


class ManyThresholds(TyperCommand):
    """Takes `--prune 0 0 1` as lmplz does; an option has one value elsewhere, so it becomes `--prune "0 0 1"`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        joined: list[str] = []
        for arg in args:
            if len(joined) > 1 and joined[-2] == "--prune" and arg.isdigit():
                joined[-1] += f" {arg}"
            else:
                joined.append(arg)
        return super().parse_args(ctx, joined)


def _thresholds(given: str) -> list[int]:
    fields = given.replace(",", " ").split()
    if not fields or not all(field.isdigit() for field in fields):
        raise ValueError(f'--prune {given!r} are not counts; give one for each order, as in --prune "0 0 1"')
    return [int(field) for field in fields]


def _bytes(given: str) -> int:
    match = re.fullmatch(r"(\d+)([KMGT]?)i?B?", given.upper())
    if not match:
        raise ValueError(f"--memory {given!r} is no size; give bytes, or K, M or G of them, as in --memory 4G")
    return int(match[1]) * UNITS[match[2]]


@contextmanager
def _progress() -> Iterator[Show]:
    """A bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield now_and_then(lambda stage, done, todo: f"{STAGES[stage]}: {100 * done / todo:.0f} %")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {stage: bar.add_task(name, total=None, visible=False) for stage, name in STAGES.items()}
        yield lambda stage, done, todo: bar.update(tasks[stage], completed=done, total=todo, visible=True)


def _show(summary: "Summary") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("order", "n-grams", "in the text", "D1", "D2", "D3+"):
        table.add_column(column, justify="right")
    for order, each in enumerate(summary.discounts, start=1):
        sizes = (f"{size[order - 1]:,}" for size in (summary.grams, summary.found))
        table.add_row(str(order), *sizes, *(f"{amount:.4f}" for amount in each.amounts))
    Console().print(table)
    if summary.fallback:
        orders = ", ".join(map(str, summary.fallback))
        print(f"Too few or too odd counts to estimate the discounts of order {orders}: 0.5, 1 and 1.5 were taken")
    if summary.outside:
        print(f"{summary.outside:,} different words are not in the list; their n-grams were left out")
    print(
        f"{summary.to}: {summary.words:,} words, {summary.sentences:,} sentences in {summary.seconds:.1f} s "
        f"({summary.words / summary.seconds:,.0f} words/s)"
    )
