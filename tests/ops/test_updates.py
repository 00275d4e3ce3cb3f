"""Row updates: PyTorch's own optimizers judge the plain ones, the plain ones the kernels."""

import pytest
import torch

from selfnorm.functional import sampled_loss
from selfnorm.noise import LogUniform
from selfnorm.ops import ADAGRAD, ADAM, SGD, Rule, Scalars, expect, keep_half, stretches, take, updates
from selfnorm.ops.rows import NOWHERE, Piece, half_of, returned
from selfnorm.ops.updates import FusedRows, PlainRows
from selfnorm.samplers.systematic import Systematic

pytest.importorskip("triton", reason="Triton is not installed")

PLACE = "cuda" if torch.cuda.is_available() else "cpu"
C = 60
RULES = {"sgd": Rule(SGD), "adagrad": Rule(ADAGRAD, 1e-10), "adam": Rule(ADAM, 1e-8, 0.9, 0.99)}
MOMENTS = {"sgd": 0, "adagrad": 1, "adam": 3}


def piece(width, entries=40, own=30, seed=0, dtype=torch.float32):
    """Entries with many copies (a run of 20 and more), some that count nothing, some as factor x vector."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, C // 4, (entries + own,), generator=generator).int()
    ids[5:28] = 3
    ids[0] = NOWHERE
    ids[entries + 2 :][:1] = NOWHERE
    shape = (width,) if width else ()
    values = torch.randn(entries, *shape, generator=generator).to(dtype)
    factor = torch.randn(own, generator=generator) if own else None
    outer = torch.randn(own, *shape, generator=generator).to(dtype) if own and width else None
    if not own:
        ids = ids[:entries]
    on = [None if each is None else each.to(PLACE) for each in (ids, values, factor, outer)]
    return Piece(*on)


def scalars(step=3.0, shrink=0.7, finite=1.0, lr=0.1):
    return Scalars(*(torch.tensor(each, device=PLACE) for each in (lr, step, shrink, finite)))


def tables(width, count, seed=1):
    """A table and its moments; of Adam's, the third says which step a row is at: some at none, some far behind."""
    generator = torch.Generator().manual_seed(seed)
    shape = (C, width) if width else (C,)
    made = [torch.rand(shape, generator=generator) for _ in range(1 + min(count, 2))]
    if count == 3:
        last = torch.randint(0, 3, (C, 1), generator=generator).float()
        made.append(last.expand(C, stretches(width or 1)).contiguous())
    return [each.to(PLACE) for each in made]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("width", "own"), [(24, 30), (24, 0), (0, 30), (0, 0), (1030, 5)], ids=str)
def test_the_kernels_move_rows_as_plain_does(name, width, own):
    pieces = [piece(width, own=own)]
    fast, slow = FusedRows(pieces), PlainRows(pieces)
    torch.testing.assert_close(fast.square(), slow.square(), rtol=1e-5, atol=0)
    results = []
    for rows in (fast, slow):
        table, *moments = tables(width, MOMENTS[name])
        rows.update(table, moments, RULES[name], scalars())
        results.append([table, *moments])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert not torch.equal(results[0][0], tables(width, 0)[0])


