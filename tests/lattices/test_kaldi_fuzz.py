"""Whatever an archive holds, its readers give lattices and sentences, in bounded time and memory."""

import struct
import tracemalloc

import fuzz
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kaldi_cases import random_lattice, words_file

from selfnorm.lattices import kaldi
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.kaldi_binary import VECTOR

SETTINGS = settings(max_examples=fuzz.trials(500), suppress_health_check=[HealthCheck.function_scoped_fixture])


def tried(path, data, words, most=16 << 20):
    """Read the bytes; what comes is a lattice whose arcs lead on, or one sentence."""
    path.write_bytes(data)
    tracemalloc.start()
    found = 0
    try:
        for item in kaldi.read(path, words=words, max_arcs=1000):
            found += 1
            if isinstance(item, Broken):
                assert fuzz.one_sentence(ValueError(item.sentence), path)
            else:
                assert (item.sources < item.targets).all()
                assert item.arcs <= 1001
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most
    return found


@pytest.fixture
def words(tmp_path):
    return words_file(tmp_path)


@pytest.mark.parametrize("compact", [True, False], ids=["compact", "lattice"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_damaged_archives(tmp_path, words, binary, compact):
    with kaldi.writer(tmp_path / "whole", words, binary=binary, compact=compact) as write:
        for seed in range(4):
            write(random_lattice(seed, compact=compact))
    whole = (tmp_path / "whole").read_bytes()
    assert tried(tmp_path / "lat", whole, words) == 4
    for data in fuzz.damaged(whole, fuzz.trials(200)):
        tried(tmp_path / "lat", data, words)


def test_a_start_with_a_large_number_takes_no_memory(tmp_path, words):
    assert tried(tmp_path / "lat", b"u\n23852539\n7 0.0,0.0\n\n", words) == 1


FIELDS = st.one_of(
    st.integers(0, 6).map(str),
    st.sampled_from(["3", "a", "<eps>", "-1", "1e5", "u", "Infinity", "9" * 11, "1,2,", "0,0,", "1,2", ",,", "1_2"]),
    st.builds("{},{},{}".format, st.floats(), st.floats(width=32), st.sampled_from(["", "1", "1_2", "_", "x"])),
    st.text(max_size=5),
)
LINES = st.lists(FIELDS, max_size=6).map(" ".join)


@SETTINGS
@given(st.lists(st.one_of(LINES, st.just(""), st.just("u \n0 1 3 1,2,\n1")), max_size=12))
def test_made_up_texts(tmp_path, words, lines):
    tried(tmp_path / "lat", "\n".join(lines).encode(errors="replace"), words)


NUMBERS = st.one_of(st.integers(-2, 4), st.sampled_from([2**31 - 1, -(2**31), 2**20, 1000]))
LONG = st.one_of(st.integers(-2, 4), st.sampled_from([2**60, 2**63 - 1, -(2**63), 1001, 2**31]))
PIECES = st.one_of(
    NUMBERS.map(lambda number: struct.pack("<i", number)),
    LONG.map(lambda number: struct.pack("<q", number)),
    st.floats(width=32).map(lambda number: struct.pack("<f", number)),
    st.just(struct.pack("<ffi", float("inf"), float("inf"), 0)),
    st.just(struct.pack("<ffiq", 0, 0, 0, 0)),
    st.just(struct.pack("<iiffii", 3, 3, 0, 0, 0, 1)),
    st.binary(max_size=8),
)
KINDS = st.sampled_from([b"compactlattice44", b"lattice4", b"lattice8", b"compactlattice48", b"standard", b""])


@st.composite
def archives(draw):
    data = b""
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(KINDS)
        data += draw(st.sampled_from([b"u ", b"v \0B", b" ", b"\xff ", b""]))
        data += VECTOR + struct.pack("<i", len(kind)) + kind
        flags = draw(st.sampled_from([0, 0, 0, 0, 1, 4]))
        data += struct.pack("<iiQqqq", 2, flags, 3, draw(LONG), draw(LONG), draw(LONG))
        data += b"".join(draw(st.lists(PIECES, max_size=12)))
    return data


@SETTINGS
@given(archives())
def test_made_up_bytes(tmp_path, words, data):
    tried(tmp_path / "lat", data, words)
