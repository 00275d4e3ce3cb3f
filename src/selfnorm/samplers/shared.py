"""What all samplers share: noise, K, groups, and the uniform numbers they start from."""

from functools import partial
from itertools import pairwise
from operator import index
from typing import ClassVar

import torch
from torch import Tensor

from selfnorm.noise import Noise
from selfnorm.samplers.sample import Sample, split

DEFAULT = 8000  # samples, or all words where there are fewer
FINE = 2**24  # what a float32 can tell apart in [0, 1)


def uniform(shape: tuple[int, ...], device: torch.device, generator: torch.Generator | None) -> Tensor:
    """Numbers in [0, 1), in float64.

    Compiled code draws them in float32, whatever is asked for: too coarse for rare words, so two of them make one.
    """
    draw = partial(torch.rand, shape, generator=generator, dtype=torch.float64, device=device)
    return ((draw() * FINE).floor() + draw()) / FINE if torch.compiler.is_compiling() else draw()


def _whole(name: str, number: int) -> int:
    try:
        return index(number)
    except TypeError:
        raise ValueError(f"a sampler's {name} is a whole number, not {number!r}") from None


class Shared:
    waits: bool = False  # whether a draw waits for the host
    sharing: str = "batch"  # who shares a draw: the positions of a group, or "position": nobody
    distinct: ClassVar[bool] = False  # whether no id is drawn twice

    def __init__(self, noise: Noise, k: int | None = None, groups: int = 1) -> None:
        k = min(DEFAULT, noise.size) if k is None else _whole("k", k)
        groups = _whole("groups", groups)
        if k < 1 or groups < 1:
            raise ValueError(f"a sampler needs k >= 1 and groups >= 1, not k = {k} and groups = {groups}")
        if self.distinct and k > noise.size:
            raise ValueError(
                f"{k} distinct ids cannot be drawn from {noise.size} words; "
                f"choose k <= {noise.size}, or sampler 'replacement'"
            )
        self.noise, self.k, self.groups = noise, k, groups

    def uniform(self, targets: Tensor, generator: torch.Generator | None, *shape: int) -> Tensor:
        """[G, *shape] numbers in [0, 1), in float64, on the device of the targets."""
        return uniform((self.groups, *shape), targets.device, generator)

    def checked(self, targets: Tensor, bounds: tuple[int, ...] | None) -> tuple[int, ...]:
        """The bounds of the groups: even runs of positions unless the caller knows where its sequences end."""
        if bounds is None:
            return split(len(targets), self.groups)
        if (
            len(bounds) != self.groups + 1
            or bounds[0] != 0
            or bounds[-1] != len(targets)
            or any(first > last for first, last in pairwise(bounds))
        ):
            raise ValueError(f"bounds {bounds} do not cut {len(targets)} positions into {self.groups} groups")
        return bounds

    def spread(self, values: Tensor, bounds: tuple[int, ...]) -> Tensor:
        """[G] -> [N]: each position takes its group's value."""
        runs = [
            values[group].expand(last - first) for group, (first, last) in enumerate(pairwise(bounds)) if last > first
        ]
        return torch.cat(runs) if runs else values[:0]

    def once(self, targets: Tensor, bounds: tuple[int, ...]) -> Sample:
        """K = C: every id, with E = 1."""
        every = self.every(targets)
        one = torch.ones((), dtype=torch.float64, device=targets.device)
        return Sample(every, one.expand(every.shape), one.expand(targets.shape), bounds)

    def every(self, targets: Tensor) -> Tensor:
        """[G, C] all ids"""
        return torch.arange(self.noise.size, device=targets.device).expand(self.groups, -1)
