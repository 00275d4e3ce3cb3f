"""Counts against a dictionary."""

from collections import Counter, defaultdict

import numpy as np
import pytest

from selfnorm.ngrams.counts import END, START, count, read, spans, with_marks
from selfnorm.ngrams.scratch import Scratch


def nothing(_done, _todo):
    pass


def random_numbers(seed, sentences=60, size=12):
    """Sentences as numbers; new words get the next one."""
    chance = np.random.default_rng(seed)
    known = {}
    return [
        [known.setdefault(id, len(known) + 1) for id in (chance.pareto(0.7, chance.integers(1, 9)) % size).astype(int)]
        for _ in range(sentences)
    ]


def counted(sentences, order, tmp_path, memory=10**9, **options):
    scratch = Scratch(tmp_path, memory)
    stream = [np.array([*each, 0], np.uint32) for each in sentences]
    return count(read(stream, scratch), order, scratch, nothing, **options)


def by_hand(sentences, order):
    """For each order n: n-gram -> (count, adjusted count)."""
    counts, before = Counter(), defaultdict(set)
    for sentence in sentences:
        ids = [START, *(number + 2 for number in sentence), END]
        for end in range(1, len(ids)):
            for begin in range(end, max(-1, end - order), -1):
                counts[tuple(ids[begin : end + 1])] += 1
                if begin and end - begin + 1 < order:
                    before[tuple(ids[begin : end + 1])].add(ids[begin - 1])
    return [
        {g: (c, len(before[g]) or c) for g, c in counts.items() if len(g) == n} for n in range(1, order + 1)
    ]  # what begins with <s> has nothing before it


def rows(counts, n):
    grams, ids = counts.grams[n - 1], counts.text.ids
    skip = 2 if n == 1 else 0  # <unk> and <s>
    return [tuple(ids[at - n + 1 : at + 1].tolist()) for at in grams.at[skip:]], skip


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "options", [{}, {"memory": 0}, {"memory": 2000, "piece": 7}, {"piece": 1, "threads": 2}], ids=str
)
def test_counts_are_those_of_a_dictionary(order, options, tmp_path):
    sentences = random_numbers(order)
    counts = counted(sentences, order, tmp_path, **options)
    for n, expected in enumerate(by_hand(sentences, order), start=1):
        grams = counts.grams[n - 1]
        found, skip = rows(counts, n)
        values = zip(grams.count[skip:].tolist(), grams.adjusted[skip:].tolist())
        assert dict(zip(found, values, strict=True)) == expected
        assert len(set(found)) == len(found)


@pytest.mark.parametrize("options", [{}, {"memory": 0, "piece": 5}], ids=str)
def test_rows_are_in_suffix_order_and_linked(options, tmp_path):
    counts = counted(random_numbers(9), 4, tmp_path, **options)
    for n in (2, 3, 4):
        found, _ = rows(counts, n)
        lower, skip = rows(counts, n - 1)
        lower = [(0,), (START,)][:skip] + lower
        assert found == sorted(found, key=lambda gram: gram[::-1])
        assert [lower[row] for row in counts.grams[n - 1].suffix] == [gram[1:] for gram in found]
        assert [lower[row] for row in counts.history(n, slice(None))] == [gram[:-1] for gram in found]


def test_keys_too_large_for_one_number_are_sorted_as_well(tmp_path, monkeypatch):
    """A vocabulary of 2^54 leaves no room beside a key."""
    from selfnorm.ngrams import counts as module

    sentences = random_numbers(3)
    expected = counted(sentences, 3, tmp_path)
    monkeypatch.setattr(module.Text, "size", property(lambda text: 1 << 54))
    found = counted(sentences, 3, tmp_path)
    for n in (1, 2, 3):
        np.testing.assert_array_equal(found.grams[n - 1].count, expected.grams[n - 1].count)
        assert rows(found, n) == rows(expected, n)


def test_sentences_are_marked():
    assert with_marks(np.array([1, 2, 0, 0, 1, 0], np.uint32)).tolist() == [3, 4, END, START, END, START, 3, END, START]


@pytest.mark.parametrize("piece", [1, 3, 10, 100])
def test_spans_hold_whole_words(piece):
    counts = np.array([0, 5, 5, 1, 7, 2, 2, 1])  # <s> is counted, but no n-gram ends in it
    found = list(spans(counts, piece))
    assert [span.start for span in found] == [0, *(span.stop for span in found[:-1])]
    assert found[-1].stop == 18
    borders = np.cumsum([5, 1, 7, 2, 2, 1]).tolist()
    assert all(span.stop in borders for span in found)
    single = [5, 6, 13, 15, 17, 18]
    assert all(span.stop - span.start <= max(piece, 7) for span in found)
    assert piece > 1 or [span.stop for span in found] == single
