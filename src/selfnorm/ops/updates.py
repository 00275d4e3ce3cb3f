"""One step on the touched rows of a table: the definition in PyTorch, and the same in Triton without a host sync.

    sgd      w -= lr g
    adagrad  a += g^2;  w -= lr g / (sqrt(a) + eps)
    adam     m += (1 - beta1) (g - m);  v += (1 - beta2) (g^2 - v);
             w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)

g is the row's gradient, all its pieces summed, times `shrink`. Where `finite` is 0 nothing changes.

Adam moves a row on, by what is left of its momentum, while its gradient is 0. A row is not looked at then; it catches
up when it is touched again. n steps without a gradient are m beta1^n, v beta2^n, and, but for eps and for what the
learning rate and the two divisors changed meanwhile,

    w -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) (r + r^2 + ... + r^n),   r = beta1 / sqrt(beta2)

So rare words learn as they do by dense Adam. Without it they learn ten times less: a word that comes once in a hundred
steps gets the first of all the moves that its gradient is worth.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from selfnorm.ops.rows import NOWHERE, Piece, at_a_time, kept_half, merged

SGD, ADAGRAD, ADAM = range(3)
COUNTED = 12000  # ids up to which counting who comes before whom is faster than torch.sort
CHUNK = 128  # entries of one row summed one after the other, where thousands may follow; a multiple of every BT


@dataclass(frozen=True)
class Rule:
    """How a row moves; the numbers of Adam where it is Adam."""

    kind: int
    eps: float = 0.0
    beta1: float = 0.0
    beta2: float = 0.0

    @property
    def ratio(self) -> float:
        """r: the share of a move that the next one is, while the gradient is 0; below 1, so that their sum ends."""
        return min(self.beta1 / math.sqrt(self.beta2), 0.999) if self.beta2 else 0.0


@dataclass(frozen=True)
class Scalars:
    """Numbers on the device: learning rate, steps with this one, factor of the gradient, whether it is finite."""

    lr: Tensor
    step: Tensor
    shrink: Tensor
    finite: Tensor


class PlainRows:
    """The touched rows, each once."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.ids, self.rows = merged(pieces)

    def square(self) -> Tensor:
        """The squared norm of the gradient."""
        return self.rows.float().square().sum()

    def update(self, table: Tensor, moments: list[Tensor], rule: Rule, scalars: Scalars) -> None:
        if bool(scalars.finite):
            some = at_a_time(table[:1].numel(), table)
            for ids, rows in zip(self.ids.split(some), self.rows.split(some)):
                self._update(table, moments, rule, scalars, ids, rows.float() * scalars.shrink)

    def _update(
        self, table: Tensor, moments: list[Tensor], rule: Rule, scalars: Scalars, ids: Tensor, grad: Tensor
    ) -> None:
        if rule.kind == ADAGRAD:
            (total,) = moments
            total.index_add_(0, ids, grad * grad)
            grad = grad / (total[ids].sqrt() + rule.eps)
        elif rule.kind == ADAM:
            first, second, last = (moment.index_select(0, ids) for moment in moments)
            moved = _caught_up(first, second, last, rule, scalars.step - 1)
            first.lerp_(grad, 1 - rule.beta1)
            second.lerp_(grad.square_(), 1 - rule.beta2)
            for moment, new in zip(moments, (first, second, scalars.step.expand_as(last))):
                moment.index_copy_(0, ids, new)
            grad = _move(first, second, rule, scalars.step).add_(moved)
        table.index_add_(0, ids, grad.mul_(-scalars.lr).to(table.dtype))


def catch_up(table: Tensor, moments: list[Tensor], rule: Rule, lr: Tensor | float, step: Tensor) -> None:
    """Move all rows on to `step` as Adam does without a gradient; moments: m, v, and the step each is at."""
    first, second, last = moments
    table -= (lr * _caught_up(first, second, last, rule, step)).to(table.dtype)
    last.copy_(torch.where(last > 0, step, 0.0))


def _caught_up(first: Tensor, second: Tensor, last: Tensor, rule: Rule, step: Tensor) -> Tensor:
    """How far rows go on to `step` without a gradient, in learning rates; m and v fade, in place."""
    last = last[:, 0].view(-1, *[1] * (first.ndim - 1))
    missed = (step - last).clamp(min=0) * (last > 0)
    moves = rule.ratio * (1 - rule.ratio**missed) / (1 - rule.ratio)
    moved = _move(first, second, rule, last + 1).mul_(moves)
    first.mul_(rule.beta1**missed)
    second.mul_(rule.beta2**missed)
    return moved


def _move(first: Tensor, second: Tensor, rule: Rule, step: Tensor) -> Tensor:
    """(m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"""
    one, two = (1 - beta**step for beta in (rule.beta1, rule.beta2))
    return (first / one).div_((second / two).sqrt_().add_(rule.eps))


