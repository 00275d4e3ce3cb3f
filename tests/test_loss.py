import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from selfnorm import Output, SampledLoss, Unigram, functional
from selfnorm.criteria import CRITERIA
from selfnorm.noise import LogUniform
from selfnorm.optim import RowSGD
from selfnorm.samplers.excluding import Excluding
from selfnorm.samplers.systematic import Systematic

C, H, N, K = 50, 8, 24, 10


def case(seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    hidden, weight, bias = (torch.randn(shape, generator=g, dtype=dtype) for shape in ((N, H), (C, H), (C,)))
    return (
        hidden.requires_grad_(),
        weight.requires_grad_(),
        torch.randint(0, C, (N,), generator=g),
        bias.requires_grad_(),
    )


def seeded(seed=1):
    return torch.Generator().manual_seed(seed)


def drawn(name, seed=1, **options):
    return SampledLoss(C, name, k=K, generator=seeded(seed), **options)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ce_with_all_options_is_torch(reduction):
    hidden, weight, target, bias = case()
    target[::3] = -100
    got = SampledLoss(C, "ce", reduction=reduction)(hidden, weight, target, bias)
    torch.testing.assert_close(got, F.cross_entropy(hidden @ weight.T + bias, target, reduction=reduction))


@pytest.mark.parametrize("name", CRITERIA)
def test_any_leading_shape_and_strides(name):
    hidden, weight, target, bias = case()
    flat = drawn(name, reduction="none")(hidden, weight, target, bias)
    shaped = drawn(name, reduction="none")(hidden.view(2, 3, 4, H), weight, target.view(2, 3, 4), bias)
    strided = drawn(name, reduction="none")(
        hidden.T.contiguous().T, weight.T.contiguous().T, target.repeat_interleave(2)[::2], bias
    )
    torch.testing.assert_close(shaped.view(-1), flat)
    torch.testing.assert_close(strided, flat)


@pytest.mark.parametrize("name", CRITERIA)
def test_reductions_weights_and_ignored_positions(name):
    hidden, weight, target, bias = case()
    share = torch.rand(N, generator=seeded())
    every = drawn(name, reduction="none")(hidden, weight, target, bias)
    torch.testing.assert_close(drawn(name)(hidden, weight, target, bias), every.mean())
    torch.testing.assert_close(
        drawn(name)(hidden, weight, target, bias, example_weight=share), (every * share).sum() / share.sum()
    )
    ignored = target.clone()
    ignored[5] = ignored[9] = -100
    with torch.no_grad():
        broken = hidden.clone()
        broken[5] = float("nan")  # nothing of an ignored position comes through
    broken.requires_grad_()
    got = drawn(name, reduction="none")(broken, weight, ignored, bias)
    keep = ignored != -100
    torch.testing.assert_close(got[keep], every[keep])
    assert got[~keep].tolist() == [0, 0]
    mean = drawn(name)(broken, weight, ignored, bias)
    torch.testing.assert_close(mean, every[keep].mean())
    mean.backward()
    assert torch.isfinite(weight.grad).all()
    assert broken.grad[5].tolist() == [0] * H


@pytest.mark.parametrize("name", CRITERIA)
def test_nothing_to_learn_from_is_zero(name):
    hidden, weight, target, bias = case()
    empty = drawn(name)(hidden[:0], weight, target[:0], bias)
    ignored = drawn(name)(hidden, weight, torch.full_like(target, -100), bias)
    (empty + ignored).backward()
    assert empty.item() == ignored.item() == 0
    assert float(weight.grad.abs().sum()) == 0
    assert drawn(name, reduction="none")(hidden[:0], weight, target[:0], bias).shape == (0,)


@pytest.mark.parametrize("name", CRITERIA)
def test_the_function_is_the_module(name):
    hidden, weight, target, bias = case()
    noise = LogUniform(C)
    sampler = Excluding(noise, K) if name == "mode2" else Systematic(noise, K)
    got = functional.sampled_loss(hidden, weight, target, bias, criterion=name, sampler=sampler, generator=seeded())
    torch.testing.assert_close(got, drawn(name)(hidden, weight, target, bias))


@pytest.mark.parametrize("name", [name for name in CRITERIA if CRITERIA[name].sampled])
def test_callers_own_samples_are_the_samplers(name):
    hidden, weight, target, bias = case()
    loss = drawn(name, reduction="none")
    if name == "mode2":
        loss.sampler = Excluding(LogUniform(C), K, sharing="position")
    sample = loss.sampler.draw(target, seeded())
    shape = (N, K) if name == "mode2" else (K,)
    got = loss(
        hidden,
        weight,
        target,
        bias,
        samples=sample.ids.view(shape),
        log_expected=sample.expected.log().view(shape),
        log_expected_target=None if name == "mode2" else sample.expected_target.log(),
    )
    torch.testing.assert_close(got, loss(hidden, weight, target, bias))


def test_without_bias():
    hidden, weight, target, _ = case()
    torch.testing.assert_close(
        drawn("mode3")(hidden, weight, target), drawn("mode3")(hidden, weight, target, torch.zeros(C))
    )


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("optimizer", [torch.optim.SparseAdam, torch.optim.Adagrad, torch.optim.SGD])
def test_sparse_gradients_train_with_torchs_optimizers(name, optimizer):
    """One step changes the rows that were touched, as the dense gradient does (SparseAdam: in the same rows)."""
    hidden, weight, target, bias = case()
    dense = [weight.detach().clone().requires_grad_(), bias.detach().clone().requires_grad_()]
    drawn(name)(hidden, dense[0], target, dense[1]).backward()
    drawn(name, sparse=True)(hidden, weight, target, bias).backward()
    assert weight.grad.is_sparse
    assert bias.grad.is_sparse
    torch.testing.assert_close(weight.grad.to_dense(), dense[0].grad)
    torch.testing.assert_close(bias.grad.to_dense(), dense[1].grad)
    before = weight.detach().clone()
    optimizer([weight, bias], lr=0.1).step()
    moved = (weight.detach() != before).any(1)
    assert torch.equal(moved, (dense[0].grad != 0).any(1))
    if optimizer is not torch.optim.SparseAdam:
        optimizer(dense, lr=0.1).step()
        torch.testing.assert_close(weight, dense[0])


def test_groups_follow_the_sequences():
    loss = SampledLoss(C, "mode3", k=5, groups=3)
    bounds = []
    loss.sampler.draw = lambda targets, generator, given: (
        bounds.append(given) or Systematic(LogUniform(C), 5, 3).draw(targets, generator, given)
    )
    hidden, weight, target, bias = case()
    loss(hidden.view(6, 4, H), weight, target.view(6, 4), bias)
    loss(hidden, weight, target, bias)
    assert bounds == [(0, 8, 16, 24), (0, 8, 16, 24)]
    loss(hidden.view(4, 6, H), weight, target.view(4, 6), bias)
    assert bounds[-1] == (0, 6, 12, 24)


@pytest.mark.parametrize("name", CRITERIA)
def test_autocast_keeps_the_loss_in_float32(name):
    hidden, weight, target, bias = case()
    exact = drawn(name)(hidden, weight, target, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = drawn(name)(hidden, weight, target, bias)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD([weight, bias, hidden], lr=0.01)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.isfinite(weight).all()


def test_grad_scaler_takes_sparse_gradients():
    hidden, weight, target, bias = case()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizer = torch.optim.SGD([weight, bias], lr=1.0)
    plain = torch.autograd.grad(drawn("mode3")(hidden, weight, target, bias), weight)[0]
    before = weight.detach().clone()
    scaler.scale(drawn("mode3", sparse=True)(hidden, weight, target, bias)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    torch.testing.assert_close(weight.detach(), before - plain)


COMPILERS = [
    "aot_eager",
    pytest.param("inductor", marks=pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")),
]


@pytest.mark.parametrize("backend", COMPILERS)
@pytest.mark.parametrize("name", ["ce", "nce", "mode2", "mode3", "sampled_softmax"])
def test_compiled_is_eager(name, backend):
    hidden, weight, target, bias = case()
    torch.manual_seed(0)
    samples = torch.randint(0, C, (N, K))
    samples[samples == target[:, None]] += 1
    samples = samples % C if name == "mode2" else samples[0]
    given = {"samples": samples, "log_expected": torch.rand(samples.shape), "log_expected_target": torch.rand(N)}
    loss = SampledLoss(C, name, k=K)
    compiled = torch.compile(loss, backend=backend)
    wanted = torch.autograd.grad(loss(hidden, weight, target, bias, **given), (hidden, weight, bias))
    got = torch.autograd.grad(compiled(hidden, weight, target, bias, **given), (hidden, weight, bias))
    for mine, true in zip(got, wanted):
        torch.testing.assert_close(mine, true, rtol=1e-4, atol=1e-5)
    assert torch.isfinite(compiled(hidden, weight, target, bias))  # with its own draws


def test_compiled_rows_are_those_of_eager():
    """Samples of each position's own, few words: every logit would cost less."""
    hidden, weight, target, bias = case()
    samples = torch.randint(0, C // 2, (N, 3), generator=seeded())
    given, found = {"samples": samples, "log_expected": torch.zeros(N, 3)}, []
    for loss in (SampledLoss(C, k=K, sparse=True), torch.compile(SampledLoss(C, k=K, sparse=True), backend="eager")):
        loss(hidden, weight, target % 7, bias, **given).backward()
        found.append(weight.grad.coalesce())
        hidden.grad = weight.grad = bias.grad = None
    for part in ("indices", "values"):
        torch.testing.assert_close(*(getattr(each, part)() for each in found))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda h, w, t, b: SampledLoss(C, "mode2", sampler="systematic", k=K), "'mode2' needs sampler 'excluding'"),
        (lambda h, w, t, b: SampledLoss(C, "mode3", sampler="excluding", k=K), "goes with criterion 'mode2' alone"),
        (lambda h, w, t, b: SampledLoss(C, "nce", sampler="excluding", k=K), "goes with criterion 'mode2' alone"),
        (lambda h, w, t, b: SampledLoss(C, "mode3", k=8000), "8000 distinct ids cannot be drawn from 50 words"),
        (
            lambda h, w, t, b: SampledLoss(C, "mode4", k=K),
            "did you mean 'mode3'|did you mean 'mode2'|did you mean 'mode1'",
        ),
        (lambda h, w, t, b: SampledLoss(C, "mode3", k=K, alpha=1.0), "takes no option 'alpha'"),
        (lambda h, w, t, b: SampledLoss(C, "mode3", noise="unigram", k=K), "unigram noise needs counts="),
        (lambda h, w, t, b: SampledLoss(C, "mode3", noise=Unigram(torch.ones(3)), k=3), "the noise is over 3 words"),
        (lambda h, w, t, b: SampledLoss(C, noise="unigram", counts=torch.ones(3)), "the noise is over 3 words"),
        (lambda h, w, t, b: SampledLoss(C, k=K, reduction="avg")(h, w, t, b), "there is no reduction 'avg'"),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t + C, b), "is outside the 50 words 0 to 49"),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t * 0 - 1, b), "target -1 is outside"),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t.float(), b), "ids as integers"),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t[1:], b), "one id for each vector"),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h[:, 1:], w, t, b), r"must be \(..., H\) and \(C, H\)"),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b[1:]), "one value for each of 50 rows"),
        (
            lambda h, w, t, b: SampledLoss(C, k=K)(h, w[1:], t.clamp(max=3), b[1:]),
            "the noise is over 50 words, the weight has 49",
        ),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b, samples=t), "samples need log_expected"),
        (lambda h, w, t, b: SampledLoss(C, k=K, reduction=None)(h, w, t, b), "reduction None is no name; choose one"),
        (
            lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b, samples=t[0], log_expected=t[0] * 1.0),
            r"samples \(\) must be \[K\]",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b, samples=t > 3, log_expected=t * 1.0),
            "samples must be ids, whole numbers, not torch.bool",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b, samples=t[:, None] > 3, log_expected=t[:, None] * 1.0),
            "samples must be ids, whole numbers, not torch.bool",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, k=K)(
                h, w, t, b, samples=t[:, None][:, :0], log_expected=torch.ones(N, 0)
            ),
            "samples are empty",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, "nce", k=K)(
                h, w, t, b, samples=t, log_expected=t * 1.0, log_expected_target=(t * 0.0).log()
            ),
            "log_expected_target holds nan or -inf",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, "nce", k=K)(
                h, w, t, b, samples=t, log_expected=t * 1.0, log_expected_target=torch.tensor(0.5)
            ),
            "must have the shape of target",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, "nce", k=K)(h, w, t, b, samples=t, log_expected=t.float()),
            "needs log_expected_target",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, "mode2", k=K)(h, w, t, b, samples=t, log_expected=t.float()),
            "for each position",
        ),
        (lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b, example_weight=torch.ones(2)), "shape of target"),
        (lambda h, w, t, b: functional.sampled_loss(h, w, t, b), "needs a sampler, or samples"),
        (
            lambda h, w, t, b: SampledLoss(C, k=K)(h, w, t, b, samples=t + C, log_expected=t.float()),
            "sample [0-9]+ is out",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, "sampled_softmax", k=K)(h, w, t, b, samples=t, log_expected=t.float()),
            "needs log_expected_target",
        ),
        (
            lambda h, w, t, b: SampledLoss(C, "mode2", k=K)(
                h, w, t, b, samples=t[:, None], log_expected=t[:, None] * 1.0
            ),
            "none of them its target",
        ),
    ],
)
def test_wrong_use_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call(*case())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("k", [1, 2])
def test_two_words_are_enough(name, k):
    loss = SampledLoss(2, name, k=k)(torch.ones(3, H), torch.ones(2, H), torch.tensor([0, 1, 1]), torch.zeros(2))
    assert torch.isfinite(loss)


