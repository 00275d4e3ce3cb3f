"""Kaldi's binary archives against bytes composed by hand from the description of OpenFst's format."""

import gzip
import struct
import time
import tracemalloc

import numpy as np
import pytest
from kaldi_cases import random_lattice, words_file

from selfnorm.lattices import kaldi
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.lattice import SILENT

INF = b"\x00\x00\x80\x7f"
NONE = b"\x00\x00\x00\x00"

# Two costs are 4-byte floats: 0.5 is 00 00 00 3f, 1 00 00 80 3f, 1.5 00 00 c0 3f, 2.25 00 00 10 40.
HEADER = b"\xd6\xfd\xb2\x7e" + b"\x06\x00\x00\x00vector"  # 2125659606, and a string with its length
COMPACT44 = b"\x10\x00\x00\x00compactlattice44"
LATTICE4 = b"\x08\x00\x00\x00lattice4"
REST = (
    b"\x02\x00\x00\x00"  # version 2
    b"\x00\x00\x00\x00"  # no flags
    b"\x03\x00\x00\x00\x00\x00\x00\x00"  # properties
    b"\x00\x00\x00\x00\x00\x00\x00\x00"  # start 0
    b"\x03\x00\x00\x00\x00\x00\x00\x00"  # 3 nodes
    b"\x00\x00\x00\x00\x00\x00\x00\x00"  # arcs: not said
)
COMPACT_BODY = (
    (INF + INF + NONE)  # node 0 is not final
    + b"\x02\x00\x00\x00\x00\x00\x00\x00"  # and has 2 arcs
    + b"\x03\x00\x00\x00\x03\x00\x00\x00"  # word 3, twice
    + b"\x00\x00\x00\x3f\x00\x00\x80\x3f"  # 0.5, 1
    + b"\x02\x00\x00\x00\x07\x00\x00\x00\x08\x00\x00\x00"  # alignment 7_8
    + b"\x01\x00\x00\x00"  # to node 1
    + b"\x00\x00\x00\x00\x00\x00\x00\x00"  # no word
    + b"\x00\x00\xc0\xbf\x00\x00\x10\x40"  # -1.5, 2.25
    + b"\x01\x00\x00\x00\x09\x00\x00\x00"  # alignment 9
    + b"\x02\x00\x00\x00"  # to node 2
    + (b"\x00\x00\x80\x3f" + b"\x00\x00\x00\x00" + b"\x01\x00\x00\x00\x05\x00\x00\x00")  # node 1: final, 1, 0, 5
    + b"\x00\x00\x00\x00\x00\x00\x00\x00"  # no arcs
    + (NONE + NONE + b"\x02\x00\x00\x00\x06\x00\x00\x00\x06\x00\x00\x00")  # node 2: final, free, 6_6
    + b"\x00\x00\x00\x00\x00\x00\x00\x00"
)
LATTICE_BODY = (
    (INF + INF)
    + b"\x01\x00\x00\x00\x00\x00\x00\x00"
    + b"\x07\x00\x00\x00\x03\x00\x00\x00"  # input 7, word 3
    + b"\x00\x00\x00\x3f\x00\x00\x80\x3f"
    + b"\x01\x00\x00\x00"
    + (INF + INF)
    + b"\x01\x00\x00\x00\x00\x00\x00\x00"
    + b"\x00\x00\x00\x00\x00\x00\x00\x00"  # neither input nor word
    + b"\x00\x00\xc0\xbf\x00\x00\x10\x40"
    + b"\x02\x00\x00\x00"
    + (b"\x00\x00\x80\x3f" + NONE)
    + b"\x00\x00\x00\x00\x00\x00\x00\x00"
)
COMPACT = HEADER + COMPACT44 + REST + COMPACT_BODY
LATTICE = HEADER + LATTICE4 + REST + LATTICE_BODY


def read(folder, data, name="lat.1", **options):
    path = folder / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return list(kaldi.read(path, words=words_file(folder), **options))


