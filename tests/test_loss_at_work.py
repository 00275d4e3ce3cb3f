"""The loss as others put it to use: compiled, checkpointed, on odd tables, with options that do not go together."""

import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from selfnorm import LogUniform, Output, SampledLoss, Uniform, Unigram, output
from selfnorm.criteria import CRITERIA
from selfnorm.functional import sampled_loss
from selfnorm.ops import take
from selfnorm.optim import RowSGD
from selfnorm.samplers import SAMPLERS

C, H, N, K = 50, 8, 24, 10
COMPILES = pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile needs g++")


def case(dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    hidden, weight = (torch.randn(shape, generator=g, dtype=dtype, requires_grad=True) for shape in ((N, H), (C, H)))
    return hidden, weight, torch.randint(0, C, (N,), generator=g)


@COMPILES
@pytest.mark.parametrize("wrong", [-1, C])
def test_a_target_out_of_range_is_refused_when_compiled(wrong):
    hidden, weight, target = case()
    target[3] = wrong
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match=r"out of range|out of bounds"):
        torch.compile(SampledLoss(C, k=K))(hidden, weight, target)


@COMPILES
def test_rare_words_are_drawn_when_compiled():
    """Of the last tenth of 10 million words; with 24 random bits nine of ten would never be drawn."""
    size, k = 10_000_000, 2_000_000
    sampler = SAMPLERS["replacement"](LogUniform(size), k=k)
    draw = torch.compile(lambda targets: sampler.draw(targets).ids)
    torch.manual_seed(1)
    seen = torch.zeros(size, dtype=torch.bool)
    rounds = 20
    for _ in range(rounds):
        seen[draw(torch.zeros(1, dtype=torch.long)).reshape(-1)] = True
    tail = torch.arange(size - size // 10, size)
    never = torch.exp(-rounds * k * LogUniform(size).prob(tail)).mean()
    assert abs(float((~seen[tail]).double().mean()) - float(never)) < 0.005


@COMPILES
@pytest.mark.parametrize("name", ["systematic", "replacement", "distinct"])
def test_compiled_as_one_graph_for_any_batch(name):
    torch._dynamo.reset()
    _, weight, _ = case()
    loss = torch.compile(SampledLoss(C, sampler=name, k=K), fullgraph=True, dynamic=True)
    for positions in (6, 9, 17):
        assert torch.isfinite(loss(torch.randn(positions, H), weight, torch.arange(positions)))


@pytest.mark.parametrize("ignored", [None, -100])
def test_compiled_as_one_graph_where_a_row_optimizer_has_the_table(ignored):
    """As to measure on held-out positions, by dense sums and a criterion's name."""
    torch._dynamo.reset()
    hidden, weight, target = case()
    optimizer = RowSGD([weight])

    def measure(hidden, weight):
        return sampled_loss(hidden, weight, target, criterion="bce", ignore_index=ignored)

    compiled = torch.compile(measure, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(hidden, weight), measure(hidden, weight))
    assert optimizer.given == [weight]


def test_built_without_a_device():
    with torch.device("meta"):
        losses = [SampledLoss(C), SampledLoss(C, "nce", "unigram", counts=torch.arange(C, device="cpu"))]
    for loss in losses:
        assert torch.isfinite(loss(*case()))


@pytest.mark.parametrize("name", CRITERIA)
def test_second_derivatives(name):
    hidden, weight, target = case(torch.float64)
    loss = SampledLoss(C, name, k=K)

    def seeded(hidden, weight):
        torch.manual_seed(1)
        return loss(hidden, weight, target[:3])

    assert torch.autograd.gradgradcheck(seeded, (hidden[:3].detach().requires_grad_(), weight))


@pytest.mark.parametrize("name", [name for name, criterion in CRITERIA.items() if criterion().sampled])
@pytest.mark.parametrize("value", [float("nan"), -float("inf"), -800.0])
def test_own_samples_of_an_ignored_position_do_not_matter(name, value):
    hidden, weight, target = case()
    samples = (target[:, None] + torch.arange(1, 6)) % C
    expected = torch.zeros(N, 5)
    loss = SampledLoss(C, name, k=K)
    target[3] = -100
    wanted = loss(hidden, weight, target, samples=samples, log_expected=expected, log_expected_target=torch.zeros(N))
    samples[3], expected[3] = -100, value
    got = loss(hidden, weight, target, samples=samples, log_expected=expected, log_expected_target=torch.zeros(N))
    torch.testing.assert_close(got, wanted)
    (gradient,) = torch.autograd.grad(got, weight)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted, weight)[0])


def given(**more):
    hidden, weight, target = case()
    return SampledLoss(C, k=K)(hidden, weight, target, **more)


