"""Samples that each position has to itself: plain in float64 judges the kernels, dense and row by row."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from selfnorm import SampledLoss
from selfnorm.criteria import CRITERIA
from selfnorm.functional import sampled_loss
from selfnorm.noise import LogUniform
from selfnorm.ops import ADAM, Rule, Scalars, expect, own, plain, rows, stretches, updates
from selfnorm.ops.rows import NOWHERE, Piece, merged
from selfnorm.ops.updates import FusedRows, PlainRows
from selfnorm.optim import RowAdam
from selfnorm.output import Layer
from selfnorm.registry import pick
from selfnorm.samplers.excluding import Excluding
from selfnorm.samplers.sample import Sample

pytest.importorskip("triton", reason="Triton is not installed")

GPU = torch.cuda.is_available()
PLACE = "cuda" if GPU else "cpu"
DTYPES = [torch.float32, torch.bfloat16] if GPU else [torch.float32]  # the interpreter's bfloat16 is cut, not rounded
SLACK = {torch.float32: 2e-6, torch.bfloat16: 2e-3}
SHAPES = [(16, 32, 32), (17, 5, 33), (1, 40, 8), (40, 17, 300), (3, 1, 16)]  # N, K, H
C = 50
SAMPLED = [name for name, made in CRITERIA.items() if made.sampled]


def case(shape):
    """Half of the ids are word 2, which 7 of 8 positions have, several times: its run goes over many chunks."""
    n, k, h = shape
    chance = torch.Generator().manual_seed(n * k + h)
    hidden, weight = 2 * torch.randn(n, h, generator=chance), torch.randn(C, h, generator=chance) / h**0.5
    ids, targets = (torch.randint(3, C, size, generator=chance) for size in ((n, k), (n,)))
    ids[torch.rand(n, k, generator=chance) < 0.5] = 2
    ids[::8] = ids[::8].clamp(min=3)
    ids = torch.where(ids == targets[:, None], 1, ids)  # Mode2 is for samples without the target
    expected = torch.rand(n, k, generator=chance) + 0.05
    sample = Sample(ids, expected, torch.rand(n, generator=chance) + 0.5)
    sample = Sample(*(each.to(PLACE) for each in (sample.ids, sample.expected, sample.expected_target)))
    return *(each.to(PLACE) for each in (hidden, weight, torch.randn(C, generator=chance) - 4, targets)), sample


def run(name, made, impl, dtype, bias=True, sparse=False):
    hidden, weight, offsets, targets, sample = made
    hidden, weight = (each.to(dtype, copy=True).requires_grad_() for each in (hidden, weight))
    offsets = offsets.to(torch.promote_types(dtype, torch.float32), copy=True).requires_grad_() if bias else None
    loss = pick("criterion", CRITERIA, name).loss(hidden, Layer(weight, offsets, sparse, impl), targets, sample)
    (loss * torch.linspace(0.5, 1.5, len(loss), device=PLACE)).sum().backward()
    found = {"loss": loss.detach(), "hidden": hidden.grad, "weight": weight.grad}
    return found | ({"bias": offsets.grad} if bias else {})


def distance(found, truth):
    return float((found.to_dense().double() - truth.to_dense()).norm() / truth.to_dense().norm())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", SAMPLED)
def test_as_close_to_the_truth_as_plain(name, shape, dtype):
    made = case(shape)
    truth = run(name, made, "plain", torch.float64)
    by_plain, by_fused = (run(name, made, impl, dtype) for impl in ("plain", "fused"))
    for each, exact in truth.items():
        assert distance(by_fused[each], exact) <= 1.5 * distance(by_plain[each], exact) + SLACK[dtype], each


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_what_was_asked_for(sparse, bias):
    made = case((20, 6, 16))
    found = run("nce", made, "fused", torch.float32, bias, sparse)
    assert found["weight"].is_sparse == sparse
    for name, exact in run("nce", made, "plain", torch.float64, bias, sparse).items():
        assert distance(found[name], exact) < 1e-5, name


@pytest.mark.parametrize("chunk", [16, 128])
@pytest.mark.parametrize("width", [24, 0, 600])
def test_rows_that_come_thousands_of_times(width, chunk, monkeypatch):
    """The kernels part long runs into chunks; also where a run ends with a chunk, and where entries count nothing."""
    monkeypatch.setattr(updates, "CHUNK", chunk)
    chance, every, size = torch.Generator().manual_seed(0), 9, 40
    ids = torch.randint(4, size, (9 * 60,), generator=chance)
    ids[: 2 * chunk] = 0  # two whole chunks, when sorted
    ids[300:430] = 1
    ids[430:440] = NOWHERE
    factor, outer = torch.randn(len(ids), generator=chance), torch.randn(60, width or 1, generator=chance)
    values = torch.zeros(0, width) if width else torch.zeros(0)
    given = (ids.int(), values, factor, outer if width else None)
    pieces = [Piece(*(None if each is None else each.to(PLACE) for each in given), every=every)]
    fast, slow = FusedRows(pieces), PlainRows(pieces)
    torch.testing.assert_close(fast.square(), slow.square(), rtol=1e-5, atol=0)
    numbers, shape = torch.arange(1, 5, device=PLACE) / 10, (size, width) if width else (size,)
    results = []
    for each in (fast, slow):
        tables = [torch.zeros(shape, device=PLACE) for _ in range(3)] + [torch.zeros(size, stretches(width or 1))]
        tables = [table.to(PLACE) for table in tables]
        each.update(tables[0], tables[1:], Rule(ADAM, 1e-8, 0.9, 0.99), Scalars(*numbers))
        results.append(tables)
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    dense = fast.dense(torch.zeros(shape, device=PLACE))
    torch.testing.assert_close(dense[slow.ids], slow.rows, rtol=1e-4, atol=1e-5)
    assert int((dense.view(size, -1) != 0).any(1).sum()) == len(slow.ids)


@pytest.mark.parametrize("width", [24, 0])
def test_pieces_of_several_passes_are_one(width):
    """Samples of each position's own beside rows that are written out, in any order."""
    chance, size, shape = torch.Generator().manual_seed(0), 40, (width,) if width else ()
    pieces = []
    for every, positions in ((9, 30), (1, 50), (9, 20), (4, 10)):
        factor = torch.randn(every * positions, generator=chance)
        values = torch.randn(0 if every > 1 else 30, *shape, generator=chance)
        ids = torch.randint(size, (len(values) + len(factor),), generator=chance)
        ids[::7] = NOWHERE
        outer = torch.randn(positions, *shape, generator=chance) if width else None
        given = (each if each is None else each.to(PLACE) for each in (ids, values, factor, outer))
        pieces.append(Piece(*given, every=every))
    fast, slow = FusedRows(pieces), PlainRows(pieces)
    assert fast.piece.every == 9
    torch.testing.assert_close(fast.square(), slow.square(), rtol=1e-5, atol=0)
    dense = fast.dense(torch.zeros(size, *shape, device=PLACE))
    torch.testing.assert_close(dense[slow.ids], slow.rows, rtol=1e-4, atol=1e-5)
    exact = torch.zeros(size + 1, *shape, dtype=torch.float64, device=PLACE)
    for piece in pieces:
        exact.index_add_(0, piece.ids.clamp(max=size), piece.rows().double())
    torch.testing.assert_close(dense, exact[:-1].float(), rtol=1e-4, atol=1e-5)


