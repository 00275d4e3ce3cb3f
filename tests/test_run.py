"""The run directory under real faults: its files are all old or all new, and no damaged one is read."""

import errno
import itertools
import json
import os
import pickle
import random

import pytest
import torch
from faults import Evil, beside, cut, damaged, error_with_small_files, fail_at, flip_a_bit, in_child, kill_at, stages

from selfnorm import manifest
from selfnorm.files import WriteError
from selfnorm.run import load_model, path_of, save_files, save_model, verify
from selfnorm.tensorfile import read_tensors

LISTED = ["README.md", "config.json", "model.safetensors", "recipe.toml", "vocab.txt"]


def save(folder, number, hook=lambda _stage: None):
    tensors = {"weight": torch.full((8,), float(number)), "long": torch.full((1_200_000,), number, dtype=torch.uint8)}
    save_small(folder, number, hook, tensors)


def save_small(folder, number, hook=lambda _stage: None, tensors=None):
    tensors = tensors or {"weight": torch.full((8,), float(number))}
    files = {name: f"{name} of {number}\n".encode() for name in ("vocab.txt", "README.md")}
    save_model(folder, tensors, {"number": number}, files | {"recipe.toml": b"the same\n"}, hook)


def number_of(folder):
    """The one generation that all files of a run belong to."""
    tensors, config = load_model(folder)
    paths = verify(folder)
    assert sorted(paths) == LISTED
    for name in ("vocab.txt", "README.md"):
        assert path_of(folder, name).read_text() == f"{name} of {config['number']}\n"
    assert torch.all(tensors["weight"] == config["number"])
    return config["number"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def run(tmp_path):
    save_small(tmp_path / "run", 1)
    return tmp_path / "run"


def test_a_run_has_its_public_names_and_nothing_else(run):
    for number in (1, 2):
        save(run, number)
        assert number_of(run) == number
        assert names(run) == sorted([*LISTED, "manifest.json"])
    assert path_of(run, "vocab.txt") == run / "vocab.txt"
    assert json.loads((run / "config.json").read_text()) == {"number": 2}


def test_files_may_come_before_the_model(tmp_path):
    run = tmp_path / "run"
    save_files(run, {"recipe.toml": b"data", "vocab.txt": b"old"})
    assert sorted(verify(run)) == ["recipe.toml", "vocab.txt"]
    with pytest.raises(ValueError, match="the run has no model yet"):
        load_model(run)
    with pytest.raises(ValueError, match=r"the run has no README\.md"):
        path_of(run, "README.md")
    save_small(run, 1)
    assert number_of(run) == 1


def test_growing_logs_and_checkpoints_are_not_listed(run):
    (run / "metrics.jsonl").write_text("{}\n")
    (run / "checkpoints").mkdir()
    assert sorted(verify(run)) == LISTED


def test_killed_at_every_stage_of_the_writer(tmp_path):
    save(tmp_path / "rehearsal", 1)
    passed = stages(lambda hook: save(tmp_path / "rehearsal", 2, hook))
    assert len(passed) > 25
    for number, stage in enumerate(passed):
        run = tmp_path / f"killed-{number}"
        save(run, 1)
        kill_at(number, lambda hook, run=run: save(run, 2, hook))
        assert number_of(run) == (2 if number >= passed.index("manifest.json renamed") else 1), stage
        save_files(run, {"recipe.toml": b"another\n"})  # any later save finishes or clears what the killed one left
        assert number_of(run) in (1, 2), stage
        assert names(run) == sorted([*LISTED, "manifest.json"]), stage


def test_an_error_of_the_system_at_every_stage(run):
    passed = stages(lambda hook: save(run, 1, hook))
    for number in range(passed.index("manifest.json renamed")):
        code = (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EACCES)[number % 4]
        with pytest.raises(OSError, match=os.strerror(code)) as raised:
            save(run, 2, fail_at(number, code))
        assert isinstance(raised.value, WriteError) or passed[number].endswith("staged")
        assert number_of(run) == 1, passed[number]
        assert names(run) == sorted([*LISTED, "manifest.json"]), passed[number]


def test_a_full_disk_leaves_the_run_as_it_was(run, tmp_path):
    error = error_with_small_files(500_000, lambda: save(run, 2), tmp_path / "report")
    assert error.startswith(f"WriteError {errno.EFBIG}: {run / 'model.safetensors'} cannot be written: File too large")
    assert number_of(run) == 1
    assert names(run) == sorted([*LISTED, "manifest.json"])


@pytest.mark.parametrize("damage", [flip_a_bit, cut])
def test_every_damaged_file_is_detected(run, damage):
    chance = random.Random(6)
    for _ in range(200):
        path = run / chance.choice([*LISTED, "manifest.json"])
        with damaged(path, damage(path.read_bytes(), chance)):
            for read in (verify, load_model):
                with pytest.raises(ValueError, match=path.name):
                    read(run)
    assert number_of(run) == 1


def test_swapped_files_are_detected(run, tmp_path):
    save_small(tmp_path / "other", 2)
    for name in ("vocab.txt", "config.json", "model.safetensors"):
        with damaged(run / name, (tmp_path / "other" / name).read_bytes()), pytest.raises(ValueError, match=name):
            verify(run)


@pytest.mark.parametrize("name", [*LISTED, "manifest.json"])
def test_missing_files_and_links_are_refused(run, tmp_path, name):
    (run / name).rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{name}"):
        verify(run)
    (run / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=f"{name}: is a symbolic link"):
        load_model(run)


def test_what_is_no_run_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="there is no such directory"):
        load_model(tmp_path / "none")
    with pytest.raises(ValueError, match=r"is not a run, it has no manifest\.json"):
        verify(tmp_path)


