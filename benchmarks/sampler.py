"""Time of one draw by each sampler on this machine, as `selfnorm bench sampler` tells it, for several sizes.

    python benchmarks/sampler.py

Rows: benchmarks/results/sampler.csv.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from rows import append

from selfnorm.bench.machine import default_device, name_of
from selfnorm.bench.sampler import POSITIONS, draws

SHAPES = [(30_000, 8000), (200_000, 8000), (1_000_000, 8000), (200_000, 100)]

if __name__ == "__main__":
    device = default_device()
    origin = {"machine": name_of(device), "torch": torch.__version__}
    found = []
    for size, k in SHAPES:
        for each in draws(size, k, device):
            row = {"sampler": each.sampler, "noise": each.noise, "C": size, "k": k, "N": POSITIONS}
            found.append({**row, "ms": round(each.ms, 3), **origin})
            print(found[-1], flush=True)
    print(append("sampler", found))
