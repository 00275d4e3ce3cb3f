"""Optimizers and learning rates: dense and row-sparse gradients under one norm, one clip and one step.

A step with a loss or gradient that is not finite changes nothing. On a GPU that is decided there, and learning rates
are numbers there, so that no step waits for the host and a whole training step can be one CUDA graph.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from selfnorm.ops import has_triton
from selfnorm.optim.halves import HalfAdam
from selfnorm.optim.own import OwnOptimizer, check
from selfnorm.optim.rows import RowAdagrad, RowAdam, RowOptimizer, RowSGD
from selfnorm.optim.schedules import SCHEDULES, Schedule
from selfnorm.registry import named

__all__ = [
    "OPTIMIZERS",
    "ROWS",
    "SCHEDULES",
    "HalfAdam",
    "Optimizer",
    "RowAdagrad",
    "RowAdam",
    "RowOptimizer",
    "RowSGD",
    "Schedule",
    "sibling",
]


def adam(
    parameters: list[nn.Parameter], lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8
) -> Any:
    check(lr, eps, beta1, beta2)
    return torch.optim.Adam(
        parameters, lr=lr, betas=(beta1, beta2), eps=eps, fused=True, capturable=_on_gpu(parameters)
    )


def adamw(
    parameters: list[nn.Parameter],
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Any:
    check(lr, eps, beta1, beta2)
    return torch.optim.AdamW(
        parameters,
        lr=lr,
        betas=(beta1, beta2),
        eps=eps,
        weight_decay=weight_decay,
        fused=True,
        capturable=_on_gpu(parameters),
    )


def sgd(parameters: list[nn.Parameter], lr: float = 1.0, momentum: float = 0.0) -> Any:
    check(lr)
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, fused=True)


def adagrad(parameters: list[nn.Parameter], lr: float = 0.1, eps: float = 1e-10) -> Any:
    check(lr, eps)
    return torch.optim.Adagrad(parameters, lr=lr, eps=eps)


OPTIMIZERS: dict[str, Callable[..., Any]] = {"adam": adam, "adamw": adamw, "sgd": sgd, "adagrad": adagrad}
ROWS: dict[str, Callable[..., Any]] = {"adam": RowAdam, "sgd": RowSGD, "adagrad": RowAdagrad}  # their siblings for rows


def sibling(name: str, rows: list[nn.Parameter], options: Mapping[str, Any]) -> RowOptimizer:
    """The optimizer for tables with row-sparse gradients that goes with `name`."""
    build = named("row-sparse optimizer", ROWS, name)
    if options.get("momentum"):
        raise ValueError("row-sparse tables take no momentum; set it to 0 or model.sparse to false")
    return build(rows, **{key: value for key, value in options.items() if key != "momentum"})


def _on_gpu(parameters: list[nn.Parameter]) -> bool:
    return any(each.device.type == "cuda" for each in parameters)


def _gradients(part: Any) -> list[Tensor]:
    """What this process has of each parameter's gradient; of a sparse one the values, each row once."""
    found = []
    for parameter in (each for group in part.param_groups for each in group["params"] if each.grad is not None):
        if parameter.grad.layout == torch.sparse_coo:
            parameter.grad = parameter.grad.coalesce()
            found.append(parameter.grad.values())
        else:
            found.append(parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad)
    return found


def _is_part(parameter: Tensor) -> bool:
    return hasattr(parameter, "to_local") or hasattr(parameter, "shards")


