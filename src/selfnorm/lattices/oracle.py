"""The least that rescoring can leave wrong: the path of a lattice, or entry of a list, nearest to the reference.

Nearest is the fewest errors, then the fewest substitutions. `errors` are those that `wer.count` finds in its words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import SILENT, Ids, Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.lattices.paths import words_of
from selfnorm.vocabulary import END
from selfnorm.wer import Errors, count, counts

ERROR = 1 << 12  # what an error costs; a substitution costs one more, so that it comes last among equals
MOST = 1 << 27  # places (a node and a position in the reference), 4 bytes each
BLOCK = 1 << 19  # places worked on at a time

Whole = npt.NDArray[np.int32]

_NO_WORD, _OTHER = -1, -2  # ids of arcs: silence and the end of the sentence; a word that the reference has not


@dataclass(frozen=True)
class Oracle:
    errors: Errors
    words: tuple[str, ...]
    arcs: tuple[int, ...]


def oracle(lattice: Lattice, reference: Sequence[str]) -> Oracle:
    """The path with the fewest errors: least costs of each node with 0, 1, 2, ... words of the reference behind it."""
    if lattice.nodes * (len(reference) + 1) > MOST:
        raise ValueError(
            f"utterance {lattice.utterance}: {lattice.nodes:,} nodes and a reference of {len(reference):,} words are "
            "too many to find the nearest path; prune the lattice"
        )
    numbers = {word: number for number, word in enumerate(dict.fromkeys(reference))}
    wanted = np.array([numbers[word] for word in reference], np.int32)
    known = {**numbers, SILENT: _NO_WORD, END: _NO_WORD}
    said = np.fromiter((known.get(word, _OTHER) for word in lattice.words), np.int32, lattice.arcs)
    arcs = _trace(lattice, wanted, said, _least(lattice, wanted, said))
    words = words_of(lattice, arcs)
    return Oracle(count(reference, words), words, arcs)


def oracle_nbest(nbest: NBest, reference: Sequence[str]) -> Errors:
    """Those of the hypothesis with the fewest errors, the first of several."""
    heard = [each.words for each in nbest.hypotheses]
    return min(counts([reference] * len(heard), heard), key=lambda errors: errors.total)


def _least(lattice: Lattice, wanted: Whole, said: Whole) -> Whole:
    """Least costs, [nodes, positions + 1].

    Nodes equally far from the start (in arcs, on the longest way) are done at once: a wide lattice needs few rounds.
    """
    away = _distances(lattice)
    order = np.lexsort((lattice.targets, away[lattice.targets]))
    sources, targets, said = lattice.sources[order], lattice.targets[order], said[order]
    rounds = np.searchsorted(away[targets], np.arange(1, away.max() + 2)).tolist()
    gaps = np.arange(len(wanted) + 1, dtype=np.int32) * np.int32(ERROR)
    costs = np.full((lattice.nodes, len(wanted) + 1), np.iinfo(np.int32).max, np.int32)
    costs[0] = gaps
    step = max(1, BLOCK // len(gaps))
    for first, last in pairwise(rounds):
        for begin in range(first, last, step):
            block = slice(begin, min(begin + step, last))
            starts = np.flatnonzero(np.diff(targets[block], prepend=-1))
            nodes = targets[block][starts]
            least = np.minimum.reduceat(_advanced(costs[sources[block]], wanted, said[block]), starts)
            least = np.minimum(least, costs[nodes])  # a block may end among the arcs of a node
            costs[nodes] = np.minimum.accumulate(least - gaps, axis=1) + gaps  # deletions
    return costs


def _distances(lattice: Lattice) -> Ids:
    away = [0] * lattice.nodes
    for source, target in zip(lattice.sources.tolist(), lattice.targets.tolist()):
        if away[source] >= away[target]:
            away[target] = away[source] + 1
    return np.array(away)


def _advanced(before: Whole, wanted: Whole, said: Whole) -> Whole:
    """Costs behind arcs, [arcs, positions + 1], from those before them: each word is inserted, or paired with one.

    To pair silence costs as much as a substitution, which is more than to delete the word: it never happens.
    """
    after = before + ((said != _NO_WORD) * np.int32(ERROR))[:, None]
    paired = before[:, :-1] + (said[:, None] != wanted) * np.int32(ERROR + 1)
    np.minimum(after[:, 1:], paired, out=after[:, 1:])
    return after


def _trace(lattice: Lattice, wanted: Whole, said: Whole, costs: Whole) -> tuple[int, ...]:
    """The arcs of the cheapest path, from the end: the costs tell which step led to each."""
    order = np.argsort(lattice.targets, kind="stable")
    bounds = np.searchsorted(lattice.targets[order], np.arange(lattice.nodes + 1))
    node, position = lattice.nodes - 1, len(wanted)
    path: list[int] = []
    while node:
        arcs = order[bounds[node] : bounds[node + 1]]
        before, here = costs[lattice.sources[arcs]], costs[node, position]
        fees = ERROR * (said[arcs] != _NO_WORD)
        found = np.flatnonzero(before[:, position] + fees == here)  # silent, or inserted
        paired = not len(found) and position > 0
        if paired:
            fees = (ERROR + 1) * (said[arcs] != wanted[position - 1])
            found = np.flatnonzero(before[:, position - 1] + fees == here)
        if len(found):
            path.append(int(arcs[found[0]]))
            node = int(lattice.sources[path[-1]])
        position -= paired  # without an arc the word is deleted
    return tuple(reversed(path))
