"""Whole launches: what is lost is started again to the same end, and whatever goes wrong is one sentence."""

import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from launches import Ensemble, Launch
from trials import recipe

from selfnorm.checkpoint import Checkpoints
from selfnorm.distributed.supervisor import Machines
from selfnorm.recipe import to_toml


def sentences(said: str) -> list[str]:
    """What is no line of a training's own report."""
    return [line for line in said.splitlines() if not line.startswith("step ")]


@pytest.mark.timeout(900)
def test_killed_frozen_and_stopped_it_ends_bit_identical(data, tmp_path):
    """R13: one of each; `make torture` kills 50 times and freezes 20 times."""
    ensemble = Ensemble(tmp_path / "mode3", recipe(data, "mode3", steps=400, save_every=11, log_every=4))
    chance, came = random.Random(13), 0
    while came < 2:  # a fast machine may be done before the second
        came, faults = ensemble.disturbed([signal.SIGKILL, signal.SIGSTOP], chance)
        assert faults == []
    said = sentences((tmp_path / f"mode3/2-{ensemble.number}.err").read_text())
    killed, frozen = (line for line in said if "going on" not in line)  # said once there is a checkpoint
    assert re.match(r"process \d was ended by SIGKILL; starting again", killed)
    assert re.match(r"process \d has been frozen for 10 s; starting again", frozen)

    launch = ensemble.launch("stopped")
    assert launch.wait_for_progress(2)
    launch.process.send_signal(signal.SIGTERM)
    status, said = launch.end()
    (sentence,) = sentences(said)
    assert status == 128 + signal.SIGTERM
    assert "stopped by SIGTERM at step" in sentence
    assert sentence.endswith("recipe.toml " + f"{launch.run} --processes=2")
    assert ensemble.faults_of(ensemble.launch("stopped")) == []


def launched(tmp_path, made, *more, before=None):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(made))
    return Launch(path, tmp_path / "run", 2, *more, before=before).end()


def test_a_full_disk_is_one_sentence_and_no_restart(data, tmp_path):
    limited = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))  # noqa: E731
    status, said = launched(tmp_path, recipe(data, "mode3", steps=50), "--restarts=3", before=limited)
    (sentence,) = sentences(said)
    assert status == 3
    assert "File too large" in sentence


def test_wrong_input_is_one_sentence_and_no_restart(tmp_path):
    status, said = launched(tmp_path, recipe(tmp_path / "nowhere", "mode3"), "--restarts=3")
    (sentence,) = sentences(said)
    assert status == 2
    assert "there is no such folder" in sentence


def test_processes_import_nothing_from_the_folder_one_is_in(tmp_path):
    (tmp_path / "re.py").write_text("raise SystemExit('somebody else wrote this')")
    (tmp_path / "recipe.toml").write_text(to_toml(recipe(tmp_path / "nowhere", "mode3")))
    command = [Path(sys.executable).parent / "selfnorm", "train", "recipe.toml", "run", "--processes=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    (sentence,) = sentences(done.stderr)
    assert done.returncode == 2
    assert "there is no such folder" in sentence


def by_hand(tmp_path, made, port, rank, *more, **environment):
    """One rank as a cluster's own launcher may start it."""
    path = tmp_path / f"recipe-{rank}.toml"
    path.write_text(to_toml(made))
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
    return subprocess.Popen(
        [sys.executable, "-m", "selfnorm", "train", str(path), str(tmp_path / "run"), *more],
        env={**os.environ, **place, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_different_recipes_are_one_sentence(data, tmp_path, port):
    ranks = [by_hand(tmp_path, recipe(data, "mode3", seed=rank), port, rank) for rank in range(2)]
    said = "".join(rank.communicate(timeout=120)[1] for rank in ranks)
    (sentence,) = sentences(said)
    assert "has another recipe than process" in sentence
    assert {rank.returncode for rank in ranks} == {2}


def test_a_missing_peer_is_one_sentence(data, tmp_path, port):
    alone = by_hand(tmp_path, recipe(data, "mode3"), port, 1, SELFNORM_JOIN="2")
    (sentence,) = sentences(alone.communicate(timeout=120)[1])
    assert sentence.startswith(f"selfnorm: process 1 of 2 did not reach the others at 127.0.0.1:{port} within 2 s")
    assert alone.returncode == 75


def test_a_missing_machine_is_one_sentence(data, tmp_path, port, monkeypatch):
    monkeypatch.setenv("SELFNORM_JOIN", "2")
    status, said = launched(tmp_path, recipe(data, "mode3"), "--nodes=2", f"--address=127.0.0.1:{port}")
    (sentence,) = sentences(said)
    assert sentence.startswith("the processes could not be started together (")
    assert status == 75


def test_a_stop_while_a_machine_is_waited_for(data, tmp_path, port):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(data, "mode3")))
    launch = Launch(path, tmp_path / "run", 1, "--nodes=2", "--node=1", f"--address=127.0.0.1:{port}")
    launch.wait_for_torchrun()
    launch.process.send_signal(signal.SIGINT)
    status, said = launch.end(60)
    assert (status, sentences(said)) == (128 + signal.SIGINT, ["stopped by SIGINT before the training began"])


def test_a_signal_to_everybody_saves_all(data, tmp_path):
    """As `pkill` or the shutdown of a machine sends it: supervisor, torchrun and every rank get it at once."""
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(data, "mode3", steps=2000, save_every=1900, log_every=4)))
    launch = Launch(path, tmp_path / "run", 2)
    assert launch.wait_for_progress(2)
    for process in (launch.process.pid, *launch.ranks().values()):
        os.kill(process, signal.SIGTERM)
    status, said = launch.end()
    (sentence,) = sentences(said)
    assert "stopped by SIGTERM at step" in sentence
    assert status == 128 + signal.SIGTERM
    assert Checkpoints(tmp_path / "run/checkpoints").latest().step > 0


def test_machines_are_checked():
    with pytest.raises(ValueError, match="give --address HOST:PORT of machine 0"):
        Machines(2, nodes=2)
    with pytest.raises(ValueError, match="machine 2 must be one of 0 to 1"):
        Machines(2, nodes=2, node=2, address="head:29400")
    with pytest.raises(ValueError, match="--address head: give the name"):
        Machines(2, nodes=2, address="head")
    assert Machines(8, 2, 1, "head:29400").arguments()[-2:] == ["--master-addr=head", "--master-port=29400"]


@pytest.mark.timeout(900)
def test_two_machines_lose_a_process_and_go_on(data, tmp_path, port):
    """Two supervisors, as on two machines, with a process each: both start again and meet."""
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(data, "mode3", steps=300, save_every=11, log_every=4)))
    more = ("--nodes=2", f"--address=127.0.0.1:{port}", "--restarts=5")
    first = Launch(path, tmp_path / "run", 1, *more, "--node=0")
    second = Launch(path, tmp_path / "run", 1, *more, "--node=1", err="second")
    assert first.wait_for_progress(2)
    os.kill(first.ranks()[1], signal.SIGKILL)
    assert [first.end()[0], second.end()[0]] == [0, 0]
    assert "ended by SIGKILL; starting again" in second.err.read_text()
