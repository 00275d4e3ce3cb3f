"""The hypothesis of least risk against its definition."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from small import drawn, lattices, neural, paths

from selfnorm.lattices.lattice import Scales
from selfnorm.lattices.nbest import Hypothesis, NBest
from selfnorm.lattices.paths import words_of
from selfnorm.rescoring import NEURAL, Rescorer, Search, Setting
from selfnorm.rescoring.results import decide
from selfnorm.rescoring.risk import least_risk
from selfnorm.wer import count

SCORER = neural()


@settings(max_examples=40)
@given(lattice=lattices(most_nodes=5, most_arcs=8))
def test_it_is_the_least_of_all(lattice):
    setting = Setting(weight=0.5)
    rescorer = Rescorer({NEURAL: SCORER}, setting, search=Search(None, None, float("inf")))
    (rescored,) = rescorer.rescore([lattice])
    totals, top = rescored.totals(setting), {}
    for arcs in paths(rescored.lattice):
        said = words_of(rescored.lattice, arcs)
        top[said] = max(top.get(said, -np.inf), totals[arcs].sum())
    scaled = np.array(list(top.values())) / max(lattice.scales.lm, 1e-3)
    posterior = np.exp(scaled - np.logaddexp.reduce(scaled))
    risks = {said: sum(p * count(other, said).total for p, other in zip(posterior, top)) for said in top}
    found = words_of(rescored.lattice, least_risk(rescored, setting, most=10_000))
    assert risks[found] == pytest.approx(min(risks.values()))
    assert decide(rescored, setting, risk=True).words == words_of(rescored.lattice, least_risk(rescored, setting))


def test_agreement_wins_over_the_single_best():
    """The best path is alone with its words; three others share theirs but for one."""
    texts = ["x y z", "a b c", "a b d", "a b e"]
    item = NBest("u", tuple(Hypothesis(tuple(t.split()), s) for t, s in zip(texts, (-1.0, -1.1, -1.1, -1.2))))
    (rescored,) = Rescorer({}).rescore([item])
    assert decide(rescored, Setting()).words == ("x", "y", "z")
    assert decide(rescored, Setting(), risk=True).words == ("a", "b", "c")


@pytest.mark.parametrize("number", range(2, 51))
def test_of_equal_risks_the_first_is_chosen(number):
    """Whatever their sums are rounded to: as many hypotheses as a matrix product takes at once, and others."""
    item = NBest("u", tuple(Hypothesis(("a", "b", f"w{n}"), -1.0) for n in range(number)))
    (rescored,) = Rescorer({}).rescore([item])
    assert decide(rescored, Setting(), risk=True).words == decide(rescored, Setting()).words == ("a", "b", "w0")


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_header_without_a_scale_is_no_reason_to_fail(scale):
    (rescored,) = Rescorer({}).rescore([replace(drawn(1), scales=Scales(lm=scale))])
    assert least_risk(rescored, Setting())