MEMORY = """
import resource, torch, selfnorm
from selfnorm.samplers.excluding import Excluding
from selfnorm.noise import LogUniform
N, K, H, C = 2048, 8000, 256, 9000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loss = selfnorm.SampledLoss(C, "mode2", sampler=Excluding(LogUniform(C), K, sharing="position"), most=1 << 23)
weight = torch.zeros(C, H, requires_grad=True)
loss(torch.randn(N, H), weight, torch.randint(0, C, (N,)), torch.zeros(C)).backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20)
"""


def test_mode2_by_position_never_holds_n_x_k_x_h():
    """N x K x H is 16 GiB here; ids and E (float64) of N x K are 0.25 GiB, the cut logits far less."""
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 2.0


def kept_by_backward(call):
    """How many numbers autograd keeps for the backward pass, parameters not counted."""
    kept = {}

    def pack(tensor):
        if not isinstance(tensor, torch.nn.Parameter) and tensor.is_floating_point():
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        call()
    return sum(kept.values())


@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("name", CRITERIA)
def test_most_bounds_what_is_kept(name, groups):
    positions, size = 2048, 300
    hidden = torch.randn(positions, H, requires_grad=True)
    weight, bias = torch.nn.Parameter(torch.randn(size, H)), torch.nn.Parameter(torch.zeros(size))
    target = torch.randint(0, size, (positions,))

    def kept(most):
        loss = SampledLoss(size, name, k=64, groups=groups, most=most)
        return kept_by_backward(lambda: loss(hidden, weight, target, bias))

    logits = positions * (64 if CRITERIA[name].sampled else size)
    assert kept(1 << 26) >= logits  # everything is kept where it may be
    assert kept(4096) < logits / 2


