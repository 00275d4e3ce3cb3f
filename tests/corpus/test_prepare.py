"""Text to DATA: equal to the naive way in every case, and nothing half-written."""

import bz2
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.corpus import prepare as module
from selfnorm.corpus import segments, workers
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.store import Data
from selfnorm.corpus.text import read_sentences
from selfnorm.vocabulary import END, Vocabulary

TEXT = "the cat sat\n\non the mat\n the  dog \n"


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def naive(content: bytes, keep_empty: bool = False) -> list[list[str]]:
    lines = content.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    sentences = [[word.decode() for word in line.split()] for line in lines]
    return [words for words in sentences if words or keep_empty]


def naive_vocabulary(sentences: list[list[str]], size: int | None = None) -> Vocabulary:
    counts = Counter(word for words in sentences for word in words)
    return Vocabulary.from_counts(counts | Counter({END: len(sentences)}), size)


def decoded(data: Data) -> list[list[str]]:
    return [[data.vocabulary.words[id] for id in sentence[:-1]] for sentence in data.train]


def assert_as_naive(data: Data, sentences: list[list[str]], size: int | None = None) -> None:
    expected = naive_vocabulary(sentences, size)
    assert data.vocabulary.words == expected.words
    np.testing.assert_array_equal(data.vocabulary.counts, expected.counts)
    ids = [[*expected.encode(words), expected.end] for words in sentences]
    assert [sentence.tolist() for sentence in data.train] == ids
    np.testing.assert_array_equal(data.train.ids, [id for sentence in ids for id in sentence])


