"""What every criterion has."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from selfnorm.ops import MOST, Table
from selfnorm.samplers import Sample


class Criterion(ABC):
    link: ClassVar[str] = "logsigmoid"  # logit -> score, by its name in output.LINKS
    needs_log_z: ClassVar[bool] = False  # False: self-normalized, the score is used as it is
    sampled: ClassVar[bool] = True  # False: runs over the whole vocabulary and does not look at `sample`
    sampler: ClassVar[str] = "systematic"  # that draws for it where none is named
    uses_expected_target: ClassVar[bool] = False  # the target's own E enters the loss

    @abstractmethod
    def loss(self, hidden: Tensor, output: Table, targets: Tensor, sample: Sample, most: int = MOST) -> Tensor:
        """-F at each position: hidden [N, H], targets [N] -> [N], with at most `most` logits in memory."""
