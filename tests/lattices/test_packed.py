"""Bounded reading: every fault of a file is one sentence, and no file fills the memory."""

import bz2
import gzip
import os
import time
import tracemalloc
import zlib
from collections import deque

import fuzz
import pytest

from selfnorm.lattices import packed

TEXT = "one two\nthree\r\n\nfünf".encode()
LINES = [(1, b"one two"), (2, b"three"), (3, b""), (4, "fünf".encode())]
PACK = {"plain": bytes, "gz": gzip.compress, "bz2": bz2.compress}


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", ["text", "text.slf"])
def test_a_packed_file_is_known_by_its_content(tmp_path, packing, name):
    path = tmp_path / name
    path.write_bytes(PACK[packing](TEXT))
    assert list(packed.lines(path)) == LINES


def test_members_of_a_gzip_file_are_read_one_after_the_other(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(TEXT[:5]) + gzip.compress(TEXT[5:]))
    assert list(packed.lines(path)) == LINES


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"\xef\xbb\xbfone\n\xef\xbb\xbf")
    assert list(packed.lines(path)) == [(1, b"one"), (2, b"\xef\xbb\xbf")]


@pytest.mark.parametrize("name", ["empty", "empty.gz"])
def test_an_empty_file_has_no_lines(tmp_path, name):
    (tmp_path / name).touch()
    assert list(packed.lines(tmp_path / name)) == []


def test_content_tells_how_far_it_has_unpacked(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(TEXT))
    with packed.content(path) as file:
        assert (file.peek(3)[:3], file.tell()) == (b"one", 0)
        assert (file.read(4), file.tell()) == (b"one ", 4)
        assert file.read() == TEXT[4:]


def sentence(path, **limits):
    """What reading `path` ends with."""
    with pytest.raises(ValueError, match=r"\S") as caught:
        deque(packed.lines(path, **limits), maxlen=0)
    assert fuzz.one_sentence(caught.value, path)
    return str(caught.value)


@pytest.mark.parametrize("packing", ["gz", "bz2"])
def test_a_file_that_was_cut_off(tmp_path, packing):
    path = tmp_path / f"text.{packing}"
    whole = PACK[packing](os.urandom(50_000).hex().encode())
    path.write_bytes(whole[:-20])
    assert f"ends at byte {len(whole) - 20:,}, too early" in sentence(path)


@pytest.mark.parametrize("packing", ["gz", "bz2"])
def test_a_file_that_was_damaged(tmp_path, packing):
    path = tmp_path / f"text.{packing}"
    whole = bytearray(PACK[packing](TEXT * 100))
    whole[len(whole) // 2] ^= 255
    path.write_bytes(whole)
    assert "damaged before byte" in sentence(path)


def test_a_name_that_promises_what_the_file_is_not(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(TEXT)
    assert "is no .gz file" in sentence(path)


def test_a_file_that_is_not_there_and_a_folder(tmp_path):
    assert "cannot be read (No such file" in sentence(tmp_path / "absent")
    assert "cannot be read (Is a directory" in sentence(tmp_path)


def test_another_encoding_has_its_line_and_byte(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("one\nfünf".encode("latin-1"))
    assert ":2: byte 5 (0xfc) is not UTF-8" in sentence(path)


def test_a_line_that_does_not_end_is_not_held(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"long" * 2_500_000)
    tracemalloc.start()
    try:
        assert ":2: the line is longer than 1,048,576 bytes" in sentence(path)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert list(packed.lines(path, longest=10_000_000))[1] == (2, b"long" * 2_500_000)


def test_a_limit_in_bytes(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(TEXT))
    assert "unpacks to more than 9 bytes" in sentence(path, most=9)


@pytest.mark.parametrize("line", [b"\n", b"J=1 S=0 E=1 a=0 l=0\n", b"x"])
def test_a_gzip_bomb_is_refused_in_time_and_memory(tmp_path, line):
    """5 GB of lines, or one line, in 5 MB."""
    pack = zlib.compressobj(wbits=31)
    member = pack.compress(line * ((50 << 20) // len(line))) + pack.flush()
    path = tmp_path / "bomb.gz"
    path.write_bytes(member * 100)
    if line == b"x":
        tracemalloc.start()  # slows down by the line
    started = time.process_time()
    try:
        assert "unpacks to over 200 times its size" in sentence(path, longest=1 << 30)
        assert time.process_time() - started < 5
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
