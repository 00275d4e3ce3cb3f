"""Sums over some or all words; this file chooses who computes them.

`output.impl` says who: "plain" (plain.py, PyTorch), "fused" (Triton: fused.py, and own.py where each position has its
own samples; an error where it cannot run) or "auto": fused on a GPU where the products are in bfloat16 and positions
share their draw, if the logits fit into `most`.
The sums come with the logits of the targets: where both are computed at once, a target that was drawn costs nothing.
"""

import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfnorm.ops import halves, own, plain
from selfnorm.ops.attention import LONGEST, SIZES, short_attention
from selfnorm.ops.plain import MOST, Drawn, Function, Table, dot, product, softplus
from selfnorm.ops.rows import NOWHERE, Piece, expect, fresh_half, keep_half, take, waiting
from selfnorm.ops.updates import ADAGRAD, ADAM, SGD, FusedRows, PlainRows, Rule, Scalars, catch_up, sort, stretches

IMPLS = dict.fromkeys(("auto", "plain", "fused"))
OLDEST = (3, 6)  # Triton that the kernels were tried with

__all__ = [
    "ADAGRAD",
    "ADAM",
    "IMPLS",
    "MOST",
    "NOWHERE",
    "SGD",
    "Piece",
    "Rule",
    "Scalars",
    "Table",
    "catch_up",
    "dot",
    "exp_sum",
    "expect",
    "fresh_half",
    "has_triton",
    "is_short",
    "keep_half",
    "log_sum_exp",
    "log_z",
    "move_halves",
    "product",
    "short_attention",
    "softplus",
    "softplus_sum",
    "stretches",
    "systematic",
    "take",
    "touched_rows",
]


def softplus_sum(
    hidden: Tensor, output: Table, sample: Drawn | None, targets: Tensor, most: int = MOST, **options: Any
) -> tuple[Tensor, Tensor]:
    """The targets' logits [N], and sum_k scale_k softplus(logit_nk - shift_k) [N]"""
    return _both("softplus_sum", hidden, output, sample, targets, most, options)


def exp_sum(
    hidden: Tensor, output: Table, sample: Drawn | None, targets: Tensor, most: int = MOST, **options: Any
) -> tuple[Tensor, Tensor]:
    """The targets' logits [N], and sum_k scale_k exp(logit_nk - shift_k), exp continued by its tangent [N]"""
    return _both("exp_sum", hidden, output, sample, targets, most, options)


def log_sum_exp(
    hidden: Tensor, output: Table, sample: Drawn | None, targets: Tensor, most: int = MOST, **options: Any
) -> tuple[Tensor, Tensor]:
    """The targets' logits [N], and log sum_k exp(logit_nk - shift_k) [N]"""
    return _both("log_sum_exp", hidden, output, sample, targets, most, options)


def log_z(hidden: Tensor, output: Table, link: Function, *, most: int = MOST) -> Tensor:
    """log sum_c exp(link(logit_nc)) over every word -> [N]"""
    impl = getattr(output, "impl", "auto")
    tensors = (hidden, output.weight, output.bias)
    followed = torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
    if impl == "plain" or followed or not len(hidden) or not _runs(hidden):  # the kernel has no gradient
        return plain.log_z(hidden, output, link, most=most)
    from selfnorm.ops import columns, fused

    kind = columns.LOG_SIGMOIDS if link is F.logsigmoid else columns.LOG_SUM
    return fused.log_z(hidden, output.weight, output.bias, kind, most)


def touched_rows(tables: list[list[Piece]]) -> list[PlainRows | FusedRows]:
    """The touched rows of each table, from the pieces of its gradient; tables touched by the same ids share a sort."""
    found: list[PlainRows | FusedRows] = []
    orders: dict[int, tuple[Tensor, Tensor]] = {}
    for pieces in tables:
        ids = pieces[0].ids
        if ids.device.type != "cuda" or not has_triton():
            found.append(PlainRows(pieces))
            continue
        if len(pieces) == 1 and id(ids) not in orders:
            orders[id(ids)] = sort(pieces[0])
        found.append(FusedRows(pieces, orders.get(id(ids)) if len(pieces) == 1 else None))
    return found


