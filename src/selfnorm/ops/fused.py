"""The sums of plain.py over a draw that positions share, or over every word, in Triton and cuBLAS.

    logits = hidden @ rows.T            cuBLAS, kept in the dtype of the products
    sum_k scale_k value(logit_nk - shift_k), or log sum_k exp(logit_nk - shift_k)      one pass over them
    slopes = d loss / d logit           one pass more, when the gradient of each position is known
    d hidden = slopes @ rows, d rows = slopes.T @ hidden                               cuBLAS

A target that was drawn has a column of its own: its slope goes there, and both products carry its gradient along. So
frequent words, most of all targets, cost nothing more. The others are left as `factor x hidden`, merged by whoever
updates the table. Every word is such a draw, too, where `most` logits are enough; where not, the columns come a stretch
at a time and are made again for the gradient, so that [N, C] never exists.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from selfnorm.ops.columns import ALIGNED, EXP, LOG_SUM, SOFTPLUS, Block, Columns, joined, look_up, product, width_of
from selfnorm.ops.kernels import missed
from selfnorm.ops.plain import MOST, Drawn, Table
from selfnorm.ops.rows import NOWHERE, Piece, half_of, returned, waiting

STRETCH = 16384  # columns at a time where every word counts


class _Joint(torch.autograd.Function):
    """The targets' logits and the sums: together, so that both gradients are there when the slopes are made."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, columns: Columns, sparse: bool
    ) -> tuple[Tensor, Tensor]:
        n = len(hidden)
        drawn = sum(mine.ids.numel() for _, mine in columns.blocks())  # a group without positions has no columns
        table = half_of(weight, hidden.dtype)
        touched = torch.empty(drawn + n, dtype=torch.int32, device=hidden.device)
        slot = touched.new_empty(n)
        logit = hidden.new_empty(n, dtype=torch.float32)
        blocks, totals, done = [], [], 0
        kept: list[Tensor] = []
        for part, mine in columns.blocks():
            drawn_here = slice(done, done + mine.ids.numel())
            block = Block(mine, table, bias, hidden.dtype, touched[drawn_here])
            look_up(hidden[part], table, bias, targets[part], mine, logit[part], slot[part], touched[drawn:][part])
            logits = block.logits(hidden[part])
            totals.append(joined(columns.kind, *block.sums(logits, targets[part], slot[part])))
            blocks.append((part, drawn_here, block))
            kept += [logits, block.rows]
            done = drawn_here.stop
        total = totals[0] if len(totals) == 1 else torch.cat(totals)
        for _, _, block in blocks:
            del block.rows  # autograd keeps it, and lets it go after the backward pass
        ctx.save_for_backward(hidden, weight, bias, targets, slot, touched, total, *kept)
        ctx.blocks, ctx.table, ctx.sparse = blocks, table, sparse
        ctx.distinct = columns.rising and len(columns.ids) == 1
        ctx.to = waiting(weight), None if bias is None else waiting(bias)
        return logit, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, slot, touched, total, *kept = ctx.saved_tensors
        hidden = hidden.detach()  # what waits for the step keeps no graph
        drawn, width = len(touched) - len(hidden), hidden.shape[1]
        own, grad = (each.float().contiguous() for each in grads)
        of_hidden, of_rows = torch.empty_like(hidden), hidden.new_empty(drawn, width)
        of_bias = []
        for (part, mine, block), logits, rows in zip(ctx.blocks, kept[::2], kept[1::2]):
            found, sums = block.slopes(logits, targets[part], slot[part], total[part], grad[part], own[part])
            found = found.view(block.groups, -1, block.padded)
            grouped = hidden[part].view(block.groups, -1, width)
            product(found, rows, out=of_hidden[part].view(grouped.shape))
            if block.padded == block.k:
                product(found.transpose(1, 2), grouped, out=of_rows[mine].view(rows.shape))
            else:
                of_rows[mine] = product(found.transpose(1, 2), grouped)[:, : block.k].reshape(-1, width)
            of_bias.append(sums[:, : block.k].reshape(-1))
        missed[(len(hidden),)](
            of_hidden,
            ctx.table,
            own,
            touched[drawn:],
            width,
            ctx.table.stride(0),
            D=width,
            NOWHERE=NOWHERE,
            BD=width_of(width),
        )
        of_weight = of_bias_rows = None  # a frozen table leaves nothing for its optimizer
        if ctx.needs_input_grad[1]:
            of_weight = returned(Piece(touched, of_rows, own, hidden, ctx.distinct), weight, ctx.sparse, ctx.to[0])
        if ctx.needs_input_grad[2]:
            sums = of_bias[0] if len(of_bias) == 1 else torch.cat(of_bias)
            of_bias_rows = returned(Piece(touched, sums, own, None, ctx.distinct), bias, ctx.sparse, ctx.to[1])
        return of_hidden, of_weight, of_bias_rows, None, None, None