SAMPLES = torch.arange(5)
REFUSED = {
    "counts for another noise": (lambda: SampledLoss(C, counts=torch.ones(C)), "counts= are for noise='unigram'"),
    "k = 0": (lambda: SampledLoss(C, k=0), "k >= 1"),
    "k is no number": (lambda: SampledLoss(C, k=1e1), "k is a whole number, not 10.0"),
    "groups are none": (lambda: SampledLoss(C, k=K, groups=2.0), "groups is a whole number"),
    "half a class": (lambda: SampledLoss(50.0), "noise over 50.0 words"),
    "a sampler and k": (lambda: SampledLoss(C, sampler=SAMPLERS["distinct"](Uniform(C), 3), k=20), "its own noise, k"),
    "a sampler and a noise": (
        lambda: SampledLoss(C, noise="uniform", sampler=SAMPLERS["distinct"](Uniform(C), 3)),
        "leave noise=, counts=, k= and groups= away",
    ),
    "a smaller sampler": (lambda: SampledLoss(C, sampler=SAMPLERS["distinct"](Uniform(9), 3)), "over 9 words"),
    "reduction": (lambda: SampledLoss(C, reduction="avg"), "no reduction 'avg'"),
    "impl": (lambda: SampledLoss(C, impl="fast"), "no impl 'fast'"),
    "power": (lambda: SampledLoss(C, noise="unigram", power=0.5), r"noise=Unigram\(counts, power=...\)"),
    "sharing": (lambda: SampledLoss(C, "mode2", sharing="position"), "sampler=SAMPLERS"),
    "probabilities": (lambda: SampledLoss(C, noise=torch.ones(C)), r"not Tensor; for given counts: Unigram\(counts\)"),
    "a wrong count": (lambda: Unigram(torch.tensor([1.0, 2.0, -3.0])), "word 2 has -3"),
    "expected counts alone": (lambda: given(log_expected=torch.zeros(5)), "without samples"),
    "never drawn": (lambda: given(samples=SAMPLES, log_expected=torch.full((5,), -float("inf"))), "nan or -inf"),
    "no samples": (lambda: given(samples=SAMPLES[:0], log_expected=torch.zeros(0)), "samples are empty"),
    "a layer": (
        lambda: SampledLoss(C, k=K)(case()[0], nn.Linear(H, C), case()[2]),
        "weight must be a tensor, not Linear",
    ),
    "a number": (lambda: given(example_weight=2.0), "example_weight must be a tensor, not float"),
    "a link": (lambda: Output(C, H, link=torch.exp), "link= is a name, one of: log, logsigmoid"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_go_together_is_refused(what):
    call, message = REFUSED[what]
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_criterion_may_have_options_of_these_names(monkeypatch):
    class Smooth(CRITERIA["mode3"]):
        def __init__(self, smoothing=0.0):
            super().__init__()
            self.smoothing = smoothing

    monkeypatch.setitem(CRITERIA, "smooth", Smooth)
    assert SampledLoss(C, "smooth", k=K, smoothing=0.2).criterion.smoothing == 0.2


def test_expected_counts_of_another_shape_are_refused():
    hidden, weight, target = case()
    with pytest.raises(ValueError, match="in the same shape"):
        SampledLoss(C, k=K)(hidden, weight, target, samples=SAMPLES.expand(N, -1), log_expected=torch.zeros(5))


def test_a_sampler_may_come_with_its_noise():
    noise = Uniform(C)
    assert SampledLoss(C, noise=noise, sampler=SAMPLERS["distinct"](noise, 3)).sampler.k == 3


@pytest.mark.parametrize("change", [lambda w: w[1:], F.normalize])
def test_rows_of_a_table_that_is_no_parameter_are_refused(change):
    hidden, weight, target = case()
    changed = change(weight)
    target = target.clamp(max=len(changed) - 1)
    with pytest.raises(ValueError, match=r"weight is computed.*sparse=False"):
        SampledLoss(len(changed), k=K, sparse=True)(hidden, changed, target)
    SampledLoss(len(changed), k=K)(hidden, changed, target).backward()
    assert weight.grad is not None


@pytest.mark.parametrize(("sparse", "times"), [(False, 1), (True, 2)])
def test_a_dense_gradient_is_made_once(sparse, times, monkeypatch):
    taken = []
    monkeypatch.setattr(output, "take", lambda *given: taken.append(given) or take(*given))
    hidden, weight, target = case()
    SampledLoss(C, k=K, groups=2, sparse=sparse)(hidden, weight, target).backward()
    assert len(taken) == times


@pytest.mark.parametrize("name", ["mode3", "sampled_softmax"])
def test_an_output_takes_the_loss_s_link(name):
    loss = SampledLoss(C, name, k=K)
    assert Output(C, H, link=loss.link).link_name == loss.criterion.link
