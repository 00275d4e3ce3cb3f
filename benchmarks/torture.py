"""The reliability programme: trainings killed, starved and damaged, files fuzzed, numbers compared, many times.

    python benchmarks/torture.py [--only R1 R3] [--count 20] [--minutes 10] [--seed 1] [--more] [--short]

Every trial is real: one of those of the tests, or a file for the parsers. What was done goes to
benchmarks/results/reliability.json, one entry for each item; `--more` adds to it, with the next seed, what is missing;
items that are lists start anew.
A trial that fails prints what differed, and is kept there with its seed and number; the file it read goes to
benchmarks/results/failures. `--short` is the tier of a few minutes, which writes nothing.
"""

import argparse
import itertools
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / "tests" / folder)
    for folder in ("", "training", "distributed", "lattices", "ngrams", "rescoring", "criteria")
)
import torture_files as files
import torture_hostile as hostile
import torture_limits as limits
import torture_mismatches as mismatches
import torture_numbers as numbers
import torture_oracles as oracles
import torture_ranks as ranks
import torture_training as training
from rows import commit, machine
from torture_trial import Item, Trial

RESULTS = Path(__file__).resolve().parent / "results" / "reliability.json"
KEPT = 20  # failures of an item whose input is kept


@dataclass(frozen=True)
class Entry:
    """An item of the programme: its trials in the short tier and in the full one, and what runs them."""

    short: int
    full: int
    run: Item
    ends: bool = False  # the item ends by itself: its trials are listed, not drawn


ITEMS: dict[str, Entry] = {
    "R1": Entry(10, 200, training.killed),
    "R2": Entry(10, 3000, training.killed_in_writers),
    "R3": Entry(5, 30, training.interrupted),
    "R4": Entry(20, 200, training.starved),
    "R5": Entry(200, 5000, training.damaged),
    "R6": Entry(1400, 70_000, files.flipped),  # 100 and 5,000 for each of 14 parsers
    "R7": Entry(0, 13, files.fuzzed, ends=True),  # tests, each with 20,000 files
    "R7 others": Entry(0, 10, files.made_up, ends=True),  # parsers, each with 20,000 files
    "R9": Entry(35, 73, limits.limits, ends=True),
    "R10": Entry(67, 95, hostile.hostile, ends=True),
    "R11": Entry(97, 194, numbers.numbers, ends=True),
    "R12": Entry(34, 118, mismatches.mismatches, ends=True),
    "R13": Entry(5, 70, ranks.disturbed),
    "R13 matrix": Entry(2, 58, ranks.matrix, ends=True),
    "R15": Entry(3, 500, training.cut_anywhere),
    "R17": Entry(600, 30_000, oracles.agreement),  # 5,000 for each of 6 oracles
}


def carry_out(item: str, count: int, seconds: float, seed: int) -> dict[str, Any]:
    """One item, until `count` trials are done or the time is up."""
    kinds: Counter[str] = Counter()
    failed: list[dict[str, Any]] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trials = ITEMS[item].run(Path(folder) / "trials", random.Random(seed))
        for number, trial in enumerate(itertools.islice(trials, count), start=1):
            kinds[trial.kind] += 1
            if trial.faults:
                failed.append(kept(item, seed, number, trial, len(failed) < KEPT))
            if time.monotonic() - begin > seconds:
                break
    minutes = round((time.monotonic() - begin) / 60, 1)
    done = sum(kinds.values())
    print(f"{item}: {done:,} trials, {len(failed)} failures, {minutes} minutes", flush=True)
    row = {"id": item, "N": done, "asked": ITEMS[item].full, "failures": len(failed), "kinds": dict(kinds)}
    return row | {"seeds": [seed], "minutes": minutes, "failed": failed[:KEPT]}


def kept(item: str, seed: int, number: int, trial: Trial, store: bool) -> dict[str, Any]:
    """A failure: printed, and what it takes to see it again."""
    print(f"{item}, trial {number} of seed {seed}, {trial.kind} {trial.case}: {'; '.join(trial.faults)}", flush=True)
    found = {"seed": seed, "trial": number, "kind": trial.kind, "case": trial.case, "faults": list(trial.faults)}
    if store and trial.content is not None:
        path = RESULTS.parent / "failures" / f"{item}-{seed}-{number}".replace(" ", "-")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(trial.content)
        found["input"] = f"{path.parent.name}/{path.name}"
    return found


def added(before: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """What was done before and now; the machine and date are the last."""
    sums = {name: before[name] + row[name] for name in ("N", "failures", "seeds", "failed")}
    minutes = round(before["minutes"] + row["minutes"], 1)
    kinds = dict(Counter(before["kinds"]) + Counter(row["kinds"]))
    return row | sums | {"minutes": minutes, "kinds": kinds}


def results() -> dict[str, dict[str, Any]]:
    """What was done so far, by item; read each time, as another item may run beside this one."""
    return {row["id"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ITEMS, default=list(ITEMS), help="items; all by default")
    parser.add_argument("--count", type=int, help="trials of each item")
    parser.add_argument("--minutes", type=float, default=1e6, help="time for each item")
    parser.add_argument("--seed", type=int, help="another one each day by default")
    parser.add_argument("--more", action="store_true", help="add to what was done before, up to the count")
    parser.add_argument("--short", action="store_true", help="the short tier; writes nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    seed = options.seed if options.seed is not None else date.today().toordinal()
    failures = 0
    for item in options.only:
        before = results().get(item) if options.more and not ITEMS[item].ends else None
        count = options.count or (ITEMS[item].short if options.short else ITEMS[item].full)
        count -= before["N"] if before else 0
        if count <= 0:
            continue
        row = carry_out(item, count, 60 * options.minutes, max(before["seeds"]) + 1 if before else seed)
        failures += row["failures"]
        if not options.short:
            row |= {"machine": machine(), "date": date.today().isoformat(), "commit": commit()}
            done = results() | {item: added(before, row) if before else row}
            RESULTS.write_text(json.dumps([done[each] for each in ITEMS if each in done], indent=1) + "\n")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
