"""Checkpoints under real faults: the newest whole one is found, a broken one never read, a good one never lost."""

import errno
import json
import pickle
import random
import warnings

import pytest
import torch
from faults import Evil, cut, damaged, error_with_small_files, fail_at, flip_a_bit, kill_at, stages, zero_a_page

from selfnorm import manifest
from selfnorm.checkpoint import STATE, TENSORS, BrokenCheckpoint, Checkpoints
from selfnorm.files import WriteError

ALL_FILES = (TENSORS, STATE, manifest.MANIFEST)


def tensors_at(step, size=12):
    return {
        "weight": torch.full((size, 3), float(step)),
        "half": torch.full((3,), step, dtype=torch.bfloat16),
        "generator": torch.full((1_200_000,), step, dtype=torch.uint8),  # two pieces: a kill falls inside a tensor
    }


def save(checkpoints, step, hook=None):
    options = {"hook": hook} if hook else {}
    return checkpoints.save(step, tensors_at(step), {"loss": step / 3, "seen": [step]}, **options)


def small(checkpoints, step):
    return checkpoints.save(step, {"weight": torch.full((3,), float(step))}, {"step": step})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def quiet_latest(checkpoints):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return checkpoints.latest()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def checkpoints(folder):
    return Checkpoints(folder)


@pytest.fixture
def two(checkpoints):
    """Checkpoints of steps 1 and 2, small enough for hundreds of faults."""
    small(checkpoints, 1)
    small(checkpoints, 2)
    return checkpoints


def test_what_was_saved_is_read_back(checkpoints, folder):
    assert checkpoints.latest() is None
    path = save(checkpoints, 7)
    assert path == folder / "step-00000007"
    assert names(path) == ["manifest.json", "state.json", "tensors.safetensors"]
    again = quiet_latest(checkpoints)
    assert (again.step, again.state, again.path) == (7, {"loss": 7 / 3, "seen": [7]}, path)
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in tensors_at(7).items())


def test_a_state_may_be_infinite(checkpoints):
    checkpoints.save(1, {}, {"best": float("inf")})
    assert checkpoints.latest().state == {"best": float("inf")}


def test_two_generations_are_kept(checkpoints, folder):
    for step in (5, 10, 15, 20):
        small(checkpoints, step)
    assert names(folder) == ["step-00000015", "step-00000020"]
    assert checkpoints.latest().step == 20


@pytest.mark.parametrize("keep", [1, 2, 3, 5])
def test_keep_says_how_many(folder, keep):
    checkpoints = Checkpoints(folder, keep=keep)
    for step in range(1, 5):
        small(checkpoints, step)
        assert len(names(folder)) == min(keep, step)


def test_keep_nothing_is_refused(folder):
    with pytest.raises(ValueError, match="keep at least 1"):
        Checkpoints(folder, keep=0)


def test_a_step_saved_again_replaces_the_first(two, folder):
    two.save(2, {}, {"done": True})
    assert two.latest().state == {"done": True}
    assert names(folder) == ["step-00000001", "step-00000002.1"]
    two.save(2, {}, {"done": 2})
    assert two.latest().state == {"done": 2}


def test_a_step_before_a_whole_checkpoint_is_refused(two, folder):
    with pytest.raises(ValueError, match=r"step-00000002: is newer than step 1.*resume from it"):
        small(two, 1)
    assert names(folder) == ["step-00000001", "step-00000002"]


def test_after_a_fallback_the_broken_one_goes_and_the_good_one_stays(two, folder):
    small(two, 9)  # 2 and 9 are there now
    (folder / "step-00000009" / STATE).unlink()
    with pytest.warns(BrokenCheckpoint, match=r"state\.json: the file is missing.*step 2 is used instead"):
        assert two.latest().step == 2
    small(two, 4)
    assert names(folder) == ["step-00000002", "step-00000004"]
    assert quiet_latest(two).step == 4


def third_save(folder):
    """Two checkpoints and the writer of the third, which also prunes."""
    checkpoints = Checkpoints(folder)
    save(checkpoints, 1)
    save(checkpoints, 2)
    return checkpoints, lambda hook: save(checkpoints, 3, hook)


def test_killed_at_every_stage_of_the_writer(tmp_path):
    passed = stages(third_save(tmp_path / "rehearsal")[1])
    assert passed.count("writing generator") == 2  # so one kill falls inside a tensor
    for number, stage in enumerate(passed):
        checkpoints, write = third_save(tmp_path / f"killed-{number}")
        kill_at(number, write)
        expected = 3 if number >= passed.index("renamed") else 2
        again = quiet_latest(checkpoints)
        assert again.step == expected, stage
        assert all(torch.equal(again.tensors[key], tensor) for key, tensor in tensors_at(expected).items()), stage
        shown = [path for path in checkpoints.folder.iterdir() if not path.name.startswith(".")]
        assert all(names(path) == sorted(ALL_FILES) for path in shown), stage  # none is half written or half removed
        checkpoints.tidy()
        assert not [left for left in names(checkpoints.folder) if left.startswith(".")], stage
        save(checkpoints, 4)
        assert quiet_latest(checkpoints).step == 4, stage
        assert len(names(checkpoints.folder)) == 2, stage


def test_killed_in_the_very_first_save(tmp_path):
    passed = stages(lambda hook: save(Checkpoints(tmp_path / "rehearsal"), 1, hook))
    for number in range(passed.index("renamed")):
        checkpoints = Checkpoints(tmp_path / f"killed-{number}")
        kill_at(number, lambda hook, checkpoints=checkpoints: save(checkpoints, 1, hook))
        assert checkpoints.latest() is None


