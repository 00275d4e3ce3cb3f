"""Taking rows of a table, with a gradient that is dense or holds these rows alone."""

from typing import Any

import torch
from torch import Tensor


class _SparseRows(torch.autograd.Function):
    """`nn.Embedding(sparse=True)` for tables of any rank: PyTorch's own has no sparse gradient for a bias."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.shape = table.shape
        return table.index_select(0, ids.reshape(-1)).view(*ids.shape, *table.shape[1:])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (ids,) = ctx.saved_tensors
        values = grads[0].reshape(-1, *ctx.shape[1:])
        return torch.sparse_coo_tensor(ids.reshape(1, -1), values, ctx.shape, check_invariants=False), None


def take(table: Tensor, ids: Tensor, sparse: bool = False) -> Tensor:
    """table[ids]; with `sparse` the gradient is a COO tensor of these rows, duplicates not merged."""
    if sparse:
        return _SparseRows.apply(table, ids)
    return table.index_select(0, ids.reshape(-1)).view(*ids.shape, *table.shape[1:])
