"""Sums over some or all words; this file chooses who computes them.

`output.impl` says who: "plain" (plain.py, PyTorch), "fused" (fused.py, Triton; an error where it cannot run) or "auto":
fused on a GPU where the products are in bfloat16, the positions share their draw, the slopes fit into `most` and K is
large enough to pay for the launches.
"""

import warnings
from functools import cache
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfnorm.ops import plain
from selfnorm.ops.plain import MOST, Drawn, Function, Table, product, softplus, wide
from selfnorm.ops.rows import take

IMPLS = ("auto", "plain", "fused")
FEWEST = 512  # words of a draw from which the kernels are faster (benchmarks/sums.py)
OLDEST = (3, 6)  # Triton that the kernels were tried with

__all__ = [
    "IMPLS",
    "MOST",
    "Drawn",
    "Table",
    "exp_sum",
    "log_sum_exp",
    "log_z",
    "product",
    "softplus",
    "softplus_sum",
    "take",
    "wide",
]


def softplus_sum(
    hidden: Tensor, output: Table, sample: Drawn | None, targets: Tensor, most: int = MOST, **options: Any
) -> Tensor:
    """sum_k scale_k softplus(logit_nk - shift_k) -> [N]"""
    ops = _chosen(hidden, output, sample, most)
    return ops.softplus_sum(hidden, output, sample, targets, most=most, **options)


def exp_sum(
    hidden: Tensor, output: Table, sample: Drawn | None, targets: Tensor, most: int = MOST, **options: Any
) -> Tensor:
    """sum_k scale_k exp(logit_nk - shift_k), the exponential continued by its tangent -> [N]"""
    ops = _chosen(hidden, output, sample, most)
    return ops.exp_sum(hidden, output, sample, targets, most=most, **options)


def log_sum_exp(
    hidden: Tensor, output: Table, sample: Drawn | None, targets: Tensor, most: int = MOST, **options: Any
) -> Tensor:
    """log sum_k exp(logit_nk - shift_k) -> [N]"""
    ops = _chosen(hidden, output, sample, most)
    return ops.log_sum_exp(hidden, output, sample, targets, most=most, **options)


def log_z(hidden: Tensor, output: Table, link: Function, *, most: int = MOST) -> Tensor:
    """log sum_c exp(link(logit_nc)) over every word -> [N]"""
    impl = getattr(output, "impl", "auto")
    followed = torch.is_grad_enabled() and any(each.requires_grad for each in (hidden, output.weight))
    if impl == "plain" or followed or not _runs(hidden):  # the kernel has no gradient
        return plain.log_z(hidden, output, link, most=most)
    from selfnorm.ops import fused

    kind = fused.SIGMOIDS if link is F.logsigmoid else fused.WORDS
    return fused.log_z(hidden, output.weight, output.bias, kind)


def _chosen(hidden: Tensor, output: Table, sample: Drawn | None, most: int) -> ModuleType:
    impl = getattr(output, "impl", "auto")
    if impl == "plain":
        return plain
    shared = sample is not None and sample.bounds is not None
    if impl == "fused":
        if not shared:
            raise ValueError("impl = 'fused' is for draws that positions share; take impl = 'auto' for this criterion")
        if not _has_triton() or (hidden.device.type != "cuda" and not _interpreted()):
            raise ValueError("impl = 'fused' needs a GPU and Triton 3.6 or newer; take impl = 'auto'")
    elif not shared or not _runs(hidden) or not _fits(len(hidden), sample.ids.shape[1], most):  # type: ignore[union-attr]
        return plain
    from selfnorm.ops import fused

    return fused


def _fits(positions: int, k: int, most: int) -> bool:
    return k >= FEWEST and positions * k <= most


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
    if not _has_triton():
        warnings.warn("there is no Triton 3.6 or newer; the plain sums are used", stacklevel=2)
        return False
    return True


@cache
def _has_triton() -> bool:
    try:
        import triton
    except ImportError:
        return False
    return tuple(map(int, triton.__version__.split(".")[:2])) >= OLDEST


def _interpreted() -> bool:
    from selfnorm.ops import fused

    return fused.INTERPRETED
