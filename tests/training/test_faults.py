"""Trainings under real faults: whatever happens, the run goes on and ends bit-identical to an undisturbed one."""

import random
import signal
import sys

import pytest
from trials import CASES, Trial, outcome, recipe, start, undetected

from selfnorm import training


@pytest.mark.parametrize("criterion", ["mode3", "ce", "nce", "mode2", "sampled_softmax"])
def test_killed_at_random_moments(data, tmp_path, criterion):
    """R1: twice each, which makes ten; `make torture` kills 200 times and takes every criterion."""
    trial, chance, kills = Trial(tmp_path, recipe(data, criterion)), random.Random(criterion), 0
    while kills < 2:
        done, faults = trial.killed(chance, 2)
        assert faults == []
        kills += done


def test_killed_inside_its_writers(data, tmp_path):
    """R2: checkpoints over older ones and a better model over the first; `make torture` takes every stage."""
    trial = Trial(tmp_path, recipe(data, "ce", steps=3, save_every=1, evaluate_every=2, log_every=1))
    stages = trial.stages()
    assert stages > 100
    for stage in random.Random(2).sample(range(stages), 10):
        assert trial.killed_at(stage) == [], stage


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_end_in_good_order(data, tmp_path, number):
    """R3"""
    trial, chance, came = Trial(tmp_path, recipe(data, "mode3")), random.Random(number), 0
    while came < 2:
        in_time, faults = trial.interrupted(number, chance)
        assert faults == []
        came += in_time


def test_a_second_signal_ends_at_once(data, tmp_path):
    trial = Trial(tmp_path, recipe(data, "ce", steps=5))
    where = trial.fresh()

    def insist(_metrics):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)

    child = start(
        tmp_path / "said",
        "train",
        trial.recipe,
        where,
        before=lambda: setattr(sys.modules["selfnorm.cli.train"], "line", insist),
    )
    assert child.wait() == -signal.SIGINT
    assert trial.faults_of(where) == []


@pytest.mark.parametrize("limit", [300, 3_000, 30_000])
def test_a_full_disk_stops_the_run_and_leaves_it_usable(data, tmp_path, limit):
    """R4: the limit falls on the log, on a small file and on tensors."""
    trial = Trial(tmp_path, recipe(data, "mode3"))
    for seed in range(2):
        assert trial.starved(limit, random.Random(seed)) == []


@pytest.mark.filterwarnings("ignore:.*it is replaced")
def test_every_damaged_file_of_run_and_data_is_named(data, tmp_path):
    """R5"""
    made, chance = recipe(data, "ce", steps=4, save_every=2, evaluate_every=2), random.Random(5)
    training.train(made, tmp_path / "done")
    for number in range(200):
        assert undetected(data, made, tmp_path / "done", tmp_path / "scratch", chance) is None, number


def test_a_broken_checkpoint_gives_way_to_the_one_before(data, tmp_path):
    made, told = recipe(data, "mode3", steps=14), []
    training.train(made, tmp_path / "run")
    wanted = outcome(tmp_path / "run")
    (tmp_path / "run/checkpoints/step-00000014/tensors.safetensors").write_bytes(b"")
    training.train(made, tmp_path / "run", watcher=training.Watcher(say=told.append))
    assert "the checkpoint of step 7 is used instead" in told[0]
    assert told[1] == "going on from step 7 of 14"
    assert outcome(tmp_path / "run") == wanted


def test_every_criterion_is_in_a_case():
    from selfnorm.corpus.batches import BATCHES
    from selfnorm.criteria import CRITERIA
    from selfnorm.models import MODELS
    from selfnorm.optim import OPTIMIZERS, SCHEDULES
    from selfnorm.samplers import SAMPLERS

    assert CASES.keys() == CRITERIA.keys()
    for key, table in {"sampler": SAMPLERS, "model": MODELS, "optimizer": OPTIMIZERS, "schedule": SCHEDULES}.items():
        used = {case[key].get("name") for case in CASES.values() if key in case} - {None}
        assert table.keys() - used <= {"adam", "constant"}, key  # those of a recipe that names none
    assert BATCHES.keys() == {"sentences", "streams"}