@pytest.mark.parametrize("rows", [PlainRows, FusedRows])
@pytest.mark.parametrize("name", RULES)
def test_rows_of_two_dimensions_move_as_flat_ones(name, rows):
    """As many rows are touched as each has of its own: nothing must be spread over the wrong ones."""
    ids, values = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 8], device=PLACE), torch.randn(9, 8, 3, device=PLACE)
    flat = tables(24, MOMENTS[name])
    deep = [each.clone() for each in flat]
    deep[:3] = [each.view(C, 8, 3) for each in deep[:3]]
    for made, pieces in ((flat, [Piece(ids, values.flatten(1))]), (deep, [Piece(ids, values)])):
        each = rows(pieces)
        torch.testing.assert_close(each.square(), PlainRows([Piece(ids, values.flatten(1))]).square())
        each.update(made[0], made[1:], RULES[name], scalars())
    for one, other in zip(flat, deep):
        torch.testing.assert_close(one.flatten(), other.flatten(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("rows", [PlainRows, FusedRows])
def test_a_step_that_is_not_finite_changes_nothing(rows):
    table, *moments = tables(24, 3)
    rows([piece(24)]).update(table, moments, RULES["adam"], scalars(finite=0.0))
    for found, before in zip([table, *moments], tables(24, 3)):
        assert torch.equal(found, before)


def test_several_pieces_are_one_gradient():
    several = [piece(24), piece(24, seed=5), piece(24, own=0, seed=6)]
    torch.testing.assert_close(FusedRows(several).square(), PlainRows(several).square(), rtol=1e-5, atol=0)


def test_the_copy_in_half_precision_follows():
    (table,) = tables(24, 0)
    keep_half(table)
    FusedRows([piece(24)]).update(table, [], RULES["sgd"], scalars())
    exact = PLACE == "cuda"  # the interpreter cuts where a GPU rounds
    tolerance = {"rtol": 0 if exact else 2**-7, "atol": 0}
    torch.testing.assert_close(half_of(table, torch.bfloat16), table.bfloat16(), **tolerance)
    assert half_of(table, torch.float32).dtype == torch.float32
    table.mul_(2)  # somebody else writes: the copy is made anew
    assert torch.equal(half_of(table, torch.bfloat16), table.bfloat16())


@pytest.mark.parametrize("sparse", [False, True])
def test_autograd_gets_what_the_entries_say(sparse):
    made = piece(24)
    found = returned(made, torch.zeros(C, 24, device=PLACE), sparse, None)
    truth = torch.zeros(C, 24, device=PLACE)
    for word, row in zip(made.ids.tolist(), made.rows()):
        if word != NOWHERE:
            truth[word] += row
    torch.testing.assert_close(found.to_dense(), truth)
    assert found.is_sparse == sparse


def test_pieces_are_left_where_an_optimizer_waits():
    table = torch.nn.Parameter(torch.randn(C, 4, device=PLACE))
    pieces = expect(table)
    ids = torch.tensor([[1, 2], [1, 5]], device=PLACE)
    (take(table, ids, sparse=True) * 2).sum().backward()
    assert table.grad is None
    assert torch.equal(pieces[0].ids, ids.flatten())
    assert torch.equal(pieces[0].values, torch.full((4, 4), 2.0, device=PLACE))


@pytest.mark.parametrize("width", [24, 0])
def test_gradients_that_autograd_spreads_or_turns(width):
    """The gradient of a plain sum is one number for all; that of a product may lie the other way round."""
    table = torch.nn.Parameter(torch.zeros(C, width or 1, device=PLACE)[:, 0 if not width else slice(None)].clone())
    pieces, ids = expect(table), torch.tensor([[1, 2], [1, 5]], device=PLACE)
    take(table, ids, sparse=True).sum().backward()
    turned = torch.randn(24, 4).T if width else torch.randn(8)[::2]
    for made in (pieces, [Piece(ids.flatten(), turned.to(PLACE))]):
        torch.testing.assert_close(FusedRows(made).square(), PlainRows(made).square(), rtol=1e-5, atol=0)
        moved = []
        for rows in (FusedRows(made), PlainRows(made)):
            moved.append(torch.zeros_like(table.detach()))
            rows.update(moved[-1], [], RULES["sgd"], scalars())
        torch.testing.assert_close(*moved)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
@pytest.mark.parametrize("impl", ["plain", "fused"])
def test_a_frozen_table_leaves_nothing(impl, frozen):
    tables = {"weight": torch.randn(C, 8, device=PLACE), "bias": torch.zeros(C, device=PLACE)}
    tables = {name: torch.nn.Parameter(table, requires_grad=name != frozen) for name, table in tables.items()}
    pieces = {name: expect(table) for name, table in tables.items()}
    hidden, target = torch.randn(9, 8, device=PLACE), torch.arange(9, device=PLACE)
    sampler = Systematic(LogUniform(C), k=12)
    sampled_loss(hidden, target=target, **tables, sampler=sampler, sparse=True, impl=impl).backward()
    assert {name for name, left in pieces.items() if left} == set(tables) - {frozen}


@pytest.mark.parametrize("counted", [0, 12000])
def test_distinct_rows_stay_in_front_however_the_others_are_sorted(counted, monkeypatch):
    monkeypatch.setattr(updates, "COUNTED", counted)
    made = piece(24)
    ids = torch.cat([2 * torch.arange(40), 2 * made.ids[40:].clamp(max=C).cpu() % 50 + 1]).int().to(PLACE)
    pieces = [made._replace(ids=ids, distinct=True)]
    fast, slow = FusedRows(pieces), PlainRows(pieces)
    torch.testing.assert_close(fast.square(), slow.square(), rtol=1e-5, atol=0)
    moved = [torch.zeros(2 * C, 24, device=PLACE) for _ in range(2)]
    fast.update(moved[0], [], RULES["sgd"], scalars())
    slow.update(moved[1], [], RULES["sgd"], scalars())
    torch.testing.assert_close(*moved, rtol=1e-5, atol=1e-6)
