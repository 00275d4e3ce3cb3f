"""The draw of samplers/systematic.py from log-uniform noise, in one Triton kernel; float64 as there."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _expected(ids, rate, log_total, sure: tl.constexpr):
    prob = tl.log(1.0 + 1.0 / (ids.to(tl.float64) + 1.0)) / log_total * rate
    return tl.where(prob >= sure, 1.0, prob)


@triton.jit
def _draw(Uniform, Targets, Numbers, Ids, Expected, ExpectedTargets, G, N, SURE: tl.constexpr, K: tl.constexpr, C: tl.constexpr, ALWAYS: tl.constexpr, BK: tl.constexpr):  # noqa: E501  # fmt: skip
    before, rate, log_total = tl.load(Numbers), tl.load(Numbers + 1), tl.load(Numbers + 2)
    i = tl.program_id(0) * BK + tl.arange(0, BK)
    here = i < G * K
    k = i % K
    u = tl.load(Uniform + i // K, mask=here, other=0.0)
    point = before + (u + (k - SURE).to(tl.float64)) / rate
    drawn = tl.exp(point * log_total).to(tl.int64) - 1
    drawn = tl.minimum(tl.maximum(drawn, 0), C - 1)
    ids = tl.where(k < SURE, k.to(tl.int64), drawn)
    tl.store(Ids + i, ids, mask=here)
    tl.store(Expected + i, _expected(ids, rate, log_total, ALWAYS), mask=here)
    there = i < N
    target = tl.load(Targets + i, mask=there, other=0)
    tl.store(ExpectedTargets + i, _expected(target, rate, log_total, ALWAYS), mask=there)


def systematic(
    uniform: Tensor, targets: Tensor, numbers: Tensor, sure: int, k: int, size: int, always: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [G, K], their expected counts, and the targets'; numbers: noise before the tail, lambda, log(C + 1)."""
    groups, n = len(uniform), len(targets)
    ids = torch.empty(groups, k, dtype=torch.int64, device=targets.device)
    expected, of_targets = torch.empty_like(ids, dtype=torch.float64), torch.empty_like(targets, dtype=torch.float64)
    _draw[(triton.cdiv(max(groups * k, n), 128),)](
        uniform, targets, numbers, ids, expected, of_targets, groups, n, SURE=sure, K=k, C=size, ALWAYS=always, BK=128
    )
    return ids, expected, of_targets