def test_hostile_runs_are_refused_and_run_nothing(run, tmp_path):
    sentinel = tmp_path / "sentinel"
    evil = pickle.dumps(Evil(sentinel))
    for name, sentence in [("model.safetensors", "not a whole safetensors file"), ("config.json", "not valid JSON")]:
        save_small(run, 1)
        save_files(run, {name: evil})  # with all sums right
        with pytest.raises(ValueError, match=sentence):
            load_model(run)
    for name in ("../x", "/etc/passwd", "..", ".hidden", "a/b", "manifest.json", ""):
        with pytest.raises(ValueError, match="cannot be a file of a run"):
            save_files(run, {name: b""})
        if name != "manifest.json":
            (run / "manifest.json").write_bytes(manifest.render({name: manifest.Entry(0, "")}))
            with pytest.raises(ValueError, match="not a plain file name"):
                verify(run)
    assert not sentinel.exists()


@pytest.mark.parametrize(
    "content", [b"{", b'{"files": {"a": {"bytes": Infinity, "sha256": ""}}}', b'{"files": [1e999]}']
)
def test_a_damaged_manifest_does_not_stop_a_training_from_saving(run, content):
    (run / "manifest.json").write_bytes(content)
    with pytest.warns(UserWarning, match=r"manifest\.json: not a manifest.*it is replaced"):
        save_small(run, 2)
    assert number_of(run) == 2


def test_a_config_that_is_no_json_is_refused(run):
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        save_model(run, {}, {"loss": float("inf")}, {})
    assert number_of(run) == 1


def test_a_reader_beside_a_writer_sees_whole_generations(run):
    def write():
        for number in itertools.count(2):
            save_small(run, number)

    seen = []
    with beside(write) as writes:
        while len(set(seen)) < 5 or len(seen) < 150:
            assert writes()
            tensors, config = load_model(run)
            assert torch.all(tensors["weight"] == config["number"])
            seen.append(config["number"])
    assert seen == sorted(seen)


def test_a_model_saved_between_two_reads_is_read_whole(run, monkeypatch):
    def read_then_save(path):
        tensors = read_tensors(path)
        if torch.all(tensors["weight"] == 1):
            save_small(run, 2)
        return tensors

    monkeypatch.setattr("selfnorm.run.read_tensors", read_then_save)
    assert number_of(run) == 2


def test_children_that_fail_are_noticed():
    def failing():
        raise RuntimeError

    assert in_child(failing) == 1
