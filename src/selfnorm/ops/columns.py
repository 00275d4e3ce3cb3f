"""The columns of a sum, gathered from the table, and what Triton and cuBLAS make of them; fused.py says what for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor

from selfnorm.ops import plain
from selfnorm.ops.kernels import gather, slopes, target_logits, values
from selfnorm.ops.rows import NOWHERE

SOFTPLUS, EXP, LOG_SUM, LOG_SIGMOIDS = range(4)  # what a kernel makes of a logit
INTERPRETED = bool(triton.knobs.runtime.interpret)
ENOUGH = 1024  # programs that fill a GPU
ALIGNED = 16  # columns of a group are padded to a multiple: cuBLAS is slow where rows are not aligned


@dataclass(frozen=True)
class Columns:
    """What a sum runs over: ids [G, K], group g for the positions bounds[g] to bounds[g + 1], and its numbers."""

    kind: int
    ids: Tensor
    bounds: tuple[int, ...]
    rising: bool  # each group's ids rise, none twice: targets can be looked up
    skip: bool  # a target does not count
    low: Tensor | None = None
    shift: Tensor | None = None
    scale: Tensor | None = None

    def blocks(self) -> Iterator[tuple[slice, "Columns"]]:
        """Positions and columns that go through the kernels together: all of them, where the groups are even."""
        sizes = {last - first for first, last in pairwise(self.bounds)}
        if len(sizes) == 1:
            yield slice(self.bounds[0], self.bounds[-1]), self
            return
        for group, (first, last) in enumerate(pairwise(self.bounds)):
            one = {name: getattr(self, name) for name in ("ids", "low", "shift", "scale")}
            one = {name: None if each is None else each[group : group + 1] for name, each in one.items()}
            if last > first:
                yield slice(first, last), replace(self, bounds=(first, last), **one)


class Block:
    """The columns of some groups, gathered: rows [G, P, H], offsets and scales [2, G, P]; what kernels make of them."""

    def __init__(
        self, columns: Columns, table: Tensor, bias: Tensor | None, dtype: torch.dtype, touched: Tensor
    ) -> None:
        groups, k = columns.ids.shape
        bias = None if bias is None else bias.contiguous()
        self.columns, self.groups, self.k = columns, groups, k
        self.padded = -(-k // ALIGNED) * ALIGNED
        self.ids = touched[: groups * k]
        self.rows = table.new_empty(groups, self.padded, table.shape[1], dtype=dtype)
        self.numbers = table.new_empty(2, groups, self.padded, dtype=torch.float32)
        some = self.numbers  # stands for what is not there
        gather[(groups * self.padded,)](
            table,
            some if bias is None else bias,
            columns.ids,
            some if columns.shift is None else columns.shift,
            some if columns.scale is None else columns.scale,
            self.rows,
            self.numbers,
            self.ids,
            k,
            self.padded,
            table.stride(0),
            D=table.shape[1],
            HAS_BIAS=bias is not None,
            HAS_SHIFT=columns.shift is not None,
            HAS_SCALE=columns.scale is not None,
            BD=width_of(table.shape[1]),
            num_warps=1 if table.shape[1] <= 512 else 4,
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, P]"""
        grouped = hidden.view(self.groups, -1, hidden.shape[1])
        return product(grouped, self.rows.transpose(1, 2)).view(len(hidden), self.padded)

    def sums(self, logits: Tensor, targets: Tensor, slot: Tensor) -> tuple[Tensor, Tensor]:
        """Parts of each position's sum [parts, N], and of logarithms the largest terms that stand before them."""
        n = len(logits) // self.groups
        tile = {"BM": 16, "BN": 32} if INTERPRETED else {"BM": 32, "BN": 128, "num_warps": 8}
        down = triton.cdiv(n, tile["BM"]) * self.groups
        parts = max(1, min(triton.cdiv(self.k, tile["BN"]), ENOUGH // down))
        parts = 1 << (parts.bit_length() - 1)  # few sizes: each is compiled
        span = triton.cdiv(triton.cdiv(self.k, tile["BN"]), parts) * tile["BN"]
        parts = triton.cdiv(self.k, span)
        total, top = logits.new_empty(2, parts, len(logits), dtype=torch.float32)
        values[(triton.cdiv(n, tile["BM"]), parts, self.groups)](
            logits,
            self.numbers,
            self.ids,
            self._low(),
            targets,
            slot,
            total,
            top,
            n,
            self.padded,
            SPAN=span,
            K=self.k,
            EVEN=n % tile["BM"] == 0 and self.k % span == 0,
            **self._kind(),
            **tile,
        )
        return total, top

    def slopes(
        self, logits: Tensor, targets: Tensor, slot: Tensor, lse: Tensor, grad: Tensor, own: Tensor
    ) -> tuple[Tensor, Tensor]:
        """d loss / d logit [N, P], a target's own gradient in its slot, and the sums of the columns [G, P]."""
        n = len(logits) // self.groups
        wide = 32 if INTERPRETED else width_of(self.padded, 512)
        tile = {"BM": 16, "BN": 32} if INTERPRETED else {"BM": 4096 // wide, "BN": wide, "num_warps": 8}
        down, across = triton.cdiv(n, tile["BM"]), triton.cdiv(self.padded, wide) * self.groups
        strip = min(16, triton.next_power_of_2(max(1, 2 * down * across // ENOUGH)))  # few sizes: each is compiled
        strips = triton.cdiv(down, strip)
        found = torch.empty_like(logits)
        parts = self.numbers.new_empty(self.groups, strips, self.padded)
        slopes[(triton.cdiv(self.padded, wide), strips, self.groups)](
            logits,
            self.numbers,
            self.ids,
            self._low(),
            targets,
            slot,
            lse,
            grad,
            own,
            found,
            parts,
            n,
            self.k,
            self.padded,
            STRIP=strip,
            EVEN=n % (tile["BM"] * strip) == 0 and self.k % wide == 0,
            QUICK=not INTERPRETED and logits.dtype == torch.bfloat16,
            **self._kind(),
            **tile,
        )
        return found, parts.sum(1)

    def _low(self) -> Tensor:
        return self.ids if self.columns.low is None else self.columns.low

    def _kind(self) -> dict[str, Any]:
        columns = self.columns
        given = {"KIND": columns.kind, "RISING": columns.rising, "SKIP": columns.skip}
        return given | {"HAS_LOW": columns.low is not None}


def joined(kind: int, total: Tensor, top: Tensor) -> Tensor:
    """The parts of a sum together; a logarithm of nothing is plain's stand-in for -inf."""
    if kind < LOG_SUM:
        return total[0] if len(total) == 1 else total.sum(0)
    highest = top.amax(0)
    return (highest + (total * (top - highest).exp()).sum(0).log()).clamp(min=plain.ABSENT)


def width_of(size: int, most: int = 1024) -> int:
    return min(triton.next_power_of_2(size), most)


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """A matrix product for each group, into `out` where that is given."""
    if len(a) == 1:
        return torch.mm(a[0], b[0], out=None if out is None else out[0])[None]
    return torch.bmm(a, b, out=out)


def look_up(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    columns: Columns,
    logit: Tensor,
    slot: Tensor,
    touched: Tensor,
) -> None:
    groups, k = columns.ids.shape
    bias = None if bias is None else bias.contiguous()
    n, width = len(hidden) // groups, hidden.shape[1]
    target_logits[(triton.cdiv(n, 4), groups)](
        hidden,
        table,
        table if bias is None else bias,
        targets,
        columns.ids,
        logit,
        slot,
        touched,
        n,
        k,
        hidden.stride(0),
        table.stride(0),
        D=width,
        HAS_BIAS=bias is not None,
        RISING=columns.rising,
        STEPS=k.bit_length(),
        NOWHERE=NOWHERE,
        BM=4,
        BD=width_of(width, 512),
    )
