"""Rows beside each other. Trainings of one task, size of batch and seed saw the same words in the same order, others
did not: so a row is compared with another by the seeds that both have, and never by the means of different ones.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from selfnorm.bootstrap import compare
from selfnorm.reproduce.rows import Made
from selfnorm.wer import Errors

SPEED = "words_per_second"
STEP = ("model", "criterion", "k", "groups", "sampler", "sharing", "noise", "batch")  # what the time of a step hangs on


@dataclass(frozen=True)
class Apart:
    """Two WERs of the same utterances, in points: their difference and its interval of 95 %."""

    difference: float
    low: float
    high: float
    paired: bool

    def __str__(self) -> str:
        kind = "paired" if self.paired else "unpaired"
        return f"difference {self.difference:+z.2f}, {kind} {self.low:+.2f} to {self.high:+.2f}"


class CrossEntropy:
    """What other trainings are measured against."""

    def __init__(self, found: Sequence[Made]) -> None:
        there = [row for row in found if row["criterion"] == "ce" and row.get("perplexity")]
        self.found = {_words(row): row["perplexity"] for row in there}

    def percent(self, row: Made) -> float | None:
        """How much higher the perplexity of a row is than that of cross entropy on the same words."""
        its = self.found.get(_words(row))
        if its is None or row["criterion"] == "ce" or not row.get("perplexity"):
            return None
        return 100 * (row["perplexity"] / its - 1)


def seeds(found: Sequence[Made]) -> Iterator[tuple[str, list[float], list[float]]]:
    """Of each task with two seeds: what the second changes of each training, and of its distance to cross entropy.

    Both in per cent of the perplexity.
    """
    entropy = CrossEntropy(found)
    trained = {row["run"]: row for row in found if row.get("run") and row.get("perplexity")}.values()
    for task, here in groupby(sorted(trained, key=lambda row: row["task"]), key=lambda row: row["task"]):
        pairs: dict[tuple[Any, ...], dict[int, Made]] = {}
        for row in here:
            pairs.setdefault(tuple(row[name] for name in STEP), {})[row["seed"]] = row
        both = [(each[1], each[2]) for each in pairs.values() if {1, 2} <= each.keys()]
        distances = [(entropy.percent(first), entropy.percent(second)) for first, second in both]
        if both:
            yield (
                task,
                [100 * (second["perplexity"] / first["perplexity"] - 1) for first, second in both],
                [second - first for first, second in distances if first is not None and second is not None],
            )


def timed_again(found: Sequence[Made]) -> float | None:
    """How far timings of the same step lie apart at most, in per cent; None: none was timed twice."""
    same: dict[tuple[Any, ...], set[float]] = {}
    for row in found:
        if row.get(SPEED):
            same.setdefault(tuple(row[name] for name in STEP), set()).add(row[SPEED])
    apart = [100 * (max(each) / min(each) - 1) for each in same.values() if len(each) > 1]
    return max(apart, default=None)


def rates(told: Sequence[Made]) -> list[float]:
    """A WER and the ends of its interval, means over seeds."""
    return [sum(each) / len(told) for each in zip(*([one["wer"], *one["interval"]] for one in told))]


def apart(mine: Sequence[Made], other: Sequence[Made]) -> Apart:
    """The difference of two WERs: paired where the rows have the errors of each utterance.

    Else from the two intervals as if of different utterances (Zou and Donner, 2008): wider, since the same are hard for
    both.
    """
    if all("each" in told for told in (*mine, *other)):
        found = compare(_counts(mine), _counts(other))
        return Apart(found.difference, found.interval.low, found.interval.high, True)
    (rate, low, high), (its, least, most) = rates(mine), rates(other)
    below, above = math.hypot(rate - low, most - its), math.hypot(high - rate, its - least)
    return Apart(rate - its, rate - its - below, rate - its + above, False)


def _counts(told: Sequence[Made]) -> list[Errors]:
    """The errors of each utterance, added up over seeds."""
    seeds = [[map(int, each.split("/")) for each in one["each"].split()] for one in told]
    return [sum((Errors(wrong, words=words) for wrong, words in each), Errors()) for each in zip(*seeds)]


def _words(row: Made) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in ("task", "batch", "seed"))
