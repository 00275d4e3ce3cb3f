"""Row optimizers: PyTorch's own, given the same rows, judge every step; then a user's whole loop."""

import copy
import io
import pickle
import re
import weakref

import pytest
import torch
from torch import nn

from selfnorm import Output, SampledLoss
from selfnorm.criteria import CRITERIA
from selfnorm.ops import expect, take
from selfnorm.ops.rows import kept_half, waiting
from selfnorm.optim import OPTIMIZERS, Optimizer, RowAdagrad, RowAdam, RowSGD
from selfnorm.registry import pick
from selfnorm.samplers import SAMPLERS

C, H = 40, 5
PAIRS = {
    "adam": (
        lambda tables: RowAdam(tables, lr=0.05, beta1=0.8, beta2=0.95, eps=1e-12),
        lambda tables: torch.optim.Adam(tables, lr=0.05, betas=(0.8, 0.95), eps=1e-12, foreach=False),
    ),
    "adagrad": (lambda tables: RowAdagrad(tables, lr=0.3), lambda tables: torch.optim.Adagrad(tables, lr=0.3)),
    "sgd": (lambda tables: RowSGD(tables, lr=0.2), lambda tables: torch.optim.SGD(tables, lr=0.2)),
}
SAMPLED = [name for name in CRITERIA if pick("criterion", CRITERIA, name).sampled]


def tables():
    """The same weight and bias at every call."""
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=generator)) for shape in ((C, H), (C,))]


def passes(number=7):
    """Ids with duplicates, and a random gradient for each; the first passes touch the first rows alone."""
    generator = torch.Generator().manual_seed(1)
    for step in range(number):
        ids = torch.randint(0, 5 * (step + 1), (4, 6), generator=generator)
        yield ids, torch.randn(4, 6, H, generator=generator), torch.randn(4, 6, generator=generator)


def backward(weight, bias, ids, of_weight, of_bias):
    loss = (take(weight, ids, sparse=True) * of_weight).sum() + (take(bias, ids, sparse=True) * of_bias).sum()
    loss.backward()
    return loss.detach()


def densely(weight, bias, *each):
    """The same gradients, dense: zero where a row is not touched."""
    backward(weight, bias, *each)
    for table in (weight, bias):
        table.grad = table.grad.to_dense()


def test_adam_is_torchs_for_rows_that_are_touched_and_rows_that_are_not():
    """Momentum moves a row on while nothing touches it: caught up with when it is touched again, and in `settle`."""
    mine, theirs = tables(), tables()
    optimizer, other = PAIRS["adam"][0](mine), PAIRS["adam"][1](theirs)
    generator = torch.Generator().manual_seed(3)
    for step in range(300):
        few = torch.randint(0, C, (1, 2), generator=generator)  # a row is touched at every twentieth step
        each = few, torch.randn(1, 2, H, generator=generator), torch.randn(1, 2, generator=generator)
        densely(*theirs, *each)
        other.step()
        other.zero_grad()
        if step == 150:  # from here on the divisors 1 - beta^t are 1
            optimizer.load_state_dict(other.state_dict())
            for table, wanted in zip(mine, theirs):
                table.data.copy_(wanted)
        elif step > 150:
            backward(*mine, *each)
            optimizer.step()
    assert max(float((one - two).detach().abs().max()) for one, two in zip(mine, theirs)) > 0.01  # rows are behind
    optimizer.settle()
    for found, wanted in zip(mine, theirs):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for table, twin in zip(mine, theirs):
        torch.testing.assert_close(
            optimizer.state[table]["exp_avg"], other.state[twin]["exp_avg"], rtol=1e-4, atol=1e-6
        )


