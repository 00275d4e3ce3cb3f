"""Linear interpolation of scorers, word by word: log sum_i w_i exp(score_i); the weights by EM on development text.

Words are the border: every scorer has its own vocabulary and scores a word it does not know as its own `<unk>`. So the
mixture adds up to 1 where all know the same words, and to more where they do not.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Floats = npt.NDArray[np.float64]

NEAR = 1e-9  # nats per word that better weights could still gain
LEAST = 1e-12  # weight while they are looked for: from 0 there is no way back
ROUNDS = 1000  # two scorers take some ten


class Sentencewise(Protocol):
    """A scorer that also takes whole sentences."""

    def start(self) -> Any: ...
    def advance(self, states: Sequence[Any], words: Sequence[str]) -> tuple[Tensor, list[Any]]: ...
    def score(self, sentence: str | Sequence[str]) -> list[float]: ...


def mix(weights: Sequence[float], scores: Sequence[Floats]) -> Floats:
    """The score of each word in the mixture."""
    parts = [np.log(weight) + each for weight, each in zip(weights, scores) if weight > 0]
    return np.logaddexp.reduce(parts)


def fit(scores: Sequence[Floats]) -> list[float]:
    """The weights under which a text is likeliest, from every scorer's scores of its words.

    The likelihood is concave: with g_i the mean of exp(score_i) over that of the mixture, EM multiplies w_i by g_i, and
    no weights are better by more than max g - 1 nats per word. Where scorers are much alike g is near 1 and EM
    creeps: so w_i is multiplied by a power of g_i, which doubles as long as it helps. Words that no scorer thinks
    possible say nothing.
    """
    table = np.stack(scores)  # [scorers, words]
    best = table.max(0)
    table = np.exp(table[:, np.isfinite(best)] - best[np.isfinite(best)])
    weights = np.full(len(table), 1 / len(table))
    if not table.size:
        raise ValueError("the development text holds no word that a scorer thinks possible; give another one")
    power, mixed = 1.0, weights @ table
    for _ in range(ROUNDS):
        gains = np.maximum((table / mixed).mean(1), LEAST)
        if gains.max() - 1 < NEAR:
            break
        steps = power * np.log(gains)
        trial = np.maximum(weights * np.exp(steps - steps.max()), LEAST)
        trial /= trial.sum()
        helps = power == 1 or np.log(trial @ table / mixed).sum() > 0  # EM itself always does
        if helps:
            weights, mixed = trial, trial @ table
        power = 2 * power if helps else max(1.0, power / 4)
    return weights.tolist()


class Interpolated:
    """Several scorers as one."""

    def __init__(self, scorers: Sequence[Sentencewise], weights: Sequence[float]) -> None:
        if len(scorers) != len(weights):
            raise ValueError(f"{len(scorers)} scorers but {len(weights)} weights; give one weight for each")
        if not all(weight >= 0 for weight in weights) or abs(sum(weights) - 1) > 1e-6:
            raise ValueError(f"weights {', '.join(map(str, weights))}: give weights from 0 to 1 that add up to 1")
        self.scorers = list(scorers)
        self.weights = list(weights)

    def start(self) -> tuple[Any, ...]:
        return tuple(scorer.start() for scorer in self.scorers)

    def advance(self, states: Sequence[tuple[Any, ...]], words: Sequence[str]) -> tuple[Tensor, list[tuple[Any, ...]]]:
        """The score of each word after its state [B], and the states that hold it."""
        each = [scorer.advance(parts, words) for scorer, parts in zip(self.scorers, zip(*states))]
        scores = mix(self.weights, [score.double().cpu().numpy() for score, _ in each])
        return torch.from_numpy(scores), list(zip(*(after for _, after in each)))

    def score(self, sentence: str | Sequence[str]) -> list[float]:
        """The score of each word of a sentence and, last, of `</s>`."""
        return mix(self.weights, [np.array(scorer.score(sentence)) for scorer in self.scorers]).tolist()
