"""Optimizers against torch's own on dense gradients, clipping over both kinds, and schedules against their formulas."""

import math

import pytest
import torch
from torch import nn

from selfnorm.ops import expect, take
from selfnorm.optim import OPTIMIZERS, ROWS, SCHEDULES, Optimizer, sibling
from selfnorm.optim.schedules import Newbob
from selfnorm.registry import pick

SIZE, WIDTH = 30, 4
OPTIONS = {
    "adam": {"lr": 0.01, "beta1": 0.8, "beta2": 0.95},
    "adamw": {"lr": 0.01, "weight_decay": 0.1},
    "sgd": {"lr": 0.5, "momentum": 0.9},
    "adagrad": {"lr": 0.1},
}
TORCH = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.95), foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.999), weight_decay=0.1, foreach=False),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, foreach=False),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, foreach=False),
}


class Tables(nn.Module):
    """A table of rows going in, one weight coming out."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.table = nn.Parameter(torch.randn(SIZE, WIDTH, generator=generator))
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator))

    def loss(self, ids, sparse=False, size=1.0):
        return size * (take(self.table, ids, sparse) @ self.weight).tanh().square().mean()


def batches(number=6, among=SIZE):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(among, (12,), generator=generator) for _ in range(number)]  # with duplicates


def dense(name, model, **options):
    return Optimizer(OPTIMIZERS[name](list(model.parameters()), **(OPTIONS[name] | options)))


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.05, 1e6, math.inf])
def test_dense_steps_are_torchs(name, clip):
    mine, theirs = Tables(), Tables()
    optimizer, other = dense(name, mine), TORCH[name](list(theirs.parameters()))
    for step, ids in enumerate(batches()):
        loss = mine.loss(ids)
        loss.backward()
        norm, finite = optimizer.step(loss.detach(), clip)
        theirs.loss(ids).backward()
        wanted = nn.utils.clip_grad_norm_(theirs.parameters(), math.inf if clip is None else clip)
        other.step()
        other.zero_grad()
        assert bool(finite)
        torch.testing.assert_close(norm, wanted)
        for one, two in zip(mine.parameters(), theirs.parameters()):
            torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5, msg=f"step {step}")


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [
        *((name, {"lr": math.nan}, "lr = nan: a learning rate is at least 0") for name in OPTIMIZERS),
        *((name, {"eps": -1.0}, r"eps = -1.0: it is at least 0") for name in ("adam", "adamw", "adagrad")),
        *((name, {"beta2": 1.0}, "beta1 = 0.9 and beta2 = 1.0: both are at") for name in ("adam", "adamw")),
    ],
)
def test_numbers_that_make_no_sense_are_named(name, options, what):
    with pytest.raises(ValueError, match=what):
        OPTIMIZERS[name]([Tables().weight], **options)


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("name", ["sgd", "adagrad"])
def test_row_sparse_steps_equal_dense_ones(name, clip):
    """For rules that leave rows without gradient alone, sparse and dense are the same; duplicates are merged."""
    mine, theirs = Tables(), Tables()
    options = {"lr": 0.5}
    first = OPTIMIZERS[name]([mine.weight], **options)
    sparse, plain = (
        Optimizer(first, sibling(name, [mine.table], options)),
        Optimizer(OPTIMIZERS[name](list(theirs.parameters()), **options)),
    )
    for ids in batches():
        norms = []
        for model, optimizer, kind in ((mine, sparse, True), (theirs, plain, False)):
            loss = model.loss(ids, sparse=kind)
            loss.backward()
            assert (model.table.grad is None) == kind  # left for the optimizer
            norms.append(optimizer.step(loss.detach(), clip)[0])
        torch.testing.assert_close(*norms)
    for one, two in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


def test_every_group_keeps_its_own_rate():
    model = Tables()
    first = torch.optim.SGD([{"params": [model.weight]}, {"params": [nn.Parameter(torch.ones(2))], "lr": 0.3}], lr=0.1)
    optimizer = Optimizer(first, sibling("sgd", [model.table], {"lr": 0.5}))
    for scale in (0.5, 2.0, 1.0):
        optimizer.set_rate(scale)
        found = [float(group["lr"]) for part in optimizer.parts for group in part.param_groups]
        assert found == pytest.approx([0.1 * scale, 0.3 * scale, 0.5 * scale])
        assert optimizer.rate == pytest.approx(0.1 * scale)
    before = model.table.detach().clone()
    optimizer.set_rate(0.5)
    loss = model.loss(torch.arange(SIZE), sparse=True)
    (wanted,) = torch.autograd.grad(model.loss(torch.arange(SIZE)), model.table)
    loss.backward()
    optimizer.step(loss.detach())
    torch.testing.assert_close(model.table.detach(), before - 0.25 * wanted)


def test_row_sparse_adam_leaves_other_rows_alone():
    model = Tables()
    before = model.table.detach().clone()
    optimizer = Optimizer(OPTIMIZERS["adam"]([model.weight]), sibling("adam", [model.table], {}))
    for ids in batches(among=10):
        loss = model.loss(ids, sparse=True)
        loss.backward()
        optimizer.step(loss.detach())
    assert torch.equal(model.table[10:], before[10:])
    assert not torch.equal(model.table[:10], before[:10])


def test_the_norm_merges_duplicates_of_sparse_rows():
    model, ids = Tables(), torch.tensor([3, 3, 3, 5])
    optimizer = Optimizer(OPTIMIZERS["adam"]([model.weight]), sibling("adam", [model.table], {}))
    model.loss(ids, sparse=True).backward()
    assert len(expect(model.table)[0].ids) == 4
    found = optimizer.norm()
    twin = Tables()
    twin.loss(ids).backward()
    torch.testing.assert_close(found, nn.utils.clip_grad_norm_(twin.parameters(), 1.0))


@pytest.mark.parametrize("clip", [None, 0.01])
def test_torchs_sparse_gradients_are_merged_and_clipped(clip):
    """Of duplicates neither the norm nor the step knows: dense twins say so."""
    mine, theirs = Tables(), Tables()
    optimizer = Optimizer(torch.optim.SGD([mine.weight], lr=0.5), torch.optim.SGD([mine.table], lr=0.5))
    other = Optimizer(torch.optim.SGD(theirs.parameters(), lr=0.5))
    for ids in batches():
        norms = []
        for model, by, sparse in ((mine, optimizer, True), (theirs, other, False)):
            loss = model.loss(ids, sparse=sparse)
            loss.backward()
            assert model.table.grad.is_sparse == sparse
            norms.append(by.step(loss.detach(), clip)[0])
        torch.testing.assert_close(*norms)
    for one, two in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(one, two)


def test_torchs_sparse_adam_goes_with_a_dense_one():
    mine, theirs = Tables(), Tables()
    optimizer = Optimizer(torch.optim.Adam([mine.weight]), torch.optim.SparseAdam([mine.table]))
    others = torch.optim.Adam([theirs.weight]), torch.optim.SparseAdam([theirs.table])
    for number, ids in enumerate(batches()):
        loss = mine.loss(ids, sparse=True)
        loss.backward()
        _, finite = optimizer.step(loss.detach() * (math.nan if number == 2 else 1), clip=1e-3)
        if finite:
            theirs.loss(ids, sparse=True).backward()
            dense = [each.grad.to_dense() for each in theirs.parameters()]
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in dense]))
            for each in theirs.parameters():
                each.grad = each.grad * min(1.0, 1e-3 / (float(norm) + 1e-6))
            for each in others:
                each.step()
                each.zero_grad()
    for one, two in zip(mine.parameters(), theirs.parameters()):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("wrong", ["loss", "dense", "sparse"])
@pytest.mark.parametrize("name", ROWS)
def test_a_step_that_is_not_finite_changes_nothing(name, wrong):
    model = Tables()
    optimizer = Optimizer(OPTIMIZERS[name]([model.weight]), sibling(name, [model.table], {}))
    for number, ids in enumerate(batches(4)):
        before = [each.detach().clone() for each in model.parameters()]
        state = optimizer.tensors()
        state = {key: value.clone() for key, value in state.items()}
        loss = model.loss(ids, sparse=True)
        loss.backward()
        loss = loss.detach()
        if number == 2:
            if wrong == "loss":
                loss = loss * math.nan
            elif wrong == "dense":
                model.weight.grad[0, 0] = math.inf
            else:
                expect(model.table)[0].values[1] = math.nan
        _, finite = optimizer.step(loss, 1.0)
        same = all(torch.equal(one, two) for one, two in zip(before, model.parameters()))
        assert bool(finite) == (number != 2)
        assert same == (number == 2)
        if number == 2:
            assert all(torch.equal(value, state[key]) for key, value in optimizer.tensors().items())
        assert all(each.grad is None for each in model.parameters())


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_state_comes_back_bit_by_bit(name, sparse):
    if sparse and name not in ROWS:
        pytest.skip("no sibling")
    options = {key: value for key, value in OPTIONS[name].items() if not (sparse and key == "momentum")}

    def built(model):
        rows = [model.table] if sparse else []
        others = [each for each in model.parameters() if not any(each is row for row in rows)]
        first = OPTIMIZERS[name](others, **options)
        return Optimizer(first, *([sibling(name, rows, options)] if rows else []))

    whole, cut = Tables(), Tables()
    one, two = built(whole), built(cut)
    for number, ids in enumerate(batches()):
        if number == 3:
            saved = {key: value.clone() for key, value in two.tensors().items()}
            again = Tables()
            again.load_state_dict(cut.state_dict())
            cut, two = again, built(again)
            two.restore(saved)
        for model, optimizer in ((whole, one), (cut, two)):
            loss = model.loss(ids, sparse=sparse)
            loss.backward()
            optimizer.set_rate(0.5)
            optimizer.step(loss.detach(), 1.0)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), cut.parameters()))


def test_row_sparse_optimizers_say_what_they_lack():
    table = [Tables().table]
    with pytest.raises(
        ValueError, match=r"there is no row-sparse optimizer 'adamw'; .*choose one of: adam, sgd, adagrad"
    ):
        sibling("adamw", table, {})
    with pytest.raises(ValueError, match="row-sparse tables take no momentum"):
        sibling("sgd", table, {"momentum": 0.9})


def scales(name, steps, per_epoch=10, **options):
    schedule = pick("schedule", SCHEDULES, name, **options)
    return [schedule.scale(step, step / per_epoch, steps) for step in range(steps)]


def test_constant_rises_then_stays():
    assert scales("constant", 5) == [1, 1, 1, 1, 1]
    assert scales("constant", 6, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_cosine_is_its_formula():
    found = scales("cosine", 110, warmup=10, end=0.1)
    assert found[:10] == pytest.approx([(step + 1) / 10 for step in range(10)])
    wanted = [0.1 + 0.9 * (1 + math.cos(math.pi * step / 100)) / 2 for step in range(100)]
    assert found[10:] == pytest.approx(wanted)
    assert found[10] == 1
    assert found[60] == pytest.approx(0.55)


@pytest.mark.parametrize("steps", [1, 2, 3, 60, 199, 200])
def test_cosine_reaches_its_peak_and_falls_in_short_runs_too(steps):
    found = scales("cosine", steps)
    assert found.index(1) == max(0, steps // 2 - 1)
    assert sum(found) == pytest.approx(steps / 2 + 1, abs=0.5)
    assert found[-1] < 0.01 or steps < 60


@pytest.mark.parametrize("name", ["constant", "cosine"])
def test_a_warm_up_that_ends_within_a_step_goes_no_higher(name):
    assert max(scales(name, 20, warmup=7.5)) == 1


@pytest.mark.parametrize("per_epoch", [1, 7, 10, 1327])
def test_step_holds_for_four_epochs_then_halves(per_epoch):
    """Zaremba et al. 2014, whose epochs count from 1: lr_decay ** max(epoch - 4, 0)"""
    found = scales("step", 13 * per_epoch, per_epoch)
    for epoch in range(1, 14):
        here = found[(epoch - 1) * per_epoch : epoch * per_epoch]
        assert set(here) == {0.5 ** max(epoch - 4, 0)}, epoch


def test_newbob_decays_when_it_improves_too_little():
    schedule = Newbob(factor=0.5, threshold=0.01)
    found = []
    for perplexity in (100, 90, 89.5, 80, 85, 79.9, 70):
        schedule.observe(perplexity)
        found.append(schedule.scale(0, 0, 1))
    assert found == [1, 1, 0.5, 0.5, 0.25, 0.125, 0.125]  # 79.9 is less than 1 % below the best, 80
    again = Newbob(factor=0.5, threshold=0.01)
    again.restore(schedule.state())
    for each in (schedule, again):
        each.observe(69.9)
    assert again.scale(0, 0, 1) == schedule.scale(0, 0, 1) == 0.0625


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [
        *((name, {"warmup": -1}, "warmup = -1: in a schedule it is at least 0") for name in SCHEDULES),
        ("cosine", {"end": -0.5}, "end = -0.5: in a schedule it is at least 0 and at most 1"),
        ("cosine", {"end": math.nan}, "end = nan"),
        ("step", {"hold": -3}, "hold = -3: in a schedule it is at least 0$"),
        ("step", {"factor": 1e300}, "factor = 1e.300: in a schedule it is at least 0 and at most 1"),
        ("newbob", {"factor": -1.0}, "factor = -1.0"),
        ("newbob", {"threshold": math.nan}, "threshold = nan"),
    ],
)
def test_a_schedule_that_would_climb_is_refused(name, options, what):
    with pytest.raises(ValueError, match=what):
        pick("schedule", SCHEDULES, name, **options)
