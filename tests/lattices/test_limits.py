"""What no reader may fall for: each is a sentence within 5 s and 500 MB, and the rest of the batch is read.

Every file is read in a process of its own, whose time and memory are counted; a good lattice comes behind it.
"""

import gzip
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS, MEGABYTES = 5, 500
READ = """
import json, sys
from pathlib import Path
from selfnorm import lattices
for each in lattices.read([Path(sys.argv[1]), Path(sys.argv[2])], words=Path(sys.argv[3])):
    broken = isinstance(each, lattices.Broken)
    print(json.dumps([broken, each.sentence if broken else each.arcs, [] if broken else each.notes]))
status = Path("/proc/self/status")  # rusage would count what the process had before it became this one
print(next((int(line.split()[1]) >> 10 for line in status.open() if line.startswith("VmHWM")), 0))
"""

GOOD = "UTTERANCE=good\nN=2 L=1\nI=0\nI=1\nJ=0 S=0 E=1 W=a\n"
HUGE = 10_000_000


def htk(arcs, nodes=4, count=None, header=""):
    """A file with these lines of arcs."""
    rows = [f"J={n} {arc}\n" for n, arc in enumerate(arcs)]
    ids = [f"I={n}\n" for n in range(nodes)]
    return "".join(["VERSION=1.0\n", header, f"N={nodes} L={count or len(rows)}\n", *ids, *rows]).encode()


def kaldi(*rows, name="u"):
    return "\n".join([f"{name} ", *rows, "", ""]).encode()


def binary(nodes, count, body, name=b"u", kind=b"compactlattice44"):
    """An archive of one FST, whose first node has the final cost and arcs of `body`."""
    from selfnorm.lattices.kaldi_binary import VECTOR

    head = VECTOR + struct.pack("<i", len(kind)) + kind + struct.pack("<iiQqqq", 2, 0, 3, 0, nodes, 0)
    infinite = struct.pack("<ffi", float("inf"), float("inf"), 0)
    return name + b" " + head + infinite + struct.pack("<q", count) + body


def arc(target, word=1):
    return struct.pack("<iiffii", word, word, 1.0, 2.0, 0, target)


FINAL = struct.pack("<ffiq", 0.0, 0.0, 0, 0)  # a node without arcs

LONG = b"x" * 10_000_000

