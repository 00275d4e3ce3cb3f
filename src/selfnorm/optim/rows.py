"""Optimizers for tables of which a step touches few rows: only those are read or written.

    optimizer = RowAdam([weight, bias])
    SampledLoss(1_000_000, sparse=True)(hidden, weight, target, bias).backward()
    optimizer.step()

From the moment a table is given to one of them its row gradients are left here and `.grad` stays None, also for other
optimizers and after `torch.autograd.grad` (`zero_grad` drops them), until the optimizer is gone. On a GPU nothing waits
for the host. Moments are float32; so should the table be (`half` keeps a bfloat16 copy for matrix products). Before a
table is used for more than training, `RowAdam.settle()` lets all of its rows catch up.
"""

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from selfnorm.ops import (
    ADAGRAD,
    ADAM,
    MOST,
    SGD,
    Piece,
    Rule,
    Scalars,
    catch_up,
    expect,
    fresh_half,
    keep_half,
    stretches,
    touched_rows,
)
from selfnorm.ops.rows import Exchanged, kept_half
from selfnorm.optim.own import OwnOptimizer


class RowOptimizer(OwnOptimizer):
    """What all have: pieces of gradients go in, touched rows move."""

    moments: tuple[str, ...] = ()

    def __init__(self, tables: Iterable[Tensor], rule: Rule, lr: float, half: bool = False) -> None:
        self.half = half
        self.left: dict[Tensor, list[Piece]] = {}  # what the backward pass leaves at each table
        self.found: tuple[list[Piece], list[tuple[Tensor, Any]]] | None = None  # tables and their touched rows
        super().__init__(tables, rule, lr)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for table in self.param_groups[-1]["params"]:
            self.left[table] = self._wait_for(table)
            float32 = {"dtype": torch.float32, "device": table.device}
            self.state[table] = {name: torch.zeros_like(table, dtype=torch.float32) for name in self.moments}
            self.state[table]["step"] = torch.zeros((), **float32)
            if self.rule.kind == ADAM:  # the step that each stretch of a row is at
                parts = stretches(table[0].numel())
                self.state[table]["last"] = torch.zeros(len(table), parts, **float32)

    def _check_group(self, group: dict[str, Any]) -> None:
        super()._check_group(group)
        for table in group["params"]:
            _check_table(table)

    def _wait_for(self, table: Tensor) -> list[Piece]:
        left = expect(table)
        left.clear()  # what another optimizer left is not ours
        if self.half and table.ndim > 1 and kept_half(table) is None:
            keep_half(table)
        return left

    def touched(self) -> list[tuple[Tensor, Any]]:
        """Every table that has gradients, with its touched rows."""
        left = [(table, self.left[table]) for table in self.given]
        now = [piece for _, pieces in left for piece in pieces]
        if self.found is None or list(map(id, self.found[0])) != list(map(id, now)):
            for table, pieces in left:
                _check_gradient(table, pieces)
            tables = [(table, list(pieces)) for table, pieces in left if pieces]
            rows = touched_rows([pieces for _, pieces in tables])
            self.found = now, list(zip([table for table, _ in tables], rows))
        return self.found[1]

    @torch.no_grad()
    def square(self) -> Tensor:
        """The squared norm of all gradients, rows merged first."""
        squares = [rows.square() for _, rows in self.touched()]
        return torch.stack(squares).sum() if squares else torch.zeros_like(self._number(1.0))

    def move(self, shrink: Tensor, finite: Tensor) -> None:
        found = {id(table): rows for table, rows in self.touched()}
        if found:
            steps = [self.state[table]["step"] for table in self.given if id(table) in found]
            torch._foreach_add_(steps, [finite] * len(steps))
        for group in self.param_groups:
            lr, rule = self._number(group["lr"]), self.rule_of(group)
            for table in group["params"]:
                if id(table) in found:
                    state = self.state[table]
                    scalars = Scalars(lr, state["step"], shrink, finite)
                    found[id(table)].update(table, self._moments(table), rule, scalars)

    def _moments(self, table: Tensor) -> list[Tensor]:
        return [value for name, value in self.state[table].items() if name != "step"]

    @torch.no_grad()
    def settle(self) -> None:
        """Let every row catch up with the last step: before a table is used for more than training, or kept."""
        for group in self.param_groups:
            lr, rule = group["lr"], self.rule_of(group)
            for table in group["params"] if self.rule.kind == ADAM else ():
                rows = max(1, MOST // table[0].numel())  # at a time: no second table is made
                for first in range(0, len(table), rows):
                    part = slice(first, first + rows)
                    moments = [moment[part] for moment in self._moments(table)]
                    catch_up(table[part], moments, rule, lr, self.state[table]["step"])
                fresh_half(table)

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self.found = None
        for pieces in self.left.values():
            pieces.clear()

    def fill(self, mine: dict[str, Tensor], given: dict[str, Any]) -> None:
        super().fill(mine, given)
        if "last" in mine and given and "last" not in given:  # from torch.optim.Adam, whose rows are all there
            mine["last"].fill_(float(given["step"]))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "rule": self.rule, "half": self.half, "found": None, "numbers": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # a copied table knows nothing of who waits for its rows
        self.left = {table: self._wait_for(table) for table in self.given}


def _check_table(table: Tensor) -> None:
    if not table.ndim or not table.numel():
        raise ValueError(
            f"a table of shape {tuple(table.shape)} has no rows, or none with numbers in them; "
            "give a row optimizer one with at least one row of at least one number"
        )
    if not table.is_contiguous():
        raise ValueError(f"a table of shape {tuple(table.shape)} is not contiguous; give a row optimizer its copy")


def _check_gradient(table: Tensor, pieces: list[Piece]) -> None:
    """All of it is here: that of other processes, too, and nothing in `.grad`."""
    if not pieces and table.grad is None:
        return
    exchanged = bool(pieces) and all(isinstance(each, Exchanged) for each in pieces)
    ranks = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if ranks > 1 and not exchanged:
        raise ValueError(
            f"a row optimizer has the gradient of one of {ranks} processes for a table of shape {tuple(table.shape)}, "
            "which would drift apart; under DistributedDataParallel take nn.Embedding(..., sparse=True) as the table "
            "with torch.optim.SparseAdam, or dense gradients, or train by `selfnorm train --processes`"
        )
    if table.grad is not None:
        raise ValueError(
            f"a table of shape {tuple(table.shape)} has a gradient of its own, which a row optimizer does not read; "
            "give the loss sparse=True, take the rows of a tied embedding by selfnorm.ops.take(table, ids, True), "
            "or give the table to another optimizer"
        )


class RowSGD(RowOptimizer):
    """w -= lr g"""

    def __init__(self, tables: Iterable[Tensor], lr: float = 1.0, *, half: bool = False) -> None:
        super().__init__(tables, Rule(SGD), lr, half)


class RowAdagrad(RowOptimizer):
    """a += g^2;  w -= lr g / (sqrt(a) + eps)"""

    moments = ("sum",)

    def __init__(self, tables: Iterable[Tensor], lr: float = 0.1, eps: float = 1e-10, *, half: bool = False) -> None:
        super().__init__(tables, Rule(ADAGRAD, eps), lr, half)


class RowAdam(RowOptimizer):
    """Adam as `torch.optim.Adam` does it: a row that was not touched catches up when it is again, or in `settle`"""

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        tables: Iterable[Tensor],
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        *,
        half: bool = False,
    ) -> None:
        super().__init__(tables, Rule(ADAM, eps, beta1, beta2), lr, half)
