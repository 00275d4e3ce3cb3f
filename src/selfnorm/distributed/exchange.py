"""What the ranks exchange in a training step, so that each ends it with the gradient of the whole batch.

Dense gradients are summed in runs of fixed content (`Dense`), each as soon as the backward pass has made it. Of a table
with row gradients only rows travel (`Rows`): all ranks have drawn the same ids, so the drawn rows are one block that is
summed, and every other row, of targets and inputs, is handed to all.

PyTorch's DistributedDataParallel would do for the dense part, but after its first step it rebuilds its runs in another
order: a training that goes on from a checkpoint would add up in another order than one that never stopped.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from selfnorm.distributed.world import World, gather
from selfnorm.ops import NOWHERE, Piece, expect

BYTES = 25 * 2**20  # of a run of dense gradients


class Share(Protocol):
    """What a rank knows of the other ranks' batches."""

    @property
    def most(self) -> int: ...
    @property
    def most_places(self) -> int: ...


class Alone:
    """One process exchanges nothing."""

    def backward(self, loss: Tensor, hidden: Tensor, drawn: Tensor | None, share: Share | None) -> Tensor:
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

    def backward(self, loss: Tensor, hidden: Tensor, drawn: Tensor | None, share: Share | None) -> Tensor:
        assert share is not None
        sent = False

        def send(*_: Any) -> None:
            """The output layer's rows are complete when the gradient of `hidden` is: the model's is still to come."""
            nonlocal sent
            if self.output and not sent:
                self.rows.send(self.output, drawn, None if drawn is None else share.most)
            sent = True

        self.dense.begin(loss.detach())
        hidden.register_hook(send)
        loss.backward()
        send()
        if self.inputs:
            self.rows.send(self.inputs, None, share.most_places)
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
        """Begin with what the tables have so far: rows of `drawn` ids, the same on all ranks, and `room` others.

        Without `room` the ranks ask each other for it, and wait: so it is where every position draws its own ids.
        """
        if room is None:
            room = max(self.world.all(max(sum(len(piece.ids) for piece in expect(table)) for table in tables)))
        ids = None if drawn is None else drawn.reshape(-1).to(torch.int32).sort().values
        parts = [_parted(table, ids, room) for table in tables]
        others = torch.cat([part.flatten() for _, *rest in parts for part in rest])
        everyone = others.new_empty(self.world.size, len(others))
        works = [gather(everyone.view(-1), others, async_op=True)]
        block = torch.cat([part[0].flatten() for part in parts])
        if ids is not None:
            works.append(dist.all_reduce(block, async_op=True))
        self.under_way.append(_Sent(list(tables), ids, room, works, block, everyone))

    def receive(self) -> None:
        """Every table has the pieces of all ranks."""
        for sent in self.under_way:
            sent.receive()
        self.under_way = []


class _Sent:
    def __init__(
        self, tables: list[Tensor], ids: Tensor | None, room: int, works: list[Any], block: Tensor, everyone: Tensor
    ) -> None:
        self.tables, self.ids, self.room, self.works = tables, ids, room, works
        self.block, self.everyone = block, everyone

    def receive(self) -> None:
        for work in self.works:
            work.wait()
        widths = [table[0].numel() for table in self.tables]
        drawn = 0 if self.ids is None else len(self.ids)
        blocks = self.block.split([drawn * width for width in widths])
        sizes = [size for width in widths for size in (self.room, self.room * width)]
        others = self.everyone.split(sizes, 1)
        for number, table in enumerate(self.tables):
            ids = others[2 * number].contiguous().view(torch.int32).flatten()
            rows = others[2 * number + 1].reshape(-1, *table.shape[1:])
            if self.ids is not None:
                ids = torch.cat([self.ids, ids])
                rows = torch.cat([blocks[number].view(-1, *table.shape[1:]), rows])
            expect(table).append(Piece(ids, rows))


def _parted(table: Tensor, drawn: Tensor | None, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """The table's pieces: rows of `drawn` ids [D, ...]; `room` ids of others, as bits of float32, and their rows."""
    pieces, width = expect(table), table.shape[1:]
    ids = torch.cat([piece.ids.to(torch.int32) for piece in pieces] or [table.new_empty(0, dtype=torch.int32)])
    rows = torch.cat([piece.rows().float() for piece in pieces] or [table.new_empty(0, *width)])
    pieces.clear()
    if drawn is not None:  # an id that was drawn twice has all its rows at the first place
        place = torch.searchsorted(drawn, ids).clamp(max=len(drawn) - 1)
        found = drawn[place] == ids
        block = rows.new_zeros(len(drawn) + 1, *width).index_add_(0, place.where(found, len(drawn)), rows)[:-1]
        others = torch.argsort(found | (ids == NOWHERE), stable=True)[:room]  # in their order, before all that is done
        ids, rows = ids.where(~found, NOWHERE)[others], rows[others]
    else:
        block = rows[:0]
    spare = room - len(ids)
    assert spare >= 0, f"{len(ids)} rows for {room} places"
    ids = torch.cat([ids, ids.new_full((spare,), NOWHERE)])
    return block, ids.view(torch.float32), torch.cat([rows, rows.new_zeros(spare, *width)])
