"""The token store: what is read is what was written, or a sentence that says why not."""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from faults import cut, flip_a_bit
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.store import HEADER, MAGIC, Data, TokenStore, verify_folder, write_store
from selfnorm.vocabulary import Vocabulary

SMALL = Vocabulary(["</s>", "<unk>", "a", "b", "c"], [9, 5, 3, 2, 1])
SENTENCES = [[2, 3], [], [4, 2, 1], [3]]


def large() -> Vocabulary:
    return Vocabulary(["</s>", "<unk>", *(f"w{i}" for i in range(70_000))])


def stored(path: Path, vocabulary: Vocabulary = SMALL) -> Path:
    write_store(path, vocabulary, [np.array([*sentence, 0], np.uint32) for sentence in SENTENCES])
    return path


@pytest.mark.parametrize(("vocabulary", "dtype"), [(SMALL, "<u2"), (large(), "<u4")], ids=["2 bytes", "4 bytes"])
def test_what_is_written_is_read(tmp_path, vocabulary, dtype):
    store = TokenStore.open(stored(tmp_path / "x.ids", vocabulary), vocabulary)
    assert [sentence.tolist() for sentence in store] == [[*sentence, 0] for sentence in SENTENCES]
    assert store.ids.dtype == np.dtype(dtype)
    assert (store.about.words, store.about.sentences, store.about.unknown) == (6, 4, 1)
    assert store.lengths.tolist() == [3, 1, 4, 2]
    assert (store.start, store.end) == (len(vocabulary), 0)
    assert isinstance(store.ids.base, np.memmap) or isinstance(store.ids, np.memmap)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(1, 4), max_size=5), max_size=9), st.lists(st.integers(0, 60), max_size=6))
def test_pieces_may_be_cut_anywhere_and_a_store_in_memory_is_the_same(tmp_path_factory, sentences, cuts):
    memory = TokenStore.of(sentences, SMALL)
    path = tmp_path_factory.mktemp("store") / "x.ids"
    write_store(path, SMALL, np.split(memory.ids, sorted(cuts)))
    disk = TokenStore.open(path, SMALL)
    np.testing.assert_array_equal(disk.ids, memory.ids)
    np.testing.assert_array_equal(disk.starts, memory.starts)
    assert disk.about.words == memory.about.words == sum(map(len, sentences))
    assert disk.about.unknown == memory.about.unknown


def test_a_foreign_file_is_refused(tmp_path):
    (tmp_path / "x.ids").write_bytes(b"hello" * 2_000)
    with pytest.raises(ValueError, match=r"x\.ids: not a token store; make one with `selfnorm prepare`"):
        TokenStore.open(tmp_path / "x.ids")


def test_another_vocabulary_is_refused(tmp_path):
    other = Vocabulary(["</s>", "<unk>", "a", "c", "b"])
    with pytest.raises(ValueError, match=r"prepared with another vocabulary \(of 5 words; this one has 5\)"):
        TokenStore.open(stored(tmp_path / "x.ids"), other)


@pytest.mark.parametrize(("size", "sentence"), [(HEADER + 9, "the file was cut"), (300, "header does not match")])
def test_a_cut_file_is_refused_without_reading_it(tmp_path, size, sentence):
    os.truncate(stored(tmp_path / "x.ids"), size)
    with pytest.raises(ValueError, match=sentence):
        TokenStore.open(tmp_path / "x.ids", verify=False)


def test_a_flipped_bit_of_the_ids_is_found_by_the_sum(tmp_path):
    path = stored(tmp_path / "x.ids")
    content = bytearray(path.read_bytes())
    content[HEADER] ^= 2
    path.write_bytes(content)
    with pytest.raises(ValueError, match="the ids do not match their SHA-256"):
        TokenStore.open(path)


@pytest.mark.parametrize(
    "change", [{"dtype": "O"}, {"format": 9}, {"words": 1.5}, {"more": 1}, {"sentences": -4}], ids=str
)
def test_a_hostile_header_is_refused(tmp_path, change):
    path = stored(tmp_path / "x.ids")
    content = path.read_bytes()
    fields = json.loads(content[len(MAGIC) + 32 : HEADER].rstrip(b"\0")) | change
    body = json.dumps(fields).encode().ljust(HEADER - len(MAGIC) - 32, b"\0")
    path.write_bytes(MAGIC + hashlib.sha256(body).digest() + body + content[HEADER:])
    with pytest.raises(ValueError, match=r"prepare (the text|it) again"):
        TokenStore.open(path)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for name in ("train", "valid", "test"):
        (folder / name).write_text(f"the words of {name}\nin two lines\n" * 20)
    prepare([folder / "train"], folder / "data", 8, valid=folder / "valid", test=folder / "test")
    return folder / "data"


def test_a_data_folder_opens(data):
    opened = Data.open(data)
    assert opened.valid is not None
    assert opened.test is not None
    assert len(opened.vocabulary) == 8
    assert len(opened.train) == len(opened.valid) == len(opened.test) == 40
    assert set(verify_folder(data)) == {"vocab.txt", "train.ids", "valid.ids", "test.ids"}


@pytest.mark.parametrize("name", ["vocab.txt", "train.ids", "valid.ids", "test.ids", "manifest.json"])
def test_no_cut_and_no_flipped_bit_goes_unseen(data, tmp_path, name):
    whole = (data / name).read_bytes()
    broken = shutil.copytree(data, tmp_path / "data") / name
    chance = random.Random(name)
    for turn in range(200):
        broken.write_bytes((flip_a_bit, cut)[turn % 2](whole, chance))
        with pytest.raises(ValueError, match=name):
            Data.open(broken.parent)
    broken.unlink()
    with pytest.raises(ValueError, match=f"{name}: the file is missing"):
        Data.open(broken.parent)


@pytest.mark.parametrize("name", ["train.ids", "valid.ids"])
def test_a_store_alone_sees_them_too(data, tmp_path, name):
    whole = (data / name).read_bytes()
    chance = random.Random(name)
    for turn in range(200):
        (tmp_path / name).write_bytes((flip_a_bit, cut)[turn % 2](whole, chance))
        with pytest.raises(ValueError, match=name):
            TokenStore.open(tmp_path / name)


def test_no_folder_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="there is no such folder; make one with `selfnorm prepare"):
        Data.open(tmp_path / "nope")
