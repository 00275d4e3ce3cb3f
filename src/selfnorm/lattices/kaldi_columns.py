"""One utterance of a Kaldi archive, text or binary, between its bytes and a Lattice.

Kaldi has costs (smaller is better), a final cost at any number of nodes, and its start anywhere. A Lattice has scores
and one end: each final cost becomes a silent arc into it, and back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import SILENT, Floats, Ids, Lattice, assemble

FINAL = -1  # the target of a row that is a final cost
NO_INPUT = "0"


@dataclass(frozen=True)
class Columns:
    """What the file says, row by row: an arc, or a final cost (its target is FINAL, its word silent)."""

    compact: bool  # CompactLattice: rows have alignments; else Lattice: rows have inputs
    start: int
    sources: Ids
    targets: Ids
    words: Sequence[str]
    graph: Floats  # costs
    acoustic: Floats
    labels: Sequence[str]  # compact: the alignment, transition ids joined by `_`; else the input, one id
    frames: Ids  # how many transition ids a row has

    def rows(self, rows: Ids) -> "Columns":
        """These rows, in this order."""
        each = rows.tolist()
        return Columns(
            self.compact,
            self.start,
            self.sources[rows],
            self.targets[rows],
            [self.words[row] for row in each],
            self.graph[rows],
            self.acoustic[rows],
            [self.labels[row] for row in each],
            self.frames[rows],
        )


def to_lattice(utterance: str, columns: Columns, frame_shift: float, binary: bool) -> Lattice:
    """The faults of the lattice as a whole are ValueErrors without a place, as `assemble` makes them."""
    sources, targets, start = _dense(columns)
    final = targets == FINAL
    if not final.any():
        raise ValueError("no node is final; the lattice is cut off, or its last lines are lost")
    last = int(max(sources.max(), targets.max(), start))
    kept, end = _end(columns, sources, final, last + 1)
    nodes = max(last, end) + 1
    targets = np.where(final, end, targets)[kept]
    sources = sources[kept]
    times = _times(sources, targets, columns.frames[kept], nodes, start)
    name, nothing = ("alignment", "") if columns.compact else ("input", NO_INPUT)
    labels = _taken(columns.labels, kept)
    header = {"kind": "compact" if columns.compact else "lattice"}
    return assemble(
        utterance,
        nodes=nodes,
        start=start,
        end=end,
        sources=sources,
        targets=targets,
        words=_taken(columns.words, kept),
        acoustic=0.0 - columns.acoustic[kept],  # so that no cost is 0.0 and not -0.0
        lm=0.0 - columns.graph[kept],
        times=None if times is None else times * frame_shift,
        extra={name: labels} if any(label != nothing for label in labels) else {},
        header=header | {"binary": "true"} if binary else header,
    )


def _dense(columns: Columns) -> tuple[Ids, Ids, int]:
    """Nodes by their own numbers, or, where these are far more than the rows can name, by rank."""
    sources, targets, start = columns.sources, columns.targets, columns.start
    if max(int(sources.max()), int(targets.max()), start) <= 2 * len(sources) + 2:
        return sources, targets, start
    _, ranks = np.unique(np.concatenate([[FINAL, start], sources, targets]), return_inverse=True)
    ranks = ranks - 1  # FINAL stays FINAL: it is below all numbers
    return ranks[2 : 2 + len(sources)], ranks[2 + len(sources) :], int(ranks[1])


def _end(columns: Columns, sources: Ids, final: npt.NDArray[np.bool_], new: int) -> tuple[Ids, int]:
    """The rows to keep, and the end: a new node, or the only final one where its cost is 0."""
    rows = np.arange(len(sources))
    if int(final.sum()) == 1:
        row = int(np.flatnonzero(final)[0])
        free = columns.graph[row] == columns.acoustic[row] == 0.0 and not columns.frames[row]
        if free:
            return np.delete(rows, row), int(sources[row])
    return rows, new


def _taken(column: Sequence[str], kept: Ids) -> Sequence[str]:
    return column if len(kept) == len(column) else [column[row] for row in kept.tolist()]


def _times(sources: Ids, targets: Ids, lengths: Ids, nodes: int, start: int) -> Floats | None:
    """Frames from the start to each node, by the transition ids on the way; None where two ways disagree."""
    if not lengths.any():
        return None
    order = np.argsort(sources, kind="stable")
    bounds = np.searchsorted(sources[order], np.arange(nodes + 1)).tolist()
    after, steps = targets[order].tolist(), lengths[order].tolist()
    frames = [-1] * nodes
    frames[start] = 0
    waiting = [start]
    while waiting:
        node = waiting.pop()
        for row in range(bounds[node], bounds[node + 1]):
            if frames[after[row]] < 0:
                frames[after[row]] = frames[node] + steps[row]
                waiting.append(after[row])
    clock = np.array(frames, np.int64)
    reached = clock[sources] >= 0
    if (clock[targets] != clock[sources] + lengths)[reached].any():
        return None
    return np.maximum(clock, 0).astype(np.float64)


def from_lattice(lattice: Lattice, compact: bool) -> Columns:
    """The same as Kaldi's rows, sorted by source, a node's final cost behind its arcs."""
    graph = 0.0 - lattice.lm
    if lattice.pronunciation is not None:  # Kaldi's graph cost holds it; weighed so that the totals stay
        graph -= lattice.pronunciation * (lattice.scales.pronunciation / (lattice.scales.lm or 1.0))
    acoustic = 0.0 - lattice.acoustic
    labels = _labels(lattice, compact)
    frames = np.array([_count(label) for label in labels], np.int64) if compact else np.zeros(lattice.arcs, np.int64)
    end = lattice.nodes - 1
    sources, targets, words = lattice.sources, lattice.targets, list(lattice.words)
    if _ends_silently(lattice, graph, acoustic, labels, compact):
        targets = np.where(targets == end, FINAL, targets)
        columns = Columns(compact, 0, sources, targets, words, graph, acoustic, labels, frames)
        return columns.rows(np.lexsort((targets == FINAL, sources)))
    return Columns(
        compact,
        0,
        np.append(sources, end),
        np.append(targets, FINAL),
        [*words, SILENT],
        np.append(graph, 0.0),
        np.append(acoustic, 0.0),
        [*labels, "" if compact else NO_INPUT],
        np.append(frames, 0),
    )


def _labels(lattice: Lattice, compact: bool) -> Sequence[str]:
    alignments, inputs = lattice.extra.get("alignment"), lattice.extra.get("input")
    if compact:
        if alignments is None and inputs is not None:
            return ["" if input == NO_INPUT else input for input in inputs]
        return alignments or [""] * lattice.arcs
    if alignments is not None:
        raise ValueError("its arcs have alignments, for which a Lattice has no place; write a CompactLattice")
    return inputs or [NO_INPUT] * lattice.arcs


def _ends_silently(lattice: Lattice, graph: Floats, acoustic: Floats, labels: Sequence[str], compact: bool) -> bool:
    """Whether the arcs into the end can be final costs, and would be read as these arcs again."""
    last = np.flatnonzero(lattice.targets == lattice.nodes - 1).tolist()
    if not last or len(np.unique(lattice.sources[last])) < len(last):
        return False
    if any(lattice.words[arc] != SILENT or (not compact and labels[arc] != NO_INPUT) for arc in last):
        return False  # a Lattice's final cost has no place for an input
    only = last[0]
    return len(last) > 1 or bool(graph[only] or acoustic[only] or (compact and labels[only]))


def _count(label: str) -> int:
    return label.count("_") + 1 if label else 0
