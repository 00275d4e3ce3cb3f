"""bzip2 by several threads against Python's own `bz2`: the same bytes, and of what is damaged the same faults."""

import bz2
import io
import os
import random

import pytest

from selfnorm import bzip2, files


def random_bytes(number, seed=1, alphabet=256):
    return bytes(random.Random(seed).choices(range(alphabet), k=number))


def read(opened):
    """All that can be read, and the kind of fault at which that ended."""
    found = b""
    try:
        while piece := opened.read(70_001):
            found += piece
    except (OSError, EOFError) as fault:
        return found, type(fault)
    return found, None


def read_by_threads(packed, threads=2):
    with io.BytesIO(packed) as file, io.BufferedReader(bzip2.Reader(file, threads)) as opened:
        return read(opened)


def read_by_bz2(packed):
    with bz2.open(io.BytesIO(packed)) as opened:
        return read(opened)


TEXTS = {
    "nothing": b"",
    "one byte": b"x",
    "one block": random_bytes(50_000, alphabet=4),
    "blocks": random_bytes(350_000, alphabet=20),
    "hardly packed": random_bytes(350_000),
    "runs": b"a" * 3_000_000 + b"b" * 2_000_000,
}


@pytest.mark.parametrize("level", [1, 9])
@pytest.mark.parametrize("text", TEXTS)
def test_same_bytes(text, level):
    assert read_by_threads(bz2.compress(TEXTS[text], level)) == (TEXTS[text], None)


def test_several_files_in_one():
    parts = [random_bytes(number, seed, 9) for seed, number in enumerate((250_000, 1, 0, 130_000, 77))]
    packed = b"".join(bz2.compress(part, 1 + 2 * n) for n, part in enumerate(parts))
    assert read_by_threads(packed) == (b"".join(parts), None)


def test_files_and_blocks_over_many_chunks(monkeypatch):
    monkeypatch.setattr(bzip2, "CHUNK", 10_000)
    parts = [random_bytes(number, seed) for seed, number in enumerate((450_000, 210_000, 99))]
    packed = b"".join(bz2.compress(part, 1) for part in parts)
    assert read_by_threads(packed) == (b"".join(parts), None)


def test_threads_unpack_all_of_a_whole_file(monkeypatch):
    """What is whole never comes to `bz2` alone, which would be as right and slow."""
    monkeypatch.setattr(bzip2.Reader, "_past", None)
    packed = bz2.compress(TEXTS["blocks"], 1) + bz2.compress(TEXTS["hardly packed"], 1)
    assert read_by_threads(packed) == (TEXTS["blocks"] + TEXTS["hardly packed"], None)


PACKED = bz2.compress(random_bytes(250_000, alphabet=50), 1)


CUTS = (0, 1, 3, 4, 5, 13, 14, 1000, len(PACKED) // 2, *range(len(PACKED) - 12, len(PACKED)))


@pytest.mark.parametrize("length", CUTS)
def test_cut_as_bz2_says(length):
    found, fault = read_by_threads(PACKED[:length])
    assert fault == read_by_bz2(PACKED[:length])[1]
    assert random_bytes(250_000, alphabet=50).startswith(found)


def test_damaged_as_bz2_says():
    chance = random.Random(3)
    for _ in range(60):
        place = chance.randrange(len(PACKED))
        damaged = bytearray(PACKED)
        damaged[place] ^= 1 << chance.randrange(8)
        found, fault = read_by_threads(bytes(damaged))
        expected, expected_fault = read_by_bz2(bytes(damaged))
        assert fault == expected_fault
        assert found[: len(expected)] == expected[: len(found)]
        assert fault or found == expected


def test_a_block_is_missing():
    """Every block's own sum is right; only that of the file tells."""
    marks = bzip2._marks(PACKED)
    first, second = marks[:2]
    bits = bzip2._bits(PACKED, 0, 8 * len(PACKED))
    rest = 8 * len(PACKED) - second
    joined = (bits >> (8 * len(PACKED) - first)) << rest | bits & ((1 << rest) - 1)
    number = first + rest
    cut = (joined << -number % 8).to_bytes((number + 7) // 8)
    assert len(marks) > 2
    assert read_by_bz2(cut)[1] is OSError
    assert read_by_threads(cut)[1] is OSError


@pytest.mark.parametrize("after", [b"\0" * 40, b"BZ", b"BZh9", random_bytes(5000), b"BZh9" + bz2.compress(b"x")[4:]])
def test_what_follows_a_file(after):
    assert read_by_threads(PACKED + after) == read_by_bz2(PACKED + after)


def test_a_mark_by_chance(monkeypatch):
    """A mark that is none cuts a block in two; neither half can be unpacked, and `bz2` goes on alone."""
    real = bzip2._marks

    def more(data):
        marks = real(data)
        return sorted([*marks, marks[-1] + 5003])

    monkeypatch.setattr(bzip2, "_marks", more)
    assert read_by_threads(PACKED) == read_by_bz2(PACKED)


def test_nothing_but_zeros_after_a_file_takes_no_time():
    """Tapes end so: what has no mark for long is left to `bz2`, and not kept and looked through again and again."""
    packed = bz2.compress(TEXTS["one block"]) + bytes(20 * bzip2.CHUNK)
    file = io.BytesIO(packed)
    with io.BufferedReader(bzip2.Reader(file, 2)) as opened:
        assert opened.read(1000) == TEXTS["one block"][:1000]
        assert file.tell() <= 3 * bzip2.CHUNK
        assert opened.read() == TEXTS["one block"][1000:]


def test_a_reader_goes_on_in_a_fork(tmp_path):
    path = tmp_path / "text.bz2"
    path.write_bytes(PACKED)
    whole = bz2.decompress(PACKED)
    with path.open("rb") as file, io.BufferedReader(bzip2.Reader(file, 2), 1000) as opened:
        first = opened.read(1000)
        if (child := os.fork()) == 0:
            os._exit(0 if first + opened.read() == whole else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert first + opened.read() == whole


def test_nothing_is_lost_after_an_interruption(monkeypatch):
    reader, times = bzip2.Reader(io.BytesIO(PACKED), 2), []

    class Interrupted:
        def __init__(self, future):
            self.future = future

        def result(self):
            times.append(1)
            if len(times) == 2:
                raise KeyboardInterrupt
            return self.future.result()

    submit = reader.pool.submit
    monkeypatch.setattr(reader.pool, "submit", lambda *given: Interrupted(submit(*given)))
    found = b""
    while piece := reader.read(100_000):
        found += piece
        if len(times) == 1 and not reader.piece:
            with pytest.raises(KeyboardInterrupt):
                reader.read(100_000)
    reader.close()
    assert found == bz2.decompress(PACKED)
    assert len(times) == 2


def test_large_files_are_read_so(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGE", 1000)
    monkeypatch.setattr(files, "cores", lambda: 2)
    path = tmp_path / "text.bz2"
    path.write_bytes(PACKED)
    with path.open("rb") as raw:
        with files.open_packed(path, raw) as opened:
            assert isinstance(opened.raw, bzip2.Reader)
            assert opened.read() == bz2.decompress(PACKED)
            assert raw.tell() == len(PACKED)
        assert not raw.closed
    with files.open_packed(path) as opened:
        assert opened.readline() == io.BytesIO(bz2.decompress(PACKED)).readline()
        file = opened.raw.file
    assert file.closed
