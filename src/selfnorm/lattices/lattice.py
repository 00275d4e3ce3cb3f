"""One utterance's hypotheses as a graph: nodes in time, arcs with a word and its scores.

Inside, everything is uniform: natural logs, larger is better, nodes numbered so that every arc leads to a higher one,
node 0 the start and the last node the end, every node on some path between them. Readers convert and `assemble` checks.
"""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from selfnorm.vocabulary import END

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

SILENT = ""  # the word of an arc that says nothing: silence, noise, the start of the sentence


@dataclass(frozen=True)
class Scales:
    """total = acoustic a + lm l + pronunciation r + penalty for each word."""

    acoustic: float = 1.0
    lm: float = 1.0
    pronunciation: float = 1.0
    penalty: float = 0.0


@dataclass(frozen=True, eq=False)
class Lattice:
    """Arcs are columns, sorted by source, then target; scores are as the file gives them, before any scale."""

    utterance: str
    sources: Ids  # [arcs]
    targets: Ids
    words: tuple[str, ...]  # SILENT: no word; END: the end of the sentence, which is scored but is no word either
    acoustic: Floats  # [arcs]
    lm: Floats
    pronunciation: Floats | None = None
    times: Floats | None = None  # [nodes] in seconds
    scales: Scales = Scales()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # what the format says besides: arc by arc
    header: Mapping[str, str] = field(default_factory=dict)  # and of the lattice as a whole
    notes: tuple[str, ...] = ()  # sentences: what a reader left out or mended

    @property
    def nodes(self) -> int:
        return int(self.targets[-1]) + 1 if len(self.targets) else 1

    @property
    def arcs(self) -> int:
        return len(self.sources)

    @property
    def is_word(self) -> npt.NDArray[np.bool_]:
        """Whether each arc carries a word that counts: neither silence nor the end of the sentence."""
        return ~np.fromiter(map({SILENT, END}.__contains__, self.words), bool, self.arcs)

    @property
    def steady(self) -> Floats:
        """What a language model does not change: scaled acoustic and pronunciation scores of each arc."""
        scaled = self.scales.acoustic * self.acoustic
        return scaled if self.pronunciation is None else scaled + self.scales.pronunciation * self.pronunciation

    def total(self, scales: Scales | None = None) -> Floats:
        """The first pass's score of each arc; a path's is their sum."""
        lattice = self if scales is None else replace(self, scales=scales)
        return lattice.steady + lattice.scales.lm * self.lm + lattice.scales.penalty * self.is_word

    @property
    def first_arcs(self) -> Ids:
        """[nodes + 1]: the arcs that leave node n are first_arcs[n] to first_arcs[n + 1] - 1."""
        return np.searchsorted(self.sources, np.arange(self.nodes + 1))

    def keep(self, arcs: Ids, sources: Ids, targets: Ids, times: Floats | None) -> Self:
        """These arcs (numbers may repeat) between other nodes; the caller sees to order and connection."""
        order = np.lexsort((targets, sources))
        arcs = np.asarray(arcs)[order]
        return replace(
            self,
            sources=np.asarray(sources, np.int64)[order],
            targets=np.asarray(targets, np.int64)[order],
            words=_picked(self.words, arcs),
            acoustic=self.acoustic[arcs],
            lm=self.lm[arcs],
            pronunciation=None if self.pronunciation is None else self.pronunciation[arcs],
            times=times,
            extra={name: _picked(column, arcs) for name, column in self.extra.items()},
        )


def _picked(column: Sequence[str], arcs: Ids) -> tuple[str, ...]:
    return tuple(map(column.__getitem__, arcs.tolist()))