@pytest.mark.parametrize("ignored", [False, True])
def test_one_position_without_a_dimension_has_samples_of_its_own(ignored):
    hidden, weight, target, bias = case()
    samples, target = torch.tensor([3, 4, 5]), torch.tensor(-100 if ignored else 7)
    given = {"criterion": "mode2", "log_expected": torch.rand(3)}
    alone = functional.sampled_loss(hidden[0], weight, target, bias, samples=samples, **given)
    given["log_expected"] = given["log_expected"][None]
    torch.testing.assert_close(
        alone, functional.sampled_loss(hidden[:1], weight, target[None], bias, samples=samples[None], **given)
    )


@pytest.mark.parametrize("own", [False, True])
def test_ignored_positions_touch_no_row(own):
    """SparseAdam would move those that they touch."""
    hidden, weight, target, bias = case()
    target[:] = torch.randint(10, 20, (N,), generator=seeded())
    target[::3] = -100
    given = {"samples": torch.randint(20, 40, (N, 4) if own else (4,), generator=seeded())}
    given |= {"log_expected": torch.zeros(given["samples"].shape), "log_expected_target": torch.zeros(N)}
    loss = SampledLoss(C, "mode2" if own else "nce", k=K, sparse=True)
    loss(hidden, weight, target, bias, **given).backward()
    for table in (weight, bias):
        used = set(target[target >= 0].tolist()) | set(given["samples"].flatten().tolist())
        assert set(table.grad.coalesce().indices()[0].tolist()) <= used


