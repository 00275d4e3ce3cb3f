"""The machine: its name, how long work takes on it, how much memory that needs, and what its limits are.

On a GPU the work of a few steps is one CUDA graph, so that what is timed is the GPU and not the launches.
"""

import gc
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from selfnorm.cores import cores

Work = Callable[[], object]
REPEATS = 15
SLOW = 1000.0  # ms: what takes longer is repeated `FEW` times
FEW = 5
MIB = 2**20


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one step, the memory it took above what was there before, and whether launches count."""

    ms: float
    peak_mib: float | None
    eager: bool = False  # on a GPU, but not as a graph
    trouble: str = ""  # why not


@dataclass(frozen=True)
class Limits:
    """What this machine can do at best, measured: operations and bytes in a millisecond."""

    operations: float
    bytes: float

    def ms(self, operations: float, moved: float = 0.0) -> float:
        return operations / self.operations + moved / self.bytes


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


def name_of(device: torch.device) -> str:
    """The GPU, or the processor and how many cores of it."""
    if is_gpu(device):
        return torch.cuda.get_device_name(device)
    name, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {cores()} cores"


def generator_on(device: torch.device) -> torch.Generator:
    return torch.Generator(device).manual_seed(1)


def timed(
    steps: Sequence[Work],
    device: torch.device,
    generator: torch.Generator | None = None,
    *,
    repeats: int = REPEATS,
    capture: bool = True,
) -> Timing:
    """One step's time, the median over `repeats`; on a GPU all steps are one graph, unless that fails.

    `generator` is where the steps get their random numbers: a graph must know it.
    """
    if not is_gpu(device):
        return Timing(_on_cpu(steps, repeats), None)

    def every() -> None:
        for step in steps:
            step()

    here, trouble = torch.cuda.current_stream(device), ""
    peak = _warm_up(every if capture else steps[0])
    if capture:
        try:
            graph = _graph(every, generator)
        except RuntimeError as error:
            torch.cuda.set_stream(here)  # a capture that fails leaves its own behind
            if isinstance(error, torch.OutOfMemoryError):
                raise
            trouble = str(error)  # something waits for the host
            torch.cuda.synchronize(device)
        else:
            return Timing(_on_gpu(graph.replay, repeats) / len(steps), peak)
    return Timing(_on_gpu(every, repeats) / len(steps), peak, True, trouble)


def _warm_up(work: Work) -> float:
    """Three times, on a stream of its own, as graphs want it; the MiB that the last two took."""
    stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(here)
    with torch.cuda.stream(stream):
        work()  # cuBLAS takes memory of its own for every new stream
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        work()
    here.wait_stream(stream)
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MIB


def _graph(work: Work, generator: torch.Generator | None) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    if generator is not None:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _on_gpu(work: Work, repeats: int) -> float:
    def once(number: int) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)

    return _median(once, repeats)


def _on_cpu(steps: Sequence[Work], repeats: int) -> float:
    def once(number: int) -> float:
        begin = time.perf_counter()
        steps[number % len(steps)]()
        return 1e3 * (time.perf_counter() - begin)

    steps[0]()  # the warm-up
    return _median(once, repeats)


def _median(once: Callable[[int], float], repeats: int) -> float:
    times = [once(0)]
    for number in range(1, min(repeats, FEW) if times[0] > SLOW else repeats):
        times.append(once(number))
    return statistics.median(times)


def limits(device: torch.device, repeats: int = REPEATS) -> Limits:
    """A large matrix product (bfloat16 on a GPU, else float32) and a copy, both in this run."""
    n, k, m = (8192, 8192, 8192) if is_gpu(device) else (1024, 512, 8192)
    dtype = torch.bfloat16 if is_gpu(device) else torch.float32
    a, b = torch.randn(n, k, device=device, dtype=dtype), torch.randn(k, m, device=device, dtype=dtype)
    product = torch.empty(n, m, device=device, dtype=dtype)
    rate = 2 * n * k * m / timed([lambda: torch.mm(a, b, out=product)], device, repeats=repeats).ms
    source = torch.randn((1024 if is_gpu(device) else 64) * MIB // 4, device=device)
    copy = torch.empty_like(source)
    moved = 2 * source.numel() * source.element_size()  # read and written
    # by a kernel: `copy_` in a CUDA graph goes to the copy engine, which has two thirds of the bandwidth
    return Limits(rate, moved / timed([lambda: torch.neg(source, out=copy)], device, repeats=repeats).ms)


def set_free(device: torch.device) -> None:
    """What nobody holds any more goes back to the device."""
    gc.collect()
    if is_gpu(device):
        torch.cuda.empty_cache()
