"""The numbers of a lattice, on one that can be counted by hand."""

import pytest
from comparing import toy

from selfnorm.lattices.summary import summarize


def test_size_density_and_best_path():
    found = summarize(toy())
    assert (found.utterance, found.nodes, found.arcs, found.words, found.seconds) == ("toy", 5, 6, 4, 0.7)
    assert found.arcs_per_second == pytest.approx(6 / 0.7)
    assert found.arcs_per_word == 3
    assert found.best.words == ("a", "c")
    assert found.best.score == pytest.approx(-1 - 2.5 - 10 - 0.5 - 3 - 5 - 0.5 - 0.1 - 2.5)
    assert found.best.errors is None
    assert found.nearest is None


def test_errors_of_the_best_and_the_nearest_path():
    found = summarize(toy(), ["d", "e"])
    assert (found.best.errors.total, found.best.errors.words) == (2, 2)
    assert found.nearest.words == ("d",)
    assert (found.nearest.errors.total, found.nearest.errors.deletions) == (1, 1)
    assert found.nearest.score == pytest.approx(-1 - 7 - 20 - 0.5 - 0.1 - 2.5)


def test_what_a_lattice_does_not_have():
    assert summarize(toy(times=None)).arcs_per_second is None
    empty = summarize(toy(start=4))
    assert (empty.arcs, empty.best.words, empty.arcs_per_word, empty.arcs_per_second) == (0, (), None, None)
