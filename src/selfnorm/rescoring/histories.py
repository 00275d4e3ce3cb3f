"""The words before each hypothesis, as a tree: every history is scored once and takes one step of each scorer.

What a word scores after a history needs the history's hidden vector only; its own step waits until a word after it is
asked for, so hypotheses that are pruned at once cost nothing but a row of the output layer.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import Floats, Ids
from selfnorm.rescoring.setting import Told
from selfnorm.scorers.banks import Bank

MULTIPLIERS = np.random.default_rng(2022).integers(1, 2**63, 64, np.int64).astype(np.uint64) | np.uint64(1)


class Histories:
    """Histories are numbers; 0 is no history. `order` words make the context on which hypotheses are recombined."""

    def __init__(self, banks: Sequence[Bank], words: Sequence[str], order: int | None) -> None:
        self.banks, self.order, self.words = banks, order, words
        self.known = [bank.tell(words) for bank in banks]
        self.size = 1
        self.parent = np.zeros(1, np.int64)
        self.word = np.full(1, -1)
        self.recent = np.zeros((1, order or 0), np.int64)  # the last words' numbers plus 1, latest first
        self.rows = np.full((1, len(banks)), -1)  # in each bank; -1: no step was made, or it was dropped
        self.scores = np.zeros((1, len(banks)))
        self.children: dict[int, int] = {}

    def start(self, count: int) -> Ids:
        """Histories of sentences before their first word."""
        rows = np.stack([bank.start(count) for bank in self.banks], 1)
        return self.begin(rows)

    def begin(self, rows: Ids) -> Ids:
        """Histories of sentences whose rows the banks already hold."""
        count = len(rows)
        made = self._append(np.zeros(count, np.int64), np.full(count, -1), np.zeros((count, len(self.banks))))
        self.rows[made] = rows
        return made

    def after(self, histories: Ids, words: Ids) -> Ids:
        """The histories with one word more, scored."""
        keys, first, inverse = np.unique(histories * len(self.words) + words, return_index=True, return_inverse=True)
        found = np.fromiter(map(self.children.get, keys.tolist(), [0] * len(keys)), np.int64, len(keys))
        missing = np.flatnonzero(found == 0)
        if len(missing):
            parents, new = histories[first[missing]], words[first[missing]]
            self.step(parents)
            found[missing] = self._append(parents, new, self._score(parents, new))
            self.children.update(zip(keys[missing].tolist(), found[missing].tolist()))
        return found[inverse]

    def step(self, histories: Ids) -> None:
        """Let the scorers take the step into histories that have not had it, after those that they continue."""
        waiting = np.unique(histories[self.rows[histories, 0] < 0])
        if len(waiting):
            parents, words = self.parent[waiting], self.word[waiting]
            self.step(parents)
            for n, bank in enumerate(self.banks):
                self.rows[waiting, n] = bank.grow(self.rows[parents, n], words)

    def contexts(self, histories: Ids) -> npt.NDArray[np.uint64]:
        """A number for the last `order` words; equal where they are. Without an order, for all of them."""
        if self.order is None:
            return histories.astype(np.uint64)
        recent = self.recent[histories].astype(np.uint64)
        return (recent * MULTIPLIERS[: self.order]).sum(1, dtype=np.uint64)

    def drop_all_but(self, histories: Ids) -> None:
        """Give back the rows of all histories but these, the ones that they continue, and the starts of sentences."""
        kept = self.word[: self.size] < 0
        kept[histories] = True
        kept[self.parent[histories]] = True
        gone = np.flatnonzero(~kept & (self.rows[: self.size, 0] >= 0)) if self.banks else np.zeros(0, np.int64)
        for n, bank in enumerate(self.banks):
            bank.drop(self.rows[gone, n])
        self.rows[gone] = -1

    @property
    def held(self) -> int:
        return int((self.rows[: self.size, 0] >= 0).sum()) if self.banks else 0

    def told(self, histories: Ids) -> list[Told]:
        """What each scorer says of the last word of these; nothing for -1, which is no history."""
        some, there = np.maximum(histories, 0), histories >= 0
        return [
            Told(np.where(there, self.scores[some, n], 0.0), there & ~known[self.word[some]])
            for n, known in enumerate(self.known)
        ]

    def _score(self, parents: Ids, words: Ids) -> Floats:
        return np.stack([bank.scores(self.rows[parents, n], words) for n, bank in enumerate(self.banks)], 1)

    def _append(self, parents: Ids, words: Ids, scores: Floats) -> Ids:
        made = np.arange(self.size, self.size + len(parents))
        self.size += len(parents)
        while len(self.parent) < self.size:
            for name in ("parent", "word", "recent", "rows", "scores"):
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.empty_like(column)]))
        self.parent[made], self.word[made], self.rows[made], self.scores[made] = parents, words, -1, scores
        if self.order:
            self.recent[made, 1:] = self.recent[parents, :-1]
            self.recent[made, 0] = words + 1
        return made
