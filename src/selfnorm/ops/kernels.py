"""Triton kernels of fused.py. Pointers have capital letters; sizes that loops run over are known when compiling."""

import triton
import triton.language as tl


@triton.jit
def _softplus(x):
    """softplus and its slope, the sigmoid."""
    e = tl.exp(-tl.abs(x))
    r = 1.0 / (1.0 + e)
    series = e * (1.0 - e * (0.5 - e * (0.33333334 - 0.25 * e)))
    value = tl.maximum(x, 0.0) + tl.where(e < 0.03, series, tl.log(1.0 + e))
    return value, tl.where(x >= 0.0, r, e * r)


@triton.jit
def _logits(H, W, rows, columns, N, K, s_h, s_w, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr, EXACT: tl.constexpr):  # noqa: E501  # fmt: skip
    """A tile of hidden @ weight.T"""
    d = tl.arange(0, BD)
    h = H + tl.where(rows < N, rows, 0).to(tl.int64)[:, None] * s_h + d[None, :]
    w = W + tl.where(columns < K, columns, 0).to(tl.int64)[None, :] * s_w + d[:, None]
    tile = tl.zeros((BM, BN), dtype=tl.float32)
    for first in range(0, D, BD):
        inside = d < D - first
        a = tl.load(h + first, mask=inside[None, :], other=0.0)
        b = tl.load(w + first, mask=inside[:, None], other=0.0)
        tile = tl.dot(a, b, tile, input_precision="ieee" if EXACT else "tf32")
    return tile


@triton.jit
def sums(H, W, Bias, Ids, Low, Targets, Shift, Scale, Lse, Slopes, Parts, Tops, N, K, s_h, s_w, s_s, D: tl.constexpr, KIND: tl.constexpr, SKIP: tl.constexpr, HAS_LOW: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_SHIFT: tl.constexpr, HAS_SCALE: tl.constexpr, STORE: tl.constexpr, EXACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """One tile: its part of each position's sum, and its slopes."""
    across = tl.cdiv(N, BM)
    block = tl.program_id(0) // across  # neighbours share the tile of the weight
    rows = (tl.program_id(0) % across) * BM + tl.arange(0, BM)
    columns = block * BN + tl.arange(0, BN)
    here, there = rows < N, columns < K
    x = _logits(H, W, rows, columns, N, K, s_h, s_w, D, BM, BN, BD, EXACT)
    if HAS_BIAS:
        x += tl.load(Bias + columns, mask=there, other=0.0).to(tl.float32)[None, :]
    if HAS_SHIFT:
        x -= tl.load(Shift + columns, mask=there, other=0.0)[None, :]
    counts = here[:, None] & there[None, :]
    if SKIP or HAS_LOW:
        target = tl.load(Targets + rows, mask=here, other=-1)
        if HAS_LOW:  # pairs: at a target in [low, first] the stand-in counts, elsewhere the first
            half = K // 2
            pair = tl.where(columns < half, columns, columns - half)
            first = tl.load(Ids + pair, mask=there, other=0)
            low = tl.load(Low + pair, mask=there, other=0)
            turned = (low[None, :] <= target[:, None]) & (target[:, None] <= first[None, :])
            counts = counts & (turned == (columns >= half)[None, :])
        else:
            ids = tl.load(Ids + columns, mask=there, other=-2)
            counts = counts & (ids[None, :] != target[:, None])
    if KIND == 3:  # LOG_SUM: the largest of the tile, and the sum behind it
        x = tl.where(counts, x, -1e30)
        top = tl.max(x, 1)
        tl.store(Tops + block.to(tl.int64) * N + rows, top, mask=here)
        value = tl.exp(x - top[:, None])
        tl.store(Parts + block.to(tl.int64) * N + rows, tl.sum(tl.where(counts, value, 0.0), 1), mask=here)
    else:
        if KIND == 0:
            value, slope = _softplus(x)
        elif KIND == 1:
            slope = tl.exp(tl.minimum(x, 0.0))
            value = tl.where(x > 0.0, 1.0 + x, slope)
        else:
            slope = tl.exp(x - tl.load(Lse + rows, mask=here, other=0.0)[:, None])
            value = slope
        if HAS_SCALE:
            scale = tl.load(Scale + columns, mask=there, other=0.0)[None, :]
            value, slope = value * scale, slope * scale
        if KIND != 2:
            tl.store(Parts + block.to(tl.int64) * N + rows, tl.sum(tl.where(counts, value, 0.0), 1), mask=here)
        if STORE:
            place = Slopes + rows.to(tl.int64)[:, None] * s_s + columns[None, :]
            tl.store(
                place, tl.where(counts, slope, 0.0).to(Slopes.dtype.element_ty), mask=here[:, None] & there[None, :]
            )


@triton.jit
def every(H, W, Bias, Parts, Tops, N, C, s_h, s_w, D: tl.constexpr, LINK: tl.constexpr, HAS_BIAS: tl.constexpr, STRIP: tl.constexpr, EXACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """A strip of tiles of the whole vocabulary: its largest link and the sum behind it."""
    across = tl.cdiv(N, BM)
    strip = tl.program_id(0) // across
    rows = (tl.program_id(0) % across) * BM + tl.arange(0, BM)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    for block in range(STRIP):
        columns = (strip * STRIP + block) * BN + tl.arange(0, BN)
        x = _logits(H, W, rows, columns, N, C, s_h, s_w, D, BM, BN, BD, EXACT)
        if HAS_BIAS:
            x += tl.load(Bias + columns, mask=columns < C, other=0.0).to(tl.float32)[None, :]
        if LINK == 1:
            x = -_softplus(-x)[0]
        x = tl.where((columns < C)[None, :], x, -1e30)
        higher = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
        top = higher
    tl.store(Tops + strip.to(tl.int64) * N + rows, top, mask=rows < N)
    tl.store(Parts + strip.to(tl.int64) * N + rows, total, mask=rows < N)


@triton.jit
def column_sums(Slopes, Grad, Parts, N, K, s_s, STRIP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """sum_n grad_n slopes_nk over a strip of positions, in float32: the bias's gradient."""
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    strip = tl.program_id(1)
    total = tl.zeros((BN,), tl.float32)
    for block in range(STRIP):
        rows = (strip * STRIP + block) * BM + tl.arange(0, BM)
        place = Slopes + rows.to(tl.int64)[:, None] * s_s + columns[None, :]
        slopes = tl.load(place, mask=(rows < N)[:, None] & (columns < K)[None, :], other=0.0).to(tl.float32)
        grad = tl.load(Grad + rows, mask=rows < N, other=0.0)
        total += tl.sum(slopes * grad[:, None], 0)
    tl.store(Parts + strip.to(tl.int64) * K + columns, total, mask=columns < K)
