"""K distinct ids by an exponential race: every id runs Exp(1) / D(c), the K first win."""

import torch
from torch import Tensor

from selfnorm.samplers.sample import Sample
from selfnorm.samplers.shared import Shared


class Distinct(Shared):
    """E_c = 1 - exp(-D(c) tau), tau the time of the best id that lost.

    Given the times of all others, id c is in exactly when it runs faster than the K-th of them, which has this
    probability: sums of f / E are unbiased. For a drawn id that K-th is the (K+1)-th of all, for any other the K-th.
    """

    distinct = True

    def draw(
        self, targets: Tensor, generator: torch.Generator | None = None, bounds: tuple[int, ...] | None = None
    ) -> Sample:
        bounds = self.checked(targets, bounds)
        if self.k == self.noise.size:
            return self.once(targets, bounds)
        every = self.every(targets)
        time = torch.empty(every.shape, dtype=torch.float64, device=targets.device)
        time = time.exponential_(generator=generator) / self.noise.prob(every[:1])
        first, ids = time.topk(self.k + 1, largest=False)
        last_in, first_out = first[:, self.k - 1], first[:, self.k]
        ids = ids[:, : self.k]
        group = self.spread(torch.arange(self.groups, device=targets.device), bounds)  # [N]
        drawn = time[group, targets] <= last_in[group]
        tau = torch.where(drawn, first_out[group], last_in[group])
        return Sample(ids, self._expected(ids, first_out[:, None]), self._expected(targets, tau), bounds)

    def _expected(self, ids: Tensor, tau: Tensor) -> Tensor:
        return -torch.expm1(-self.noise.prob(ids) * tau)
