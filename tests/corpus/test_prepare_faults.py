"""Text to DATA when something is wrong: a sentence that says where, and what was there before is still there."""

import bz2
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from naive import TEXT, decoded, naive, written, zipf_text

from selfnorm.corpus import prepare as module
from selfnorm.corpus import staging, workers
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.shared import prepare_shared
from selfnorm.corpus.store import Data
from selfnorm.corpus.text import read_sentences


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
@pytest.mark.parametrize("damage", ["cut", "flip", "foreign"])
def test_damaged_packed_text_is_refused_by_name(tmp_path, suffix, pack, damage):
    packed = bytearray(pack(zipf_text(5_000, 500)))
    if damage == "flip":
        packed[len(packed) // 2] ^= 16
    packed = {"cut": packed[: len(packed) // 2], "flip": packed, "foreign": b"plain text\n"}[damage]
    with pytest.raises(ValueError, match=rf"text{suffix}: .*pack or copy it again"):
        prepare([written(tmp_path / f"text{suffix}", bytes(packed))], tmp_path / "data")
    assert os.listdir(tmp_path) == [f"text{suffix}"]


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (b"ok\nx caf\xe9 y\n", r"byte \d+ \(0xe9\) is not UTF-8"),
        (b"\xff\n", r"byte \d+ \(0xff\) is not UTF-8"),
        (b"a </s> b\n", r"byte \d+ starts the word '</s>', which marks sentences"),
        (b"ok\n<s>\n", r"byte \d+ starts the word '<s>', which marks sentences"),
        (b"t\0e\0x\0t\0\n", r"byte \d+ is 0; if the text is UTF-16, convert it"),
    ],
    ids=["latin-1", "marker", "end", "start", "utf-16"],
)
def test_bad_text_is_placed_by_file_line_and_byte(tmp_path, monkeypatch, processes, bad, sentence):
    monkeypatch.setattr(module, "SMALL", 1)
    before = b"fine words\n" * 1_000
    text = written(tmp_path / "text", before + bad + before)
    fault = next(i for i, (x, y) in enumerate(zip(bad, bad.decode("ascii", "replace"))) if y in "\ufffd\0<")
    line = 1_001 + bad.count(b"\n", 0, fault)
    with pytest.raises(ValueError, match=rf"text:{line}: {sentence}") as caught:
        prepare([text], tmp_path / "data", processes=processes, block=3_000)
    assert f" byte {len(before) + fault} " in str(caught.value)
    with pytest.raises(ValueError, match=rf"text:{line}: {sentence}"):
        list(read_sentences(text))
    assert os.listdir(tmp_path) == ["text"]


def test_text_without_white_space_does_not_fill_the_memory(tmp_path):
    with pytest.raises(ValueError, match=r"text:2: byte 3 starts a word of over 1048576 bytes"):
        prepare([written(tmp_path / "text", b"ok\n" + b"x" * 3_000_000)], tmp_path / "data")


@pytest.mark.parametrize("content", [b"", b"\n\n", b" \r\n\t\n"], ids=repr)
def test_an_empty_text_is_refused(tmp_path, content):
    good, bad = written(tmp_path / "good", TEXT), written(tmp_path / "bad", content)
    with pytest.raises(ValueError, match="bad: no words in it"):
        prepare([good], tmp_path / "data", valid=bad)


def test_wrong_arguments_are_refused_before_the_work(tmp_path):
    text = written(tmp_path / "text", TEXT)
    with pytest.raises(ValueError, match="nope: there is no such file"):
        prepare([text], tmp_path / "data", test=tmp_path / "nope")
    with pytest.raises(ValueError, match="ask for 3 or more"):
        prepare([text], tmp_path / "data", 2)
    with pytest.raises(ValueError, match="name at least one file"):
        prepare([], tmp_path / "data")


def test_only_a_folder_of_ours_is_replaced(tmp_path):
    text = written(tmp_path / "text", TEXT)
    mine = tmp_path / "mine"
    mine.mkdir()
    prepare([text], mine)  # an empty folder is nobody's
    prepare([written(tmp_path / "other", "x y\n")], mine)
    assert decoded(Data.open(mine)) == [["x", "y"]]
    (tmp_path / "theirs").mkdir()
    kept = written(tmp_path / "theirs" / "thesis.txt", "precious")
    for to in (tmp_path / "theirs", text):
        with pytest.raises(ValueError, match="was not made by `selfnorm prepare`"):
            prepare([text], to)
    assert kept.read_text() == "precious"
    kept = written(mine / "thesis.txt", "precious")
    for make in (prepare, prepare_shared):
        with pytest.raises(ValueError, match=r"mine: thesis\.txt, which `selfnorm prepare` did not make, would go"):
            make([kept], mine)
    assert kept.read_text() == "precious"


def test_a_link_to_data_stays_a_link_and_its_folder_is_replaced(tmp_path):
    prepare([written(tmp_path / "text", TEXT)], tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    prepare([written(tmp_path / "other", "x y\n")], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert decoded(Data.open(tmp_path / "real")) == [["x", "y"]]


def test_without_the_swap_of_linux_the_folder_is_replaced_too(tmp_path, monkeypatch):
    monkeypatch.setattr(staging.ctypes, "CDLL", lambda _: object())
    prepare([written(tmp_path / "text", TEXT)], tmp_path / "data")
    prepare([written(tmp_path / "other", "x y\n")], tmp_path / "data")
    assert decoded(Data.open(tmp_path / "data")) == [["x", "y"]]
    assert sorted(os.listdir(tmp_path)) == ["data", "other", "text"]


STAGES = [(module, stage) for stage in ("number", "merge", "write_run", "write_store")] + [
    (staging, stage) for stage in ("sha256", "sync_folder", "exchange")
]


@pytest.mark.parametrize(("where", "stage"), STAGES, ids=[stage for _, stage in STAGES])
def test_a_failure_at_any_stage_leaves_the_old_data(tmp_path, monkeypatch, where, stage):
    text = written(tmp_path / "text", TEXT)
    prepare([text], tmp_path / "data")

    def fail(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, stage, fail)
    with pytest.raises(KeyboardInterrupt):
        prepare([written(tmp_path / "other", "x y\n")], tmp_path / "data")
    assert decoded(Data.open(tmp_path / "data")) == naive(TEXT.encode())
    assert sorted(os.listdir(tmp_path)) == ["data", "other", "text"]


RUN = "import sys; from pathlib import Path; from selfnorm.corpus import prepare as m; m.SMALL = 1; \
m.prepare([Path(sys.argv[1])], Path(sys.argv[2]), processes=2, block=50_000)"


def started(text: Path, to: Path) -> subprocess.Popen:
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731  also where a shell's background job is deaf
    return subprocess.Popen([sys.executable, "-c", RUN, str(text), str(to)], stderr=subprocess.PIPE, preexec_fn=heard)


def test_killed_at_any_moment_leaves_the_old_data(tmp_path):
    old, new = written(tmp_path / "old", TEXT), written(tmp_path / "new", zipf_text(60_000, 3_000))
    prepare([old], tmp_path / "data")
    whole = (naive(TEXT.encode()), naive(new.read_bytes()))
    for pause in np.linspace(0.15, 0.8, 6):
        process = started(new, tmp_path / "data")
        time.sleep(pause)
        process.kill()
        process.communicate()
        assert decoded(Data.open(tmp_path / "data")) in whole
    prepare([old], tmp_path / "data")
    assert sorted(os.listdir(tmp_path)) == ["data", "new", "old"]  # what the killed ones left is gone


def test_interrupted_cleans_up(tmp_path):
    text = written(tmp_path / "text", zipf_text(400_000, 3_000))
    process = started(text, tmp_path / "data")
    while not list(tmp_path.glob(".data*/scratch/0.numbers")):
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert b"KeyboardInterrupt" in errors
    assert os.listdir(tmp_path) == ["text"]


def test_a_dead_worker_is_a_sentence_not_a_hang(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 1)
    answer = workers.Child.add

    def killed(self, *arguments):
        os.kill(self.process.pid, signal.SIGKILL)
        return answer(self, *arguments)

    monkeypatch.setattr(workers.Child, "add", killed)
    with pytest.raises(ChildProcessError, match=r"a worker process died \(exit status -9\)"):
        prepare([written(tmp_path / "text", zipf_text(20_000, 100))], tmp_path / "data", processes=2, block=9_000)
    assert os.listdir(tmp_path) == ["text"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk_is_a_sentence(tmp_path, monkeypatch, processes):
    monkeypatch.setattr(module, "SMALL", 1)
    text = written(tmp_path / "text", zipf_text(60_000, 100))
    before, ignored = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"data cannot be written: File too large") as caught:
            prepare([text], tmp_path / "data", processes=processes)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not isinstance(caught.value, ChildProcessError)
    assert os.listdir(tmp_path) == ["text"]


def test_a_worker_whose_reader_is_gone_ends_without_a_word(tmp_path, capfd):
    """As after SIGTERM to `prepare`; it was a traceback."""
    worker = workers.Child({"scratch": str(tmp_path), "worker": "0", "types": 100, "keep_empty": False})
    worker.process.stdout.close()
    request = json.dumps({"text": 0, "fresh": True, "bytes": 4}).encode() + b"\na b\n"
    worker.process.stdin.write(request)
    worker.process.stdin.close()
    worker.process.wait()
    assert capfd.readouterr().err == ""