def systematic(
    uniform: Tensor, targets: Tensor, numbers: tuple[float, float, float], sure: int, k: int, size: int, always: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """A systematic draw from log-uniform noise in one kernel (ops/draws.py); None where there is no such kernel."""
    if targets.device.type != "cuda" or torch.compiler.is_compiling() or not has_triton():
        return None
    from selfnorm.ops import draws

    return draws.systematic(uniform, targets.contiguous(), _kept(numbers, targets.device), sure, k, size, always)


def move_halves(weights: Tensor, *given: Any) -> None:
    """One step of Adam; see halves.py"""
    on_gpu = weights.device.type == "cuda" and has_triton()
    (halves.fused if on_gpu else halves.plain)(weights, *given)


def is_short(three: Tensor) -> bool:
    """Whether `short_attention` is for these [B, T, 3, heads, D]: on a GPU, in half precision, few positions."""
    if three.device.type != "cuda" or three.dtype not in (torch.bfloat16, torch.float16):
        return False
    return 0 < three.shape[1] <= LONGEST and three.shape[4] in SIZES and _has_products(three.device)


def _has_products(device: torch.device) -> bool:
    return has_triton() and torch.cuda.get_device_capability(device) >= (8, 0)


# torch.compiler.assume_constant_result, which would import the compiler, a second, for everybody: a model that is
# compiled asks once, and does not look into Triton
_has_products._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _kept(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """On the device once and for all: to bring them there at every step would wait for the host."""
    return torch.tensor(numbers, dtype=torch.float64, device=device)


def _both(
    name: str,
    hidden: Tensor,
    output: Table,
    sample: Drawn | None,
    targets: Tensor,
    most: int,
    options: dict[str, Any],
) -> tuple[Tensor, Tensor]:
    is_fused = _is_fused(hidden, output, sample, most)
    if sample is not None and sample.bounds is None:
        logits: Callable[..., Tensor] | None = None
        few = plain.FEW * sample.ids.shape[1] < len(output.weight)
        used = getattr(output, "sparse", False) and not hasattr(output.weight, "shards") and torch.is_grad_enabled()
        if is_fused or few or (used and torch.compiler.is_compiling()):
            logits = partial(_own_logits, is_fused)
        elif used and (hidden.device.type == "cpu" or waiting(output.weight) is None):  # else to count them would wait
            logits = plain.used_logits
        if logits is not None:
            both = torch.cat([targets[:, None], sample.ids], 1)  # together, so that a table has one gradient of both
            output = plain.Known(output, logits(hidden, output, both, most))
    elif is_fused:
        from selfnorm.ops import fused

        return getattr(fused, name)(hidden, output, sample, targets, most=most, **options)
    elif sample is not None and _is_dense(output):
        output = plain.Taken(output, sample, targets)
    return output.logit(hidden, targets), getattr(plain, name)(hidden, output, sample, targets, most=most, **options)


def _own_logits(is_fused: bool, hidden: Tensor, output: Table, ids: Tensor, most: int) -> Tensor:
    """Of ids that each position has to itself."""
    if is_fused:
        from selfnorm.ops import fused

        return own.own_logits(fused.cast(hidden), output, ids.to(torch.int32), fused=True)
    if hidden.device.type == "cpu" and not torch.compiler.is_compiling() and not hasattr(output.weight, "shards"):
        return own.own_logits(hidden, output, ids, fused=False)
    return plain.own_logits(hidden, output, ids, most)


def _is_dense(output: Table) -> bool:
    """Whether a gradient of the table has all its rows, here."""
    return not getattr(output, "sparse", False) and getattr(output.weight, "shards", None) is None


def _is_fused(hidden: Tensor, output: Table, sample: Drawn | None, most: int) -> bool:
    impl = getattr(output, "impl", "auto")
    if impl == "plain" or not len(hidden):
        return False
    if sample is None:
        able, fits = not getattr(output, "sparse", False), True
    else:
        able, fits = True, sample.bounds is not None and len(hidden) * sample.ids.shape[1] <= most
    if impl == "fused":
        if not able:
            raise ValueError("impl = 'fused' is for dense gradients of every word; take 'auto', or sparse = False")
        if not has_triton() or (hidden.device.type != "cuda" and not _interpreted()):
            raise ValueError("impl = 'fused' needs a GPU and Triton 3.6 or newer; take impl = 'auto'")
        return True
    return able and fits and _runs(hidden)


def _runs(hidden: Tensor) -> bool:
    """Whether the kernels are the faster way here: on a GPU, in bfloat16, outside of torch.compile."""
    if hidden.device.type != "cuda" or torch.compiler.is_compiling():
        return False
    half = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else hidden.dtype
    return half == torch.bfloat16 and _usable(hidden.device)


@cache
def _usable(device: torch.device) -> bool:
    if torch.cuda.get_device_capability(device) < (8, 0):
        warnings.warn("this GPU has no bfloat16 products; the plain sums are used", stacklevel=2)
        return False
    if not has_triton():
        warnings.warn("there is no Triton 3.6 or newer; the plain sums are used", stacklevel=2)
        return False
    return True


@cache
def has_triton() -> bool:
    try:
        import triton
    except ImportError:
        return False
    return tuple(map(int, triton.__version__.split(".")[:2])) >= OLDEST


def _interpreted() -> bool:
    from selfnorm.ops import columns

    return columns.INTERPRETED
