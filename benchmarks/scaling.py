"""What GPUs exchange at a training step, and what clusters of them would do: a model on paper.

    python benchmarks/scaling.py        results/scaling.json, from the assumptions below and a measured step of one GPU

Three ways to hold the tables of words: `dense` (PyTorch's DistributedDataParallel), `rows` (distributed/exchange.py),
`spread` (distributed/shards.py). wire.py measures what they send; tests/distributed/test_wire.py counts it.
"""

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import tables

from selfnorm.models import MODELS, PRESETS
from selfnorm.noise import LogUniform
from selfnorm.samplers import SAMPLERS

WAYS = ("dense", "rows", "spread")
MEASURED = {"K": 1000, "N": 1024}  # the shape of what is measured
RESULT = Path(__file__).parent / "results" / "scaling.json"

# Assumptions of the model
WORDS = 8e9  # to train on, once
MEMORY = 4.2e12  # bytes a second
ROOM = 141e9  # bytes of a GPU
NVLINK = 450e9  # bytes a second that a GPU sends inside its machine
NETWORK = 50e9  # bytes a second that a GPU sends to other machines
INSIDE = 8  # GPUs of a machine
ASSUMED = [
    {"what": "a GPU's memory moves", "value": f"{MEMORY / 1e12:g} TB/s", "from": "measured, one H200 (speed.md)"},
    {"what": "a GPU's memory holds", "value": f"{ROOM / 1e9:g} GB", "from": "data sheet, H200"},
    {"what": "a GPU sends inside its machine", "value": f"{NVLINK / 1e9:g} GB/s", "from": "data sheet, NVLink 4"},
    {"what": "a GPU sends to other machines", "value": f"{NETWORK / 1e9:g} GB/s", "from": "data sheet, InfiniBand NDR"},
    {"what": "GPUs of a machine", "value": f"{INSIDE}", "from": "usual, each with its own network card"},
]

# Passes over memory beyond those of one GPU alone, counted in exchange.py, shards.py and optim/rows.py: a row that goes
# out of or into the model, of this rank's own and, where all ranks get it, of everybody's.
OWN_OUT, OWN_IN, ALL_OUT, ALL_IN, SPREAD = 13, 8, 5, 5, 16
OUT_STATE, IN_STATE, DENSE = 26, 24, 28  # bytes of each number that Adam reads and writes


@dataclass(frozen=True)
class Case:
    """C words, K samples for each of G groups; a rank has N positions. Rows have H numbers going out, E coming in."""

    C: int
    K: int = 8192
    G: int = 1
    H: int = 512
    E: int = 512
    N: int = 8192

    @property
    def sampler(self) -> Any:
        return SAMPLERS["systematic"](noise=LogUniform(self.C), k=self.K, groups=self.G)

    @cache  # noqa: B019  a handful of cases
    def distinct(self, positions: int, drawn: bool) -> float:
        """Expected number of distinct words among log-uniform ones at so many positions, with those drawn or without.

        Words beyond the first 10,000 are taken together in runs whose probabilities differ by 1 / 500 at most.
        """
        cuts = torch.arange(min(self.C, 10_000) + 1, dtype=torch.float64)
        if len(cuts) <= self.C:
            tail = torch.logspace(4, math.log10(self.C), 4000, dtype=torch.float64).floor()
            cuts = torch.cat([cuts, tail, cuts.new_tensor([self.C])]).unique()
        size, middle = cuts.diff(), (cuts[1:] + cuts[:-1] - 1) / 2
        missing = (1 - LogUniform(self.C).prob(middle)) ** positions
        if drawn:
            missing = missing * (1 - self.sampler.expected(middle)) ** self.G
        return float((size * (1 - missing)).sum())


# The model: what a step hands to collectives, what they send, how long that takes


