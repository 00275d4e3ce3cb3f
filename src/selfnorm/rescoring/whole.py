"""The best paths of a lattice, scored again as whole sentences.

`path_cover` gives an arc one score, that of its word on the best path through it; on other paths the word has another
history. Sums of such scores find good paths, but they are not what the models say of these.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from selfnorm.lattices.lattice import SILENT, Ids
from selfnorm.lattices.paths import n_best
from selfnorm.rescoring.path_cover import told_of
from selfnorm.rescoring.setting import Rescored, Setting
from selfnorm.scorers import Neural, NGram


def whole(
    rescored: Rescored,
    scorers: Mapping[str, Neural | NGram],
    setting: Setting,
    n: int,
    positions: int,
    keep: bool,
) -> Rescored:
    """The n best paths as a tree of prefixes, every arc with its score after all words before it."""
    before = rescored.lattice
    paths = [path.arcs for path in n_best(before, n, rescored.totals(setting))]
    says = [[place for place, arc in enumerate(path) if before.words[arc] != SILENT] for path in paths]
    sentences = [[before.words[path[place]] for place in places[:-1]] for path, places in zip(paths, says)]
    sources, targets, arcs, number, place = _tree(paths).T
    times = None
    if before.times is not None:
        times = np.full(targets.max() + 1, before.times[0])
        times[targets] = before.times[before.targets[arcs]]
    lattice = before.keep(arcs, sources, targets, times)
    scores = {}
    for name, scorer in scorers.items():
        table = np.zeros((len(paths), max(map(len, paths))))
        for row, places, told in zip(table, says, scorer.sentences(sentences, positions)):
            row[places] = told
        scores[name] = told_of(scorer, lattice, table[number, place], keep)
    return Rescored(lattice, scores, rescored.given, rescored.arcs[arcs])


def _tree(paths: Sequence[Sequence[int]]) -> Ids:
    """For each arc of the tree its source, its target, which arc it is, and of which path at which place."""
    nodes: dict[tuple[int, int], int] = {}
    rows = []
    for number, path in enumerate(paths):
        node = 0
        for place, arc in enumerate(path[:-1]):
            if (node, arc) not in nodes:
                nodes[node, arc] = len(nodes) + 1
                rows.append((node, nodes[node, arc], arc, number, place))
            node = nodes[node, arc]
        rows.append((node, -1, path[-1], number, len(path) - 1))
    table = np.array(rows, np.int64)
    table[table[:, 1] < 0, 1] = len(nodes) + 1  # all end at one node
    return table[np.lexsort((table[:, 1], table[:, 0]))]
