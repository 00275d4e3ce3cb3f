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

from selfnorm.ops.rows import NOWHERE, Piece, kept_half, merged

SGD, ADAGRAD, ADAM = range(3)
COUNTED = 12000  # ids up to which counting who comes before whom is faster than torch.sort


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
        if not bool(scalars.finite):
            return
        ids, grad = self.ids, self.rows.float() * scalars.shrink
        if rule.kind == ADAGRAD:
            (total,) = moments
            total.index_add_(0, ids, grad * grad)
            grad = grad / (total[ids].sqrt() + rule.eps)
        elif rule.kind == ADAM:
            catch_up(table, moments, rule, scalars.lr, scalars.step - 1, ids)
            first, second = (
                moment[ids].lerp_(each, 1 - beta)
                for moment, each, beta in zip(moments, (grad, grad * grad), (rule.beta1, rule.beta2))
            )
            for moment, new in zip(moments, (first, second)):
                moment.index_copy_(0, ids, new)
            moments[2][ids] = scalars.step
            one, two = (1 - beta**scalars.step for beta in (rule.beta1, rule.beta2))
            grad = (first / one) / ((second / two).sqrt() + rule.eps)
        table.index_add_(0, ids, (grad * -scalars.lr).to(table.dtype))


def catch_up(
    table: Tensor, moments: list[Tensor], rule: Rule, lr: Tensor, step: Tensor, ids: Tensor | slice = slice(None)
) -> None:
    """Move these rows on to `step` as Adam does without a gradient; moments: m, v, and the step each is at."""
    first, second, last = (moment[ids] for moment in moments)
    last = last[:, :1] if table.ndim > 1 else last[:, 0]
    missed = (step - last).clamp(min=0) * (last > 0)
    one, two = (1 - beta ** (last + 1) for beta in (rule.beta1, rule.beta2))
    ratio = rule.ratio
    moves = ratio * (1 - ratio**missed) / (1 - ratio)
    table[ids] -= (lr * moves * (first / one) / ((second / two).sqrt() + rule.eps)).to(table.dtype)
    moments[0][ids] = first * rule.beta1**missed
    moments[1][ids] = second * rule.beta2**missed
    moments[2][ids] = torch.where(moments[2][ids] > 0, step, 0.0)


class FusedRows:
    """The entries in order of their ids: programs walk over the runs, nobody counts them."""

    def __init__(self, pieces: list[Piece], order: tuple[Tensor, Tensor] | None = None) -> None:
        piece = pieces[0] if len(pieces) == 1 else _joined(pieces)
        self.piece = piece._replace(values=piece.values.contiguous())  # autograd may hand on one number for all
        self.order = order or sort(self.piece)
        self.width = piece.values.shape[1] if piece.values.ndim > 1 else 1

    def square(self) -> Tensor:
        from selfnorm.ops.row_kernels import squares

        values, first = self.piece.values, len(self.piece.values) if self.piece.distinct else 0
        entries, across = self._grid
        parts = torch.empty(entries - first, across, device=values.device)
        sizes = *self._sizes(), first
        if len(parts):
            squares[parts.shape](*self.order, *self._given(), parts, *sizes, NOWHERE=NOWHERE, **self._shape())
        if not first:
            return parts.sum()
        return parts.sum() + torch.linalg.vector_norm(values[:first].float()).square()  # rows that come once

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

    @property
    def _grid(self) -> tuple[int, int]:
        return len(self.order[0]), stretches(self.width)

    def _given(self) -> tuple[Tensor, Tensor, Tensor]:
        _, values, factor, outer, _ = self.piece
        return values, values if factor is None else factor, values if outer is None else outer

    def _sizes(self) -> tuple[int, ...]:
        ids, values, _, outer, _ = self.piece
        return len(ids), len(values), values.stride(0), 0 if outer is None else outer.stride(0), self.width

    def _shape(self) -> dict[str, Any]:
        wide = _width(self.width)
        shape = {"HAS_FACTOR": self.piece.factor is not None, "HAS_OUTER": self.piece.outer is not None}
        few = {"BT": min(16, 2048 // wide), "BD": wide}  # a larger tile takes registers, and fewer programs fit
        return {**shape, **few, "num_warps": max(1, wide // 256)}


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
    return Piece(torch.cat([piece.ids for piece in pieces]), torch.cat([piece.rows() for piece in pieces]))


def _width(size: int) -> int:
    return max(16, min(1 << (size - 1).bit_length(), 512))
