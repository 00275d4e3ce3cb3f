"""Tuning without the network: the listed sums are the lattices', the optimum is found, no fold sees itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import drawn, lattices, listed, neural, ngram, planted

from selfnorm.lattices.lattice import Scales
from selfnorm.lattices.nbest import Hypothesis, NBest
from selfnorm.rescoring import NEURAL, NGRAM, OLD, Rescorer, Setting, tuning
from selfnorm.rescoring.tuning import Grid, Lists, cross_validate, tune

ORDERS = {
    "nothing new": (),
    "neural": (NEURAL,),
    "n-gram": (NGRAM,),
    "mixture": (NEURAL, NGRAM),
    "instead of the old": (NEURAL, NGRAM, OLD),
}


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    folders = [tmp_path_factory.mktemp(name) for name in "ab"]
    return {NEURAL: neural(), NGRAM: ngram(folders[0]), OLD: ngram(folders[1], order=2, seed=5)}


numbers = st.floats(-3, 3)
chosen = st.builds(
    Setting,
    lm_scale=st.floats(0, 5),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    word_penalty=numbers,
    ngram_weight=st.sampled_from([0.0, 0.4, 1.0]),
    unknown_penalty=numbers,
)


@pytest.mark.parametrize("names", ORDERS.values(), ids=list(ORDERS))
@pytest.mark.parametrize("keep", [False, True])
@settings(max_examples=12)
@given(group=st.lists(lattices(), min_size=1, max_size=3), setting=chosen)
def test_the_total_of_a_listed_path_is_the_sum_of_its_arcs(scorers, names, keep, group, setting):
    start = Setting(weight=0.8, ngram_weight=0.5)
    rescored = list(Rescorer({name: scorers[name] for name in names}, start, keep=keep).rescore(group))
    lists = Lists.of(rescored, {each.utterance: ("w0",) for each in group}, start)
    found = lists.totals(setting).tolist()
    wanted = [
        each.totals(setting)[list(arcs)].sum()
        for each in rescored
        for arcs in tuning._paths(each, replace(start, lm_scale=None, word_penalty=None))
    ]
    assert found == pytest.approx(wanted, abs=1e-6)
    if len(group) == 1:  # else headers differ, and the first's counts
        assert lists.totals(start).tolist() == pytest.approx(lists.totals(lists.start).tolist())


def test_errors_are_those_of_the_listed_words():
    lattice = drawn(4, end=False)
    (rescored,) = Rescorer({}).rescore([lattice])
    lists = Lists.of([rescored], {lattice.utterance: ("w0", "w1")}, Setting())
    assert lists.expected(Setting()).shape == (1,)
    assert lists.errors.min() >= 0
    assert lists.expected(Setting())[0] <= lists.errors.max()


def test_a_planted_optimum_is_found():
    items, references = planted()
    lists = Lists.of(list(Rescorer({}).rescore(items)), references, Setting())
    assert set(lists.free) == {"lm_scale", "word_penalty"}
    best = tune(lists)
    assert best.lm_scale == pytest.approx(3, rel=0.25)
    assert best.word_penalty == pytest.approx(2, abs=0.8)
    assert lists.expected(best).sum() < 0.3 * lists.expected(lists.start).sum()
    assert lists.expected(best).sum() <= Grid(lists).errors.sum(1).min()


def test_what_there_is_to_choose(scorers):
    def free(names, item):
        (rescored,) = Rescorer({name: scorers[name] for name in names}).rescore([item])
        return Lists.of([rescored], {item.utterance: ()}, Setting()).free

    known = NBest("u", (Hypothesis(("w0",), -1.0), Hypothesis(("w1",), -2.0)))
    both = NBest("u", (Hypothesis(("w0",), -1.0, -3.0), Hypothesis(("new",), -2.0, -1.0)))
    assert free([], known) == ("word_penalty",)
    assert free([], both) == ("lm_scale", "word_penalty")
    assert free([NEURAL], known) == ("lm_scale", "word_penalty")
    assert free([NEURAL, NGRAM], both) == ("lm_scale", "weight", "ngram_weight", "unknown_penalty", "word_penalty")


@pytest.fixture(scope="module")
def cached():
    items, references = planted(24, seed=2)
    return list(Rescorer({}).rescore(items)), references


def test_no_fold_is_tuned_on_itself(cached):
    rescored, references = cached
    whole, folds, fold = cross_validate(Lists.of(rescored, references, Setting()), 4)
    assert sorted(np.bincount(fold)) == [6, 6, 6, 6]
    assert whole not in folds or len(set(folds)) < 4
    names = [each.lattice.utterance for each in rescored]
    for n in range(4):
        others = {name: ("nonsense",) * 9 if fold[m] == n else references[name] for m, name in enumerate(names)}
        again, changed, same = cross_validate(Lists.of(rescored, others, Setting()), 4)
        assert same.tolist() == fold.tolist()
        assert changed[n] == folds[n]
        assert again != whole or changed != folds  # the others have seen the change


def test_folds_depend_on_names_only(cached):
    rescored, references = cached
    fold = dict(zip((each.lattice.utterance for each in rescored), _folds(rescored, references)))
    backward = rescored[::-1]
    silent = dict.fromkeys(references, ())
    assert dict(zip((each.lattice.utterance for each in backward), _folds(backward, silent))) == fold


def _folds(rescored, references):
    return cross_validate(Lists.of(rescored, references, Setting()), 5)[2].tolist()


@pytest.mark.parametrize("folds", [1, 25])
def test_folds_are_two_to_the_number_of_utterances(cached, folds):
    with pytest.raises(ValueError, match=f"^{folds} folds of 24 utterances were asked for; choose from 2"):
        cross_validate(Lists.of(*cached, Setting()), folds)


def test_posteriors_are_taken_at_half_the_scale_of_the_recogniser():
    lattice = drawn(3)
    for scales, setting, wanted in (
        (Scales(lm=9.5), Setting(), 4.75),
        (Scales(lm=9.5), Setting(lm_scale=5.0), 4.75),
        (Scales(lm=9.5), Setting(lm_scale=20.0), 4.75),
        (Scales(), Setting(lm_scale=0.3), 1.0),
        (Scales(), Setting(lm_scale=10.0), 5.0),  # Kaldi's: the scale is given on the command line
        (Scales(lm=0.0), Setting(), 1.0),
    ):
        assert setting.temperature(replace(lattice, scales=scales)) == wanted


def test_lists_with_a_path_for_every_hypothesis():
    item = listed(drawn(8, end=False))
    (rescored,) = Rescorer({}).rescore([item])
    lists = Lists.of([rescored], {item.utterance: ()}, Setting())
    assert len(lists.steady) == len({each.words for each in item.hypotheses})
