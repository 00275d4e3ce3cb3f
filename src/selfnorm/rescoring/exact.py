"""Every history of a small lattice, one node after the other: what the other algorithms are compared with."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from selfnorm.lattices.lattice import SILENT, Lattice
from selfnorm.lattices.paths import subset
from selfnorm.rescoring.forest import ended
from selfnorm.rescoring.histories import Unknown
from selfnorm.rescoring.setting import Rescored, Scores, Setting
from selfnorm.scorers import Neural, NGram

History = tuple[str, ...]


class Teller:
    """What each scorer says of a word after a history, asked once."""

    def __init__(self, scorers: Mapping[str, Neural | NGram], unknown: Unknown) -> None:
        self.scorers, self.unknown = scorers, unknown
        self.states: dict[History, dict[str, Any]] = {(): {name: each.start() for name, each in scorers.items()}}
        self.scores: dict[History, dict[str, float]] = {}

    def told(self, history: History, lm: float) -> dict[str, float]:
        """What each scorer says of a history's last word, of which the lattice says `lm`."""
        told = self.score(history)
        if not self.unknown.keep:
            return told
        return {name: each if history[-1] in self.scorers[name].vocabulary else lm for name, each in told.items()}

    def score(self, history: History) -> dict[str, float]:
        if history not in self.scores:
            before, word = self.states[history[:-1]], history[-1]
            told = {name: each.advance([before[name]], [word]) for name, each in self.scorers.items()}
            self.states[history] = {name: after[0] for name, (_, after) in told.items()}
            self.scores[history] = {
                name: float(score[0]) + (0 if word in self.scorers[name].vocabulary else self.unknown.penalty)
                for name, (score, _) in told.items()
            }
        return self.scores[history]


def exact(
    lattice: Lattice,
    scorers: Mapping[str, Neural | NGram],
    setting: Setting,
    unknown: Unknown = Unknown(),  # noqa: B008  frozen
    most: int = 100_000,
) -> tuple[float, Rescored]:
    """The best score of any path, and that path as a lattice of its own."""
    lattice = ended(lattice)
    teller = Teller(scorers, unknown)
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
            told: Scores = {}
            if word != SILENT:
                told = {name: np.array([each]) for name, each in teller.told(after, float(lm[0])).items()}
            elif scorers:
                told = {name: np.zeros(1) for name in scorers}
            total = score + steady[arc] + scale * float(setting.lm(lm, told, np.array([word != SILENT]))[0])
            if after not in reached[target] or total > reached[target][after][0]:
                count += after not in reached[target]
                reached[target][after] = (total, arc, history)
        if count > most:
            raise ValueError(
                f"lattice {lattice.utterance} has over {most} histories, too many for `exact`; take `push_forward`"
            )
    history, (score, _, _) = max(reached[-1].items(), key=lambda item: item[1][0])
    arcs, rows, node = [], [], lattice.nodes - 1
    final = score
    while node:
        _, arc, before = reached[node][history]
        arcs.append(arc)
        silent = lattice.words[arc] == SILENT
        rows.append(dict.fromkeys(scorers, 0.0) if silent else teller.told(history, float(lattice.lm[arc])))
        history, node = before, int(lattice.sources[arc])
    kept = np.array(arcs[::-1], np.int64)
    told = {name: np.array([row[name] for row in rows[::-1]]) for name in scorers}
    return final, Rescored(subset(lattice, kept), told, lattice, kept)
