"""Every algorithm against every path: the definition is a sum over one path, with whole sentences scored at once."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import lattices, listed, neural, ngram, paths

from selfnorm.lattices.lattice import SILENT
from selfnorm.lattices.paths import best, n_best, words_of
from selfnorm.rescoring import NEURAL, NGRAM, OLD, Rescorer, Search, Setting
from selfnorm.rescoring.exact import exact
from selfnorm.rescoring.push_forward import push_forward
from selfnorm.scorers.banks import bank
from selfnorm.vocabulary import END

UNLIMITED = Search(order=None, most=None, beam=float("inf"))


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    first, second = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    return {NEURAL: neural(), NGRAM: ngram(first), OLD: ngram(second, order=2, seed=5)}


@cache
def said(scorer, words):
    """What a scorer says of a whole sentence, once for all paths that say it."""
    return scorer.score(words)


def by_hand(lattice, arcs, scorers, setting, keep=False):
    """The score of one path, from the formula."""
    words = words_of(lattice, arcs)
    events = [arc for arc in arcs if lattice.words[arc] not in (SILENT, END)]
    told = {name: np.array(said(scorer, words)) for name, scorer in scorers.items()}  # words and </s>
    lms = [lattice.lm[arc] for arc in events] + [sum(lattice.lm[arc] for arc in arcs if lattice.words[arc] == END)]
    for name, scorer in scorers.items():
        for n, word in enumerate(words):
            if word not in scorer.vocabulary:
                told[name][n] = lms[n] if keep else told[name][n] + setting.unknown_penalty
    v = setting.ngram_weight
    new = np.log((1 - v) * np.exp(told[NEURAL]) + v * np.exp(told[NGRAM])) if NGRAM in told else told[NEURAL]
    old = sum(lattice.lm[arc] for arc in arcs)
    lm = (1 - setting.weight) * old + setting.weight * new.sum()
    if OLD in told:
        lm = old + setting.weight * (new.sum() - told[OLD].sum())
    scale = lattice.scales.lm if setting.lm_scale is None else setting.lm_scale
    penalty = lattice.scales.penalty if setting.word_penalty is None else setting.word_penalty
    return lattice.acoustic[list(arcs)].sum() + scale * lm + penalty * len(words)


SETTINGS = [
    (Setting(unknown_penalty=0.0), (NEURAL,)),
    (Setting(weight=0.4, lm_scale=2.0, word_penalty=-0.5, unknown_penalty=-2.0), (NEURAL,)),
    (Setting(weight=0.7, ngram_weight=0.3), (NEURAL, NGRAM)),
    (Setting(weight=0.5, ngram_weight=0.3, unknown_penalty=-1.0), (NEURAL, NGRAM, OLD)),
]


@pytest.mark.parametrize(("setting", "names"), SETTINGS, ids=range(len(SETTINGS)))
@settings(max_examples=125)
@given(lattice=lattices(end=False))
def test_unlimited_push_forward_is_exact_is_the_best_of_all_paths(scorers, setting, names, lattice):
    chosen = {name: scorers[name] for name in names}
    every = [by_hand(lattice, arcs, chosen, setting) for arcs in paths(lattice)]
    score, path = exact(lattice, chosen, setting)
    assert score == pytest.approx(max(every), abs=1e-4)
    assert path.totals(setting).sum() == pytest.approx(score, abs=1e-6)
    pushed = push_forward([lattice], {name: bank(each) for name, each in chosen.items()}, setting, UNLIMITED)
    found = best(pushed[0].lattice, pushed[0].totals(setting))
    assert found.score == pytest.approx(score, abs=1e-4)
    if len(every) == 1 or np.diff(np.sort(np.unique(np.round(every, 6)))[-2:]).min(initial=1) > 1e-3:
        assert words_of(pushed[0].lattice, found.arcs) == words_of(path.lattice, range(path.lattice.arcs))


@settings(max_examples=60)
@given(lattice=lattices())
def test_the_end_of_the_sentence_may_stand_in_the_lattice(scorers, lattice):
    """`keep` gives unknown words the lattice's score; `</s>` on an arc of its own carries the lattice's."""
    chosen, setting = {NEURAL: scorers[NEURAL]}, Setting(weight=0.6)
    every = [by_hand(lattice, arcs, chosen, setting, keep=True) for arcs in paths(lattice)]
    assert exact(lattice, chosen, setting, keep=True)[0] == pytest.approx(max(every), abs=1e-4)
    pushed = push_forward([lattice], {NEURAL: bank(chosen[NEURAL])}, setting, UNLIMITED, keep=True)[0]
    assert best(pushed.lattice, pushed.totals(setting)).score == pytest.approx(max(every), abs=1e-4)


@settings(max_examples=30)
@given(lattice=lattices())
def test_weight_0_is_the_first_pass_under_any_algorithm(scorers, lattice):
    first = best(lattice)
    for algorithm in ("push_forward", "path_cover", "exact"):
        rescorer = Rescorer({NEURAL: scorers[NEURAL]}, Setting(weight=0), algorithm, UNLIMITED)
        (done,) = rescorer.rescore([lattice])
        found = best(done.lattice, done.totals(rescorer.setting))
        assert found.score == pytest.approx(first.score, abs=1e-9)
        if len({path.score for path in n_best(lattice, 2)}) == 2:
            assert words_of(done.lattice, found.arcs) == words_of(lattice, first.arcs)


@settings(max_examples=40)
@given(group=st.lists(lattices(), min_size=2, max_size=5))
def test_lattices_together_are_lattices_alone(scorers, group):
    setting, search = Setting(weight=0.5), Search(order=1, most=2, beam=3.0)
    together = push_forward(group, {NEURAL: bank(scorers[NEURAL], budget=3)}, setting, search)
    for lattice, joint in zip(group, together):
        (alone,) = push_forward([lattice], {NEURAL: bank(scorers[NEURAL])}, setting, search)
        assert alone.lattice.words == joint.lattice.words
        np.testing.assert_array_equal(alone.lattice.targets, joint.lattice.targets)
        np.testing.assert_allclose(alone.scores[NEURAL].score, joint.scores[NEURAL].score, atol=1e-5)


@settings(max_examples=60)
@given(lattice=lattices())
def test_pruned_paths_carry_true_scores_and_the_number_bounds_them(scorers, lattice):
    """Recombination on the last words changes scores after the next word at most: on the path of the winner none."""
    setting, search = Setting(weight=0.5), Search(order=1, most=1, beam=2.0)
    (done,) = push_forward([lattice], {NEURAL: bank(scorers[NEURAL])}, setting, search)
    exact_score = exact(lattice, {NEURAL: scorers[NEURAL]}, setting)[0]
    found = best(done.lattice, done.totals(setting))
    truth = by_hand(done.lattice, found.arcs, {NEURAL: scorers[NEURAL]}, setting)
    assert found.score == pytest.approx(truth, abs=1e-4)
    assert found.score <= exact_score + 1e-4
    assert done.lattice.nodes <= lattice.nodes + 1  # one hypothesis at a node, and one more node for </s>


@pytest.mark.parametrize("name", ["lstm", "transformer"])
@settings(max_examples=30)
@given(lattice=lattices())
def test_path_cover_gives_every_arc_its_word_on_the_best_path_through_it(name, lattice):
    scorer = neural(name)
    rescorer = Rescorer({NEURAL: scorer}, Setting(weight=1.0), "path_cover")
    (done,) = rescorer.rescore([lattice])
    totals = done.lattice.total()
    through = {}
    for arcs in paths(done.lattice):
        for arc in arcs:
            through.setdefault(arc, []).append((sum(totals[list(arcs)]), arcs))
    for arc, word in enumerate(done.lattice.words):
        if word == SILENT:
            assert done.scores[NEURAL].score[arc] == 0
            continue
        top = max(score for score, _ in through[arc])
        events = [
            [each for each in arcs if done.lattice.words[each] != SILENT]
            for score, arcs in through[arc]
            if score > top - 1e-9
        ]
        said = [scorer.score(words_of(done.lattice, each))[each.index(arc)] for each in events]
        assert min(abs(np.array(said) - done.scores[NEURAL].score[arc])) < 1e-4


@pytest.mark.parametrize("keep", [False, True], ids=["penalty", "keep"])
@settings(max_examples=40)
@given(lattice=lattices(end=False))
def test_what_path_cover_decides_on_has_the_true_scores(scorers, keep, lattice):
    chosen = {NEURAL: neural("transformer"), NGRAM: scorers[NGRAM]}
    setting = Setting(weight=0.7, ngram_weight=0.3)
    rescorer = Rescorer(chosen, setting, keep=keep)
    (done,) = rescorer.rescore([lattice])
    assert rescorer.approximates
    settled = rescorer.settled(done, setting, n=10_000)
    tree = settled.lattice
    found = n_best(tree, 10_000, settled.totals(setting))
    truth = {}
    for arcs in paths(lattice):
        words, score = words_of(lattice, arcs), by_hand(lattice, arcs, chosen, setting, keep)
        truth[words] = max(score, truth.get(words, -np.inf))
    assert {words_of(tree, path.arcs) for path in found} == truth.keys()
    for path in found:
        assert path.score <= truth[words_of(tree, path.arcs)] + 1e-4  # of paths with the same words one is kept
        assert path.score == pytest.approx(by_hand(tree, path.arcs, chosen, setting, keep), abs=1e-4)
    if tree.times is not None:
        assert (tree.times[tree.targets] == done.lattice.times[done.lattice.targets[settled.arcs]]).all()


def test_a_list_is_settled_as_it_is():
    given = listed(_drawn(1))
    rescorer = Rescorer({NEURAL: neural("transformer")}, algorithm="path_cover")
    (done,) = rescorer.rescore([given])
    assert rescorer.settled(done, Setting()) is done


@pytest.mark.parametrize("histories", ["sentences", "streams"])
def test_a_transformer_can_be_pushed_forward_too(histories):
    scorer, setting = neural("transformer", histories), Setting(weight=0.8)
    group = [_drawn(seed) for seed in range(4)]
    for lattice, done in zip(group, Rescorer({NEURAL: scorer}, setting, "push_forward", UNLIMITED).rescore(group)):
        score = exact(lattice, {NEURAL: scorer}, setting)[0]
        assert best(done.lattice, done.totals(setting)).score == pytest.approx(score, abs=1e-4)


def _drawn(seed):
    from selfnorm.lattices.lattice import assemble

    rng = np.random.default_rng(seed)
    arcs = [(0, 1, "w0"), (0, 1, "w1"), (1, 2, "w2"), (1, 3, "w3"), (2, 3, "w4"), (0, 2, "w1"), (2, 3, "")]
    columns = {"acoustic": rng.normal(0, 3, 7), "lm": rng.normal(-2, 1, 7)}
    sources, targets, words = zip(*arcs)
    return assemble(f"u{seed}", nodes=4, start=0, end=3, sources=sources, targets=targets, words=words, **columns)


@pytest.mark.parametrize("algorithm", ["push_forward", "path_cover", "exact"])
def test_a_literal_unk_is_known_and_has_no_penalty(scorers, algorithm):
    lattice = replace(_drawn(1), words=("<unk>",) * _drawn(1).arcs)
    (done,) = Rescorer({NEURAL: scorers[NEURAL], NGRAM: scorers[NGRAM]}, algorithm=algorithm).rescore([lattice])
    for told in done.scores.values():
        assert not told.unknown.any()
