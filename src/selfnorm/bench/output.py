"""One step of the output layer: sampler + hidden -> loss -> gradients + optimizer, ours beside full softmax.

    for row in measure([SHAPES["libri"]], ks=[8192]):
        print(row.impl, row.k, row.ms, row.ratio)

A row is timed after its loss and gradients agreed with float64; rows of one call share the machine, the inputs and the
process. The limit is three matrix products at the rate of a large one, and for the optimizer the bytes of every row
that it must touch at the rate of a copy.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import torch
from torch import Tensor

from selfnorm.bench import agreement, machine
from selfnorm.bench.machine import Limits, Timing
from selfnorm.bench.peers import PEERS, Loss, Peer, here
from selfnorm.bench.row import Row, Shape
from selfnorm.criteria import CRITERIA
from selfnorm.optim import RowAdam
from selfnorm.output import Layer

SETS = 4  # hidden vectors and targets that steps alternate between
BYTES = 28  # of one weight in a step: itself and two moments read and written, its gradient and its bfloat16 copy


@dataclass
class Bench:
    """What all measurements of a call share. `tell` takes a sentence for whoever watches."""

    device: torch.device
    tell: Callable[[str], None]
    budget: float  # seconds
    repeats: int
    begin: float = field(default_factory=time.monotonic)
    agreed: dict[object, bool] = field(default_factory=dict)

    @cached_property
    def limits(self) -> Limits:
        found = machine.limits(self.device, self.repeats)
        self.tell(f"limits: {found.operations / 1e9:.3g} TFLOP/s in a product, {found.bytes / 1e9:.3g} TB/s in a copy")
        return found

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if machine.is_gpu(self.device) else torch.float32

    def agrees(self, key: object, check: Callable[[], tuple[agreement.Distances, bool]]) -> bool:
        """Checked once, and told."""
        if key not in self.agreed:
            found, self.agreed[key] = check()
            numbers = ", ".join(f"{name} {each:.1e}" for name, each in found.items())
            self.tell(f"{key}: {'agrees' if self.agreed[key] else 'DISAGREES'} with float64: {numbers}")
        return self.agreed[key]

    def timed(
        self, steps: list[machine.Work], generator: torch.Generator | None = None, capture: bool = True
    ) -> Timing:
        found = machine.timed(steps, self.device, generator, repeats=self.repeats, capture=capture)
        if found.trouble:
            self.tell(f"not as a CUDA graph: {_short(found.trouble)}")
        return found

    @contextmanager
    def guarded(self, what: str, positions: int, words: int) -> Iterator[None]:
        """One measurement that fails is a line, and all that it held is given back."""
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError):
            self.tell(
                f"{what}: out of memory at N = {positions:,} positions and K = {words:,} words; lower one of them"
            )
        except Exception as error:
            self.tell(f"{what}: failed: {type(error).__name__}: {_short(str(error))}")
        machine.set_free(self.device)

    def is_late(self, what: str) -> bool:
        late = time.monotonic() - self.begin > self.budget
        if late:
            self.tell(f"{what}: skipped, the budget of {self.budget:g} s is spent")
        return late


def measure(
    shapes: Sequence[Shape],
    ks: Sequence[int] = (8192, 1000, 100),
    groups: Sequence[int] = (1,),
    criteria: Sequence[str] = ("mode3",),
    peers: Sequence[str] | None = None,
    *,
    device: torch.device | None = None,
    budget: float = float("inf"),
    repeats: int = machine.REPEATS,
    dense: bool = False,
    tell: Callable[[str], None] = lambda sentence: None,
) -> Iterator[Row]:
    """Rows as they are measured: for each shape ours, then full softmax by `peers` (all that need not be compiled).

    `dense` adds ours with dense gradients. After `budget` seconds nothing new is begun.
    """
    bench = Bench(device or machine.default_device(), tell, budget, repeats)
    peers = here(machine.is_gpu(bench.device)) if peers is None else peers
    for shape in shapes:
        inputs = None
        for criterion, k, number in product(criteria, ks, groups):
            what = f"{shape.name}, {criterion}, K = {k:,}, G = {number}"
            if bench.is_late(what):
                continue
            if k > shape.size:
                tell(f"{what}: skipped, there are only {shape.size:,} words")
                continue
            with bench.guarded(what, shape.positions, k):
                inputs = inputs or Inputs(shape, bench)
                yield from _ours(bench, inputs, criterion, k, number, dense)
        yield from _full(bench, shape, inputs, [PEERS[name] for name in peers])
        del inputs
        machine.set_free(bench.device)


class Inputs:
    """Hidden vectors, targets and the table of one shape; who trains the table takes a copy."""

    def __init__(self, shape: Shape, bench: Bench) -> None:
        self.shape = shape
        generator = torch.Generator(bench.device).manual_seed(0)
        hidden, self.weight, self.targets, self.bias = agreement.build_case(
            shape.size, shape.width, shape.positions, bench.device, generator, SETS
        )
        self.hidden = [each.to(bench.dtype).requires_grad_() for each in hidden]

    def table(self) -> tuple[Tensor, Tensor]:
        return self.weight.clone().requires_grad_(), self.bias.clone().requires_grad_()


def _steps(
    inputs: Inputs, loss: Callable[[Tensor, Tensor], Tensor], tables: Sequence[Tensor], optimizer: Any, update: bool
) -> list[machine.Work]:
    """One step for each set of inputs; nothing is left behind but what the optimizer changed."""

    def step(hidden: Tensor, targets: Tensor) -> None:
        loss(hidden, targets).backward()
        if update:
            optimizer.step()
        if optimizer is not None:
            optimizer.zero_grad(set_to_none=True)
        for each in (hidden, *tables):
            each.grad = None

    return [lambda h=h, t=t: step(h, t) for h, t in zip(inputs.hidden, inputs.targets)]  # type: ignore[misc]


def _ours(bench: Bench, inputs: Inputs, criterion: str, k: int, groups: int, dense: bool) -> Iterator[Row]:
    shape, rule = inputs.shape, CRITERIA[criterion]()
    sampler = agreement.build_sampler(criterion, shape.size, k, groups)
    generator = machine.generator_on(bench.device)
    touched = _touched([sampler.draw(each, generator).ids for each in inputs.targets], inputs.targets)
    impl = "fused" if machine.is_gpu(bench.device) else "plain"
    operations = 6 * shape.positions * k * shape.width
    limits = {
        "loss": bench.limits.ms(operations),
        "step": bench.limits.ms(operations, touched * shape.width * BYTES),
    }
    for sparse in (True, False) if dense else (True,):

        def check(sparse: bool = sparse) -> tuple[agreement.Distances, bool]:
            return agreement.of_criterion(criterion, groups, bench.dtype, bench.device, sparse=sparse, impl=impl)

        kind = "rows" if sparse else "dense"
        if not bench.agrees(f"{criterion}, G = {groups}, {kind}", check):
            continue
        weight, bias = inputs.table()
        layer = Layer(weight, bias, sparse, impl)
        optimizer = RowAdam([weight, bias], half=bench.dtype == torch.bfloat16) if sparse else None

        def loss(hidden: Tensor, targets: Tensor, layer: Layer = layer) -> Tensor:
            return rule.loss(hidden, layer, targets, sampler.draw(targets, generator)).mean()

        for part in ("step",) if machine.is_gpu(bench.device) else ("loss", "step") if sparse else ("loss",):
            steps = _steps(inputs, loss, (weight, bias), optimizer, part == "step")
            found = bench.timed(steps, generator)
            yield _row(bench, shape, impl, criterion, part, k, groups, kind, found, limits[part])


def _touched(drawn: list[Tensor], targets: list[Tensor]) -> float:
    """Rows that a step reads and writes: distinct ids among samples and targets, the mean over the sets."""
    counts = [len(torch.cat([ids.flatten(), own]).unique()) for ids, own in zip(drawn, targets)]
    return sum(counts) / len(counts)


def _full(bench: Bench, shape: Shape, inputs: Inputs | None, peers: Sequence[Peer]) -> Iterator[Row]:
    """Loss and gradients of each peer; fused Adam on the whole table, once: it is the same for all."""
    update: Timing | None = None
    for peer in peers:
        what = f"{shape.name}, {peer.name}"
        if bench.is_late(what):
            continue
        with bench.guarded(what, shape.positions, shape.size):
            try:
                loss = peer.find()
            except ImportError as error:
                bench.tell(f"{what}: not there: {error}")
                continue

            def check(peer: Peer = peer, loss: Loss = loss) -> tuple[agreement.Distances, bool]:
                return agreement.of_peer(peer, loss, bench.dtype, bench.device)

            if not bench.agrees(peer.name + (f" ({peer.note})" if peer.note else ""), check):
                continue
            inputs = inputs or Inputs(shape, bench)
            if update is None:
                update = _dense_adam(bench, inputs)
                limit = bench.limits.ms(0, shape.size * shape.width * BYTES)
                yield _row(bench, shape, "torch Adam", "ce", "optimizer", shape.size, 1, "dense", update, limit)
            yield from _softmax(bench, inputs, peer, loss, update)


def _softmax(bench: Bench, inputs: Inputs, peer: Peer, loss: Loss, update: Timing) -> Iterator[Row]:
    shape, (weight, bias) = inputs.shape, inputs.table()
    steps = _steps(inputs, lambda hidden, targets: loss(hidden, weight, targets, bias), (weight, bias), None, False)
    found = bench.timed(steps, capture=peer.capture)
    products, moved = 6 * shape.positions * shape.size * shape.width, shape.size * shape.width * BYTES
    for part, timing, limit in (
        ("loss", found, bench.limits.ms(products)),
        ("step", replace(found, ms=found.ms + update.ms), bench.limits.ms(products, moved)),
    ):
        yield _row(bench, shape, peer.name, "ce", part, shape.size, 1, "dense", timing, limit)


def _dense_adam(bench: Bench, inputs: Inputs) -> Timing:
    tables = inputs.table()
    optimizer = torch.optim.Adam(tables, fused=True, capturable=machine.is_gpu(bench.device))
    for table in tables:
        table.grad = torch.full_like(table, 1e-4)
    return bench.timed([optimizer.step] * SETS)


def _row(
    bench: Bench,
    shape: Shape,
    impl: str,
    criterion: str,
    part: str,
    k: int,
    groups: int,
    gradients: str,
    found: Timing,
    limit: float,
) -> Row:
    dtype = str(bench.dtype).removeprefix("torch.")
    name, impl = machine.name_of(bench.device), impl + (", eager" if found.eager else "")
    return Row(shape, impl, criterion, part, k, groups, gradients, dtype, found.ms, limit, found.peak_mib, name)


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
