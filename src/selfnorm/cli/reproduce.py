"""`selfnorm reproduce`: the paper's tables and figure, row by row."""

import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell
from selfnorm.cli.train import named_in, watching
from selfnorm.files import check_unread

if TYPE_CHECKING:
    from selfnorm.reproduce.corpora import Corpus
    from selfnorm.reproduce.make import Maker, Planned, Watch
    from selfnorm.reproduce.plan import Row, Scale
    from selfnorm.reproduce.rows import Made
    from selfnorm.training import Watcher

BUILT_IN, SIZE, UTTERANCES = "built-in", 3000, 30
KEYS = ("criterion", "k", "perplexity", "perplexity_as_is", "log_z_mean", "log_z_std", "words_per_second")


def reproduce(
    item: Annotated[str, typer.Argument(help="table1 to table5, figure1, beyond, or all of them by importance.")],
    to: Annotated[Path, typer.Option(help="Folder for all that is made; one used before is continued.")],
    scale: Annotated[
        str, typer.Option(help="tiny: built-in text, a CPU, minutes; small, full: a GPU, hours.")
    ] = "tiny",
    data: Annotated[
        Path | None, typer.Option(help="Folder with podcasts, books, librispeech and asr.", show_default=False)
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows with this in their key: mode3/k8000; may be repeated, in order.",
            metavar="PART",
            show_default=False,
        ),
    ] = None,
    rows: Annotated[int | None, typer.Option(help="Make at most so many rows.", min=0, show_default=False)] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Begin nothing after these; a training is saved.", min=0, show_default=False)
    ] = None,
    at_once: Annotated[
        int, typer.Option(help="Train so many rows at a time on this GPU; they are timed before, alone.", min=1)
    ] = 1,
    plan: Annotated[bool, typer.Option("--plan", help="Say what is done and what is to do, and do nothing.")] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write the finished rows as Markdown, and make none.", show_default=False)
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Redo the paper on public text: rows that are done are skipped, so a table can be filled bit by bit."""
    from selfnorm.registry import named
    from selfnorm.reproduce.plan import SCALES
    from selfnorm.reproduce.plan import rows as planned

    chosen = named("scale", SCALES, scale)
    wanted = _only(planned(item, chosen), only or [], chosen)
    if page is not None:
        _write_page(page, to, chosen, json)
        return
    if plan:
        _show_plan(_maker(to, chosen, data, making=False).plan(wanted), json)
        return
    with _ended_by_signals():
        maker = _maker(to, chosen, data, making=True)
        with _bars() if at_once > 1 else nullcontext(watching) as maker.watch:
            over = _make(maker, wanted, rows, minutes, at_once)
    done = maker.done()
    found = [done[row.key] for row in wanted if row.key in done]
    if json:
        print_json({"rows": [_with_paper(row) for row in found]})
    else:
        _show(found, wanted)
    if len(found) < len(wanted):
        left = f"{len(found)} of {len(wanted)} rows are done; the same command goes on"
        tell(f"selfnorm: {over}; {left}" if over else f"selfnorm: {left}")


def _only(rows: "list[Row]", parts: list[str], scale: "Scale") -> "list[Row]":
    """Those whose key holds one of the parts, whole words between its strokes; in the order of the parts."""
    found: dict[Row, None] = {}
    for part in parts:
        here = [row for row in rows if f"/{part.strip('/')}/" in f"/{row.key}/"]
        if not here:
            shrunk = scale.shrink > 1 and re.search(r"\bk\d", part)
            smaller = f", whose K is {scale.shrink} times smaller than the paper's" if shrunk else ""
            raise ValueError(f"--only {part}: no row is called so; see --plan for the keys of all rows{smaller}")
        found |= dict.fromkeys(here)
    return list(found) if parts else rows


def _maker(to: Path, scale: "Scale", data: Path | None, making: bool) -> "Maker":
    import torch

    from selfnorm.bench.machine import default_device, name_of
    from selfnorm.reproduce.corpora import public
    from selfnorm.reproduce.make import Maker

    if any(task.corpus != BUILT_IN for task in scale.tasks.values()):
        if data is None and making:
            raise ValueError(
                f"--scale {scale.name} needs --data, the folder that holds podcasts, books, librispeech and asr; "
                "--scale tiny needs none"
            )
        corpora = public(data or Path())
    else:
        corpora = {BUILT_IN: built_in(to / BUILT_IN)} if making else {}
    origin = {"machine": name_of(default_device()), "torch": torch.__version__}
    return Maker(to, scale, corpora, origin=origin, say=tell)


def built_in(folder: Path) -> "Corpus":
    """The demo's text and its lattices from a noisy channel, made where they are not there yet."""
    from selfnorm.demo.english import english
    from selfnorm.demo.second_pass import Plan, SecondPass
    from selfnorm.demo.side_by_side import Setting, SideBySide
    from selfnorm.reproduce.corpora import Corpus
    from selfnorm.reproduce.errors import Utterances
    from selfnorm.rescoring import Setting as Start

    second = SecondPass(folder, Plan(test=UTTERANCES, dev=1))
    if not second.said("test").exists():
        tell("making text and lattices")
        SideBySide(english(), folder, Setting(size=SIZE)).prepare()
        second.listen()
    text = folder / "text"
    utterances = Utterances("channel", second.lattices / "test", second.said("test"), Start(ngram_weight=0.3))
    train, valid, test = (text / f"{part}.txt" for part in ("train", "valid", "test"))
    return Corpus(BUILT_IN, SIZE, (train,), (valid,), (test,), (utterances,))


