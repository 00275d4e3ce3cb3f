"""Triton kernels that walk over the touched rows of a table: their norm, and the optimizers' updates.

Entries are sorted by id, so that those of one row follow each other: a run. The program at the start of a run sums it,
in float32 and in the order of the entries, and all others of the run do nothing. Where runs may be of thousands (CHUNK
is not 0), entries are parted into chunks: each sums the part of a run that goes on from the chunk before, and who
stands at the start of the run sums these parts.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["A", "R"])  # ids loaded in fours would have to be dealt out again
def ranks(Ids, Sorted, Order, R, A, SIZE: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Sort the ids from A on by counting who comes before whom; equals stay in order, and the first A as they are."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    here = i < R
    mine = tl.load(Ids + i, mask=here, other=0)
    count = tl.zeros((BM, BN), tl.int32)
    if (tl.program_id(0) + 1) * BM > A:
        for first in range(0, SIZE, BN):
            j = A + first + tl.arange(0, BN)
            other = tl.load(Ids + j, mask=j < R, other=2147483647)
            if A + first + BN <= tl.program_id(0) * BM:  # all of them stand before us
                count += (other[None, :] <= mine[:, None]).to(tl.int32)
            elif A + first >= (tl.program_id(0) + 1) * BM:
                count += (other[None, :] < mine[:, None]).to(tl.int32)
            else:
                tie = (other[None, :] == mine[:, None]) & (j[None, :] < i[:, None])
                count += ((other[None, :] < mine[:, None]) | tie).to(tl.int32)
    rank = tl.sum(count, 1)
    place = tl.where(i < A, i, A + rank)
    tl.store(Sorted + place, mine, mask=here)
    tl.store(Order + place, i, mask=here)


@triton.jit
def _entry(e, d, inside, Values, Factor, Outer, A, s_v, s_o, EVERY: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr):  # noqa: E501  # fmt: skip
    e = e.to(tl.int64)
    if HAS_FACTOR:
        row = tl.load(Values + e * s_v + d, mask=inside & (e + 0 * d < A), other=0.0).to(tl.float32)
        factor = tl.load(Factor + e - A, mask=e >= A, other=0.0).to(tl.float32)
        if HAS_OUTER:
            place = Outer + (e - A) // EVERY * s_o + d
            row += factor * tl.load(place, mask=inside & (e + 0 * d >= A), other=0.0).to(tl.float32)
        else:
            row += factor
        return row
    else:
        return tl.load(Values + e * s_v + d, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _entries(e, alike, d, inside, Values, Factor, Outer, A, s_v, s_o, EVERY: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr):  # noqa: E501  # fmt: skip
    e = e.to(tl.int64)
    both = alike[:, None] & inside[None, :]
    place = Values + e[:, None] * s_v + d[None, :]
    if HAS_FACTOR:
        rows = tl.load(place, mask=both & (e < A)[:, None], other=0.0).to(tl.float32)
        factor = tl.load(Factor + e - A, mask=alike & (e >= A), other=0.0).to(tl.float32)
        if HAS_OUTER:
            place = Outer + ((e - A) // EVERY)[:, None] * s_o + d[None, :]
            rows += factor[:, None] * tl.load(place, mask=both & (e >= A)[:, None], other=0.0).to(tl.float32)
        else:
            rows += factor[:, None]
        return tl.sum(rows, 0)
    else:
        return tl.sum(tl.load(place, mask=both, other=0.0).to(tl.float32), 0)


@triton.jit
def _gradient(i, word, e, after, d, inside, Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, EVERY: tl.constexpr, CHUNK: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr, BT: tl.constexpr):  # noqa: E501  # fmt: skip
    """The sum of the run that starts at i."""
    total = _entry(e, d, inside, Values, Factor, Outer, A, s_v, s_o, EVERY, HAS_FACTOR, HAS_OUTER)
    j = i + 1
    end = R
    goes_on = after == word
    if CHUNK:
        end = tl.minimum((i // CHUNK + 1) * CHUNK, R)
        goes_on = goes_on & (j < end)
    while goes_on:
        next = j + tl.arange(0, BT)
        alike = tl.load(Sorted + next, mask=next < end, other=-1) == word
        more = tl.load(Order + next, mask=alike, other=0)
        total += _entries(more, alike, d, inside, Values, Factor, Outer, A, s_v, s_o, EVERY, HAS_FACTOR, HAS_OUTER)
        j += BT
        goes_on = tl.load(Sorted + j, mask=j < end, other=-1) == word
    if CHUNK:
        chunk = i // CHUNK + 1
        goes_on = tl.load(Sorted + chunk * CHUNK, mask=chunk * CHUNK < R, other=-1) == word
        while goes_on:
            next = chunk + tl.arange(0, BT)
            alike = tl.load(Sorted + next * CHUNK, mask=next * CHUNK < R, other=-1) == word
            place = Parts + next.to(tl.int64)[:, None] * D + d[None, :]
            total += tl.sum(tl.load(place, mask=alike[:, None] & inside[None, :], other=0.0), 0)
            chunk += BT
            goes_on = tl.load(Sorted + chunk * CHUNK, mask=chunk * CHUNK < R, other=-1) == word
    return total


@triton.jit
def chunks(Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, EVERY: tl.constexpr, CHUNK: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """The part that a chunk has of a run which began before it."""
    i = tl.program_id(0) * CHUNK
    word = tl.load(Sorted + i)
    if tl.load(Sorted + i - 1, mask=i > 0, other=-1) == word:
        d = tl.program_id(1) * BD + tl.arange(0, BD)
        inside = d < D
        total = tl.zeros((BD,), tl.float32)
        for first in range(0, CHUNK, BT):
            next = i + first + tl.arange(0, BT)
            alike = tl.load(Sorted + next, mask=next < R, other=-1) == word
            more = tl.load(Order + next, mask=alike, other=0)
            total += _entries(more, alike, d, inside, Values, Factor, Outer, A, s_v, s_o, EVERY, HAS_FACTOR, HAS_OUTER)
        tl.store(Parts + tl.program_id(0).to(tl.int64) * D + d, total, mask=inside)


@triton.jit
def merge(Sums, Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, NOWHERE: tl.constexpr, EVERY: tl.constexpr, CHUNK: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """One stretch of one row's gradient, all its entries summed."""
    i = tl.program_id(0)
    word = tl.load(Sorted + i)
    before = tl.load(Sorted + i - 1, mask=i > 0, other=-1)
    after = tl.load(Sorted + i + 1, mask=i + 1 < R, other=-1)
    e = tl.load(Order + i)
    if (before != word) & (word != NOWHERE):
        d = tl.program_id(1) * BD + tl.arange(0, BD)
        inside = d < D
        grad = _gradient(i, word, e, after, d, inside, Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, EVERY, CHUNK, HAS_FACTOR, HAS_OUTER, BT)  # noqa: E501  # fmt: skip
        tl.store(Sums + word.to(tl.int64) * D + d, grad.to(Sums.dtype.element_ty), mask=inside)


