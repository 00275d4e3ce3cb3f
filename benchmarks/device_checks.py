"""Do the kernels compute on this machine what plain PyTorch computes in float64? For a GPU, and without pytest.

    python benchmarks/device_checks.py
    TRITON_INTERPRET=1 python benchmarks/device_checks.py --small      without a GPU: float32, small cases

Every case has a distance that is allowed: 1.5 times plain's own to float64, and a slack. A family of cases is one line:
how many, the largest share of the allowed distance, and whether all kept below it. One that does not: exit status 1.
"""

import argparse
import datetime
import json
import math
import multiprocessing
import sys
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton

sys.path.insert(0, str(Path(__file__).parent))
from device_attention import HALVES, attention, compiled
from device_steps import captured, drawn, flat, recorded, repeated, updates
from device_sums import DTYPES, GPU, Found, every_word, own, sampled
from rows import RESULTS, machine

LARGE = [  # N, K, H, groups, bias
    (16, 64, 32, 1, True),
    (17, 65, 33, 1, False),
    (1, 1000, 8, 1, True),
    (70, 33, 64, 3, True),
    (64, 100, 40, 4, False),
    (511, 777, 257, 2, True),
    (1024, 2048, 512, 1, True),
    (300, 1023, 1030, 8, False),
]
SMALL = [(13, 20, 9, 1, True), (7, 17, 8, 2, False)]


def families(small: bool) -> dict[str, list[tuple[Any, ...]]]:
    """Each family of cases: calls of one function, by their arguments."""
    kinds = list(DTYPES) if GPU else ["float32"]
    whole = [(17, 200, 16, True), (9, 150, 9, False)]
    rows = [(0, 30, 20, False), (24, 30, 20, False), (24, 30, 0, False), (24, 30, 20, True)]
    spots = [(8, 40, 1), (100, 1000, 3), (60, 70, 2)]
    if not small:
        whole += [(257, 40_003, 72, True), (64, 16_384, 128, False)]
        rows += [(1030, 300, 100, False), (512, 8192, 4096, True), (0, 8192, 4096, True), (64, 9000, 6000, False)]
        rows += [(512, 20_000, 0, False), (0, 20_000, 13_000, False), (256, 1000, 13_000, True)]
        spots += [(100, 30_000, 1), (1000, 200_000, 8), (8192, 1_000_000, 1), (8192, 30_000, 2)]
    heads = [(3, 7, 1, 32), (2, 1, 2, 16), (2, 17, 2, 64)]  # B, T, heads, D
    if not small:
        heads += [(64, length, 8, 64) for length in (1, 2, 8, 15, 16, 20, 31, 32, 33, 50, 63, 64)]
        heads += [(1, 64, 1, 128), (7, 45, 3, 128), (5, 64, 16, 32), (300, 29, 12, 16), (4096, 24, 8, 64)]
    loops = [(name, groups) for name in ("mode3", "nce", "sampled_softmax", "mode2") for groups in (1, 2)]
    loops = loops[:2] if small else loops
    loops.append(("mode2", 0))
    alone = [(7, 5, 60, 9, True), (40, 20, 30, 16, False)]  # N, K, C, H, bias
    if not small:
        alone += [(450, 100, 30_000, 2048, True), (8192, 20, 3000, 128, True), (300, 1000, 20_000, 257, False)]
    return {
        "sampled": [(sampled, shape, kind) for shape in (SMALL if small else LARGE) for kind in kinds],
        "own samples": [(own, shape, kind) for shape in alone for kind in kinds],
        "every word": [(every_word, shape, kind) for shape in whole for kind in kinds],
        "row updates": [(updates, *each) for each in rows],
        "copies": [(flat, size) for size in ((100, 5000) if small else (1, 2047, 1_000_003, 132_000_000))],
        "attention": [(attention, shape, kind) for shape in heads for kind in (HALVES if GPU else ["float32"])],
        "draws": [(drawn, *each) for each in spots],
        "repeated": [(repeated, *each) for each in loops],
        "blocks": [(compiled, keep, "bfloat16") for keep in (False, True)] if GPU else [],
        "CUDA graph": [(captured, *each) for each in loops] if GPU else [],
        "recorder": [(recorded, False), (recorded, True)] if GPU else [],
    }


def checked(small: bool, check: Callable[..., Iterator[Found]], *given: Any) -> Found:
    """All cases of one call; what breaks off is a case that failed."""
    torch.backends.cuda.matmul.allow_tf32 = False
    found = Found()
    try:
        for each in check(small, *given):
            found += each
    except Exception as error:
        found += Found(1, math.inf, (f"{check.__name__} {given}: {type(error).__name__}: {error}",))
    return found


def report(small: bool, jobs: int, only: Collection[str] = ()) -> dict[str, Found]:
    """Every family, or some; on a GPU in several processes, since most of the time is spent compiling."""
    plan = {name: calls for name, calls in families(small).items() if not only or name in only}
    found = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = {
            name: [pool.submit(checked, small, *call) if jobs > 1 else partial(checked, small, *call) for call in calls]
            for name, calls in plan.items()
        }
        for name, calls in waiting.items():
            found[name] = sum((call() if isinstance(call, partial) else call.result() for call in calls), Found())
            verdict = "skipped: there is no GPU" if not calls else "fail" if found[name].wrong else "pass"
            print(f"{name:12} {found[name].cases:5} cases   worst {found[name].worst:8.3g}   {verdict}", flush=True)
            for line in found[name].wrong:
                print(f"    {line}", flush=True)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a few small cases, nothing written")
    parser.add_argument("--family", nargs="+", default=(), choices=list(families(True)), help="these, nothing written")
    parser.add_argument("--jobs", type=int, default=12 if GPU else 1, help="processes")
    options = parser.parse_args()
    results = report(options.small, options.jobs, options.family)
    if not options.small and not options.family:
        summary = {
            "machine": torch.cuda.get_device_name() if GPU else machine(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "date": datetime.date.today().isoformat(),
            "families": {
                name: {
                    "cases": each.cases,
                    "worst": each.worst if math.isfinite(each.worst) else None,
                    "failed": len(each.wrong),
                }
                for name, each in results.items()
            },
        }
        path = RESULTS / "device_checks.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(summary, indent=1) + "\n")
        print(path)
    sys.exit(any(each.wrong for each in results.values()))
