"""What the ranks exchange in a training step, so that each ends it with the gradient of the whole batch.

Dense gradients are summed in runs of fixed content (`Dense`), each as soon as the backward pass has made it. Of a table
with row gradients only rows travel (`Rows`): all ranks have drawn the same ids, so the drawn rows are one block that is
summed, and every other row, of targets and inputs, is handed to all.

PyTorch's DistributedDataParallel would do for the dense part, but after its first step it rebuilds its runs in another
order: a training that goes on from a checkpoint would add up in another order than one that never stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from selfnorm.corpus.batches import Share
from selfnorm.distributed.world import World, gather
from selfnorm.ops import NOWHERE, expect
from selfnorm.ops.rows import Exchanged

BYTES = 25 * 2**20  # of a run of dense gradients


class Alone:
    """One process exchanges nothing."""

    def begin(self, share: Share | None) -> None:
        """A step, before its forward pass."""

    def backward(self, loss: Tensor, hidden: Tensor, drawn: Tensor | None) -> Tensor:
        """Gradients of the summed losses of all ranks, and that sum; `drawn` are the ids that all ranks have drawn."""
        loss.backward()
        return loss.detach()


class Exchange(Alone):
    """`output` are the tables of row gradients that the loss touches, `inputs` those that the inputs touch."""

    def __init__(
        self, world: World, dense: Sequence[nn.Parameter], output: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> None:
        self.dense, self.rows = Dense(dense), Rows(world)
        self.output, self.inputs = list(output), list(inputs)
        self.world = world
        self.room: Callable[[], list[int]] = list  # for rows of targets and of inputs

    def begin(self, share: Share | None) -> None:
        """Ask how many different targets and inputs any rank has; the answer is there when it is needed."""
        assert share is not None
        if self.output or self.inputs:
            self.room = self.world.largest(share.targets, share.inputs)

    def backward(self, loss: Tensor, hidden: Tensor, drawn: Tensor | None) -> Tensor:
        sent = False

        def send(*_: Any) -> None:
            """The output layer's rows are complete when the gradient of `hidden` is: the model's is still to come."""
            nonlocal sent
            if self.output and not sent:
                self.rows.send(self.output, drawn, None if drawn is None else self.room()[0])
            sent = True

        self.dense.begin(loss.detach())
        hidden.register_hook(send)
        loss.backward()
        send()
        if self.inputs:
            self.rows.send(self.inputs, None, self.room()[1])
        total = self.dense.end()
        self.rows.receive()
        return total


class Dense:
    """Gradients in runs of at most BYTES, last parameters first; the loss travels with the last run."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.runs: list[_Run] = []
        self.next = 0
        for parameter in reversed(parameters):
            if not self.runs or self.runs[-1].bytes + parameter.nbytes > BYTES:
                self.runs.append(_Run())
            run = self.runs[-1]
            run.add(parameter)
            parameter.register_post_accumulate_grad_hook(self._arriving(run))
        self.runs = self.runs or [_Run()]

    def begin(self, loss: Tensor) -> None:
        self.next = 0
        for run in self.runs:
            run.begin(loss)

    def _arriving(self, run: "_Run") -> Callable[[Tensor], None]:
        def arrived(_parameter: Tensor) -> None:
            run.missing -= 1
            self._send()

        return arrived

    def _send(self, everything: bool = False) -> None:
        """Runs go in their order, on every rank: that is how they find each other."""
        while self.next < len(self.runs) and (everything or not self.runs[self.next].missing):
            self.runs[self.next].send(with_loss=self.next == len(self.runs) - 1)
            self.next += 1

    def end(self) -> Tensor:
        """All gradients are those of all ranks now; returns their loss."""
        self._send(everything=True)
        for run in self.runs:
            run.receive()
        return self.runs[-1].flat[-1].clone()


class _Run:
    def __init__(self) -> None:
        self.parameters: list[nn.Parameter] = []
        self.bytes = self.missing = 0
        self.flat = torch.empty(0)  # [numbers + 1]  the last is the loss
        self.work: Any = None

    def add(self, parameter: nn.Parameter) -> None:
        self.parameters.append(parameter)
        self.bytes += parameter.nbytes

    def begin(self, loss: Tensor) -> None:
        self.missing = len(self.parameters)
        size = sum(each.numel() for each in self.parameters) + 1
        if len(self.flat) != size or self.flat.device != loss.device:
            self.flat = torch.zeros(size, device=loss.device)
        self.flat[-1] = loss

    def views(self) -> list[Tensor]:
        parts = self.flat[:-1].split([each.numel() for each in self.parameters])
        return [part.view_as(each) for part, each in zip(parts, self.parameters)]

    def send(self, with_loss: bool) -> None:
        for view, parameter in zip(self.views(), self.parameters):
            if parameter.grad is None:
                view.zero_()
            else:
                view.copy_(parameter.grad)
        self.work = dist.all_reduce(self.flat if with_loss else self.flat[:-1], async_op=True)

    def receive(self) -> None:
        self.work.wait()
        for view, parameter in zip(self.views(), self.parameters):
            parameter.grad = view


