"""The language with a known truth is what it says, and models trained on it come close to it."""

import pytest
import torch

from selfnorm.demo.truth import ZipfMarkov, compare


@pytest.fixture(scope="module")
def language():
    return ZipfMarkov(size=60, orders=4, seed=3)


@pytest.fixture(scope="module")
def rows(language):
    return {row.criterion: row for row in compare(language, k=20, steps=300)}


def transitions(language):
    return language.posterior(torch.arange(language.size))  # [C, C]


def test_posterior_sums_to_one(language):
    torch.testing.assert_close(transitions(language).sum(1), torch.ones(60, dtype=torch.float64))


def test_unigram_is_stationary(language):
    torch.testing.assert_close(language.unigram @ transitions(language), language.unigram, rtol=1e-12, atol=0)


def test_ids_are_sorted_by_falling_frequency(language):
    assert (language.unigram.diff() <= 0).all()


def test_perplexity_is_that_of_the_truth(language):
    posterior = transitions(language)
    entropy = -(language.unigram[:, None] * posterior * posterior.log()).sum()
    assert language.perplexity == pytest.approx(float(entropy.exp()))


@pytest.mark.parametrize("history", [0, 1, 17, 59])
def test_drawn_frequencies_are_the_posterior(language, history):
    number = 200_000
    drawn = language.after(torch.full((number,), history), torch.Generator().manual_seed(history))
    frequency = drawn.bincount(minlength=60) / number
    posterior = language.posterior(torch.tensor([history]))[0]
    assert ((frequency - posterior).abs() <= 5 * (posterior * (1 - posterior) / number).sqrt()).all()


def test_pairs_come_as_often_as_in_an_endless_text(language):
    """As unigram times posterior says."""
    number = 100_000
    histories, words = language.pairs(number, torch.Generator().manual_seed(5))
    pairs = (histories * 60 + words).bincount(minlength=3600) / number
    truth = (language.unigram[:, None] * transitions(language)).flatten()
    assert ((pairs - truth).abs() <= 5 * (truth * (1 - truth) / number).sqrt()).all()


def test_one_seed_gives_the_same_pairs(language):
    one, two = (torch.stack(language.pairs(9, torch.Generator().manual_seed(7))) for _ in range(2))
    assert torch.equal(one, two)


def test_trained_models_are_nearer_to_the_truth_than_the_unigram(language, rows):
    posterior = transitions(language)
    unigram = float((language.unigram[:, None] * posterior * (posterior / language.unigram).log()).sum())
    for row in rows.values():
        assert 0 < row.kl < unigram / 2, row.criterion


@pytest.mark.parametrize("name", ["mode3", "nce", "bce", "ce_vr"])
def test_self_normalized(rows, name):
    assert abs(rows[name].log_z_mean) < 0.1


def test_as_is_differs_from_normalized_by_the_mean_of_log_z(rows):
    for row in rows.values():
        shift = 0 if row.criterion in ("ce", "sampled_softmax") else row.log_z_mean
        assert row.kl_as_is == pytest.approx(row.kl - shift, abs=1e-9)
