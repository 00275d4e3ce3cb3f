"""Push forward: hypotheses wander from node to node, through many lattices at once.

At every node, hypotheses with the same last words are recombined into the best of them; a beam and a largest number
bound the rest. Hypotheses are ranked by their score plus what the first pass thinks lies behind the node. What survives
is a lattice again, expanded so that different histories stay apart, with every scorer's score on its arcs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from selfnorm.lattices.lattice import Floats, Ids, Lattice
from selfnorm.rescoring.forest import Forest, leaving, plant
from selfnorm.rescoring.histories import MULTIPLIERS, Histories
from selfnorm.rescoring.setting import Rescored, Setting, Told, kept
from selfnorm.scorers.banks import Bank

LEAST = 1e-3  # LM scale that the beam goes by
HELD = 20_000  # rows in the banks before those that nobody needs are given back

MIXED = MULTIPLIERS[-2:]  # of context and node, for a number that both have in common

Columns = tuple[Ids, Ids, Floats, Ids, Ids, Ids]  # target, history, score, from which hypothesis, arc, history scored


@dataclass(frozen=True)
class Search:
    """`order` words are compared in recombination, None: all; at most `most` hypotheses stay at a node, None: all;
    `beam` is what a hypothesis may be worse than the best of its wave, in units of the LM scale."""

    order: int | None = None
    most: int | None = 16
    beam: float = 10.0


def push_forward(
    lattices: Sequence[Lattice],
    banks: dict[str, Bank],
    setting: Setting,
    search: Search = Search(),  # noqa: B008  frozen
    keep: bool = False,
    roots: Ids | None = None,
) -> list[Rescored]:
    """Every lattice expanded and scored; `roots` are rows of the banks to start from, else sentences start afresh.

    With `keep` a word that a scorer does not know keeps the lattice's own score.
    """
    forest = plant(lattices, setting)
    histories = Histories(list(banks.values()), forest.words, search.order)
    push = Push(forest, histories, list(banks), setting, search, keep)
    start = histories.start(len(lattices)) if roots is None else histories.begin(roots)
    push.run(start)
    histories.drop_all_but(start[:0])  # what the caller gave stays his
    return push.expanded()


class Push:
    def __init__(
        self,
        forest: Forest,
        histories: Histories,
        names: list[str],
        setting: Setting,
        search: Search,
        keep: bool,
    ) -> None:
        self.forest, self.histories, self.names, self.keep = forest, histories, names, keep
        self.setting, self.search = setting, search
        self.arriving: list[list[Columns]] = [[] for _ in range(int(forest.wave.max()) + 1)]
        self.beam = np.array([search.beam * max(setting.scale(lattice), LEAST) for lattice in forest.lattices])
        self.node: list[Ids] = []  # of the hypotheses of each wave
        self.into: list[tuple[Ids, Ids, Ids, Ids]] = []  # arcs into each wave: from, to, arc, history scored
        self.count = 0  # hypotheses so far

    def run(self, start: Ids) -> None:
        none = np.full(len(start), -1)
        self.arriving[0].append((self.forest.first_node[:-1], start, np.zeros(len(start)), none, none, none))
        for wave, came in enumerate(self.arriving):
            if not came:
                continue
            self.leave(*self.arrive(wave))
            self.arriving[wave] = []
            if self.histories.held > HELD and wave % 4 == 3:
                waiting = [part[1] for later in self.arriving for part in later]
                self.histories.drop_all_but(np.unique(np.concatenate(waiting)) if waiting else none[:0])

    def arrive(self, wave: int) -> tuple[Ids, Ids, Floats, Ids]:
        """Recombine and prune what came to the nodes of a wave; the hypotheses that go on."""
        node, history, score, source, arc, scored = map(np.concatenate, zip(*self.arriving[wave]))
        context = self.histories.contexts(history)
        context[self.forest.is_end[node]] = 0  # nothing follows: all are one
        order = np.argsort(context * MIXED[0] + node.astype(np.uint64) * MIXED[1])
        new = np.ones(len(order), bool)
        new[1:] = (node[order][1:] != node[order][:-1]) | (context[order][1:] != context[order][:-1])
        first = np.flatnonzero(new)
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(new) - 1
        top = np.maximum.reduceat(score[order], first)
        tops = np.sort(order[score[order] == top[group[order]]])  # the best of each group, of equal ones the first
        best = tops[np.unique(group[tops], return_index=True)[1]]
        kept = self._survivors(node[best], score[best])
        number = np.full(len(best), -1)
        number[kept] = self.count + np.arange(len(kept))
        to = number[group]
        there = np.flatnonzero((to >= 0) & (source >= 0))
        self.into.append((source[there], to[there], arc[there], scored[there]))
        best = best[kept]
        self.node.append(node[best])
        self.count += len(kept)
        return node[best], history[best], score[best], number[kept]

    def _survivors(self, node: Ids, score: Floats) -> Ids:
        """Which hypotheses stay within the beam and the number, sorted by node, the best first."""
        tree = self.forest.tree[node]
        promise = score + self.forest.behind[node]
        top = np.full(len(self.forest.lattices), -np.inf)
        np.maximum.at(top, tree, promise)
        inside = np.flatnonzero(promise >= top[tree] - self.beam[tree])
        node, score = node[inside], score[inside]
        order = np.lexsort((-score, node))  # whatever else is rescored with it, a lattice comes out the same
        if self.search.most is not None:
            node = node[order]
            first = np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
            rank = np.arange(len(node)) - np.repeat(first, np.diff(np.r_[first, len(node)]))
            order = order[rank < self.search.most]
        return inside[order]

    def leave(self, node: Ids, history: Ids, score: Floats, number: Ids) -> None:
        """Send every hypothesis down all arcs of its node."""
        forest = self.forest
        arc, fan = leaving(forest.bounds, node)
        if not len(arc):
            return
        which = np.repeat(np.arange(len(node)), fan)
        after, scored = history[which], np.full(len(which), -1)
        says = np.flatnonzero(forest.word[arc] >= 0)
        if self.names and len(says):
            there = self.histories.after(after[says], forest.word[arc[says]])
            after[says] = scored[says] = there
        reached = score[which] + forest.steady[arc] + forest.scale[arc] * self._lm(arc, scored)
        target = forest.targets[arc]
        wave = forest.wave[target]
        order = np.argsort(wave.astype(np.uint16), kind="stable") if len(self.arriving) < 1 << 16 else np.argsort(wave)
        cuts = [0, *(np.flatnonzero(np.diff(wave[order])) + 1).tolist(), len(order)]
        came = number[which]
        for begin, end in pairwise(cuts):
            part = order[begin:end]
            columns = target[part], after[part], reached[part], came[part], arc[part], scored[part]
            self.arriving[int(wave[part[0]])].append(columns)

    def _lm(self, arc: Ids, scored: Ids) -> Floats:
        lm = self.forest.lm[arc]
        return self.setting.lm(lm, self._told(scored, lm), scored >= 0)

    def _told(self, scored: Ids, lm: Floats) -> dict[str, Told]:
        told = self.histories.told(scored)
        return dict(zip(self.names, (kept(each, lm) for each in told) if self.keep else told))

    def expanded(self) -> list[Rescored]:
        """What leads to an end, as one lattice for each that was given."""
        alive = np.zeros(self.count, bool)
        node = np.concatenate(self.node)
        alive[self.forest.is_end[node]] = True
        for source, to, _, _ in reversed(self.into):
            alive[source[alive[to]]] = True
        source, to, arc, scored = map(np.concatenate, zip(*self.into))
        used = alive[source] & alive[to]
        source, to, arc, scored = source[used], to[used], arc[used], scored[used]
        tree = self.forest.tree[node]
        by_tree = np.argsort(tree[to], kind="stable")
        cuts = np.searchsorted(tree[to][by_tree], np.arange(len(self.forest.lattices) + 1))
        hypotheses = np.flatnonzero(alive)
        hypotheses = hypotheses[np.argsort(tree[hypotheses], kind="stable")]
        place = np.empty(self.count, np.int64)
        firsts = np.searchsorted(tree[hypotheses], np.arange(len(self.forest.lattices) + 1))
        place[hypotheses] = np.arange(len(hypotheses)) - firsts[tree[hypotheses]]
        found = []
        for n, lattice in enumerate(self.forest.lattices):
            here = by_tree[cuts[n] : cuts[n + 1]]
            here = here[np.lexsort((place[to[here]], place[source[here]]))]
            times = None
            if lattice.times is not None:
                times = lattice.times[node[hypotheses[firsts[n] : firsts[n + 1]]] - self.forest.first_node[n]]
            arcs = arc[here] - self.forest.first_arc[n]
            expanded = lattice.keep(arcs, place[source[here]], place[to[here]], times)
            found.append(Rescored(expanded, self._told(scored[here], expanded.lm), lattice, arcs))
        return found
