"""Binary cross entropy over the whole vocabulary: one yes, C - 1 times no."""

from torch import Tensor

from selfnorm.criteria.criterion import Criterion
from selfnorm.ops import MOST, Table, softplus, softplus_sum
from selfnorm.samplers import Sample


class BinaryCrossEntropy(Criterion):
    """F = log q(x_n, c_n) + sum_{c != c_n} log(1 - q(x_n, c)),  q = sigmoid(logit)"""

    sampled = False

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, others = softplus_sum(hidden, output, None, targets, skip=True, most=most)
        return softplus(-logit) + others  # [N]  -F