def _make(maker: "Maker", wanted: "list[Row]", most: int | None, minutes: float | None, at_once: int) -> str:
    """Why it ended before its time; nothing if it did not."""
    from torch import OutOfMemoryError

    from selfnorm.reproduce.clock import Clock, TimeUp

    try:
        for made in maker.make(wanted, most, Clock(minutes), at_once):
            tell(f"{made['key']}: done")
    except TimeUp as over:
        return str(over)
    except (OutOfMemoryError, MemoryError) as error:
        tell(f"selfnorm: out of memory: {error}; what was made is kept, leave this row to a larger machine with --only")
        raise typer.Exit(3) from None
    return ""


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Says how to go on; what no training saves is left off, and what was half written of it is tidied up."""
    from selfnorm.training import Interrupted

    noted = [signal.SIGINT]

    def end(number: int, frame: Any) -> None:
        noted[0] = signal.Signals(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except Interrupted as interrupted:
        number, told = interrupted.number, str(interrupted)
    except KeyboardInterrupt:
        number, told = noted[0], f"stopped by {noted[0].name}, all that was finished is kept"
    else:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
    tell(f"selfnorm: {told}; go on with: {shlex.join(['selfnorm', *sys.argv[1:]])}")
    raise typer.Exit(128 + number)


@contextmanager
def _bars() -> "Iterator[Watch]":
    """Watches several trainings: a bar for each on a terminal, lines with their names elsewhere."""
    if not sys.stderr.isatty():
        yield watching
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (named_in(console), BarColumn(bar_width=None, complete_style="green"), MofNCompleteColumn())
    bars = Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[now]}"), console=console, expand=True)

    @contextmanager
    def bar(name: str) -> "Iterator[Watcher]":
        from selfnorm.training import Watcher

        task = bars.add_task(name, total=None, now="")
        yield Watcher(
            begin=lambda step, total: bars.update(task, completed=step, total=total),
            metrics=lambda now: bars.update(task, completed=now.step, now=f"ppl {now.perplexity:.1f}"),
            evaluation=lambda step, found: bars.update(task, completed=step, now=f"ppl {found.perplexity:.1f}"),
            say=lambda sentence: bars.console.print(f"{name}: {sentence}", markup=False, highlight=False),
        )
        bars.remove_task(task)

    with bars:
        yield bar


def _with_paper(row: "Made") -> dict[str, Any]:
    from selfnorm.reproduce.paper import PAPER

    return {**dict.fromkeys(KEYS), **row, "paper": PAPER[row["item"]].get(row["label"])}


def _show(found: "list[Made]", wanted: "list[Row]") -> None:
    from rich import box
    from rich.table import Table

    from selfnorm.cli.alignment import terminal
    from selfnorm.reproduce.paper import TITLES
    from selfnorm.reproduce.tables import tables

    console = terminal()
    for item in dict.fromkeys(row.item for row in wanted):
        for title, head, body in tables(item, [row for row in found if row["item"] == item], found):
            table = Table(title=f"{TITLES[item]}{title}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
            for number, name in enumerate(head):
                table.add_column(name.replace(": ", ":\n"), justify="right" if number else "left")
            for cells in body:
                table.add_row(*cells)
            console.print(table, highlight=False)


def _show_plan(planned: "list[Planned]", json: bool) -> None:
    if json:
        print_json({"rows": [{"key": p.row.key, "run": p.run, "words": p.words, "state": p.state} for p in planned]})
        return
    from rich import box
    from rich.table import Table

    from selfnorm.cli.alignment import terminal

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))  # a key has 60 characters, many terminals 80
    for name in ("row", "words", "state"):
        table.add_column(name, justify="right" if name == "words" else "left", overflow="fold")
    for each in planned:
        table.add_row(each.row.key, f"{each.words / 1e6:,.2f}M" if each.words else "-", each.state)
    terminal().print(table, highlight=False)
    left = {each.run: each.words for each in planned if each.state in ("to do", "begun") and each.run}
    rows = sum(each.state != "done" for each in planned)
    print(f"{rows} of {len(planned)} rows to make; {len(left)} trainings of about {sum(left.values()):,.0f} words")


def _write_page(page: Path, to: Path, scale: "Scale", json: bool) -> None:
    from selfnorm.reproduce import rows
    from selfnorm.reproduce.pages import write

    check_unread(page, [to / rows.ROWS, to / rows.TABLE])
    found, damaged = rows.read(to)
    for sentence in damaged:
        tell(sentence)
    here = [row for row in found if row["scale"] == scale.name]
    if not here:
        raise ValueError(f"{to / rows.ROWS}: has no row of --scale {scale.name} to make a page from; check --to")
    written = [str(path) for path in write(page, here, scale)]
    print_json({"pages": written}) if json else print(*written, sep="\n")