CASES = {  # the file, what is said of it, and of the good one behind it in the same archive
    "htk: 10^7 arcs declared": (htk(["S=0 E=1"], count=HUGE), "L=10000000 is more than the 2,000,000 arcs that are"),
    "htk: 10^7 nodes declared": (b"N=10000000 L=1\n", "N=10000000 nodes have more than"),
    "htk: more arcs than declared": (htk(["S=0 E=1"] * 9, count=5), "J=5, but the header declares L=5 arcs"),
    "htk: fewer arcs than declared": (htk(["S=0 E=1"] * 3, count=5), "of L=5 arcs that the header declares 2 are miss"),
    "htk: fewer nodes than declared": (b"N=1000000 L=1\nI=0\nJ=0 S=0 E=1\n", "are missing, number 1 the first"),
    "htk: nodes beyond the declared": (htk(["S=0 E=7"]), "but the header declares N=4"),
    "htk: a lie that overflows": (b"N=99999999999999999999 L=1\n", "is no number from 0 on"),
    "htk: cycle": (htk(["S=0 E=1", "S=1 E=2", "S=2 E=1", "S=2 E=3"]), "are on or behind a cycle of arcs"),
    "htk: epsilon loop": (htk(["S=0 E=1 W=!NULL", "S=1 E=1 W=!NULL", "S=1 E=3"]), "are on or behind a cycle of arcs"),
    "htk: unreachable end": (htk(["S=0 E=1", "S=2 E=3"], header="start=0 end=3\n"), "no path leads from the start"),
    "htk: 10 MB line": (htk(["S=0 E=1 W=" + LONG.decode()]), "the line is longer than 1,048,576 bytes"),
    "htk: 10 MB without a line end": (b"VERSION=" + LONG, "the line is longer than 1,048,576 bytes"),
    "htk: 10^5 fields": (htk(["S=0 E=1 " + " ".join(f"f{n}=" for n in range(100_000))]), "f50= is one field too many"),
    "htk: 60 fields in 100 lines": (
        htk([f"S=0 E=1 {' '.join(f'f{n}=' for n in range(60))}"] * 100),
        "bad.lat:7: f50= is one field too many",
    ),
    "kaldi: cycle": (kaldi("0 1 1 1,2,", "1 2 1 1,2,", "2 1 1 1,2,", "2 0,0,"), "are on or behind a cycle of arcs"),
    "kaldi: epsilon loop": (kaldi("0 1 1 1,2,", "1 1 0 1,2,", "1 0,0,"), "are on or behind a cycle of arcs"),
    "kaldi: unreachable end": (kaldi("0 1 1 1,2,", "2 3 1 1,2,", "3 0,0,"), "no path leads from the start"),
    "kaldi: no end": (kaldi("0 1 1 1,2,"), "no node is final"),
    "kaldi: missing word ids": (kaldi("0 1 77 1,2,", "1 0,0,"), "the word id 77 is not in"),
    "kaldi: 10 MB line": (kaldi("0 1 1 1,2," + "1_" * 5_000_000 + "1", "1 0,0,"), "has a line longer than"),
    "kaldi: nodes that lie": (kaldi("0 999999999 1 1,2,", "5 0,0,"), "no path leads from the start"),
    "binary: 10^7 arcs declared": (binary(2, HUGE, arc(1)), "has more than 2,000,000 arcs"),
    "binary: a lie that overflows": (binary(2, 2**62, arc(1)), "has more than 2,000,000 arcs"),
    "binary: 10^9 nodes declared": (binary(10**9, 1, arc(1)), "has more than 2,000,000 arcs"),
    "binary: fewer arcs than declared": (binary(2, 1000, arc(1)), "the file ends within"),
    "binary: cycle": (binary(2, 1, arc(0) + FINAL), "no path leads from the start"),
    "binary: loop": (binary(2, 2, arc(0) + arc(1) + FINAL), "are on or behind a cycle of arcs"),
    "binary: missing word ids": (binary(2, 1, arc(1, word=77) + FINAL), "the word id 77 is not in"),
    "binary: beyond the nodes": (binary(2, 1, arc(9) + FINAL), "node"),
    "htk: gzip bomb": (None, "unpacks to over 200 times its size"),
    "kaldi: gzip bomb": (None, "unpacks to over 200 times its size"),
    "binary: gzip bomb": (None, "unpacks to over 200 times its size"),
    "kaldi: 10^7 arcs": (None, "has more than 2,000,000 arcs"),
    "htk: 10^7 arcs": (None, "L=10000000 is more than the 2,000,000 arcs"),
    "binary: 10^7 arcs": (None, "has more than 2,000,000 arcs"),
    "binary: 10^7 arcs of many nodes": (None, "has more than 2,000,000 arcs"),
}