def test_from_the_first_step_adam_is_near_torchs():
    """While 1 - beta^t still grows, what a row catches up with is not exact."""
    mine, theirs = tables(), tables()
    optimizer, other = PAIRS["adam"][0](mine), PAIRS["adam"][1](theirs)
    generator = torch.Generator().manual_seed(4)
    for _ in range(100):
        few = torch.randint(0, C, (1, 2), generator=generator)
        each = few, torch.randn(1, 2, H, generator=generator), torch.randn(1, 2, generator=generator)
        densely(*theirs, *each)
        backward(*mine, *each)
        optimizer.step()
        other.step()
        other.zero_grad()
    optimizer.settle()
    moved = float(torch.linalg.vector_norm((theirs[0] - tables()[0]).detach()))
    assert float(torch.linalg.vector_norm((mine[0] - theirs[0]).detach())) < 0.1 * moved


@pytest.mark.parametrize("name", ["adagrad", "sgd"])
def test_every_step_is_torchs(name):
    mine, theirs = tables(), tables()
    optimizer, other = PAIRS[name][0](mine), PAIRS[name][1](theirs)
    for step, each in enumerate(passes()):
        backward(*mine, *each)
        backward(*theirs, *each)
        assert all(table.grad is None for table in mine)
        assert all(table.grad.is_sparse for table in theirs)
        optimizer.step()
        other.step()
        other.zero_grad()
        for found, wanted in zip(mine, theirs):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6, msg=f"step {step}")


def test_a_table_that_gets_nothing_does_not_count_the_step():
    weight, bias = tables()
    optimizer = PAIRS["adam"][0]([weight, bias])
    for ids, of_weight, _ in passes(3):
        (take(weight, ids, sparse=True) * of_weight).sum().backward()
        optimizer.step()
    assert [float(optimizer.state[table]["step"]) for table in (weight, bias)] == [3.0, 0.0]


@pytest.mark.parametrize("name", PAIRS)
def test_two_passes_and_one_step_are_the_sum(name):
    mine, theirs = tables(), tables()
    optimizer, other = PAIRS[name][0](mine), PAIRS[name][0](theirs)
    every = list(passes(6))
    for first, second in zip(every[::2], every[1::2]):
        for each in (first, second):
            backward(*mine, *each)
            optimizer.touched()  # a look at the gradients in between changes nothing
        assert len(expect(mine[0])) == 2
        backward(*theirs, *(torch.cat(parts) for parts in zip(first, second)))
        optimizer.step()
        other.step()
    for found, wanted in zip(mine, theirs):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_clipping_is_that_of_dense_gradients(name):
    """The norm is over merged rows of all tables and the other parameters; clip_grad_norm_ on dense twins says so."""
    mine, theirs = tables(), tables()
    one, two = (nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = Optimizer(OPTIMIZERS["sgd"]([one], lr=0.5), PAIRS[name][0](mine))
    other, others = torch.optim.SGD([two], lr=0.5), PAIRS[name][1](theirs)
    for each in passes():
        loss = backward(*mine, *each)
        one.square().sum().backward()
        norm, _ = optimizer.step(loss, clip=0.5)
        backward(*theirs, *each)
        two.square().sum().backward()
        dense = [nn.Parameter(each.detach().clone()) for each in (*theirs, two)]
        for twin, table in zip(dense, (*theirs, two)):
            twin.grad = table.grad.to_dense().clone()
        torch.testing.assert_close(norm, nn.utils.clip_grad_norm_(dense, 0.5))
        two.grad = dense[2].grad
        for twin, table in zip(dense, theirs):
            table.grad = twin.grad if name == "adam" else twin.grad.sparse_mask(table.grad.coalesce())
        for each in (other, others):
            each.step()
            each.zero_grad()
        for found, wanted in zip((*mine, one), (*theirs, two)):
            near = 0.2 if name == "adam" and found is not one else 1e-6  # Adam's rows are behind at the first steps
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=near)


