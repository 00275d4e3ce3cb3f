"""R13 and the matrix: trainings in several processes, whose ranks are killed and frozen, or compared."""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

from curves import every_kind, farthest, train_on
from launches import Ensemble
from torture_trial import Trial
from trials import make_data, recipe

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
ROUND = (KILL, KILL, STOP, KILL, KILL, STOP, KILL)  # of launches: 50 kills for 20 stops
EACH = 5  # signals in one launch, one kind: what came is then told apart
CLOSE = 1e-5  # relative, of every loss of 100 steps


def disturbed(folder: Path, chance: random.Random) -> Iterator[Trial]:
    """R13: SIGKILL and SIGSTOP to one rank of two at random moments; started again, it ends bit-identical."""
    made = recipe(make_data(folder / "text"), "mode3", steps=400, save_every=11, log_every=4)
    ensemble = Ensemble(folder / "mode3", made)
    while True:
        for kind in ROUND:
            came, faults = ensemble.disturbed([kind] * EACH, chance)
            if came or faults:
                yield Trial(kind.name, faults)
                yield from [Trial(kind.name)] * (came - 1)


def matrix(folder: Path, chance: random.Random) -> Iterator[Trial]:
    """Every criterion, dense and row-sparse, spread tables and layers, on 2 and 4 ranks: the losses of one process."""
    os.environ["OMP_NUM_THREADS"] = "1"
    recipes = every_kind(make_data(folder / "text"))
    names = chance.sample(list(recipes), len(recipes))
    for name in names:
        one = {name: recipes[name]}
        train_on(1, one, folder)
        for size in (2, 4):
            try:
                train_on(size, one, folder)
                off = farthest(one, folder, size)[name]
                faults = [] if off <= CLOSE else [f"a loss is off by {off:.2g}"]
            except AssertionError as error:
                faults = [str(error)]
            yield Trial(f"{size} ranks", faults, name)
