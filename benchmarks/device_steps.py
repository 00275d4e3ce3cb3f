"""Cases for device_checks.py: draws, updates of rows, and whole training steps, made twice or as a CUDA graph."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from device_sums import GPU, PLACE, Found, Values, distance, judged
from torch import nn

from selfnorm import SampledLoss
from selfnorm.corpus.batches import Batch
from selfnorm.noise import LogUniform
from selfnorm.ops import ADAGRAD, ADAM, SGD, Rule, Scalars, draws, halves, keep_half, stretches
from selfnorm.ops.rows import NOWHERE, Piece
from selfnorm.ops.updates import FusedRows, PlainRows
from selfnorm.optim import OPTIMIZERS, Optimizer, RowAdam
from selfnorm.samplers.excluding import Excluding
from selfnorm.samplers.systematic import SURE, Systematic
from selfnorm.training.steps import Outcome, Steps

RULES = {"sgd": Rule(SGD), "adagrad": Rule(ADAGRAD, 1e-10), "adam": Rule(ADAM, 1e-8, 0.9, 0.99)}
MOMENTS = {"sgd": 0, "adagrad": 1, "adam": 3}


STEPS = 5


def piece(width: int, entries: int, own: int, dtype: torch.dtype, distinct: bool) -> Piece:
    """Gradients of rows: many copies of few ids, a run of hundreds, entries that count nothing."""
    generator = torch.Generator().manual_seed(entries + width)
    ids = torch.randint(0, max(2, entries // 3), (entries + own,), generator=generator)
    ids[entries // 4 : entries // 2] = 3
    if distinct:
        ids = torch.cat([2 * torch.arange(entries), 2 * ids[entries:] + 1])  # rising, the others in between
    ids[entries::5] = NOWHERE
    shape = (width,) if width else ()
    values, outer = torch.randn(entries, *shape, generator=generator), torch.randn(own, *shape, generator=generator)
    factor = torch.randn(own, generator=generator)
    given = (ids.int(), values.to(dtype), factor if own else None, outer.to(dtype) if own and width else None)
    return Piece(*(None if each is None else each.to(PLACE) for each in given), distinct)


def flat(small: bool, size: int) -> Iterator[Found]:
    """Adam on weights with copies in half precision, for some steps; the copies must be the weights, rounded."""
    found = {}
    for impl in (halves.plain, halves.fused):
        generator = torch.Generator().manual_seed(1)
        made = [torch.randn(size, generator=generator) for _ in range(3)] + [torch.rand(size, generator=generator)]
        weights, grads, first, second = (each.to(PLACE) for each in made)
        copies, grads = torch.zeros_like(weights, dtype=torch.bfloat16), grads.bfloat16()
        for step in (1.0, 2.0, 1000.0):
            scalars = Scalars(*(torch.tensor(each, device=PLACE) for each in (0.01, step, 0.7, 1.0)))
            impl(weights, copies, first, second, grads, Rule(ADAM, 1e-8, 0.9, 0.999), scalars)
        found[impl] = {"weights": weights, "first": first, "second": second, "copies": copies.float()}
    mine, theirs = found[halves.fused], found[halves.plain]
    near = {"copies": 1e-3 if GPU else 2**-7}  # the interpreter cuts
    shares = {each: distance(mine[each], theirs[each]) / near.get(each, 1e-6) for each in theirs}
    exact = not GPU or torch.equal(copies, weights.bfloat16())
    yield judged(f"{size} weights with copies", shares | {"rounding": 0.0 if exact else math.inf})


def updates(small: bool, width: int, entries: int, own: int, distinct: bool) -> Iterator[Found]:
    """The three rules, and the gradient's norm; the copy in half precision must be the table's, rounded."""
    size = 2 * entries + 10
    scalars = Scalars(*(torch.tensor(each, device=PLACE) for each in (0.1, 3.0, 0.7, 1.0)))
    for dtype in (torch.float32,) if small else (torch.float32, torch.bfloat16):
        pieces = [piece(width, entries, own, dtype, distinct)]
        for name, rule in RULES.items():
            found = {}
            for rows in (PlainRows(pieces), FusedRows(pieces)):
                generator = torch.Generator().manual_seed(1)
                made = [torch.rand(size, *([width] if width else []), generator=generator) for _ in range(3)]
                behind = torch.randint(0, 3, (size, 1), generator=generator).float()  # the step that a row is at
                made.append(behind.expand(size, stretches(width or 1)).contiguous())
                table, *moments = (each.to(PLACE) for each in made[: 1 + MOMENTS[name]])
                if width:
                    keep_half(table)
                rows.update(table, moments, rule, scalars)
                parts = {"table": table, "norm": rows.square()}
                found[type(rows)] = parts | {f"moment {i}": moment for i, moment in enumerate(moments)}
            allowed = 2e-6 + 1e-7 * (entries + own) ** 0.5  # both round in float32, along runs of hundreds
            shares = {each: distance(found[FusedRows][each], found[PlainRows][each]) / allowed for each in parts}
            for each in ("table", *(f"moment {i}" for i in range(MOMENTS[name]))):
                untouched = torch.ones(size, dtype=torch.bool, device=PLACE)
                untouched[pieces[0].ids[pieces[0].ids != NOWHERE].long()] = False
                same = torch.equal(found[FusedRows][each][untouched], found[PlainRows][each][untouched])
                shares[f"{each} elsewhere"] = 0.0 if same else math.inf
            if width:
                copy, wanted = table.half_copy.copy, table.bfloat16()  # type: ignore[attr-defined]
                exact = torch.equal(copy, wanted) if GPU else distance(copy, wanted) < 2**-7  # the interpreter cuts
                shares["half"] = 0.0 if exact else math.inf
            yield judged(f"{name} width {width}, {entries} + {own} entries, {dtype}, distinct {distinct}", shares)


def drawn(small: bool, k: int, size: int, groups: int) -> Iterator[Found]:
    """The one-kernel draw against the sampler's own formula."""
    sampler = Systematic(LogUniform(size), k, groups)
    targets = torch.arange(0, size, max(1, size // 500), device=PLACE)
    uniform = torch.rand(groups, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(k)).to(PLACE)
    numbers = torch.tensor([sampler.before, sampler.rate, sampler.noise.log_total], dtype=torch.float64, device=PLACE)
    ids, expected, of_targets = draws.systematic(uniform, targets, numbers, sampler.sure, k, size, SURE)
    truth = sampler.noise.inverse(
        sampler.before + (uniform + torch.arange(k, device=PLACE) - sampler.sure) / sampler.rate
    )
    truth[:, : sampler.sure] = torch.arange(sampler.sure, device=PLACE)
    off = (ids - truth).abs()  # on the very edge between two words, rounding may choose the neighbour
    shares = {
        "ids": math.inf if bool((off > 1).any()) else 0.0,
        "edges": float((off > 0).sum()) / (1 + 1e-4 * off.numel()),
        "rising": 0.0 if bool((ids.diff() > 0).all()) else math.inf,
        "expected": distance(expected, sampler.expected(ids)) / 1e-9,
        "expected of targets": distance(of_targets, sampler.expected(targets)) / 1e-9,
    }
    yield judged(f"k {k}, {size} words, {groups} groups", shares)


class Training:
    """A user's loop: a layer before the output, one norm, one clip, and a step on the rows that were touched."""

    def __init__(self, small: bool, criterion: str, groups: int) -> None:
        """Without groups each position draws for itself."""
        n, size, h, k = (24, 120, 16, 30) if small else (512, 20_000, 256, 1000)
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(n, h, generator=generator).to(PLACE)
        self.targets = LogUniform(size).inverse(torch.rand(n, generator=generator)).to(PLACE)
        self.chance = torch.Generator(PLACE)
        self.body = nn.Parameter((torch.randn(h, h, generator=generator) / h**0.5).to(PLACE))
        self.weight = nn.Parameter((torch.randn(size, h, generator=generator) / h**0.5).to(PLACE))
        self.bias = nn.Parameter(torch.full((size,), -6.0, device=PLACE))
        own = Excluding(LogUniform(size), k, sharing="position")
        how: dict[str, Any] = {"k": k, "groups": groups} if groups else {"sampler": own}
        self.loss = SampledLoss(
            size, criterion, **how, sparse=True, impl="fused", generator=self.chance, ignore_index=None
        )
        dense, rows = OPTIMIZERS["adam"]([self.body]), RowAdam([self.weight, self.bias], half=GPU)
        self.optimizer = Optimizer(dense, rows)
        self.optimizer.set_rate(1.0)

    def step(self) -> None:
        with torch.autocast(PLACE, torch.bfloat16, enabled=GPU):
            loss = self.loss((self.inputs @ self.body).tanh(), self.weight, self.targets, self.bias)
        loss.backward()
        self.optimizer.step(loss.detach(), clip=1.0)

    def numbers(self) -> Values:
        """Parameters and state, as they are now."""
        found = {"body": self.body, "weight": self.weight, "bias": self.bias} | self.optimizer.tensors()
        return {name: each.detach().clone() for name, each in found.items()}


def repeated(small: bool, criterion: str, groups: int) -> Iterator[Found]:
    """The same steps from the same state, twice: every bit the same."""
    ends = []
    for _ in range(2):
        training = Training(small, criterion, groups)
        begin = training.numbers()
        training.chance.manual_seed(3)
        for _ in range(2 if small else STEPS):
            training.step()
        ends.append(training.numbers())
    shares = {name: 0.0 if torch.equal(ends[0][name], ends[1][name]) else math.inf for name in ends[0]}
    shares["something moved"] = math.inf if torch.equal(begin["weight"], ends[0]["weight"]) else 0.0
    yield judged(f"{criterion}, {groups} groups", shares)


def captured(small: bool, criterion: str, groups: int) -> Iterator[Found]:
    """A step as a CUDA graph, replayed, against the same steps made one by one."""
    ends = []
    for as_graph in (False, True):
        training = Training(small, criterion, groups)
        training.chance.manual_seed(3)
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                training.step()
        torch.cuda.current_stream().wait_stream(beside)
        make = training.step
        if as_graph:
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(training.chance)
            with torch.cuda.graph(graph):
                training.step()
            make = graph.replay
        training.chance.manual_seed(4)
        for _ in range(STEPS):
            make()
        torch.cuda.synchronize()
        ends.append(training.numbers())
    shares = {each: distance(ends[1][each], ends[0][each]) / 1e-5 for each in ("body", "weight", "bias")}
    yield judged(f"{criterion}, {groups} groups", shares)


def recorded(small: bool, refused: bool) -> Iterator[Found]:
    """The trainer's own recorder against steps as they are written; `refused`: a step waits for the host in between."""
    ends = []
    for record in (False, True):
        training = Training(small, "mode3", 1)
        training.chance.manual_seed(3)

        def work(batch: Batch, state: None, training: Training = training) -> Outcome:
            if refused and torch.cuda.is_current_stream_capturing():
                training.bias.sum().item()
            with torch.autocast(PLACE, torch.bfloat16, enabled=GPU):
                hidden = (training.inputs @ training.body).tanh()
                loss = training.loss(hidden, training.weight, batch.targets, training.bias)
            loss.backward()
            norm, _ = training.optimizer.step(loss.detach(), clip=1.0)
            return Outcome(norm, hidden.detach(), None)

        steps = Steps(work, training.chance, record=record, forget=training.optimizer.forget)
        n = len(training.targets)
        for number in range(STEPS + 3):
            targets = training.targets.roll(number)
            steps(Batch(targets[None], torch.arange(n, device=PLACE), targets, (n,)), None)
        ends.append(training.numbers() | {"graphs": torch.tensor(len(steps.graphs))})
    shares = {each: distance(ends[1][each], ends[0][each]) / 1e-5 for each in ("body", "weight", "bias")}
    shares["graphs"] = 0.0 if int(ends[1]["graphs"]) == (0 if refused else 1) else math.inf
    yield judged("refused" if refused else "recorded", shares)