@pytest.mark.parametrize("name", PAIRS)
def test_a_saved_state_goes_on_bit_by_bit(name):
    whole = tables()
    optimizer, half = PAIRS[name][0](whole), None
    for step, each in enumerate(passes()):
        if step == 4:
            half = copy.deepcopy([whole, optimizer.state_dict()])
            cut = half[0]
            again = PAIRS[name][0](cut)
            buffers = [dict(again.state[table]) for table in cut]
            again.load_state_dict(half[1])
            for table, held in zip(cut, buffers):  # by a CUDA graph, perhaps
                assert all(again.state[table][key] is value for key, value in held.items())
        for made, by in [(whole, optimizer)] + ([(cut, again)] if half else []):
            backward(*made, *each)
            by.step()
    assert all(torch.equal(one, two) for one, two in zip(whole, cut))


@pytest.mark.parametrize("name", PAIRS)
def test_its_own_state_changes_nothing(name):
    """What it returns are the tensors themselves, as with torch's optimizers."""
    weight, bias = tables()
    optimizer = PAIRS[name][0]([weight, bias])
    for each in passes():
        backward(weight, bias, *each)
        optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    whole = Optimizer(optimizer)
    for load, own in (
        (optimizer.load_state_dict, optimizer.state_dict),
        (whole.load_state_dict, whole.state_dict),
        (whole.restore, whole.tensors),
    ):
        load(own())
        torch.testing.assert_close(optimizer.state_dict(), before, rtol=0, atol=0)
    assert float(before["state"][0]["step"]) == 7


def test_the_state_of_several_comes_back():
    (weight, bias), body = tables(), nn.Linear(H, H)
    first = Optimizer(torch.optim.Adam(body.parameters(), lr=0.1), RowAdam([weight, bias], lr=0.1))
    for each in passes():
        loss = backward(weight, bias, *each)
        body(torch.ones(H)).sum().backward()
        first.step(loss)
    saved = io.BytesIO()
    torch.save(first.state_dict(), saved)
    saved.seek(0)
    second = Optimizer(torch.optim.Adam(body.parameters(), lr=0.2), RowAdam(tables(), lr=0.2))
    second.load_state_dict(torch.load(saved, weights_only=True))
    torch.testing.assert_close(second.state_dict(), first.state_dict(), rtol=0, atol=0)
    with pytest.raises(ValueError, match="the state to load has 2 parts, not 1"):
        Optimizer(RowAdam(tables())).load_state_dict(first.state_dict())


def test_a_buffer_of_ids_may_be_filled_again_before_the_step():
    (weight, bias), (wanted, offset) = tables(), tables()
    optimizer, torchs = RowSGD([weight, bias], lr=0.1), torch.optim.SGD([wanted, offset], lr=0.1)
    buffer = torch.empty(4, 6, dtype=torch.long)
    for ids, *values in passes(2):
        backward(weight, bias, buffer.copy_(ids), *values)
        (wanted[ids] * values[0]).sum().backward()
        (offset[ids] * values[1]).sum().backward()
    buffer.zero_()
    optimizer.step()
    torchs.step()
    torch.testing.assert_close(weight, wanted)
    torch.testing.assert_close(bias, offset)


def test_of_two_optimizers_of_a_table_each_sees_what_is_there_now():
    weight, _ = tables()
    first, second = RowSGD([weight], lr=1.0), RowSGD([weight], lr=1.0)
    take(weight, torch.tensor([1]), True).sum().backward()
    first.square()
    second.zero_grad()
    take(weight, torch.tensor([7]), True).sum().backward()
    before = weight.detach().clone()
    first.step()
    assert (weight != before).any(1).nonzero().tolist() == [[7]]


def test_moments_of_a_table_in_half_precision_are_loaded_in_float32():
    table = nn.Parameter(torch.randn(C, H).bfloat16())
    optimizer = RowAdam([table])
    take(table, torch.arange(5), sparse=True).square().sum().backward()
    optimizer.step()
    again = RowAdam([table])
    again.load_state_dict(optimizer.state_dict())
    for name, value in optimizer.state[table].items():
        assert again.state[table][name].dtype == torch.float32
        assert torch.equal(again.state[table][name], value)


