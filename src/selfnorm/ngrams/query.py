"""Scores of words after histories, many at once: the longest n-gram there is, behind the back-offs of longer histories.

A state is what a history leaves behind: the rank of its last word, last two words, ... among the n-grams of the model,
and -1 where there is none or none that matters: histories that score all that follows alike have the same state.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from selfnorm.ngrams.index import NOTHING_FOLLOWS, Ids, Index

Floats = npt.NDArray[np.float64]
State = tuple[int, ...]

SPAN = 1 << 16  # words looked up at a time: their arrays stay in the processor's cache


def start(index: Index) -> State:
    """The state of a sentence before its first word."""
    first = np.full((1, index.order - 1), -1, np.int64)
    first[:, :1] = index.vocabulary.start
    return _states(index, first)[0]


def advance(index: Index, states: Sequence[State], ids: Ids) -> tuple[Floats, list[State]]:
    """The score of each word after its state, and the states that hold it."""
    histories = np.array(states, np.int64).reshape(len(ids), index.order - 1)
    ranks = np.full_like(histories, -1)
    ranks[:, :1] = ids[:, None]
    scores = index.levels[0].log_probs[ids].astype(np.float64)
    for order in range(2, index.order + 1):
        found = _extend(index, order, histories[:, order - 2], ids, scores)
        if order < index.order:
            ranks[:, order - 1] = found
    return scores, _states(index, ranks)


def score(index: Index, ids: Ids, starts: Ids) -> Floats:
    """The score of every word of a text; `starts` are the places of the sentences' first words."""
    scores = index.levels[0].log_probs[ids].astype(np.float64)
    before = [-1] * index.order  # ranks of the n-grams that end with the last word of the span before
    for begin in range(0, len(ids), SPAN):
        here = slice(begin, begin + SPAN)
        first = starts[np.searchsorted(starts, begin) : np.searchsorted(starts, begin + SPAN)] - begin
        ranks = ids[here]
        for order in range(2, index.order + 1):
            histories = np.concatenate([before[order - 2 : order - 1], ranks[:-1]])
            histories[first] = index.vocabulary.start if order == 2 else -1
            before[order - 2] = int(ranks[-1])
            ranks = _extend(index, order, histories, ids[here], scores[here])
    return scores


def _extend(index: Index, order: int, histories: Ids, ids: Ids, scores: Floats) -> Ids:
    """From scores by shorter n-grams to those of `order` words, in place; the ranks of the n-grams found."""
    level, shorter = index.levels[order - 1], index.levels[order - 2]
    ranks = np.full(len(ids), -1, np.int64)
    there = np.flatnonzero(histories >= 0)
    backoffs = shorter.backoffs[histories[there]]
    scores[there] += backoffs
    there = there[backoffs.view(np.uint32) != NOTHING_FOLLOWS]
    found = level.find(histories[there] * index.size + ids[there])
    ranks[there] = found
    hits = np.flatnonzero(found >= 0)
    scores[there[hits]] = level.log_probs[found[hits]]
    return ranks


def _states(index: Index, ranks: Ids) -> list[State]:
    for level, column in zip(index.levels, ranks.T):
        there = np.flatnonzero(column >= 0)
        column[there[level.backoffs[column[there]].view(np.uint32) == NOTHING_FOLLOWS]] = -1
    return list(map(tuple, ranks.tolist()))
