"""Sums over some or all words, in PyTorch: the definition that every faster version is judged by.

`sample` holds the ids: one row for each group of positions, or one for each position; None stands for every word once.
With `skip`, ids equal to the target (every copy) count nothing. Logits are made by a matrix product in the dtype of
`hidden` and are float32 (float64 for float64) from there on. At most `most` of them exist at a time: larger work is
cut by positions, and the backward pass computes each cut again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MOST = 1 << 26  # logits in memory at a time: 256 MiB in float32
ABSENT = -1e30  # stands for -inf, whose gradients would be nan

Function = Callable[[Tensor], Tensor]
Row = int | slice  # where the ids of some positions stand: a group's row, or one row for each position


class Table(Protocol):
    """An output layer: `weight` [C, H], `bias` [C] or None, and how to take rows of both (None: every row)."""

    @property
    def weight(self) -> Tensor: ...
    @property
    def bias(self) -> Tensor | None: ...
    def rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None]: ...
    def logit(self, hidden: Tensor, ids: Tensor) -> Tensor: ...


class Drawn(Protocol):
    """The part of a Sample that says which ids count where."""

    @property
    def ids(self) -> Tensor: ...
    @property
    def bounds(self) -> tuple[int, ...] | None: ...
    def absent(self, targets: Tensor, row: Row, skip: bool) -> Tensor | None: ...


def softplus(x: Tensor) -> Tensor:
    return F.softplus(x, threshold=40)  # PyTorch's 20 is not exact in float64


def bounded_exp(x: Tensor) -> Tensor:
    """exp(x), continued by its tangent 1 + x above 0."""
    return torch.where(x > 0, 1 + x, x.clamp(max=0).exp())


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def weighted_sum(
    function: Function,
    hidden: Tensor,
    output: Table,
    sample: Drawn | None,
    targets: Tensor,
    *,
    shift: Tensor | None = None,
    scale: Tensor | None = None,
    skip: bool = False,
    most: int = MOST,
) -> Tensor:
    """sum_k scale_k function(logit_nk - shift_k) -> [N]"""

    def reduce(logit: Tensor, part: slice, row: Row) -> Tensor:
        terms = function(logit if shift is None else logit - shift[row].to(logit.dtype))
        terms = terms if scale is None else terms * scale[row].to(logit.dtype)
        return _without(terms, 0.0, sample, targets[part], row, skip).sum(-1)

    return _by_parts(reduce, hidden, output, sample, most)


softplus_sum = partial(weighted_sum, softplus)
exp_sum = partial(weighted_sum, bounded_exp)


def log_sum_exp(
    hidden: Tensor,
    output: Table,
    sample: Drawn | None,
    targets: Tensor,
    *,
    shift: Tensor | None = None,
    skip: bool = False,
    most: int = MOST,
) -> Tensor:
    """log sum_k exp(logit_nk - shift_k) -> [N]"""

    def reduce(logit: Tensor, part: slice, row: Row) -> Tensor:
        terms = logit if shift is None else logit - shift[row].to(logit.dtype)
        return _without(terms, ABSENT, sample, targets[part], row, skip).logsumexp(-1)

    return _by_parts(reduce, hidden, output, sample, most)


def log_z(hidden: Tensor, output: Table, link: Function, *, most: int = MOST) -> Tensor:
    """log sum_c exp(link(logit_nc)) over every word -> [N]"""
    return _by_parts(lambda logit, part, row: link(logit).logsumexp(-1), hidden, output, None, most)


def product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Every logit of these rows: [n, K]"""
    weight = weight.to(hidden.dtype)
    if hidden.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(hidden.device.type):
        return F.linear(hidden, weight, None if bias is None else bias.to(hidden.dtype))  # one pass less
    logit = wide(hidden @ weight.T)
    return logit if bias is None else logit + wide(bias)  # a bias in half precision would be off by 1 %


class _Run(NamedTuple):
    """Positions `first` to `last` share row `group` of the ids (None: each its own); each needs `numbers` of memory."""

    first: int
    last: int
    group: int | None
    weight: Tensor
    bias: Tensor | None
    numbers: int


def _by_parts(
    reduce: Callable[[Tensor, slice, Row], Tensor], hidden: Tensor, output: Table, sample: Drawn | None, most: int
) -> Tensor:
    own = None if sample is None or sample.bounds is not None else sample.ids
    few = own is not None and own.numel() < len(output.weight)  # else every logit costs less than N x K rows

    def block(hidden: Tensor, weight: Tensor, bias: Tensor | None, part: slice, row: Row) -> Tensor:
        if own is None:
            logit = product(hidden, weight, bias)
        elif few:
            logit = output.logit(hidden[:, None], own[part])
        else:
            logit = product(hidden, weight, bias).gather(1, own[part])
        return reduce(logit, part, row)

    sums: list[Tensor] = []
    for run in _runs(hidden, output, sample, few):
        length = max(1, most // run.numbers)
        again = torch.is_grad_enabled() and run.last - run.first > length
        compute = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False) if again else block
        for start in range(run.first, run.last, length):
            part = slice(start, min(start + length, run.last))
            sums.append(compute(hidden[part], run.weight, run.bias, part, part if run.group is None else run.group))
    return torch.cat(sums) if sums else wide(hidden).sum(-1)


def _runs(hidden: Tensor, output: Table, sample: Drawn | None, few: bool) -> Iterator[_Run]:
    if sample is None or sample.bounds is None:
        numbers = hidden.shape[1] * sample.ids.shape[1] if sample is not None and few else len(output.weight)
        yield _Run(0, len(hidden), None, *output.rows(None), numbers)
    else:
        for group, (first, last) in enumerate(pairwise(sample.bounds)):
            if first < last:
                yield _Run(first, last, group, *output.rows(sample.ids[group]), sample.ids.shape[1])


def _without(terms: Tensor, nothing: float, sample: Drawn | None, targets: Tensor, row: Row, skip: bool) -> Tensor:
    """The terms that do not count at a position become `nothing`."""
    if sample is None:
        return terms.scatter(1, targets[:, None], nothing) if skip else terms
    absent = sample.absent(targets, row, skip)
    return terms if absent is None else terms.masked_fill(absent, nothing)