def test_a_state_brings_its_rule():
    mine, theirs = tables(), tables()
    optimizer, other = PAIRS["adam"][0](mine), RowAdam(theirs)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each in passes():
        for made, by in ((mine, optimizer), (theirs, other)):
            backward(*made, *each)
            by.step()
    optimizer.settle()
    other.settle()
    assert all(torch.equal(one, two) for one, two in zip(mine, theirs))
    group = other.state_dict()["param_groups"][0]
    assert (group["betas"], group["eps"]) == ((0.8, 0.95), 1e-12)
    adagrad = RowAdagrad(tables(), eps=0.5)
    adagrad.load_state_dict(torch.optim.Adagrad(tables(), eps=0.25).state_dict())
    assert adagrad.param_groups[0]["eps"] == 0.25


def test_a_state_of_old_brings_no_rule():
    """Written before the rule had its place there: what the optimizer was built with counts."""
    optimizer = PAIRS["adam"][0](tables())
    state = optimizer.state_dict()
    for name in ("betas", "eps"):
        del state["param_groups"][0][name]
    optimizer.load_state_dict(state)
    group = optimizer.param_groups[0]
    assert (group["betas"], group["eps"]) == ((0.8, 0.95), 1e-12)


def test_groups_have_rules_of_their_own():
    mine, theirs = tables(), tables()
    optimizer = RowAdam([{"params": mine[:1], "betas": (0.5, 0.9)}, {"params": mine[1:]}], lr=0.1)
    others = [RowAdam(theirs[:1], lr=0.1, beta1=0.5, beta2=0.9), RowAdam(theirs[1:], lr=0.1)]
    for each in passes():
        backward(*mine, *each)
        backward(*theirs, *each)
        for by in (optimizer, *others):
            by.step()
    assert all(torch.equal(one, two) for one, two in zip(mine, theirs))
    with pytest.raises(ValueError, match=r"beta1 = 0.9 and beta2 = 1.0: both are at least 0 and below 1"):
        RowAdam([{"params": tables(), "betas": (0.9, 1.0)}])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            lambda: RowAdam([nn.Parameter(torch.ones(1, H))]),
            r"'exp_avg' of shape \(1, 5\).*shape \(40, 5\) needs \(40,",
        ),
        (lambda: RowAdam([nn.Parameter(torch.ones(C + 1, H))]), r"'exp_avg' of shape \(41, 5\).*same parameters"),
        (lambda: RowAdagrad([tables()[0]]), r"has 'sum', which RowAdam does not keep; load the state of .* same kind"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(given, message):
    table = tables()[0]
    optimizer = RowAdam([table])
    take(table, torch.arange(5), sparse=True).square().sum().backward()
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=message):
        optimizer.load_state_dict(given().state_dict())
    for name, value in optimizer.state[table].items():
        assert torch.equal(value, before["state"][0][name]), name


@pytest.mark.parametrize("name", PAIRS)
def test_the_default_dtype_changes_nothing(name):
    every = list(passes())

    def trained(body, *mine):
        optimizer = Optimizer(torch.optim.SGD([body]), PAIRS[name][0](mine))
        for each in every:
            optimizer.set_rate(0.5)
            norm, _ = optimizer.step(backward(*mine, *each), clip=1.0)
        optimizer.settle()
        assert {each.dtype for each in optimizer.parts[1].state[mine[0]].values()} == {torch.float32}
        return [norm, *mine]

    one, two = ([nn.Parameter(torch.ones(3)), *tables()] for _ in range(2))
    wanted = trained(*one)
    torch.set_default_dtype(torch.float64)
    try:
        found = trained(*two)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(one, two) for one, two in zip(found, wanted))


