"""Sums over some or all words, in PyTorch: the definition that every faster version is judged by.

`sample` holds the ids: one row for each group of positions, or one for each position; None stands for every word once.
With `skip`, ids equal to the target (every copy) count nothing. Logits are made by a matrix product in the dtype of
`hidden` and are float32 (float64 for float64) from there on. At most `most` of them exist at a time: larger work is
cut by positions, and the backward pass computes each cut again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MOST = 1 << 26  # logits in memory at a time: 256 MiB in float32
FEW = 64  # times K: where the vocabulary is larger, K rows of a position's own cost less than every logit
ABSENT = -1e30  # stands for -inf: a sum of nothing has no gradient

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


class Taken:
    """A table whose rows for targets and samples are taken at once: a dense gradient of all rows is made once."""

    def __init__(self, output: Table, sample: "Drawn", targets: Tensor) -> None:
        self.weight, self.bias = output.weight, output.bias
        self.number, self.shape = len(targets), sample.ids.shape
        self.taken, self.taken_bias = output.rows(torch.cat([targets, sample.ids.reshape(-1)]))

    def rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Those of the samples."""
        rows, bias = self.taken[self.number :], self.taken_bias
        return rows.view(*self.shape, *rows.shape[1:]), None if bias is None else bias[self.number :].view(self.shape)

    def logit(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Those of the targets."""
        return dot(
            hidden, self.taken[: self.number], None if self.taken_bias is None else self.taken_bias[: self.number]
        )


class Known:
    """A table whose logits are there: of targets and, beside them, of each position's own samples [N, 1 + K]."""

    def __init__(self, output: Table, logits: Tensor) -> None:
        self.weight, self.bias, self.logits = output.weight, output.bias, logits

    def rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        raise AssertionError("nobody needs rows to logits that are known")

    def logit(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Those of the targets."""
        return self.logits[:, 0]


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


def dot(hidden: Tensor, rows: Tensor, bias: Tensor | None) -> Tensor:
    """w_c . h + b_c, a row for each hidden vector"""
    logit = (wide(hidden) * wide(rows)).sum(-1)
    return logit if bias is None else logit + wide(bias)


class _Sum(torch.autograd.Function):
    """sum_k scale_k function(logit_nk - shift_k), in one buffer forward and one backward.

    Autograd's own would make six of [n, K], and filling fresh memory is what costs here.
    """

    @staticmethod
    def forward(
        ctx: Any, logit: Tensor, shift: Tensor | None, scale: Tensor | None, blank: Function, kind: "_Kind"
    ) -> Tensor:
        ctx.save_for_backward(logit, shift, scale)
        ctx.blank, ctx.slope = blank, kind.slope
        terms = kind.value(logit if shift is None else logit - shift)
        return blank(terms if scale is None else terms.mul_(scale)).sum(-1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        logit, shift, scale = ctx.saved_tensors
        times = Tensor.mul if torch.is_grad_enabled() else Tensor.mul_  # a second derivative needs the slope itself
        slope = times(ctx.slope(logit if shift is None else logit - shift), grads[0][:, None])
        return ctx.blank(slope if scale is None else times(slope, scale)), None, None, None, None


class _Kind(NamedTuple):
    """A function of the logit and its derivative; both give a tensor of their own."""

    value: Function
    slope: Function


def weighted_sum(
    kind: _Kind,
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
    """sum_k scale_k value(logit_nk - shift_k) -> [N]"""

    def reduce(logit: Tensor, part: slice, row: Row) -> Tensor:
        here = (None if each is None else each[row].to(logit.dtype) for each in (shift, scale))
        return _Sum.apply(logit, *here, partial(_blank, 0.0, sample, targets[part], row, skip), kind)

    return _by_parts(reduce, hidden, output, sample, most)


softplus_sum = partial(weighted_sum, _Kind(softplus, torch.sigmoid))
exp_sum = partial(weighted_sum, _Kind(bounded_exp, lambda x: x.clamp(max=0).exp_()))


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
        terms = terms.clone() if skip and shift is None else terms  # not the logits themselves
        return _blank(ABSENT, sample, targets[part], row, skip, terms).logsumexp(-1)

    return _by_parts(reduce, hidden, output, sample, most)


def log_z(hidden: Tensor, output: Table, link: Function, *, most: int = MOST) -> Tensor:
    """log sum_c exp(link(logit_nc)) over every word -> [N]"""
    return _by_parts(lambda logit, part, row: link(logit).logsumexp(-1), hidden, output, None, most)


def own_logits(hidden: Tensor, output: Table, ids: Tensor, most: int = MOST) -> Tensor:
    """Those of ids [N, K] that each position has to itself, from their rows; `most` numbers of these at a time."""

    def block(hidden: Tensor, ids: Tensor) -> Tensor:
        rows, bias = output.rows(ids)
        kind = torch.promote_types(wide(rows).dtype, wide(hidden).dtype)
        with torch.autocast(hidden.device.type, enabled=False):
            logit = (rows.to(kind) @ hidden.to(kind)[:, :, None])[:, :, 0]
        return logit if bias is None else logit + wide(bias)

    return _blocks(block, ids.shape[1] * hidden.shape[1], most, hidden, ids)


def used_logits(hidden: Tensor, output: Table, ids: Tensor, most: int = MOST) -> Tensor:
    """The same by products with all rows that are used, each taken once: for many ids of few words."""
    used = torch.zeros(len(output.weight), dtype=torch.bool, device=ids.device).index_fill_(0, ids.reshape(-1), True)
    places = (used.cumsum(0) - 1)[ids]  # unique() would sort all ids
    rows, bias = output.rows(used.nonzero()[:, 0])

    def block(hidden: Tensor, places: Tensor) -> Tensor:
        return product(hidden, rows, bias).gather(1, places)

    return _blocks(block, len(rows), most, hidden, places)


def _blocks(block: Callable[..., Tensor], numbers: int, most: int, *given: Tensor) -> Tensor:
    """Some positions at a time, so that `most` numbers are in memory where each position takes `numbers` of them."""
    again = torch.is_grad_enabled() and len(given[0]) * numbers > most
    compute = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False) if again else block
    parts = (each.split(max(1, most // max(1, numbers))) for each in given)
    return torch.cat([compute(*part) for part in zip(*parts)])


def product(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Every logit of these rows: [n, K]"""
    weight = weight.to(hidden.dtype)
    if hidden.dtype in (torch.float32, torch.float64) and not torch.is_autocast_enabled(hidden.device.type):
        return F.linear(hidden, weight, None if bias is None else bias.to(hidden.dtype))  # one pass less
    logit = wide(hidden @ weight.T)
    return logit if bias is None else logit + wide(bias)  # a bias in half precision would be off by 1 %


class _Run(NamedTuple):
    """Positions `first` to `last`, how to make their logits, the rows these are made of, and `numbers` for each."""

    first: int
    last: int
    group: int | None  # the row of ids they share; None: each has its own
    logits: Callable[[Tensor, Tensor, Tensor | None, slice], Tensor]
    weight: Tensor
    bias: Tensor | None
    numbers: int


def _by_parts(
    reduce: Callable[[Tensor, slice, Row], Tensor], hidden: Tensor, output: Table, sample: Drawn | None, most: int
) -> Tensor:
    """Walk over the runs of positions, each cut so that at most `most` numbers are in memory."""
    runs = list(_runs(hidden, output, sample))
    again = torch.is_grad_enabled() and sum((run.last - run.first) * run.numbers for run in runs) > most
    sums: list[Tensor] = []
    for run in runs:

        def block(
            hidden: Tensor, weight: Tensor, bias: Tensor | None, part: slice, row: Row, run: _Run = run
        ) -> Tensor:
            return reduce(run.logits(hidden, weight, bias, part), part, row)

        compute = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False) if again else block
        length = max(1, most // max(1, run.numbers))  # a rank without positions may have no row at all
        for start in range(run.first, run.last, length):
            part = slice(start, min(start + length, run.last))
            sums.append(compute(hidden[part], run.weight, run.bias, part, part if run.group is None else run.group))
    return torch.cat(sums) if sums else wide(hidden).sum(-1)


def _runs(hidden: Tensor, output: Table, sample: Drawn | None) -> Iterator[_Run]:
    def every(hidden: Tensor, weight: Tensor, bias: Tensor | None, part: slice) -> Tensor:
        return product(hidden, weight, bias)

    if sample is not None and sample.bounds is not None:
        weights, biases = output.rows(sample.ids)  # [G, K, H], [G, K]: taken once, so one gradient comes back
        for group, (first, last) in enumerate(pairwise(sample.bounds)):
            bias = None if biases is None else biases[group]
            yield _Run(first, last, group, every, weights[group], bias, sample.ids.shape[1])
    elif sample is None:
        yield _Run(0, len(hidden), None, every, *output.rows(None), len(output.weight))
    elif isinstance(output, Known):
        there = output.logits[:, 1:]
        yield _Run(0, len(hidden), None, lambda *given: there[given[-1]], output.weight, output.bias, there.shape[1])
    else:
        ids = sample.ids

        def chosen(hidden: Tensor, weight: Tensor, bias: Tensor | None, part: slice) -> Tensor:
            return product(hidden, weight, bias).gather(1, ids[part])

        yield _Run(0, len(hidden), None, chosen, *output.rows(None), len(output.weight))


def _blank(nothing: float, sample: Drawn | None, targets: Tensor, row: Row, skip: bool, terms: Tensor) -> Tensor:
    """The terms that do not count at a position become `nothing`, in place."""
    if sample is None:
        return terms.scatter_(1, targets[:, None], nothing) if skip else terms
    absent = sample.absent(targets, row, skip)
    return terms if absent is None else terms.masked_fill_(absent, nothing)
