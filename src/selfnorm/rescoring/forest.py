"""Several lattices side by side as one set of arcs, so that what waits in all of them is one batch.

Nodes are taken in waves: a node's wave is the number of arcs on the longest way to it, so all that leads to a wave was
done before it. Every path ends with an arc of `</s>`: where a lattice has none, one is added behind its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import SILENT, Floats, Ids, Lattice
from selfnorm.rescoring.setting import Setting
from selfnorm.vocabulary import END


@dataclass(frozen=True)
class Forest:
    """Columns of all arcs, sorted by source; nodes of the second lattice follow those of the first, and so on."""

    lattices: tuple[Lattice, ...]
    words: list[str]  # distinct ones; arcs have their numbers
    first_node: Ids  # [lattices + 1]
    first_arc: Ids  # [lattices + 1]
    bounds: Ids  # [nodes + 1] arcs that leave each node
    targets: Ids  # [arcs]
    word: Ids  # [arcs] number of the word; -1: silent
    steady: Floats  # [arcs] what no language model changes: acoustic score and word penalty
    scale: Floats  # [arcs] of the language models
    lm: Floats  # [arcs] the lattice's own
    tree: Ids  # [nodes] which lattice
    wave: Ids  # [nodes]
    behind: Floats  # [nodes] the first pass's best score from here to the end
    is_end: npt.NDArray[np.bool_]  # [nodes]


def plant(lattices: Sequence[Lattice], setting: Setting) -> Forest:
    lattices = tuple(map(ended, lattices))
    numbers: dict[str, int] = {SILENT: -1, END: 0}
    columns: list[tuple[npt.NDArray, ...]] = []
    for lattice in lattices:
        for each in dict.fromkeys(lattice.words):
            numbers.setdefault(each, len(numbers) - 1)
        word = np.fromiter(map(numbers.__getitem__, lattice.words), np.int64, lattice.arcs)
        steady = lattice.steady + setting.penalty(lattice) * (word > 0)
        columns.append((lattice.sources, lattice.targets, word, steady, lattice.lm))
    sources, targets, word, steady, lm = map(np.concatenate, zip(*columns))
    first_node = np.cumsum([0, *(lattice.nodes for lattice in lattices)])
    first_arc = np.cumsum([0, *(lattice.arcs for lattice in lattices)])
    tree = np.repeat(np.arange(len(lattices)), np.diff(first_node))
    scale = np.repeat([setting.scale(lattice) for lattice in lattices], np.diff(first_arc))
    shift = np.repeat(first_node[:-1], np.diff(first_arc))
    targets = targets + shift
    bounds = np.searchsorted(sources + shift, np.arange(first_node[-1] + 1))
    wave, behind = _surveyed(first_node[:-1], bounds, targets, steady + scale * lm)
    is_end = np.zeros(first_node[-1], bool)
    is_end[first_node[1:] - 1] = True
    words = list(numbers)[1:]
    place = lattices, words, first_node, first_arc, bounds
    return Forest(*place, targets, word, steady, scale, lm, tree, wave, behind, is_end)


def leaving(bounds: Ids, nodes: Ids) -> tuple[Ids, Ids]:
    """The arcs that leave these nodes, node by node, and how many leave each."""
    first, fan = bounds[nodes], bounds[nodes + 1] - bounds[nodes]
    place = np.arange(fan.sum()) - np.repeat(np.cumsum(fan) - fan, fan)
    return place + np.repeat(first, fan), fan


def _surveyed(starts: Ids, bounds: Ids, targets: Ids, totals: Floats) -> tuple[Ids, Floats]:
    """Each node's wave, and its best score to the end of its lattice."""
    waits = np.bincount(targets, minlength=len(bounds) - 1)
    wave = np.zeros(len(waits), np.int64)
    survey: list[tuple[Ids, Ids, Ids]] = []
    ready = starts
    while len(ready):
        arcs, fan = leaving(bounds, ready)
        survey.append((ready, arcs, fan))
        reached = targets[arcs]
        np.subtract.at(waits, reached, 1)
        ready = np.unique(reached[waits[reached] == 0])
        wave[ready] = len(survey)
    behind = np.zeros(len(waits))
    for nodes, arcs, fan in reversed(survey):
        going = np.flatnonzero(fan)
        if len(going):
            first = (np.cumsum(fan) - fan)[going]
            behind[nodes[going]] = np.maximum.reduceat(totals[arcs] + behind[targets[arcs]], first)
    return wave, behind


def ended(lattice: Lattice) -> Lattice:
    """The lattice, every path of which says `</s>` once, with nothing but silence after it."""
    if _ends_well(lattice):
        return lattice
    last = lattice.nodes - 1
    zero = np.zeros(1)
    return replace(
        lattice,
        sources=np.append(lattice.sources, last),
        targets=np.append(lattice.targets, last + 1),
        words=(*(SILENT if word == END else word for word in lattice.words), END),
        acoustic=np.append(lattice.acoustic, zero),
        lm=np.append(lattice.lm, zero),
        pronunciation=None if lattice.pronunciation is None else np.append(lattice.pronunciation, zero),
        times=None if lattice.times is None else np.append(lattice.times, lattice.times[-1:]),
        extra={name: (*column, "") for name, column in lattice.extra.items()},
    )


def _ends_well(lattice: Lattice) -> bool:
    if END not in lattice.words:
        return False
    ends = np.fromiter(map(END.__eq__, lattice.words), bool, lattice.arcs)
    if np.array_equal(ends, lattice.targets == lattice.nodes - 1):  # on the arcs into the end and on no others
        return True
    most, least = [0] * lattice.nodes, [0] + [2] * (lattice.nodes - 1)
    for source, target, word, here in zip(
        lattice.sources.tolist(), lattice.targets.tolist(), lattice.words, ends.tolist()
    ):
        if word != SILENT and most[source]:
            return False  # said after the end, or the end twice
        most[target] = max(most[target], most[source] + here)
        least[target] = min(least[target], least[source] + here)
    return most[-1] == least[-1] == 1
