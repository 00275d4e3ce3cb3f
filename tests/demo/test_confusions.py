"""The distance is that of the definition, and the index misses nothing within one edit."""

import random

import pytest

from selfnorm.demo.confusions import Confusions, letters
from selfnorm.demo.sounds import sounds


def edits(one, two):
    """By the definition, one cell at a time."""
    row = list(range(len(two) + 1))
    for n, letter in enumerate(one, 1):
        row, before = [n], row
        for m, other in enumerate(two, 1):
            row.append(min(row[-1] + 1, before[m] + 1, before[m - 1] + (letter != other)))
    return row[-1]


def distance(one, two):
    return (edits(letters(one), letters(two)) + edits(sounds(one), sounds(two))) / 2


@pytest.fixture(scope="module")
def words():
    chance = random.Random(3)
    some = {"".join(chance.choices("aeghknst'", k=chance.randint(1, 6))).strip("'") for _ in range(400)}
    return sorted(some - {""})


@pytest.fixture(scope="module")
def confusions(words):
    return Confusions(words)


@pytest.mark.parametrize("text", ["night", "a", "knee's", "ghost", "aaaaaaaaaaaaaaa"])
def test_nearest_is_by_definition(confusions, words, text):
    found = confusions.nearest(text, 20)
    assert [far for _, far in found] == sorted(distance(text, word) for word in words)[:20]
    assert all(far == distance(text, word) for word, far in found)


@pytest.mark.parametrize("number", range(0, 300, 20))
def test_near_finds_all_within_one_edit(confusions, words, number):
    text = words[number % len(words)]
    found = dict(confusions.near(text, 1.0))
    assert found[text] == 0
    assert all(far <= 1 and far == distance(text, word) for word, far in found.items())
    close = {word for word in words if edits(letters(text), letters(word)) <= 1 and distance(text, word) <= 1}
    assert close <= found.keys()


def test_alike_is_the_same_spelling_or_sound():
    found = Confusions(["night", "knight", "nights", "might", "sea", "see"])
    assert found.alike("night") == [("night", 0.0), ("knight", 0.5)]
    assert found.alike("nite") == [("night", 1.5), ("knight", 2.0)]
    assert found.alike("xyz") == []