def assemble(
    utterance: str,
    *,
    nodes: int,
    start: int,
    end: int,
    sources: Sequence[int] | Ids,
    targets: Sequence[int] | Ids,
    words: Sequence[str],
    acoustic: Sequence[float] | Floats,
    lm: Sequence[float] | Floats,
    pronunciation: Sequence[float] | Floats | None = None,
    times: Sequence[float] | Floats | None = None,
    scales: Scales = Scales(),  # noqa: B008  frozen
    extra: Mapping[str, Sequence[str]] | None = None,
    header: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Lattice:
    """A lattice from what a file says, its nodes in any order.

    Arcs on no path from start to end are left out with a note, and so is the second of two arcs that are equal in
    everything. A cycle, an end that cannot be reached, a score that is no number and a time that goes backwards are
    errors: sentences without the name of the file, which the reader puts before them.
    """
    source, target = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    columns = {"acoustic": np.asarray(acoustic, np.float64), "lm": np.asarray(lm, np.float64)}
    if pronunciation is not None:
        columns["pronunciation"] = np.asarray(pronunciation, np.float64)
    for name, column in columns.items():
        scale = getattr(scales, name)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(scale * column)
        if not finite.all():
            arc = int(np.flatnonzero(~finite)[0])
            scaled = "" if scale == 1 else f" at scale {scale:g}"
            raise ValueError(
                f"arc {arc} has the {name} score {column[arc]}{scaled}, which is no finite number; "
                "drop the arc or mend it"
            )
    said = list(notes)
    clock = np.zeros(nodes) if times is None else np.asarray(times, np.float64)
    alive, kept = np.ones(nodes, bool), np.arange(len(source))
    place = _straight(source, target, clock, start, end)
    if place is None:
        alive = _reached(source, target, nodes, start) & _reached(target, source, nodes, end)
        if not alive[start]:
            raise ValueError(
                f"no path leads from the start, node {start}, to the end, node {end}; the lattice is broken"
            )
        kept = np.flatnonzero(alive[source] & alive[target]) if len(source) else np.zeros(0, np.int64)
        if len(kept) < len(source):
            said.append(f"{len(source) - len(kept)} arcs on no path from start to end were left out")
        place = _order(source[kept], target[kept], alive, clock.tolist(), start)
    source, target = place[source], place[target]
    order = kept[np.lexsort((kept, target[kept], source[kept]))]
    repeated = _repeated(order, source, target, words, columns, extra)
    if repeated.any():
        said.append(f"{int(repeated.sum())} arcs that repeat another in everything were left out")
        order = order[~repeated]
    if times is not None:
        clock = clock[np.flatnonzero(alive)[np.argsort(place[alive])]]
        if not np.isfinite(clock).all():
            raise ValueError("the time of a node is no finite number; mend it or leave all times out")
        back = np.flatnonzero(clock[target[order]] < clock[source[order]])
        if len(back):
            arc = order[back[0]]
            raise ValueError(
                f"arc {arc} goes back in time, from {clock[source[arc]]:g} s to {clock[target[arc]]:g} s; "
                "mend the times of its nodes or leave all times out"
            )
    return Lattice(
        utterance,
        source[order],
        target[order],
        _picked(words, order),
        times=None if times is None else clock,
        scales=scales,
        extra={name: _picked(column, order) for name, column in (extra or {}).items()},
        header=dict(header or {}),
        notes=tuple(said),
        **{name: column[order] for name, column in columns.items()},
    )


def _reached(sources: Ids, targets: Ids, nodes: int, first: int) -> npt.NDArray[np.bool_]:
    """Which nodes arcs lead to from `first`, itself included."""
    order = np.argsort(sources, kind="stable")
    begin = np.searchsorted(sources[order], np.arange(nodes + 1))
    after = targets[order].tolist()
    bounds = begin.tolist()
    seen = bytearray(nodes)
    seen[first] = 1
    waiting = [first]
    while waiting:
        node = waiting.pop()
        for next in after[bounds[node] : bounds[node + 1]]:
            if not seen[next]:
                seen[next] = 1
                waiting.append(next)
    return np.frombuffer(seen, np.uint8).astype(bool)


def _straight(sources: Ids, targets: Ids, clock: Floats, start: int, end: int) -> Ids | None:
    """What `_order` finds, where every arc goes on in time and number and no node but the ends is a dead end.

    Then all nodes are on some path: whoever goes back from one, or on, can stop only at the start, or at the end.
    """
    nodes = np.arange(len(clock))
    into, out = (np.bincount(each, minlength=len(nodes)) == 0 for each in (targets, sources))
    if not (np.array_equal(np.flatnonzero(into), [start]) and np.array_equal(np.flatnonzero(out), [end])):
        return None
    before, after = clock[sources], clock[targets]
    if not ((before < after) | ((before == after) & (sources < targets))).all():
        return None
    place = np.empty(len(nodes), np.int64)
    place[np.argsort(clock, kind="stable")] = nodes
    return place


def _order(sources: Ids, targets: Ids, alive: npt.NDArray[np.bool_], clock: Sequence[float], start: int) -> Ids:
    """Each live node's place in an order that all arcs follow: by time where there is one, else as they come."""
    nodes = len(alive)
    order = np.argsort(sources, kind="stable")
    bounds = np.searchsorted(sources[order], np.arange(nodes + 1)).tolist()
    after = targets[order].tolist()
    waits = np.bincount(targets, minlength=nodes).tolist()
    ready = [(clock[start], start)] if not waits[start] else []
    place = np.full(nodes, -1, np.int64)
    count = 0
    while ready:
        _, node = heapq.heappop(ready)
        place[node] = count
        count += 1
        for next in after[bounds[node] : bounds[node + 1]]:
            waits[next] -= 1
            if not waits[next]:
                heapq.heappush(ready, (clock[next], next))
    if count < int(alive.sum()):
        stuck = np.flatnonzero(alive & (place < 0))
        raise ValueError(
            f"nodes {', '.join(map(str, stuck[:5]))}{' …' if len(stuck) > 5 else ''} are on or behind a cycle of arcs; "
            "a lattice has none: remove the arc that leads back"
        )
    return place


def _repeated(
    order: Ids,
    sources: Ids,
    targets: Ids,
    words: Sequence[str],
    columns: Mapping[str, Floats],
    extra: Mapping[str, Sequence[str]] | None,
) -> npt.NDArray[np.bool_]:
    """Which of the sorted arcs equal an earlier one in everything."""
    twin = np.zeros(len(order), bool)
    same = np.flatnonzero((sources[order][1:] == sources[order][:-1]) & (targets[order][1:] == targets[order][:-1]))
    if not len(same):
        return twin
    texts = [words, *(extra or {}).values()]
    seen: set[tuple[object, ...]] = set()
    for row in np.union1d(same, same + 1).tolist():
        arc = int(order[row])
        key = (
            int(sources[arc]),
            int(targets[arc]),
            *(text[arc] for text in texts),
            *(float(column[arc]) for column in columns.values()),
        )
        twin[row] = key in seen
        seen.add(key)
    return twin
