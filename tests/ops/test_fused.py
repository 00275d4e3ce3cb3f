"""Plain judges fused: the truth is plain in float64. Without a GPU the kernels run in Triton's interpreter."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from selfnorm import SampledLoss
from selfnorm.criteria import CRITERIA
from selfnorm.noise import LogUniform
from selfnorm.ops import plain
from selfnorm.output import Layer, Output, identity
from selfnorm.registry import pick
from selfnorm.samplers import SAMPLERS
from selfnorm.samplers.sample import Sample, split

fused = pytest.importorskip("selfnorm.ops.fused", reason="Triton is not installed")
columns = pytest.importorskip("selfnorm.ops.columns", reason="Triton is not installed")

GPU = torch.cuda.is_available()
PLACE = "cuda" if GPU else "cpu"
DTYPES = [torch.float32, torch.bfloat16] if GPU else [torch.float32]  # the interpreter's bfloat16 products are wrong
SLACK = {torch.float32: 2e-6, torch.bfloat16: 2e-3}
SHAPES = [(16, 64, 32), (17, 65, 33), (1, 100, 8), (70, 33, 64)]  # N, K, H
C = 300
PAIRS = {"scale": True, "low": True}
CASES = {
    "mode3": ("softplus_sum", {"scale": True, "skip": True}),
    "nce": ("softplus_sum", {"shift": True}),
    "mode2": ("softplus_sum", PAIRS),
    "linear": ("exp_sum", {"scale": True}),
    "sampled softmax": ("log_sum_exp", {"shift": True, "skip": True}),
}


class Case:
    def __init__(self, shape, groups=1, bias=True, level=-6.0, low=False, rising=False):
        n, k, h = shape
        generator = torch.Generator().manual_seed(n * k + h)
        draw = partial(torch.randn, generator=generator)
        self.hidden, self.weight = 2 * draw(n, h), draw(C, h) / h**0.5
        self.bias = draw(C) + level if bias else None
        k += k % 2 if low else 0
        self.ids = torch.randint(0, C, (groups, k), generator=generator)
        if rising:
            self.ids = torch.rand(groups, C, generator=generator).argsort()[:, :k].sort().values
        self.targets = torch.randint(0, C // 10, (n,), generator=generator)
        self.targets[0] = self.ids[0, 0]  # a hit
        self.expected = torch.rand(groups, k, generator=generator) + 0.05
        below = (self.ids[:, : k // 2] - torch.randint(0, 50, (groups, k // 2), generator=generator)).clamp(min=0)
        low = below.to(PLACE) if low else None
        bounds = split(n, groups)
        self.sample = Sample(
            self.ids.to(PLACE), self.expected.to(PLACE), torch.ones(n, device=PLACE), bounds, low, rising=rising
        )

    def run(self, op, dtype, shift=False, scale=False, skip=False, low=False):
        """The value and every gradient, with another weight for each position."""
        made = [None if each is None else each.to(PLACE, dtype).requires_grad_() for each in (self.hidden, self.weight)]
        bias = (
            None
            if self.bias is None
            else self.bias.to(PLACE, torch.promote_types(dtype, torch.float32)).requires_grad_()
        )
        wide = torch.promote_types(dtype, torch.float32)
        numbers = {"shift": self.expected.log()} if shift else {}
        numbers |= {"scale": 1 / self.expected} if scale else {}
        numbers = {name: each.to(PLACE, wide) for name, each in numbers.items()}
        layer, targets = Layer(made[1], bias), self.targets.to(PLACE)
        sums = op(made[0], layer, self.sample, targets, skip=skip, **numbers)
        logit, sums = sums if isinstance(sums, tuple) else (layer.logit(made[0], targets), sums)
        weights = torch.linspace(0.5, 1.5, len(sums), dtype=sums.dtype, device=PLACE)
        (sums * weights - 3 * logit * weights.flip(0)).sum().backward()
        found = {"value": sums.detach(), "logit": logit.detach(), "hidden": made[0].grad, "weight": made[1].grad}
        return found if bias is None else found | {"bias": bias.grad}


def distance(found, truth, name):
    return float((found[name].double() - truth[name]).norm() / truth[name].norm())


def compare(case, name, dtype):
    op, options = CASES[name]
    truth = case.run(getattr(plain, op), torch.float64, **options)
    by_fused, by_plain = (case.run(getattr(ops, op), dtype, **options) for ops in (fused, plain))
    for each in truth:
        assert distance(by_fused, truth, each) <= 1.5 * distance(by_plain, truth, each) + SLACK[dtype], each


@pytest.mark.parametrize("name", [name for name in CASES if name != "mode2"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_targets_are_found_among_rising_ids(groups, dtype, name):
    """A target that was drawn gives its gradient to the columns; one that was not goes its own way."""
    compare(Case((48, 70, 16), groups, rising=True), name, dtype)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fused_is_as_close_to_the_truth_as_plain(shape, dtype, name):
    compare(Case(shape, low="low" in CASES[name][1]), name, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["mode3", "sampled softmax"])
def test_groups_have_their_own_words(name, dtype):
    compare(Case((50, 40, 16), groups=3), name, dtype)


@pytest.mark.parametrize("name", ["mode3", "nce", "sampled softmax"])
def test_without_bias(name):
    compare(Case((20, 40, 16), bias=False), name, torch.float32)


@pytest.mark.parametrize("level", [-20.0, 0.0, 15.0])
def test_rare_and_certain_words(level):
    """log(1 + e) must be a real one: at -20 the sum is 2e-9 a word."""
    compare(Case((20, 40, 16), level=level), "mode3", torch.float32)


@pytest.mark.parametrize("link", [identity, F.logsigmoid])
@pytest.mark.parametrize("shape", [(20, 300, 16), (33, 65, 40), (1, 1000, 8)], ids=str)  # N, C, H
def test_log_z_is_the_whole_sum(shape, link):
    n, words, h = shape
    torch.manual_seed(n)
    hidden, weight, bias = 2 * torch.randn(n, h), torch.randn(words, h), torch.randn(words) - 3
    truth = link(hidden.double() @ weight.double().T + bias.double()).logsumexp(-1)
    kind = columns.LOG_SIGMOIDS if link is F.logsigmoid else columns.LOG_SUM
    found = fused.log_z(*(each.to(PLACE) for each in (hidden, weight, bias)), kind)
    torch.testing.assert_close(found.cpu().double(), truth, rtol=0, atol=2e-5)


def sampled():
    return [name for name in CRITERIA if pick("criterion", CRITERIA, name).sampled]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", sampled())
def test_every_criterion_gives_the_same_loss_and_gradients(name, sparse):
    criterion = pick("criterion", CRITERIA, name)
    way = "excluding" if name == "mode2" else "distinct"
    sampler = pick("sampler", SAMPLERS, way, noise=LogUniform(C), k=40)
    torch.manual_seed(1)
    hidden, targets = torch.randn(24, 16), torch.randint(0, C, (24,))
    sample = sampler.draw(targets, torch.Generator().manual_seed(2))
    found = []
    for impl in ("plain", "fused"):
        output = Output(C, 16, sparse=sparse, impl=impl)
        torch.manual_seed(3)
        torch.nn.init.normal_(output.weight)
        inputs = hidden.clone().requires_grad_()
        loss = criterion.loss(inputs, output.layer, targets, sample)
        loss.mean().backward()
        grads = [each.grad.to_dense() for each in (inputs, output.weight, output.bias)]
        assert output.weight.grad.is_sparse == sparse
        found.append([loss.detach(), *grads])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("stretches", [False, True], ids=["at once", "in stretches"])
@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize("name", ["ce", "ce_vr", "bce"])
@pytest.mark.parametrize("shape", [(20, 300, 16), (33, 65, 40), (1, 80, 8)], ids=str)  # N, C, H
def test_a_sum_over_every_word(shape, name, bias, stretches, monkeypatch):
    """Its logits are kept for the gradient where they fit into `most`, and made again where not."""
    n, words, h = shape
    criterion, kept = pick("criterion", CRITERIA, name), []
    whole = fused._Whole.apply
    monkeypatch.setattr(fused._Whole, "apply", lambda *given: kept.append(False) or whole(*given))
    torch.manual_seed(n)
    hidden, weight, offset = 2 * torch.randn(n, h), torch.randn(words, h) / h**0.5, torch.randn(words) - 3
    targets, found = torch.randint(0, words, (n,), device=PLACE), []
    for impl, dtype in (("plain", torch.float64), ("fused", torch.float32)):
        given = [each.to(PLACE, dtype).requires_grad_() for each in (hidden, weight, offset)[: 2 + bias]]
        layer = Layer(given[1], given[2] if bias else None, impl=impl)
        loss = criterion.loss(given[0], layer, targets, None, n * words - stretches)
        (loss * torch.linspace(0.5, 1.5, n, device=PLACE)).sum().backward()
        found.append([loss.detach(), *(each.grad for each in given)])
    assert bool(kept) == stretches
    for truth, mine in zip(*found):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-4, atol=1e-5)


def test_fused_where_it_cannot_run_is_an_error_and_auto_goes_on(monkeypatch):
    case = Case((8, 20, 16))
    from selfnorm import ops

    with pytest.raises(ValueError, match="for dense gradients of every word"):
        ops.softplus_sum(case.hidden, Layer(case.weight, sparse=True, impl="fused"), None, case.targets)
    whole = ops.softplus_sum(case.hidden, Layer(case.weight, sparse=True), None, case.targets)
    assert all(each.isfinite().all() for each in whole)
    monkeypatch.setattr(columns, "INTERPRETED", False)
    with pytest.raises(ValueError, match="needs a GPU"):
        ops.softplus_sum(case.hidden, Layer(case.weight, impl="fused"), case.sample, case.targets)
    with pytest.raises(ValueError, match="there is no impl 'quick'"):
        Layer(case.weight, impl="quick")


@pytest.mark.skipif(GPU, reason="on a GPU auto may choose the kernels")
def test_auto_is_plain_on_a_cpu(monkeypatch):
    from selfnorm import ops

    monkeypatch.setattr(fused, "softplus_sum", None)
    case = Case((8, 20, 16))
    assert ops.softplus_sum(case.hidden, Layer(case.weight), case.sample, case.targets)[1].shape == (8,)


@pytest.mark.parametrize("which", ["weight", "bias", "hidden"])
def test_tensors_may_lie_in_memory_as_they_like(which):
    case = Case((17, 20, 16), rising=True)
    straight = Case((17, 20, 16), rising=True).run(fused.softplus_sum, torch.float32)
    turned = getattr(case, which)
    turned = turned.repeat_interleave(2)[::2] if turned.ndim == 1 else turned.T.contiguous().T
    assert not turned.is_contiguous()
    setattr(case, which, turned)
    for name, value in case.run(fused.softplus_sum, torch.float32).items():
        torch.testing.assert_close(value, straight[name], msg=name)


def test_a_group_without_positions_touches_no_rows():
    """Fewer sequences than groups: the draw of the group that is left over counts nowhere."""
    found = []
    for impl in ("plain", "fused"):
        torch.manual_seed(0)
        hidden, weight, bias = (torch.randn(*shape).requires_grad_() for shape in ((1, 4, 8), (20, 8), (20,)))
        loss = SampledLoss(20, k=5, groups=2, impl=impl, sparse=True, generator=torch.Generator().manual_seed(1))
        loss(hidden, weight, torch.randint(0, 20, (1, 4), generator=torch.Generator().manual_seed(2)), bias).backward()
        found.append([each.grad.to_dense() for each in (hidden, weight, bias)])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_second_derivative_is_refused():
    hidden, weight = (torch.randn(*shape).requires_grad_() for shape in ((4, 8), (20, 8)))
    loss = SampledLoss(20, k=5, impl="fused")(hidden, weight, torch.arange(4))
    (grad,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.square().sum().backward()


def test_a_bias_far_above_the_others_leaves_no_nan():
    output = Output(50, 8, link="log", normalize=True, impl="fused")
    with torch.no_grad():
        output.bias[3] = 95
    criterion = pick("criterion", CRITERIA, "ce")
    criterion.loss(torch.randn(7, 8), output.layer, torch.arange(7), None).sum().backward()
    assert output.bias.grad.isfinite().all()


def test_nothing_of_a_step_is_kept_after_its_backward_pass():
    import weakref

    hidden, weight = (torch.randn(*shape).requires_grad_() for shape in ((4, 8), (20, 8)))
    seen = []
    product = columns.Block.logits

    def noted(self, *arguments):
        found = product(self, *arguments)
        seen.append(weakref.ref(found))
        return found

    columns.Block.logits = noted
    try:
        loss = SampledLoss(20, k=5, impl="fused")(hidden, weight, torch.arange(4))
        loss.backward()
    finally:
        columns.Block.logits = product
    assert loss is not None
    assert seen[0]() is None
