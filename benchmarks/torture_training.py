"""R1 to R5 and R15: trainings killed, interrupted, starved, damaged and cut, with the trials of tests/training."""

import random
import signal
from pathlib import Path

from torture_trial import Trial, Trials
from trials import CASES, make_data, recipe, undetected
from trials import Trial as Training

from selfnorm.training import train


def killed(folder: Path, chance: random.Random) -> Trials:
    """R1: kill -9 at random moments, criterion after criterion."""
    data, trainings = make_data(folder / "text"), dict[str, Training]()
    while True:
        for criterion in CASES:
            if criterion not in trainings:
                trainings[criterion] = Training(folder / criterion, recipe(data, criterion))
            done, faults = trainings[criterion].killed(chance, 2)
            if done or faults:
                yield Trial(criterion, faults)
                yield from [Trial(criterion)] * (done - 1)


def killed_in_writers(folder: Path, chance: random.Random) -> Trials:
    """R2: kill -9 at every stage of every writer."""
    made = recipe(make_data(folder / "text"), "ce", steps=3, save_every=1, evaluate_every=2, log_every=1)
    training = Training(folder / "ce", made)
    stages = training.stages()
    while True:
        for stage in chance.sample(range(stages), stages):
            yield Trial("stages", training.killed_at(stage), f"stage {stage} of {stages}")


def interrupted(folder: Path, chance: random.Random) -> Trials:
    """R3: SIGTERM, SIGINT, SIGUSR1 at random moments."""
    training = Training(folder / "mode3", recipe(make_data(folder / "text"), "mode3"))
    while True:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            came, faults = training.interrupted(number, chance)
            if came:
                yield Trial(number.name, faults)


def starved(folder: Path, chance: random.Random) -> Trials:
    """R4: no file may grow beyond a random size."""
    training = Training(folder / "sampled_softmax", recipe(make_data(folder / "text"), "sampled_softmax"))
    while True:
        limit = int(10 ** chance.uniform(2, 5))
        yield Trial("file size", training.starved(limit, chance), f"{limit} bytes")


def damaged(folder: Path, chance: random.Random) -> Trials:
    """R5: a flipped bit, a cut, a page of zeros in a file of run or data."""
    data = make_data(folder / "text")
    made = recipe(data, "ce", steps=4, save_every=2, evaluate_every=2)
    train(made, folder / "done")
    while True:
        fault = undetected(data, made, folder / "done", folder / "scratch", chance)
        yield Trial("files", [] if fault is None else [fault])


def cut_anywhere(folder: Path, chance: random.Random) -> Trials:
    """R15: ended and gone on with at every step of 50, criterion after criterion."""
    data = make_data(folder / "text")
    while True:
        for criterion in chance.sample(sorted(CASES), len(CASES)):
            training = Training(folder / criterion, recipe(data, criterion, steps=50))
            for step in range(1, 51):
                yield Trial(criterion, training.ended_at(step), f"step {step}")
