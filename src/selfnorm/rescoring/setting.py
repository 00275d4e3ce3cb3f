"""How a path's score is put together, and an utterance's lattice with the new scores of its arcs.

total = acoustic + lm_scale ((1 - weight) lattice_lm + weight new) + word_penalty for each word

`new` is the log of the per-word mixture of the neural model and the n-gram. With an `old` n-gram, whose scores the
lattice's contain, `weight (new - old)` is added to the lattice's scores instead: the rest of them stays.

A word that a scorer does not know scores as its `<unk>` plus a penalty: `<unk>` stands for many words, and -log N is
what a word gets when N of them share its probability.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import Floats, Ids, Lattice, Scales
from selfnorm.lattices.paths import best, forward, subset, through_each

NEURAL, NGRAM, OLD = "neural", "ngram", "old"  # the scorers there may be

SHARED = -math.log(10_000)  # penalty of unknown words, where nobody says another


class Told(NamedTuple):
    """What a scorer says of each arc, 0 where the arc says nothing, and which words it does not know."""

    score: Floats
    unknown: npt.NDArray[np.bool_]

    def of(self, arcs: Ids | slice) -> "Told":
        return Told(self.score[arcs], self.unknown[arcs])


def kept(told: Told, lm: Floats) -> Told:
    """Unknown words with the lattice's own score instead."""
    return Told(np.where(told.unknown, lm, told.score), np.zeros_like(told.unknown))


Scores = Mapping[str, Told]  # of each scorer


@dataclass(frozen=True)
class Setting:
    """None is what the lattice's header says."""

    lm_scale: float | None = None
    weight: float = 1.0
    word_penalty: float | None = None
    ngram_weight: float = 0.0
    unknown_penalty: float = SHARED

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            shares = name in ("weight", "ngram_weight")
            if not isinstance(value, int | float) and not (value is None and name in ("lm_scale", "word_penalty")):
                raise ValueError(f"the {name.replace('_', ' ')} is {value!r}, which is no number; give one")
            if value is not None and not (0 <= value <= 1 if shares else math.isfinite(value)):
                wanted = "from 0 to 1" if shares else "that is finite"
                raise ValueError(f"the {name.replace('_', ' ')} is {value:g}; give a number {wanted}")
        if self.lm_scale is not None and self.lm_scale < 0:
            raise ValueError(
                f"the lm scale is {self.lm_scale:g}, which would prefer the least likely words; give a number from 0 on"
            )

    def scale(self, lattice: Lattice) -> float:
        return lattice.scales.lm if self.lm_scale is None else self.lm_scale

    def penalty(self, lattice: Lattice) -> float:
        return lattice.scales.penalty if self.word_penalty is None else self.word_penalty

    def temperature(self, lattice: Lattice) -> float:
        """What totals are divided by to be logs of posteriors: half the recogniser's own LM scale, or half of ours
        where it says none, as Kaldi's lattices do; at least 1, which is that of lists."""
        own = lattice.scales.lm
        return max(1.0, 0.5 * (own if own > 1 else self.scale(lattice)))

    def told(self, told: Told) -> Floats:
        """A scorer's scores with the penalty of unknown words."""
        return told.score + self.unknown_penalty * told.unknown

    def new(self, scores: Scores) -> Floats:
        """The mixture of the new scorers, word by word."""
        v = self.ngram_weight
        if NGRAM not in scores or (NEURAL in scores and v == 0):
            return self.told(scores[NEURAL])
        if NEURAL not in scores or v == 1:
            return self.told(scores[NGRAM])
        return np.logaddexp(np.log(1 - v) + self.told(scores[NEURAL]), np.log(v) + self.told(scores[NGRAM]))

    def lm(self, lattice_lm: Floats, scores: Scores, says: npt.NDArray[np.bool_]) -> Floats:
        """The language models' part; `says` are the arcs with a word or the end of the sentence."""
        if self.weight == 0 or not scores:
            return lattice_lm
        return self.weigh(lattice_lm, np.where(says, self.new(scores), 0.0), self.old(scores))

    def old(self, scores: Scores) -> Floats | None:
        return self.told(scores[OLD]) if OLD in scores else None

    def weigh(self, lattice_lm: Floats, new: Floats, old: Floats | None) -> Floats:
        """The lattice's scores and the new ones as one: of arcs, or of whole paths."""
        if old is not None:
            return lattice_lm + self.weight * (new - old)
        return (1 - self.weight) * lattice_lm + self.weight * new if self.weight < 1 else new


@dataclass(frozen=True)
class Rescored:
    """A lattice, the given one or expanded so that histories differ, and what each scorer says of its arcs."""

    lattice: Lattice
    scores: Scores
    given: Lattice  # every path of which ends with `</s>`
    arcs: Ids  # of the given lattice, for each arc

    @property
    def says(self) -> npt.NDArray[np.bool_]:
        return np.fromiter(map(bool, self.lattice.words), bool, self.lattice.arcs)  # SILENT is empty

    def lm(self, setting: Setting) -> Floats:
        return setting.lm(self.lattice.lm, self.scores, self.says)

    def totals(self, setting: Setting) -> Floats:
        """The score of each arc; a path's is their sum."""
        scale, penalty = setting.scale(self.lattice), setting.penalty(self.lattice)
        return self.lattice.steady + scale * self.lm(setting) + penalty * self.lattice.is_word

    def replaced(self, setting: Setting) -> Lattice:
        """The given lattice, as far as paths were kept, with the new scores in the place of its own.

        Every arc takes the score of its word on the best path through it. Where several histories meet at a node, arcs
        of different ones could so add up to more than any path has: they get as much less as the best path through
        them is worse than the best through the node they lead to. The best path stays the best, with its score.
        """
        totals, lm = self.totals(setting), self.lm(setting)
        through, _, _ = through_each(self.lattice, totals)
        through[list(best(self.lattice, totals).arcs)] = np.inf  # first also among paths that are as good
        order = np.lexsort((-through, self.arcs))
        kept, first = np.unique(self.arcs[order], return_index=True)
        chosen = order[first]  # of the copies of each arc
        column = self.given.lm.copy()
        column[kept] = lm[chosen]
        if len(chosen) < len(self.arcs) and (scale := setting.scale(self.lattice)):
            column[kept] += self._levelled(totals, chosen) / scale
        return subset(replace(self.given, lm=column, scales=self.scales(setting)), kept)

    def _levelled(self, totals: Floats, chosen: Ids) -> Floats:
        """What the chosen copies of arcs get besides, to be pieces of one lattice."""
        through, _, _ = through_each(self.lattice, totals)
        winner = list(best(self.lattice, totals).arcs)
        through[winner] = through[winner].max()
        ranked = np.lexsort((np.isin(chosen, winner), through[chosen]))  # the best through a node comes last
        ahead = forward(self.lattice, totals)
        source, target = self.given.sources[self.arcs[chosen]], self.given.targets[self.arcs[chosen]]
        most, level = np.zeros(self.given.nodes), np.zeros(self.given.nodes)  # through each node, and on the way to it
        most[target[ranked]] = through[chosen[ranked]]
        level[target[ranked]] = (ahead[self.lattice.sources] + totals)[chosen[ranked]]
        return level[target] - level[source] - totals[chosen] - (most[target] - through[chosen])

    def expanded(self, setting: Setting) -> Lattice:
        """The expanded lattice with the new scores in the place of its own."""
        return replace(self.lattice, lm=self.lm(setting), scales=self.scales(setting))

    def scales(self, setting: Setting) -> Scales:
        return replace(self.lattice.scales, lm=setting.scale(self.lattice), penalty=setting.penalty(self.lattice))
