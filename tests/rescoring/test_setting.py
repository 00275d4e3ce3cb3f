"""How scores are put together: unknown words, and numbers that are none."""

import math

import numpy as np
import pytest
from small import neural

from selfnorm.lattices.lattice import Scales, assemble
from selfnorm.lattices.paths import best, words_of
from selfnorm.rescoring import NEURAL, Rescorer, Setting
from selfnorm.rescoring.setting import SHARED


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"lm_scale": math.nan}, "the lm scale is nan; give a number that is finite"),
        ({"word_penalty": math.inf}, "the word penalty is inf; give a number that is finite"),
        ({"unknown_penalty": -math.inf}, "the unknown penalty is -inf"),
        ({"weight": 1.5}, "the weight is 1.5; give a number from 0 to 1"),
        ({"ngram_weight": -0.1}, "the ngram weight is -0.1; give a number from 0 to 1"),
        ({"weight": math.nan}, "the weight is nan"),
        ({"weight": None}, "the weight is None, which is no number"),
        ({"lm_scale": "9"}, "the lm scale is '9', which is no number"),
    ],
)
def test_numbers_that_are_none(fields, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        Setting(**fields)


@pytest.fixture
def known_or_not():
    """`w0` or `new`, alike in everything else; the lattice likes `new` by 1."""
    return assemble(
        "u",
        nodes=2,
        start=0,
        end=1,
        sources=[0, 0],
        targets=[1, 1],
        words=["w0", "new"],
        acoustic=[0.0, 0.0],
        lm=[-3.0, -2.0],
        scales=Scales(lm=2.0, penalty=0.5),
    )


@pytest.mark.parametrize("algorithm", ["push_forward", "path_cover", "exact"])
def test_policies_for_unknown_words(known_or_not, algorithm):
    scorer = neural()
    unknown, end = scorer.score(["new"])

    def score(penalty=0.0, keep=False):
        setting = Setting(unknown_penalty=penalty)
        rescorer = Rescorer({NEURAL: scorer}, setting, algorithm, keep=keep)
        (rescored,) = rescorer.rescore([known_or_not])
        totals = rescored.totals(setting)
        found = best(rescored.lattice, np.where(np.isin(rescored.lattice.words, "w0"), totals - 1e9, totals))
        return found.score if words_of(rescored.lattice, found.arcs) == ("new",) else None

    wanted = {0.0: unknown, -5.0: unknown - 5, SHARED: unknown - math.log(10_000)}
    for penalty, new in wanted.items():
        found = score(penalty)
        if algorithm != "exact" or found is not None:  # which gives its best path alone
            assert found == pytest.approx(2 * (new + end) + 0.5, abs=1e-4)
    kept = score(keep=True)
    if algorithm != "exact" or kept is not None:
        assert kept == pytest.approx(2 * (-2.0 + end) + 0.5, abs=1e-4)


def test_weight_1_leaves_nothing_of_the_lattice(known_or_not):
    (rescored,) = Rescorer({NEURAL: neural()}, Setting()).rescore([known_or_not])
    assert rescored.lm(Setting()) == pytest.approx(rescored.lm(Setting(unknown_penalty=0.0)) + SHARED * _new(rescored))
    half = rescored.lm(Setting(weight=0.5))
    assert half == pytest.approx((rescored.lm(Setting()) + rescored.lattice.lm) / 2)


def _new(rescored):
    return np.isin(rescored.lattice.words, "new")
