"""Row optimizers where several processes train: never by the gradient of one alone."""

import pytest
import torch
from ranks import on_ranks
from torch import nn

from selfnorm import Output, SampledLoss
from selfnorm.distributed.exchange import Rows
from selfnorm.optim import RowAdam, RowSGD

C, H, N = 50, 4, 12


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(H, H), Output(C, H, sparse=True)
        self.loss = SampledLoss(C, k=10, sparse=True)

    def forward(self, hidden, targets):
        return self.loss(self.body(hidden), self.head.weight, targets, self.head.bias)


@pytest.mark.parametrize("build", [RowSGD, RowAdam])
@pytest.mark.parametrize("unused", [True, False])
def test_under_ddp_they_refuse(unused, build):
    """DDP sees no gradient of the tables, and exchanges none."""

    def work(world):
        model = Small()
        optimizer = build(model.head.parameters())
        wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=unused)
        wrapped(torch.randn(N, H), torch.randint(C, (N,))).backward()
        before = model.head.bias.detach().clone()
        with pytest.raises(ValueError, match=r"one of 2 processes.*shape \(50, 4\).*SparseAdam.*train --processes"):
            optimizer.step()
        assert torch.equal(model.head.bias, before)

    on_ranks(2, work)


class Embedded(nn.Module):
    """What docs/loss.md says of DDP: it knows that gradients of this table are rows."""

    def __init__(self):
        super().__init__()
        self.body, self.table = nn.Linear(H, H), nn.Embedding(C, H, sparse=True)
        self.loss = SampledLoss(C, k=10, sparse=True)

    def forward(self, hidden, targets):
        return self.loss(self.body(hidden), self.table.weight, targets)


def test_under_ddp_an_embedding_is_a_table():
    def work(world):
        torch.manual_seed(world.rank)
        model = Embedded()
        wrapped = nn.parallel.DistributedDataParallel(model)
        first = model.table.weight.detach().clone()
        optimizers = [torch.optim.Adam(model.body.parameters()), torch.optim.SparseAdam([model.table.weight], lr=0.1)]
        for _ in range(2):
            wrapped(torch.randn(N, H), torch.randint(C, (N,))).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        assert not torch.equal(model.table.weight, first)
        return model.table.weight.detach().tolist()

    one, other = on_ranks(2, work)
    assert one == other


def test_rows_that_were_exchanged_are_taken():
    """By what the trainer uses, in a loop of one's own."""

    def work(world):
        head = Output(C, H, sparse=True)
        optimizer, rows = RowSGD(head.parameters(), lr=1.0), Rows(world)
        ids = torch.arange(3) + world.rank
        (head.layer.rows(ids)[0] + head.layer.rows(ids)[1][:, None]).sum().backward()
        rows.send([head.weight, head.bias], None, None)
        rows.receive()
        optimizer.step()
        return head.weight.detach()[:5, 0].tolist()

    assert on_ranks(2, work) == [[-1, -2, -2, -1, 0]] * 2
