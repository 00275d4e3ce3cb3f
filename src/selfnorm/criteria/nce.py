"""Noise contrastive estimation: is this word from the text or from the noise?"""

from torch import Tensor

from selfnorm.criteria.criterion import Criterion
from selfnorm.ops import MOST, Table, softplus, softplus_sum
from selfnorm.samplers import Sample


class NoiseContrastive(Criterion):
    """F = log(q_n / (q_n + E_n)) + sum_k log(1 - q_k / (q_k + E_k)),  q = exp(logit)

    Hits stay in: without them it would be another criterion with another optimum.
    """

    link = "log"
    uses_expected_target = True

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, noise = softplus_sum(hidden, output, sample, targets, shift=sample.expected.log(), most=most)
        return softplus(sample.expected_target.log().to(logit.dtype) - logit) + noise  # [N]  -F