def test_an_error_of_the_system_at_every_stage(tmp_path):
    passed = stages(lambda hook: save(Checkpoints(tmp_path / "rehearsal"), 1, hook))
    written = passed.index("renamed")
    for code in (errno.ENOSPC, errno.EFBIG, errno.EIO, errno.EACCES):
        checkpoints = Checkpoints(tmp_path / errno.errorcode[code])
        small(checkpoints, 1)
        for number in range(written):
            with pytest.raises(WriteError, match=r"step-00000002.* cannot be written: ") as raised:
                save(checkpoints, 2, fail_at(number, code))
            assert raised.value.errno == code
            assert names(checkpoints.folder) == ["step-00000001"]
            assert quiet_latest(checkpoints).step == 1


def test_a_full_disk_leaves_the_last_checkpoint_usable(two, folder, tmp_path):
    error = error_with_small_files(500_000, lambda: save(two, 3), tmp_path / "report")
    assert error.startswith(
        f"WriteError {errno.EFBIG}: {folder / 'step-00000003' / TENSORS} cannot be written: File too"
    )
    assert names(folder) == ["step-00000001", "step-00000002"]
    assert quiet_latest(two).step == 2


@pytest.mark.parametrize(("damage", "tries"), [(flip_a_bit, 200), (cut, 200), (zero_a_page, 20)])
def test_every_damaged_file_is_detected(two, folder, damage, tries):
    chance = random.Random(5)
    for _ in range(tries):
        path = folder / "step-00000002" / chance.choice(ALL_FILES)
        with damaged(path, damage(path.read_bytes(), chance)), pytest.warns(BrokenCheckpoint) as warned:
            assert two.latest().step == 1
        assert str(path) in str(warned[0].message)
    assert quiet_latest(two).step == 2


@pytest.mark.parametrize("name", ALL_FILES)
def test_every_byte_of_the_manifest_counts_and_every_file_is_needed(two, folder, name):
    path = folder / "step-00000002" / name
    whole = path.read_bytes()
    if name == manifest.MANIFEST:
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
            with pytest.raises(ValueError, match=r"manifest\.json"):
                manifest.read(path.parent)
    path.unlink()
    with pytest.warns(BrokenCheckpoint, match=f"{name}: the file is missing"):
        assert two.latest().step == 1


def test_swapped_files_and_renamed_folders_are_detected(two, folder):
    first, second = folder / "step-00000001", folder / "step-00000002"
    for name in (TENSORS, STATE):
        swap(first / name, second / name)
        with pytest.raises(ValueError, match="no whole checkpoint is left"):
            two.latest()
        swap(first / name, second / name)
    second.rename(folder / "step-00000005")
    with pytest.warns(BrokenCheckpoint, match="holds step 2, not the one in its name"):
        assert two.latest().step == 1
    small(two, 3)  # what `latest` would not read is not in the way of the next
    assert names(folder) == ["step-00000001", "step-00000003"]


def swap(left, right):
    middle = left.with_name("middle")
    left.rename(middle)
    right.rename(left)
    middle.rename(right)


def test_when_all_are_broken_the_error_names_each(two, folder):
    for path in folder.glob("*/state.json"):
        path.write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"no whole checkpoint is left \(.*step-00000002/state.*step-00000001/state"):
        two.latest()


def test_a_callback_may_take_the_warning(folder):
    heard = []
    checkpoints = Checkpoints(folder, warn=heard.append)
    small(checkpoints, 1)
    path = small(checkpoints, 2)
    (path / TENSORS).unlink()
    assert quiet_latest(checkpoints).step == 1
    assert len(heard) == 1
    assert "the checkpoint of step 1 is used instead" in heard[0]


def forge(path, contents):
    """A checkpoint whose sums are all right, as an attacker would make it."""
    entries = {name: manifest.write_file(path / name, content, lambda _: None) for name, content in contents.items()}
    (path / manifest.MANIFEST).write_bytes(manifest.render(entries))


def test_hostile_checkpoints_are_refused_and_run_nothing(two, folder, tmp_path):
    path, sentinel = folder / "step-00000002", tmp_path / "sentinel"
    good = {name: (path / name).read_bytes() for name in (TENSORS, STATE)}
    evil = pickle.dumps(Evil(sentinel))
    (folder.parent / "x").write_bytes(evil)
    cases = [
        (good | {TENSORS: evil}, "not a whole safetensors file"),
        (good | {STATE: evil}, "not valid JSON"),
        (good | {STATE: b"[" * 100_000}, "not valid JSON"),
        (good | {STATE: b"[]"}, "does not hold a step"),
        (good | {STATE: json.dumps({"step": 2, "state": 3}).encode()}, "does not hold a step"),
        (good | {"more.pt": evil}, "does not list"),
        (good | {"../../x": evil}, "not a plain file name"),
        (good | {str(tmp_path / "x"): evil}, "not a plain file name"),
    ]
    for contents, sentence in cases:
        forge(path, contents)
        with pytest.warns(BrokenCheckpoint, match=sentence):
            assert two.latest().step == 1
    for raw in (b"[" * 100_000, b"{}", b" " * (2 << 20), b'{"files": {"a": 3}}', evil):
        (path / manifest.MANIFEST).write_bytes(raw)
        with pytest.warns(BrokenCheckpoint, match="manifest"):
            assert two.latest().step == 1
    assert not sentinel.exists()


@pytest.mark.parametrize("name", [*ALL_FILES, "."])
def test_links_are_refused(two, folder, tmp_path, name):
    path = folder / "step-00000002" / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(BrokenCheckpoint, match="link"):
        assert two.latest().step == 1
    small(two, 3)  # and the link is pruned like any other, without following it
    small(two, 4)
    assert names(folder) == ["step-00000003", "step-00000004"]
    assert (tmp_path / "elsewhere").exists()