@triton.jit
def squares(Squares, Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, FIRST, NOWHERE: tl.constexpr, EVERY: tl.constexpr, CHUNK: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """The square of a merged row's gradient, a stretch of it; from entry FIRST on."""
    i = FIRST + tl.program_id(0)
    word = tl.load(Sorted + i)
    before = tl.load(Sorted + i - 1, mask=i > 0, other=-1)
    after = tl.load(Sorted + i + 1, mask=i + 1 < R, other=-1)
    e = tl.load(Order + i)  # all at once: one wait for the memory less
    part = Squares + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    if (before != word) & (word != NOWHERE):
        d = tl.program_id(1) * BD + tl.arange(0, BD)
        inside = d < D
        grad = _gradient(i, word, e, after, d, inside, Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, EVERY, CHUNK, HAS_FACTOR, HAS_OUTER, BT)  # noqa: E501  # fmt: skip
        grad = tl.where(inside, grad, 0.0)
        tl.store(part, tl.sum(grad * grad, 0))
    else:
        tl.store(part, 0.0)


@triton.jit
def update(W, Half, First, Second, Last, Sorted, Order, Values, Factor, Outer, Parts, Lr, Step, Shrink, Finite, R, A, s_v, s_o, D, beta1, beta2, ratio, eps, KIND: tl.constexpr, NOWHERE: tl.constexpr, EVERY: tl.constexpr, CHUNK: tl.constexpr, HAS_FACTOR: tl.constexpr, HAS_OUTER: tl.constexpr, HAS_HALF: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):  # noqa: E501  # fmt: skip
    """One stretch of one row: W -= lr step(gradient). KIND: 0 SGD, 1 Adagrad, 2 Adam."""
    i = tl.program_id(0)
    word = tl.load(Sorted + i)
    before = tl.load(Sorted + i - 1, mask=i > 0, other=-1)
    after = tl.load(Sorted + i + 1, mask=i + 1 < R, other=-1)
    e = tl.load(Order + i)  # all at once: one wait for the memory less
    lr, shrink, step = tl.load(Lr), tl.load(Shrink), tl.load(Step)
    if (before != word) & (word != NOWHERE) & (tl.load(Finite) != 0):
        d = tl.program_id(1) * BD + tl.arange(0, BD)
        inside = d < D
        place = word.to(tl.int64) * D + d
        weight = tl.load(W + place, mask=inside, other=0.0).to(tl.float32)  # before the run: all loads at once
        if KIND >= 1:
            first = tl.load(First + place, mask=inside, other=0.0)
        if KIND == 2:
            second = tl.load(Second + place, mask=inside, other=0.0)
            mark = Last + word.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
            last = tl.load(mark)
        grad = _gradient(i, word, e, after, d, inside, Sorted, Order, Values, Factor, Outer, Parts, R, A, s_v, s_o, D, EVERY, CHUNK, HAS_FACTOR, HAS_OUTER, BT)  # noqa: E501  # fmt: skip
        grad *= shrink
        move = grad
        if KIND == 1:
            total = first + grad * grad
            tl.store(First + place, total, mask=inside)
            move = grad / (tl.sqrt(total) + eps)
        if KIND == 2:
            missed = tl.where(last > 0.0, tl.maximum(step - 1.0 - last, 0.0), 0.0)  # steps to catch up with
            one = 1.0 / (1.0 - tl.exp((last + 1.0) * tl.log(beta1)))
            two = 1.0 / (1.0 - tl.exp((last + 1.0) * tl.log(beta2)))
            moves = ratio * (1.0 - tl.exp(missed * tl.log(ratio))) / (1.0 - ratio)
            weight -= lr * moves * (first * one) / (tl.sqrt(second * two) + eps)
            first *= tl.exp(missed * tl.log(beta1))
            second *= tl.exp(missed * tl.log(beta2))
            one = 1.0 / (1.0 - tl.exp(step * tl.log(beta1)))
            two = 1.0 / (1.0 - tl.exp(step * tl.log(beta2)))
            first += (1.0 - beta1) * (grad - first)
            second += (1.0 - beta2) * (grad * grad - second)
            tl.store(First + place, first, mask=inside)
            tl.store(Second + place, second, mask=inside)
            tl.store(mark, step)
            move = first * one / (tl.sqrt(second * two) + eps)
        weight -= lr * move
        tl.store(W + place, weight.to(W.dtype.element_ty), mask=inside)
        if HAS_HALF:
            tl.store(Half + place, weight.to(Half.dtype.element_ty), mask=inside)
