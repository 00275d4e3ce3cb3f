"""Causal attention within short sentences: one kernel forward, one backward, each from memory to memory.

Queries, keys and values are read as one projection leaves them and their gradients are written as it wants them back:
nothing is transposed, copied or put together in between. For torch.compile both are operators that it does not look
into; Triton is not imported before one of them runs.
"""

from typing import Any

import torch
from torch import Tensor

LONGEST = 64  # positions: all scores of a head fit into one program's registers
SIZES = (16, 32, 64, 128)  # of a head; at least 16, as Triton's products want them


@torch.library.custom_op("selfnorm::short_attention", mutates_args=())
def short_attention(three: Tensor) -> Tensor:
    """Queries, keys and values [B, T, 3, heads, D] -> mixed values [B, T, heads * D]"""
    from selfnorm.ops.attention_kernels import attend

    three = three.contiguous()
    mixed = _mixed(three)
    attend[_grid(three)](three, mixed, *_sizes(three), **_options(three))
    return mixed


@torch.library.custom_op("selfnorm::short_attention_back", mutates_args=())
def _back(three: Tensor, grad: Tensor) -> Tensor:
    """The gradient of `three`, from that of the mixed values."""
    from selfnorm.ops.attention_kernels import attend_back

    three, grad = three.contiguous(), grad.contiguous()
    of_three = torch.empty_like(three)
    attend_back[_grid(three)](three, grad, of_three, *_sizes(three), **_options(three))
    return of_three


@short_attention.register_fake
def _mixed(three: Tensor) -> Tensor:
    """What comes out, not filled in."""
    batch, length, _, heads, size = three.shape
    return three.new_empty(batch, length, heads * size)


@_back.register_fake
def _(three: Tensor, grad: Tensor) -> Tensor:
    return torch.empty_like(three, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: Tensor) -> Tensor:
    return _back(*ctx.saved_tensors, grad)


short_attention.register_autograd(_differentiate, setup_context=_keep)


def _grid(three: Tensor) -> tuple[int]:
    return (three.shape[0] * three.shape[3],)


def _sizes(three: Tensor) -> tuple[int, int]:
    return three.shape[1], three.shape[3]


def _options(three: Tensor) -> dict[str, Any]:
    """What a kernel is compiled for: lengths share one in blocks of 16, 32 and 64."""
    length, size = three.shape[1], three.shape[4]
    if not 0 < length <= LONGEST or size not in SIZES:
        raise ValueError(f"{length} positions of {size} are not for this kernel: 1 to {LONGEST} of {SIZES}")
    block = max(16, 1 << (length - 1).bit_length())
    warps = 4 if block == 64 or block * size >= 4096 else 2  # with fewer, registers would not do
    return {"SCALE": size**-0.5, "BLOCK": block, "D": size, "num_warps": warps}
