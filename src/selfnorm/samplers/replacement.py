"""K independent draws, shared by the positions of a group."""

import torch
from torch import Tensor

from selfnorm.samplers.sample import Sample
from selfnorm.samplers.shared import Shared


class Replacement(Shared):
    """E_c = K D(c)"""

    def draw(
        self, targets: Tensor, generator: torch.Generator | None = None, bounds: tuple[int, ...] | None = None
    ) -> Sample:
        ids = self.noise.inverse(self.uniform(targets, generator, self.k))
        expected, expected_target = self.k * self.noise.prob(ids), self.k * self.noise.prob(targets)
        return Sample(ids, expected, expected_target, self.checked(targets, bounds))