def test_a_table_can_be_added_later():
    weight, bias = tables()
    optimizer = RowAdam([weight])
    optimizer.add_param_group({"params": [bias], "lr": 0.0})
    backward(weight, bias, *next(passes()))
    optimizer.step()
    assert torch.equal(bias, tables()[1])
    assert not torch.equal(weight, tables()[0])


def test_a_copy_goes_on_by_itself():
    mine = tables()
    optimizer = RowAdam(mine, lr=0.1, half=True)
    for step, each in enumerate(passes()):
        if step == 3:
            copied, other = copy.deepcopy((mine, optimizer))
        backward(*mine, *each)
        optimizer.step()
        if step >= 3:
            backward(*copied, *each)
            other.step()
    assert all(torch.equal(one, two) for one, two in zip(mine, copied))
    assert all(one is not two for one, two in zip(mine, copied))


def test_when_the_optimizer_is_gone_nobody_waits():
    """Others train the table again, and nothing piles up; also in a pass whose first half it has seen."""
    weight, bias = tables()
    optimizer = RowAdam([weight, bias])
    ids, of_weight, of_bias = next(passes())
    loss = (take(weight, ids, sparse=True) * of_weight).sum()
    backward(weight, bias, ids, of_weight, of_bias)
    left = weakref.ref(expect(weight)[0].values)
    del optimizer
    assert left() is None
    loss.backward()
    wanted = weight.grad.to_dense()
    weight.grad = None
    other = torch.optim.SparseAdam([weight, bias])
    backward(weight, bias, ids, of_weight, of_bias)
    torch.testing.assert_close(weight.grad.to_dense(), wanted)
    other.step()
    assert not torch.equal(weight, tables()[0])


def test_of_two_optimizers_one_may_go():
    weight, bias = tables()
    optimizer = RowAdam([weight, bias])
    RowSGD([weight, bias])
    backward(weight, bias, *next(passes()))
    optimizer.step()
    assert not torch.equal(weight, tables()[0])


@pytest.mark.parametrize("whole", [True, False], ids=["module", "parameters"])
def test_a_loaded_table_waits_for_nobody(whole):
    """Neither pieces nor the copy in half precision are kept; the file is no larger for them."""
    sizes = []
    for used in (False, True):
        head, file = Output(C, H, sparse=True), io.BytesIO()
        optimizer = RowAdam(head.parameters(), half=True) if used else None
        if used:
            backward(head.weight, head.bias, *next(passes()))
        torch.save(head if whole else dict(head.named_parameters()), file)
        sizes.append(file.tell())
    file.seek(0)
    loaded = torch.load(file, weights_only=not whole)
    weight, bias = (loaded.weight, loaded.bias) if whole else (loaded["weight"], loaded["bias"])
    backward(weight, bias, *next(passes()))
    assert weight.grad is not None
    assert kept_half(weight) is None
    assert sizes[1] < sizes[0] + 500
    assert optimizer.square() > 0  # the one that was saved goes on
    weight.grad = bias.grad = None
    again = RowAdam([weight, bias], lr=0.1, half=True)
    backward(weight, bias, *next(passes()))
    again.step()
    assert bool((weight != 0).any())
    assert kept_half(weight) is not None


def test_a_table_and_its_optimizer_are_loaded_together():
    mine = tables()
    optimizer = RowAdam(mine, lr=0.1)
    every = list(passes())
    backward(*mine, *every[0])
    optimizer.step()
    copied, other = pickle.loads(pickle.dumps((mine, optimizer)))
    for made, by in ((mine, optimizer), (copied, other)):
        backward(*made, *every[1])
        by.step()
    assert all(torch.equal(one, two) for one, two in zip(mine, copied))


def test_a_pickle_of_old_waits_for_nobody():
    weight, bias = tables()
    weight.touched = []  # as it was before
    backward(weight, bias, *next(passes()))
    assert weight.grad is not None


