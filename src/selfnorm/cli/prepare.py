"""`selfnorm prepare`: text to vocabulary and token store."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, now_and_then, print_json, tell
from selfnorm.cli.sharing import NoWait, Shared, check, not_waiting

if TYPE_CHECKING:
    from selfnorm.corpus.prepare import Progress, Summary

STAGES = {"count": "Counting", "encode": "Encoding"}


def prepare(
    text: Annotated[list[Path], typer.Argument(help="Training text: UTF-8, one sentence per line; plain, .gz, .bz2.")],
    to: Annotated[Path, typer.Option(help="The DATA folder to write; one made before is replaced.")],
    size: Annotated[
        int | None, typer.Option(help="Words to keep, with </s> and <unk>; all of them by default.", show_default=False)
    ] = None,
    valid: Annotated[Path | None, typer.Option(help="Development text.", show_default=False)] = None,
    test: Annotated[Path | None, typer.Option(help="Test text.", show_default=False)] = None,
    vocab: Annotated[
        Path | None,
        typer.Option(help="Word list to choose from; also Kaldi's words.txt, fairseq's dict.txt.", show_default=False),
    ] = None,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="A blank line is an empty sentence.")] = False,
    shared: Shared = False,
    no_wait: NoWait = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Count the words of a text, choose a vocabulary, write the ids."""
    from selfnorm.corpus import prepare as corpus
    from selfnorm.corpus.shared import prepare_shared

    check(shared, no_wait)
    given = text, to, size, valid, test, vocab, keep_empty
    with not_waiting(), _progress() as progress:
        if shared:
            summary = prepare_shared(*given, wait=not no_wait, tell=tell, progress=progress)
        else:
            summary = corpus.prepare(*given, progress=progress)
    print_json(summary.as_dict()) if json else _show(summary)


@contextmanager
def _progress() -> Iterator["Progress"]:
    """A bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        begin = time.monotonic()

        def line(stage: str, done: int, total: int, words: int) -> str:
            return f"{STAGES[stage]}: {100 * done / total:.0f} %, {_speed(words, time.monotonic() - begin)}"

        yield now_and_then(line)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    speed = TextColumn("{task.fields[speed]}")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), speed, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        tasks = {stage: bar.add_task(name, total=None, visible=False, speed="") for stage, name in STAGES.items()}
        began: dict[str, float] = {}

        def show(stage: str, done: int, total: int, words: int) -> None:
            seconds = time.monotonic() - began.setdefault(stage, time.monotonic())
            speed = _speed(words, seconds)
            bar.update(tasks[stage], completed=done, total=total, visible=True, speed=speed)

        yield show


def _speed(words: int, seconds: float) -> str:
    return f"{words / seconds / 1e6:.2f}M words/s" if seconds > 0 else ""


def _show(summary: "Summary") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("text", overflow="fold")
    for column in ("part", "words", "sentences", "types", "OOV", "OOV %"):
        table.add_column(column, justify="left" if column == "part" else "right")
    for text in summary.texts:
        counts = (f"{count:,}" for count in (text.words, text.sentences, text.types, text.oov))
        table.add_row(text.path, text.part, *counts, f"{100 * text.oov_rate:.2f}")
    Console(markup=False).print(table)
    print("Most frequent:", ", ".join(f"{word} {count:,}" for word, count in summary.most_frequent))
    if summary.dropped:
        print(f"Not words, left out of the list: {' '.join(summary.dropped)}")
    print(f"{summary.to}: a vocabulary of {summary.size:,} words (of {summary.types:,} in the training text)")
    print(f"{summary.words:,} words in {summary.seconds:.1f} s ({summary.words_per_second:,.0f} words/s)")
