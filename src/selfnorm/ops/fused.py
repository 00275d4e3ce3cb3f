"""The sums of plain.py over a draw that positions share, in Triton: logits stay in registers, their slopes are written
once, in the dtype of the products, and the gradients are two matrix products with them.

sum_k scale_k value(logit_nk - shift_k), value = softplus or bounded exp; log sum_k exp(logit_nk - shift_k); and log Z
over every word, without [N, C] in memory. Accumulation is float32. Very negative logits are the normal case (the
probability of a rare word is 1e-7), so log(1 + e) is a series where e is small.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
import triton
from torch import Tensor

from selfnorm.ops import plain
from selfnorm.ops.kernels import column_sums, every, sums
from selfnorm.ops.plain import MOST, Drawn, Table

SOFTPLUS, EXP, SLOPE_OF_LOG_SUM, LOG_SUM = range(4)  # what a kernel makes of a logit
WORDS, SIGMOIDS = range(2)  # the links of log Z: exp(logit), sigmoid(logit)
INTERPRETED = bool(triton.knobs.runtime.interpret)


def _tiles() -> dict[str, int]:
    """Sizes of a tile; what a program needs of registers and shared memory hangs on them."""
    if INTERPRETED:
        return {"BM": 32, "BN": 32, "BD": 32}
    return {"BM": 64, "BN": 128, "BD": 64, "num_warps": 4, "num_stages": 4}  # wider tiles spill registers on an H200


class Shared:
    """What the positions of a group have in common: ids and the numbers that go with them."""

    def __init__(self, ids: Tensor, low: Tensor | None, shift: Tensor | None, scale: Tensor | None, skip: bool) -> None:
        self.ids, self.low, self.skip = ids.contiguous(), low, skip
        self.shift = None if shift is None else shift.float().contiguous()
        self.scale = None if scale is None else scale.float().contiguous()


def _launch(
    kind: int,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    shared: Shared,
    lse: Tensor | None = None,
    store: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Parts of the sums [blocks, N], their largest terms (LOG_SUM), and the slopes [N, K] (`store`)."""
    (n, width), k = hidden.shape, len(weight)
    tiles = _tiles()
    blocks = triton.cdiv(k, tiles["BN"])
    parts = hidden.new_empty(blocks, n, dtype=torch.float32)
    tops = torch.empty_like(parts) if kind == LOG_SUM else parts
    slopes = hidden.new_empty(n, k) if store else hidden
    some = parts  # stands for what is not there
    given = [some if each is None else each for each in (shared.low, targets, shared.shift, shared.scale, lse)]
    sums[(blocks * triton.cdiv(n, tiles["BM"]),)](
        hidden,
        weight,
        some if bias is None else bias,
        shared.ids,
        *given,
        slopes,
        parts,
        tops,
        n,
        k,
        hidden.stride(0),
        weight.stride(0),
        slopes.stride(0),
        D=width,
        KIND=kind,
        SKIP=shared.skip,
        HAS_LOW=shared.low is not None,
        HAS_BIAS=bias is not None,
        HAS_SHIFT=shared.shift is not None,
        HAS_SCALE=shared.scale is not None,
        STORE=store,
        EXACT=hidden.dtype == torch.float32,
        **tiles,
    )
    return parts, tops, slopes


def _gradients(
    grad: Tensor, slopes: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of hidden, weight and bias: the positions' own factors go to the small sides of the products."""
    factor = grad.float().contiguous()
    of_hidden = (slopes @ weight) * factor[:, None].to(hidden.dtype)
    of_weight = slopes.T @ (hidden * factor[:, None]).to(hidden.dtype)
    if bias is None:
        return of_hidden, of_weight, None
    n, k = slopes.shape
    rows, columns, strip = (32, 32, 2) if INTERPRETED else (32, 128, 16)
    strips = triton.cdiv(n, rows * strip)
    parts = factor.new_empty(strips, k)
    grid = (triton.cdiv(k, columns), strips)
    column_sums[grid](slopes, factor, parts, n, k, slopes.stride(0), STRIP=strip, BM=rows, BN=columns)
    return of_hidden, of_weight, parts.sum(0).to(bias.dtype)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, shared: Shared, kind: int
    ) -> Tensor:
        store = any(ctx.needs_input_grad)
        parts, _, slopes = _launch(kind, hidden, weight, bias, targets, shared, store=store)
        ctx.save_for_backward(hidden, weight, bias, slopes)
        return parts.sum(0)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, slopes = ctx.saved_tensors
        return *_gradients(grads[0], slopes, hidden, weight, bias), None, None, None


