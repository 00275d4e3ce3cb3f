"""The training criteria, each its equation: -F is the loss, one value per position."""

from collections.abc import Callable

from selfnorm.criteria.bce import BinaryCrossEntropy
from selfnorm.criteria.ce import CrossEntropy, VarianceRegularized
from selfnorm.criteria.criterion import Criterion
from selfnorm.criteria.importance import ImportanceSampling, Mode1, Mode2, Mode3
from selfnorm.criteria.linear import LinearBound
from selfnorm.criteria.nce import NoiseContrastive
from selfnorm.criteria.softmax import SampledSoftmax

CRITERIA: dict[str, Callable[..., Criterion]] = {
    "ce": CrossEntropy,
    "ce_vr": VarianceRegularized,
    "bce": BinaryCrossEntropy,
    "nce": NoiseContrastive,
    "is": ImportanceSampling,
    "mode1": Mode1,
    "mode2": Mode2,
    "mode3": Mode3,
    "sampled_softmax": SampledSoftmax,
    "linear": LinearBound,
}

__all__ = ["CRITERIA", "Criterion"]
