"""Estimates against lmplz, against the definition, and at the edges."""

import bz2
import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.claims import here
from selfnorm.cli.ngram import _bytes, _thresholds
from selfnorm.corpus.numbered import Numbered
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.ngrams.kneser_ney import FALLBACK, discounts
from selfnorm.ngrams.write import Spelling, lines, log10
from selfnorm.vocabulary import Vocabulary

MATERIAL = Path(__file__).parent / "material"
TEXT = MATERIAL / "text.txt"
CLOSE = 1e-6  # log10; the contract says 1e-4
CASES = {
    "order3": {"order": 3},
    "order3-pruned": {"order": 3, "prune": (0, 1)},
    "order4": {"order": 4},
    "order4-pruned": {"order": 4, "prune": (0, 0, 1, 2)},
    "order4-words": {"order": 4, "vocabulary": Vocabulary.load(MATERIAL / "words.txt")},
}


def ours(text, to, keep_empty=False, **options):
    """The lines of the model of a text, and what was said about it."""
    if isinstance(text, str):
        path = to / "text.txt"
        path.write_text(text)
        text = path
    summary = estimate_arpa(Numbered([text], keep_empty), to / "lm.arpa", **options)
    return (to / "lm.arpa").read_text().splitlines(), summary


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_lmplz(name, tmp_path):
    theirs = gzip.decompress((MATERIAL / f"{name}.arpa.gz").read_bytes()).decode().splitlines()
    found, summary = ours(TEXT, tmp_path, **CASES[name])
    assert oracle.header(found) == oracle.header(theirs) == list(summary.grams)
    assert max(oracle.differences(oracle.read(found), oracle.read(theirs))) < CLOSE
    fields = [[line.split("\t")[1:2] for line in each] for each in (found, theirs)]
    assert fields[0] == fields[1]  # even the lines are in its order


def test_no_case_is_trivial():
    """Every order is estimated, and pruning and the word list leave some of it."""
    sizes = {
        name: oracle.header(gzip.decompress((MATERIAL / f"{name}.arpa.gz").read_bytes()).decode().splitlines())
        for name in CASES
    }
    assert all(size > 10 for each in sizes.values() for size in each)
    assert sizes["order4-pruned"][2] < sizes["order4"][2]
    assert sizes["order4-words"][0] < sizes["order4"][0]


EDGES = {
    "one word": "a\n",
    "one sentence": "a b c d e f\n",
    "one word type": "a a a a a a a\na a\n",
    "shorter than the order": "a b\nc\nb a\n",
    "not ASCII": "über naïve 日本 é\n日本 über é\nnaïve\n",
    "a long word": "a " + "b" * 100 + " c\n" + "b" * 100 + "\n",
    "frequent": "the the cat\n" * 70_000,
    "CRLF and tabs": "a\tb\r\nb  a\r\n",
}


@pytest.mark.skipif(oracle.found() is None, reason=oracle.ABSENT)
@pytest.mark.parametrize("order", [1, 2, 4, 6])
@pytest.mark.parametrize("name", EDGES)
def test_edges_agree_with_lmplz(name, order, tmp_path):
    found, _ = ours(EDGES[name], tmp_path, order=order)
    oracle.lmplz(tmp_path / "text.txt", tmp_path / "theirs.arpa", order)
    theirs = (tmp_path / "theirs.arpa").read_text().splitlines()
    assert oracle.header(found) == oracle.header(theirs)
    assert max(oracle.differences(oracle.read(found), oracle.read(theirs))) < CLOSE


@pytest.mark.skipif(oracle.found() is None, reason=oracle.ABSENT)
@pytest.mark.parametrize("seed", range(20))
def test_random_texts_agree_with_lmplz(seed, tmp_path):
    """Small texts, where a single count moves the discounts; some blank lines, some pruned."""
    chance = np.random.default_rng(seed)
    size, order = int(chance.integers(2, 30)), int(chance.integers(2, 6))
    sentences = [
        " ".join(f"w{id}" for id in (chance.pareto(0.8, chance.integers(0, 9)).astype(int) % size)) for _ in range(60)
    ]
    threshold = int(chance.integers(0, 3))
    found, _ = ours("\n".join(sentences) + "\n", tmp_path, keep_empty=True, order=order, prune=(0, threshold))
    prune = ["--prune", "0", str(threshold)]
    oracle.lmplz(tmp_path / "text.txt", tmp_path / "theirs.arpa", order, *prune)
    theirs = (tmp_path / "theirs.arpa").read_text().splitlines()
    assert oracle.header(found) == oracle.header(theirs)
    assert max(oracle.differences(oracle.read(found), oracle.read(theirs))) < CLOSE