def large(case):
    """The beginning, a piece, how often it is there, and the end: written without being held."""
    if case == "htk: gzip bomb":
        return gzip.compress(b"VERSION=1.0\n"), gzip.compress(b"#\n" * (1 << 23)), 40, b""
    if case == "kaldi: gzip bomb":
        return gzip.compress(b"u \n"), gzip.compress(b"0 1 1 1,2,\n" * (1 << 20)), 40, b""
    if case == "binary: gzip bomb":
        return gzip.compress(binary(2, 1_000_000, b"")), gzip.compress(arc(1) * (1 << 20)), 40, b""
    if case == "kaldi: 10^7 arcs":
        return b"u \n", b"0 1 1 1,2,\n" * 1000, HUGE // 1000, b"1 0,0,\n\n"
    if case == "htk: 10^7 arcs":
        return b"N=2 L=10000000\nI=0\nI=1\n", b"J=0 S=0 E=1\n" * 1000, HUGE // 1000, b""
    if case == "binary: 10^7 arcs of many nodes":
        node = struct.pack("<ffiq", float("inf"), float("inf"), 0, 5) + arc(1) * 5
        return binary(HUGE // 5, 0, b""), node * 1000, HUGE // 5000, FINAL
    return binary(2, HUGE, b""), arc(1) * 1000, HUGE // 1000, FINAL


def limited(folder):
    """What is read of the files, in seconds of CPU (a busy machine is no failure) and in megabytes."""
    command = [sys.executable, "-c", READ, folder / "bad.lat", folder / "good.slf", folder / "words.txt"]
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (folder / "err").read_text()[-2000:]
    *lines, megabytes = map(json.loads, (folder / "out").read_text().splitlines())
    assert usage.ru_utime + usage.ru_stime < SECONDS
    assert megabytes < MEGABYTES
    return lines


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "good.slf").write_text(GOOD)
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n")
    yield tmp_path
    (tmp_path / "bad.lat").unlink()  # some are large


@pytest.mark.parametrize("case", CASES)
def test_one_sentence_in_bounded_time_and_memory(case, folder):
    path = folder / "bad.lat"
    data, sentence = CASES[case]
    if data is not None:
        path.write_bytes(data)
    else:
        first, piece, times, last = large(case)
        with path.open("wb") as file:
            file.write(first)
            for _ in range(times):
                file.write(piece)
            file.write(last)
    (broken, said, _), *rest = limited(folder)
    assert broken
    assert sentence in said
    assert str(path) in said
    assert "\n" not in said
    assert len(said) < 600
    assert rest == [[False, 1, []]]


DUPLICATES = 100_000


@pytest.mark.parametrize("form", ["htk", "kaldi", "binary"])
def test_duplicate_arcs_are_left_out_with_a_note(form, folder):
    data = {
        "htk": lambda: htk(["S=0 E=1 W=a a=-1"] * DUPLICATES + ["S=1 E=2 W=a", "S=2 E=3 W=a"]),
        "kaldi": lambda: kaldi(*["0 1 1 1,2,"] * DUPLICATES, "1 0,0,"),
        "binary": lambda: binary(2, DUPLICATES, arc(1) * DUPLICATES + FINAL),
    }[form]()
    (folder / "bad.lat").write_bytes(data)
    (broken, arcs, notes), last = limited(folder)
    assert (broken, arcs) == (False, {"htk": 3, "kaldi": 1, "binary": 1}[form])
    assert notes == [f"{DUPLICATES - 1} arcs that repeat another in everything were left out"]
    assert last == [False, 1, []]


def test_rescoring_goes_on_behind_them(tmp_path):
    """All that are quickly written at once, through the verb: status 1, each reported, the good one done."""
    folder = tmp_path / "batch"
    folder.mkdir()
    chosen = {name: data for name, (data, _) in CASES.items() if data is not None and len(data) < 1 << 20}
    for n, data in enumerate(chosen.values()):
        (folder / f"{n:03}.lat").write_bytes(data)
    (folder / "good.slf").write_text(GOOD)
    (tmp_path / "words.txt").write_text("<eps> 0\na 1\n")
    verb = [Path(sys.executable).with_name("selfnorm"), "rescore", folder, "--words", tmp_path / "words.txt"]
    done = subprocess.run([*verb, "--to", tmp_path / "out", "--json"], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    assert (done.returncode, found["failed"], found["utterances"]) == (1, len(chosen), 1)
    assert len(done.stderr.splitlines()) == len(chosen)
    assert (tmp_path / "out" / "hypotheses.txt").read_text() == "good a\n"
