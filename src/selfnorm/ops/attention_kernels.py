"""Triton kernels of attention.py: one program for a head of a sentence, all of whose scores it has at once.

Positions beyond the sentence are zero. They come after all others, so that no position of the sentence sees them, and
their own gradient is zero, so that they give nothing to others.
"""

import triton
import triton.language as tl


@triton.jit
def _rows(Pointer, T, stride, BLOCK: tl.constexpr, D: tl.constexpr):
    """The vectors of a sentence, one after the other: [BLOCK, D]"""
    t, d = tl.arange(0, BLOCK), tl.arange(0, D)
    return tl.load(Pointer + t[:, None] * stride + d[None, :], mask=(t < T)[:, None], other=0.0)


@triton.jit
def _put(Pointer, rows, T, stride, BLOCK: tl.constexpr, D: tl.constexpr):
    t, d = tl.arange(0, BLOCK), tl.arange(0, D)
    tl.store(Pointer + t[:, None] * stride + d[None, :], rows.to(Pointer.dtype.element_ty), mask=(t < T)[:, None])


@triton.jit
def _shares(query, key, SCALE: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax, in float32, of each position's scores of itself and of those before it: [BLOCK, BLOCK]"""
    score = SCALE * tl.dot(query, tl.trans(key), input_precision="ieee")
    t = tl.arange(0, BLOCK)
    score = tl.where(t[None, :] <= t[:, None], score, float("-inf"))
    share = tl.exp(score - tl.max(score, 1)[:, None])
    return share * (1.0 / tl.sum(share, 1))[:, None]


@triton.jit(do_not_specialize=["T", "heads"])  # one kernel for all lengths of a block
def attend(Three, Mixed, T, heads, SCALE: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """mixed = softmax(query key^T / sqrt(D)) value"""
    first, head = (tl.program_id(0) // heads).to(tl.int64) * T, tl.program_id(0) % heads
    width = heads * D
    Query = Three + first * 3 * width + head * D
    query = _rows(Query, T, 3 * width, BLOCK, D)
    key = _rows(Query + width, T, 3 * width, BLOCK, D)
    value = _rows(Query + 2 * width, T, 3 * width, BLOCK, D)
    share = _shares(query, key, SCALE, BLOCK)
    mixed = tl.dot(share.to(value.dtype), value, input_precision="ieee")
    _put(Mixed + first * width + head * D, mixed, T, width, BLOCK, D)


@triton.jit(do_not_specialize=["T", "heads"])
def attend_back(Three, Grad, GradThree, T, heads, SCALE: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr):
    """The gradients of query, key and value; the shares are made again, which is cheaper than to read them."""
    first, head = (tl.program_id(0) // heads).to(tl.int64) * T, tl.program_id(0) % heads
    width = heads * D
    place = first * 3 * width + head * D
    query = _rows(Three + place, T, 3 * width, BLOCK, D)
    key = _rows(Three + place + width, T, 3 * width, BLOCK, D)
    value = _rows(Three + place + 2 * width, T, 3 * width, BLOCK, D)
    grad = _rows(Grad + first * width + head * D, T, width, BLOCK, D)
    share = _shares(query, key, SCALE, BLOCK)
    of_share = tl.dot(grad, tl.trans(value), input_precision="ieee")
    slope = SCALE * share * (of_share - tl.sum(share * of_share, 1)[:, None])  # of the products query key^T
    slope = slope.to(query.dtype)
    of_value = tl.dot(tl.trans(share.to(grad.dtype)), grad, input_precision="ieee")
    _put(GradThree + place + 2 * width, of_value, T, 3 * width, BLOCK, D)
    of_query = tl.dot(slope, key, input_precision="ieee")
    _put(GradThree + place, of_query, T, 3 * width, BLOCK, D)
    of_key = tl.dot(tl.trans(slope), query, input_precision="ieee")
    _put(GradThree + place + width, of_key, T, 3 * width, BLOCK, D)