def score(arpa, history, word):
    """log10 p(word | history), by the definition of an ARPA file."""
    gram = (*history, word)
    if gram in arpa[len(gram) - 1]:
        return arpa[len(gram) - 1][gram][0]
    back_off = arpa[len(history) - 1].get(history, (0.0, 0.0))[1]
    return back_off + score(arpa, history[1:], word)


@pytest.mark.parametrize("name", CASES)
def test_every_distribution_sums_to_one(name, tmp_path):
    """After every history the model knows, also those it was never seen to follow."""
    arpa = oracle.read(ours(TEXT, tmp_path, **CASES[name])[0])
    words = [gram[0] for gram in arpa[0] if gram != ("<s>",)]
    histories = [(), *(gram for order in arpa[:-1] for gram in order if gram[-1] not in ("</s>", "<unk>"))]
    assert len(histories) > 100
    for history in histories:
        assert sum(10 ** score(arpa, history, word) for word in words) == pytest.approx(1.0, abs=1e-5), history


@settings(max_examples=60, deadline=None)
@given(
    sentences=st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "<unk>"]), min_size=1, max_size=8), min_size=1),
    order=st.integers(1, 6),
    thresholds=st.lists(st.integers(0, 3), max_size=5),
    listed=st.none() | st.sets(st.sampled_from("abcde")),
    history=st.lists(st.sampled_from(["a", "b", "c", "<unk>"]), max_size=6),
)
def test_whatever_the_text_it_sums_to_one(folder, sentences, order, thresholds, listed, history):
    vocabulary = None if listed is None else Vocabulary(["</s>", "<unk>", *sorted(listed)])
    prune = (0, *sorted(thresholds))[:order]
    text = "".join(" ".join(words) + "\n" for words in sentences)
    arpa = oracle.read(ours(text, folder, order=order, prune=prune, vocabulary=vocabulary)[0])
    words = [gram[0] for gram in arpa[0] if gram != ("<s>",)]
    for before in [(), *(tuple(history[-length:]) for length in range(1, order)), ("<s>", *history)[-order + 1 :]]:
        known = tuple(word if (word,) in arpa[0] else "<unk>" for word in before) if order > 1 else ()
        assert sum(10 ** score(arpa, known, word) for word in words) == pytest.approx(1.0, abs=1e-5), known


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@pytest.mark.parametrize("words", [None, ["a", "b", "d"]])
def test_a_literal_unknown_word_is_the_unknown_word(words, tmp_path):
    """Counted like any other, as `prepare` and `evaluate` count it; penn treebank's text has it."""
    vocabulary = None if words is None else Vocabulary(["</s>", "<unk>", *words])
    text = "a <unk> b\n<unk> a c a\na <unk>\nb b <unk> d <unk>\n" * 3 + "e a\n"
    found, summary = ours(text, tmp_path, order=3, vocabulary=vocabulary)
    arpa = oracle.read(found)
    assert [gram for gram in arpa[0] if "<unk>" in gram] == [("<unk>",)]
    assert ("a", "<unk>") in arpa[1]
    assert (("c",) in arpa[0]) == (words is None)
    assert summary.outside == (0 if words is None else 2)
    spelled = [gram[0] for gram in arpa[0] if gram != ("<s>",)]
    for history in [(), *(gram for order in arpa[:-1] for gram in order if gram[-1] != "</s>")]:
        assert sum(10 ** score(arpa, history, word) for word in spelled) == pytest.approx(1.0, abs=1e-5), history


