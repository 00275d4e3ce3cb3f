"""Interpolated modified Kneser-Ney (Chen and Goodman, 1998), as KenLM's lmplz estimates it.

    p(w | h) = (a(h w) - D(a(h w))) / sum_v a(h v)  +  gamma(h) p(w | h without its first word)
    gamma(h) = sum_v D(a(h v)) / sum_v a(h v)                        the weight of the shorter history, its back-off

a is the count in the highest order and for n-grams that begin with `<s>`; elsewhere the number of different words
before the n-gram. Below the unigrams lies the uniform distribution over all words, with `<unk>` and without `<s>`.
The whole a of a pruned n-gram goes to gamma, so that every distribution still sums to one.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from selfnorm.ngrams.counts import START, UNKNOWN, Counts, Grams, Seen
from selfnorm.ngrams.scratch import Array, Scratch

FALLBACK = (0.5, 1.0, 1.5)  # lmplz --discount_fallback
CHUNK = 1 << 18  # rows at a time

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Discounts:
    """D(1), D(2), D(3 and more) of one order."""

    amounts: tuple[float, float, float]
    estimated: bool  # from the text; if not, they are `FALLBACK`

    @property
    def table(self) -> Floats:
        return np.array([0.0, *self.amounts])

    def of(self, adjusted: Array) -> Floats:
        return self.table.take(np.minimum(adjusted, 3))


def discounts(n: Sequence[int]) -> Discounts:
    """D(j) = j - (j + 1) Y n_j+1 / n_j,  Y = n_1 / (n_1 + 2 n_2)  (eq. 26); n_j n-grams have a = j."""
    if 0 in n[1:4] or not all(0 <= D <= j for j, D in enumerate(_amounts(n, np.float32), start=1)):
        return Discounts(FALLBACK, estimated=False)
    one, two, three = (min(max(0.0, float(D)), j) for j, D in enumerate(_amounts(n, np.float64), start=1))
    return Discounts((one, two, three), estimated=True)


def _amounts(n: Sequence[int], kind: type[np.floating[Any]]) -> list[np.floating[Any]]:
    """Where a discount is 0, rounding decides whether it is in range: lmplz's decides in float32, and so does ours."""
    Y = kind(n[1]) / kind(n[1] + 2 * n[2])
    return [kind(j) - kind(j + 1) * Y * kind(n[j + 1]) / kind(n[j]) for j in (1, 2, 3)]


def counts_of_counts(counts: Counts, order: int) -> list[int]:
    """n_0 .. n_4 of one order.

    lmplz takes the last n-gram of each lower order, in suffix order, by its count instead of a; so do we, since in a
    small text even one n-gram moves the discounts.
    """
    grams = counts.grams[order - 1]
    n = np.zeros(5, np.int64)
    for begin in range(0, len(grams), CHUNK):
        n += np.bincount(np.minimum(grams.adjusted[begin : begin + CHUNK], 5), minlength=6)[:5]
    if order < counts.order and _ends_the_tree(counts, order):
        for a, change in ((grams.adjusted[-1], -1), (grams.count[-1], 1)):
            if a < len(n):
                n[a] += change
    return n.tolist()


def _ends_the_tree(counts: Counts, order: int) -> bool:
    """Whether the last row is a suffix of the text's very last n-gram, and not the last of shorter ones."""
    return all(
        len(counts.grams[n - 1]) > 0 and counts.grams[n - 1].suffix[-1] == len(counts.grams[n - 2]) - 1
        for n in range(2, order + 1)
    )


@dataclass(frozen=True)
class Model:
    """Everything an ARPA file says, by rows of `counts`."""

    counts: Counts
    kept: list[Array | None]  # which n-grams were not pruned; None: all
    discounts: list[Discounts]
    totals: list[Array]  # of orders 2 .. N: sum_v a(h v), by the row of h
    gammas: list[Array]  # likewise: gamma(h), 1 where h is no history
    probabilities: list[Array]  # of orders 1 .. N - 1

    def probability(self, order: int, rows: slice) -> Floats:
        """p(w | h) of some n-grams."""
        if order <= len(self.probabilities):
            return self.probabilities[order - 1][rows]
        grams = self.counts.grams[order - 1]
        a, history = grams.adjusted[rows], self.counts.history(order, rows)
        found = (a - self.discounts[order - 1].of(a)) / self.totals[order - 2].take(history)
        lower = self.probabilities[order - 2].take(grams.suffix[rows])
        return found + self.gammas[order - 2].take(history) * lower

    def size(self, order: int) -> int:
        """How many n-grams were not pruned."""
        kept = self.kept[order - 1]
        return len(self.counts.grams[order - 1]) if kept is None else int(np.count_nonzero(kept))


