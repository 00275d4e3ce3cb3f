"""Cross entropy over the whole vocabulary, plain and with log Z held near 0."""

import math

from torch import Tensor

from selfnorm.criteria.criterion import Criterion
from selfnorm.ops import MOST, Table, log_sum_exp
from selfnorm.samplers import Sample


class CrossEntropy(Criterion):
    """F = s(x_n, c_n) - log Z(x_n),  Z = sum_c exp(s(x_n, c))"""

    link = "log"
    needs_log_z = True
    sampled = False

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, log_z = log_sum_exp(hidden, output, None, targets, most=most)
        return log_z - logit  # [N]  -F


class VarianceRegularized(Criterion):
    """F = s(x_n, c_n) - log Z(x_n) - alpha (log Z(x_n))^2"""

    link = "log"
    sampled = False

    def __init__(self, alpha: float = 0.1) -> None:
        if not (alpha > 0 and math.isfinite(alpha)):
            raise ValueError(f"criterion 'ce_vr' needs a finite alpha above 0, not {alpha}; without it, take 'ce'")
        self.alpha = alpha

    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        logit, log_z = log_sum_exp(hidden, output, None, targets, most=most)
        return log_z - logit + self.alpha * log_z**2  # [N]  -F
