"""Linear layers that can keep their weights in half precision, too: mixed precision then copies none at each step."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[nn.Parameter, Tensor]  # a parameter and its copy


class Linear(nn.Linear):
    """In training it multiplies by its copies, where it keeps some, under autocast.

    They are leaves of their own: the gradients are theirs, in half precision, and `selfnorm.optim.HalfAdam` moves the
    parameters by them.
    """

    halves: tuple[Tensor, ...] = ()

    def keep_half(self) -> list[Pair]:
        parameters = [each for each in (self.weight, self.bias) if isinstance(each, nn.Parameter)]
        self.halves = tuple(each.detach().to(torch.bfloat16).requires_grad_() for each in parameters)
        return list(zip(parameters, self.halves))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training and self.halves:
            return F.linear(inputs, *self.halves)
        return super().forward(inputs)