def test_a_list_is_no_tensor():
    with pytest.raises(TypeError, match="samples must be a tensor, not list"):
        SampledLoss(C, k=K)(*case(), samples=[1, 2], log_expected=torch.zeros(2))


def test_ignored_positions_with_weights():
    hidden, weight, target, bias = case()
    every = drawn("mode3", reduction="none")(hidden, weight, target, bias).detach()
    share = torch.rand(N, generator=seeded()) * 0.01  # sums to less than 1
    ignored, kept = target.clone(), torch.arange(N) % 4 != 0
    ignored[~kept] = 7 if not bool((target == 7).any()) else -7
    mark = int(ignored[0])
    share_there = share.where(kept, torch.tensor(float("nan")))  # the weight of an ignored position is nothing either
    got = drawn("mode3", ignore_index=mark)(hidden, weight, ignored, bias, example_weight=share_there)
    torch.testing.assert_close(got, (every * share)[kept].sum() / share[kept].sum())


def test_without_ignore_index_every_target_counts():
    hidden, weight, target, bias = case()
    with pytest.raises(ValueError, match="target -100 is outside"):
        drawn("mode3", ignore_index=None)(hidden, weight, target * 0 - 100, bias)


def test_options_reach_noise_and_criterion():
    counts = torch.arange(C, 0, -1) ** 2
    loss = SampledLoss(C, "mode3", noise="unigram", counts=counts, k=K)
    torch.testing.assert_close(loss.sampler.noise.prob(torch.arange(C)), (counts + 1).double() / (counts + 1).sum())
    assert SampledLoss(C, "ce_vr", alpha=0.7).criterion.alpha == 0.7
    assert SampledLoss(C).sampler.k == C  # the default is not more than there are


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8])
def test_ids_of_any_integer_type(kind):
    hidden, weight, target, bias = case()
    unigram = {"noise": "unigram", "counts": torch.ones(C)}
    got = drawn("mode3", **unigram)(hidden, weight, target.to(kind), bias)
    torch.testing.assert_close(got, drawn("mode3", **unigram)(hidden, weight, target, bias))