def test_a_row_optimizer_gets_one_piece_of_targets_and_samples():
    hidden, weight, bias, targets, sample = case((12, 5, 16))
    weight, bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
    left = [expect(each) for each in (weight, bias)]
    layer = Layer(weight, bias, sparse=True, impl="fused")
    pick("criterion", CRITERIA, "mode3").loss(hidden, layer, targets, sample).sum().backward()
    plain = Layer(*(each.detach().double().requires_grad_() for each in (weight, bias)))
    pick("criterion", CRITERIA, "mode3").loss(hidden.double(), plain, targets, sample).sum().backward()
    for pieces, exact in zip(left, (plain.weight, plain.bias)):
        (piece,) = pieces
        assert len(piece.ids) == 12 * 6
        dense = torch.zeros_like(exact).index_add_(0, piece.ids.long(), piece.rows().double())
        torch.testing.assert_close(dense, exact.grad, rtol=1e-4, atol=1e-6)
    assert weight.grad is None


@pytest.mark.parametrize("impl", ["plain", "fused"])
def test_hidden_vectors_may_be_written_to_before_the_step(impl):
    """As where they are a parameter whose optimizer steps first, or a buffer that the next batch fills."""
    hidden, weight, bias, targets, sample = case((6, 5, 16))
    layer = few(weight, bias)
    weight, bias = (torch.nn.Parameter(each) for each in (layer.weight, layer.bias))
    given = {"samples": sample.ids, "log_expected": sample.expected.log(), "sparse": True, "impl": impl}
    left = expect(weight)
    sampled_loss(hidden, weight, targets, bias, criterion="is", ignore_index=None, **given).backward()
    before = PlainRows(list(left)).rows
    hidden.zero_()
    assert torch.equal(PlainRows(left).rows, before)


class Kept:
    """What a body keeps for its backward pass."""


class Body(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, kept):
        ctx.kept = kept
        return hidden.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@pytest.mark.parametrize("ignored", [None, -100])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("impl", ["plain", "fused"])