class Rows:
    """The pieces that the backward pass left at tables, of all ranks. Nothing here waits for the host."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.under_way: list[_Sent] = []

    def send(self, tables: Sequence[Tensor], drawn: Tensor | None, room: int | None) -> None:
        """Begin with what the tables, all touched by the same ids, have so far.

        Rows of `drawn` ids are a block, the same on all ranks; besides there is `room` for other ids on each. Without
        `room` the ranks ask each other for it, and wait: so it is where every position draws its own ids.
        """
        ids = [_ids(table) for table in tables]
        if room is None:
            room = max(self.world.all(min(len(ids[0]), len(tables[0]))))
        block = torch.empty_like(ids[0][:0]) if drawn is None else drawn.reshape(-1).to(torch.int32).sort().values
        others = _others(ids[0], block, room)
        rows = [_merged(table, each, block, others) for table, each in zip(tables, ids)]
        for table in tables:
            expect(table).clear()
        summed = torch.cat([each[: len(block)].flatten() for each in rows])
        mine = torch.cat([others.view(torch.float32), *(each[len(block) :].flatten() for each in rows)])
        everyone = mine.new_empty(self.world.size, len(mine))
        works = [gather(everyone.view(-1), mine, async_op=True)]
        if len(summed):
            works.append(dist.all_reduce(summed, async_op=True))
        self.under_way.append(_Sent(list(tables), block, room, works, summed, everyone))

    def receive(self) -> None:
        """Every table has the pieces of all ranks."""
        for sent in self.under_way:
            sent.receive()
        self.under_way = []


@dataclass(frozen=True)
class _Sent:
    tables: list[Tensor]
    block: Tensor  # ids
    room: int
    works: list[Any]
    summed: Tensor  # rows of the block, table after table
    everyone: Tensor  # of each rank: its other ids, as bits of float32, and their rows, table after table

    def receive(self) -> None:
        for work in self.works:
            work.wait()
        widths = [table[0].numel() for table in self.tables]
        blocks = self.summed.split([len(self.block) * width for width in widths])
        bits, *others = self.everyone.split([self.room, *(self.room * width for width in widths)], 1)
        ids = torch.cat([self.block, bits.contiguous().view(torch.int32).flatten()])  # one for all tables: sorted once
        for table, summed, each in zip(self.tables, blocks, others):
            rows = torch.cat([summed, each.flatten()]).view(-1, *table.shape[1:])
            expect(table).append(Exchanged(ids, rows))


def _ids(table: Tensor) -> Tensor:
    pieces = [piece.ids.to(torch.int32) for piece in expect(table)]
    return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.int32, device=table.device)


def _found(ids: Tensor, among: Tensor) -> tuple[Tensor, Tensor]:
    """Where each id stands among ids in order, and whether it does."""
    if not len(among):
        return torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    place = torch.searchsorted(among, ids).clamp(max=len(among) - 1)
    return place, among[place] == ids


def _others(ids: Tensor, block: Tensor, room: int) -> Tensor:
    """The ids that are not in the block, each once and in order: [room], NOWHERE where there are fewer."""
    _, known = _found(ids, block)
    left = ids.where(~known, NOWHERE).sort().values
    new = (left != left.roll(1)) | (torch.arange(len(left), device=left.device) == 0)
    place = (new.cumsum(0) - 1).where(new & (left != NOWHERE), room).clamp(max=room)
    return left.new_full((room + 1,), NOWHERE).scatter_(0, place, left)[:room]


def _merged(table: Tensor, ids: Tensor, block: Tensor, others: Tensor) -> Tensor:
    """The rows of the table's pieces, those of one id added up, for the block's ids and then the others."""
    place, known = _found(ids, block)
    beside, there = _found(ids, others)
    nowhere = len(block) + len(others)
    place = torch.where(known, place, len(block) + beside).where((known | there) & (ids != NOWHERE), nowhere)
    sums, pieces = table.new_zeros(nowhere + 1, *table.shape[1:], dtype=torch.float32), expect(table)
    for piece, mine in zip(pieces, place.split([len(piece.ids) for piece in pieces])):
        piece.add_to(sums, mine)
    return sums[:-1]
