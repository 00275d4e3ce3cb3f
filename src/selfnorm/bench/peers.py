"""Full softmax as others compute it: the loss of hidden [N, H] under the whole table, each with the casts it needs.

The table is float32, as its optimizer wants it; products are in bfloat16 on a GPU, so every one of them casts it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # hidden, weight, targets, bias -> the mean


@dataclass(frozen=True)
class Peer:
    """How to get at the loss (an ImportError where it is not installed), and what is to be known of it."""

    name: str
    find: Callable[[], Loss]
    gpu: bool = False  # only there
    slow: bool = False  # to get ready: takes part only when it is asked for
    capture: bool = True  # False: it asks the GPU for a number, which no graph can hold
    biased: bool = True  # False: it takes no bias
    note: str = ""


def autocast(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
    """What most people write; the softmax is in float32."""
    half = hidden.dtype == torch.bfloat16
    with torch.autocast(hidden.device.type, torch.bfloat16, enabled=half, cache_enabled=False):
        return F.cross_entropy(F.linear(hidden, weight, bias), targets)


def half(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
    """Logits and their softmax stay in the dtype of `hidden`."""
    return F.cross_entropy(F.linear(hidden, weight.to(hidden.dtype), bias.to(hidden.dtype)), targets)


def _compiled() -> Loss:
    torch._dynamo.reset()  # a new shape is a new program, and there is a limit on those of one function
    return torch.compile(autocast, dynamic=False)


def _torch_fused() -> Loss:
    found: Any = getattr(F, "linear_cross_entropy", None)
    if found is None:
        raise ImportError(f"torch {torch.__version__} has none")

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
        return found(hidden, weight.to(hidden.dtype), targets, linear_bias=bias.to(hidden.dtype))

    return loss


def _cut() -> Loss:
    found: Any = import_module("cut_cross_entropy").linear_cross_entropy

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
        return found(hidden, weight.to(hidden.dtype), targets)

    return loss


def _liger() -> Loss:
    found: Any = import_module("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss()

    def loss(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
        return found(weight.to(hidden.dtype), hidden, targets, bias.to(hidden.dtype))

    return loss


CUT = "has no bias, and drops gradients below 2.4e-4"
PEERS = {
    peer.name: peer
    for peer in (
        Peer("torch", lambda: autocast),
        Peer("torch bf16", lambda: half, gpu=True, note="its softmax is in bfloat16"),
        Peer("torch.compile", _compiled, slow=True),
        Peer("linear_cross_entropy", _torch_fused),
        Peer("cut-cross-entropy", _cut, gpu=True, capture=False, biased=False, note=CUT),
        Peer("Liger", _liger, gpu=True, capture=False),
    )
}


def here(gpu: bool, slow: bool = False) -> list[str]:
    """Those that can take part on such a machine; the slow ones when they are asked for."""
    return [name for name, peer in PEERS.items() if (gpu or not peer.gpu) and (slow or not peer.slow)]