def handed(case: Case, way: str, ranks: int, out: float | None = None, into: float | None = None) -> dict[str, float]:
    """Bytes that a rank hands to each collective for its tables, with the loss.

    `out` and `into` are distinct rows: of `spread` those of samples and targets together, of `rows` the targets'; and
    the inputs'.
    """
    C, K, G, H, E, N = asdict(case).values()
    if way == "dense":
        return {"all_reduce": 4 * (C * H + C + (C + 1) * E)}
    out = case.distinct(N, drawn=way == "spread") if out is None else out
    into = case.distinct(N, drawn=False) if into is None else into
    if way == "rows":  # before it the ranks have told each other two counts
        return {"all_reduce": 4 * (G * K * (H + 1) + 1) + 16, "all_gather": 4 * (out * (H + 2) + into * (E + 1))}
    counts_and_ids = 8 * (3 * ranks + 2 * out + into)
    return {"all_reduce": 4, "all_to_all": counts_and_ids + 2 * 4 * (out * (H + 1) + into * E)}


def sent(given: dict[str, float], ranks: int) -> float:
    """Bytes that a rank sends: a ring for the first two."""
    times = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": ranks - 1, "all_to_all": (ranks - 1) / ranks}
    return sum(size * times[name] for name, size in given.items())


def seconds(given: dict[str, float], ranks: int) -> float:
    """A ring crosses the border of a machine by all its network cards; of an all-to-all each GPU has its own card."""
    rings = {name: size for name, size in given.items() if name != "all_to_all"}
    direct = given.get("all_to_all", 0) / ranks
    inside, outside = min(ranks, INSIDE) - 1, max(0, ranks - INSIDE)
    speed = NVLINK if ranks <= INSIDE else min(NVLINK, INSIDE * NETWORK)
    return sent(rings, ranks) / speed + max(direct * inside / NVLINK, direct * outside / NETWORK)


def traffic(case: Case, way: str, ranks: int) -> float:
    """Bytes of memory that a step reads and writes beyond the step of one GPU alone, which touches its own rows."""
    C, K, G, H, E, N = asdict(case).values()
    out, into = (case.distinct(N, drawn) for drawn in (True, False))
    if way == "dense":
        return DENSE * ((C - out) * H + (C - into) * E)
    if way == "spread":
        return 4 * SPREAD * (out * H + into * E)
    more = [case.distinct(ranks * N, drawn) - alone for drawn, alone in ((True, out), (False, into))]
    passes = H * (OWN_OUT * (G * K + N) + ALL_OUT * ranks * into) + E * (OWN_IN * N + ALL_IN * ranks * into)
    return 4 * passes + OUT_STATE * H * more[0] + IN_STATE * E * more[1]


def held(case: Case, way: str, ranks: int, body: float) -> float:
    """Bytes of a GPU for weights, moments, copies and what arrives; activations are not among them."""
    C, H, E, into = case.C, case.H, case.E, case.distinct(case.N, drawn=False)
    words, dense = C * (14 * H + 12 * E + 12), 5 * body
    if way == "dense":
        return words + dense + 4 * C * (H + E)
    return dense + (words + 4 * ranks * into * 2 * (H + E) if way == "rows" else words / ranks)


def cluster(case: Case, way: str, ranks: int, body: float, alone: float) -> dict[str, Any]:
    """A step and a training on `ranks` GPUs, from the bytes of the body and the seconds of a step of one GPU alone."""
    given = handed(case, way, ranks)
    talk = seconds(given, ranks) + seconds({"all_reduce": body}, ranks)
    work = alone + traffic(case, way, ranks) / MEMORY
    steps, need = WORDS / (ranks * case.N), held(case, way, ranks, body)
    return {
        "ranks": ranks,
        "way": way,
        "batch": ranks * case.N,
        "steps": round(steps),
        "sent_mb": round(sent(given, ranks) / 1e6, 1),
        "body_mb": round(sent({"all_reduce": body}, ranks) / 1e6, 1),
        "talk_ms": round(1e3 * talk, 3),
        "memory_ms": round(1e3 * (work - alone), 3),
        "minutes_best": round(steps * max(work, talk) / 60, 2),  # all of the exchange behind the computation
        "minutes_worst": round(steps * (work + talk) / 60, 2),  # nothing of it
        "efficiency_best": round(alone / max(work, talk), 3),
        "efficiency_worst": round(alone / (work + talk), 3),
        "held_gb": round(need / 1e9, 1),
        "fits": need <= ROOM,
    }


