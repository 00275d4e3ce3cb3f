"""Adam for a model that trains by copies of its weights in half precision (`Model.keep_half`).

Autocast copies every weight before it is used and every gradient after, by a kernel each. Here the copies stay: their
gradients are gathered in one launch, and another one moves the weights, in float32, and renews the copies.
"""

from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from selfnorm.ops import ADAM, Rule, Scalars, move_halves
from selfnorm.optim.own import OwnOptimizer

ALIGNED = 64  # numbers: matrix products want weights to begin at round places


class HalfAdam(OwnOptimizer):
    """As `torch.optim.Adam`. Weights, moments, copies and gradients lie in one tensor each, one after the other.

    So neither it nor its model can be copied; a state_dict can. Whoever else writes to the weights calls `renew`.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[nn.Parameter, Tensor]],  # each parameter, and its copy
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        parameters, self.halves = zip(*pairs)
        super().__init__(parameters, Rule(ADAM, eps, beta1, beta2), lr)
        sizes = [-(-each.numel() // ALIGNED) * ALIGNED for each in parameters]
        self.places = [0, *accumulate(sizes)]
        like, half = parameters[0].detach(), self.halves[0].detach()
        self.weights, first, second = (like.new_zeros(self.places[-1]) for _ in range(3))
        self.copies, self.grads = (half.new_zeros(self.places[-1]) for _ in range(2))
        self.moments, self.steps = (first, second), like.new_zeros(())
        self.found: Tensor | None = None  # the gradients, once they are gathered
        of = (self._apart(each) for each in (self.weights, first, second, self.copies))
        for parameter, half, weight, *moments, copy in zip(parameters, self.halves, *of):
            weight.copy_(parameter.detach())
            parameter.data, half.data = weight, copy
            self.state[parameter] = {"step": self.steps} | dict(zip(("exp_avg", "exp_avg_sq"), moments))
        self.renew()

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("HalfAdam shares memory with its model: neither can be copied; copy their state_dict()")

    def _apart(self, flat: Tensor) -> list[Tensor]:
        return [flat[first : first + each.numel()].view_as(each) for first, each in zip(self.places, self.given)]

    def renew(self) -> None:
        """Somebody else has written to the parameters: the copies follow."""
        self.copies.copy_(self.weights)

    @torch.no_grad()
    def gathered(self) -> Tensor:
        """The gradients of all copies; 0 where there is none."""
        if self.found is None:
            into, grads = self._apart(self.grads), [half.grad for half in self.halves]
            if all(grad is not None for grad in grads):
                torch._foreach_copy_(into, grads)
            else:
                for mine, grad in zip(into, grads):
                    mine.zero_() if grad is None else mine.copy_(grad)
            self.found = self.grads
        return self.found

    @torch.no_grad()
    def square(self) -> Tensor:
        self.found = None  # there may be more by now
        return torch.linalg.vector_norm(self.gathered(), dtype=torch.float32).square()

    def move(self, shrink: Tensor, finite: Tensor) -> None:
        self.steps.add_(finite)
        (group,) = self.param_groups
        scalars = Scalars(self._number(group["lr"]), self.steps, shrink, finite)
        flat = self.weights, self.copies, *self.moments, self.gathered()
        move_halves(*flat, self.rule_of(group), scalars)

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self.found = None
        for half in self.halves:
            half.grad = None
