"""The logits of ids that each position has to itself, and their gradients, without an [N, K, H].

    logit_nk = w_c . h_n + b_c,  c = ids_nk             K rows are read, and one number is kept of each
    d h_n = sum_k slope_nk w_c                          they are read again
    d w_c = the sum of slope_nk h_n where ids_nk = c    left as `slope x hidden`, merged by whoever updates the table

In Triton where `fused`; in PyTorch a few positions at a time, through a buffer that stays in the cache.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from selfnorm.ops import plain
from selfnorm.ops.plain import Table, wide
from selfnorm.ops.rows import Piece, at_a_time, half_of, returned, waiting
from selfnorm.ops.updates import FusedRows

IDS = 16  # of a position, that a program takes at a time


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, output: Table, fused: bool
    ) -> Tensor:
        ctx.save_for_backward(hidden, weight, bias, ids)
        ctx.output, ctx.fused, ctx.sparse = output, fused, bool(getattr(output, "sparse", False))
        ctx.table = half_of(weight, hidden.dtype) if fused else weight.detach()
        ctx.to = waiting(weight), None if bias is None else waiting(bias)
        return (_fused_logits if fused else _logits)(hidden, ctx.table, bias, ids)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        followed = torch.is_grad_enabled() and not ctx.fused
        found = (_followed if followed else _gradients)(ctx, grads[0])
        return *found, None, None, None


@once_differentiable
def _gradients(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
    """Those of hidden vectors, weight and bias."""
    hidden, weight, bias, ids = ctx.saved_tensors
    k, slopes, hidden = ids.shape[1], slopes.contiguous(), hidden.detach()  # what waits for the step keeps no graph
    of_hidden = None
    if ctx.needs_input_grad[0]:
        of_hidden = (_fused_pull if ctx.fused else _pull)(ctx.table, ids, slopes).to(hidden.dtype)
    ids, slopes = ids.view(-1), slopes.view(-1)  # the same ids for both tables: they are sorted once
    pieces = Piece(ids, hidden[:0], slopes, hidden, every=k), Piece(ids, slopes[:0], slopes, every=k)
    order, found = None, list[Tensor | None]()
    for table, piece, to, needed in zip((weight, bias), pieces, ctx.to, ctx.needs_input_grad[1:3]):
        if not needed:
            found.append(None)  # a frozen table leaves nothing for its optimizer
        elif ctx.sparse or to is not None or not ctx.fused:
            found.append(returned(piece, table, ctx.sparse, to))
        else:
            rows = FusedRows([piece], order)
            order = rows.order
            found.append(rows.dense(table))
    return of_hidden, *found


def _followed(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
    """The same by the definition, for a second derivative."""
    hidden, weight, bias, ids = ctx.saved_tensors
    inputs = [each for each, needed in zip((hidden, weight, bias), ctx.needs_input_grad) if needed]
    logits = plain.own_logits(hidden, ctx.output, ids)
    found = iter(torch.autograd.grad(logits, inputs, slopes, create_graph=True, allow_unused=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[:3])


def own_logits(hidden: Tensor, output: Table, ids: Tensor, fused: bool) -> Tensor:
    """As plain.own_logits, from which it differs by its speed: [N, K]"""
    return _Logits.apply(hidden, output.weight, output.bias, ids.contiguous(), output, fused)


def _parts(table: Tensor, ids: Tensor, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
    """The rows [n, K, H] of some positions at a time, always in the same memory."""
    some = at_a_time(ids.shape[1] * table.shape[1], table)
    buffer = table.new_empty(min(some, len(ids)) * ids.shape[1], table.shape[1], dtype=dtype)
    for begin in range(0, len(ids), some):
        part = slice(begin, begin + some)
        flat = ids[part].reshape(-1)
        rows = buffer[: len(flat)]
        if rows.dtype == table.dtype:
            torch.index_select(table, 0, flat, out=rows)
        else:
            rows.copy_(table.index_select(0, flat))
        yield part, rows.view(-1, ids.shape[1], table.shape[1])


def _logits(hidden: Tensor, table: Tensor, bias: Tensor | None, ids: Tensor) -> Tensor:
    vectors = hidden.to(torch.promote_types(hidden.dtype, wide(table[:0]).dtype))[:, :, None]
    logits = vectors.new_empty(*ids.shape, 1)
    with torch.autocast(hidden.device.type, enabled=False):
        for part, rows in _parts(table, ids, vectors.dtype):
            torch.bmm(rows, vectors[part], out=logits[part])
    return logits[:, :, 0] if bias is None else logits[:, :, 0] + wide(bias[ids])


def _pull(table: Tensor, ids: Tensor, slopes: Tensor) -> Tensor:
    of_hidden = slopes.new_empty(len(ids), 1, table.shape[1])
    with torch.autocast(slopes.device.type, enabled=False):
        for part, rows in _parts(table, ids, slopes.dtype):
            torch.bmm(slopes[part, None], rows, out=of_hidden[part])
    return of_hidden[:, 0]


def _fused_logits(hidden: Tensor, table: Tensor, bias: Tensor | None, ids: Tensor) -> Tensor:
    from selfnorm.ops.own_kernels import dots

    n, k = ids.shape
    width = hidden.shape[1]
    logits = hidden.new_empty(n, k, dtype=torch.float32)
    dots[(n, -(-k // IDS))](
        hidden,
        table,
        table if bias is None else bias.contiguous(),
        ids,
        logits,
        k,
        hidden.stride(0),
        table.stride(0),
        D=width,
        HAS_BIAS=bias is not None,
        BK=IDS,
        BD=_stretch(width),
    )
    return logits


def _fused_pull(table: Tensor, ids: Tensor, slopes: Tensor) -> Tensor:
    from selfnorm.ops.own_kernels import pulls

    (n, k), width, stretch = ids.shape, table.shape[1], _stretch(table.shape[1])
    of_hidden = slopes.new_empty(n, width)
    pulls[(n, -(-width // stretch))](table, ids, slopes, of_hidden, table.stride(0), width, K=k, BK=IDS, BD=stretch)
    return of_hidden


def _stretch(width: int) -> int:
    return min(1 << (width - 1).bit_length(), 256)