def bodies() -> dict[str, tuple[Case, float, tables.Row]]:
    """Of each body: its case, the bytes of its dense weights, and the measured step that stands for one GPU alone."""
    found = {}
    for body, preset in {"lstm": "en-lstm", "transformer": "libri-transformer"}.items():
        name, options = PRESETS[preset]
        with torch.device("meta"):
            model = MODELS[name](size=2, **options)
        words = (model.output.weight, model.output.bias, model.embedding.weight)
        dense = sum(each.nbytes for each in model.parameters() if not any(each is word for word in words))
        kind = {"body": body, "criterion": "mode3", "k": "8192", "C": "200000"}
        measured = [row for row in tables.rows("steps") if kind.items() <= row.items()]
        row = max(reversed(measured), key=lambda row: int(row["positions"]))  # of equals the one measured last
        found[body] = (Case(200_000, N=int(row["positions"]), H=model.width, E=words[2].shape[1]), dense, row)
    return found


def limits(case: Case, body: float, alone: float) -> dict[str, Any]:
    """From how many ranks on, doubling them, `rows` is worse than something else."""

    def first(holds: Callable[..., bool]) -> int | None:
        for ranks in (2**n for n in range(1, 13)):
            if holds(*(cluster(case, way, ranks, body, alone) for way in WAYS)):
                return ranks
        return None

    return {
        "more_than_dense": first(lambda dense, rows, spread: rows["sent_mb"] > dense["sent_mb"]),
        "slower_than_dense": first(lambda dense, rows, spread: rows["minutes_worst"] > dense["minutes_worst"]),
        "more_than_spread": first(lambda dense, rows, spread: rows["sent_mb"] > spread["sent_mb"]),
        "slower_than_spread": first(lambda dense, rows, spread: rows["minutes_worst"] > spread["minutes_worst"]),
        "half_the_speed": first(lambda dense, rows, spread: rows["efficiency_worst"] < 0.5),
        "does_not_fit": first(lambda dense, rows, spread: not rows["fits"]),
    }


def model() -> dict[str, Any]:
    """Everything the pages show of the model."""
    sizes = (30_000, 200_000, 1_000_000, 10_000_000)
    found: dict[str, Any] = {"assumed": ASSUMED, "bytes": [], "clusters": [], "limits": []}
    grid = [(Case(C, K, G, H, E), ranks) for C in sizes for H, E in ((512, 512), (2048, 128)) for K in (8192, 1000)
            for G in (1, 8) for ranks in (8, 64, 512)]  # fmt: skip
    for case, ranks in [*((Case(C, **MEASURED), ranks) for C in sizes for ranks in (2, 4)), *grid]:
        by_way = {way: round(sent(handed(case, way, ranks), ranks)) for way in WAYS}
        found["bytes"].append({**asdict(case), "ranks": ranks, **by_way})
    for body, (small, size, row) in bodies().items():
        alone = float(row["ms"]) / 1e3
        origin = {"body": body, "body_bytes": size, "alone_ms": 1e3 * alone, "machine": row["machine"]}
        origin["alone_minutes"] = round(WORDS / small.N * alone / 60, 1)
        for C in sizes:
            case = replace(small, C=C)
            for ranks in (8, 64, 512):
                by_way = [cluster(case, way, ranks, size, alone) for way in WAYS]
                found["clusters"] += [{**origin, **asdict(case), **each} for each in by_way]
            found["limits"].append({**origin, **asdict(case), **limits(case, size, alone)})
    return found


if __name__ == "__main__":
    lines = {name: ",\n".join(json.dumps(row) for row in found) for name, found in model().items()}
    RESULT.write_text("{" + ",\n".join(f'"{name}": [\n{found}\n]' for name, found in lines.items()) + "}\n")
