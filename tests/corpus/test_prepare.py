"""Text to DATA: equal to the naive way in every case, and nothing half-written."""

import bz2
import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import TEXT, decoded, naive, written, zipf_text
from typer.testing import CliRunner

from selfnorm.cli import app
from selfnorm.corpus import prepare as module
from selfnorm.corpus import segments
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.store import Data
from selfnorm.corpus.text import read_sentences
from selfnorm.vocabulary import END, Vocabulary


def naive_vocabulary(sentences: list[list[str]], size: int | None = None) -> Vocabulary:
    counts = Counter(word for words in sentences for word in words)
    return Vocabulary.from_counts(counts | Counter({END: len(sentences)}), size)


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
    assert summary.types == len({word for words in sentences for word in words})
    json.dumps(summary.as_dict())


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_text_is_text(tmp_path, suffix, pack):
    prepare([written(tmp_path / f"text{suffix}", pack(TEXT.encode()))], tmp_path / "data")
    assert decoded(Data.open(tmp_path / "data")) == naive(TEXT.encode())


def test_processes_import_nothing_from_the_folder_one_is_in(tmp_path, monkeypatch):
    (tmp_path / "re.py").write_text("raise SystemExit('somebody else wrote this')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "SMALL", 1)  # else a text this small is read in this process
    text = written(tmp_path / "text.txt", TEXT)
    assert prepare([text], tmp_path / "data", processes=2, block=64).words > 0


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


def run_verb(*arguments: object):
    return CliRunner().invoke(app, ["prepare", *map(str, arguments)])


def test_the_verb_prints_one_json_object_and_progress_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["selfnorm.cli.options"], "PAUSE", 0.0)
    text = written(tmp_path / "text", TEXT)
    result = run_verb(text, "--to", tmp_path / "data", "--size", 5, "--valid", text, "--json")
    summary = json.loads(result.stdout)
    assert summary["size"] == 5
    assert [(row["part"], row["words"], row["oov"]) for row in summary["texts"]] == [("train", 8, 3), ("valid", 8, 3)]
    assert summary["texts"][0]["oov_rate"] == 0.375
    assert "Counting: 100 %" in result.stderr
    assert Data.open(tmp_path / "data").valid is not None


def test_the_verb_prints_a_table(tmp_path):
    words = written(tmp_path / "words", "<eps> 0\nthe 1\n")
    result = run_verb(written(tmp_path / "text", TEXT), "--to", tmp_path / "data", "--vocab", words, "--keep-empty")
    assert result.exit_code == 0
    assert "data: a vocabulary of 3 words (of 6 in the training text)" in result.stdout
    assert "Most frequent: the 3" in result.stdout
    assert "left out of the list: <eps>" in result.stdout
