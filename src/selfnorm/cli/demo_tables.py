"""What `selfnorm demo` shows at its end: tables, and what to see in them; every number is this run's."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from selfnorm.wer import Pair, align

if TYPE_CHECKING:
    from selfnorm.demo.second_pass import Outcome, Rescoring
    from selfnorm.demo.side_by_side import Measured
    from selfnorm.demo.truth import Row


def models_table(title: str, measured: "Sequence[Measured]", unigram: float) -> Table:
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


def models_lesson(measured: "Sequence[Measured]", size: int) -> Iterator[str]:
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


def rescoring_table(title: str, rescoring: "Rescoring") -> Table:
    columns = ("criterion", "scores", "first pass", "after", "95 % interval", "oracle", "time")
    table = _table(title, columns)
    for name, outcome in rescoring.outcomes.items():
        interval = outcome.interval
        table.add_row(
            f"[bold]{name}",
            "normalized" if outcome.needs_log_z else "as they are",
            f"{rescoring.first.wer:.1f} %",
            f"[bold]{outcome.wer:.1f} %",
            f"{interval.low:.1f} to {interval.high:.1f}",
            f"{rescoring.oracle:.1f} %",
            f"{outcome.seconds:.1f} s",
        )
    return table


def rescoring_lesson(rescoring: "Rescoring") -> Iterator[str]:
    arcs = rescoring.arcs / len(rescoring.first.said)
    yield (
        f"[bold]Synthetic[/bold] is what a recogniser would have made: lattices of about {arcs:,.0f} arcs, from a "
        "noisy channel that takes words for others which are spelled or sound like them; and their scores, from the "
        "channel and from a bigram of a part of the training text. [bold]Real[/bold] are text, models, rescoring and "
        "counting."
    )
    for name, outcome in list(rescoring.outcomes.items())[-1:]:
        change = outcome.against(rescoring.first)
        better, worse = _changed(rescoring.first, outcome)
        yield (
            f"{name} changes the word error rate by {change.difference:+.1f} points ({change.interval.low:+.1f} to "
            f"{change.interval.high:+.1f}, p = {change.p:.4f}): {better} sentences get better, {worse} get worse. "
            "Scales were tuned on other sentences; the oracle is the best that a lattice holds."
        )
    slow = [each.seconds for each in rescoring.outcomes.values() if each.needs_log_z]
    fast = {name: each.seconds for name, each in rescoring.outcomes.items() if not each.needs_log_z}
    if slow and fast:
        times = _listed(f"{slow[0] / seconds:.1f}" for seconds in fast.values())
        yield f"Without log Z, rescoring with {_listed(fast)} is {times} times as fast."


def example(rescoring: "Rescoring") -> Table | None:
    """The sentence that the last model did most for, marked where words are wrong; None where it did nothing."""
    criterion, outcome = list(rescoring.outcomes.items())[-1]
    utterance, gain = rescoring.most_improved(criterion)
    if gain <= 0:
        return None
    said = outcome.said[utterance]
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_row(Text("said", "dim"), Text(" ".join(said)))
    for label, heard in (("first pass", rescoring.first.heard), (criterion, outcome.heard)):
        lines.add_row(Text(label, "dim"), _marked(align(said, heard[utterance])))
    return lines


def truth_table(title: str, rows: "Iterable[Row]") -> Table:
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
    return table


def show(table: Table, sentences: Iterable[str], below: Table | None = None) -> None:
    console = Console(highlight=False)
    console.print(table)
    lines = Table.grid(padding=(0, 1))
    for sentence in sentences:
        lines.add_row("•", sentence)
    console.print(lines)
    if below is not None:
        console.print("", below)


def _changed(first: "Outcome", outcome: "Outcome") -> tuple[int, int]:
    change = [after.total - before.total for before, after in zip(first.errors, outcome.errors)]
    return sum(each < 0 for each in change), sum(each > 0 for each in change)


def _marked(pairs: Iterable[Pair]) -> Text:
    """What was heard: wrong words in red and in upper case, a stroke where one is missing."""
    words = (Text(heard or "") if word == heard else Text((heard or "_").upper(), "bold red") for word, heard in pairs)
    return Text(" ").join(words)


def _table(title: str, columns: Iterable[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
