"""Counted frequencies equal E, sums of f / E are unbiased; every tolerance is five standard errors."""

import itertools

import pytest
import torch

from selfnorm.noise import LogUniform, Uniform, Unigram
from selfnorm.registry import pick
from selfnorm.samplers import SAMPLERS, split

UNBIASED = ["replacement", "distinct", "systematic"]
SHARED = [*UNBIASED, "rejection"]
SHAPES = [(1, 2), (1, 7), (5, 20), (20, 20), (19, 20), (50, 100), (100, 1000)]  # K, C


def noises(size):
    counts = torch.randint(0, 50, (size,), generator=torch.Generator().manual_seed(size)) ** 2  # unsorted, with zeros
    return {"log_uniform": LogUniform(size), "uniform": Uniform(size), "unigram": Unigram(counts, power=0.75)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def within(values, sigmas=5.0):
    """The mean of `values` [R, ...] is 0 within its standard error; where they never vary it is 0 exactly."""
    error = values.std(0) / len(values) ** 0.5
    mean = values.mean(0).abs()
    return bool((mean <= sigmas * error + 1e-9).all())


def frequencies_agree(ids, expected, draws, sigmas=5.0):
    """Ids [R, K], E of every word [R, C]; a count is binomial with `draws` tries: its variance is E (1 - E / draws).

    Words are joined until each pool is expected 20 times; a pool's variance is at most the sum over its words.
    """
    size = expected.shape[1]
    difference = (counts_of(ids, size) - expected).sum(0)
    total, variance = expected.sum(0), (expected * (1 - expected / draws)).sum(0).clamp(min=0)
    order = total.argsort(descending=True)
    pool = ((total[order].cumsum(0) - 1e-6) // 20).unique(return_inverse=True)[1]  # words above 20 stand alone
    add = lambda values: torch.zeros(int(pool.max()) + 1, dtype=torch.float64).index_add_(0, pool, values[order])  # noqa: E731
    return bool((add(difference).abs() <= sigmas * add(variance).sqrt() + 1e-6).all())


def counts_of(ids, size):
    return torch.zeros(len(ids), size, dtype=torch.float64).scatter_add_(
        1, ids, torch.ones_like(ids, dtype=torch.float64)
    )


def repeated(name, noise, k, times):
    """Many draws at once (as groups), with the E of every word as a target: ids [R, K], E of them, E of all [R, C]."""
    sampler = pick("sampler", SAMPLERS, name, noise=noise, k=k, groups=times)
    targets = torch.arange(noise.size).repeat(times)
    sample = sampler.draw(targets, generator(), split(len(targets), times))
    return sample.ids, sample.expected, sample.expected_target.view(times, noise.size)


CASES = [pytest.param(k, c, noise, id=f"{k}-of-{c}-{noise}") for k, c in SHAPES for noise in noises(c)]


@pytest.mark.parametrize(("k", "size", "noise_name"), CASES)
@pytest.mark.parametrize("name", UNBIASED)
def test_counted_frequency_is_the_expected_count(name, k, size, noise_name):
    times = max(1000, 400_000 // size)
    ids, _, expected = repeated(name, noises(size)[noise_name], k, times)
    assert frequencies_agree(ids, expected, k if name == "replacement" else 1)


@pytest.mark.parametrize(("k", "size", "noise_name"), CASES)
@pytest.mark.parametrize("name", UNBIASED)
def test_sums_over_samples_are_unbiased(name, k, size, noise_name):
    ids, expected, _ = repeated(name, noises(size)[noise_name], k, max(1000, 400_000 // size))
    ranks = torch.arange(size, dtype=torch.float64)
    smooth, rough = 1 / (ranks + 3), torch.rand(size, generator=generator(7), dtype=torch.float64) ** 4
    for values in (smooth, rough, torch.ones(size, dtype=torch.float64)):
        assert within((values[ids] / expected).sum(1) - values.sum())


@pytest.mark.parametrize("name", SHARED)
def test_groups_draw_each_for_themselves(name):
    sampler = pick("sampler", SAMPLERS, name, noise=LogUniform(1000), k=40, groups=4)
    targets = torch.arange(10)
    sample = sampler.draw(targets, generator())
    assert sample.ids.shape == sample.expected.shape == (4, 40)
    assert sample.bounds == (0, 2, 5, 7, 10)
    assert all((sample.ids[a] != sample.ids[b]).any() for a, b in itertools.combinations(range(4), 2))
    assert sampler.draw(targets, generator(), (0, 0, 9, 9, 10)).bounds == (0, 0, 9, 9, 10)
    with pytest.raises(ValueError, match="do not cut 10 positions into 4 groups"):
        sampler.draw(targets, generator(), (0, 5, 10))


@pytest.mark.parametrize("name", SHARED)
def test_same_seed_same_draw(name):
    sampler = pick("sampler", SAMPLERS, name, noise=LogUniform(500), k=60)
    first, second = (sampler.draw(torch.arange(8), generator(3)) for _ in range(2))
    assert torch.equal(first.ids, second.ids)
    assert torch.equal(first.expected, second.expected)
    assert first.expected.dtype == torch.float64


@pytest.mark.parametrize("name", ["distinct", "systematic", "rejection"])
@pytest.mark.parametrize("noise_name", ["log_uniform", "uniform", "unigram"])
@pytest.mark.parametrize(("k", "size"), [(1, 2), (2, 2), (99, 100), (100, 100), (8000, 30_000), (500, 200_000)])
def test_exactly_k_distinct_ids(name, noise_name, k, size):
    sampler = pick("sampler", SAMPLERS, name, noise=noises(size)[noise_name], k=k, groups=3)
    for seed in range(3):
        sample = sampler.draw(torch.tensor([0, size - 1, 1]), generator(seed))
        assert all(len(set(row.tolist())) == k for row in sample.ids)
        assert 0 <= int(sample.ids.min()) <= int(sample.ids.max()) < size
        assert bool(((sample.expected > 0) & (sample.expected <= 1)).all())
        if k == size:
            assert bool((sample.expected == 1).all())
            assert bool((sample.expected_target == 1).all())


@pytest.mark.parametrize("noise_name", ["log_uniform", "uniform", "unigram"])
@pytest.mark.parametrize(("k", "size"), [(1, 2), (5, 20), (50, 100), (8000, 30_000), (8000, 200_000)])
def test_systematic_inclusion_is_proportional_and_sums_to_k(noise_name, k, size):
    noise = noises(size)[noise_name]
    sampler = pick("sampler", SAMPLERS, "systematic", noise=noise, k=k)
    every = torch.arange(size)
    pi, prob = sampler.expected(every), noise.prob(every)
    assert float(pi.sum()) == pytest.approx(k, rel=1e-9)
    free = pi < 1
    assert float((pi[free] / prob[free]).std()) <= 1e-6 * float(pi[free].sum() / prob[free].sum())
    assert bool((prob[~free].min() >= prob[free].max()) if (~free).any() and free.any() else True)


def test_systematic_has_the_smallest_variance_on_smooth_sums():
    size, k = 2000, 100
    values = 1 / (torch.arange(size, dtype=torch.float64) + 5)
    spread = {}
    for name in SHARED:
        ids, expected, _ = repeated(name, LogUniform(size), k, 400)
        spread[name] = float((values[ids] / expected).sum(1).std())
    assert min(spread, key=spread.__getitem__) == "systematic"
    assert spread["systematic"] < 0.2 * spread["distinct"]


def test_head_words_of_systematic_carry_no_variance():
    ids, expected, _ = repeated("systematic", LogUniform(1000), 300, 50)
    sure = expected == 1
    assert int(sure.sum(1).min()) == int(sure.sum(1).max()) > 10
    assert all(set(range(int(sure.sum(1)[0]))) <= set(row.tolist()) for row in ids)


def test_rejection_has_the_bias_it_states():
    for k, size, times, low, high in [(50, 100, 20_000, 1.012, 1.020), (500, 1000, 2000, 0.995, 1.005)]:
        _, expected, _ = repeated("rejection", LogUniform(size), k, times)
        assert low < float((1 / expected).sum(1).mean()) / size < high
    ids, _, of_all = repeated("rejection", LogUniform(100), 50, 20_000)
    counted, stated = counts_of(ids, 100).mean(0).view(10, 10).sum(1), of_all.mean(0).view(10, 10).sum(1)
    assert 0.005 < float((counted / stated - 1).abs().max()) < 0.03


def test_rejection_keeps_the_first_distinct_in_order():
    sampler = pick("sampler", SAMPLERS, "rejection", noise=Uniform(5), k=3)
    script = torch.tensor([[4, 4, 1, 4, 1, 0, 2] + [3] * 200])
    ids, tries, found = sampler._first_distinct(script)
    assert ids.tolist() == [[4, 1, 0]]
    assert tries.tolist() == [6]
    assert found.tolist() == [5]


def test_rejection_draws_again_when_it_falls_short(monkeypatch):
    from selfnorm.samplers import rejection

    monkeypatch.setattr(rejection, "LONGEST", 40)
    sampler = rejection.Rejection(LogUniform(40), k=30)
    assert sampler.overdraw == 40
    assert len(set(sampler.draw(torch.arange(3), generator()).ids[0].tolist())) == 30


@pytest.mark.parametrize("noise_name", ["log_uniform", "uniform", "unigram"])
@pytest.mark.parametrize("sharing", ["position", "batch"])
@pytest.mark.parametrize(("k", "size"), [(1, 2), (3, 6), (8, 40)])
def test_excluding_never_draws_the_target_and_both_sharings_agree(noise_name, sharing, k, size):
    """Every position, whatever the sharing: K ids, none its target, frequencies as the shifted distribution says."""
    noise, times = noises(size)[noise_name], 4000
    for target in sorted({0, 1, size // 2, size - 1}):
        groups = times if sharing == "batch" else 1
        sampler = pick("sampler", SAMPLERS, "excluding", noise=noise, k=k, groups=groups, sharing=sharing)
        targets = torch.full((times,), target)
        sample = sampler.draw(targets, generator(target), split(times, groups) if sharing == "batch" else None)
        absent = (
            torch.cat([sample.absent(targets[:1], row, False) for row in range(times)]) if sharing == "batch" else None
        )
        kept = torch.ones_like(sample.ids, dtype=torch.bool) if absent is None else ~absent
        assert bool((kept.sum(1) == k).all())
        ids = sample.ids[kept].view(times, k)
        assert not bool((ids == target).any())
        exact = distribution_without(noise, target)
        assert frequencies_agree(ids, (k * exact).expand(times, -1), k)
        left = 1 if sample.left is None else sample.left[:, None]
        here = (sample.expected[kept].view(times, k)) / left
        torch.testing.assert_close(here, k * exact[ids])
        assert bool((sample.expected_target == 0).all())


def distribution_without(noise, target):
    words = torch.arange(noise.size)
    if isinstance(noise, Unigram):
        prob = noise.prob(words).clone()
        prob[target] = 0
        return prob / prob.sum()
    shorter = type(noise)(noise.size - 1).prob(words[:-1])  # the paper: C - 1 labels, those from the target on move up
    return torch.cat([shorter[:target], torch.zeros(1, dtype=torch.float64), shorter[target:]])


def test_excluding_by_batch_touches_two_rows_for_each_draw():
    sampler = pick("sampler", SAMPLERS, "excluding", noise=LogUniform(1000), k=10)
    sample = sampler.draw(torch.arange(500), generator())
    assert sample.ids.shape == (1, 20)
    assert torch.equal(sample.ids[:, 10:], sample.ids[:, :10] + 1)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("distinct", {"k": 11}, "11 distinct ids cannot be drawn from 10 words"),
        ("systematic", {"k": 11}, "choose k <= 10"),
        ("rejection", {"k": 11}, "distinct"),
        ("replacement", {"k": 0}, "k >= 1"),
        ("replacement", {"k": 3, "groups": 0}, "groups >= 1"),
        ("excluding", {"k": 3, "groups": 2, "sharing": "position"}, "takes no groups"),
        ("excluding", {"k": 3, "sharing": "word"}, "'position' or 'batch'"),
        ("sistematic", {"k": 3}, "did you mean 'systematic'"),
        ("systematic", {"k": 3, "group": 2}, "did you mean 'groups'"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(name, options, message):
    with pytest.raises(ValueError, match=message):
        pick("sampler", SAMPLERS, name, noise=LogUniform(10), **options)


def test_more_draws_than_words_are_fine_with_replacement():
    ids, expected, _ = repeated("replacement", LogUniform(3), 50, 10)
    assert ids.shape == (10, 50)
    torch.testing.assert_close(expected, 50 * LogUniform(3).prob(ids))


def test_one_word_cannot_be_excluded():
    with pytest.raises(ValueError, match="at least 2 words"):
        pick("sampler", SAMPLERS, "excluding", noise=LogUniform(1), k=1)


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_no_positions(name):
    sample = pick("sampler", SAMPLERS, name, noise=LogUniform(10), k=3).draw(
        torch.empty(0, dtype=torch.long), generator()
    )
    assert sample.expected_target.shape == (0,)


def test_uniform_numbers_are_float64():
    sampler = pick("sampler", SAMPLERS, "replacement", noise=LogUniform(10), k=100)
    u = sampler.uniform(torch.arange(3), generator(), 100)
    assert bool(((u * 2**24) % 1 != 0).any())


@pytest.mark.parametrize("name", ["rejection", "distinct"])
def test_targets_take_the_e_of_their_own_group(name):
    """A target that was drawn has, in its group, the E of the drawn id (both condition on the same draws)."""
    sampler = pick("sampler", SAMPLERS, name, noise=LogUniform(60), k=20, groups=5)
    targets = torch.arange(60).repeat(5)
    sample = sampler.draw(targets, generator(), split(300, 5))
    of_all = sample.expected_target.view(5, 60)
    for group in range(5):
        torch.testing.assert_close(of_all[group][sample.ids[group]], sample.expected[group])


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("size", "k"), [(50, 50), (100_000, 8000)])
def test_unless_told_otherwise_there_are_8000_samples_or_all_words(name, size, k):
    """So a recipe that says nothing of its sampler trains with any vocabulary."""
    sampler = SAMPLERS[name](LogUniform(size))
    assert sampler.k == k
    assert sampler.draw(torch.tensor([3])).ids.shape[-1] in (k, 2 * k)
