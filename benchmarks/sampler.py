"""Time of one draw by each sampler on this machine.

python benchmarks/sampler.py [--device cuda]
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm.noise import LogUniform, Unigram
from selfnorm.samplers import SAMPLERS

SHAPES = [(30_000, 8000), (200_000, 8000), (1_000_000, 8000), (200_000, 100)]


def milliseconds(name: str, noise: object, k: int, targets: torch.Tensor, repeats: int = 20) -> float:
    sampler = SAMPLERS[name](noise, k)
    generator = torch.Generator(targets.device).manual_seed(0)
    times = []
    for number in range(repeats + 3):
        begin = time.perf_counter()
        sampler.draw(targets, generator)
        if targets.is_cuda:
            torch.cuda.synchronize()
        if number >= 3:
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    where = torch.cuda.get_device_name() if device == "cuda" else machine()
    found = []
    for size, k in SHAPES:
        targets = torch.randint(0, size, (1024,), device=device)
        counts = torch.arange(size, 0, -1) ** 2
        for noise_name, noise in (("log_uniform", LogUniform(size)), ("unigram", Unigram(counts))):
            for name in SAMPLERS:
                ms = milliseconds(name, noise, k, targets)
                row = {"sampler": name, "noise": noise_name, "C": size, "k": k, "N": 1024, "ms": round(ms, 3)}
                found.append({**row, "machine": where, "torch": torch.__version__})
    columns = ("C", "k", "noise", "sampler", "ms")
    table = Table(*columns, title=f"one draw for 1024 targets, {where}", title_justify="left")
    for row in found:
        table.add_row(*(f"{row[column]:,}" if isinstance(row[column], int) else str(row[column]) for column in columns))
    Console().print(table)
    print(append("sampler", found))