class _LogSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, shared: Shared
    ) -> Tensor:
        parts, tops, _ = _launch(LOG_SUM, hidden, weight, bias, targets, shared)
        lse = _joined(parts, tops)
        ctx.save_for_backward(hidden, weight, bias, targets, lse)
        ctx.shared = shared
        return lse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, lse = ctx.saved_tensors
        _, _, slopes = _launch(SLOPE_OF_LOG_SUM, hidden, weight, bias, targets, ctx.shared, lse=lse, store=True)
        return *_gradients(grads[0], slopes, hidden, weight, bias), None, None


def _joined(parts: Tensor, tops: Tensor) -> Tensor:
    """log of the sum of parts exp(tops); a sum of nothing is plain's stand-in for -inf."""
    top = tops.amax(0)
    return (top + (parts * (tops - top).exp()).sum(0).log()).clamp(min=plain.ABSENT)


def cast(tensor: Tensor, like: Tensor) -> Tensor:
    """In the dtype of the products: autocast's, else that of `like`."""
    kind = like.device.type
    return tensor.to(torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype)


def _by_groups(
    run: Callable[..., Tensor],
    hidden: Tensor,
    output: Table,
    sample: Drawn,
    targets: Tensor,
    numbers: dict[str, Tensor | None],
    skip: bool,
) -> Tensor:
    """`run` for every group of positions, on its rows of the table."""
    if sample.bounds is None:
        raise ValueError("the fused sums need a draw that positions share; take impl = 'auto' for one per position")
    weights, biases = output.rows(sample.ids)
    low = getattr(sample, "low", None)
    found = []
    for group, (first, last) in enumerate(pairwise(sample.bounds)):
        here = {name: None if each is None else each[group] for name, each in numbers.items()}
        shared = Shared(sample.ids[group], None if low is None else low[group].contiguous(), **here, skip=skip)
        bias = None if biases is None else biases[group]
        part = cast(hidden[first:last], hidden).contiguous()
        found.append(run(part, cast(weights[group], hidden), bias, targets[first:last].contiguous(), shared))
    return torch.cat(found)


def weighted_sum(
    kind: int,
    hidden: Tensor,
    output: Table,
    sample: Drawn,
    targets: Tensor,
    *,
    shift: Tensor | None = None,
    scale: Tensor | None = None,
    skip: bool = False,
    most: int = MOST,
) -> Tensor:
    """sum_k scale_k value(logit_nk - shift_k) -> [N]"""

    def run(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, shared: Shared) -> Tensor:
        return _Sum.apply(hidden, weight, bias, targets, shared, kind)

    return _by_groups(run, hidden, output, sample, targets, {"shift": shift, "scale": scale}, skip)


softplus_sum = partial(weighted_sum, SOFTPLUS)
exp_sum = partial(weighted_sum, EXP)


def log_sum_exp(
    hidden: Tensor,
    output: Table,
    sample: Drawn,
    targets: Tensor,
    *,
    shift: Tensor | None = None,
    skip: bool = False,
    most: int = MOST,
) -> Tensor:
    """log sum_k exp(logit_nk - shift_k) -> [N]"""
    return _by_groups(_LogSum.apply, hidden, output, sample, targets, {"shift": shift, "scale": None}, skip)


@torch.no_grad()
def log_z(hidden: Tensor, weight: Tensor, bias: Tensor | None, link: int) -> Tensor:
    """log sum_c exp(link(logit_nc)) over every word -> [N], for evaluation: it has no gradient."""
    hidden, weight = cast(hidden, hidden).contiguous(), cast(weight, hidden)
    (n, width), words = hidden.shape, len(weight)
    tiles = _tiles()
    strip = 2 if INTERPRETED else 16
    strips = triton.cdiv(words, tiles["BN"] * strip)
    parts, tops = hidden.new_empty(2, strips, n, dtype=torch.float32)
    every[(strips * triton.cdiv(n, tiles["BM"]),)](
        hidden,
        weight,
        parts if bias is None else bias,
        parts,
        tops,
        n,
        words,
        hidden.stride(0),
        weight.stride(0),
        D=width,
        LINK=link,
        HAS_BIAS=bias is not None,
        STRIP=strip,
        EXACT=hidden.dtype == torch.float32,
        **tiles,
    )
    return _joined(parts, tops)
