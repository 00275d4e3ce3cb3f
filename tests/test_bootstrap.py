import time

import numpy as np
import pytest
from scipy import stats

from selfnorm.bootstrap import bootstrap, compare
from selfnorm.wer import Errors


def systems(generator, utterances, rates, spread=0.0):
    """Errors of as many systems as there are rates, on the same utterances, some of which are hard for all."""
    words = generator.integers(1, 25, utterances)
    hard = 1 + spread * generator.uniform(-1, 1, utterances)
    return [
        [Errors(int(wrong), 0, 0, int(n), 1) for wrong, n in zip(generator.binomial(words, rate * hard), words)]
        for rate in rates
    ]


def test_as_scipy_has_it():
    (errors,) = systems(np.random.default_rng(1), 80, [0.3])
    wrong, words = np.array([[each.total, each.words] for each in errors], float).T
    theirs = stats.bootstrap(
        (wrong, words),
        lambda wrong, words, axis: 100 * wrong.sum(axis) / words.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    ours = bootstrap(errors, rounds=20_000)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.12)


def test_an_interval_holds_the_true_rate_as_often_as_it_says():
    generator = np.random.default_rng(3)
    trials = 400
    held = 0
    for trial in range(trials):
        (errors,) = systems(generator, 120, [0.25], spread=0.8)
        interval = bootstrap(errors, rounds=500, seed=trial, level=0.9)
        held += interval.low <= 25 <= interval.high
    assert abs(held / trials - 0.9) < 3 * (0.9 * 0.1 / trials) ** 0.5 + 0.01  # a percentile interval is a little narrow


def test_p_is_uniform_where_two_systems_are_equally_good():
    generator = np.random.default_rng(4)
    found = [compare(*systems(generator, 120, [0.25, 0.25], 0.8), rounds=500, seed=trial).p for trial in range(300)]
    assert stats.kstest(found, "uniform").statistic < 0.1  # 0.094 at p = 0.01, and p has steps
    assert np.mean(np.array(found) < 0.05) < 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5


def test_a_better_system_is_found_out():
    first, second = systems(np.random.default_rng(5), 300, [0.2, 0.3], 0.5)
    found = compare(first, second)
    wanted = 100 * (sum(first, Errors()).rate - sum(second, Errors()).rate)
    assert found.difference == pytest.approx(wanted)
    assert found.interval.low < found.difference < found.interval.high < 0
    assert found.p == pytest.approx(2 / 10_001)
    back = compare(second, first)
    assert back.difference == -found.difference
    assert back.p == found.p


def test_what_both_get_wrong_does_not_blur_the_difference():
    first, _ = systems(np.random.default_rng(6), 300, [0.3, 0.3], 0.9)
    second = [each + Errors(substitutions=int(not number % 10)) for number, each in enumerate(first)]
    alone = bootstrap(first)
    paired = compare(first, second)
    assert paired.p < 0.01
    assert paired.interval.high - paired.interval.low < (alone.high - alone.low) / 3


def test_a_system_against_itself():
    (errors,) = systems(np.random.default_rng(7), 30, [0.3])
    found = compare(errors, errors)
    assert (found.difference, found.interval.low, found.interval.high, found.p) == (0, 0, 0, 1)


def test_speakers_differ_more_than_their_utterances():
    generator = np.random.default_rng(8)
    parts = [systems(generator, 40, [rate])[0] for rate in (0.05, 0.2, 0.4, 0.1, 0.3, 0.25)]
    errors = [each for part in parts for each in part]
    speakers = [number for number, part in enumerate(parts) for _ in part]
    by_utterance, by_speaker = bootstrap(errors), bootstrap(errors, groups=speakers)
    assert by_speaker.high - by_speaker.low > 2 * (by_utterance.high - by_utterance.low)
    sums = [sum(part, Errors()) for part in parts]
    assert by_speaker == bootstrap(sums)
    worse = [each + Errors(substitutions=number % 2) for number, each in enumerate(errors)]
    assert compare(errors, worse, groups=speakers).difference == compare(errors, worse).difference


def test_chance_is_an_argument_and_order_does_not_matter():
    (errors,) = systems(np.random.default_rng(9), 50, [0.3])
    assert bootstrap(errors, seed=1) == bootstrap(errors[::-1], seed=1) != bootstrap(errors, seed=2)


def test_many_utterances_take_as_long_as_few():
    (errors,) = systems(np.random.default_rng(10), 50_000, [0.2])
    begin = time.process_time()
    interval = bootstrap(errors)
    assert time.process_time() - begin < 5
    assert interval.high - interval.low < 0.5


def test_kinds_of_utterances_are_drawn_as_utterances_are():
    """Four times each kind takes the other way; the spread of the mean is half as large."""
    few = [Errors(number % 4, 0, 0, 5 + number, 1) for number in range(40)]
    one, four = bootstrap(few), bootstrap(few * 4)
    assert (four.high - four.low) / (one.high - one.low) == pytest.approx(0.5, abs=0.03)
    assert (four.high + four.low) / 2 == pytest.approx(100 * sum(few, Errors()).rate, abs=0.2)


def test_references_that_are_empty_here_and_there():
    errors = [Errors(insertions=1, utterances=1), Errors(words=2, utterances=1), Errors(1, 0, 0, 2, 1)]
    assert bootstrap(errors).low == 0


def wrong_words():
    return compare([Errors(words=1)], [Errors(words=2)])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: bootstrap([Errors(insertions=1)]), "the references have no words"),
        (lambda: bootstrap([]), "the references have no words"),
        (lambda: bootstrap([Errors(words=1)], rounds=0), "0 rounds"),
        (lambda: bootstrap([Errors(words=1)], groups=["a", "b"]), "1 utterances but 2 groups"),
        (lambda: compare([Errors(words=1)], []), "1 utterances against 0"),
        (wrong_words, "utterance 0 has 1 words in one reference and 2 in the other"),
    ],
)
def test_mistakes_are_sentences(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
