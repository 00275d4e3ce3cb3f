"""Word <-> id: ranking, the three kinds of word list, and what is refused."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfnorm.vocabulary import END, UNKNOWN, Vocabulary

COUNTS = {"the": 10, "b": 4, "a": 4, "rare": 1, END: 4, UNKNOWN: 2}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "words.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_words_are_ranked_by_count_and_ties_by_bytes():
    vocabulary = Vocabulary.from_counts(COUNTS)
    assert vocabulary.words == ["the", "</s>", "a", "b", "<unk>", "rare"]
    assert vocabulary.counts is not None
    assert vocabulary.counts.tolist() == [10, 4, 4, 4, 2, 1]
    assert vocabulary.falling
    assert (vocabulary.end, vocabulary.unknown, vocabulary.start) == (1, 4, 6)


def test_size_counts_the_two_marks_and_what_is_cut_is_unknown():
    vocabulary = Vocabulary.from_counts(COUNTS, 4)
    assert vocabulary.words == ["the", "<unk>", "</s>", "a"]
    assert vocabulary.counts is not None
    assert vocabulary.counts.tolist() == [10, 7, 4, 4]  # <unk>: b 4, rare 1, itself 2
    assert vocabulary.encode(["a", "b", "the", "<s>"]) == [3, 1, 0, 1]


@given(st.dictionaries(st.text("abcäß語🙂", min_size=1, max_size=3), st.integers(1, 5)), st.integers(3, 8))
def test_a_stream_of_counts_gives_the_words_of_a_full_sort(counts, size):
    counts[END] = 3
    vocabulary = Vocabulary.from_counts(iter(counts.items()), size)
    ordinary = sorted((word for word in counts if word != END), key=lambda word: (-counts[word], word.encode()))
    kept = ordinary[: size - 2]
    assert [word for word in vocabulary.words if word not in (END, UNKNOWN)] == kept
    assert vocabulary.counts is not None
    assert vocabulary.counts.sum() == sum(counts.values())  # nothing is lost
    assert vocabulary.counts[vocabulary.unknown] == sum(counts[word] for word in ordinary[size - 2 :])
    assert vocabulary.falling


def test_a_word_list_is_ranked_by_the_counts_of_the_text():
    vocabulary = Vocabulary.from_counts(COUNTS, among=["never", "rare", "the"])
    assert vocabulary.words == ["<unk>", "the", "</s>", "rare", "never"]  # <unk>: a 4, b 4, itself 2, before "the": < t
    assert vocabulary.falling


@pytest.mark.parametrize("size", [-1, 0, 2])
def test_a_size_without_words_is_refused(size):
    with pytest.raises(ValueError, match="ask for 3 or more"):
        Vocabulary.from_counts(COUNTS, size)


def test_saved_and_loaded_is_the_same(tmp_path):
    vocabulary = Vocabulary.from_counts(COUNTS | {"no\u00a0break": 3, "\u3000": 2, "#0": 1, "<eps>": 1})
    vocabulary.save(tmp_path / "vocab.txt")
    again = Vocabulary.load(tmp_path / "vocab.txt")
    assert again.words == vocabulary.words
    np.testing.assert_array_equal(again.counts, vocabulary.counts)
    assert again.digest == vocabulary.digest
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").startswith("the\t10\n</s>\t4\na\t4\n")


def test_the_digest_is_of_words_and_their_order():
    words = ["</s>", "<unk>", "a"]
    assert Vocabulary(words, [3, 2, 1]).digest == Vocabulary(words).digest
    assert Vocabulary(words).digest != Vocabulary(words[::-1]).digest


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_one_word_per_line(tmp_path, ending):
    vocabulary = Vocabulary.load(written(tmp_path, ending.join(["\ufeffthe", "a", "<s>", "</s>", "#0"])))
    assert vocabulary.words == ["the", "a", "</s>", "#0", "<unk>"]
    assert vocabulary.dropped == ("<s>",)
    assert vocabulary.counts is None
    assert not vocabulary.falling


def test_kaldi_ids_are_not_counts(tmp_path):
    path = written(tmp_path, "<eps> 0\na 1\n<unk> 2\nb 3\n#0 4\n#12 5\n<s> 6\n</s> 7\n")
    vocabulary = Vocabulary.load(path)
    assert vocabulary.words == ["a", "<unk>", "b", "</s>"]
    assert vocabulary.dropped == ("<eps>", "#0", "#12", "<s>")
    assert vocabulary.counts is None


@pytest.mark.parametrize("lines", ["<eps> 0\na 1\nb 3\n#0 9", "#0 7\n<eps> 0\na 2\nb 1", "a 5\n#0 6\nb 2\n<eps> 0"])
def test_kaldi_ids_may_have_gaps_and_any_order(tmp_path, lines):
    """As the reader of lattices takes them."""
    vocabulary = Vocabulary.load(written(tmp_path, lines + "\n"))
    assert vocabulary.words == ["a", "b", "<unk>", "</s>"]
    assert sorted(vocabulary.dropped) == ["#0", "<eps>"]
    assert vocabulary.counts is None


@pytest.mark.parametrize("lines", ["the 9\na 4\n<eps> 0", "a 3\n<eps> 0\nb 3", "a 3\n<eps> 1\nb 7"])
def test_counts_stay_counts_beside_a_word_eps(tmp_path, lines):
    vocabulary = Vocabulary.load(written(tmp_path, lines + "\n"))
    assert "<eps>" in vocabulary
    assert vocabulary.counts is not None


def test_fairseq_counts_are_counts(tmp_path):
    vocabulary = Vocabulary.load(written(tmp_path, "the 90\na 30\nb 30\n"))
    assert vocabulary.words == ["the", "a", "b", "<unk>", "</s>"]
    assert vocabulary.counts is not None
    assert vocabulary.counts.tolist() == [90, 30, 30, 0, 0]
    assert vocabulary.falling
    assert not Vocabulary.load(written(tmp_path, "a 3\nb 90\n")).falling


BAD = {
    "": r":1: the file is empty; a vocabulary has one word per line",
    "a\nb\na\n": r":3: the word 'a' is also on line 1; keep one",
    "a 3\nb\n": r":2: no number after 'b'",
    "a 3\nb x\n": r":2: 'x' is neither a count nor an id",
    "a 3\nb -1\n": r":2: '-1' is neither a count nor an id",
    "a\nb 4\n": r":2: 'b 4' has 2 columns",
    "a 1 2\n": r":1: 'a 1 2' has 3 columns",
    "a\n\nb\n": r":2: an empty line",
    "<eps> 0\na 1\nb 3\nc 1\n": r":4: the word 'c' has id 1, as 'a' on line 2 has; give each word",
}


@pytest.mark.parametrize(("content", "sentence"), BAD.items(), ids=[repr(content) for content in BAD])
def test_a_bad_word_list_is_one_sentence_with_its_line(tmp_path, content, sentence):
    with pytest.raises(ValueError, match=rf"words\.txt{sentence}"):
        Vocabulary.load(written(tmp_path, content))


def test_a_word_list_that_is_not_there(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ValueError, match=f"{path}: there is no such file; give a word list"):
            Vocabulary.load(path)


def test_bytes_that_are_not_utf8_are_placed(tmp_path):
    with pytest.raises(ValueError, match=r"words\.txt:2: byte 4 \(0xff\) is not UTF-8"):
        Vocabulary.load(written(tmp_path, b"ab\nc\xff\n"))


@pytest.mark.parametrize(
    ("words", "counts", "sentence"),
    [
        (["a", "a", END, UNKNOWN], None, "duplicates"),
        (["a", END], None, "no <unk>"),
        ([END, UNKNOWN], [1], "2 words but 1 counts"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(words, counts, sentence):
    with pytest.raises(ValueError, match=sentence):
        Vocabulary(words, counts)


def test_counter_is_a_mapping_of_counts():
    assert Vocabulary.from_counts(Counter("aab")).words == ["a", "b", "</s>", "<unk>"]


def test_kaldi_ids_may_fall_where_there_is_a_mark(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("#0 5\nthe 4\n<unk> 3\na 2\nb 1\n<eps> 0\n")
    assert Vocabulary.load(path).words == ["the", "<unk>", "a", "b", "</s>"]
    path.write_text("the 4\n<unk> 3\na 2\nb 1\n<eps> 0\n")  # counts
    assert "<eps>" in Vocabulary.load(path).words
