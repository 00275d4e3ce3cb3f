"""Distributions D(c) over ids: where the noise words come from.

Every noise has the same six members, all in float64 (in float32 the tail of a 200k vocabulary is drawn up to 20 % off):

    size               C
    prob(ids)          D(c)
    rank(ids)          0 for the word with the largest D, and so on
    ranked(ranks)      the id that stands at a rank
    cumulative(ranks)  sum of D over all ranks up to and including this one
    inverse(u)         the id whose stretch of the cumulated sum holds u in [0, 1)
"""

import math
from collections.abc import Callable
from operator import index
from typing import Any, Protocol

import torch
from torch import Tensor


class Noise(Protocol):
    size: int

    def prob(self, ids: Tensor) -> Tensor: ...
    def rank(self, ids: Tensor) -> Tensor: ...
    def ranked(self, ranks: Tensor) -> Tensor: ...
    def cumulative(self, ranks: Tensor) -> Tensor: ...
    def inverse(self, u: Tensor) -> Tensor: ...


def _checked(size: int) -> int:
    try:
        size = index(size)
    except TypeError:
        raise ValueError(f"noise over {size!r} words: their number is a whole one") from None
    if size < 1:
        raise ValueError(f"noise over {size} words: a vocabulary has at least one word")
    return size


class LogUniform:
    """D(c) = log((c + 2) / (c + 1)) / log(C + 1), in closed form both ways; ids must be sorted by falling count."""

    def __init__(self, size: int) -> None:
        self.size = _checked(size)
        self.log_total = math.log(size + 1)

    def prob(self, ids: Tensor) -> Tensor:
        return torch.log1p(1 / (ids.double() + 1)) / self.log_total

    def rank(self, ids: Tensor) -> Tensor:
        return ids

    def ranked(self, ranks: Tensor) -> Tensor:
        return ranks

    def cumulative(self, ranks: Tensor) -> Tensor:
        return torch.log(ranks.double() + 2) / self.log_total

    def inverse(self, u: Tensor) -> Tensor:
        return (torch.exp(u.double() * self.log_total).long() - 1).clamp(0, self.size - 1)


class Uniform:
    """D(c) = 1 / C"""

    def __init__(self, size: int) -> None:
        self.size = _checked(size)

    def prob(self, ids: Tensor) -> Tensor:
        return torch.full_like(ids, 1 / self.size, dtype=torch.float64)

    def rank(self, ids: Tensor) -> Tensor:
        return ids

    def ranked(self, ranks: Tensor) -> Tensor:
        return ranks

    def cumulative(self, ranks: Tensor) -> Tensor:
        return (ranks.double() + 1) / self.size

    def inverse(self, u: Tensor) -> Tensor:
        return (u.double() * self.size).long().clamp(0, self.size - 1)


class Unigram:
    """D(c) = (count_c + smoothing)^power / sum; ids may come in any order."""

    def __init__(self, counts: Tensor, power: float = 1.0, smoothing: float = 1.0) -> None:
        counts = (
            (counts if isinstance(counts, Tensor) else torch.as_tensor(counts, device="cpu")).detach().double().cpu()
        )
        if counts.ndim != 1:
            raise ValueError(f"unigram noise needs one count for each word, not {tuple(counts.shape)}")
        if (wrong := ~torch.isfinite(counts) | (counts < 0)).any():
            word = int(wrong.nonzero()[0])
            raise ValueError(f"unigram noise needs finite counts >= 0, and word {word} has {counts[word]:g}")
        self.size = _checked(len(counts))
        if smoothing < 0 or not math.isfinite(power):
            raise ValueError(f"unigram noise needs smoothing >= 0 and a finite power, not {smoothing} and {power}")
        weight = (counts + smoothing) ** power
        if (wrong := ~torch.isfinite(weight) | (weight <= 0)).any():
            word = int(wrong.nonzero()[0])
            raise ValueError(
                f"word {word} would never be drawn (count {counts[word]:g}, smoothing {smoothing:g}, power {power:g}); "
                "give unigram noise a smoothing above 0"
            )
        falling, order = weight.sort(descending=True, stable=True)
        rank = order.argsort()
        prob = falling / falling.sum()
        cumulated = prob.cumsum(0)
        cumulated = cumulated / cumulated[-1]
        if (lost := cumulated.diff(prepend=cumulated.new_zeros(1)) <= 0).any():
            word = int(order[int(lost.nonzero()[0])])
            raise ValueError(
                f"word {word} would never be drawn: beside the most frequent one its count {counts[word]:g} is lost in "
                f"rounding; lower the power {power:g}, or give more smoothing"
            )
        tables = prob[rank], rank, order, cumulated
        self._tables: dict[torch.device, tuple[Tensor, ...]] = {torch.device("cpu"): tables}

    def __getstate__(self) -> dict[str, Any]:
        """Another machine may have other devices."""
        return {**vars(self), "_tables": {torch.device("cpu"): self._tables[torch.device("cpu")]}}

    def _on(self, device: torch.device) -> tuple[Tensor, ...]:
        if device not in self._tables:
            self._tables[device] = tuple(table.to(device) for table in self._tables[torch.device("cpu")])
        return self._tables[device]

    def prob(self, ids: Tensor) -> Tensor:
        return self._on(ids.device)[0][ids]

    def rank(self, ids: Tensor) -> Tensor:
        return self._on(ids.device)[1][ids]

    def ranked(self, ranks: Tensor) -> Tensor:
        return self._on(ranks.device)[2][ranks]

    def cumulative(self, ranks: Tensor) -> Tensor:
        return self._on(ranks.device)[3][ranks]

    def inverse(self, u: Tensor) -> Tensor:
        _, _, order, cumulated = self._on(u.device)
        return order[torch.searchsorted(cumulated, u.double().contiguous(), right=True).clamp(max=self.size - 1)]


NOISES: dict[str, Callable[..., Noise]] = {"log_uniform": LogUniform, "unigram": Unigram, "uniform": Uniform}
