"""Sample: the noise ids of one step, with what a criterion needs to know of them."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """K ids for each group of positions, or for each position, with their expected counts E.

    With `low` the ids are pairs (the first K, then their stand-ins): at a position whose target lies in
    [low_k, ids_k] the stand-in counts, at all others the first of the pair. So a target never meets itself.
    """

    ids: Tensor  # [G, K] one row per group; [N, K] one row per position
    expected: Tensor  # like ids: E_c, the expected count of each id among the K draws
    expected_target: Tensor  # [N]  E of each target
    bounds: tuple[int, ...] | None = None  # group g: positions bounds[g] to bounds[g + 1]; None: one row per position
    low: Tensor | None = None  # [G, K / 2]
    left: Tensor | None = None  # [N]  noise left when the target is taken out: E at a position is expected / left
    rising: bool = False  # each row of ids rises, and holds none twice

    def of(self, positions: slice) -> "Sample":
        """The part of these positions, where each has its own ids."""
        assert self.bounds is None
        left = None if self.left is None else self.left[positions]
        mine = {name: getattr(self, name)[positions] for name in ("ids", "expected", "expected_target")}
        return replace(self, **mine, left=left)

    def absent(self, targets: Tensor, row: int | slice, skip: bool) -> Tensor | None:
        """Which of the ids do not count at which of these positions: [n, K], None when all count."""
        ids = self.ids[row]
        if self.low is not None:
            first = ids[..., : ids.shape[-1] // 2]
            turned = (self.low[row] <= targets[:, None]) & (targets[:, None] <= first)
            return torch.cat([turned, ~turned], -1)
        return ids == targets[:, None] if skip else None


def split(positions: int, groups: int) -> tuple[int, ...]:
    """Bounds of `groups` even runs of positions."""
    return tuple(positions * group // groups for group in range(groups + 1))
