"""Triton kernel of halves.py: every number is read and written once."""

import triton
import triton.language as tl


@triton.jit
def move(W, Copy, First, Second, Grad, Lr, Step, Shrink, Finite, size, beta1, beta2, eps, BLOCK: tl.constexpr):
    if tl.load(Finite) != 0:
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = i < size
        lr, step = tl.load(Lr), tl.load(Step)
        grad = tl.load(Shrink) * tl.load(Grad + i, mask=inside, other=0.0).to(tl.float32)
        first = tl.load(First + i, mask=inside, other=0.0)
        second = tl.load(Second + i, mask=inside, other=0.0)
        weight = tl.load(W + i, mask=inside, other=0.0)
        one = 1.0 / (1.0 - tl.exp(step * tl.log(beta1)))
        two = 1.0 / (1.0 - tl.exp(step * tl.log(beta2)))
        first += (1.0 - beta1) * (grad - first)
        second += (1.0 - beta2) * (grad * grad - second)
        weight -= lr * first * one / (tl.sqrt(second * two) + eps)
        tl.store(First + i, first, mask=inside)
        tl.store(Second + i, second, mask=inside)
        tl.store(W + i, weight, mask=inside)
        tl.store(Copy + i, weight.to(Copy.dtype.element_ty), mask=inside)
