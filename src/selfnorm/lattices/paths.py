"""Paths through a lattice: the best, the n best of distinct words, what lies behind a node, and pruning."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import SILENT, Floats, Ids, Lattice
from selfnorm.vocabulary import END


@dataclass(frozen=True)
class Path:
    arcs: tuple[int, ...]
    score: float


def words_of(lattice: Lattice, arcs: Sequence[int]) -> tuple[str, ...]:
    """The words that count, without silence and the end of the sentence."""
    return tuple(lattice.words[arc] for arc in arcs if lattice.words[arc] not in (SILENT, END))


def best(lattice: Lattice, totals: Floats | None = None) -> Path:
    """The path with the largest sum; `totals` are the arcs' scores, else the first pass's."""
    totals = lattice.total() if totals is None else totals
    score = [0.0] + [-np.inf] * (lattice.nodes - 1)
    came = [-1] * lattice.nodes
    for arc, (source, target, each) in enumerate(
        zip(lattice.sources.tolist(), lattice.targets.tolist(), totals.tolist())
    ):
        reached = score[source] + each
        if reached > score[target]:
            score[target], came[target] = reached, arc
    if came[-1] < 0 < lattice.arcs:
        raise ValueError(
            f"utterance {lattice.utterance}: every path has a score of -inf or none; mend the scores of its arcs, "
            "or those of the model that gave them"
        )
    return Path(_walk_back(lattice, came), score[-1])


def _walk_back(lattice: Lattice, came: Sequence[int]) -> tuple[int, ...]:
    arcs: list[int] = []
    node = lattice.nodes - 1
    while node:
        arcs.append(came[node])
        node = int(lattice.sources[came[node]])
    return tuple(reversed(arcs))


def forward(lattice: Lattice, totals: Floats) -> Floats:
    """The best score from the start to each node."""
    score = [0.0] + [-np.inf] * (lattice.nodes - 1)
    for source, target, each in zip(lattice.sources.tolist(), lattice.targets.tolist(), totals.tolist()):
        score[target] = max(score[target], score[source] + each)
    return np.array(score)


def backward(lattice: Lattice, totals: Floats) -> Floats:
    """The best score from each node to the end."""
    score = [-np.inf] * (lattice.nodes - 1) + [0.0]
    arcs = zip(lattice.sources[::-1].tolist(), lattice.targets[::-1].tolist(), totals[::-1].tolist())
    for source, target, each in arcs:
        score[source] = max(score[source], score[target] + each)
    return np.array(score)


def n_best(lattice: Lattice, n: int, totals: Floats | None = None, most: int = 1_000_000) -> list[Path]:
    """The n best paths of distinct words, best first.

    A* with what lies behind each node as the estimate, which is exact: every step is on a path that will be asked for.
    The second time that a node comes up with the same words before it, a better path has them: it goes no further.
    Fewer are returned where there are no more, or after `most` steps, but the best one always.
    """
    totals = lattice.total() if totals is None else totals
    behind = backward(lattice, totals).tolist()
    bounds, targets, each = lattice.first_arcs.tolist(), lattice.targets.tolist(), totals.tolist()
    numbers: dict[str, int] = {SILENT: -1, END: -1}
    words = [numbers.setdefault(word, len(numbers)) for word in lattice.words]
    histories: dict[tuple[int, int], int] = {}  # (history, word) -> history; the empty one is 0
    seen: set[tuple[int, int]] = set()
    queue: list[tuple[float, int, int, int, float, tuple]] = [(-behind[0], 0, 0, 0, 0.0, ())]
    count = 0
    found: list[Path] = []
    last = lattice.nodes - 1
    while queue and len(found) < n and len(seen) < most:
        _, _, node, history, score, trace = heapq.heappop(queue)
        if (node, history) in seen:
            continue
        seen.add((node, history))
        if node == last:
            found.append(Path(_unwind(trace), score))
            continue
        for arc in range(bounds[node], bounds[node + 1]):
            word, target = words[arc], targets[arc]
            after = history if word < 0 else histories.setdefault((history, word), len(histories) + 1)
            if (target, after) not in seen:
                count += 1
                reached = score + each[arc]
                heapq.heappush(queue, (-(reached + behind[target]), count, target, after, reached, (trace, arc)))
    return found or [best(lattice, totals)][:n]


def _unwind(trace: tuple) -> tuple[int, ...]:
    arcs = []
    while trace:
        trace, arc = trace
        arcs.append(arc)
    return tuple(reversed(arcs))


def prune(lattice: Lattice, beam: float) -> Lattice:
    """The arcs on a path at most `beam` worse than the best."""
    totals = lattice.total()
    ahead, behind = forward(lattice, totals), backward(lattice, totals)
    through = ahead[lattice.sources] + totals + behind[lattice.targets]
    return subset(lattice, np.flatnonzero(through >= ahead[-1] - beam - 1e-9 * abs(ahead[-1])))


def subset(lattice: Lattice, arcs: Ids) -> Lattice:
    """These arcs alone, whole paths of them, and the nodes they need."""
    nodes, numbers = np.unique(np.concatenate([lattice.sources[arcs], lattice.targets[arcs]]), return_inverse=True)
    sources, targets = numbers[: len(arcs)], numbers[len(arcs) :]
    return lattice.keep(arcs, sources, targets, None if lattice.times is None else lattice.times[nodes])


def through_each(lattice: Lattice, totals: Floats) -> tuple[Floats, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each arc the score of the best path through it; for each node the arc it is best reached and left by."""
    came, goes = np.full(lattice.nodes, -1), np.full(lattice.nodes, -1)
    ahead, behind = forward(lattice, totals), backward(lattice, totals)
    reached = ahead[lattice.sources] + totals == ahead[lattice.targets]
    left = totals + behind[lattice.targets] == behind[lattice.sources]
    came[lattice.targets[reached]] = np.flatnonzero(reached)
    goes[lattice.sources[left]] = np.flatnonzero(left)
    return ahead[lattice.sources] + totals + behind[lattice.targets], came, goes
