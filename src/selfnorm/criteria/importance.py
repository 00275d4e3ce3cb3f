"""Importance sampling of binary cross entropy, and the paper's three ways to normalize it by itself.

All are softplus(-s_n) + sum_k softplus(s_k) / E_k, since -log q = softplus(-s) and -log(1 - q) = softplus(s).
"""

from torch import Tensor

from selfnorm.criteria.criterion import Criterion
from selfnorm.ops import MOST, Table, softplus, softplus_sum
from selfnorm.samplers import Sample


class ImportanceSampling(Criterion):
    """F = log q(x_n, c_n) + sum_k log(1 - q(x_n, c_k)) / E_k

    The sum takes in the target too, so the optimum is q = p / (1 + p): q / (1 - q) = exp(logit) gives p back.
    """

    link = "log"

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, noise = softplus_sum(hidden, output, sample, targets, scale=1 / sample.expected, most=most)
        return softplus(-logit) + noise  # [N]  -F


class Mode1(Criterion):
    """F = log q(x_n, c_n) + sum_k log(1 - q(x_n, c_k)) / E_k - log(1 - q(x_n, c_n))

    The target's own term is taken off again. log q - log(1 - q) is the logit itself, so a target that was not drawn is
    pushed up without bound: the hazard at small K.
    """

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, noise = softplus_sum(hidden, output, sample, targets, scale=1 / sample.expected, most=most)
        return noise - logit  # [N]  -F


class Mode2(Criterion):
    """F = log q(x_n, c_n) + sum_k log(1 - q(x_n, c_k)) / E_k,  c_k drawn with D(c_n) = 0"""

    sampler = "excluding"

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, noise = softplus_sum(hidden, output, sample, targets, scale=1 / sample.expected, most=most)
        return softplus(-logit) + (noise if sample.left is None else noise * sample.left.to(noise.dtype))  # [N]  -F


class Mode3(Criterion):
    """F = log q(x_n, c_n) + sum_k [c_k != c_n] log(1 - q(x_n, c_k)) / E_k"""

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, noise = softplus_sum(hidden, output, sample, targets, scale=1 / sample.expected, skip=True, most=most)
        return softplus(-logit) + noise  # [N]  -F
