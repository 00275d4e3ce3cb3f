"""Triton kernels of fused.py. Pointers have capital letters; sizes that loops run over are known when compiling.

Matrix products are cuBLAS's, at the limit; the kernels do what lies between: rows in, logits to sums, logits to slopes.
Positions stand in G groups of N each, and each group has its own K columns, padded to P.
"""

import triton
import triton.language as tl


@triton.jit
def _softplus(x):
    """log(1 + exp(x)): of e = exp(-|x|), log(1 + e) / e is a polynomial, right for the smallest e to 3e-7."""
    e = tl.exp(-tl.abs(x))
    p = 0.04337085 - 0.0083364975 * e
    p = -0.2447047 + e * (0.17675494 + e * (-0.106677905 + e * p))
    p = 0.99999976 + e * (-0.49997127 + e * (0.33271188 + e * p))
    return tl.maximum(x, 0.0) + e * p


@triton.jit
def _sigmoid(x, QUICK: tl.constexpr):
    """1 / (1 + exp(-x)), 0 below -88"""
    e = 1.0 + tl.exp(-x)
    if QUICK:  # one instruction where a division takes eight; off by one unit in the last place
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [e], tl.float32, is_pure=True, pack=1)
    else:
        return 1.0 / e


@triton.jit
def gather(W, Bias, Ids, Shift, Scale, Rows, Numbers, Touched, K, P, s_w, D: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_SHIFT: tl.constexpr, HAS_SCALE: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """One row of a group: the word's weight, bias - shift and scale, its id among the touched; padding is zero."""
    group, k = tl.program_id(0) // P, tl.program_id(0) % P
    there = k < K
    here = group.to(tl.int64) * K + k
    word = tl.load(Ids + here, mask=there, other=0).to(tl.int64)
    offset = 0.0
    if HAS_BIAS:
        offset += tl.load(Bias + word, mask=there, other=0.0).to(tl.float32)
    if HAS_SHIFT:
        offset -= tl.load(Shift + here, mask=there, other=0.0).to(tl.float32)
    scale = 1.0
    if HAS_SCALE:
        scale = tl.load(Scale + here, mask=there, other=0.0).to(tl.float32)
    tl.store(Numbers + tl.program_id(0), offset)
    tl.store(Numbers + tl.num_programs(0) + tl.program_id(0), scale)
    tl.store(Touched + here, word.to(tl.int32), mask=there)
    d = tl.arange(0, BD)
    for first in range(0, D, BD):
        inside = d < D - first
        row = tl.load(W + word * s_w + first + d, mask=inside & (k + 0 * d < K), other=0.0)
        tl.store(Rows + tl.program_id(0).to(tl.int64) * D + first + d, row.to(Rows.dtype.element_ty), mask=inside)


@triton.jit
def target_logits(H, W, Bias, Targets, Ids, Logit, Slot, Touched, N, K, s_h, s_w, D: tl.constexpr, HAS_BIAS: tl.constexpr, RISING: tl.constexpr, STEPS: tl.constexpr, NOWHERE: tl.constexpr, BM: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """The targets' logits; where in its group's rising ids each target stands (-1: nowhere), and those that do not."""
    group = tl.program_id(1)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    here = rows < N
    place = group.to(tl.int64) * N + rows
    word = tl.load(Targets + place, mask=here, other=0).to(tl.int64)
    d = tl.arange(0, BD)
    logit = tl.zeros((BM,), tl.float32)
    for first in range(0, D, BD):
        inside = here[:, None] & (d < D - first)[None, :]
        h = tl.load(H + place[:, None] * s_h + (first + d)[None, :], mask=inside, other=0.0).to(tl.float32)
        w = tl.load(W + word[:, None] * s_w + (first + d)[None, :], mask=inside, other=0.0).to(tl.float32)
        logit += tl.sum(h * w, 1)
    if HAS_BIAS:
        logit += tl.load(Bias + word, mask=here, other=0.0).to(tl.float32)
    tl.store(Logit + place, logit, mask=here)
    if RISING:
        low, high = tl.zeros((BM,), tl.int32), tl.zeros((BM,), tl.int32) + K  # the first id not below the target
        for _ in range(STEPS):
            middle = (low + high) // 2
            below = tl.load(Ids + group.to(tl.int64) * K + middle, mask=low < high, other=0).to(tl.int64) < word
            moves = low < high
            low = tl.where(moves & below, middle + 1, low)
            high = tl.where(moves & ~below, middle, high)
        found = tl.load(Ids + group.to(tl.int64) * K + low, mask=low < K, other=-1).to(tl.int64) == word
        slot = tl.where(found, low, -1)
    else:
        slot = tl.zeros((BM,), tl.int32) - 1
    tl.store(Slot + place, slot, mask=here)
    tl.store(Touched + place, tl.where(slot < 0, word, NOWHERE).to(tl.int32), mask=here)


@triton.jit
def _masked(x, nothing, columns, slot, target, there, Ids, Low, group, K, RISING: tl.constexpr, SKIP: tl.constexpr, HAS_LOW: tl.constexpr, EVEN: tl.constexpr):  # noqa: E501  # fmt: skip
    """The tile with `nothing` where a column does not count: beyond K, or at its target."""
    if not EVEN:
        x = tl.where(there[None, :], x, nothing)
    if HAS_LOW:  # pairs: at a target in [low, first] the stand-in counts, elsewhere the first
        half = K // 2
        pair = tl.where(columns < half, columns, columns - half)
        first = tl.load(Ids + group * K + pair, mask=there, other=0)
        low = tl.load(Low + group * half + pair, mask=there, other=0).to(tl.int32)
        turned = (low[None, :] <= target[:, None]) & (target[:, None] <= first[None, :])
        x = tl.where(turned == (columns >= half)[None, :], x, nothing)
    elif SKIP:
        if RISING:
            x = tl.where(columns[None, :] == slot[:, None], nothing, x)
        else:
            ids = tl.load(Ids + group * K + columns, mask=there, other=-2)
            x = tl.where(ids[None, :] == target[:, None], nothing, x)
    return x


@triton.jit
def values(L, Numbers, Ids, Low, Targets, Slot, Sums, Tops, N, P, SPAN: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr, RISING: tl.constexpr, SKIP: tl.constexpr, HAS_LOW: tl.constexpr, EVEN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # noqa: E501  # fmt: skip
    """Each position's sum over SPAN of its logits; for logarithms the largest of them, and the sum behind it."""
    group = tl.program_id(2).to(tl.int64)
    groups = tl.num_programs(2)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    here = rows < N
    place = group * N + rows
    target = tl.load(Targets + place, mask=here, other=-1).to(tl.int32)
    slot = tl.load(Slot + place, mask=here, other=-1)
    top = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    terms = tl.zeros((BM, BN), tl.float32)
    for first in range(0, SPAN, BN):
        columns = tl.program_id(1) * SPAN + first + tl.arange(0, BN)
        there = columns < K
        from_here = L + place[:, None] * P + columns[None, :]
        if EVEN:
            x = tl.load(from_here).to(tl.float32)
        else:
            x = tl.load(from_here, mask=here[:, None] & there[None, :], other=0.0).to(tl.float32)
        x += tl.load(Numbers + group * P + columns, mask=there, other=0.0)[None, :]
        if KIND >= 2:  # LOG_SUM, LOG_SIGMOIDS
            if KIND == 3:
                x = -_softplus(-x)
            x = _masked(x, -2e30, columns, slot, target, there, Ids, Low, group, K, RISING, SKIP, HAS_LOW, EVEN)
            higher = tl.maximum(top, tl.max(x, 1))
            total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher[:, None]), 1)
            top = higher
        else:
            value = _softplus(x)
            if KIND == 1:
                value = tl.where(x > 0.0, 1.0 + x, tl.exp(tl.minimum(x, 0.0)))
            value *= tl.load(Numbers + (groups + group) * P + columns, mask=there, other=0.0)[None, :]
            terms += _masked(value, 0.0, columns, slot, target, there, Ids, Low, group, K, RISING, SKIP & (not RISING), HAS_LOW, EVEN)  # noqa: E501  # fmt: skip
    out = tl.program_id(1).to(tl.int64) * groups * N + place
    if KIND >= 2:
        tl.store(Tops + out, top, mask=here)
        tl.store(Sums + out, total, mask=here)
    else:
        total = tl.sum(terms, 1)
        if SKIP & RISING & (not HAS_LOW):  # the one term too many is taken off again: cheaper than a look at each
            first = tl.program_id(1) * SPAN
            hit = here & (slot >= first) & (slot < first + SPAN)
            x = tl.load(L + place * P + slot, mask=hit, other=0.0).to(tl.float32)
            x += tl.load(Numbers + group * P + slot, mask=hit, other=0.0)
            value = _softplus(x)
            if KIND == 1:
                value = tl.where(x > 0.0, 1.0 + x, tl.exp(tl.minimum(x, 0.0)))
            value *= tl.load(Numbers + (groups + group) * P + slot, mask=hit, other=0.0)
            total -= tl.where(hit, value, 0.0)
        tl.store(Sums + out, total, mask=here)


@triton.jit
def slopes(L, Numbers, Ids, Low, Targets, Slot, Lse, Grad, Own, Slopes, Parts, N, K, P, KIND: tl.constexpr, RISING: tl.constexpr, SKIP: tl.constexpr, HAS_LOW: tl.constexpr, EVEN: tl.constexpr, QUICK: tl.constexpr, STRIP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):  # noqa: E501  # fmt: skip
    """Gradients of a strip of logits, a target's own at its slot, and their sums by column, which are the bias's."""
    group = tl.program_id(2).to(tl.int64)
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    there = columns < K
    offset = tl.load(Numbers + group * P + columns, mask=there, other=0.0)
    scale = tl.load(Numbers + (tl.num_programs(2) + group) * P + columns, mask=there, other=0.0)
    total = tl.zeros((BM, BN), tl.float32)
    for block in range(STRIP):
        rows = (tl.program_id(1) * STRIP + block) * BM + tl.arange(0, BM)
        here = rows < N
        place = group * N + rows
        target = tl.load(Targets + place, mask=here, other=-1).to(tl.int32)
        slot = tl.load(Slot + place, mask=here, other=-1)
        grad = tl.load(Grad + place, mask=here, other=0.0)
        from_here = L + place[:, None] * P + columns[None, :]
        if EVEN:
            x = tl.load(from_here).to(tl.float32) + offset[None, :]
        else:
            x = tl.load(from_here, mask=here[:, None] & there[None, :], other=0.0).to(tl.float32) + offset[None, :]
        if KIND == 0:
            slope = _sigmoid(x, QUICK)
        elif KIND == 1:
            slope = tl.exp(tl.minimum(x, 0.0))
        else:
            slope = tl.exp(x - tl.load(Lse + place, mask=here, other=float("inf"))[:, None])
        slope *= scale[None, :] * grad[:, None]
        slope = _masked(slope, 0.0, columns, slot, target, there, Ids, Low, group, K, RISING, SKIP & (not RISING), HAS_LOW, EVEN)  # noqa: E501  # fmt: skip
        if RISING:
            own = tl.load(Own + place, mask=here, other=0.0)[:, None]
            slope = tl.where(columns[None, :] == slot[:, None], own if SKIP else own + slope, slope)
        total += slope
        to = Slopes + place[:, None] * P + columns[None, :]
        if EVEN:
            tl.store(to, slope.to(Slopes.dtype.element_ty))
        else:
            tl.store(to, slope.to(Slopes.dtype.element_ty), mask=here[:, None] & (columns < P)[None, :])
    part = (group * tl.num_programs(1) + tl.program_id(1)) * P + columns
    tl.store(Parts + part, tl.sum(total, 0), mask=columns < P)


@triton.jit
def missed(GradHidden, W, Own, Touched, s_g, s_w, D: tl.constexpr, NOWHERE: tl.constexpr, BD: tl.constexpr):
    """A target that no column stands for: its share of the hidden vector's gradient."""
    row = tl.program_id(0).to(tl.int64)
    word = tl.load(Touched + row).to(tl.int64)
    if word != NOWHERE:
        own = tl.load(Own + row)
        d = tl.arange(0, BD)
        for first in range(0, D, BD):
            inside = d < D - first
            place = GradHidden + row * s_g + first + d
            w = tl.load(W + word * s_w + first + d, mask=inside, other=0.0).to(tl.float32)
            grad = tl.load(place, mask=inside, other=0.0).to(tl.float32) + own * w
            tl.store(place, grad.to(GradHidden.dtype.element_ty), mask=inside)
