"""The columns of a sum, gathered from the table, and what Triton and cuBLAS make of them; fused.py says what for."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
import triton
from torch import Tensor

from selfnorm.ops.kernels import gather, slopes, targets, values
from selfnorm.ops.rows import NOWHERE

SOFTPLUS, EXP, LOG_SUM, LOG_SIGMOIDS = range(4)  # what a kernel makes of a logit
INTERPRETED = bool(triton.knobs.runtime.interpret)
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

    def given(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scale, ids and low for the kernels; ids stand for what is not there."""
        some = self.ids
        return (some if self.scale is None else self.scale), self.ids, (some if self.low is None else self.low)


class Block:
    """The columns of some groups, gathered: rows [G, P, H], offsets [G, P]; and what the kernels make of them."""

    def __init__(
        self, columns: Columns, table: Tensor, bias: Tensor | None, dtype: torch.dtype, touched: Tensor
    ) -> None:
        groups, k = columns.ids.shape
        self.columns, self.groups, self.k = columns, groups, k
        self.padded = -(-k // ALIGNED) * ALIGNED
        self.rows = table.new_empty(groups, self.padded, table.shape[1], dtype=dtype)
        self.offset = table.new_empty(groups, self.padded, dtype=torch.float32)
        gather[(groups * self.padded,)](
            table,
            table if bias is None else bias,
            columns.ids,
            self.offset if columns.shift is None else columns.shift,
            self.rows,
            self.offset,
            touched,
            k,
            self.padded,
            table.stride(0),
            D=table.shape[1],
            HAS_BIAS=bias is not None,
            HAS_SHIFT=columns.shift is not None,
            BD=width_of(table.shape[1]),
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """[N, P]"""
        grouped = hidden.view(self.groups, -1, hidden.shape[1])
        return product(grouped, self.rows.transpose(1, 2)).view(len(hidden), self.padded)

    def sums(self, logits: Tensor, words: Tensor, total: Tensor, top: Tensor) -> None:
        scale, ids, low = self.columns.given()
        n = len(logits) // self.groups
        tile = {"BM": 16, "BN": 32} if INTERPRETED else {"BM": 8, "BN": 512, "num_warps": 8}
        values[(triton.cdiv(n, tile["BM"]), self.groups)](
            logits,
            self.offset,
            scale,
            ids,
            low,
            words,
            total,
            top,
            n,
            self.padded,
            logits.stride(0),
            K=self.k,
            KIND=self.columns.kind,
            SKIP=self.columns.skip,
            HAS_LOW=self.columns.low is not None,
            HAS_SCALE=self.columns.scale is not None,
            **tile,
        )

    def slopes(
        self, logits: Tensor, words: Tensor, slot: Tensor, lse: Tensor, grad: Tensor, own: Tensor
    ) -> tuple[Tensor, Tensor]:
        """d loss / d logit [N, P], a target's own gradient in its slot, and the sums of the columns [G, P]."""
        scale, ids, low = self.columns.given()
        n = len(logits) // self.groups
        strip = 2 if INTERPRETED else max(1, min(16, n * self.groups // 512))
        tile = {"BM": 16, "BN": 32} if INTERPRETED else {"BM": 8, "BN": 512, "num_warps": 8}
        strips = triton.cdiv(n, tile["BM"] * strip)
        found = torch.empty_like(logits)
        parts = self.offset.new_empty(self.groups, strips, self.padded)
        slopes[(triton.cdiv(self.padded, tile["BN"]), strips, self.groups)](
            logits,
            self.offset,
            scale,
            ids,
            low,
            words,
            slot,
            lse,
            grad,
            own,
            found,
            parts,
            n,
            self.k,
            self.padded,
            logits.stride(0),
            KIND=self.columns.kind,
            SKIP=self.columns.skip,
            HAS_LOW=self.columns.low is not None,
            HAS_SCALE=self.columns.scale is not None,
            STRIP=strip,
            **tile,
        )
        return found, parts.sum(1)


def width_of(size: int, most: int = 1024) -> int:
    return min(triton.next_power_of_2(size), most)


def product(a: Tensor, b: Tensor) -> Tensor:
    return torch.mm(a[0], b[0])[None] if len(a) == 1 else torch.bmm(a, b)


def look_up(
    hidden: Tensor,
    table: Tensor,
    bias: Tensor | None,
    words: Tensor,
    columns: Columns,
    logit: Tensor,
    slot: Tensor,
    touched: Tensor,
) -> None:
    groups, k = columns.ids.shape
    n, width = len(hidden) // groups, hidden.shape[1]
    targets[(triton.cdiv(n, 4), groups)](
        hidden,
        table,
        table if bias is None else bias,
        words,
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
