"""Taking rows of a table, and what comes back: a gradient that is dense, sparse (COO), or left for a row optimizer.

A row optimizer holds a list that its table knows (`expect`). The backward pass then leaves its pieces there, of fixed
size and unmerged, and autograd itself gets nothing: no step waits for the host, and no [C, H] is written. When the
optimizer is gone, or the table comes from a pickle, nobody waits: autograd gets the gradient again.
"""

import weakref
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

NOWHERE = 2**31 - 1  # the id of an entry that counts nothing
BLOCK = 1 << 19  # numbers of rows that are written out at a time on a CPU: they stay in its cache
ELSEWHERE = 1 << 26  # and on a GPU, where each time costs some launches
NOBODY = set, ()  # what a pickle has of what hangs on a table; torch.load(weights_only=True) knows sets


class Piece(NamedTuple):
    """Gradients of rows: entry e is values[e] for e < A, then factor[e - A] outer[(e - A) // every]; ids may repeat."""

    ids: Tensor  # [R]  or NOWHERE
    values: Tensor  # [A, ...]
    factor: Tensor | None = None  # [R - A]
    outer: Tensor | None = None  # [(R - A) / every, ...]; None for a table of numbers: 1
    distinct: bool = False  # the first A ids rise, and none of them comes again
    every: int = 1  # entries that follow each other share a row of `outer`

    def rows(self) -> Tensor:
        """Every entry written out, in float32 at least: [R, ...]"""
        values = self.values.to(torch.promote_types(self.values.dtype, torch.float32))
        if self.factor is None:
            return values
        factor = self.factor.to(values.dtype)
        if self.outer is None:
            return torch.cat([values, factor])
        outer = self.outer.to(values.dtype)
        outer = outer if self.every == 1 else outer.repeat_interleave(self.every, 0)
        return torch.cat([values, factor[:, None] * outer])

    def add_to(self, sums: Tensor, places: Tensor) -> Tensor:
        """Add entry e to sums[places[e]]; few of them are written out at a time, in memory that stays warm."""
        first = len(self.values)
        sums.index_add_(0, places[:first], self.values.to(sums.dtype))
        if self.factor is None or self.outer is None:
            return sums if self.factor is None else sums.index_add_(0, places[first:], self.factor.to(sums.dtype))
        factor, outer = self.factor.view(len(self.outer), self.every, 1), self.outer[:, None].to(sums.dtype)
        some = at_a_time(self.every * sums.shape[1:].numel(), sums)
        buffer = sums.new_empty(min(some, len(outer)), self.every, *outer.shape[2:])
        for begin in range(0, len(outer), some):
            part = slice(begin, begin + some)
            here = slice(first + begin * self.every, first + (begin + some) * self.every)
            entries = torch.mul(factor[part], outer[part], out=buffer[: len(outer[part])])
            sums.index_add_(0, places[here], entries.flatten(0, 1))
        return sums


