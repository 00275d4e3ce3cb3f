"""What the verbs share: the two options that every one takes, JSON, and lines and a counter on standard error."""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from selfnorm.files import finite

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]

NO_SCALE = "Kaldi's lattices do not say their LM scale; give --lm-scale, 1/acwt, often 10"
PAUSE = 10.0  # seconds between two plain lines of progress


def print_json(fields: Mapping[str, Any]) -> None:
    """One line of strict JSON: null where a number is not finite."""
    print(json.dumps(finite(dict(fields)), allow_nan=False, ensure_ascii=False))


def some(names: Sequence[str]) -> str:
    """A few of many names."""
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def tell(sentence: str) -> None:
    """A line on standard error; that nobody can read it is no reason to fail."""
    with suppress(OSError):
        print(sentence, file=sys.stderr, flush=True)


def now_and_then(line: Callable[..., str]) -> Callable[..., None]:
    """Tells the line of how far a work is, but not more often than every PAUSE seconds."""
    last = time.monotonic()

    def show(*done: Any) -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            last = time.monotonic()
            tell(line(*done))

    return show


@contextmanager
def counting(name: str) -> Iterator[Callable[[int, int], None] | None]:
    """Words done of words in all, as a bar on a terminal; silent elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("words"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def watched() -> Iterator[Callable[[str], None]]:
    """Tells lines on standard error; on a terminal a spinner says that work goes on."""
    if not sys.stderr.isatty():
        yield tell
        return
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("measuring"):
        yield lambda sentence: console.print(sentence, markup=False, highlight=False, style="dim")


def read_text(path: Path, keep_empty: bool) -> list[list[str]]:
    """The words of each sentence of a text, of which there must be one."""
    from selfnorm.corpus.text import check_text, read_sentences

    check_text(path)
    sentences = list(read_sentences(path, keep_empty))
    if not sentences:
        raise ValueError(f"{path}: holds no sentence; give a text with one sentence per line")
    return sentences


def trace(debug: bool) -> None:
    """Where the error at hand came from; its sentence and its exit status follow."""
    if debug:
        tell(traceback.format_exc().rstrip())


def tell_once(sentence: str, unless_watched: bool = False) -> None:
    """Tell, unless another process of the same training has told what went wrong, or a supervisor will."""
    from selfnorm.distributed.heartbeat import BEATS, told

    if os.environ.get("WORLD_SIZE", "1").isdigit() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from selfnorm.distributed.world import first_to_tell

        if (unless_watched and BEATS in os.environ) or not first_to_tell():
            return
    tell(sentence)
    told()
