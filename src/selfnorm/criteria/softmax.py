"""Softmax over the target and the drawn words alone."""

import torch
from torch import Tensor

from selfnorm.criteria.criterion import Criterion
from selfnorm.ops import MOST, Table, log_sum_exp
from selfnorm.samplers import Sample


class SampledSoftmax(Criterion):
    """F = r_n - log(exp(r_n) + sum_k [c_k != c_n] exp(r_k)),  r = logit - log E"""

    link = "log"
    needs_log_z = True
    uses_expected_target = True

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, noise = log_sum_exp(hidden, output, sample, targets, shift=sample.expected.log(), skip=True, most=most)
        found = logit - sample.expected_target.log().to(logit.dtype)  # [N]  r_n
        return torch.logaddexp(found, noise) - found  # [N]  -F