def test_rows_that_wait_for_the_step_do_not_keep_the_body(impl, shared, ignored):
    hidden, weight, bias, targets, sample = case((6, 5, 16))
    layer, kept = few(weight, bias), Kept()
    weight, bias = (torch.nn.Parameter(each) for each in (layer.weight, layer.bias))
    samples, shift = sample.ids, sample.expected.log()
    given = {"samples": samples[0] if shared else samples, "log_expected": shift[0] if shared else shift}
    left, gone = expect(weight), weakref.ref(kept)
    vectors = Body.apply(hidden.requires_grad_(), kept)
    how = {"criterion": "is", "sparse": True, "impl": impl, "ignore_index": ignored}
    sampled_loss(vectors, weight, targets, bias, **given, **how).backward()
    del kept, vectors
    assert left
    assert gone() is None


@pytest.mark.parametrize("optimizer", [None, RowAdam])
@pytest.mark.parametrize("name", SAMPLED)
def test_a_sparse_gradient_has_no_row_that_is_not_used(name, optimizer):
    """Also where every logit costs less than the rows of each position: 6 of 50 words have no id."""
    hidden, weight, bias, targets, sample = case((40, 17, 12))
    ids, targets = sample.ids.clamp(max=43), targets.clamp(max=43)
    ids = torch.where(ids == targets[:, None], 1, ids)
    found = []
    for most in (1 << 20, 100):
        tables = [torch.nn.Parameter(each.double()) for each in (weight, bias)]
        held = optimizer and (optimizer(tables), [expect(table) for table in tables])
        vectors = hidden.double().requires_grad_()
        given = {"samples": ids, "log_expected": sample.expected.log(), "sparse": True, "most": most}
        drawn = {"log_expected_target": sample.expected_target.log()}
        value = sampled_loss(vectors, tables[0], targets, tables[1], criterion=name, **given, **drawn)
        value.backward()
        for table, left in zip(tables, held[1] if held else (None, None)):
            touched = torch.cat([piece.ids for piece in left]) if held else table.grad._indices()[0]
            if not held or not GPU:
                assert set(touched.tolist()) == set(ids.unique().tolist()) | set(targets.tolist())
            rows = merged(left) if held else (table.grad.coalesce().indices()[0], table.grad.coalesce().values())
            found.append((value, vectors.grad, torch.zeros_like(table).index_add_(0, *rows)))
    tables = [each.double().requires_grad_() for each in (weight, bias)]
    vectors = hidden.double().requires_grad_()
    given |= {"sparse": False, "impl": "plain"}
    value = sampled_loss(vectors, tables[0], targets, tables[1], criterion=name, **given, **drawn)
    value.backward()
    for mine, table in zip(found, tables * 2):
        for one, other in zip(mine, (value, vectors.grad, table.grad)):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_frozen_table_gets_nothing(frozen):
    hidden, weight, bias, targets, sample = case((6, 5, 16))
    tables = {"weight": weight, "bias": bias}
    tables = {name: torch.nn.Parameter(each, requires_grad=name != frozen) for name, each in tables.items()}
    given = {"samples": sample.ids, "log_expected": sample.expected.log()}
    sampled_loss(hidden, target=targets, **tables, criterion="is", **given, impl="fused").backward()
    assert [name for name, each in tables.items() if each.grad is None] == [frozen]


def test_the_loss_of_mode2_with_its_own_draws():
    """As a user calls it: `sharing = "position"`, ignored positions, any shape."""
    torch.manual_seed(0)
    hidden, weight = (torch.randn(*size, device=PLACE) for size in ((3, 4, 8), (C, 8)))
    target = torch.randint(0, C, (3, 4), device=PLACE)
    target[0, 1] = -100
    found = []
    for impl in ("plain", "fused"):
        sampler = Excluding(LogUniform(C), k=7, sharing="position")
        chance = torch.Generator(PLACE).manual_seed(1)
        loss = SampledLoss(C, "mode2", sampler=sampler, impl=impl, generator=chance).to(PLACE)
        inputs, table = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        value = loss(inputs, table, target)
        value.backward()
        found.append([value.detach(), inputs.grad, table.grad])
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert not found[1][1][0, 1].any()


@pytest.mark.parametrize("kinds", [("float64", "float32"), ("float32", "bfloat16"), ("bfloat16", "float32")], ids=str)
def test_vectors_and_table_may_differ_in_precision(kinds):
    hidden, weight, bias, targets, sample = case((9, 6, 16))
    hidden, weight = (each.to(getattr(torch, kind)).requires_grad_() for each, kind in zip((hidden, weight), kinds))
    loss = pick("criterion", CRITERIA, "nce").loss(hidden, few(weight, bias), targets, sample)
    loss.sum().backward()
    exact = [each.detach().double().requires_grad_() for each in (hidden, weight, bias)]
    truth = pick("criterion", CRITERIA, "nce").loss(exact[0], few(*exact[1:]), targets, sample)
    truth.sum().backward()
    assert distance(loss.detach(), truth.detach()) < 1e-6
    for mine, theirs in zip((hidden, weight), exact):
        assert mine.grad.dtype == mine.dtype
        assert distance(mine.grad, theirs.grad) < (1e-5 if mine.dtype != torch.bfloat16 else 5e-3)


