"""`selfnorm train`: a recipe and a run directory to a trained model."""

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell, tell_once, trace

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn

    from selfnorm.evaluation import Evaluation
    from selfnorm.training import Metrics, Watcher


SEVERAL = "Several processes"


def train(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.")],
    run: Annotated[Path, typer.Argument(help="The run directory to write, or to go on with.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override the recipe: sampler.k=100", metavar="KEY=VALUE", show_default=False),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Start from the model of this run (adaptation).", show_default=False)
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="Train in so many processes, one for each GPU.", min=1, rich_help_panel=SEVERAL)
    ] = None,
    restarts: Annotated[
        int, typer.Option(help="Times to start again when a process is lost.", min=0, rich_help_panel=SEVERAL)
    ] = 0,
    nodes: Annotated[
        int, typer.Option(help="Machines; each starts its own --processes.", min=1, rich_help_panel=SEVERAL)
    ] = 1,
    node: Annotated[int, typer.Option(help="This machine's number.", min=0, rich_help_panel=SEVERAL)] = 0,
    address: Annotated[
        str | None,
        typer.Option(
            help="Where they meet: machine 0 and a free port of it.",
            metavar="HOST:PORT",
            show_default=False,
            rich_help_panel=SEVERAL,
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a language model; started again, it goes on where it stopped.

    selfnorm train recipe.toml runs/books --processes 8 --restarts 3
    """
    from selfnorm import recipe as recipes
    from selfnorm.distributed import LOST, heartbeat

    chosen = recipes.load(recipe, set_ or [])  # before PyTorch: a typing mistake is told at once
    if processes is not None or restarts or nodes > 1:
        from selfnorm.distributed.supervisor import Machines, supervise

        machines = Machines(processes or 1, nodes, node, address)
        more = [f"--set={each}" for each in set_ or []] + ([f"--from={source}"] if source else [])
        more += ["--json"] * json + ["--debug"] * debug
        raise typer.Exit(supervise(["selfnorm", "train", str(recipe), str(run), *more], machines, restarts, tell))
    heartbeat.beat()
    if "WORLD_SIZE" in os.environ:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # pages of C++ about what we say in a sentence
    from torch import OutOfMemoryError

    from selfnorm import training
    from selfnorm.distributed.world import World, lost, of_others, short

    world = World.join(str(chosen.training.options.get("device", "auto")))
    try:
        with watching() if world.first else nullcontext() as watcher:
            result = training.train(chosen, run, source=source, watcher=watcher, world=world)
        world.leave()
    except training.Interrupted as interrupted:
        command = ["selfnorm", "train", str(run / "recipe.toml"), str(run)]
        command += [] if world.alone else [f"--processes={world.size}"]
        here = world.size == int(os.environ.get("LOCAL_WORLD_SIZE", world.size))
        how = f"go on with: {shlex.join(command)}" if here else "start the same command again, on every machine"
        if world.first:
            tell(f"selfnorm: {interrupted}; {how}")
        heartbeat.told()
        world.leave()
        raise typer.Exit(128 + interrupted.number) from None
    except training.Stopped as stopped:
        trace(debug)
        tell_once(f"selfnorm: {stopped}")
        raise typer.Exit(3) from None
    except (OutOfMemoryError, MemoryError) as error:
        trace(debug)
        from selfnorm.samplers.shared import DEFAULT

        k, batch = chosen.sampler.options.get("k", DEFAULT), dict(chosen.batches.options) or "8192 positions"
        named = error.__cause__ is not None  # a training step has said what did not fit; elsewhere PyTorch has
        what = error if named else f"out of memory with k = {k} and batches of {batch}; make one of them smaller"
        tell_once(f"selfnorm: {what}")
        raise typer.Exit(3) from None
    except RuntimeError as error:
        if world.alone or not of_others(error):
            raise
        trace(debug)
        what = "has lost another one" if lost(error) else "could not exchange with the others"
        tell_once(
            f"selfnorm: process {world.rank} of {world.size} {what} ({short(error)}); "
            "start the same command again, on every machine, to go on from the last checkpoint",
            unless_watched=lost(error),
        )
        raise typer.Exit(LOST) from None
    if not world.first:
        return
    if json:
        print_json(asdict(result) | {"run": str(run)})
        return
    speed = f", {result.words_per_second:,.0f} words/s" if result.words_per_second else ""
    print(f"{run}: {result.steps:,} steps, {result.words:,} words{speed}")
    if result.evaluation is not None:
        print(f"development text: {told(result.evaluation)}")


def told(evaluation: "Evaluation") -> str:
    return (
        f"perplexity {evaluation.perplexity:.2f} (as is {evaluation.perplexity_as_is:.2f}), "
        f"log Z {evaluation.log_z_mean:+.3f} +- {evaluation.log_z_std:.3f}"
    )


@contextmanager
def watching(name: str = "training") -> Iterator["Watcher"]:
    """A bar on a terminal, plain lines elsewhere, with the name of one of several; both on standard error."""
    from selfnorm.training import Watcher

    if not sys.stderr.isatty():
        total, name = [0], "" if name == "training" else f"{name}: "

        def begin(step: int, last: int) -> None:
            total[0] = last

        yield Watcher(
            begin=begin,
            metrics=lambda metrics: tell(f"{name}step {metrics.step}/{total[0]}  {line(metrics)}"),
            evaluation=lambda step, found: tell(f"{name}step {step}/{total[0]}  development text: {told(found)}"),
            say=lambda sentence: tell(f"{name}{sentence}"),
        )
        return

    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    console, numbers = Console(stderr=True, markup=False), Text(style="cyan", no_wrap=True, overflow="ellipsis")
    columns = (
        named_in(console),
        BarColumn(bar_width=None, complete_style="green"),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("<"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console)
    task = bar.add_task(name, total=None)

    def heard(metrics: "Metrics") -> None:
        bar.update(task, completed=metrics.step)
        numbers.plain = line(metrics)

    with Live(Group(bar, numbers), console=console, transient=name != "training"):
        yield Watcher(
            begin=lambda step, last: bar.update(task, completed=step, total=last),
            metrics=heard,
            evaluation=lambda step, evaluation: console.print(f"step {step:,}: {told(evaluation)}", highlight=False),
            say=lambda sentence: console.print(sentence, highlight=False),
        )


def named_in(console: "Console") -> "TextColumn":
    """The name before a bar, cut where it would leave no room for how far that is."""
    from rich.progress import TextColumn
    from rich.table import Column

    return TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=max(16, console.width // 3)))


def line(metrics: "Metrics") -> str:
    parts = [
        f"{metrics.words_per_second:,.0f} words/s",
        f"loss {metrics.loss:.3f}",
        f"ppl {metrics.perplexity:.1f}",
        f"log Z {metrics.log_z:+.3f}",
        f"lr {metrics.lr:.2g}",
        f"|g| {metrics.gradient_norm:.2f}",
    ]
    return "  ".join(parts + ([f"skipped {metrics.skipped}"] if metrics.skipped else []))