def test_bf16_is_float32_from_the_logits_on():
    hidden, weight, target, _ = case()
    half = [each.detach().bfloat16() for each in (hidden, weight)]
    exact = drawn("mode3", reduction="none")(half[0].double(), half[1].double(), target)
    got = drawn("mode3", reduction="none")(*half, target)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), exact, rtol=0.01, atol=0.05)


@pytest.mark.parametrize("name", CRITERIA)
def test_modules_can_be_copied_and_pickled(name):
    import copy
    import pickle

    loss = drawn(name)
    head = torch.nn.ModuleList([loss, Output(C, H, link=loss.criterion.link, normalize=loss.needs_log_z)])
    loss.generator = None
    pickle.loads(pickle.dumps(head))
    copy.deepcopy(head)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 7}, r"N = 24 positions and K = 7 samples of C = 50 words do not fit .* lower k, the batch, or most"),
        (
            {"criterion": "ce"},
            r"N = 24 positions and every word of C = 50 words do not fit .* lower the batch, or most",
        ),
        ({"sampler": "distinct", "k": 7}, r"N = 24 positions and K = 7 samples"),
    ],
)
def test_out_of_memory_says_what_to_lower(options, message, monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    loss = SampledLoss(C, **options)
    broken = loss.sampler if "sampler" in options else loss.criterion
    monkeypatch.setattr(type(broken), "draw" if "sampler" in options else "loss", full)
    with pytest.raises(torch.OutOfMemoryError, match=message) as caught:
        loss(*case())
    assert str(caught.value.__cause__) == "CUDA out of memory."


def test_out_of_memory_counts_the_callers_samples(monkeypatch):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(CRITERIA["mode3"], "loss", full)
    with pytest.raises(torch.OutOfMemoryError, match="N = 24 positions and K = 3 samples of C = 50 words"):
        functional.sampled_loss(*case(), samples=torch.arange(3), log_expected=torch.zeros(3))


@pytest.mark.parametrize("name", CRITERIA)
def test_rows_left_for_an_optimizer_are_the_sparse_gradients(name):
    hidden, weight, target, bias = case()
    drawn(name, sparse=True)(hidden, weight, target, bias).backward()
    wanted = [weight.grad.to_dense(), bias.grad.to_dense()]
    weight.grad = bias.grad = None
    before = [weight.detach().clone(), bias.detach().clone()]
    optimizer = RowSGD([weight, bias], lr=1.0)
    drawn(name, sparse=True)(hidden, weight, target, bias).backward()
    assert weight.grad is bias.grad is None
    optimizer.step()
    for table, was, grad in zip((weight, bias), before, wanted):
        torch.testing.assert_close(was - table, grad, atol=1e-5, rtol=1e-5)
