"""Path cover: a small set of best paths such that every arc is on one of them, scored as whole sentences.

For models whose state is large, such as Transformers: no state is kept, sentences are batches under a budget of words.
An arc takes the score that its word has on the best path through it, and has it on all other paths, too: the sums of
those are near what the model says, not equal to it. What is decided on is scored again (`whole`).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from selfnorm.lattices.lattice import SILENT, Floats, Lattice
from selfnorm.lattices.paths import through_each
from selfnorm.rescoring.forest import ended
from selfnorm.rescoring.setting import Rescored, Setting, Told, kept
from selfnorm.scorers import Neural, NGram


def cover(lattice: Lattice, totals: Floats) -> list[list[int]]:
    """Paths, the best first, each the best one through some arc that no better path has."""
    score, came, goes = through_each(lattice, totals)
    covered = np.zeros(lattice.arcs, bool)
    paths = []
    for arc in np.argsort(-score, kind="stable").tolist():
        if covered[arc]:
            continue
        path = [arc]
        while (node := int(lattice.sources[path[0]])) != 0:
            path.insert(0, int(came[node]))
        while (node := int(lattice.targets[path[-1]])) != lattice.nodes - 1:
            path.append(int(goes[node]))
        covered[path] = True
        paths.append(path)
    return paths


def path_cover(
    lattices: Sequence[Lattice],
    scorers: Mapping[str, Neural | NGram],
    setting: Setting,
    positions: int,
    keep: bool,
) -> list[Rescored]:
    """Every lattice with new scores on its own arcs; the paths of all of them are scored together."""
    lattices = [ended(lattice) for lattice in lattices]
    covers = [
        cover(
            lattice, lattice.steady + setting.scale(lattice) * lattice.lm + setting.penalty(lattice) * lattice.is_word
        )
        for lattice in lattices
    ]
    says = [
        [[arc for arc in path if lattice.words[arc] != SILENT] for path in paths]
        for lattice, paths in zip(lattices, covers)
    ]
    sentences = [[lattice.words[arc] for arc in path[:-1]] for lattice, paths in zip(lattices, says) for path in paths]
    distinct = list(dict.fromkeys(map(tuple, sentences)))
    number = {words: n for n, words in enumerate(distinct)}
    told = {name: scorer.sentences(distinct, positions) for name, scorer in scorers.items()}
    found = []
    for lattice, paths in zip(lattices, says):
        columns = {name: np.zeros(lattice.arcs) for name in scorers}
        done = np.zeros(lattice.arcs, bool)
        for path in paths:
            arcs = np.array(path)
            new = ~done[arcs]
            done[arcs] = True
            sentence = number[tuple(lattice.words[arc] for arc in path[:-1])]
            for name, column in columns.items():
                column[arcs[new]] = told[name][sentence][new]
        scores = {name: told_of(scorers[name], lattice, column, keep) for name, column in columns.items()}
        found.append(Rescored(lattice, scores, lattice, np.arange(lattice.arcs)))
    return found


def told_of(scorer: Neural | NGram, lattice: Lattice, column: Floats, keep: bool) -> Told:
    """The scores of the arcs, with the words that the scorer does not know."""
    strange = (word != SILENT and word not in scorer.vocabulary for word in lattice.words)
    told = Told(column, np.fromiter(strange, bool, lattice.arcs))
    return kept(told, lattice.lm) if keep else told
