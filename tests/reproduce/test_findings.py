"""An expectation speaks where its rows are there, and says no where they say so."""

import pytest

from selfnorm.reproduce.findings import DRAWN, GROUPED, findings
from selfnorm.reproduce.plan import SCALES, rows

SMALL = SCALES["small"]
LABELS = {(row.item, row.label): row for row in rows("all", SMALL) if row.seed == 1}


def row(item, label, perplexity, mean=0.01, std=0.1, seed=1, **more):
    planned = LABELS[item, label]
    found = {"item": item, "label": label, "criterion": planned.criterion, "k": planned.k, "groups": planned.groups}
    found |= {"run": planned.key, "perplexity": perplexity, "log_z_mean": mean, "log_z_std": std, "seed": seed}
    return found | more


def wer(rate, low, high):
    return {"lists": {"all": {"wer": rate, "interval": [low, high]}}}


def table2(mode1=90.0, few=55.0, many=53.0):
    names = ("NCE", "Mode2", "Mode3")
    return [
        *(row("table2", f"{name}, K = 100", few) for name in names),
        *(row("table2", f"{name}, K = 8000", many) for name in names),
        row("table2", "Mode1, K = 100", mode1),
        row("table2", "Mode1, K = 8000", many),
    ]


def said(found, beginning):
    return [each.holds for each in findings(found) if each.expected.startswith(beginning)]


def test_nothing_is_said_without_rows():
    assert list(findings([])) == []
    assert said(table2()[:3], "Mode1") == []


@pytest.mark.parametrize(("mode1", "holds"), [(90.0, True), (56.0, False)])
def test_mode1_with_few_samples(mode1, holds):
    assert said(table2(mode1), "Mode1 at K = 100") == [holds]


@pytest.mark.parametrize(("few", "holds"), [(55.0, True), (52.0, False)])
def test_more_samples(few, holds):
    assert said(table2(few=few), "More samples") == [holds]


def test_criteria_that_are_not_close():
    assert said(table2(), "NCE, Mode2 and Mode3") == [True, True]
    assert said([*table2()[1:], row("table2", "NCE, K = 100", 70.0)], "NCE, Mode2 and Mode3") == [False, True]


@pytest.mark.parametrize(("last", "holds"), [(90.0, True), (40.0, False)])
def test_a_curve_that_flattens(last, holds):
    found = [row("figure1", f"K = {k}, G = 1", value) for k, value in ((10, 150.0), (300, 100.0), (8000, last))]
    assert said(found, "What more samples bring") == [holds]


def test_cross_entropy_is_the_measure_and_seeds_count_alike():
    found = [row("table3", "CE", 50.0, wer=wer(10.0, 9.0, 11.0)), row("table3", "Mode3", 50.4, wer=wer(10.5, 9, 12))]
    assert said(found, "Mode3 at K = 8000 within 1 %") == [True]
    assert said(found, "WER of Mode3") == [True]
    found.append(row("table3", "Mode3", 52.0, seed=2, wer=wer(10.5, 9, 12)))  # 51.2 on average
    assert said(found, "Mode3 at K = 8000 within 1 %") == [False]
    found.append(row("table3", "Mode3", 50.0, seed=3, wer=wer(14.0, 12, 15)))  # 11.7 on average
    assert said(found, "WER of Mode3") == [False]
    found = [row("table4", "CE", 50.0, wer=wer(10.0, 9.0, 11.0)), row("table4", "Mode3", 50.4, wer=wer(12, 9, 13))]
    assert said(found, "WER of Mode3") == [False]


@pytest.mark.parametrize(("best", "holds"), [(80.0, True), (80.1, False)])
def test_fewer_samples_with_groups(best, holds):
    entropy, grouped = row("beyond", "CE", 80.0), row("beyond", GROUPED, best)
    assert said([entropy, grouped], "Mode3 at K = 1000") == [holds]
    assert said([entropy, grouped, row("beyond", DRAWN, 79.0)], "Mode3 at K = 1000") == [True, holds]


@pytest.mark.parametrize(("grouped", "holds"), [((80.3, 79.8), True), ((80.1, 80.4), None), ((80.3, 80.4), False)])
def test_seeds_that_differ_by_more_decide_nothing(grouped, holds):
    found = [row("beyond", "CE", value, seed=seed) for seed, value in enumerate((80.0, 80.2), 1)]
    found += [row("beyond", GROUPED, value, seed=seed) for seed, value in enumerate(grouped, 1)]
    assert said(found, "Mode3 at K = 1000") == [holds]


def test_log_z():
    few, many = row("table2", "NCE, K = 100", 60.0, mean=0.5), row("table2", "NCE, K = 8000", 55.0)
    assert said([few, many, row("table3", "CE", 50.0, mean=9.0)], "Self-normalized") == [True]
    (told,) = findings([few, many, row("table3", "BCE", 52.0, mean=-0.03)])
    assert (told.found, told.holds) == (
        "1 of 2 trainings; the largest are 0.030 and 0.100; the std of BCE, which draws nothing, is 0.100",
        False,
    )
    assert said([row("table3", "BCE", 52.0, std=0.2)], "Self-normalized") == [False]
    assert said([row("beyond", "sampled softmax, K = 8000", 60.0, mean=-4.0)], "Sampled softmax") == [True]
    assert said([row("beyond", "sampled softmax, K = 8000", 60.0)], "Sampled softmax") == [False]


@pytest.mark.parametrize(("grouped", "holds"), [(70.0, True), (95.0, False)])
def test_large_batches(grouped, holds):
    names = ("CE", "Mode3, K = 100, systematic", "Mode3, K = 100, systematic, G = 16")
    found = [row("beyond", f"{name}, large batch", value) for name, value in zip(names, (65.0, 90.0, grouped))]
    assert said(found, "Large batches need groups") == [holds]
