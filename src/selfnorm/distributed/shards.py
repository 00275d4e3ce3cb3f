"""Tables whose rows are spread over the ranks: for vocabularies whose rows and moments do not fit into one GPU.

Row c is with rank c mod W, so every rank has its share of the frequent words. A step fetches the rows it needs from
their owners, works on them as on a small table of its own (`compact`), and hands their gradients back.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from selfnorm.distributed.world import World, gather
from selfnorm.ops import expect
from selfnorm.ops.rows import Exchanged
from selfnorm.output import Layer
from selfnorm.samplers import Sample


class Shards:
    """How the `size` rows of a table lie on the ranks; hung on each rank's part as `part.shards`."""

    def __init__(self, world: World, size: int) -> None:
        self.world, self.size = world, size

    def mine(self, table: Tensor) -> Tensor:
        """This rank's rows of the whole table."""
        return table[self.world.rank :: self.world.size].clone()

    def whole(self, part: Tensor) -> Tensor:
        """The whole table on the CPU of the first rank; the other ranks get nothing back."""
        world = self.world
        rows = -(-self.size // world.size)  # some ranks have one less
        padded = torch.zeros(rows, *part.shape[1:], dtype=part.dtype)
        padded[: len(part)] = part.detach().cpu()
        parts = [torch.empty_like(padded) for _ in range(world.size)] if world.first else None
        dist.gather(padded, parts)
        return torch.stack(parts, 1).flatten(0, 1)[: self.size] if parts else padded[:0]

    def take(self, part: Tensor, ids: Tensor) -> Tensor:
        """table[ids]; all ranks take part, each for its own ids."""
        unique, place = ids.reshape(-1).unique(return_inverse=True)
        rows = _Fetched.apply(part, unique, self.world.size)
        return rows.index_select(0, place).view(*ids.shape, *part.shape[1:])

    def log_sum(self, mine: Tensor) -> Tensor:
        """log sum exp over all rows, from that over each rank's; all ranks ask for the same positions."""
        every = mine.new_empty(self.world.size, *mine.shape)
        gather(every.flatten(0, 1) if mine.ndim else every, mine.contiguous())
        return every.logsumexp(0)


class _Way(NamedTuple):
    """How ids travel to their owners, and rows back."""

    order: Tensor  # brings the ids of each owner together
    sizes: list[int]  # how many of ours go to each rank
    asked: list[int]  # how many each rank asks of us

    def go(self, values: Tensor) -> Tensor:
        """From who asks to the owners."""
        return _swapped(values[self.order], self.sizes, self.asked)

    def back(self, values: Tensor) -> Tensor:
        came = _swapped(values, self.asked, self.sizes)
        return torch.empty_like(came).index_copy_(0, self.order, came)


def _way(ids: Tensor, ranks: int) -> _Way:
    owner = ids % ranks
    sizes = owner.bincount(minlength=ranks)
    asked = torch.empty_like(sizes)
    dist.all_to_all_single(asked, sizes)
    return _Way(owner.argsort(stable=True), sizes.tolist(), asked.tolist())


def _swapped(values: Tensor, sizes: list[int], asked: list[int]) -> Tensor:
    came = values.new_empty(sum(asked), *values.shape[1:])
    dist.all_to_all_single(came, values.contiguous(), asked, sizes)
    return came


class _Fetched(torch.autograd.Function):
    """Rows of distinct ids from their owners; the gradients are left with the owners, for a row optimizer."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, ids: Tensor, ranks: int) -> Tensor:
        way = _way(ids, ranks)
        ctx.way, ctx.asked, ctx.to = way, way.go(ids) // ranks, expect(part)
        return way.back(part.detach()[ctx.asked])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, None]:
        ctx.to.append(Exchanged(ctx.asked, ctx.way.go(grads[0])))
        return None, None, None


def spread(world: World, owner: nn.Module, name: str) -> None:
    """Leave this rank its rows of `owner.name`, for good."""
    table: nn.Parameter = getattr(owner, name)
    if len(table) < world.size:
        raise ValueError(f"{len(table)} words cannot be spread over {world.size} processes; leave spread_tables out")
    shards = Shards(world, len(table))
    part = nn.Parameter(shards.mine(table.detach()))
    part.shards = shards  # type: ignore[attr-defined]
    setattr(owner, name, part)


def compact(layer: Layer, targets: Tensor, sample: Sample) -> tuple[Layer, Tensor, Sample]:
    """The rows that the sample and the targets name as a layer of their own, numbered in the order of their ids."""
    ids = torch.cat([sample.ids.reshape(-1), targets]).unique()
    low = None if sample.low is None else torch.searchsorted(ids, sample.low)
    numbered = replace(sample, ids=torch.searchsorted(ids, sample.ids.contiguous()), low=low)
    weight, bias = layer.rows(ids)
    return Layer(weight, bias, impl=layer.impl), torch.searchsorted(ids, targets), numbered


def whole(parameter: Tensor, value: Tensor) -> Tensor:
    """`value`, which lies on the ranks as `parameter` does, whole; where rows are spread, on the first rank alone."""
    if isinstance(value, DTensor):
        return value.full_tensor().cpu()
    shards: Shards | None = getattr(parameter, "shards", None)
    return value if shards is None or not value.ndim or len(value) != len(parameter) else shards.whole(value)


def mine(parameter: Tensor, value: Tensor) -> Tensor:
    """This rank's part of a whole `value`, as it has of `parameter`."""
    if isinstance(parameter, DTensor):
        if value.shape != parameter.shape:  # a number of the optimizer
            return value
        return distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)
    shards: Shards | None = getattr(parameter, "shards", None)
    return value if shards is None or not value.ndim else shards.mine(value)
