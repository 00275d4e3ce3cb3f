"""How K ids are drawn from a noise, and the expected counts E that this gives."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from selfnorm.noise import Noise
from selfnorm.samplers.distinct import Distinct
from selfnorm.samplers.excluding import Excluding
from selfnorm.samplers.rejection import Rejection
from selfnorm.samplers.replacement import Replacement
from selfnorm.samplers.sample import Sample, split
from selfnorm.samplers.systematic import Systematic


class Sampler(Protocol):
    noise: Noise
    k: int
    groups: int
    waits: bool  # whether a draw waits for the host
    sharing: str  # "batch", or "position" where each draws its own ids

    def draw(
        self, targets: Tensor, generator: torch.Generator | None = None, bounds: tuple[int, ...] | None = None
    ) -> Sample: ...


SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "replacement": Replacement,
    "distinct": Distinct,
    "rejection": Rejection,
    "systematic": Systematic,
    "excluding": Excluding,
}

__all__ = ["SAMPLERS", "Sample", "Sampler", "split"]
