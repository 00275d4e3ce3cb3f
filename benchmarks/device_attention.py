"""Cases for device_checks.py: attention within short sentences, alone and in a compiled block of the Transformer."""

import math
from collections.abc import Iterator
from copy import deepcopy
from functools import partial

import torch
import torch.nn.functional as F
from device_sums import PLACE, Found, Values, compared, judged
from torch import Tensor

from selfnorm.models import transformer
from selfnorm.ops import is_short, short_attention

HALVES = {"bfloat16": torch.bfloat16, "float16": torch.float16}  # that the kernel is for
KINDS = HALVES | {"float32": torch.float32, "float64": torch.float64}
LENGTHS = (20, 7, 33, 64, 1, 70, 21, 16)  # the compiler takes the first as it is, then any; one is too long


def plain(three: Tensor) -> Tensor:
    """As the Transformer's block has it without the kernel."""
    query, key, value = (part.transpose(1, 2) for part in three.unbind(2))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


def attention(small: bool, shape: tuple[int, int, int, int], dtype: str) -> Iterator[Found]:
    """Mixed values and gradients; what comes after a position leaves it as it is, to the bit."""
    batch, length, heads, size = shape
    generator = torch.Generator().manual_seed(length * size)
    given = 1.5 * torch.randn(batch, length, 3, heads, size, generator=generator)
    grads = torch.randn(batch, length, heads * size, generator=generator)
    given, grads = (each.to(PLACE, KINDS[dtype]) for each in (given, grads))

    def run(impl: str, wanted: str) -> Values:
        three = given.to(KINDS[wanted]).requires_grad_()
        mixed = (short_attention if impl == "fused" else plain)(three)
        (back,) = torch.autograd.grad(mixed, three, grads.to(mixed.dtype))
        apart = dict(zip(("query", "key", "value"), back.unbind(2))) if length > 1 else {}  # of one: two are 0
        return {"mixed": mixed.detach(), "three": back} | apart

    yield compared(f"attention {shape}", run, dtype)
    seen, later = length // 2, given.clone()
    later[:, seen:] = 3.0
    same = torch.equal(short_attention(later)[:, :seen], short_attention(given)[:, :seen])
    yield judged(f"causal {shape} {dtype}", {"earlier positions": 0.0 if same else math.inf})


def compiled(small: bool, keep: bool, dtype: str) -> Iterator[Found]:
    """A compiled block, for one length after the other, and the same block as it is, without the kernel."""
    torch.manual_seed(1)
    width = 32 if small else 512
    block = transformer.Block(width, 4 * width, 2 if small else 8, 0.0, "gelu", scale=1.0).to(PLACE)
    exact, run = deepcopy(block).double(), torch.compile(block, fullgraph=True)
    head = width // block.heads

    def through(impl: str, wanted: str, length: int) -> Values:
        hidden = torch.randn(16, length, width, generator=torch.Generator().manual_seed(length)).to(KINDS[dtype])
        hidden = hidden.to(PLACE, KINDS[wanted]).requires_grad_()
        past = torch.empty(16, 0, 2, block.heads, head, device=PLACE)
        work = exact if wanted == "float64" else run if impl == "fused" else block
        transformer.is_short = is_short if impl == "fused" else lambda three: False
        with torch.autocast(PLACE, KINDS[dtype], enabled=wanted in HALVES):
            after, new = work(hidden, past, None, None, keep)
        transformer.is_short = is_short
        loss = after.to(torch.promote_types(after.dtype, torch.float32)).square().sum()
        loss = loss + (new.to(loss.dtype).square().sum() if keep else 0.0)
        given = {"inputs": hidden} | dict((exact if wanted == "float64" else block).named_parameters())
        return {"after": after.detach()} | dict(zip(given, torch.autograd.grad(loss, list(given.values()))))

    for length in LENGTHS:
        chosen = is_short(torch.empty(16, length, 3, block.heads, head, device=PLACE, dtype=KINDS[dtype]))
        name = f"block of {length} positions, keys and values kept: {keep},"
        yield compared(name, partial(through, length=length), dtype)
        yield judged(f"{name} {dtype}", {"the choice": 0.0 if chosen == (length <= 64) else math.inf})
