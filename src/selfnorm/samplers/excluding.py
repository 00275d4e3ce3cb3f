"""K draws with replacement that never hit the target: what Mode2 needs."""

import torch
from torch import Tensor

from selfnorm.noise import LogUniform, Noise, Uniform
from selfnorm.samplers.sample import Sample
from selfnorm.samplers.shared import Shared, uniform


class Excluding(Shared):
    """D_t(t) = 0

    Log-uniform and uniform noise: c' from the noise over C - 1 words, c = c' + [c' >= t], E = K D_{C-1}(c').
    Unigram noise: D_t(c) = D(c) / (1 - D(t)), so E = K D(c) / (1 - D(t)).

    sharing = "position": every position draws its own K ids, as in the paper.
    sharing = "batch": one draw for all positions of a group, each id with a stand-in for the positions whose target
    needs it, so that 2 K rows are touched. Every single position sees the same distribution as before.
    """

    def __init__(self, noise: Noise, k: int | None = None, groups: int = 1, sharing: str = "batch") -> None:
        super().__init__(noise, k, groups)
        if sharing not in ("position", "batch"):
            raise ValueError(f"sampler 'excluding' shares its draws by 'position' or 'batch', not {sharing!r}")
        if sharing == "position" and groups > 1:
            raise ValueError("sampler 'excluding' takes no groups with sharing = 'position': each position is its own")
        if noise.size < 2:
            raise ValueError("sampler 'excluding' needs at least 2 words: without the target there is none to draw")
        self.sharing = sharing
        self.shorter: Noise | None = None  # the noise over C - 1 words
        if isinstance(noise, LogUniform | Uniform):
            self.shorter = type(noise)(noise.size - 1)

    def draw(
        self, targets: Tensor, generator: torch.Generator | None = None, bounds: tuple[int, ...] | None = None
    ) -> Sample:
        nothing = torch.zeros_like(targets, dtype=torch.float64)  # E of a target that cannot be drawn
        if self.sharing == "position":
            u = uniform((len(targets), self.k), targets.device, generator)
            ids, expected, left = self._own(u, targets)
            return Sample(ids, expected, nothing, None, None, left)
        u = self.uniform(targets, generator, 2, self.k)
        ids, expected, low, left = self._pairs(u[:, 0], u[:, 1], targets)
        return Sample(ids, expected, nothing, self.checked(targets, bounds), low, left)

    def _own(self, u: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        if self.shorter is not None:
            drawn = self.shorter.inverse(u)
            return drawn + (drawn >= targets[:, None]), self.k * self.shorter.prob(drawn), None
        ids = self._without(u, targets[:, None])
        return ids, self.k * self.noise.prob(ids), 1 - self.noise.prob(targets)

    def _pairs(self, u: Tensor, v: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        if self.shorter is not None:
            drawn = self.shorter.inverse(u)
            expected = self.k * self.shorter.prob(drawn)
            return torch.cat([drawn, drawn + 1], 1), torch.cat([expected, expected], 1), torch.zeros_like(drawn), None
        drawn = self.noise.inverse(u)  # D(c) + D(t) D(c) / (1 - D(t)) = D(c) / (1 - D(t)): a hit takes a stand-in
        ids = torch.cat([drawn, self._without(v, drawn)], 1)
        return ids, self.k * self.noise.prob(ids), drawn, 1 - self.noise.prob(targets)

    def _without(self, u: Tensor, taken: Tensor) -> Tensor:
        """Draw from the noise with the id `taken` cut out of its cumulated sum."""
        rank, mass = self.noise.rank(taken), self.noise.prob(taken)
        before = self.noise.cumulative(rank) - mass
        u = u * (1 - mass)
        ids = self.noise.inverse(torch.where(u < before, u, u + mass))
        beside = self.noise.ranked(torch.where(rank > 0, rank - 1, rank + 1))
        return torch.where(ids == taken, beside, ids)  # u on the very edge, by rounding