def few(weight, bias):
    """A table of so many rows that taking a few costs less than every logit."""
    return Layer(torch.cat([weight, weight.new_zeros(2000, weight.shape[1])]), torch.cat([bias, bias.new_zeros(2000)]))


@pytest.mark.skipif(GPU, reason="the blocks are for a CPU")
@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_of_positions_are_the_definition(name, sparse, monkeypatch):
    """A few positions at a time against all of them by autograd, whatever a block holds."""
    made, found = case((23, 5, 12)), []
    made = *made[:1], *(torch.cat([each, each.new_zeros(2000, *each.shape[1:])]) for each in made[1:3]), *made[3:]
    for block in (1, 200, 1 << 20):
        monkeypatch.setattr(rows, "BLOCK", block)
        found.append(run(name, made, "plain", torch.float64, sparse=sparse))
    monkeypatch.setattr(
        own, "own_logits", lambda hidden, output, ids, fused: plain.own_logits(hidden, output, ids, 100)
    )
    truth = run(name, made, "plain", torch.float64, sparse=sparse)
    for each in found:
        for part, exact in truth.items():
            assert distance(each[part], exact) < 1e-12, part


@pytest.mark.parametrize("sparse", [False, True])
def test_no_position_at_all(sparse):
    hidden, weight = torch.zeros(0, 8, device=PLACE, requires_grad=True), torch.ones(900, 8, device=PLACE)
    weight.requires_grad_()
    none = torch.zeros(0, 4, device=PLACE)
    given = {"samples": none.long(), "log_expected": none, "criterion": "is", "sparse": sparse}
    sampled_loss(hidden, weight, none[:, 0].long(), **given).backward()
    assert hidden.grad.shape == (0, 8)
    assert not weight.grad.to_dense().any()


class Largest(TorchDispatchMode):
    """How many numbers the largest tensor has that is made."""

    made = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else (result,):
            if isinstance(each, torch.Tensor) and not (each.is_sparse or function.is_view or each is args[0]):
                self.made = max(self.made, each.numel())
        return result


@pytest.mark.skipif(GPU, reason="the blocks are for a CPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("optimizer", [None, RowAdam])
def test_nothing_is_made_of_the_size_of_the_table_or_of_every_row(optimizer, dtype, monkeypatch):
    monkeypatch.setattr(rows, "BLOCK", 64)
    size, (n, k, h) = 100_000, (40, 50, 16)
    weight = torch.nn.Parameter(torch.randn(size, h, dtype=dtype))
    bias = torch.nn.Parameter(torch.randn(size, dtype=dtype))
    made = optimizer and optimizer([weight, bias])
    hidden, ids = torch.randn(n, h, dtype=dtype, requires_grad=True), torch.randint(100, (n, 1 + k))
    given = {"samples": ids[:, 1:], "log_expected": torch.zeros(n, k), "sparse": True}
    with Largest() as largest:
        sampled_loss(hidden, weight, ids[:, 0], bias, criterion="is", **given).backward()
        if made:
            made.step()
    assert n * k <= largest.made < n * k * h / 4
    if not made:
        for table in (weight, bias):
            assert table.grad.is_coalesced()
            assert table.grad._nnz() == len(ids.unique())


def test_autocast_does_not_round_the_logits_of_a_cpu():
    hidden, weight, bias, targets, sample = case((9, 6, 16))
    with torch.autocast(PLACE, torch.bfloat16):
        loss = pick("criterion", CRITERIA, "nce").loss(hidden, few(weight, bias), targets, sample)
    exact = pick("criterion", CRITERIA, "nce").loss(
        *(hidden.double(), few(weight.double(), bias.double())), targets, sample
    )
    assert distance(loss, exact) < (1e-6 if not GPU else 1e-2)


def test_second_derivatives():
    *floats, targets, sample = case((4, 3, 6))
    hidden, weight, bias = (each.double().requires_grad_() for each in floats)

    def loss(hidden, weight, bias):
        return pick("criterion", CRITERIA, "mode3").loss(hidden, few(weight, bias), targets, sample)

    assert torch.autograd.gradgradcheck(loss, (hidden, weight, bias), atol=1e-6)
    layer = Layer(weight.float().detach().requires_grad_(), impl="fused")
    value = pick("criterion", CRITERIA, "mode3").loss(hidden.float(), layer, targets, sample).sum()
    (grad,) = torch.autograd.grad(value, layer.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
