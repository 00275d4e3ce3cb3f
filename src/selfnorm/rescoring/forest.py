"""Several lattices side by side as one set of arcs, so that what waits in all of them is one batch.

Nodes are taken in waves: a node's wave is the number of arcs on the longest way to it, so all that leads to a wave was
done before it. Every path ends with an arc of `</s>`: where a lattice has none, one is added behind its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import SILENT, Floats, Ids, Lattice
from selfnorm.lattices.paths import backward
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
    wave: Ids  # [nodes]
    behind: Floats  # [nodes] the first pass's best score from here to the end
    tree: Ids  # [nodes] which lattice

    @property
    def ends(self) -> Ids:
        return self.first_node[1:] - 1


def plant(lattices: Sequence[Lattice], setting: Setting) -> Forest:
    lattices = tuple(map(ended, lattices))
    numbers: dict[str, int] = {SILENT: -1}
    columns: list[tuple[npt.NDArray, ...]] = []
    for lattice in lattices:
        scale = setting.scale(lattice)
        word = np.fromiter((numbers.setdefault(each, len(numbers) - 1) for each in lattice.words), np.int64)
        steady = lattice.steady + setting.penalty(lattice) * lattice.is_word
        columns.append(
            (
                lattice.sources,
                lattice.targets,
                word,
                steady,
                np.full(lattice.arcs, scale),
                lattice.lm,
                waves(lattice),
                backward(lattice, steady + scale * lattice.lm),
            )
        )
    sources, targets, word, steady, scales, lm, wave, behind = map(np.concatenate, zip(*columns))
    first_node = np.cumsum([0, *(lattice.nodes for lattice in lattices)])
    first_arc = np.cumsum([0, *(lattice.arcs for lattice in lattices)])
    shift = np.repeat(first_node[:-1], np.diff(first_arc))
    bounds = np.searchsorted(sources + shift, np.arange(first_node[-1] + 1))
    tree = np.repeat(np.arange(len(lattices)), np.diff(first_node))
    words = list(numbers)[1:]
    return Forest(
        lattices, words, first_node, first_arc, bounds, targets + shift, word, steady, scales, lm, wave, behind, tree
    )


def ended(lattice: Lattice) -> Lattice:
    """The lattice, every path of which says `</s>` once, with nothing but silence after it."""
    most, least = [0] * lattice.nodes, [0] + [2] * (lattice.nodes - 1)
    late = False
    for source, target, word in zip(lattice.sources.tolist(), lattice.targets.tolist(), lattice.words):
        here = word == END
        late |= not here and word != SILENT and most[source] > 0
        most[target] = max(most[target], most[source] + here)
        least[target] = min(least[target], least[source] + here)
    if most[-1] == least[-1] == 1 and not late:
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


def waves(lattice: Lattice) -> Ids:
    """The number of arcs on the longest way from the start to each node."""
    wave = [0] * lattice.nodes
    for source, target in zip(lattice.sources.tolist(), lattice.targets.tolist()):
        if wave[source] >= wave[target]:
            wave[target] = wave[source] + 1
    return np.array(wave)