class _Whole(torch.autograd.Function):
    """Sums over every word, a stretch of the vocabulary at a time; the gradient makes the logits again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, kind: int, skip: bool, most: int
    ) -> Tensor:
        table, nowhere = half_of(weight, hidden.dtype), _nowhere(hidden)
        blocks = (block for _, block in _stretches(hidden, table, bias, kind, skip, most))
        found = [block.sums(block.logits(hidden), targets, nowhere) for block in blocks]
        total = joined(kind, *(torch.cat(parts) for parts in zip(*found)))
        ctx.save_for_backward(hidden, weight, bias, targets, total)
        ctx.table, ctx.options = table, (kind, skip, most)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, total = ctx.saved_tensors
        grad = grads[0].float().contiguous()
        of_hidden = torch.zeros_like(hidden, dtype=torch.float32)
        of_weight, of_bias = torch.empty_like(weight), None if bias is None else torch.empty_like(bias)
        nowhere, none = _nowhere(hidden), torch.zeros_like(grad)
        for columns, block in _stretches(hidden, ctx.table, bias, *ctx.options):
            found, sums = block.slopes(block.logits(hidden), targets, nowhere, total, grad, none)
            of_hidden += found @ block.rows[0]
            of_weight[columns] = (found.T @ hidden)[: block.k]
            if of_bias is not None:
                of_bias[columns] = sums[0, : block.k]
        return of_hidden.to(hidden.dtype), of_weight, of_bias, None, None, None, None


def _nowhere(hidden: Tensor) -> Tensor:
    """No target has a column to itself: [N]"""
    return torch.full((len(hidden),), -1, dtype=torch.int32, device=hidden.device)


def _stretches(
    hidden: Tensor, table: Tensor, bias: Tensor | None, kind: int, skip: bool, most: int
) -> Iterator[tuple[slice, Block]]:
    length = max(ALIGNED, min(STRETCH, most // len(hidden) // ALIGNED * ALIGNED))
    every = torch.arange(len(table), dtype=torch.int32, device=hidden.device)
    touched = torch.empty_like(every)
    for first in range(0, len(table), length):
        ids = every[first : first + length][None]
        columns = Columns(kind, ids, (0, len(hidden)), False, skip)
        yield slice(first, first + length), Block(columns, table, bias, hidden.dtype, touched)


def cast(hidden: Tensor) -> Tensor:
    """In the dtype of the products: autocast's, where that is on."""
    kind = hidden.device.type
    return (hidden.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else hidden).contiguous()


def target_and_sum(
    kind: int,
    hidden: Tensor,
    output: Table,
    sample: Drawn | None,
    targets: Tensor,
    *,
    shift: Tensor | None = None,
    scale: Tensor | None = None,
    skip: bool = False,
    most: int = MOST,
) -> tuple[Tensor, Tensor]:
    """The targets' logits [N], and sum_k scale_k value(logit_nk - shift_k), or log sum_k exp(logit_nk - shift_k) [N]"""
    tensors = cast(hidden), output.weight, output.bias, targets.contiguous()
    if sample is None:
        size = len(output.weight)
        if len(hidden) * size > most:
            return output.logit(hidden, targets), _Whole.apply(*tensors, kind, skip, most)
        ids = torch.arange(size, dtype=torch.int32, device=hidden.device)[None]
        return _Joint.apply(*tensors, Columns(kind, ids, (0, len(hidden)), True, skip), False)
    assert sample.bounds is not None  # what each position has to itself goes by own.py
    numbers = {"low": getattr(sample, "low", None), "shift": shift, "scale": scale}
    given = {name: None if each is None else each.contiguous() for name, each in numbers.items()}
    rising = getattr(sample, "rising", False)
    columns = Columns(kind, sample.ids.contiguous(), sample.bounds, rising, skip, **given)
    return _Joint.apply(*tensors, columns, bool(getattr(output, "sparse", False)))


softplus_sum = partial(target_and_sum, SOFTPLUS)
exp_sum = partial(target_and_sum, EXP)
log_sum_exp = partial(target_and_sum, LOG_SUM)


@torch.no_grad()
def log_z(hidden: Tensor, weight: Tensor, bias: Tensor | None, kind: int, most: int = MOST) -> Tensor:
    """log sum_c exp(link(logit_nc)) over every word -> [N], for evaluation: it has no gradient."""
    targets = torch.empty(len(hidden), dtype=torch.int32, device=hidden.device)
    return _Whole.apply(cast(hidden), weight, bias, targets, kind, False, most)
