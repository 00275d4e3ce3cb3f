"""The long tier of the reliability programme: trainings killed, interrupted, starved and damaged, parsers fuzzed.

    python benchmarks/torture.py [--only R1 R3] [--count 20] [--minutes 10] [--seed 1] [--more]

Every trial is one of those of tests/training, or a file for the parsers; a failure prints what differed. What was done
goes to benchmarks/results/reliability.json, one entry for each item; `--more` adds to it, with the next seed, what is
missing.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/training"))
from rows import machine
from trials import CASES, Trial, make_data, recipe, undetected

from selfnorm.training import train

RESULTS = Path(__file__).parent / "results/reliability.json"
TESTS = Path(__file__).resolve().parents[1] / "tests"
FILES = 20_000  # for each test of a parser
Trials = Iterator[list[str]]  # the faults of one trial after the other; an empty list is a trial passed


def killed(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R1: kill -9 at random moments, criterion after criterion."""
    trials: dict[str, Trial] = {}
    while True:
        for criterion in CASES:
            if criterion not in trials:
                trials[criterion] = Trial(folder / criterion, recipe(data, criterion))
            done, faults = trials[criterion].killed(chance, 2)
            if done or faults:
                yield from [faults, *[[]] * (done - 1)]


def killed_in_writers(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R2: kill -9 at every stage of every writer."""
    trial = Trial(folder, recipe(data, "ce", steps=3, save_every=1, evaluate_every=2, log_every=1))
    stages = trial.stages()
    while True:
        for stage in chance.sample(range(stages), stages):
            yield trial.killed_at(stage)


def interrupted(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R3: SIGTERM, SIGINT, SIGUSR1 at random moments."""
    trial = Trial(folder, recipe(data, "mode3"))
    while True:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            came, faults = trial.interrupted(number, chance)
            if came:
                yield faults


def starved(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R4: no file may grow beyond a random size."""
    trial = Trial(folder, recipe(data, "sampled_softmax"))
    while True:
        yield trial.starved(int(10 ** chance.uniform(2, 5)), chance)


def damaged(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R5: a flipped bit, a cut, a page of zeros in a file of run or data."""
    made = recipe(data, "ce", steps=4, save_every=2, evaluate_every=2)
    train(made, folder / "done")
    while True:
        fault = undetected(data, made, folder / "done", folder / "scratch", chance)
        yield [] if fault is None else [fault]


def cut_anywhere(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R15: ended and gone on with at every step of 50, criterion after criterion."""
    while True:
        for criterion in CASES:
            trial = Trial(folder / criterion, recipe(data, criterion, steps=50))
            for step in range(1, 51):
                yield trial.ended_at(step)


def fuzzed(folder: Path, data: Path, chance: random.Random) -> Trials:
    """R7: files that are made up or damaged, FILES for each of the parsers' tests; one test is one trial."""
    run = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-o", "timeout=0"]
    chosen = [str(TESTS / "lattices" / f"test_{name}.py") for name in ("htk", "kaldi_fuzz", "nbest")]
    names = subprocess.run(
        [*run, "--collect-only", *chosen, "-k", "damaged or made_up"], capture_output=True, text=True
    )
    tests = [line for line in names.stdout.splitlines() if "::" in line]
    for name in chance.sample(tests, len(tests)):
        files = {**os.environ, "SELFNORM_TRIALS": str(FILES)}
        done = subprocess.run([*run, name], capture_output=True, text=True, env=files, cwd=TESTS.parent)
        faults = [] if done.returncode == 0 else [line for line in done.stdout.splitlines() if line.startswith("E  ")]
        yield faults or ([] if done.returncode == 0 else [f"{name} failed"])


ITEMS: dict[str, tuple[int, Callable[[Path, Path, random.Random], Trials]]] = {
    "R1": (200, killed),
    "R2": (3000, killed_in_writers),
    "R3": (30, interrupted),
    "R4": (200, starved),
    "R5": (5000, damaged),
    "R7": (13, fuzzed),
    "R15": (500, cut_anywhere),
}


def carry_out(item: str, count: int, seconds: float, seed: int) -> dict[str, Any]:
    """One item, until `count` trials are done or the time is up."""
    done = failures = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trials = ITEMS[item][1](Path(folder) / item, make_data(Path(folder) / "text"), random.Random(seed))
        for done, faults in enumerate(trials, start=1):
            if faults:
                failures += 1
                print(f"{item}, trial {done} of seed {seed}: {'; '.join(faults)}", flush=True)
            if done == count or time.monotonic() - begin > seconds:
                break
    minutes = round((time.monotonic() - begin) / 60, 1)
    print(f"{item}: {done} trials, {failures} failures, {minutes} minutes", flush=True)
    return {"id": item, "N": done, "failures": failures, "seed": seed, "minutes": minutes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ITEMS, default=list(ITEMS), help="items; all by default")
    parser.add_argument("--count", type=int, help="trials of each item")
    parser.add_argument("--minutes", type=float, default=1e6, help="time for each item")
    parser.add_argument("--seed", type=int, help="another one each day by default")
    parser.add_argument("--more", action="store_true", help="add to what was done before, up to the count")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    results = {row["id"]: row for row in json.loads(RESULTS.read_text())} if RESULTS.exists() else {}
    seed = options.seed if options.seed is not None else date.today().toordinal()
    for item in options.only:
        before = results.get(item) if options.more else None
        count = (options.count or ITEMS[item][0]) - (before["N"] if before else 0)
        if count <= 0:
            continue
        row = carry_out(item, count, 60 * options.minutes, before["seed"] + 1 if before else seed)
        if before:
            row |= {name: before[name] + row[name] for name in ("N", "failures", "minutes")}
        results[item] = row | {"machine": machine(), "date": date.today().isoformat()}
        RESULTS.write_text(json.dumps([results[each] for each in ITEMS if each in results], indent=1) + "\n")
    sys.exit(any(results[item]["failures"] for item in options.only))


if __name__ == "__main__":
    main()
