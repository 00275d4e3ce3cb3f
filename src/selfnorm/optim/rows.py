"""Optimizers for tables of which a step touches few rows: only those are read or written.

    optimizer = RowAdam([weight, bias])
    SampledLoss(1_000_000, sparse=True)(hidden, weight, target, bias).backward()
    optimizer.step()

From the moment a table is given to one of them its row gradients are left here and `.grad` stays None. On a GPU nothing
waits for the host. Moments are float32; so should the table be (`half` keeps a bfloat16 copy for matrix products).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from selfnorm.ops import ADAGRAD, ADAM, SGD, Rule, Scalars, expect, keep_half, touched_rows


class RowOptimizer(torch.optim.Optimizer):
    """What all have: pieces of gradients go in, touched rows move."""

    moments: tuple[str, ...] = ()

    def __init__(self, tables: Iterable[Tensor], rule: Rule, lr: float, half: bool = False) -> None:
        if not lr >= 0:
            raise ValueError(f"lr = {lr}: a learning rate is at least 0")
        super().__init__(tables, {"lr": lr})
        self.rule = rule
        self.found: list[tuple[Tensor, Any]] | None = None  # this step's tables and their touched rows
        for table in self.tables:
            expect(table)
            if half and table.ndim > 1:
                keep_half(table)
            if not table.is_contiguous():
                raise ValueError(
                    f"a table of shape {tuple(table.shape)} is not contiguous; give a row optimizer its copy"
                )
            self.state[table] = {name: torch.zeros_like(table, dtype=torch.float32) for name in self.moments}
            self.state[table]["step"] = torch.zeros((), device=table.device)

    @property
    def tables(self) -> list[Tensor]:
        return [table for group in self.param_groups for table in group["params"]]

    def touched(self) -> list[tuple[Tensor, Any]]:
        """Every table that has gradients, with its touched rows."""
        if self.found is None:
            left = [(table, expect(table)) for table in self.tables]
            for table, _ in left:
                if table.grad is not None:
                    raise ValueError(
                        f"a table of shape {tuple(table.shape)} has a gradient of its own, which a row optimizer does "
                        "not read; take its rows with sparse=True everywhere, or give it to another optimizer"
                    )
            tables = [(table, list(pieces)) for table, pieces in left if pieces]
            self.found = list(zip([table for table, _ in tables], touched_rows([pieces for _, pieces in tables])))
        return self.found

    @torch.no_grad()
    def square(self) -> Tensor:
        """The squared norm of all gradients, rows merged first."""
        squares = [rows.square() for _, rows in self.touched()]
        return torch.stack(squares).sum() if squares else torch.zeros((), device=self.tables[0].device)

    @torch.no_grad()
    def step(
        self, closure: Callable[[], Any] | None = None, *, shrink: Tensor | None = None, finite: Tensor | None = None
    ) -> Any:
        """Move the touched rows by their gradients times `shrink`, unless `finite` is 0."""
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        found = {id(table): rows for table, rows in self.touched()}
        one = torch.ones((), device=self.tables[0].device)
        shrink, finite = one if shrink is None else shrink.float(), one if finite is None else finite.float()
        if found:
            steps = [self.state[table]["step"] for table in self.tables]
            torch._foreach_add_(steps, [finite] * len(steps))
        for group in self.param_groups:
            lr = group["lr"]
            lr = lr if isinstance(lr, Tensor) else torch.full_like(one, lr)
            for table in group["params"]:
                if id(table) in found:
                    state = self.state[table]
                    scalars = Scalars(lr, state["step"], shrink, finite)
                    found[id(table)].update(table, [state[name] for name in self.moments], self.rule, scalars)
        self.zero_grad()
        return value

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self.found = None
        for table in self.tables:
            expect(table).clear()


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
    """Adam whose moments move when their row is touched (as torch.optim.SparseAdam's do)"""

    moments = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        tables: Iterable[Tensor],
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.99,
        eps: float = 1e-8,
        *,
        half: bool = False,
    ) -> None:
        if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
            raise ValueError(f"beta1 = {beta1} and beta2 = {beta2}: both are at least 0 and below 1")
        super().__init__(tables, Rule(ADAM, eps, beta1, beta2), lr, half)