def test_discounts_by_hand():
    Y = 10 / (10 + 2 * 5)
    expected = (1 - 2 * Y * 5 / 10, 2 - 3 * Y * 4 / 5, 3 - 4 * Y * 3 / 4)
    assert discounts([7, 10, 5, 4, 3]).amounts == pytest.approx(expected)
    assert discounts([7, 10, 5, 4, 3]).estimated


@pytest.mark.parametrize("n", [[0, 0, 5, 4, 3], [0, 9, 0, 4, 3], [0, 9, 5, 0, 3], [0, 9, 1, 9, 3]], ids=str)
def test_discounts_that_cannot_be_estimated_fall_back(n):
    assert discounts(n).amounts == FALLBACK
    assert not discounts(n).estimated


def test_a_discount_of_zero_is_in_range_where_lmplz_finds_it_so():
    """In float64 it is -4e-16; found by `make torture` (R17)."""
    found = discounts([7, 4, 3, 5, 2])
    assert found.estimated
    assert found.amounts == pytest.approx((0.4, 0.0, 2.36))
    assert found.amounts[1] == 0


def test_the_orders_that_fell_back_are_named(tmp_path):
    assert ours("a b\nc\nb a\n", tmp_path)[1].fallback == (2, 3, 4)
    assert ours(TEXT, tmp_path)[1].fallback == ()


@pytest.mark.parametrize("memory", [0, 1, 10_000, 300_000])
def test_a_memory_limit_changes_no_byte(memory, tmp_path):
    whole = ours(TEXT, tmp_path, order=4, prune=(0, 0, 1))[0]
    assert ours(TEXT, tmp_path, order=4, prune=(0, 0, 1), memory=memory)[0] == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lm.arpa"]


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_byte(threads, tmp_path):
    assert ours(TEXT, tmp_path, memory=10**6, threads=threads)[0] == ours(TEXT, tmp_path)[0]


def test_gzip_holds_the_same_and_no_time(tmp_path):
    found = ours(TEXT, tmp_path)[0]
    estimate_arpa(Numbered([TEXT]), tmp_path / "lm.arpa.gz")
    packed = (tmp_path / "lm.arpa.gz").read_bytes()
    assert gzip.decompress(packed).decode().splitlines() == found
    assert packed[4:8] == bytes(4)  # where gzip keeps the time: the same text gives the same file


def test_several_texts_are_one(tmp_path):
    whole = TEXT.read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join(whole[:100]))
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"".join(whole[100:])))
    estimate_arpa(Numbered([tmp_path / "a", tmp_path / "b.gz"]), tmp_path / "two.arpa")
    assert (tmp_path / "two.arpa").read_text().splitlines() == ours(TEXT, tmp_path)[0]


def test_blank_lines_are_skipped_or_empty_sentences(tmp_path):
    assert ours("a b\n\n  \nb a\n", tmp_path)[0] == ours("a b\nb a\n", tmp_path)[0]
    kept = oracle.read(ours("a b\n\nb a\n", tmp_path, keep_empty=True)[0])
    assert ("<s>", "</s>") in kept[1]


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (0.0, "0.00000000"),
        (-1e-9, "0.00000000"),
        (-1e-7, "-0.0000001"),
        (-1.23456789, "-1.2345679"),
        (-9.99999999, "-10.000000"),
        (-12.3456789, "-12.345679"),
        (-99.0, "-99.000000"),
    ],
)
def test_numbers_are_spelled_in_ten_bytes(value, spelled):
    for back_off in (None, np.array([value, value])):
        written = bytes(lines(Spelling([b"a", b"bc"]), [np.array([0, 1])], np.array([value, value]), back_off))
        tail = "" if back_off is None else f"\t{spelled}"
        assert written.decode() == f"\n{spelled}\ta{tail}\n{spelled}\tbc{tail}"


def test_words_of_every_length_are_written_whole():
    words = [b"x" * length for length in range(1, 40)]
    ids = [np.arange(39), np.arange(39)[::-1], np.arange(39)]
    written = bytes(lines(Spelling(words), ids, np.full(39, -1.0), None)).decode()
    grams = zip(*([words[id].decode() for id in column] for column in ids))
    assert written == "".join(f"\n-1.0000000\t{' '.join(gram)}" for gram in grams)


