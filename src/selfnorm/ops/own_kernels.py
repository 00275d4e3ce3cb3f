"""Triton kernels of own.py."""

import triton
import triton.language as tl


@triton.jit
def dots(H, W, Bias, Ids, Logits, K, s_h, s_w, D: tl.constexpr, HAS_BIAS: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """BK logits of one position."""
    n = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    there = k < K
    word = tl.load(Ids + n * K + k, mask=there, other=0).to(tl.int64)
    d = tl.arange(0, BD)
    terms = tl.zeros((BK, BD), tl.float32)
    for first in range(0, D, BD):
        inside = d < D - first
        h = tl.load(H + n * s_h + first + d, mask=inside, other=0.0).to(tl.float32)
        both = there[:, None] & inside[None, :]
        w = tl.load(W + word[:, None] * s_w + (first + d)[None, :], mask=both, other=0.0).to(tl.float32)
        terms += h[None, :] * w
    logit = tl.sum(terms, 1)
    if HAS_BIAS:
        logit += tl.load(Bias + word, mask=there, other=0.0).to(tl.float32)
    tl.store(Logits + n * K + k, logit, mask=there)


@triton.jit
def pulls(W, Ids, Slopes, GradHidden, s_w, D, K: tl.constexpr, BK: tl.constexpr, BD: tl.constexpr):
    """A stretch of one hidden vector's gradient."""
    n = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = d < D
    terms = tl.zeros((BK, BD), tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        there = k < K
        word = tl.load(Ids + n * K + k, mask=there, other=0).to(tl.int64)
        slope = tl.load(Slopes + n * K + k, mask=there, other=0.0)
        both = there[:, None] & inside[None, :]
        w = tl.load(W + word[:, None] * s_w + d[None, :], mask=both, other=0.0).to(tl.float32)
        terms += slope[:, None] * w
    tl.store(GradHidden + n * D + d, tl.sum(terms, 0).to(GradHidden.dtype.element_ty), mask=inside)
