"""The linear bound on log Z: log Z <= Z - 1, with Z from samples."""

from torch import Tensor

from selfnorm.criteria.criterion import Criterion
from selfnorm.ops import MOST, Table, exp_sum
from selfnorm.samplers import Sample


class LinearBound(Criterion):
    """F = s(x_n, c_n) + 1 - sum_k exp(s(x_n, c_k)) / E_k,  exp continued by 1 + s above 0"""

    link = "log"

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, z = exp_sum(hidden, output, sample, targets, scale=1 / sample.expected, most=most)
        return z - 1 - logit  # [N]  -F
