"""Every history of a small lattice, one node after the other: what the other algorithms are compared with."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from selfnorm.lattices.lattice import SILENT, Lattice
from selfnorm.lattices.paths import subset
from selfnorm.rescoring.forest import ended
from selfnorm.rescoring.setting import Rescored, Setting, Told, kept
from selfnorm.scorers import Neural, NGram

History = tuple[str, ...]


class Teller:
    """What each scorer says of a word after a history, asked once."""

    def __init__(self, scorers: Mapping[str, Neural | NGram], lattice: Lattice, keep: bool) -> None:
        self.scorers, self.lattice, self.keep = scorers, lattice, keep
        self.states: dict[History, dict[str, Any]] = {(): {name: each.start() for name, each in scorers.items()}}
        self.scores: dict[History, dict[str, float]] = {}

    def told(self, history: History, arc: int) -> dict[str, Told]:
        """Of a history's last word, which the arc says, unless it says nothing."""
        if self.lattice.words[arc] == SILENT:
            return {name: Told(np.zeros(1), np.zeros(1, bool)) for name in self.scorers}
        found = {
            name: Told(np.array([score]), np.array([history[-1] not in self.scorers[name].vocabulary]))
            for name, score in self.score(history).items()
        }
        lm = self.lattice.lm[arc : arc + 1]
        return {name: kept(each, lm) for name, each in found.items()} if self.keep else found

    def score(self, history: History) -> dict[str, float]:
        if history not in self.scores:
            before, word = self.states[history[:-1]], history[-1]
            told = {name: each.advance([before[name]], [word]) for name, each in self.scorers.items()}
            self.states[history] = {name: after[0] for name, (_, after) in told.items()}
            self.scores[history] = {name: float(score[0]) for name, (score, _) in told.items()}
        return self.scores[history]


def exact(
    lattice: Lattice,
    scorers: Mapping[str, Neural | NGram],
    setting: Setting,
    keep: bool = False,
    most: int = 100_000,
) -> tuple[float, Rescored]:
    """The best score of any path, and that path as a lattice of its own."""
    lattice = ended(lattice)
    teller = Teller(scorers, lattice, keep)
    scale, penalty = setting.scale(lattice), setting.penalty(lattice)
    steady = lattice.steady + penalty * lattice.is_word
    # at each node: history -> score, the arc it came by, the history before it
    reached: list[dict[History, tuple[float, int, History]]] = [{} for _ in range(lattice.nodes)]
    reached[0][()] = (0.0, -1, ())
    count = 0
    for arc, (source, target, word) in enumerate(
        zip(lattice.sources.tolist(), lattice.targets.tolist(), lattice.words)
    ):
        lm = np.array([lattice.lm[arc]])
        for history, (score, _, _) in reached[source].items():
            after = history if word == SILENT else (*history, word)
            told = teller.told(after, arc)
            total = score + steady[arc] + scale * float(setting.lm(lm, told, np.array([word != SILENT]))[0])
            if after not in reached[target] or total > reached[target][after][0]:
                count += after not in reached[target]
                reached[target][after] = (total, arc, history)
        if count > most:
            raise ValueError(
                f"lattice {lattice.utterance} has over {most} histories, too many for `exact`; take `push_forward`"
            )
    history, (score, _, _) = max(reached[-1].items(), key=lambda item: item[1][0])
    arcs: list[int] = []
    told_of: list[dict[str, Told]] = []
    final, node = score, lattice.nodes - 1
    while node:
        _, arc, before = reached[node][history]
        arcs.insert(0, arc)
        told_of.insert(0, teller.told(history, arc))
        history, node = before, int(lattice.sources[arc])
    path = np.array(arcs, np.int64)
    joined = {name: Told(*map(np.concatenate, zip(*(told[name] for told in told_of)))) for name in scorers}
    return final, Rescored(subset(lattice, path), joined, lattice, path)