class Optimizer:
    """A torch optimizer for the dense parameters, and its row-sparse sibling for the tables; they share a schedule."""

    def __init__(self, *parts: Any, total: Callable[[Tensor], Tensor] = lambda mine: mine) -> None:
        self.parts, self.total = parts, total  # of what each process has a part of: its sum over all
        if not parts:
            raise ValueError("an Optimizer is made of others; give it those of the dense parameters and of the tables")
        self.parameters = [each for part in parts for group in part.param_groups for each in group["params"]]
        self.device = self.parameters[0].device
        self.lrs = [[float(group["lr"]) for group in part.param_groups] for part in parts]  # schedules give shares
        self.rate = self.lrs[0][0]  # the first, to be reported
        float32 = {"dtype": torch.float32, "device": self.device}
        self.rates = {lr: torch.full((), lr, **float32) for lrs in self.lrs for lr in lrs}  # on the device

    @property
    def never_waits(self) -> bool:
        """Whether a step runs on the device alone."""
        return all(
            has_triton() if isinstance(part, OwnOptimizer) else part.defaults.get("fused") for part in self.parts
        )

    def forget(self) -> None:
        """Drop all gradients."""
        for part in self.parts:
            part.zero_grad()

    def set_rate(self, scale: float) -> None:
        """Steps from now on are made at `scale` times the learning rate that each group had at first."""
        self.rate = self.lrs[0][0] * scale
        for lr, rate in self.rates.items():
            rate.fill_(lr * scale)
        for part, lrs in zip(self.parts, self.lrs):
            shared = isinstance(part, OwnOptimizer) or (part.defaults.get("fused") and self.device.type != "cpu")
            for group, lr in zip(part.param_groups, lrs):
                group["lr"] = self.rates[lr] if shared else lr * scale

    def step(self, loss: Tensor, clip: float | None = None) -> tuple[Tensor, Tensor]:
        """One update; returns the gradient's norm, and whether all was finite."""
        norm = self.norm()
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        shrink = torch.clamp(clip / (norm + 1e-6), max=1.0) if clip else torch.ones_like(norm)
        for part in self.parts:
            if isinstance(part, OwnOptimizer):
                part.step(shrink=shrink, finite=finite)
            elif part.defaults.get("fused") and norm.device.type != "cpu":
                part.grad_scale, part.found_inf = 1 / shrink, 1.0 - finite.float()
                part.step()
            elif bool(finite):
                for grad in _gradients(part):
                    grad.mul_(shrink)
                part.step()
        for parameter in self.parameters:
            parameter.grad = None
        return norm, finite

    def settle(self) -> None:
        """Every row of every table as it is after the last step; see RowOptimizer."""
        for part in self.parts:
            if isinstance(part, OwnOptimizer):
                part.settle()

    def norm(self) -> Tensor:
        """The norm of all gradients together, the rows of a table merged first."""
        whole: list[Tensor] = [torch.zeros((), dtype=torch.float32, device=self.device)]
        apart: list[Tensor] = []  # of what other processes have other parts of
        for part in self.parts:
            squares = apart if any(map(_is_part, part.param_groups[0]["params"])) else whole
            if isinstance(part, OwnOptimizer):
                squares.append(part.square())
                continue
            if grads := _gradients(part):
                norms = torch._foreach_norm(grads, dtype=torch.float32)
                squares.append(torch.stack(norms).square().sum())
        if apart:
            whole.append(self.total(torch.stack(apart).sum()))
        return torch.stack(whole).sum().sqrt()

    def state_dict(self) -> dict[str, Any]:
        """The states of its parts."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if len(state_dict["parts"]) != len(self.parts):
            raise ValueError(f"the state to load has {len(state_dict['parts'])} parts, not {len(self.parts)}")
        for part, state in zip(self.parts, state_dict["parts"]):
            part.load_state_dict(state)

    def tensors(self) -> dict[str, Tensor]:
        """The state of every parameter, by the number of its part, its own number and its key."""
        return {
            f"{part}.{number}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
            for part, each in enumerate(self.parts)
            for number, state in each.state_dict()["state"].items()
            for key, value in state.items()
        }

    def places(self) -> dict[int, str]:
        """Under which numbers the state of each parameter, by its id(), stands in `tensors`."""
        return {
            id(parameter): f"{number}.{index}"
            for number, part in enumerate(self.parts)
            for index, parameter in enumerate(each for group in part.param_groups for each in group["params"])
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for part, each in enumerate(self.parts):
            state: dict[int, dict[str, Any]] = {}
            for name, value in tensors.items():
                which, number, key = name.split(".")
                if int(which) == part:
                    state.setdefault(int(number), {})[key] = value
            each.load_state_dict({"state": state, "param_groups": each.state_dict()["param_groups"]})
