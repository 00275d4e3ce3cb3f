"""Bytes that a rank hands to torch.distributed at a step, counted in PyTorch's dispatcher: all collectives pass it."""

import json
import sys
from pathlib import Path

import pytest
import torch
from ranks import on_ranks
from torch import nn
from torch.futures import Future
from torch.utils._python_dispatch import TorchDispatchMode

from selfnorm.distributed.world import World
from selfnorm.ops import expect
from selfnorm.ops.rows import merged

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
import scaling
from scaling import Case, handed, sent
from wire import Words, dense_step, row_step

LARGE = Case(C=200_000, K=1000, G=1, H=512, E=512, N=1024)
SMALL = Case(C=30_000, K=1000, G=1, H=512, E=512, N=1024)
TINY = Case(C=500, K=50, G=2, H=16, E=16, N=40)


class Counted(TorchDispatchMode):
    """By the name of the collective; one that is not known here stops the test, so nothing goes unseen."""

    names = {"allreduce_": "all_reduce", "_allgather_base_": "all_gather", "alltoall_base_": "all_to_all"}  # noqa: RUF012

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            name = self.names[func._schema.name.removeprefix("c10d::")]
            given = args[0] if name == "all_reduce" else [args[1]]  # before it stands the room for what comes
            self.bytes[name] = self.bytes.get(name, 0) + sum(each.nbytes for each in given)
        return func(*args, **(kwargs or {}))


def counted(step, number=0):
    with Counted() as seen:
        step(number)
    return seen.bytes


def of_tables(words):
    """What DistributedDataParallel reduces: see the last test."""
    return sum(each.nbytes for each in words.parameters())


def bound(case):
    """(G K + 2 N) rows, and for each its id and a bias."""
    return 4 * (case.G * case.K + 2 * case.N) * (case.H + 2)


@pytest.fixture(scope="module")
def models():
    """Forked ranks read them where they are: a gigabyte, once."""
    return [Words(SMALL), Words(LARGE)]


@pytest.mark.parametrize("size", [2, 4])
def test_rows_are_few_whatever_the_vocabulary(models, size):
    def work(world):
        for words in models:
            words.given = given  # the same words from both vocabularies
        inputs, targets, _ = given(world, 0)
        return *(counted(row_step(world, words)) for words in models), len(targets.unique()), len(inputs.unique())

    dense, given = of_tables(models[1]), models[0].given
    counts = on_ranks(size, work)
    room = [max(each[number] for each in counts) for number in (2, 3)]  # every rank has room for the most
    for small, large, *_ in counts:
        assert small == large == handed(LARGE, "rows", size, *room)  # what the scaling model says
        assert sum(large.values()) <= bound(LARGE)
        assert 50 * sum(large.values()) <= dense
        assert 50 * sent(large, size) <= sent({"all_reduce": dense}, size)  # as a ring sends them


@pytest.mark.parametrize("size", [2, 4])
def test_spread_tables_fetch_few_rows_whatever_the_vocabulary(models, size):
    def work(world):
        for words in models:
            words.given = given  # the same words from both vocabularies: so each rank asks for as many rows
        inputs, targets, sample = given(world, 0)
        distinct = len(torch.cat([sample.ids.flatten(), targets]).unique()), len(inputs.unique())
        return *(counted(row_step(world, words, spread_tables=True)) for words in models), distinct

    given = models[0].given
    counts = on_ranks(size, work)
    for small, large, _ in counts:
        assert small == large
        assert 50 * sum(large.values()) <= of_tables(models[1])
    over_all = sum(sum(large.values()) for _, large, _ in counts)
    expected = sum(sum(handed(LARGE, "spread", size, *distinct).values()) for *_, distinct in counts)
    assert over_all == expected  # one hands out what another asks for: only the sum over the ranks is known
    assert over_all <= 2 * size * bound(LARGE)  # rows come, gradients go
    assert max(sum(large.values()) for _, large, _ in counts) <= 1.2 * over_all / size  # nobody has all frequent words


@pytest.mark.parametrize("spread_tables", [False, True])
def test_what_was_counted_brings_the_gradient_of_all(spread_tables):
    """Else few bytes would be easy."""
    words, every = Words(TINY), Words(TINY)
    every.load_state_dict(words.state_dict())

    def work(world):
        step = row_step(world, words, spread_tables)  # holds what it leaves
        step(0)
        sum(every(*every.given(World(rank, world.size), 0)) for rank in range(world.size)).backward()
        for name, table in every.named_parameters():
            there = getattr(words, name)
            ids, rows = merged(expect(there))
            grad = table.grad[world.rank :: world.size] if spread_tables else table.grad
            torch.testing.assert_close(torch.zeros_like(there).index_add_(0, ids, rows), grad, msg=name)

    on_ranks(2, work)


def test_dense_ddp_reduces_the_bytes_of_its_parameters():
    """By its own communication hook, and by our count of what it hands on."""
    words = Words(TINY)

    def hooked(world):
        sizes = []

        def hook(_state, bucket):
            sizes.append(bucket.buffer().nbytes)
            done = Future()
            done.set_result(bucket.buffer())
            return done

        wrapped = nn.parallel.DistributedDataParallel(words)
        wrapped.register_comm_hook(None, hook)
        wrapped(*words.given(world, 0)).backward()
        return sum(sizes)

    size = of_tables(words)
    assert on_ranks(2, hooked) == [size, size]
    counts = on_ranks(2, lambda world: counted(dense_step(world, words)))
    assert counts == [{"all_reduce": size}] * 2 == [handed(TINY, "dense", 2)] * 2


def test_the_results_are_those_of_the_model():
    assert json.loads(scaling.RESULT.read_text()) == scaling.model(), "run python benchmarks/scaling.py"