def test_the_log_of_zero_is_a_number():
    assert log10(np.array([0.0, 1.0, 1 + 1e-16, 0.1])).tolist() == [-99.0, 0.0, 0.0, -1.0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"prune": (0, 2, 1)}, "fall"),
        ({"prune": (1,)}, "begin with 0"),
        ({"prune": (0, 0, 0, 0, 0)}, "at most 4"),
        ({"order": 0}, "order 0"),
        ({"order": 1000}, "order 1000"),
    ],
)
def test_wrong_options_are_refused(options, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        ours(TEXT, tmp_path, **options)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no words in the text"),
        ("\n \n", "no words in the text"),
        ("a\nb <s>\n", "text.txt:2: byte 4 starts the word '<s>'"),
        ("</s>\n", "text.txt:1: byte 0 starts the word '</s>'"),
    ],
)
def test_wrong_texts_are_refused_and_nothing_is_left(text, sentence, tmp_path):
    (tmp_path / "lm.arpa").write_text("as it was")
    with pytest.raises(ValueError, match=sentence):
        ours(text, tmp_path)
    assert (tmp_path / "lm.arpa").read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lm.arpa", "text.txt"]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        estimate_arpa(Numbered([TEXT]), tmp_path / "none" / "lm.arpa")


@pytest.mark.parametrize(("name", "unpack"), [("lm.arpa.gz", gzip.decompress), ("lm.arpa.bz2", bz2.decompress)])
def test_the_name_says_how_it_is_packed(name, unpack, tmp_path):
    for to in (name, "lm.arpa"):
        estimate_arpa(Numbered([TEXT]), tmp_path / to)
    assert unpack((tmp_path / name).read_bytes()) == (tmp_path / "lm.arpa").read_bytes()


def test_names_that_cannot_be_written(tmp_path):
    for to, sentence in ((tmp_path, "is a folder; name the file to write, such as"), (Path(), r"\.: is a folder")):
        with pytest.raises(ValueError, match=sentence):
            estimate_arpa(Numbered([TEXT]), to)
    with pytest.raises(ValueError, match=r"lm\.arpa\.xz: a model is not packed as \.xz; let its name end in \.gz"):
        estimate_arpa(Numbered([TEXT]), tmp_path / "lm.arpa.xz")


def test_thresholds_and_sizes_as_given():
    assert _thresholds("0 0 1") == _thresholds("0,0,1") == [0, 0, 1]
    assert (_bytes("4G"), _bytes("10k"), _bytes("7")) == (4 << 30, 10 << 10, 7)
    for wrong, parse in (("0 x", _thresholds), ("", _thresholds), ("-1", _thresholds), ("4X", _bytes)):
        with pytest.raises(ValueError, match="as in"):
            parse(wrong)


RUN = """
import typer
from selfnorm.cli.ngram import ManyThresholds, ngram
app = typer.Typer()
app.command(cls=ManyThresholds)(ngram)
app()
"""


def test_the_verb(tmp_path):
    command = [sys.executable, "-c", RUN, str(TEXT), "--to", str(tmp_path / "lm.arpa")]
    options = ["--prune", "0", "0", "1", "2", "--json", "--memory", "1M"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    fields = json.loads(done.stdout)
    assert fields["grams"] == oracle.header((tmp_path / "lm.arpa").read_text().splitlines())
    assert fields["words"] == len(TEXT.read_text().split())
    assert all(math.isfinite(amount) for each in fields["discounts"] for amount in each)
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "sentences in" in shown.stdout


def test_what_a_killed_process_left_goes(tmp_path):
    """Its arrays may be of many gigabytes; those of a process that lives stay."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    for process in (dead.pid, os.getpid(), os.getppid()):  # one of our number, in an earlier life of a container
        folder = tmp_path / f".lm.arpa.{here()}-{process}.tmp"
        folder.mkdir()
        (folder / "array").write_bytes(b"large")
    estimate_arpa(Numbered([TEXT]), tmp_path / "lm.arpa")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f".lm.arpa.{here()}-{os.getppid()}.tmp", "lm.arpa"]


def test_a_device_is_refused_before_the_work(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: is a pipe or device, not a file"):
        estimate_arpa(None, tmp_path / "pipe")
