"""Draws until K are distinct: TensorFlow's rule, for parity with models trained there."""

import math

import torch
from torch import Tensor

from selfnorm.noise import Noise
from selfnorm.samplers.sample import Sample
from selfnorm.samplers.shared import Shared

CERTAIN = 32.0  # the fixed overdraw falls short with a chance of exp(-32)
LONGEST = 1 << 24  # draws at a time


class Rejection(Shared):
    """E_c = 1 - (1 - D(c))^T, T the number of tries that K distinct ids took.

    T depends on the ids, so this E is not quite their expected count and sums of f / E are biased. The number of words
    (f = 1) comes out 2.8 % too large at K = 5 and 20, C = 100, 1.6 % at K = 50, C = 100, 1.2 % at K = 10, C = 1000, and
    under half a per cent at K >= 50, C >= 1000. `distinct` and `systematic` have no such bias.
    """

    distinct = True

    def __init__(self, noise: Noise, k: int | None = None, groups: int = 1) -> None:
        super().__init__(noise, k, groups)
        self.overdraw = 0 if self.k == noise.size else self._overdraw()
        self.waits = self.overdraw == LONGEST

    def draw(
        self, targets: Tensor, generator: torch.Generator | None = None, bounds: tuple[int, ...] | None = None
    ) -> Sample:
        bounds = self.checked(targets, bounds)
        if not self.overdraw:
            return self.once(targets, bounds)
        draws = self.noise.inverse(self.uniform(targets, generator, self.overdraw))  # [G, M]
        ids, tries, found = self._first_distinct(draws)
        # a host sync, needed only where certainty takes too many draws to make at once
        while self.waits and int(found.min()) < self.k:
            draws = torch.cat([draws, self.noise.inverse(self.uniform(targets, generator, self.overdraw))], 1)
            ids, tries, found = self._first_distinct(draws)
        return Sample(
            ids, self._expected(ids, tries[:, None]), self._expected(targets, self.spread(tries, bounds)), bounds
        )

    def _expected(self, ids: Tensor, tries: Tensor) -> Tensor:
        return -torch.expm1(tries * torch.log1p(-self.noise.prob(ids)))

    def _first_distinct(self, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The first K distinct ids in order [G, K], the tries they took [G], how many distinct there were [G]."""
        order = torch.arange(draws.shape[1], device=draws.device).expand_as(draws)
        seen = torch.full((self.groups, self.noise.size), draws.shape[1], device=draws.device)
        new = seen.scatter_reduce(1, draws, order, "amin").gather(1, draws) == order
        rank = new.cumsum(1)
        place = torch.where(new & (rank <= self.k), rank - 1, self.k)  # all others go to a place that is cut off
        ids = torch.zeros(self.groups, self.k + 1, dtype=torch.long, device=draws.device).scatter(1, place, draws)
        return ids[:, : self.k], (rank < self.k).sum(1) + 1, rank[:, -1]

    def _overdraw(self) -> int:
        """The fewest draws that hold K distinct ids but for a chance of exp(-CERTAIN), by two Chernoff bounds.

        Which words were seen are negatively associated events, so the bounds for independent ones hold: the first on
        the words seen, which is the sharper for small K, the second on the words missed, for K near C.
        """
        miss = torch.log1p(-self.noise.prob(torch.arange(self.noise.size, device="cpu")))
        spare = self.noise.size - self.k + 1  # so many words missed are one too many

        def enough(draws: int) -> bool:
            missed = float((draws * miss).exp().sum())
            seen = self.noise.size - missed
            few_seen = (seen - self.k) ** 2 / (2 * seen) if seen > self.k else 0.0
            many_missed = missed - spare + spare * math.log(spare / missed) if 0 < missed < spare else 0.0
            return missed == 0 or max(few_seen, many_missed) > CERTAIN

        low = high = self.k
        while high < LONGEST and not enough(high):
            low, high = high, min(2 * high, LONGEST)
        while low + 1 < high < LONGEST:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high
