"""The histories of many hypotheses, one row each: scores and steps of all that wait are one batch.

A word costs one row of the output layer; a step of the body is made once for a history, when a word after it is asked
for. Words are numbered by the caller: `words` is the list that the numbers point into.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selfnorm.scorers.neural import Neural
from selfnorm.scorers.ngram import NGram

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

ROWS = 1024  # of a new bank; it grows by doubling


class Bank(Protocol):
    def tell(self, words: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Number the words from now on; which of them the scorer knows."""

    def start(self, count: int) -> Ids:
        """Rows of sentences before their first word."""

    def scores(self, rows: Ids, words: Ids) -> Floats:
        """The score of each word after its history."""

    def grow(self, rows: Ids, words: Ids) -> Ids:
        """New rows: the histories with one word more."""

    def drop(self, rows: Ids) -> None:
        """Rows that will not be asked for again."""


class StateBank:
    """Of any scorer: a state for each row, kept in a list."""

    def __init__(self, scorer: NGram) -> None:
        self.scorer = scorer
        self.states: dict[int, Any] = {}
        self.words: Sequence[str] = ()
        self._next = 0

    def tell(self, words: Sequence[str]) -> npt.NDArray[np.bool_]:
        self.words = words
        return np.fromiter((word in self.scorer.vocabulary for word in words), bool, len(words))

    def start(self, count: int) -> Ids:
        return self._keep([self.scorer.start()] * count)

    def scores(self, rows: Ids, words: Ids) -> Floats:
        return self._advance(rows, words)[0].double().cpu().numpy()

    def grow(self, rows: Ids, words: Ids) -> Ids:
        return self._keep(self._advance(rows, words)[1])

    def drop(self, rows: Ids) -> None:
        for row in rows.tolist():
            del self.states[row]

    def _advance(self, rows: Ids, words: Ids) -> tuple[Tensor, list[Any]]:
        if not len(rows):
            return torch.zeros(0), []
        return self.scorer.advance([self.states[row] for row in rows.tolist()], [self.words[n] for n in words.tolist()])

    def _keep(self, states: Sequence[Any]) -> Ids:
        rows = np.arange(self._next, self._next + len(states))
        self._next += len(states)
        self.states.update(zip(rows.tolist(), states))
        return rows


class NeuralBank:
    """Of a neural scorer: one pool of states and hidden vectors, and of log Z where the scores need it.

    `budget` is the most histories that take a step together, which bounds the memory of a batch.
    """

    def __init__(self, scorer: Neural, budget: int = 4096) -> None:
        self.scorer, self.budget = scorer, budget
        self.model, self.device = scorer.model, scorer.device
        self.state = self.model.start(ROWS, self.device)
        weight = self.model.output.weight
        self.hidden = weight.new_zeros(ROWS, self.model.width)
        self.log_z = weight.new_zeros(ROWS)
        self.free = np.arange(ROWS)[::-1]  # the last is taken first
        self.ids = torch.zeros(0, dtype=torch.long)

    def tell(self, words: Sequence[str]) -> npt.NDArray[np.bool_]:
        vocabulary = self.scorer.vocabulary
        self.ids = torch.tensor(vocabulary.encode(words), device=self.device)
        return np.fromiter((word in vocabulary for word in words), bool, len(words))

    @torch.inference_mode()
    def start(self, count: int) -> Ids:
        first = torch.full((count,), self.scorer.first, device=self.device)
        return self._step(self.model.start(count, self.device), first)

    @torch.inference_mode()
    def scores(self, rows: Ids, words: Ids) -> Floats:
        output = self.model.output
        parts = [np.zeros(0)]
        for begin in range(0, len(rows), 8 * self.budget):
            here = slice(begin, begin + 8 * self.budget)
            index, ids = self._there(rows[here]), self.ids[self._there(words[here])]
            score = output.link(output.logit(self.hidden[index], ids))
            if output.normalize:
                score = score - self.log_z[index]
            parts.append(score.double().cpu().numpy())
        return np.concatenate(parts)

    @torch.inference_mode()
    def grow(self, rows: Ids, words: Ids) -> Ids:
        parts = [np.zeros(0, np.int64)]
        for begin in range(0, len(rows), self.budget):
            here = slice(begin, begin + self.budget)
            before = self.model.select(self.state, self._there(rows[here]))
            parts.append(self._step(before, self.ids[self._there(words[here])]))
        return np.concatenate(parts)

    def drop(self, rows: Ids) -> None:
        self.free = np.concatenate([self.free, rows])

    def _step(self, before: Any, inputs: Tensor) -> Ids:
        hidden, after = self.model.advance(inputs[:, None], before)
        rows = self._take(len(inputs))
        index = self._there(rows)
        self.state = self.model.put(self.state, index, after)
        self.hidden.index_copy_(0, index, hidden[:, -1].to(self.hidden.dtype))
        if self.model.output.normalize:
            self.log_z.index_copy_(0, index, self.model.output.log_z(hidden[:, -1]).to(self.log_z.dtype))
        return rows

    def _take(self, count: int) -> Ids:
        while len(self.free) < count:
            size = len(self.hidden)
            self.state = self.model.join([self.state, self.model.start(size, self.device)])
            self.hidden = torch.cat([self.hidden, torch.zeros_like(self.hidden)])
            self.log_z = torch.cat([self.log_z, torch.zeros_like(self.log_z)])
            self.free = np.concatenate([np.arange(2 * size - 1, size - 1, -1), self.free])
        taken, self.free = self.free[-count:][::-1], self.free[: len(self.free) - count]
        return taken.copy()

    def _there(self, numbers: Ids) -> Tensor:
        return torch.from_numpy(numbers).to(self.device, non_blocking=True)


def bank(scorer: Neural | NGram, budget: int = 4096) -> Bank:
    return NeuralBank(scorer, budget) if isinstance(scorer, Neural) else StateBank(scorer)
