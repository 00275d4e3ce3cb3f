"""One step of the output layer on this machine: hidden -> loss -> gradients, sampled against full softmax.

    python benchmarks/output_layer.py [--quick]

Every row is timed after its loss and gradients agreed with float64 on a small case. Peers run in the same process.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm import SampledLoss

N, H = 1024, 512


def case(size: int, positions: int, width: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """Targets log-uniform, bias log unigram: as in a trained model, most logits are very negative."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.arange(size, dtype=torch.float64)
    unigram = torch.log1p(1 / (ids + 1)) / torch.log(torch.tensor(size + 1.0))
    targets = torch.multinomial(unigram, positions, replacement=True, generator=generator)
    weight = torch.randn(size, width, generator=generator) / width**0.5
    hidden = 1.5 * torch.randn(positions, width, generator=generator)
    return (
        hidden.to(dtype).requires_grad_(),
        weight.to(dtype).requires_grad_(),
        targets,
        unigram.log().to(dtype).requires_grad_(),
    )


def torch_ce(hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), target)


Loss = Callable[..., torch.Tensor]


def grads(loss: Loss, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    hidden, weight, target, bias = tensors
    value = loss(hidden, weight, target, bias)
    found = torch.autograd.grad(value, (hidden, weight, bias))
    return [value.detach(), *(each.to_dense() if each.is_sparse else each for each in found)]


def agrees(loss: Loss) -> None:
    """Loss and gradients in float32 against the same in float64; the draw is the same."""
    results = []
    for dtype in (torch.float32, torch.float64):
        if isinstance(loss, SampledLoss) and loss.sampler is not None:
            loss.generator = torch.Generator().manual_seed(1)
        results.append(grads(loss, case(CHECKED, 64, 32, dtype)))
    for mine, true in zip(*results):
        distance = float((mine.double() - true).norm() / true.norm())
        assert distance < 1e-5, f"disagrees with float64 by {distance:.2g}"


CHECKED = 2000  # words of the case that is checked


def seconds(loss: Loss, tensors: tuple[torch.Tensor, ...], repeats: int) -> float:
    hidden, weight, target, bias = tensors
    times = []
    for number in range(repeats + 1):
        begin = time.perf_counter()
        torch.autograd.grad(loss(hidden, weight, target, bias), (hidden, weight, bias))
        if number:  # the first is the warm-up
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def product_rate() -> float:
    """Operations per second of a large float32 matrix product here."""
    a, b = torch.randn(1024, 512), torch.randn(512, 8192)
    times = []
    for _ in range(8):
        begin = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - begin)
    return 2 * 1024 * 512 * 8192 / statistics.median(times)


def rows(sizes: list[int], repeats: int) -> list[dict[str, object]]:
    rate, found = product_rate(), []
    for size in sizes:
        tensors = case(size, N, H)
        ways: list[tuple[str, int, bool, Loss, Loss]] = [("torch cross_entropy", size, False, torch_ce, torch_ce)]
        for k in (1000, 8000):
            for sparse in (False, True):
                small = SampledLoss(CHECKED, "mode3", k=CHECKED // 4, sparse=sparse)
                ways.append(("mode3", k, sparse, SampledLoss(size, "mode3", k=k, sparse=sparse), small))
        for name, k, sparse, loss, small in ways:
            agrees(small)
            ms = 1e3 * seconds(loss, tensors, repeats)
            limit = 1e3 * 6 * N * k * H / rate  # three matrix products
            row = {"impl": name, "gradients": "rows" if sparse else "dense", "k": k, "N": N, "C": size, "H": H}
            found.append(
                {
                    **row,
                    "dtype": "float32",
                    "ms": round(ms, 2),
                    "limit_ms": round(limit, 2),
                    "ratio": round(ms / limit, 2),
                }
            )
            full = next(each["ms"] for each in found if each["C"] == size)
            found[-1] |= {"times_faster": round(full / ms, 1), "machine": machine(), "torch": torch.__version__}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small vocabulary, few repeats, nothing written")
    quick = parser.parse_args().quick
    results = rows([20_000] if quick else [30_000, 200_000], repeats=2 if quick else 7)
    columns = ("C", "impl", "gradients", "k", "ms", "limit_ms", "ratio", "times_faster")
    table = Table(*columns, title=f"loss + gradients, N = {N}, H = {H}, {machine()}", title_justify="left")
    for row in results:
        table.add_row(*(f"{row[column]:,}" if isinstance(row[column], int) else str(row[column]) for column in columns))
    Console().print(table)
    if not quick:
        print(append("output_layer_cpu", results))
