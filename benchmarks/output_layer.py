"""One step of the output layer on this machine: ours at several K beside full softmax, with everything.

    python benchmarks/output_layer.py                                             all shapes of this machine
    python benchmarks/output_layer.py --shape libri --k 8192 --groups 1 --compile
    python benchmarks/output_layer.py --criterion all --budget 500                what does not fit is skipped

Every row is timed after its loss and gradients agreed with float64 on a small case; see src/selfnorm/bench/output.py.
Rows go to results/output_layer.csv, on a CPU to results/output_layer_cpu.csv (loss and gradients, no optimizer).
cut-cross-entropy and Liger take part when they can be imported.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rows import append

from selfnorm.bench.machine import default_device, is_gpu
from selfnorm.bench.output import measure
from selfnorm.bench.peers import PEERS
from selfnorm.bench.row import ON_CPU, ON_GPU, SAMPLED, SHAPES, Row, times_faster


def line(row: Row) -> str:
    cells = row.columns()
    memory = "" if row.peak_mib is None else f", {row.peak_mib:,.0f} MiB"
    return (
        f"{cells['shape']:>9} {row.impl:<24} {row.criterion:<15} {row.part:<9} K = {row.k:<9,} G = {row.groups} "
        f"{row.gradients:<5} {row.ms:9.4f} ms, {row.ratio:.2f} x the limit of {row.limit_ms:.4f} ms{memory}"
    )


def for_cpu(row: Row, found: list[Row]) -> dict[str, object]:
    """The columns of output_layer_cpu.csv, which has loss and gradients alone."""
    cells = row.columns()
    head = {"impl": "torch cross_entropy" if row.is_full else row.criterion, "gradients": row.gradients}
    kept = {name: cells[name] for name in ("k", "N", "C", "H", "dtype")}
    numbers = {"ms": round(row.ms, 2), "limit_ms": round(row.limit_ms, 2), "ratio": round(row.ratio, 2)}
    faster = {"times_faster": round(times_faster(row, found) or 0, 1)}
    return {**head, **kept, **numbers, **faster, "machine": row.machine, "torch": cells["torch"]}


def on_gpu(options: argparse.Namespace) -> None:
    criteria = SAMPLED if options.criterion == ["all"] else options.criterion
    peers = [name for name, peer in PEERS.items() if not peer.slow or options.compile]
    rows = measure(
        [SHAPES[name] for name in options.shape or ON_GPU],
        options.k or (8192, 1000, 100),
        options.groups,
        criteria,
        [] if options.no_peers else options.peer or peers,
        budget=options.budget,
        tell=lambda sentence: print(sentence, flush=True),
    )
    for row in rows:
        print(line(row), flush=True)
        append("output_layer", [row.columns()])  # at once: a run that is cut short keeps what it has


def on_cpu(options: argparse.Namespace) -> None:
    rows = measure(
        [SHAPES[name] for name in options.shape or ON_CPU],
        options.k or (1000, 8000),
        criteria=("mode3",),
        peers=("torch",),
        budget=options.budget,
        repeats=7,
        dense=True,
        tell=lambda sentence: print(sentence, flush=True),
    )
    found = []
    for row in rows:
        print(line(row), flush=True)
        found.append(row)
    kept = [row for row in found if row.part == "loss"]
    print(append("output_layer_cpu", [for_cpu(row, kept) for row in kept]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", nargs="+", choices=SHAPES, help="default: all of this machine")
    parser.add_argument("--k", type=int, nargs="+")
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--criterion", nargs="+", default=["mode3"], choices=[*SAMPLED, "all"])
    parser.add_argument("--peer", nargs="+", choices=PEERS, help="full softmax by these alone")
    parser.add_argument("--no-peers", action="store_true", help="no full softmax")
    parser.add_argument("--compile", action="store_true", help="full softmax by torch.compile, too")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds after which nothing new is begun")
    (on_gpu if is_gpu(default_device()) else on_cpu)(parser.parse_args())
