"""K distinct ids with exact inclusion probabilities: one uniform number, K points at distance 1."""

import torch
from torch import Tensor

from selfnorm.noise import LogUniform, Noise, Uniform
from selfnorm.ops import systematic
from selfnorm.samplers.sample import Sample
from selfnorm.samplers.shared import Shared

SURE = 1 - 1e-9  # above this an id is always in: a point never falls twice on one id through rounding


class Systematic(Shared):
    """E_c = pi_c = min(1, lambda D(c)) with sum_c pi_c = K

    The ids stand side by side, each as long as its pi. The points u, u + 1, ..., u + K - 1 fall on K of them.
    The `sure` ids of the head (pi = 1) are in every sample; the others are found by the noise's own inverse.
    """

    distinct = True

    def __init__(self, noise: Noise, k: int | None = None, groups: int = 1) -> None:
        super().__init__(noise, k, groups)
        self.sure = self._solve()
        self.before = self._before(self.sure)
        self.rising = isinstance(noise, LogUniform | Uniform)  # an id is its own rank
        self.rate = (self.k - self.sure) / (1 - self.before) if self.sure < self.k else 0.0  # lambda

    def draw(
        self, targets: Tensor, generator: torch.Generator | None = None, bounds: tuple[int, ...] | None = None
    ) -> Sample:
        u = self.uniform(targets, generator, 1)
        bounds = self.checked(targets, bounds)
        if isinstance(self.noise, LogUniform) and self.rate:
            numbers = self.before, self.rate, self.noise.log_total
            found = systematic(u, targets, numbers, self.sure, self.k, self.noise.size, SURE)
            if found is not None:
                return Sample(*found, bounds, rising=True)
        ranks = torch.arange(self.k, device=targets.device)
        points = u + (ranks - self.sure)
        tail = (
            self.noise.inverse(self.before + points[:, self.sure :] / self.rate)
            if self.rate
            else ranks[:0].expand(self.groups, 0)
        )
        ids = torch.cat([self.noise.ranked(ranks[: self.sure]).expand(self.groups, -1), tail], 1)
        return Sample(ids, self.expected(ids), self.expected(targets), bounds, rising=self.rising)

    def expected(self, ids: Tensor) -> Tensor:
        prob = self.noise.prob(ids)
        return torch.where(self.rate * prob >= SURE, 1.0, self.rate * prob) if self.rate else torch.ones_like(prob)

    def _before(self, rank: int) -> float:
        """Noise on all ranks below this one."""
        return float(self.noise.cumulative(torch.tensor(rank - 1, device="cpu"))) if rank else 0.0

    def _solve(self) -> int:
        """The number of sure ids: the first rank whose pi is below 1 when all ranks before it have pi = 1."""
        if self.k == self.noise.size:
            return self.k
        low, high = 0, self.k - 1  # the tail keeps a chance
        while low < high:
            middle = (low + high) // 2
            rate = (self.k - middle) / (1 - self._before(middle))
            prob = float(self.noise.prob(self.noise.ranked(torch.tensor(middle, device="cpu"))))
            low, high = (low, middle) if rate * prob < SURE else (middle + 1, high)
        return low
