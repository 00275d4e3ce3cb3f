"""How sure a word error rate is: utterances, or whole speakers, drawn again and again from those there are.

After Bisani and Ney, "Bootstrap estimates for confidence intervals in ASR performance evaluation" (2004). Utterances
with the same counts are of one kind, and a set drawn anew needs only how often each kind came up: so for many of them a
round is one multinomial draw, whose cost does not grow with their number. Their order does not matter.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfnorm.wer import Errors

BLOCK = 1 << 21  # numbers drawn at a time

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same utterances, in points of WER; below zero the first is the better one."""

    difference: float
    interval: Interval
    p: float | None  # None: too few utterances to say


def bootstrap(
    errors: Sequence[Errors],
    rounds: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
) -> Interval:
    """The WER, in per cent, that `level` of the sets drawn anew have, without the (1 - level) / 2 at either end.

    With `groups`, one for each utterance (its speaker), whole groups are drawn: utterances of one speaker resemble each
    other, so they say less about the next speaker than as many of different ones.
    """
    counts = _grouped([[each.total, each.words] for each in errors], groups)
    rates = [100 * sums[:, 0] / sums[:, 1] for sums in _draws(counts, rounds, seed)]
    return _interval(np.concatenate(rates), level)


def compare(
    first: Sequence[Errors],
    second: Sequence[Errors],
    rounds: int = 10_000,
    seed: int = 0,
    level: float = 0.95,
    groups: Sequence[Hashable] | None = None,
) -> Comparison:
    """The WER of `first` minus that of `second`: both are drawn together, utterance by utterance.

    p is two-sided: 2 (1 + m) / (1 + rounds), at most 1, where m rounds have a difference of zero or beyond, seen from
    the difference found. It is never 0: more rounds than were drawn might find one.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} utterances against {len(second)}; compare two systems on the same ones")
    for number, (one, other) in enumerate(zip(first, second)):
        if one.words != other.words:
            raise ValueError(
                f"utterance {number} has {one.words} words in one reference and {other.words} in the other; "
                "compare two systems on the same references"
            )
    counts = _grouped([[one.total - other.total, one.words] for one, other in zip(first, second)], groups)
    drawn = np.concatenate([100 * sums[:, 0] / sums[:, 1] for sums in _draws(counts, rounds, seed)])
    beyond = min(int((drawn <= 0).sum()), int((drawn >= 0).sum()))
    difference, words = counts.sum(0)
    return Comparison(
        100 * float(difference / words), _interval(drawn, level), min(1.0, 2 * (1 + beyond) / (1 + len(drawn)))
    )


def _grouped(counts: list[list[int]], groups: Sequence[Hashable] | None) -> Floats:
    """What is drawn: a row for each utterance, or for each group."""
    table = np.array(counts, np.float64).reshape(-1, 2)
    if groups is not None:
        if len(groups) != len(table):
            raise ValueError(f"{len(table)} utterances but {len(groups)} groups; give each utterance one")
        numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        sums = np.zeros((len(numbers), 2))
        np.add.at(sums, [numbers[group] for group in groups], table)
        table = sums
    if not table[:, 1].any():
        raise ValueError("the references have no words, so there is no word error rate; give some that have")
    return table


def _draws(counts: Floats, rounds: int, seed: int) -> Iterator[Floats]:
    """Sums of as many rows as there are, drawn with replacement: [rounds, 2] in blocks.

    A set without any word has no rate; it is left out, as if it had not come up.
    """
    if rounds < 1:
        raise ValueError(f"{rounds} rounds draw nothing; ask for 1,000 or more")
    generator = np.random.default_rng(seed)
    kinds, number = np.unique(counts, axis=0, return_counts=True)
    one_by_one = len(counts) < 4 * len(kinds)  # the same sums, sooner
    rows = np.repeat(kinds, number, axis=0) if one_by_one else kinds
    step = max(1, BLOCK // len(rows))
    for done in range(0, rounds, step):
        size = min(step, rounds - done)
        if one_by_one:
            drawn = generator.integers(0, len(rows), (size, len(rows)), np.int32)
            sums = np.stack([column[drawn].sum(1) for column in rows.T], axis=1)
        else:
            sums = generator.multinomial(len(counts), number / len(counts), size) @ kinds
        yield sums[sums[:, 1] > 0]


def _interval(values: Floats, level: float) -> Interval:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))