LINES = st.lists(
    st.lists(
        st.sampled_from(["a", "b", "c", "dd", "<unk>", "ä", "no\u00a0break", "\u3000", "\x1c", "\x85", "<S>", "x</s>"])
        | st.text(
            st.characters(exclude_characters="\t\n\v\f\r \0", exclude_categories=["Cs"]), min_size=1, max_size=3
        ).filter(lambda word: word not in ("<s>", "</s>", "\ufeff")),
        max_size=6,
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(
    lines=LINES,
    space=st.sampled_from([" ", "  ", "\t", " \v\f"]),
    ending=st.sampled_from(["\n", "\r\n", " \n"]),
    last=st.booleans(),
    block=st.integers(1, 40),
    types=st.integers(1, 6),
    size=st.none() | st.integers(3, 6),
    keep_empty=st.booleans(),
)
def test_equals_the_naive_way(tmp_path_factory, lines, space, ending, last, block, types, size, keep_empty):
    content = (ending.join(space.join(line) for line in lines) + (ending if last else "")).encode()
    content = content if not content.startswith(b"\xef\xbb\xbf") else b" " + content
    sentences = naive(content, keep_empty)
    folder = tmp_path_factory.mktemp("prepare")
    text = written(folder / "text", content)
    if not any(sentences):
        with pytest.raises(ValueError, match="text: no words in it"):
            prepare([text], folder / "data", size, keep_empty=keep_empty, block=block, types=types)
        return
    summary = prepare([text], folder / "data", size, keep_empty=keep_empty, block=block, types=types)
    assert_as_naive(Data.open(folder / "data"), sentences, size)
    assert list(read_sentences(text, keep_empty)) == sentences
    assert summary.texts[0].types == len({word for words in sentences for word in words})
    assert summary.words == sum(map(len, sentences))


def zipf_text(words: int, types: int, seed: int = 0) -> bytes:
    chance = np.random.default_rng(seed)
    ids = np.minimum(chance.zipf(1.2, words), types)
    ends = np.where(chance.random(words) < 0.05, "\n", " ")
    return "".join(f"w{id}{end}" for id, end in zip(ids.tolist(), ends.tolist())).encode()


def test_several_texts_processes_and_spills_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SMALL", 1)  # else texts this small run in this process
    monkeypatch.setattr(segments, "FAN", 3)
    contents = [zipf_text(40_000, 5_000, seed) for seed in range(3)]
    texts = [written(tmp_path / f"{i}.txt", content) for i, content in enumerate(contents)]
    valid = written(tmp_path / "valid.txt", zipf_text(3_000, 9_000, 7))
    summary = prepare(texts, tmp_path / "data", 800, valid=valid, processes=3, block=20_000, types=1_500)
    sentences = [words for content in contents for words in naive(content)]
    data = Data.open(tmp_path / "data")
    assert_as_naive(data, sentences, 800)
    for text, content in zip(summary.texts, [*contents, valid.read_bytes()], strict=True):
        words = [word for words in naive(content) for word in words]
        assert (text.words, text.sentences) == (len(words), len(naive(content)))
        assert text.types == len(set(words))
        assert text.oov == sum(word not in data.vocabulary for word in words)
    assert data.valid is not None
    assert data.valid.about.unknown == summary.texts[-1].oov
    assert summary.most_frequent == tuple(Counter(w for s in sentences for w in s).most_common(10))
    json.dumps(summary.as_dict())


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_text_is_text(tmp_path, suffix, pack):
    prepare([written(tmp_path / f"text{suffix}", pack(TEXT.encode()))], tmp_path / "data")
    assert decoded(Data.open(tmp_path / "data")) == naive(TEXT.encode())


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


def test_a_byte_order_mark_is_no_word(tmp_path):
    text = written(tmp_path / "text", b"\xef\xbb\xbf" + TEXT.encode())
    prepare([text], tmp_path / "data")
    assert decoded(Data.open(tmp_path / "data")) == naive(TEXT.encode()) == list(read_sentences(text))


def test_lines_of_many_megabytes(tmp_path):
    content = b"a bb ccc " * 1_200_000 + b"\nd\n"
    summary = prepare([written(tmp_path / "text", content)], tmp_path / "data", processes=1)
    assert (summary.words, summary.texts[0].sentences) == (3_600_001, 2)


def test_keep_empty_makes_blank_lines_sentences(tmp_path):
    text = written(tmp_path / "text", TEXT)
    assert len(Data.open(Path(prepare([text], tmp_path / "data", keep_empty=True).to)).train) == 4
    assert len(Data.open(Path(prepare([text], tmp_path / "data").to)).train) == 3


def test_a_word_list_is_the_vocabulary_sorted_by_the_text(tmp_path):
    text, words = (
        written(tmp_path / "text", TEXT),
        written(tmp_path / "words", "<eps> 0\nmat 1\nthe 2\nnever 3\n#0 4\n"),
    )
    summary = prepare([text], tmp_path / "data", vocab=words)
    vocabulary = Data.open(tmp_path / "data").vocabulary
    assert vocabulary.words == ["<unk>", "</s>", "the", "mat", "never"]
    assert vocabulary.falling
    assert summary.dropped == ("<eps>", "#0")
    prepare([text], tmp_path / "data", 4, vocab=words)
    assert Data.open(tmp_path / "data").vocabulary.words == ["<unk>", "</s>", "the", "mat"]


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


STAGES = ["number", "merge", "write_store", "write_run", "sha256", "sync_folder", "_exchange"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_at_any_stage_leaves_the_old_data(tmp_path, monkeypatch, stage):
    text = written(tmp_path / "text", TEXT)
    prepare([text], tmp_path / "data")

    def fail(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, stage, fail)
    with pytest.raises(KeyboardInterrupt):
        prepare([written(tmp_path / "other", "x y\n")], tmp_path / "data")
    assert decoded(Data.open(tmp_path / "data")) == naive(TEXT.encode())
    assert sorted(os.listdir(tmp_path)) == ["data", "other", "text"]


RUN = "import sys; from pathlib import Path; from selfnorm.corpus import prepare as m; m.SMALL = 1; \
m.prepare([Path(sys.argv[1])], Path(sys.argv[2]), processes=2, block=50_000)"


def started(text: Path, to: Path) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", RUN, str(text), str(to)], stderr=subprocess.PIPE)


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


def test_progress_reaches_its_end(tmp_path):
    told = []
    text = written(tmp_path / "text", TEXT)
    prepare([text], tmp_path / "data", progress=lambda *what: told.append(what), block=5)
    count = [what for what in told if what[0] == "count"]
    assert count[-1] == ("count", len(TEXT), len(TEXT), 8)
    assert told[-1][0] == "encode"
    assert told[-1][1] == told[-1][2]


def test_prepare_does_not_import_torch():
    code = "import sys, selfnorm.corpus.prepare, selfnorm.cli.prepare; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
