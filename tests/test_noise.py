import math
import pickle

import pytest
import torch

from selfnorm.noise import LogUniform, Uniform, Unigram

COUNTS = torch.tensor([3, 0, 50, 7, 7, 1, 900])
ALL = [
    LogUniform(7),
    Uniform(7),
    Unigram(COUNTS),
    Unigram(COUNTS, power=0.75),
    Unigram(COUNTS, power=-0.5),
    LogUniform(1),
]


@pytest.mark.parametrize("noise", ALL, ids=lambda noise: type(noise).__name__)
def test_members_tell_one_story(noise):
    ids = torch.arange(noise.size)
    ranked = noise.ranked(ids)
    falling = noise.prob(ranked)
    torch.testing.assert_close(noise.rank(ranked), ids)
    assert (falling[1:] <= falling[:-1] + 1e-15).all()
    assert float(falling.sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(noise.cumulative(ids), falling.cumsum(0), atol=1e-12, rtol=0)
    inside = noise.cumulative(ids) - falling / 2  # the middle of each id's stretch
    torch.testing.assert_close(noise.inverse(inside), ranked)


def test_log_uniform_is_its_formula():
    noise = LogUniform(1000)
    for word in (0, 1, 37, 999):
        assert float(noise.prob(torch.tensor(word))) == pytest.approx(
            math.log((word + 2) / (word + 1)) / math.log(1001), rel=1e-12
        )


@pytest.mark.parametrize("size", [2, 30_000, 200_000, 1_000_000])
def test_log_uniform_inverts_at_both_ends_of_every_stretch(size):
    """In float32 this fails for a fifth of a 200k vocabulary."""
    noise = LogUniform(size)
    ids = torch.arange(size)
    upper, width = noise.cumulative(ids), noise.prob(ids)
    torch.testing.assert_close(noise.inverse(upper - 1e-6 * width), ids)
    torch.testing.assert_close(noise.inverse(upper - (1 - 1e-6) * width), ids)


def test_unigram_inverts_at_both_ends_of_every_stretch():
    size = 200_000
    noise = Unigram(1e7 / torch.arange(1, size + 1))
    ids = torch.arange(size)
    upper, width = noise.cumulative(ids), noise.prob(noise.ranked(ids))
    torch.testing.assert_close(noise.inverse(upper - 1e-3 * width), noise.ranked(ids))
    torch.testing.assert_close(noise.inverse(upper - (1 - 1e-3) * width), noise.ranked(ids))


def test_unigram_is_smoothed_count_to_the_power():
    expected = (COUNTS.double() + 0.5) ** 0.75
    noise = Unigram(COUNTS, power=0.75, smoothing=0.5)
    torch.testing.assert_close(noise.prob(torch.arange(7)), expected / expected.sum())


def test_a_word_that_would_never_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"word 1 would never be drawn .* smoothing above 0"):
        Unigram(COUNTS, smoothing=0)


def test_a_word_whose_share_is_lost_in_rounding_is_refused():
    with pytest.raises(ValueError, match=r"word \d would never be drawn: .* is lost in rounding; lower the power 2"):
        Unigram(torch.tensor([1e9, 5e8, *[1.0] * 8]), power=2.0)
    assert Unigram(torch.tensor([1e9, 5e8, *[1.0] * 8])).size == 10


def test_unigram_takes_its_tables_of_the_host_along():
    noise = Unigram(COUNTS)
    noise.prob(torch.arange(3, device="meta"))
    again = pickle.loads(pickle.dumps(noise))
    assert list(again._tables) == [torch.device("cpu")]
    assert torch.equal(again.prob(torch.arange(3)), noise.prob(torch.arange(3)))


@pytest.mark.parametrize("counts", [torch.tensor([1.0, math.nan]), torch.tensor([1, -2]), torch.ones(2, 2)])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(ValueError, match=r"finite counts >= 0, and word 1 has|one count for each word"):
        Unigram(counts)


def test_an_empty_vocabulary_is_refused():
    with pytest.raises(ValueError, match="at least one word"):
        LogUniform(0)