class FusedRows:
    """The entries in order of their ids: programs walk over the runs, nobody counts them."""

    def __init__(self, pieces: list[Piece], order: tuple[Tensor, Tensor] | None = None) -> None:
        piece = pieces[0] if len(pieces) == 1 else _joined(pieces)
        values = piece.values.contiguous()  # autograd may hand on one number for all
        self.piece = piece._replace(values=values.flatten(1) if values.ndim > 1 else values)
        self.order = order or sort(self.piece)
        self.width = self.piece.values.shape[1] if values.ndim > 1 else 1
        self.parts: Tensor | None = None
        if piece.every > 1:
            self._part()

    def square(self) -> Tensor:
        from selfnorm.ops.row_kernels import squares

        values, first = self.piece.values, len(self.piece.values) if self.piece.distinct else 0
        entries, across = self._grid
        found = torch.empty(entries - first, across, device=values.device)
        sizes = *self._sizes(), first
        if len(found):
            squares[found.shape](found, *self.order, *self._given(), *sizes, NOWHERE=NOWHERE, **self._shape())
        if not first:
            return found.sum()
        return found.sum() + torch.linalg.vector_norm(values[:first].float()).square()  # rows that come once

    def dense(self, like: Tensor) -> Tensor:
        """The gradient of every row."""
        from selfnorm.ops.row_kernels import merge

        sums = torch.zeros_like(like, memory_format=torch.contiguous_format)
        merge[self._grid](sums, *self.order, *self._given(), *self._sizes(), NOWHERE=NOWHERE, **self._shape())
        return sums

    def update(self, table: Tensor, moments: list[Tensor], rule: Rule, scalars: Scalars) -> None:
        from selfnorm.ops.row_kernels import update

        half = kept_half(table)
        first, second, last = [*moments, table, table, table][:3]
        update[self._grid](
            table,
            table if half is None else half.fresh(table),
            first,
            second,
            last,
            *self.order,
            *self._given(),
            scalars.lr,
            scalars.step,
            scalars.shrink,
            scalars.finite,
            *self._sizes(),
            *(max(each, 1e-30) for each in (rule.beta1, rule.beta2, rule.ratio)),  # their logarithms are taken
            rule.eps,
            KIND=rule.kind,
            NOWHERE=NOWHERE,
            **self._shape(),
            HAS_HALF=half is not None,
        )

    def _part(self) -> None:
        """Sum what each chunk has of a run that began before it: of ids that each position has, one may come at all."""
        from selfnorm.ops.row_kernels import chunks

        self.parts = self.piece.values.new_empty(-(-len(self.order[0]) // CHUNK), self.width, dtype=torch.float32)
        grid = len(self.parts), stretches(self.width)
        chunks[grid](*self.order, *self._given(), *self._sizes(), **self._shape())

    @property
    def _grid(self) -> tuple[int, int]:
        return len(self.order[0]), stretches(self.width)

    def _given(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        _, values, factor, outer, *_ = self.piece
        given = values, values if factor is None else factor, values if outer is None else outer
        return *given, values if self.parts is None else self.parts

    def _sizes(self) -> tuple[int, ...]:
        ids, values, _, outer, *_ = self.piece
        return len(ids), len(values), values.stride(0), 0 if outer is None else outer.stride(0), self.width

    def _shape(self) -> dict[str, Any]:
        wide = _width(self.width)
        shape = {"HAS_FACTOR": self.piece.factor is not None, "HAS_OUTER": self.piece.outer is not None}
        runs = {"EVERY": self.piece.every, "CHUNK": 0 if self.parts is None else CHUNK}
        few = {"BT": min(16, 2048 // wide), "BD": wide}  # a larger tile takes registers, and fewer programs fit
        return {**shape, **runs, **few, "num_warps": max(1, wide // 256)}


def sort(piece: Piece) -> tuple[Tensor, Tensor]:
    """The ids in an order that brings equals together, and where each stood; equals stay in order."""
    import triton

    from selfnorm.ops.row_kernels import ranks

    ids, first = piece.ids.to(torch.int32), len(piece.values) if piece.distinct else 0
    size = len(ids) - first
    if size > COUNTED:
        rest, order = torch.sort(ids[first:], stable=True)
        here = torch.arange(first, device=ids.device)
        return (torch.cat([ids[:first], rest]), torch.cat([here, order + first])) if first else (rest, order)
    found = torch.empty_like(ids), torch.empty_like(ids)
    size = -(-size // 1024) * 1024  # few sizes: each is compiled
    ranks[(triton.cdiv(len(ids), 16),)](ids, *found, len(ids), first, SIZE=size, BM=16, BN=256)
    return found


def stretches(width: int) -> int:
    """Into how many stretches the programs part a row."""
    return -(-width // _width(width))


def _joined(pieces: list[Piece]) -> Piece:
    """All in one, written out, but for those of samples that each position has to itself: they are too many."""
    every = max(piece.every for piece in pieces)
    own = [piece for piece in pieces if piece.every == every > 1 and not len(piece.values)]
    out = [piece for piece in pieces if all(piece is not each for each in own)]
    ids = torch.cat([piece.ids.to(torch.int32) for piece in (*out, *own)])
    values = torch.cat([piece.rows() for piece in out]) if out else own[0].values
    if not own:
        return Piece(ids, values)
    factors = [piece.factor for piece in own if piece.factor is not None]
    outers = [piece.outer for piece in own if piece.outer is not None]
    return Piece(ids, values, torch.cat(factors), torch.cat(outers) if outers else None, every=every)


def _width(size: int) -> int:
    return max(16, min(1 << (size - 1).bit_length(), 512))
