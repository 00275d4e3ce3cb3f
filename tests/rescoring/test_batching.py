"""What is worked on together, and what is given back on the way."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import drawn, lattices, listed, neural, ngram

from selfnorm.lattices.lattice import SILENT, assemble
from selfnorm.lattices.paths import best, words_of
from selfnorm.rescoring import NEURAL, NGRAM, Rescorer, Search, Setting, grouped
from selfnorm.rescoring.histories import Histories
from selfnorm.rescoring.push_forward import push_forward
from selfnorm.rescoring.results import decide
from selfnorm.scorers.banks import bank


@settings(max_examples=60)
@given(
    items=st.lists(st.one_of(lattices(), lattices(most_nodes=4).map(listed)), max_size=12),
    arcs=st.integers(1, 60),
)
def test_groups_keep_order_kind_and_bound(items, arcs):
    groups = list(grouped(iter(items), arcs))
    assert [item for group in groups for item in group] == items
    for group in groups:
        assert group
        assert len({type(item) for item in group}) == 1
        assert len(group) == 1 or sum(map(_size, group)) <= arcs
    for one, other in pairwise(groups):  # no group could have had the next item too
        assert type(one[0]) is not type(other[0]) or sum(map(_size, one)) + _size(other[0]) > arcs


def _size(item):
    return item.arcs if hasattr(item, "arcs") else sum(len(each.words) + 1 for each in item.hypotheses)


def test_grouping_takes_no_more_than_it_needs():
    taken = []

    def items():
        for seed in range(10):
            taken.append(seed)
            yield drawn(seed)

    next(grouped(items(), 1))
    assert len(taken) == 2


@pytest.mark.parametrize("algorithm", ["push_forward", "path_cover"])
def test_groups_and_budget_change_nothing(algorithm):
    items = [drawn(seed) for seed in range(12)]
    found = []
    for arcs, budget in ((10**6, 4096), (1, 4096), (30, 1), (10**6, 7)):
        rescorer = Rescorer({NEURAL: neural()}, Setting(weight=0.5), algorithm, budget=budget, arcs=arcs)
        found.append([decide(each, rescorer.setting) for each in rescorer.rescore(items)])
    for other in found[1:]:
        for one, two in zip(found[0], other):
            assert one.words == two.words
            assert one.score == pytest.approx(two.score, abs=1e-4)


def sausage(slots, seed):
    """Two words in each slot and silence in some: 2**slots histories."""
    rng = np.random.default_rng(seed)
    arcs = [(n, n + 1, f"w{rng.integers(0, 5)}") for n in range(slots) for _ in range(2)]
    arcs += [(n, n + 1, SILENT) for n in range(0, slots, 3)]
    sources, targets, words = zip(*arcs)
    columns = {"acoustic": rng.normal(0, 2, len(arcs)), "lm": rng.normal(-3, 1, len(arcs))}
    return assemble(
        f"s-{seed}", nodes=slots + 1, start=0, end=slots, sources=sources, targets=targets, words=words, **columns
    )


@pytest.mark.parametrize("name", ["lstm", "transformer"])
@pytest.mark.parametrize("order", [None, 2])
def test_rows_that_are_given_back_are_made_again(tmp_path, monkeypatch, name, order):
    """With room for next to nothing, and with room for all."""
    setting, search = Setting(weight=0.5, ngram_weight=0.3), Search(order, 6, 20.0)
    group = [sausage(18, seed) for seed in range(3)]
    found, given_back, drop = [], [], Histories.drop_all_but

    def counted(histories, kept):
        before = histories.held
        drop(histories, kept)
        given_back[-1] += before > histories.held

    monkeypatch.setattr(Histories, "drop_all_but", counted)
    for held in (20_000, 4):
        monkeypatch.setattr(sys.modules[push_forward.__module__], "HELD", held)
        given_back.append(0)
        banks = {NEURAL: bank(neural(name), 5), NGRAM: bank(ngram(tmp_path))}
        found.append(push_forward(group, banks, setting, search))
        assert len(banks[NGRAM].states) == 3  # only the starts of the sentences are still there
    assert given_back[0] == 1 < given_back[1]
    for one, other in zip(*found):
        assert one.lattice.words == other.lattice.words
        np.testing.assert_array_equal(one.lattice.targets, other.lattice.targets)
        for scorer in (NEURAL, NGRAM):
            np.testing.assert_allclose(one.scores[scorer].score, other.scores[scorer].score, atol=1e-4)


@settings(max_examples=30)
@given(lattice=lattices())
def test_path_cover_never_beats_the_full_search_by_true_scores(lattice):
    """What path_cover thinks best has, with its true history, at most the score of the best of all."""
    scorer, setting = neural("transformer"), Setting(weight=0.7, unknown_penalty=-1.0)
    (covered,) = Rescorer({NEURAL: scorer}, setting, "path_cover").rescore([lattice])
    (pushed,) = Rescorer({NEURAL: scorer}, setting, "push_forward", Search(None, None, float("inf"))).rescore([lattice])
    arcs = list(best(covered.lattice, covered.totals(setting)).arcs)
    words = words_of(covered.lattice, arcs)
    told = sum(scorer.score(words)) - sum(word not in scorer.vocabulary for word in words)
    lm = 0.3 * covered.lattice.lm[arcs].sum() + 0.7 * told
    scale, penalty = lattice.scales.lm, lattice.scales.penalty
    truth = covered.lattice.acoustic[arcs].sum() + scale * lm + penalty * len(words)
    assert truth <= decide(pushed, setting).score + 1e-4


def test_path_cover_is_the_full_search_where_paths_share_nothing():
    """Of a list every path is its own."""
    items, setting = [listed(drawn(seed)) for seed in range(8)], Setting(weight=0.7)
    scorer = neural("transformer")
    by = [list(Rescorer({NEURAL: scorer}, setting, name).rescore(items)) for name in ("path_cover", "nbest")]
    for one, other in zip(*by):
        assert decide(one, setting).words == decide(other, setting).words
        assert decide(one, setting).score == pytest.approx(decide(other, setting).score, abs=1e-4)


def test_lists_only_for_nbest():
    with pytest.raises(ValueError, match="is a lattice and the algorithm 'nbest' takes lists"):
        list(Rescorer({NEURAL: neural()}, algorithm="nbest").rescore([drawn(1)]))
