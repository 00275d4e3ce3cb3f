"""The mixture is its formula, and EM finds the weights that no others beat."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from slow_ngram import random_model, render

from selfnorm.scorers import SCORERS, Interpolated, NGram, interpolated
from selfnorm.scorers.interpolated import fit, mix


@pytest.fixture
def scorers(tmp_path):
    for seed in (1, 2, 3):
        (tmp_path / f"{seed}.arpa").write_text(render(random_model(random.Random(seed), 3, 3 + seed, 0.5)))
    return [NGram.load(tmp_path / f"{seed}.arpa") for seed in (1, 2, 3)]


WEIGHTS = [0.5, 0.2, 0.3]
SENTENCES = ["w0 w5 w1", "", "zebra w2 w2"]


def test_the_mixture_is_its_formula(scorers):
    """Each scorer has its own words; what one does not know is its own <unk>."""
    mixed = Interpolated(scorers, WEIGHTS)
    for sentence in SENTENCES:
        parts = [scorer.score(sentence) for scorer in scorers]
        wanted = [math.log(sum(w * math.exp(s) for w, s in zip(WEIGHTS, column))) for column in zip(*parts)]
        assert mixed.score(sentence) == pytest.approx(wanted)
        assert mixed.score(sentence.split()) == pytest.approx(wanted)
        state, one_by_one = mixed.start(), []
        for word in [*sentence.split(), "</s>"]:
            score, (state,) = mixed.advance([state], [word])
            one_by_one.append(float(score))
        assert one_by_one == pytest.approx(wanted)


def test_many_histories_at_once(scorers):
    mixed = SCORERS["interpolated"](scorers, WEIGHTS)
    scores, states = mixed.advance([mixed.start()] * 3, ["w0", "w1", "zebra"])
    assert scores.tolist() == pytest.approx([mixed.score(word)[0] for word in ("w0", "w1", "zebra")])
    again, _ = mixed.advance(states, ["</s>"] * 3)
    assert again.tolist() == pytest.approx([mixed.score(word)[1] for word in ("w0", "w1", "zebra")])


def test_a_weight_of_one_is_the_scorer_itself(scorers):
    assert Interpolated(scorers, [0, 1, 0]).score("w0 w1") == scorers[1].score("w0 w1")


@pytest.mark.parametrize("weights", [[0.5, 0.6, 0.1], [1.5, -0.5, 0], [math.nan, 0.5, 0.5], [0.5, 0.5]])
def test_weights_are_checked(scorers, weights):
    with pytest.raises(ValueError, match=r"give (one weight for each|weights from 0 to 1 that add up to 1)"):
        Interpolated(scorers, weights)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), skew=st.floats(-2, 2))
def test_em_finds_the_optimum_of_two(seed, skew):
    chance = np.random.default_rng(seed)
    scores = [np.log(chance.random(200)), np.log(chance.random(200)) + skew]
    weight = fit(scores)[1]

    def loss(weight):
        return -mix([1 - weight, weight], scores).mean()

    best = minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    least = min(best.fun, loss(0.0), loss(1.0))
    assert loss(weight) <= least + 1e-8
    if 0.01 < best.x < 0.99:
        assert weight == pytest.approx(best.x, abs=2e-3)


def test_em_finds_the_optimum_of_three():
    chance = np.random.default_rng(1)
    scores = np.log(chance.random((3, 500)) ** [[1.0], [2.0], [0.7]])
    found = -mix(fit(scores), scores).mean()
    grid = [(a / 50, b / 50, 1 - a / 50 - b / 50) for a in range(51) for b in range(51 - a)]
    assert all(found <= -mix([max(0.0, each) for each in weights], scores).mean() + 1e-8 for weights in grid)


@pytest.mark.parametrize("worse", [0.0, 1e-3])
@pytest.mark.parametrize("apart", [1e-3, 1e-2, 1e-1])
def test_scorers_that_are_much_alike_do_not_take_for_ever(monkeypatch, apart, worse):
    """Bare EM takes up to a million."""
    monkeypatch.setattr(interpolated, "ROUNDS", 1000)
    chance = np.random.default_rng(1)
    one = np.log(chance.random(2000))
    scores = np.stack([one, one - worse + chance.normal(0, apart, 2000), one - chance.normal(0, apart, 2000)])
    gains = np.exp(scores - mix(fit(scores), scores)).mean(1)
    assert gains.max() - 1 < 1e-8


def test_em_at_the_borders():
    better = np.log(np.full(50, 0.2))
    assert fit([better, better - 1])[0] == pytest.approx(1, abs=1e-6)
    assert fit([better, better]) == [0.5, 0.5]  # nothing to choose
    impossible = np.full(50, -np.inf)
    assert fit([impossible, better])[1] == pytest.approx(1, abs=1e-6)
    assert fit([np.r_[better, -np.inf], np.r_[better - 1, -np.inf]])[0] == pytest.approx(1, abs=1e-6)
    with pytest.raises(ValueError, match="holds no word that a scorer thinks possible"):
        fit([impossible, impossible])
    assert np.isneginf(mix([0.5, 0.5], [impossible, impossible])).all()
