"""The sampled sum of the output layer on a GPU, forward and backward: plain PyTorch, compiled, and the fused kernels.

    python benchmarks/sums.py [--k 100 1000 8192]

Shapes are those of the paper and two beyond. `mode3` in bfloat16, gradients of hidden, the K rows and their biases; the
target's own term, sampler and optimizer are not in it. A row is timed after its value and gradients were compared with
float64. The limit is three matrix products at the rate of a large one. Rows: benchmarks/results/sums.csv.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton

sys.path.insert(0, str(Path(__file__).parent))
from rows import append

from selfnorm.ops import fused, plain
from selfnorm.output import Layer
from selfnorm.samplers.sample import Sample, split

SHAPES = {  # C, H, N
    "swb": (30_000, 2048, 2048),
    "libri": (200_000, 512, 4096),
    "en": (250_000, 2048, 4096),
    "wiki103": (268_000, 1024, 8192),
    "extreme": (1_000_000, 512, 8192),
}
Op = Callable[..., torch.Tensor]


class Case:
    """Rows already taken from the table: what is timed is the sum."""

    def __init__(self, size: int, width: int, positions: int, k: int, groups: int = 1) -> None:
        torch.manual_seed(0)
        self.k, self.size = k, size
        ranks = torch.rand(groups, k, device="cuda", dtype=torch.float64)
        ids = ((size + 1) ** ranks - 1).long().clamp(max=size - 1)
        targets = ((size + 1) ** torch.rand(positions, device="cuda", dtype=torch.float64) - 1).long()
        self.targets = targets.clamp(max=size - 1)
        expected = (torch.log1p(1 / (ids + 1.0)) / torch.log(torch.tensor(size + 1.0)) * k).clamp(min=1e-3)
        self.sample = Sample(
            torch.arange(k, device="cuda").expand(groups, k).contiguous(),
            expected,
            expected[0, :1].expand(positions),
            split(positions, groups),
        )
        self.targets = self.targets % (4 * k)  # some hits
        self.hidden = torch.randn(positions, width, device="cuda")
        self.rows = torch.randn(k, width, device="cuda") / width**0.5
        self.bias = torch.log1p(1 / (ids[0] + 1.0)).log()

    def tensors(self, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
        wide = torch.promote_types(dtype, torch.float32)
        return tuple(
            each.detach().to(kind).requires_grad_()
            for each, kind in ((self.hidden, dtype), (self.rows, dtype), (self.bias, wide))
        )

    def step(self, op: Op, tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        hidden, rows, bias = tensors
        scale = 1 / self.sample.expected.to(bias.dtype)
        value = op(hidden, Layer(rows, bias), self.sample, self.targets, scale=scale, skip=True, most=1 << 40).mean()
        return [value.detach(), *torch.autograd.grad(value, tensors)]


def distances(case: Case, op: Op) -> list[float]:
    truth = case.step(plain.softplus_sum, case.tensors(torch.float64))
    found = case.step(op, case.tensors(torch.bfloat16))
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, truth)]


def milliseconds(work: Callable[[], object], repeat: int = 20) -> float:
    for _ in range(5):
        work()
    times = []
    for _ in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def graphed(work: Callable[[], object]) -> Callable[[], object]:
    """The same work as one CUDA graph: what is left is the GPU's time."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--k", type=int, nargs="+", default=[8192, 1000, 100])
    parser.add_argument("--compile", nargs="*", default=list(SHAPES), help="shapes to run compiled, at the largest K")
    options = parser.parse_args()
    small = Case(1000, 72, 150, 70)
    for name, op in (("plain", plain.softplus_sum), ("fused", fused.softplus_sum)):
        print("bf16 against float64,", name, [f"{each:.1e}" for each in distances(small, op)], flush=True)
    big = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    rate = 2 * 8192**3 / milliseconds(lambda: big @ big)  # operations per ms
    print(f"a large product: {rate / 1e9:.0f} TFLOP/s", flush=True)
    rows = []
    compiled = torch.compile(plain.softplus_sum, dynamic=False)
    for k in options.k:
        for shape, (size, width, positions) in SHAPES.items():
            case = Case(size, width, positions, k)
            limit = 3 * 2 * positions * k * width / rate
            near = distances(case, plain.softplus_sum)
            for impl, op in (("plain", plain.softplus_sum), ("compiled", compiled), ("fused", fused.softplus_sum)):
                if impl == "compiled" and (k < max(options.k) or shape not in options.compile):
                    continue
                try:
                    far = distances(case, op)
                    assert all(a <= 2 * b + 2e-3 for a, b in zip(far, near)), (impl, far, near)
                    tensors = case.tensors(torch.bfloat16)
                    work = lambda op=op, tensors=tensors, case=case: case.step(op, tensors)  # noqa: E731
                    torch.cuda.reset_peak_memory_stats()
                    eager = milliseconds(work)
                    peak = torch.cuda.max_memory_allocated() / 2**20
                    graph = milliseconds(graphed(work))
                except Exception as error:  # one peer that fails is a row less
                    print(shape, k, impl, "failed:", str(error)[:200], flush=True)
                    continue
                row = {"shape": shape, "impl": impl, "k": k, "groups": 1, "N": positions, "C": size, "H": width}
                row |= {"dtype": "bfloat16", "ms": round(eager, 4), "graph_ms": round(graph, 4)}
                row |= {"limit_ms": round(limit, 4), "ratio": round(graph / limit, 2), "peak_mib": round(peak)}
                print(row, flush=True)
                rows.append(
                    row
                    | {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}
                )
    print(append("sums", rows))


if __name__ == "__main__":
    main()