def test_zero_grad_drops_the_pieces():
    weight, bias = tables()
    optimizer = RowSGD([weight, bias])
    backward(weight, bias, *next(passes()))
    assert optimizer.square() > 0
    optimizer.zero_grad()
    assert not expect(weight)
    assert optimizer.square() == 0
    optimizer.step()
    assert torch.equal(weight, tables()[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table: RowSGD([table], lr=-1), r"lr = -1: a learning rate is at least 0"),
        (lambda table: RowAdam([table], lr=float("nan")), r"lr = nan: a learning rate is at least 0"),
        (lambda table: RowAdam([table], beta1=1.0), r"beta1 = 1.0 and beta2 = 0.999: both are at least 0 and below 1"),
        (lambda table: RowAdam([table], beta2=-0.1), r"beta2 = -0.1: both are at least 0 and below 1"),
        (lambda table: RowAdam([table], 1e-3, (0.9, 0.99)), r"beta1 = \(0.9, 0.99\): it is a number; give beta1 and"),
        (lambda table: Optimizer(), "an Optimizer is made of others"),
    ],
)
def test_wrong_numbers_are_one_sentence(call, message):
    with pytest.raises(ValueError, match=message):
        call(tables()[0])


def test_a_group_may_have_the_constructors_names_and_no_others():
    weight, bias = tables()
    optimizer = RowAdam([{"params": [weight], "beta1": 0.5}], beta2=0.9)
    assert optimizer.param_groups[0]["betas"] == (0.5, 0.9)
    for options, message in (
        ({"weight_decay": 0.1}, "weight_decay = 0.1: RowAdam has none; leave it out"),
        ({"beta2": 2.0}, "beta1 = 0.9 and beta2 = 2.0"),
        ({"lr": -1.0}, "lr = -1.0"),
        ({"initial_accumulator_value": 3}, "initial_accumulator_value = 3: RowAdam has none"),
        ({"betas": 0.9}, "not iterable|cannot unpack"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            optimizer.add_param_group({"params": [bias], **options})
    for each in passes(1):
        backward(weight, bias, *each)
    optimizer.step()  # what was refused left nothing behind
    assert bias.grad is not None
    decaying = torch.optim.AdamW([weight]).state_dict()
    with pytest.raises(ValueError, match=r"weight_decay = 0\.01: RowAdam has none"):
        optimizer.load_state_dict(decaying)


def test_a_dense_gradient_is_not_passed_over():
    weight, bias = tables()
    optimizer = RowAdam([weight, bias])
    SampledLoss(C, k=8)(torch.randn(6, H), weight, torch.arange(6), bias).backward()  # sparse=True was forgotten
    with pytest.raises(ValueError, match=r"shape \(40, 5\) has a gradient of its own.*give the loss sparse=True"):
        optimizer.step()


@pytest.mark.parametrize("name", PAIRS)
def test_a_table_that_is_input_and_output_at_once(name):
    """Its rows are taken as the error says; dense twins judge."""
    mine, theirs = nn.Embedding.from_pretrained(tables()[0], freeze=False), tables()[0]
    optimizer, other = PAIRS[name][0]([mine.weight]), PAIRS[name][1]([theirs])
    losses = [SampledLoss(C, k=8, sparse=sparse, generator=torch.Generator()) for sparse in (True, False)]
    ids, targets = torch.arange(12), torch.arange(12).flip(0) * 2
    losses[0](mine(ids), mine.weight, targets).backward()
    with pytest.raises(
        ValueError, match=r"take the rows of a tied embedding by selfnorm\.ops\.take\(table, ids, True\)"
    ):
        optimizer.step()
    optimizer.zero_grad()
    for step in range(1 if name == "adam" else 5):  # Adam's rows are behind from then on
        for sparse, table, loss, by in zip((True, False), (mine.weight, theirs), losses, (optimizer, other)):
            loss.generator.manual_seed(step)
            loss(take(table, ids, sparse), table, targets).backward()
            by.step()
            by.zero_grad()
    torch.testing.assert_close(mine.weight, theirs)
    assert not torch.equal(theirs, tables()[0])


@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("build", [RowAdam, RowSGD])
def test_a_scaler_is_refused(build, unscaled):
    weight, bias = tables()
    optimizer, scaler = build([weight, bias]), torch.amp.GradScaler("cpu")
    loss = take(weight, torch.arange(3), sparse=True).square().sum()
    scaler.scale(loss).backward()
    if unscaled:
        scaler.unscale_(optimizer)
    with pytest.raises(
        ValueError, match=r"GradScaler cannot find the gradients of Row.*train without one in bfloat16 or"
    ):
        scaler.step(optimizer)
    assert torch.equal(weight, tables()[0])
    optimizer.step()  # by itself it goes on
    assert not torch.equal(weight, tables()[0])


def test_a_scaler_that_is_off_is_none():
    weight, bias = tables()
    optimizer, scaler = RowAdam([weight, bias]), torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(take(weight, torch.arange(3), sparse=True).square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(weight, tables()[0])


def test_a_strided_table_is_refused_and_stays_as_it_was():
    table = nn.Parameter(torch.randn(H, C).T)
    with pytest.raises(ValueError, match=r"shape \(40, 5\) is not contiguous; give a row optimizer its copy"):
        RowAdam([table], half=True)
    take(table, torch.arange(3), sparse=True).sum().backward()
    assert table.grad is not None  # nobody waits for its rows
    assert not hasattr(table, "half_copy")


@pytest.mark.parametrize("build", [RowAdam, RowAdagrad, RowSGD])
@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (5, 0)], ids=str)
def test_a_table_without_rows_is_refused(shape, build):
    table = nn.Parameter(torch.ones(shape))
    with pytest.raises(ValueError, match=rf"shape {re.escape(str(shape))} has no rows, or none.*at least one row"):
        build([table])
    assert waiting(table) is None


def pairs():
    """Every sampled criterion with every sampler that goes with it."""
    for name in SAMPLED:
        for sampler in SAMPLERS:
            if (sampler == "excluding") == (name == "mode2"):
                yield name, sampler


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(("name", "sampler"), list(pairs()))
def test_a_users_loop_learns(name, sampler, with_bias, groups):
    """The loss falls, and rows that were neither drawn nor targets stay as they were, bit by bit."""
    size, width, n = 400, 6, 24
    generator = torch.Generator().manual_seed(2)
    hidden, targets = torch.randn(n, width, generator=generator), torch.arange(n) % 7
    weight = nn.Parameter(torch.randn(size, width, generator=generator) * 0.1)
    bias = nn.Parameter(torch.full((size,), -3.0)) if with_bias else None
    before, drawn = weight.detach().clone(), []
    chance = torch.Generator()
    loss = SampledLoss(size, name, sampler=sampler, k=20, groups=groups, sparse=True, generator=chance)
    optimizer = RowAdam([weight] if bias is None else [weight, bias], lr=0.1)

    @torch.no_grad()
    def now():
        chance.manual_seed(4)
        return sum(float(loss(hidden, weight, targets, bias)) for _ in range(10)) / 10

    def closure():
        optimizer.zero_grad()
        value = loss(hidden, weight, targets, bias)
        value.backward()
        drawn.extend(piece.ids.flatten() for piece in expect(weight))
        return value

    first = now()
    chance.manual_seed(3)
    assert all(float(optimizer.step(closure).detach()) for _ in range(20))
    assert now() < first - 0.5
    touched = torch.zeros(size, dtype=torch.bool)
    touched[torch.cat(drawn)] = True
    assert touched[targets].all()
    assert int((~touched).sum()) > size / 4
    assert torch.equal(weight[~touched], before[~touched])
    moved = (weight != before).any(-1)
    assert moved[targets].all()
    assert moved[touched].double().mean() > 0.5  # a stand-in of mode2 counts where a target needs it
