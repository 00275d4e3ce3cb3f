"""Tables that find every n-gram, and their file: whole and of this very ARPA file, or made anew."""

import errno
import json
import os
import random
import shutil

import numpy as np
import pytest
from faults import cut, damaged, fail_at, flip_a_bit, kill_at, stages, zero_a_page
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_ngram import random_model, render

from selfnorm.files import WriteError
from selfnorm.ngrams import cache
from selfnorm.ngrams.build import build, table


@settings(max_examples=100, deadline=None)
@given(keys=st.sets(st.integers(0, 2**62), max_size=60), others=st.sets(st.integers(0, 2**62), max_size=60))
def test_every_key_is_found_and_no_other(keys, others):
    given_keys = np.array(sorted(keys), np.int64)
    values = np.arange(len(given_keys), dtype=np.float32)
    level = table(given_keys, values, values)
    asked = np.array([*keys, *others], np.int64)
    ranks = level.find(asked)
    assert [rank >= 0 for rank in ranks.tolist()] == [key in keys for key in asked.tolist()]
    assert (level.keys[ranks[ranks >= 0]] == asked[ranks >= 0]).all()
    assert (given_keys[level.log_probs[ranks[ranks >= 0]].astype(int)] == asked[ranks >= 0]).all()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(render(random_model(random.Random(3), 3, 6, 0.5)))
    return path


@pytest.fixture
def built(monkeypatch):
    """How often an ARPA file was read."""
    calls = []
    monkeypatch.setattr(cache, "build", lambda *given: calls.append(given) or build(*given))
    return calls


def same(one, other):
    assert one.vocabulary.words == other.vocabulary.words
    for mine, yours in zip(one.levels, other.levels, strict=True):
        for name in ("keys", "first", "log_probs", "backoffs"):
            np.testing.assert_array_equal(getattr(mine, name).view("u1"), getattr(yours, name).view("u1"))


def test_an_index_with_infinite_scores_is_made_anew(path, built):
    """Once -inf was kept as it was, and no path through it could be compared with another."""
    index = build(path)
    index.levels[0].log_probs[0] = -np.inf
    cache.save(cache.index_path(path), index, path, path.stat())
    same(cache.load(path), build(path))
    assert len(built) == 1


def test_the_index_is_kept_and_mapped(path, built):
    first = cache.load(path)
    second = cache.load(path)
    assert len(built) == 1
    assert cache.index_path(path).name == "lm.arpa.index"
    same(first, second)
    assert not second.levels[1].keys.flags.writeable
    assert not second.levels[1].keys.flags.owndata


def test_another_file_of_the_name_is_read_anew(path, built):
    cache.load(path)
    text = path.read_text()
    path.write_text(render(random_model(random.Random(4), 3, 6, 0.5)))
    same(cache.load(path), build(path))
    assert len(built) == 2
    path.write_text(text.replace("-1.", "-2."))  # as long as before
    os.utime(path, ns=(1, 1))
    same(cache.load(path), build(path))
    assert len(built) == 3


def test_no_index_is_kept_of_a_file_that_is_replaced_meanwhile(path, built, monkeypatch):
    """It would say that it is of the new one, and be taken for that ever after."""
    other = path.with_name("other.arpa")
    other.write_text(path.read_text().replace("-0.", "-1."))
    assert other.stat().st_size == path.stat().st_size

    def replaced(*given):
        index = build(*given)
        if other.exists():
            os.replace(other, path)
        return index

    monkeypatch.setattr(cache, "build", replaced)
    cache.load(path)
    assert not cache.index_path(path).exists()
    same(cache.load(path), build(path))


def test_an_index_that_can_be_no_file_stays_in_memory(path, built):
    cache.index_path(path).symlink_to("/dev/null")
    same(cache.load(path), build(path))
    same(cache.load(path), build(path))
    assert len(built) == 2


def test_a_copy_keeps_its_index(path, built, tmp_path):
    cache.load(path)
    os.utime(path, ns=(1, 1))
    cache.load(path)
    shutil.copy(path, tmp_path / "copy.arpa")
    shutil.copy(cache.index_path(path), tmp_path / "copy.arpa.index")
    cache.load(tmp_path / "copy.arpa")
    assert len(built) == 1


@pytest.mark.parametrize(("damage", "times"), [(flip_a_bit, 200), (cut, 100), (zero_a_page, 3)])
def test_damage_is_found_and_mended(path, damage, times):
    chance = random.Random(5)
    wanted = cache.load(path)
    beside = cache.index_path(path)
    whole = beside.read_bytes()
    for number in range(times):
        content = damage(whole, chance)
        if content == whole:
            continue
        with damaged(beside, content):
            with pytest.raises(ValueError, match=r"lm\.arpa\.index: "):
                cache.read(beside, cache.read_about(beside))
            if number < 5:
                same(cache.load(path), wanted)
                assert beside.read_bytes() == whole


def test_a_foreign_header_is_read_anew(path, built):
    cache.load(path)
    beside = cache.index_path(path)
    about = cache.read_about(beside)
    whole = beside.read_bytes()
    fields = json.loads(json.dumps(about.__dict__))
    bad = [[], {}, fields | {"format": 2}, fields | {"counts": ["x"]}, fields | {"counts": [-1]}, fields | {"text": 5}]
    bad += [fields | {"counts": []}, fields | {"more": 1}, fields | {"counts": [10**15] * 3}]
    for number, each in enumerate(bad, start=2):
        beside.write_bytes(cache.header(each) + whole[cache.HEADER :])
        cache.load(path)
        assert len(built) == number
        assert beside.read_bytes() == whole
    beside.write_bytes(b"something else")
    cache.load(path)
    assert beside.read_bytes() == whole


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_where_nothing_can_be_written_the_index_stays_in_memory(path, monkeypatch, code):
    save = cache.save
    monkeypatch.setattr(cache, "save", lambda *given: save(*given, hook=fail_at(0, code)))
    same(cache.load(path), build(path))
    assert [each.name for each in path.parent.iterdir()] == ["lm.arpa"]
    with pytest.raises(WriteError):
        cache.save(cache.index_path(path), build(path), path, path.stat())


def test_a_killed_writer_leaves_no_index_or_a_whole_one(path):
    index, beside = build(path), cache.index_path(path)

    def write(hook):
        cache.save(beside, index, path, path.stat(), hook)

    names = stages(write)
    for number in range(len(names)):
        beside.unlink(missing_ok=True)
        kill_at(number, write)
        assert beside.exists() == (names[number] == "renamed")
        same(cache.load(path), index)
