"""Samples that each position has to itself, as recommenders draw them: ours beside PyTorch, on this machine.

    python benchmarks/own.py [--shape N K C H ...]

NCE with vectors in bfloat16 on a GPU, in float32 elsewhere, and a table in float32. "dense": the loss and its gradients
of vectors and table. "rows": the table's gradient holds touched rows alone, and Adam moves them. "fused" (on a GPU)
and "plain" are this library's; "torch" is what one writes by hand: F.embedding, a batched product, logsigmoid, and
SparseAdam for rows; "compiled" the same through torch.compile. On a GPU each is a CUDA graph where it can be one.

The limit is what must be read and written, at the rate of a copy in the same run: all samples' rows twice, and every
row of a dense gradient once. Nobody is timed whose loss or gradients are further from float64 than those of plain would
explain. Rows: benchmarks/results/own.csv.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
from device_sums import GPU, PLACE, SLACK, distance
from rows import append

from selfnorm.bench.machine import Limits, limits, name_of, set_free, timed
from selfnorm.functional import sampled_loss
from selfnorm.noise import LogUniform
from selfnorm.optim import RowAdam

DEVICE = torch.device(PLACE)
DTYPE = torch.bfloat16 if GPU else torch.float32
SETS = 4
SHAPES = [(450, 100, 30_000, 2048), (8192, 100, 30_000, 2048), (8192, 100, 1_000_000, 128), (8192, 20, 1_000_000, 128)]
ON_CPU = [(512, 100, 30_000, 512), (1024, 100, 100_000, 128), (4096, 20, 1_000_000, 64)]
Shape = tuple[int, int, int, int]  # N, K, C, H
Given = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # hidden, targets, samples, log E of samples and of targets
Loss = Callable[[Tensor, Given], Tensor]


def by_hand(weight: Tensor, given: Given, sparse: bool = False) -> Tensor:
    """NCE: -log sigmoid(s - log E) of the target, -log sigmoid(log E - s) of each sample."""
    hidden, targets, samples, shift, of_target = given
    rows = F.embedding(torch.cat([targets[:, None], samples], 1), weight, sparse=sparse).to(hidden.dtype)
    logits = torch.bmm(rows, hidden[:, :, None])[:, :, 0]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -(F.logsigmoid(logits[:, 0] - of_target) + F.logsigmoid(shift - logits[:, 1:]).sum(1)).mean()


def ours(impl: str, weight: Tensor, given: Given, sparse: bool = False) -> Tensor:
    hidden, targets, samples, shift, of_target = given
    numbers = {"samples": samples, "log_expected": shift, "log_expected_target": of_target}
    how: dict[str, Any] = {"sparse": sparse, "impl": impl, "ignore_index": None}
    return sampled_loss(hidden, weight, targets, criterion="nce", **numbers, **how)


def gradients(loss: Loss, weight: Tensor, given: Given) -> tuple[Tensor, ...]:
    value = loss(weight, given)
    return value.detach(), *torch.autograd.grad(value, (given[0], weight))


def step(loss: Loss, weight: Tensor, optimizer: Any, given: Given) -> None:
    optimizer.zero_grad()
    loss(weight, given).backward()
    optimizer.step()


def agree(loss: Loss, weight: Tensor, given: Given) -> bool:
    """About as near to float64 as plain: on a few positions, and the words that these name."""
    few = [each[:64].detach() for each in given]
    words, numbered = torch.cat([few[1][:, None], few[2]], 1).unique(return_inverse=True)
    table = weight.detach()[words].requires_grad_()

    def run(loss: Loss, dtype: torch.dtype | None = None) -> tuple[Tensor, ...]:
        hidden, like = (each.detach().to(dtype or each.dtype).requires_grad_() for each in (few[0], table))
        return gradients(loss, like, (hidden, numbered[:, 0], numbered[:, 1:], few[3], few[4]))

    truth, by_plain, found = run(partial(ours, "plain"), torch.float64), run(partial(ours, "plain")), run(loss)
    slack = SLACK[str(DTYPE).removeprefix("torch.")]
    return all(distance(f, t) <= 1.5 * distance(p, t) + slack for f, p, t in zip(found, by_plain, truth))


def made(n: int, k: int, size: int, h: int) -> tuple[nn.Parameter, list[Given]]:
    chance, noise = torch.Generator(DEVICE).manual_seed(1), LogUniform(size)
    weight = nn.Parameter(torch.randn(size, h, generator=chance, device=DEVICE) / h**0.5)
    sets = []
    for _ in range(SETS):
        hidden = torch.randn(n, h, generator=chance, device=DEVICE).to(DTYPE).requires_grad_()
        ids = noise.inverse(torch.rand(n, 1 + k, generator=chance, device=DEVICE).double())
        expected = (k * noise.prob(ids)).log().float()
        sets.append((hidden, ids[:, 0], ids[:, 1:].contiguous(), expected[:, 1:].contiguous(), expected[:, 0]))
    return weight, sets


def measure(shape: Shape, rates: Limits) -> None:
    n, k, size, h = shape
    losses: dict[str, Any] = {"fused": partial(ours, "fused")} if GPU else {}
    losses |= {"plain": partial(ours, "plain"), "torch": by_hand, "compiled": torch.compile(by_hand, dynamic=False)}
    for name, how in [
        *((name, "dense") for name in losses),
        *((name, "rows") for name in losses if name != "compiled"),
    ]:
        set_free(DEVICE)
        weight, sets = made(*shape)
        try:
            if not agree(losses[name], weight, sets[0]):
                raise RuntimeError("too far from float64")
            work = partial(gradients, losses[name], weight)
            if how == "rows":
                optimizer: Any = torch.optim.SparseAdam([weight]) if name == "torch" else RowAdam([weight], half=GPU)
                work = partial(step, partial(losses[name], sparse=True), weight, optimizer)
            timing = timed([partial(work, each) for each in sets], DEVICE)
        except RuntimeError as error:  # out of memory, too: one that fails is a row less
            print(shape, name, how, "failed:", str(error).splitlines()[0], flush=True)
            continue
        moved = 2 * n * (k + 1) * h * DTYPE.itemsize + (size * h * 4 if how == "dense" else 0)
        limit = rates.ms(0, moved)
        row = {"impl": name, "gradients": how, "N": n, "K": k, "C": size, "H": h, "dtype": str(DTYPE)[6:]}
        row |= {"ms": round(timing.ms, 4), "limit_ms": round(limit, 4), "ratio": round(timing.ms / limit, 2)}
        row |= {
            "peak_mib": "" if timing.peak_mib is None else round(timing.peak_mib),
            "graph": GPU and not timing.eager,
        }
        row |= {"machine": name_of(DEVICE), "torch": torch.__version__}
        print(row, flush=True)
        append("own", [row])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=4, action="append", metavar=("N", "K", "C", "H"))
    rates = limits(DEVICE)
    for shape in parser.parse_args().shape or (SHAPES if GPU else ON_CPU):
        measure(tuple(shape), rates)


if __name__ == "__main__":
    main()
