"""Optimizers for tables of which a step touches few rows: only those are read or written.

    optimizer = RowAdam([weight, bias])
    SampledLoss(1_000_000, sparse=True)(hidden, weight, target, bias).backward()
    optimizer.step()

From the moment a table is given to one of them its row gradients are left here and `.grad` stays None, also for other
optimizers and after `torch.autograd.grad` (`zero_grad` drops them). On a GPU nothing waits for the host. Moments are
float32; so should the table be (`half` keeps a bfloat16 copy for matrix products). Before a table is used for more than
training, `RowAdam.settle()` lets all of its rows catch up.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from selfnorm.ops import (
    ADAGRAD,
    ADAM,
    MOST,
    SGD,
    Rule,
    Scalars,
    catch_up,
    expect,
    fresh_half,
    keep_half,
    stretches,
    touched_rows,
)


def check(lr: float, eps: float = 0.0, beta1: float = 0.0, beta2: float = 0.0) -> None:
    """What every optimizer asks of its numbers; PyTorch would say it without their names."""
    if not lr >= 0:
        raise ValueError(f"lr = {lr}: a learning rate is at least 0")
    if not eps >= 0:
        raise ValueError(f"eps = {eps}: it is at least 0")
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        raise ValueError(f"beta1 = {beta1} and beta2 = {beta2}: both are at least 0 and below 1")


class RowOptimizer(torch.optim.Optimizer):
    """What all have: pieces of gradients go in, touched rows move."""

    moments: tuple[str, ...] = ()

    def __init__(self, tables: Iterable[Tensor], rule: Rule, lr: float, half: bool = False) -> None:
        check(lr, rule.eps, rule.beta1, rule.beta2)
        self.rule, self.half = rule, half
        self.numbers: dict[float, Tensor] = {}  # learning rates and the like, on the device
        self.found: tuple[list[int], list[tuple[Tensor, Any]]] | None = None  # pieces, tables and their touched rows
        super().__init__(tables, {"lr": lr})

    @property
    def tables(self) -> list[Tensor]:
        return [table for group in self.param_groups for table in group["params"]]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        for table in self.param_groups[-1]["params"]:
            if not table.is_contiguous():
                raise ValueError(
                    f"a table of shape {tuple(table.shape)} is not contiguous; give a row optimizer its copy"
                )
            self._wait_for(table)
            self.state[table] = {name: torch.zeros_like(table, dtype=torch.float32) for name in self.moments}
            self.state[table]["step"] = torch.zeros((), device=table.device)
            if self.rule.kind == ADAM:  # the step that each stretch of a row is at
                parts = stretches(table[0].numel())
                self.state[table]["last"] = torch.zeros(len(table), parts, device=table.device)

    def _wait_for(self, table: Tensor) -> None:
        expect(table).clear()  # what another optimizer left is not ours
        if self.half and table.ndim > 1 and not hasattr(table, "half_copy"):
            keep_half(table)

    def touched(self) -> list[tuple[Tensor, Any]]:
        """Every table that has gradients, with its touched rows."""
        left = [(table, expect(table)) for table in self.tables]
        counts = [len(pieces) for _, pieces in left]
        if self.found is None or self.found[0] != counts:
            for table, _ in left:
                if table.grad is not None:
                    raise ValueError(
                        f"a table of shape {tuple(table.shape)} has a gradient of its own, which a row optimizer does "
                        "not read; take its rows with sparse=True everywhere, or give it to another optimizer"
                    )
            tables = [(table, list(pieces)) for table, pieces in left if pieces]
            rows = touched_rows([pieces for _, pieces in tables])
            self.found = counts, list(zip([table for table, _ in tables], rows))
        return self.found[1]

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
        shrink, finite = (self._number(1.0) if each is None else each.float() for each in (shrink, finite))
        if found:
            steps = [self.state[table]["step"] for table in self.tables if id(table) in found]
            torch._foreach_add_(steps, [finite] * len(steps))
        for group in self.param_groups:
            lr = group["lr"]
            lr = lr if isinstance(lr, Tensor) else self._number(lr)
            for table in group["params"]:
                if id(table) in found:
                    state = self.state[table]
                    scalars = Scalars(lr, state["step"], shrink, finite)
                    found[id(table)].update(table, self._moments(table), self.rule, scalars)
        self.zero_grad()
        return value

    def _moments(self, table: Tensor) -> list[Tensor]:
        return [value for name, value in self.state[table].items() if name != "step"]

    @torch.no_grad()
    def settle(self) -> None:
        """Let every row catch up with the last step: before a table is used for more than training, or kept."""
        for group in self.param_groups:
            lr = group["lr"]
            for table in group["params"] if self.rule.kind == ADAM else ():
                rows = max(1, MOST // table[0].numel())  # at a time: no second table is made
                for first in range(0, len(table), rows):
                    part = slice(first, first + rows)
                    catch_up(table, self._moments(table), self.rule, lr, self.state[table]["step"], part)
                fresh_half(table)

    def _number(self, value: float) -> Tensor:
        """On the device; the last few are kept there."""
        if value not in self.numbers:
            self.numbers = {
                **dict(list(self.numbers.items())[-7:]),
                value: torch.full((), value, device=self.tables[0].device),
            }
        return self.numbers[value]

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self.found = None
        for table in self.tables:
            expect(table).clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the tensors that are there: float32, on the table's device, and maybe known to a CUDA graph."""
        kept = [self.state[table] for table in self.tables]
        super().load_state_dict(state_dict)
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for table, mine, number in zip(self.tables, kept, numbers):
            given = state_dict["state"].get(number, {})
            for value in mine.values():
                value.zero_()
            for name, value in given.items():
                mine[name].copy_(torch.as_tensor(value))
            if "last" in mine and given and "last" not in given:  # from torch.optim.Adam, whose rows are all there
                mine["last"].fill_(float(given["step"]))
            self.state[table] = mine

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "rule": self.rule, "half": self.half, "found": None, "numbers": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for table in self.tables:  # a copied table knows nothing of who waits for its rows
            self._wait_for(table)


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
