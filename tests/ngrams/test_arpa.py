"""Reading ARPA: whatever its spelling it says the same, and what is wrong has its line and its sentence."""

import bz2
import gzip
import random
import re
import time
import tracemalloc

import numpy as np
import pytest
from faults import cut, flip_a_bit
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_ngram import random_model, render, sentence

from selfnorm.ngrams import arpa, query
from selfnorm.ngrams.build import build
from selfnorm.ngrams.columns import Columns, WordTable

TOY = """\\data\\
ngram 1=5
ngram 2=4
ngram 3=1

\\1-grams:
-99\t<s>\t-0.5
-1\t<unk>
-0.7\t</s>
-0.5\ta\t-0.25
-0.6\tb\t-0.1

\\2-grams:
-0.2\t<s> a\t-0.3
-0.1\ta b
-0.4\tb </s>
-0.3\tb b\t0

\\3-grams:
-0.05\t<s> a b

\\end\\
"""
SCORES = [-0.2, -0.05, -0.4]  # a b </s>


@pytest.fixture
def write(tmp_path):
    def write(content, name="lm.arpa"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def scores(index, *words):
    ids = np.array([*index.vocabulary.encode(words), index.vocabulary.end])
    return (query.score(index, ids, np.array([0])) / np.log(10)).tolist()


def same(one, other):
    assert one.vocabulary.words == other.vocabulary.words
    for mine, yours in zip(one.levels, other.levels, strict=True):
        for name in ("keys", "first", "log_probs", "backoffs"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(yours, name))


@pytest.mark.parametrize(
    "spelled",
    [
        TOY,
        TOY.replace("\t", " "),
        TOY.replace("\t", "  \t "),
        TOY.replace("\n", "\r\n"),
        TOY.replace("\n", " \n"),
        TOY.replace("\n\n", "\n\n\n \n"),
        TOY.replace("\n-", "\n\n-"),
        TOY.replace("=", " = "),
        TOY.replace("\ta b\n", "\ta b\t-0\n"),
        TOY.replace("-0.7\t", "-7e-1\t"),
        TOY.replace("<s> a b", "<s> a b\t-1"),
        TOY.replace("<s> a b", "<s> a b\tnan"),
        TOY.replace("<unk>", "<UNK>"),
        "\n\n" + TOY,
        "## Copyright\n\nThis is a CLOSED-vocabulary model\n" + TOY,
        "\ufeff" + TOY,
        TOY.rstrip(),
        TOY + "\n\n",
    ],
)
def test_every_spelling_reads_alike(write, spelled):
    index = build(write(spelled))
    assert scores(index, "a", "b") == pytest.approx(SCORES, abs=1e-6)
    same(index, build(write(TOY)))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_files(write, suffix, pack):
    same(build(write(pack(TOY.encode()), f"lm.arpa{suffix}")), build(write(TOY)))


@pytest.mark.parametrize("block", [1, 7, 30, 64, 200])
def test_blocks_may_end_anywhere(write, monkeypatch, block):
    wanted = build(write(TOY))
    monkeypatch.setattr(arpa, "BLOCK", block)
    same(build(write(TOY)), wanted)


def test_natural_logs_and_no_probability_at_all(write):
    index = build(write(TOY.replace("-1\t<unk>", "-inf\t<unk>")))
    unigrams = index.levels[0]
    assert unigrams.log_probs[index.vocabulary.id("a")] == pytest.approx(-0.5 * np.log(10))
    assert unigrams.backoffs[index.vocabulary.start] == pytest.approx(-0.5 * np.log(10))
    assert unigrams.log_probs[index.vocabulary.start] == pytest.approx(-99 * np.log(10))
    assert scores(index, "zebra")[0] == pytest.approx(-99.5)  # behind the back-off of <s>


def test_a_closed_vocabulary_gets_an_unknown_word(write):
    index = build(write(TOY.replace("-1\t<unk>\n", "").replace("1=5", "1=4")))
    same(index, build(write(TOY.replace("-1\t<unk>\n", "").replace("-0.1\n\n", "-0.1\n-100\t<unk>\n\n"))))
    assert scores(index, "a", "b") == pytest.approx(SCORES, abs=1e-6)
    assert scores(index, "b", "zebra")[1] == pytest.approx(-100.1)


def test_an_unknown_word_in_upper_case_is_one_unless_there_is_another(write):
    upper = TOY.replace("<unk>", "<UNK>").replace("b b", "b <UNK>")
    same(build(write(upper)), build(write(TOY.replace("b b", "b <unk>"))))
    both = build(
        write(
            TOY.replace("\tb\t", "\t<UNK>\t").replace("b <", "<UNK> <").replace("a b", "a a").replace("b b", "a <UNK>")
        )
    )
    assert "<UNK>" in both.vocabulary
    assert "<unk>" in both.vocabulary


@pytest.mark.parametrize("spelled", ["-inf", "-Infinity", "-1e999", "-1e39"])
def test_no_probability_and_no_back_off_are_finite(write, spelled):
    """As SRILM means it: paths through such words can still be compared."""
    index = build(write(TOY.replace("-0.6\tb\t-0.1", f"{spelled}\tb\t{spelled}")))
    same(index, build(write(TOY.replace("-0.6\tb\t-0.1", "-99\tb\t-99"))))


def test_words_are_not_parted_at_unicode_spaces(write):
    word = "b\u00a0c\u3000"
    index = build(write(re.sub(r"\bb\b", word, TOY)))
    assert scores(index, "a", word) == pytest.approx(SCORES, abs=1e-6)


def test_any_order_and_empty_sections(write):
    unigram = "\\data\\\nngram 1=3\n\\1-grams:\n-1 <s>\n-1 </s>\n-2 <unk>\n\\end\\\n"
    assert scores(build(write(unigram)), "x") == pytest.approx([-2, -1])
    empty = unigram.replace("\n\\1", "\nngram 2=0\nngram 3=0\n\\1").replace("\\end", "\\2-grams:\n\\3-grams:\n\\end")
    assert scores(build(write(empty)), "x") == pytest.approx([-2, -1])


spelled_numbers = st.one_of(
    st.floats(-1e5, 0).map(repr),
    st.floats(-1e5, 0).map(lambda value: f"{value:.7g}"),
    st.decimals(-99, 0, places=6).map(str),
    st.sampled_from(["-0", "0", "-.5", "-5.", "-00.10", "-99", "-inf", "-1e-3", "-0.12345678901234567890", "-1_0"]),
)


@settings(max_examples=100, deadline=None)
@given(numbers=st.lists(spelled_numbers, min_size=1, max_size=30))
def test_numbers_are_what_float_says(numbers):
    block = "".join(f"{number} w{row}\n" for row, number in enumerate(numbers)).encode()
    found = Columns(block, 1, False, 0).log_probs()
    wanted = [max(float(number), -99.0) if number == "-inf" else float(number) for number in numbers]
    np.testing.assert_array_equal(found, (np.array(wanted) * np.log(10)).astype(np.float32))


@pytest.mark.parametrize("number", ["-", ".", "-.", "--1", "-1-", "1.2.3", "-1e", "\u0661", "0x1", "-1,5", "1 "])
def test_what_is_no_number_is_refused(write, number):
    with pytest.raises(ValueError, match=r"lm\.arpa:11: "):
        build(write(TOY.replace("-0.6\tb", f"{number}\tb")))


@settings(max_examples=100, deadline=None)
@given(words=st.lists(st.binary(min_size=1, max_size=40).map(lambda word: b"w" + b"".join(word.split())), unique=True))
def test_words_are_told_apart_whatever_their_length(words):
    block = b"".join(b"-1 %s\n" % word for word in words)
    hashes = Columns(block, 1, True, 0).hashes(1)
    assert len(set(hashes.tolist())) == len(words)
    assert Columns(block, 1, True, 0).words(1) == words
    assert WordTable(hashes).encode(hashes).tolist() == list(range(len(words)))


BAD = {
    "empty": ("", 1, "no \\data\\ here"),
    "no ARPA": ("the cat sat\n", 1, "no \\data\\ here"),
    "iARPA": ("iARPA\n\n" + TOY, 1, "no \\data\\ here"),
    "long foreword": ("no\n" * (1 << 15) + TOY, 1, "no \\data\\ here"),
    "no counts": (TOY.replace("ngram ", "\\ngram "), 1, "\\data\\ declares no n-grams"),
    "count": (TOY.replace("ngram 2=4", "ngram 2=x"), 3, "'ngram 2=x' where 'ngram 2=COUNT' is due"),
    "orders": (TOY.replace("ngram 2=", "ngram 4="), 3, "'ngram 4=4' where 'ngram 2=COUNT' is due"),
    "too many": (TOY.replace("ngram 2=4", "ngram 2=3"), 17, "one 2-gram more than the header declares"),
    "too few": (TOY.replace("ngram 2=4", "ngram 2=5"), 13, "4 2-grams follow where the header declares 5"),
    "huge count": (TOY.replace("ngram 2=4", f"ngram 2={10**12}"), 13, "4 2-grams follow where the header declares"),
    "no section": (TOY.replace("\\2-grams:", "\\3-grams:"), 13, "'\\\\3-grams:' stands where \\2-grams: is due"),
    "fewer orders": (
        TOY.replace("ngram 3=1\n", "").replace("a\t-0.3", "a").replace("b\t0", "b"),
        18,
        "'\\\\3-grams:' stands where \\end\\ is due",
    ),
    "more orders": (TOY.replace("ngram 3=1\n", "ngram 3=1\nngram 4=1\n"), 23, "where \\4-grams: is due"),
    "no end": (TOY.replace("\\end\\\n", ""), 22, "the file ends where \\end\\ is due"),
    "after the end": (TOY + "more\n", 23, "text after \\end\\"),
    "twice": (TOY + TOY, 23, "'\\\\data\\\\' after \\end\\"),
    "no number": (TOY.replace("-0.1\ta b", "-0.1x\ta b"), 15, "'-0.1x' is no number"),
    "no back-off": (TOY.replace("a\t-0.25", "a\tx"), 10, "'x' is no number"),
    "NaN": (TOY.replace("-0.1\ta b", "nan\ta b"), 15, "the log probability 'nan' is above 0 or no number"),
    "above 1": (TOY.replace("-0.1\ta b", "0.1\ta b"), 15, "the log probability '0.1' is above 0"),
    "NaN back-off": (TOY.replace("a\t-0.25", "a\tNaN"), 10, "the back-off 'NaN' is no finite number"),
    "huge back-off": (TOY.replace("a\t-0.25", "a\t1e300"), 10, "the back-off '1e300' is no finite number"),
    "columns": (TOY.replace("-0.4\tb </s>", "-0.4\tb"), 16, "2 columns where a 2-gram has 3 or 4"),
    "more columns": (TOY.replace("-0.5\ta", "-0.5\ta a a"), 10, "5 columns where a 1-gram has 2 or 3"),
    "highest": (TOY.replace("<s> a b", "<s> a b\t-1 x"), 20, "6 columns where a 3-gram has 4 or 5"),
    "history": (TOY.replace("<s> a b", "<s> b b"), 20, "its history '<s> b' is no n-gram of the file"),
    "word": (TOY.replace("<s> a b", "<s> a c"), 20, "the word 'c' is not among the unigrams"),
    "duplicate": (TOY.replace("b b\t0", "a b\t0"), 17, "this n-gram was there before"),
    "duplicate word": (TOY.replace("\tb\t-0.1", "\ta\t-0.1"), 11, "the word 'a' was there before"),
    "</S>": (TOY.replace("</s>", "</S>"), 6, "no </s> among the unigrams"),
    "</s>": (TOY.replace("</s>", "<e>"), 6, "no </s> among the unigrams"),
    "<s>": (TOY.replace("<s>", "<b>"), 6, "no <s> among the unigrams"),
    "encoding": (TOY.encode().replace(b"-0.5\ta\t", b"-0.5\t\xe4\t"), 10, "is not UTF-8"),
    "long line": (TOY.replace("-0.5\ta", "-0.5\t" + "a" * (6 << 20)), 10, "a line of over 1048576 bytes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_have_a_line_and_a_sentence(write, name):
    content, line, what = BAD[name]
    path = write(content)
    with pytest.raises(ValueError, match=f"^{re.escape(f'{path}:')}") as error:
        build(path)
    sentence = str(error.value)
    assert what in sentence
    assert ";" in sentence or sentence.endswith("?")  # what to do
    assert sentence.startswith(f"{path}:{line}: ")


def test_words_of_one_hash_are_refused(write):
    """By chance they are next to impossible, and no n-gram of theirs would be found or missed in silence."""
    alike = TOY.replace("ngram 1=5", "ngram 1=6").replace("-0.1\n\n", "-0.1\n-0.6\tb\0\n\n")
    with pytest.raises(ValueError, match=r"lm\.arpa:6: the words 'a' and 'b\\x00' have the same hash.*; rename one"):
        build(write(alike))


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_damaged_packed_file_is_a_sentence(write, suffix, pack):
    whole = pack(render(random_model(random.Random(1), 3, 8, 0.5)).encode())
    for content in (whole[: len(whole) // 2], b"no " + whole, whole[:100] + b"\0\0\0\0" + whole[104:]):
        path = write(content, f"lm.arpa{suffix}")
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}:\d+: .*pack or copy it again"):
            build(path)


def test_a_missing_file_keeps_its_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        build(tmp_path / "none.arpa")


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    order=st.integers(1, 4),
    between=st.sampled_from(["\t", " ", " \t"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_what_is_written_is_read(tmp_path_factory, seed, order, between, newline):
    levels = random_model(random.Random(seed), order, 3, 0.4)
    path = tmp_path_factory.getbasetemp() / "written.arpa"
    path.write_bytes(render(levels, between, newline).encode())
    index = build(path)
    assert [len(level) for level in index.levels] == list(map(len, levels))
    assert sorted([*index.vocabulary.words, "<s>"]) == sorted(word for (word,) in levels[0])
    assert scores(index, "w0", "w1", "zebra", "w0") == pytest.approx(
        sentence(levels, ["w0", "w1", "zebra", "w0"]), abs=1e-5
    )


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
@pytest.mark.parametrize("damage", [flip_a_bit, cut])
def test_damage_is_a_sentence_or_a_valid_model(write, damage, pack):
    chance = random.Random(7)
    whole = render(random_model(chance, 3, 5, 0.4)).encode()
    for _ in range(200):
        path = write(damage(pack(whole), chance), "lm.arpa" + (".gz" if pack is gzip.compress else ""))
        try:
            index = build(path)
        except ValueError as error:
            found = str(error)
        else:
            found = scores(index, "w0", "w1", "w1", "zebra", "w2")
        if isinstance(found, str):
            assert re.match(rf"{re.escape(str(path))}:\d+: ", found)
        else:
            assert not np.isnan(found).any()


def test_hostile_files_need_neither_time_nor_memory(write):
    blanks = gzip.compress(b"\n" * (64 << 20))
    endless = gzip.compress(TOY.encode() + b" " * (64 << 20))
    for content in (blanks, endless):
        path = write(content, "bomb.arpa.gz")
        tracemalloc.start()
        began = time.perf_counter()
        with pytest.raises(ValueError, match=r"bomb\.arpa\.gz:\d+: "):
            build(path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert time.perf_counter() - began < 5
        assert peak < 64 << 20
