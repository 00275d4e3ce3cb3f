"""Words that are said alike are written alike."""

import pytest

from selfnorm.demo.sounds import sounds


@pytest.mark.parametrize(
    "words",
    [
        "see sea",
        "knight night",
        "right write rite",
        "which witch",
        "new knew",
        "made maid",
        "meet meat",
        "wait weight",
        "eye's eyes",
        "call'd called",
        "hair heir hare",
    ],
)
def test_said_alike(words):
    assert len({sounds(word) for word in words.split()}) == 1


@pytest.mark.parametrize("words", ["hat hate", "but boot", "thin tin", "shall call", "judge church", "place places"])
def test_said_differently(words):
    one, two = words.split()
    assert sounds(one) != sounds(two)


def test_never_empty():
    assert all(sounds(piece) for piece in ("'", "h", "gh", "e", "a"))
