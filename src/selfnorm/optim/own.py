"""What our own optimizers have in common: numbers stay on the device, so that no step waits for the host."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def check(lr: float, eps: float = 0.0, beta1: float = 0.0, beta2: float = 0.0) -> None:
    """What every optimizer asks of its numbers; PyTorch would say it without their names."""
    if not lr >= 0:
        raise ValueError(f"lr = {lr}: a learning rate is at least 0")
    if not eps >= 0:
        raise ValueError(f"eps = {eps}: it is at least 0")
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        raise ValueError(f"beta1 = {beta1} and beta2 = {beta2}: both are at least 0 and below 1")


class OwnOptimizer(torch.optim.Optimizer):
    """`square` and then `step` by gradients that are not in `.grad`; the state's tensors are there from the start."""

    def __init__(self, parameters: Any, lr: float) -> None:
        self.numbers: dict[float, Tensor] = {}  # learning rates and the like, on the device
        super().__init__(parameters, {"lr": lr})

    @property
    def given(self) -> list[Tensor]:
        """All parameters."""
        return [each for group in self.param_groups for each in group["params"]]

    def square(self) -> Tensor:
        """The squared norm of all gradients."""
        raise NotImplementedError

    def move(self, shrink: Tensor, finite: Tensor) -> None:
        """Move by the gradients times `shrink`, unless `finite` is 0."""
        raise NotImplementedError

    @torch.no_grad()
    def step(
        self, closure: Callable[[], Any] | None = None, *, shrink: Tensor | None = None, finite: Tensor | None = None
    ) -> Any:
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        self.move(*(self._number(1.0) if each is None else each.float() for each in (shrink, finite)))
        self.zero_grad()
        return value

    def settle(self) -> None:
        """What waits to be done is done: before parameters are used for more than training, or kept."""

    def _number(self, value: float | Tensor) -> Tensor:
        """On the device; the last few are kept there."""
        if isinstance(value, Tensor):
            return value
        if value not in self.numbers:
            self.numbers = {
                **dict(list(self.numbers.items())[-7:]),
                value: torch.full((), value, device=self.given[0].device),
            }
        return self.numbers[value]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the tensors that are there: float32, on the parameter's device, and maybe known to a CUDA graph."""
        kept = [self.state[each] for each in self.given]
        super().load_state_dict(state_dict)
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        for value in (value for mine in kept for value in mine.values()):  # some may be shared
            value.zero_()
        for parameter, mine, number in zip(self.given, kept, numbers):
            self.fill(mine, state_dict["state"].get(number, {}))
            self.state[parameter] = mine

    def fill(self, mine: dict[str, Tensor], given: dict[str, Any]) -> None:
        """The state of one parameter."""
        for name, value in given.items():
            mine[name].copy_(torch.as_tensor(value))