def at_a_time(width: int, table: Tensor) -> int:
    """How many rows of so many numbers are written out together, where the table is."""
    return max(1, (BLOCK if table.device.type == "cpu" else ELSEWHERE) // max(1, width))


class Exchanged(Piece):
    """One that holds the rows of all processes that train together."""

    __slots__ = ()


class Left(list[Piece]):
    """The pieces of a table, for whoever holds them."""


class Waiting(weakref.ref[Left]):
    """How a table knows them: as long as they are held."""

    def __reduce__(self) -> Any:
        return NOBODY


@dataclass
class Half:
    """A table's copy in half precision, for matrix products; a row optimizer keeps it up to date."""

    copy: Tensor
    seen: tuple[int, int]  # the table's version and place when all of it was last copied

    def __reduce__(self) -> Any:
        return NOBODY

    def fresh(self, table: Tensor) -> Tensor:
        """The copy, made anew if somebody else has written to the table; what is written to `.data` is not seen."""
        if self.seen != (table._version, table.data_ptr()):
            self.copy = self.copy.to(table.device)
            self.copy.copy_(table.detach())
            self.seen = table._version, table.data_ptr()
        return self.copy


def expect(table: Tensor) -> list[Piece]:
    """The table's row gradients are left in this list, as long as the caller, or another one, holds it."""
    to = waiting(table)
    left = None if to is None else to()
    if left is None:
        left = Left()
        table.touched = Waiting(left)  # type: ignore[attr-defined]
    return left


def waiting(table: Tensor) -> Waiting | None:
    """Whether somebody waits for the table's pieces, and where."""
    to = getattr(table, "touched", None)
    return to if isinstance(to, Waiting) and to() is not None else None


def keep_half(table: Tensor) -> None:
    """Keep a bfloat16 copy beside the table."""
    seen = table._version, table.data_ptr()
    table.half_copy = Half(table.detach().to(torch.bfloat16), seen)  # type: ignore[attr-defined]


def kept_half(table: Tensor) -> Half | None:
    """The copy beside the table."""
    half = getattr(table, "half_copy", None)
    return half if isinstance(half, Half) else None


def half_of(table: Tensor, dtype: torch.dtype) -> Tensor:
    """The table to take rows for products in `dtype` from: its copy if there is one, else itself."""
    half = kept_half(table)
    if half is not None and half.copy.dtype == dtype:
        return half.fresh(table)
    return table.detach() if table.stride(-1) == 1 else table.detach().contiguous()  # kernels read rows as they lie


def fresh_half(table: Tensor) -> None:
    """Renew the copy now; a CUDA graph that reads it does not ask whether it is old."""
    half = kept_half(table)
    if half is not None:
        half.fresh(table)


def returned(piece: Piece, like: Tensor, sparse: bool, to: Waiting | None) -> Tensor | None:
    """The gradient that autograd gets for the table `like`; None where a row optimizer waits for the piece."""
    left = None if to is None else to()
    if left is not None:
        left.append(piece)
        return None
    if piece.distinct and len(piece.values) == len(like) and not sparse:
        return piece.values.to(like.dtype)  # every row, in order
    once = sparse and piece.every > 1 and like.device.type == "cpu"  # a GPU would wait to hear how many they are
    if once:
        piece = Piece(*merged([piece]))
    ids, counts = piece.ids.long(), piece.ids != NOWHERE
    if not sparse:
        sums = like.new_zeros(len(like) + 1, *like.shape[1:], dtype=torch.promote_types(like.dtype, torch.float32))
        return piece.add_to(sums, ids.where(counts, len(like)))[:-1].to(like.dtype)
    rows = piece.rows()
    if piece.factor is not None:
        ids, rows = ids.where(counts, 0), rows.where(counts.view(-1, *[1] * (rows.ndim - 1)), 0.0)
    rows = rows.to(like.dtype)
    return torch.sparse_coo_tensor(ids[None], rows, like.shape, check_invariants=False, is_coalesced=once)


class _Rows(torch.autograd.Function):
    """`nn.Embedding(sparse=True)` for tables of any rank: PyTorch's own has no sparse gradient for a bias."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.table, ctx.to = table.detach(), waiting(table)
        return table.index_select(0, ids.reshape(-1)).view(ids.shape + table.shape[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None]:
        (ids,) = ctx.saved_tensors
        values = grads[0].reshape(-1, *ctx.table.shape[1:])
        own = ids.reshape(-1).clone()  # the caller may fill his buffer again before the step
        return returned(Piece(own, values), ctx.table, True, ctx.to), None


def take(table: Tensor, ids: Tensor, sparse: bool = False) -> Tensor:
    """table[ids]; with `sparse` the gradient holds these rows alone, duplicates not merged.

    The rows of a table that is spread over processes (distributed/shards.py) come from there.
    """
    if (shards := getattr(table, "shards", None)) is not None:
        return shards.take(table, ids)
    if sparse:
        return _Rows.apply(table, ids)
    return table.index_select(0, ids.reshape(-1)).view(ids.shape + table.shape[1:])


def merged(pieces: list[Piece]) -> tuple[Tensor, Tensor]:
    """Each touched row once: its id [U] and the sum of its gradients [U, ...]; waits for the host on a GPU."""
    unique, places = torch.cat([piece.ids.long() for piece in pieces]).unique(return_inverse=True)
    like = pieces[0].values
    sums = like.new_zeros(len(unique), *like.shape[1:], dtype=torch.promote_types(like.dtype, torch.float32))
    for piece, mine in zip(pieces, places.split([len(piece.ids) for piece in pieces])):
        piece.add_to(sums, mine)
    counting = slice(-1 if len(unique) and unique[-1] == NOWHERE else None)
    return unique[counting], sums[counting]