def estimate(
    counts: Counts,
    thresholds: Sequence[int],
    outside: npt.NDArray[np.bool_] | None,
    scratch: Scratch,
    seen: Seen,
    threads: int = 1,
) -> Model:
    """`thresholds[n - 1]` is the largest count of n-grams to prune; those with a word `outside` (by id) go as well.

    `<unk>` is never outside, but for a text that spells it as a word, which takes its place.
    """
    kept: list[Array | None] = []
    for n in range(1, counts.order + 1):
        kept.append(_kept(counts, n, thresholds[n - 1], outside, kept, scratch))
    found = [discounts(counts_of_counts(counts, n)) for n in range(1, counts.order + 1)]
    model = Model(counts, kept, found, [], [], [_unigrams(counts.grams[0], kept[0], found[0])])
    todo, done = sum(map(len, counts.grams[1:])), 0
    weights = [_Weights(counts, n, kept[n - 1], found[n - 1], scratch) for n in range(2, counts.order + 1)]
    with ThreadPoolExecutor(threads) as pool:
        largest_first = [pool.submit(each.fill) for each in reversed(weights)]
        for n, (each, filled) in enumerate(zip(weights, reversed(largest_first)), start=2):
            filled.result()
            model.totals.append(each.totals)
            model.gammas.append(each.gammas)
            if n < counts.order:
                model.probabilities.append(_probabilities(model, n, scratch))
            done += len(counts.grams[n - 1])
            seen(done, todo)
    return model


def _probabilities(model: Model, order: int, scratch: Scratch) -> Array:
    found = scratch.array(len(model.counts.grams[order - 1]), np.float64)
    for rows in chunks(len(found)):
        found[rows] = model.probability(order, rows)
    return found


def chunks(size: int) -> list[slice]:
    return [slice(begin, min(begin + CHUNK, size)) for begin in range(0, size, CHUNK)]


def _unigrams(grams: Grams, kept: Array | None, D: Discounts) -> Floats:
    """`<s>` gets 1: it is never predicted, and lmplz writes log 1."""
    a = grams.adjusted.astype(np.float64)
    words = (len(a) if kept is None else int(np.count_nonzero(kept))) - 1  # without <s>
    free = D.of(grams.adjusted) if kept is None else np.where(kept, D.of(grams.adjusted), a)
    p = (a - D.of(grams.adjusted)) / a.sum() + free.sum() / a.sum() / words
    p[START] = 1.0
    return p


class _Weights:
    """sum_v a(h v) and gamma(h) for the histories h of n-grams, by the row of h."""

    def __init__(self, counts: Counts, order: int, kept: Array | None, D: Discounts, scratch: Scratch) -> None:
        self.counts, self.order, self.kept, self.D = counts, order, kept, D
        self.totals = scratch.array(len(counts.grams[order - 2]), np.float64)
        self.gammas = scratch.array(len(counts.grams[order - 2]), np.float64)

    def fill(self) -> None:
        grams, totals, gammas = self.counts.grams[self.order - 1], self.totals, self.gammas
        for rows in chunks(len(grams)):
            a, history = grams.adjusted[rows], self.counts.history(self.order, rows)
            free = self.D.of(a) if self.kept is None else np.where(self.kept[rows], self.D.of(a), a)
            np.add.at(totals, history, a)
            np.add.at(gammas, history, free)
        for rows in chunks(len(totals)):
            alone = totals[rows] == 0  # </s> ends it: no history
            gammas[rows] = np.where(alone, 1.0, gammas[rows] / np.where(alone, 1.0, totals[rows]))


def _kept(
    counts: Counts,
    order: int,
    threshold: int,
    outside: npt.NDArray[np.bool_] | None,
    lower: Sequence[Array | None],
    scratch: Scratch,
) -> Array | None:
    """Which n-grams stay. Thresholds do not fall with the order, so an n-gram's suffix and history stay with it."""
    grams = counts.grams[order - 1]
    if not threshold and outside is None:
        return None
    kept = scratch.array(len(grams), np.bool_)
    for rows in chunks(len(grams)):
        kept[rows] = grams.count[rows] > threshold if order > 1 else True
        if outside is not None:
            kept[rows] &= ~outside.take(counts.text.ids.take(grams.at[rows] - (order - 1)))
            if order > 1 and (suffixes := lower[-1]) is not None:
                kept[rows] &= suffixes.take(grams.suffix[rows])
    if order == 1:
        kept[UNKNOWN], kept[START] = outside is None or not outside[UNKNOWN], True
    return kept
