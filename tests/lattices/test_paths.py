"""Paths against all paths: the best, the n best of distinct words, what lies before and behind, pruning."""

import numpy as np
import pytest
from comparing import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from small import lattices, paths

from selfnorm.lattices.lattice import assemble
from selfnorm.lattices.paths import backward, best, forward, n_best, prune, subset, through_each, words_of


def scored(lattice, totals):
    """Every sequence of words with its best score, best first."""
    top = {}
    for arcs in paths(lattice):
        said = words_of(lattice, arcs)
        top[said] = max(top.get(said, -np.inf), totals[arcs].sum())
    return sorted(top.items(), key=lambda item: -item[1])


@settings(max_examples=100)
@given(lattice=lattices(), n=st.integers(1, 40))
def test_the_best_and_the_n_best(lattice, n):
    totals = lattice.total()
    wanted, first = scored(lattice, totals), best(lattice)
    assert first.score == pytest.approx(wanted[0][1])
    assert totals[list(first.arcs)].sum() == pytest.approx(first.score)
    found = n_best(lattice, n)
    assert len(found) == min(n, len(wanted))
    assert [path.score for path in found] == pytest.approx([score for _, score in wanted[:n]])
    said = [words_of(lattice, path.arcs) for path in found]
    assert len(set(said)) == len(said)
    for words, path in zip(said, found):
        assert path.score == pytest.approx(dict(wanted)[words])
        assert totals[list(path.arcs)].sum() == pytest.approx(path.score)


@settings(max_examples=60)
@given(lattice=lattices())
def test_before_behind_and_through(lattice):
    totals = lattice.total()
    every = [(arcs, totals[arcs].sum()) for arcs in paths(lattice)]
    ahead, behind = forward(lattice, totals), backward(lattice, totals)
    assert ahead[-1] == pytest.approx(behind[0]) == pytest.approx(max(score for _, score in every))
    through, came, goes = through_each(lattice, totals)
    for arc in range(lattice.arcs):
        assert through[arc] == pytest.approx(max(score for arcs, score in every if arc in arcs))
    for node in range(1, lattice.nodes):
        assert lattice.targets[came[node]] == node
        assert ahead[lattice.sources[came[node]]] + totals[came[node]] == ahead[node]
    for node in range(lattice.nodes - 1):
        assert lattice.sources[goes[node]] == node


@settings(max_examples=60)
@given(lattice=lattices(), beam=st.floats(0, 20))
def test_pruning_keeps_the_arcs_of_good_paths(lattice, beam):
    totals = lattice.total()
    top = best(lattice).score
    wanted = {arc for arcs in paths(lattice) if totals[arcs].sum() >= top - beam for arc in arcs}
    pruned = prune(lattice, beam)
    assert abs(pruned.arcs - len(wanted)) <= _on_the_edge(lattice, totals, top - beam)
    assert best(pruned).score == pytest.approx(top)
    assert (pruned.sources < pruned.targets).all()


def _on_the_edge(lattice, totals, limit):
    return int((np.abs(through_each(lattice, totals)[0] - limit) < 1e-6).sum())


def test_a_subset_keeps_all_columns():
    lattice = toy()
    path = subset(lattice, np.array(best(lattice).arcs))
    assert path.words == tuple(lattice.words[arc] for arc in best(lattice).arcs)
    assert best(path).score == pytest.approx(best(lattice).score)
    assert path.times[-1] == lattice.times[-1]


def test_there_is_always_a_best_one():
    """Where the search for n is given no time, and where a lattice has one node."""
    lattice = toy()
    assert [path.score for path in n_best(lattice, 5, most=1)] == [best(lattice).score]
    assert n_best(lattice, 0) == []
    empty = assemble("u", nodes=1, start=0, end=0, sources=[], targets=[], words=[], acoustic=[], lm=[])
    assert (best(empty).arcs, best(empty).score, n_best(empty, 3)) == ((), 0.0, [best(empty)])


@pytest.mark.parametrize("score", [-np.inf, np.nan])
def test_no_path_at_all_is_a_sentence(score):
    lattice = toy()
    totals = np.where(lattice.targets == lattice.nodes - 1, score, lattice.total())
    with pytest.raises(ValueError, match=rf"utterance {lattice.utterance}: every path has a score of -inf or none; "):
        best(lattice, totals)
    totals[-1] = -1.0
    assert best(lattice, totals).arcs[-1] == lattice.arcs - 1