def rows(lattice):
    columns = (lattice.sources, lattice.targets, lattice.words, lattice.lm, lattice.acoustic)
    return [tuple(row) for row in zip(*columns)]


@pytest.mark.parametrize("name", ["lat.1", "lat.1.gz"])
@pytest.mark.parametrize("before", [b"", b"\0B"], ids=["as lattices are written", "as other objects are"])
def test_a_compact_lattice(tmp_path, name, before):
    first, second = read(tmp_path, b"utt-1 " + before + COMPACT + b"utt-2 " + before + COMPACT, name)
    assert (first.utterance, second.utterance) == ("utt-1", "utt-2")
    assert rows(first) == [  # nodes by time: 0; 2 (frame 1); 1 (frame 2); the end (frame 3)
        (0, 1, SILENT, 1.5, -2.25),
        (0, 2, "a", -0.5, -1.0),
        (1, 3, SILENT, 0.0, 0.0),
        (2, 3, SILENT, -1.0, 0.0),
    ]
    assert first.extra == {"alignment": ("9", "7_8", "6_6", "5")}
    assert first.header == {"kind": "compact", "binary": "true"}
    np.testing.assert_allclose(first.times, [0, 0.01, 0.02, 0.03])


def test_a_lattice(tmp_path):
    (lattice,) = read(tmp_path, b"utt-1 " + LATTICE)
    assert rows(lattice) == [
        (0, 1, "a", -0.5, -1.0),
        (1, 2, SILENT, 1.5, -2.25),
        (2, 3, SILENT, -1.0, 0.0),
    ]
    assert lattice.extra == {"input": ("7", "0", "0")}
    assert lattice.header == {"kind": "lattice", "binary": "true"}
    np.testing.assert_allclose(lattice.times, [0, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("kind", [b"compactlattice84", b"compactlattice48", b"compactlattice88", b"lattice8"])
def test_other_widths_of_costs_and_ids(tmp_path, kind):
    compact = kind.startswith(b"compact")
    floats = "<dd" if b"lattice8" in kind else "<ff"
    ids = "q" if kind[-1:] == b"8" else "i"
    cost = struct.pack(floats, 0.1, 0.2) + (struct.pack("<i2" + ids, 2, 7, 8) if compact else b"")
    infinite = struct.pack(floats, np.inf, np.inf) + (struct.pack("<i", 0) if compact else b"")
    free = struct.pack(floats, 0, 0) + (struct.pack("<i", 0) if compact else b"")
    arc = struct.pack("<ii", 3, 3) + cost + struct.pack("<i", 1)
    body = infinite + struct.pack("<q", 1) + arc + free + struct.pack("<q", 0)
    header = HEADER + struct.pack("<i", len(kind)) + kind + struct.pack("<iiQqqq", 2, 0, 3, 0, 2, 0)
    (lattice,) = read(tmp_path, b"u " + header + body)
    exact = 0.1 if "d" in floats else float(np.float32(0.1))
    assert (lattice.words, lattice.lm[0]) == (("a",), -exact)
    assert lattice.extra == ({"alignment": ("7_8",)} if compact else {"input": ("3",)})


def test_a_lattice_is_written_as_its_description_says(tmp_path):
    (lattice,) = read(tmp_path, b"utt-1 " + LATTICE)
    with kaldi.writer(tmp_path / "again", words_file(tmp_path)) as write:
        write(lattice)
    assert (tmp_path / "again").read_bytes() == b"utt-1 " + LATTICE


def changed(old, new, data=COMPACT):
    assert data.count(old) == 1
    return data.replace(old, new)


NODES = b"\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + INF
ARCS = INF + INF + NONE + b"\x02\x00\x00\x00\x00\x00\x00\x00"
HUGE = b"\x00\x00\x00\x00\x00\x00\x00\x10"  # 2^60
BAD = {
    "magic": (changed(b"\xd6\xfd\xb2\x7e", b"\xd6\xfd\xb2\x7f"), "magic number is missing"),
    "fst": (changed(b"vector", b"weird!"), "the FST is 'weird!'"),
    "arc": (changed(b"compactlattice44", b"compactlattice45"), "the arcs are 'compactlattice45'"),
    "length": (changed(b"\x10\x00\x00\x00c", b"\x10\x00\x00\x7fc"), "the type of the arcs has 2130706448 bytes"),
    "flags": (changed(b"44\x02" + NONE, b"44\x02\x00\x00\x00\x01"), "tables of symbols"),
    "no nodes": (changed(NODES, b"\x00" + NODES[1:]), "0 nodes and start 0"),
    "minus nodes": (changed(NODES, b"\xff" * 8 + NODES[8:]), "-1 nodes"),
    "nodes": (changed(NODES, b"\x02" + NODES[1:]), "leads to node 2 of 2"),
    "alignment": (changed(b"\x02\x00\x00\x00\x07", b"\x02\x00\x00\xff\x07"), "an alignment has -16777214"),
    "target": (changed(b"\x09\x00\x00\x00\x02", b"\x09\x00\x00\x00\x22"), "leads to node 34 of 3"),
    "word": (
        changed(b"\x03\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x3f", b"\x04\x00\x00\x00" * 2 + b"\0\0\0\x3f"),
        "id 4",
    ),
    "huge nodes": (changed(NODES, HUGE + NODES[8:]), "1152921504606846976 nodes"),
    "huge arcs": (changed(ARCS, ARCS[:-8] + HUGE), "more than 2,000,000 arcs"),
    "minus arcs": (changed(ARCS, ARCS[:-8] + b"\xff" * 8), "-1 arcs"),
    "cost": (changed(b"\x00\x00\x10\x40", b"\x00\x00\xc0\x7f"), "no finite number"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_utterance_is_named_and_the_next_one_is_found(tmp_path, fault):
    data, said = BAD[fault]
    tracemalloc.start()
    start, broken, good = read(tmp_path, b"start " + LATTICE + b"bad " + data + b"good " + COMPACT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (start.utterance, good.utterance) == ("start", "good")
    assert isinstance(broken, Broken)
    assert broken.utterance == "bad"
    assert broken.sentence.startswith(f"{tmp_path / 'lat.1'}: byte ")
    assert said in broken.sentence
    assert peak < 10 << 20


@pytest.mark.parametrize("left", [1, 8, 30, len(COMPACT) // 2, len(COMPACT) - 1])
def test_a_cut_file_says_where_it_ends(tmp_path, left):
    good, broken = read(tmp_path, b"good " + LATTICE + b"bad " + COMPACT[:left])
    assert good.utterance == "good"
    assert broken.utterance == "bad"
    assert f"byte {len(b'good ' + LATTICE + b'bad ') + left}: utterance bad: the file ends within" in broken.sentence


def test_a_bad_name_is_said_once(tmp_path):
    good, broken, last = read(tmp_path, b"good " + LATTICE + b"\xff\xfe " + LATTICE + b"last " + LATTICE)
    assert (good.utterance, last.utterance) == ("good", "last")
    assert broken.utterance == "lat.1"
    assert "is no name of an utterance" in broken.sentence
    good, broken, *_ = read(tmp_path, b"good " + LATTICE + b"x" * 255 + b" " + LATTICE + b"last " + LATTICE)
    assert "is no name of an utterance, which has up to 254 bytes; shorten it" in broken.sentence


def test_ids_without_words_txt_ask_for_it(tmp_path):
    (tmp_path / "lat.1").write_bytes(b"u " + LATTICE)
    (broken,) = kaldi.read(tmp_path / "lat.1")
    assert "its words are ids, such as 3; give the words.txt" in broken.sentence


def test_too_many_arcs_are_skipped_quickly(tmp_path):
    arc = COMPACT_BODY[20:52]
    count = 200_000
    header = HEADER + COMPACT44 + struct.pack("<iiQqqq", 2, 0, 3, 0, 2, 0)
    body = INF + INF + NONE + struct.pack("<q", count) + arc * count + NONE * 3 + struct.pack("<q", 0)
    start = time.process_time()
    broken, good = read(tmp_path, b"big " + header + body + b"good " + COMPACT, max_arcs=1000)
    assert time.process_time() - start < 2
    assert (broken.utterance, good.utterance) == ("big", "good")
    assert "has more than 1,000 arcs; prune it, or raise --max-arcs" in broken.sentence


def test_binary_needs_words_txt_to_write(tmp_path):
    with (
        pytest.raises(ValueError, match="binary archive has ids"),
        kaldi.writer(tmp_path / "l", binary=True) as write,
    ):
        write(random_lattice(1))
    assert not (tmp_path / "l").exists()


def test_a_score_beyond_32_bits_is_refused(tmp_path):
    lattice = random_lattice(1)
    lattice.lm[0] = -1e39
    with (
        pytest.raises(ValueError, match="write the archive as text"),
        kaldi.writer(tmp_path / "l", words_file(tmp_path), binary=True) as write,
    ):
        write(lattice)


def test_kaldifst_writes_what_we_read(tmp_path):
    kaldifst = pytest.importorskip("kaldifst", reason="kaldifst, which judges the bytes, is not installed")
    for seed in range(20):
        lattice = random_lattice(seed, compact=False)
        theirs = kaldifst.Lattice()
        for _ in range(lattice.nodes):
            theirs.add_state()
        theirs.start = 0
        theirs.set_final(lattice.nodes - 1, kaldifst.LatticeWeight(0.25, 0.5))
        columns = (lattice.sources, lattice.targets, lattice.lm, lattice.acoustic, lattice.extra["input"])
        for arc, (source, target, lm, acoustic, input) in enumerate(zip(*columns)):
            cost = kaldifst.LatticeWeight(-float(lm), -float(acoustic))
            word = 3 * (arc % 3)
            theirs.add_arc(int(source), kaldifst.LatticeArc(int(input), word, cost, int(target)))
        theirs.write(str(tmp_path / "their.fst"))
        (ours,) = read(tmp_path, b"u " + (tmp_path / "their.fst").read_bytes())
        np.testing.assert_array_equal(ours.sources[:-1], lattice.sources)
        np.testing.assert_array_equal(ours.targets[:-1], lattice.targets)
        np.testing.assert_array_equal(ours.lm, [*lattice.lm, -0.25])
        np.testing.assert_array_equal(ours.acoustic, [*lattice.acoustic, -0.5])
        assert ours.extra["input"] == (*lattice.extra["input"], "0")
        assert ours.words == (*((SILENT, "a", "für")[arc % 3] for arc in range(lattice.arcs)), SILENT)


def test_kaldifst_reads_what_we_write(tmp_path):
    kaldifst = pytest.importorskip("kaldifst", reason="kaldifst, which judges the bytes, is not installed")
    words = words_file(tmp_path)
    for seed in range(20):
        lattice = random_lattice(seed, compact=False)
        for binary in (True, False):
            with kaldi.writer(tmp_path / "ours", words, binary=binary) as write:
                write(lattice)
            if binary:
                name, data = (tmp_path / "ours").read_bytes().split(b" ", 1)
                (tmp_path / "our.fst").write_bytes(data)
                theirs = kaldifst.Lattice.read(str(tmp_path / "our.fst")).to_str().split("\n")[:-1]
        name, *lines = (tmp_path / "ours").read_text().split("\n")
        assert name.strip() == lattice.utterance
        for one, other in zip(theirs, filter(None, lines), strict=True):
            np.testing.assert_allclose(_numbers(one), _numbers(other), rtol=1e-5)  # it prints 6 digits


def _numbers(line):
    """Fields as numbers; a cost that is left out is 0."""
    fields = line.replace(",", " ").split()
    fields += ["0", "0"] if len(fields) in (1, 4) else []
    return [float(field) for field in fields]
