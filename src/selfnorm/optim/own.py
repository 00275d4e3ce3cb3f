"""What our own optimizers have in common: numbers stay on the device, so that no step waits for the host."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from selfnorm.ops import ADAGRAD, ADAM, Rule

NOT_OURS = (  # options of torch's optimizers
    "weight_decay",
    "momentum",
    "dampening",
    "nesterov",
    "amsgrad",
    "maximize",
    "lr_decay",
    "initial_accumulator_value",
)


def check(lr: float, eps: float = 0.0, beta1: float = 0.0, beta2: float = 0.0) -> None:
    """What every optimizer asks of its numbers; PyTorch would say it without their names."""
    if isinstance(beta1, tuple | list):
        raise ValueError(f"beta1 = {beta1}: it is a number; give beta1 and beta2 apart")
    if not lr >= 0:
        raise ValueError(f"lr = {lr}: a learning rate is at least 0")
    if not eps >= 0:
        raise ValueError(f"eps = {eps}: it is at least 0")
    if not (0 <= beta1 < 1 and 0 <= beta2 < 1):
        raise ValueError(f"beta1 = {beta1} and beta2 = {beta2}: both are at least 0 and below 1")


class OwnOptimizer(torch.optim.Optimizer):
    """`square` and then `step` by gradients that are not in `.grad`; the state's tensors are there from the start."""

    _step_supports_amp_scaling = True  # it does not: but so a GradScaler comes to `step`, which can say it

    def __init__(self, parameters: Any, rule: Rule, lr: float) -> None:
        self.rule = rule  # its numbers stand in each group, by PyTorch's names
        self.numbers: dict[float, Tensor] = {}  # learning rates and the like, on the device
        super().__init__(parameters, {"lr": lr, **_named(rule)})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        try:
            self._check_group(self.param_groups[-1])
        except (ValueError, TypeError):
            del self.param_groups[-1]
            raise

    def _check_group(self, group: dict[str, Any]) -> None:
        """What torch's optimizers can do and ours cannot is refused; betas may have the names of the constructor."""
        if "betas" in group:
            beta1, beta2 = group["betas"]
            group["betas"] = group.pop("beta1", beta1), group.pop("beta2", beta2)
        self._check_options(group)
        rule = self.rule_of(group)
        check(group["lr"], rule.eps, rule.beta1, rule.beta2)

    def _check_options(self, group: dict[str, Any]) -> None:
        for name in NOT_OURS:
            if group.get(name):
                raise ValueError(f"{name} = {group[name]}: {type(self).__name__} has none; leave it out")

    def rule_of(self, group: dict[str, Any]) -> Rule:
        """How the parameters of a group move."""
        beta1, beta2 = group.get("betas", (0.0, 0.0))
        return Rule(self.rule.kind, group.get("eps", 0.0), beta1, beta2)

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
        self._check_scaler()
        value = None
        if closure is not None:
            with torch.enable_grad():
                value = closure()
        self.move(*(self._number(1.0) if each is None else each.float() for each in (shrink, finite)))
        self.zero_grad()
        return value

    def _check_scaler(self) -> None:
        """A GradScaler must count a step that it skips, and has no way to hear of one from here."""
        scaled = [vars(self).pop(name) for name in ("grad_scale", "found_inf") if name in vars(self)]
        if scaled:
            raise ValueError(
                f"a GradScaler cannot find the gradients of {type(self).__name__}, which are not in .grad; train "
                "without one in bfloat16 or float32, or take torch.optim.SparseAdam for a table, Adam for the rest"
            )

    def settle(self) -> None:
        """What waits to be done is done: before parameters are used for more than training, or kept."""

    def _number(self, value: float | Tensor) -> Tensor:
        """On the device; the last few are kept there."""
        if isinstance(value, Tensor):
            return value
        if value not in self.numbers:
            self.numbers = {
                **dict(list(self.numbers.items())[-7:]),
                value: torch.full((), value, dtype=torch.float32, device=self.given[0].device),
            }
        return self.numbers[value]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the tensors that are there: float32, on the parameter's device, and maybe known to a CUDA graph."""
        kept = [self.state[each] for each in self.given]
        for group in state_dict["param_groups"]:
            self._check_options(group)
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        ours = {_place(value) for mine in kept for value in mine.values()}  # a state_dict holds the tensors themselves
        given = [
            {name: value.clone() if _place(value) in ours else value for name, value in state.items()}
            for state in (state_dict["state"].get(number, {}) for number in numbers)
        ]
        for parameter, mine, new in zip(self.given, kept, given):
            self._check_fit(parameter, mine, new)
        super().load_state_dict(state_dict)
        for value in (value for mine in kept for value in mine.values()):  # some may be shared
            value.zero_()
        for parameter, mine, new in zip(self.given, kept, given):
            self.fill(mine, new)
            self.state[parameter] = mine

    def _check_fit(self, parameter: Tensor, mine: dict[str, Tensor], new: dict[str, Any]) -> None:
        for name, value in new.items():
            if name not in mine:
                raise ValueError(
                    f"the state to load has {name!r}, which {type(self).__name__} does not keep; "
                    "load the state of an optimizer of the same kind"
                )
            found, wanted = tuple(torch.as_tensor(value).shape), tuple(mine[name].shape)
            if found != wanted:
                raise ValueError(
                    f"the state to load has {name!r} of shape {found}, a parameter of shape {tuple(parameter.shape)} "
                    f"needs {wanted}; load the state of an optimizer for the same parameters"
                )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # a state may be older than their place there
            for name, value in _named(self.rule).items():
                group.setdefault(name, value)

    def fill(self, mine: dict[str, Tensor], given: dict[str, Any]) -> None:
        """The state of one parameter."""
        for name, value in given.items():
            mine[name].copy_(torch.as_tensor(value))


def _place(value: Any) -> int | None:
    """Where a tensor lies in memory, views of it included."""
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else None


def _named(rule: Rule) -> dict[str, Any]:
    """The numbers of a rule as PyTorch's optimizers name them."""
    eps = {"eps": rule.eps} if rule.kind in (ADAGRAD, ADAM) else {}
    return {"betas": (rule.beta1, rule.beta2), **eps} if rule.kind == ADAM else eps
