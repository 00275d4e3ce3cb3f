"""Attention within short sentences on a GPU: the kernel beside PyTorch's, forward and backward, by length.

    python benchmarks/attention.py [--length 8 16 20 24 32 48 64] [--batch 64] [--heads 8] [--size 64]

From the packed projection [B, T, 3, heads, D] to the mixed values and back to the projection's gradient, in bfloat16,
as the Transformer's block has it: "short" is ops.short_attention, "sdpa" PyTorch's attention with the layouts that it
wants, "compiled sdpa" the same through torch.compile. Each is a CUDA graph, so that launches by the host do not count,
over several sets of tensors; those of short sentences fit into the GPU's cache together, as they would in a model. The
limit is what must be read and written, once, at 4.8 TB/s. Nobody is timed who is further from float64 than PyTorch's
attention in bfloat16 would explain. Rows: benchmarks/results/attention.csv.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import triton
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from device_attention import plain
from device_sums import SLACK, distance
from rows import append

from selfnorm.bench.machine import timed
from selfnorm.ops import short_attention

BANDWIDTH = 4.8e9  # bytes in a millisecond: of an H200's memory
SETS = 8
Attention = Callable[[Tensor], Tensor]


def both(attend: Attention, three: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    mixed = attend(three)
    return mixed.detach(), torch.autograd.grad(mixed, three, grad)[0]


def forward(attend: Attention, three: Tensor, grad: Tensor) -> Tensor:
    with torch.no_grad():
        return attend(three)


def agree(attend: Attention, three: Tensor, grad: Tensor) -> bool:
    """About as near to float64 as plain in the same dtype."""
    truth = both(plain, three.detach().double().requires_grad_(), grad.double())
    allowed = [1.5 * distance(found, true) + SLACK["bfloat16"] for found, true in zip(both(plain, three, grad), truth)]
    ours = [distance(found, true) for found, true in zip(both(attend, three, grad), truth)]
    return all(each <= most for each, most in zip(ours, allowed))


def measure(name: str, attend: Attention, shape: tuple[int, int, int, int]) -> list[dict[str, object]]:
    batch, length, heads, size = shape
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(1)
    draw = partial(torch.randn, generator=generator, device=device, dtype=torch.bfloat16)
    sets = [
        (draw(batch, length, 3, heads, size).requires_grad_(), draw(batch, length, heads * size)) for _ in range(SETS)
    ]
    if not agree(attend, *sets[0]):
        raise RuntimeError("too far from float64")
    found = []
    moved = sets[0][1].numel() * 2  # bytes of one of query, key, value, mixed
    for passes, work, parts in (("forward", forward, 4), ("both", both, 4 + 7)):  # backward: 3 + 1 read, 3 written
        timing = timed([partial(work, attend, *each) for each in sets], device)
        limit = parts * moved / BANDWIDTH
        row = {"impl": name, "pass": passes, "B": batch, "T": length, "heads": heads, "D": size, "dtype": "bfloat16"}
        row |= {"ms": round(timing.ms, 5), "limit_ms": round(limit, 5), "ratio": round(timing.ms / limit, 2)}
        row |= {"graph": not timing.eager, "machine": torch.cuda.get_device_name()}
        found.append(row | {"torch": torch.__version__, "triton": triton.__version__})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, nargs="+", default=[8, 16, 20, 24, 32, 48, 64])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--size", type=int, default=64)
    options = parser.parse_args()
    for length in options.length:
        torch._dynamo.reset()  # each length for itself
        impls = {"short": short_attention, "sdpa": plain, "compiled sdpa": torch.compile(plain, dynamic=False)}
        for name, attend in impls.items():
            try:
                rows = measure(name, attend, (options.batch, length, options.heads, options.size))
            except RuntimeError as error:  # one that fails is two rows less
                print(length, name, "failed:", str(error).splitlines()[0], flush=True)
                continue
            for row in rows:
                print(row, flush=True)
            append("attention", rows)


if __name__ == "__main__":
    main()
