"""Optimizers and learning rates: dense and row-sparse gradients under one norm, one clip and one step.

A step with a loss or gradient that is not finite changes nothing. On a GPU that is decided there, by the fused
optimizers' own switch, so that no step waits for the host.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from selfnorm.registry import named

State = dict[str, Any]  # numbers and strings, as JSON keeps them


def adam(
    parameters: list[nn.Parameter], lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8
) -> Any:
    return torch.optim.Adam(parameters, lr=lr, betas=(beta1, beta2), eps=eps, fused=True)


def adamw(
    parameters: list[nn.Parameter],
    lr: float = 1e-3,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> Any:
    return torch.optim.AdamW(parameters, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay, fused=True)


def sgd(parameters: list[nn.Parameter], lr: float = 1.0, momentum: float = 0.0) -> Any:
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, fused=True)


def adagrad(parameters: list[nn.Parameter], lr: float = 0.1, eps: float = 1e-10) -> Any:
    return torch.optim.Adagrad(parameters, lr=lr, eps=eps)


def _rows_adam(
    rows: list[nn.Parameter], lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.99, eps: float = 1e-8
) -> Any:
    return torch.optim.SparseAdam(rows, lr=lr, betas=(beta1, beta2), eps=eps)


def _rows_sgd(rows: list[nn.Parameter], lr: float = 1.0) -> Any:
    return torch.optim.SGD(rows, lr=lr)


OPTIMIZERS: dict[str, Callable[..., Any]] = {"adam": adam, "adamw": adamw, "sgd": sgd, "adagrad": adagrad}
ROWS: dict[str, Callable[..., Any]] = {"adam": _rows_adam, "sgd": _rows_sgd, "adagrad": adagrad}  # row-sparse gradients


def sibling(name: str, rows: list[nn.Parameter], options: Mapping[str, Any]) -> Any:
    """The optimizer for tables with row-sparse gradients that goes with `name`."""
    build = named("row-sparse optimizer", ROWS, name)
    if options.get("momentum"):
        raise ValueError("row-sparse tables take no momentum; set it to 0 or model.sparse to false")
    return build(rows, **{key: value for key, value in options.items() if key != "momentum"})


class Optimizer:
    """A torch optimizer for the dense parameters, and its row-sparse sibling for the tables; they share their rate."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.parameters = [each for part in parts for group in part.param_groups for each in group["params"]]
        self.lr = self.rate  # the recipe's; schedules give shares of it

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.parts[0].param_groups[0]["lr"])

    def step(self, loss: Tensor, scale: float = 1.0, clip: float | None = None) -> tuple[Tensor, Tensor]:
        """One update at `scale` times the learning rate; returns the gradient's norm, and whether all was finite."""
        norm = total_norm(parameter.grad for parameter in self.parameters if parameter.grad is not None)
        finite = torch.isfinite(norm) & torch.isfinite(loss)
        shrink = torch.clamp(clip / (norm + 1e-6), max=1.0) if clip else torch.ones_like(norm)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.lr * scale
            if part.defaults.get("fused") and norm.device.type != "cpu":
                part.grad_scale, part.found_inf = 1 / shrink, 1.0 - finite.float()
                part.step()
            elif bool(finite):
                for group in part.param_groups:
                    _shrink(group["params"], shrink)
                part.step()
        for parameter in self.parameters:
            parameter.grad = None
        return norm, finite

    def tensors(self) -> dict[str, Tensor]:
        """The state of every parameter, by the number of its part, its own number and its key."""
        return {
            f"{part}.{number}.{key}": value if isinstance(value, Tensor) else torch.tensor(value)
            for part, each in enumerate(self.parts)
            for number, state in each.state_dict()["state"].items()
            for key, value in state.items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for part, each in enumerate(self.parts):
            state: dict[int, dict[str, Any]] = {}
            for name, value in tensors.items():
                which, number, key = name.split(".")
                if int(which) == part:
                    whole = key == "step" and isinstance(each, torch.optim.SparseAdam)  # it counts in plain numbers
                    state.setdefault(int(number), {})[key] = int(value) if whole else value
            each.load_state_dict({"state": state, "param_groups": each.state_dict()["param_groups"]})


def total_norm(grads: Iterable[Tensor]) -> Tensor:
    """The norm of all gradients together; the rows of a sparse one are merged first."""
    norms = []
    for grad in grads:
        values = grad.coalesce().values() if grad.is_sparse else grad
        norms.append(torch.linalg.vector_norm(values, dtype=torch.float32))
    return torch.linalg.vector_norm(torch.stack(norms))


def _shrink(parameters: Iterable[nn.Parameter], shrink: Tensor) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = (
                parameter.grad.coalesce() * shrink if parameter.grad.is_sparse else parameter.grad.mul_(shrink)
            )


class Schedule(Protocol):
    """The learning rate as a share of the recipe's, by step and epoch (with its fraction), after what was observed."""

    def scale(self, step: int, epoch: float, total: int) -> float: ...
    def observe(self, perplexity: float) -> None: ...
    def state(self) -> State: ...
    def restore(self, state: State) -> None: ...


class Constant:
    """Rises over `warmup` steps, then stays."""

    def __init__(self, warmup: int = 0) -> None:
        self.warmup = warmup

    def scale(self, step: int, epoch: float, total: int) -> float:
        return min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0

    def observe(self, perplexity: float) -> None:
        pass

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class Cosine(Constant):
    """Rises over `warmup` steps, then falls by half a cosine to `end` at the last step."""

    def __init__(self, warmup: int = 100, end: float = 0.0) -> None:
        super().__init__(warmup)
        self.end = end

    def scale(self, step: int, epoch: float, total: int) -> float:
        if step < self.warmup:
            return super().scale(step, epoch, total)
        done = (step - self.warmup) / max(1, total - self.warmup)
        return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Step(Constant):
    """Stays for `hold` epochs, then is multiplied by `factor` at the start of each."""

    def __init__(self, hold: int = 4, factor: float = 0.5, warmup: int = 0) -> None:
        super().__init__(warmup)
        self.hold, self.factor = hold, factor

    def scale(self, step: int, epoch: float, total: int) -> float:
        return super().scale(step, epoch, total) * self.factor ** max(0, int(epoch) - self.hold + 1)


class Newbob(Constant):
    """Is multiplied by `factor` whenever the development perplexity improves by less than `threshold` of itself."""

    def __init__(self, factor: float = 0.5, threshold: float = 0.005, warmup: int = 0) -> None:
        super().__init__(warmup)
        self.factor, self.threshold = factor, threshold
        self.best, self.decays = math.inf, 0

    def scale(self, step: int, epoch: float, total: int) -> float:
        return super().scale(step, epoch, total) * self.factor**self.decays

    def observe(self, perplexity: float) -> None:
        if not perplexity < self.best * (1 - self.threshold):
            self.decays += 1
        self.best = min(self.best, perplexity)

    def state(self) -> State:
        return {"best": self.best, "decays": self.decays}

    def restore(self, state: State) -> None:
        self.best, self.decays = state["best"], state["decays"]


SCHEDULES: dict[str, Callable[..., Schedule]] = {"constant": Constant, "cosine": Cosine, "step": Step, "newbob": Newbob}
