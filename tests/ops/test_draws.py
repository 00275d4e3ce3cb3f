"""The draw in one kernel is the sampler's own."""

import pytest
import torch

from selfnorm.noise import LogUniform
from selfnorm.samplers.systematic import SURE, Systematic

draws = pytest.importorskip("selfnorm.ops.draws", reason="Triton is not installed")
PLACE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("k", "size", "groups"), [(8, 40, 1), (100, 1000, 3), (1000, 30_000, 1), (60, 70, 2)])
def test_one_kernel_draws_what_the_sampler_draws(k, size, groups):
    sampler = Systematic(LogUniform(size), k, groups)
    targets = torch.arange(0, size, max(1, size // 500), device=PLACE)
    uniform = torch.rand(groups, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).to(PLACE)
    numbers = torch.tensor([sampler.before, sampler.rate, sampler.noise.log_total], dtype=torch.float64, device=PLACE)
    ids, expected, of_targets = draws.systematic(uniform, targets, numbers, sampler.sure, k, size, SURE)
    points = uniform.cpu() + torch.arange(k) - sampler.sure
    truth = sampler.noise.inverse(sampler.before + points / sampler.rate)
    truth[:, : sampler.sure] = torch.arange(sampler.sure)
    assert torch.equal(ids.cpu(), truth)
    assert (ids.diff() > 0).all()
    torch.testing.assert_close(expected.cpu(), sampler.expected(ids.cpu()), rtol=1e-9, atol=0)
    torch.testing.assert_close(of_targets.cpu(), sampler.expected(targets.cpu()), rtol=1e-9, atol=0)
