"""SampledLoss: the front door. Replace `nn.CrossEntropyLoss` over a large vocabulary by one line."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from selfnorm.criteria import CRITERIA
from selfnorm.functional import REDUCTIONS, check_pair, sampled_loss
from selfnorm.noise import NOISES, Noise
from selfnorm.ops import IMPLS, MOST
from selfnorm.output import LINKS
from selfnorm.registry import named, pick
from selfnorm.samplers import SAMPLERS, Sampler

NOISE = "log_uniform"
OTHERS = {  # what belongs to a noise or a sampler
    "power": "noise=Unigram(counts, power=...)",
    "smoothing": "noise=Unigram(counts, smoothing=...)",
    "sharing": 'sampler=SAMPLERS["excluding"](noise, k, sharing=...), from selfnorm.samplers',
}


class SampledLoss(nn.Module):
    """A loss over `num_classes` words whose cost depends on `k`; with `sparse`, not on `num_classes` at all.

        loss = SampledLoss(1_000_000, k=8000)(hidden, weight, target, bias)

    noise      "log_uniform" (ids sorted by falling count), "unigram" (needs `counts`), "uniform", or a Noise
    sampler    "systematic", "distinct", "replacement", "rejection", or a Sampler; "excluding" for mode2 alone
    k          samples; 8000, or all classes where there are fewer
    groups     splits the batch's sequences into so many groups, each with its own k ids: less common noise
    sparse     row-sparse gradients of weight and bias: for selfnorm.optim.RowAdam, RowAdagrad or RowSGD, which touch
               the drawn and the target rows alone, or for torch.optim.SparseAdam, Adagrad or SGD
    impl       who computes the sums: "auto", "plain" (PyTorch) or "fused" (Triton, on a GPU)
    generator  where chance comes from; not inside activation checkpointing, which would draw twice from it
    most       logits in memory at a time

    A criterion over all words (`ce`, `ce_vr`, `bce`) draws nothing, and takes no notice of noise, sampler, k, groups or
    samples.

    `link` turns logits into scores, log q(x, c): use them as they are, unless `needs_log_z`.
    """

    def __init__(
        self,
        num_classes: int,
        criterion: str = "mode3",
        noise: str | Noise = NOISE,
        sampler: str | Sampler | None = None,
        k: int | None = None,
        *,
        groups: int = 1,
        counts: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int | None = -100,
        sparse: bool = False,
        impl: str = "auto",
        generator: torch.Generator | None = None,
        most: int = MOST,
        **options: Any,
    ) -> None:
        super().__init__()
        for option in OTHERS.keys() & options - signature(named("criterion", CRITERIA, criterion)).parameters.keys():
            raise ValueError(f"{option}= is not the criterion's: give {OTHERS[option]}")
        named("impl", IMPLS, impl)
        named("reduction", REDUCTIONS, reduction)
        self.criterion = pick("criterion", CRITERIA, criterion, **options)
        self.sampler = self._sampler(num_classes, noise, sampler, k, groups, counts) if self.criterion.sampled else None
        self.generator = generator
        self._options: dict[str, Any] = {
            "reduction": reduction,
            "ignore_index": ignore_index,
            "sparse": sparse,
            "impl": impl,
            "most": most,
        }
        self._name = f"{num_classes}, {criterion!r}" + (f", k={self.sampler.k}" if self.sampler else "")

    def _sampler(
        self,
        size: int,
        noise: str | Noise,
        sampler: str | Sampler | None,
        k: int | None,
        groups: int,
        counts: Tensor | None,
    ) -> Sampler:
        sampler = self.criterion.sampler if sampler is None else sampler
        if isinstance(sampler, str):
            made = _checked(_noise(size, noise, counts), size)
            sampler = pick("sampler", SAMPLERS, sampler, noise=made, k=k, groups=groups)
        elif k is not None or groups != 1 or counts is not None or noise not in (NOISE, sampler.noise):
            raise ValueError("this sampler has its own noise, k and groups; leave noise=, counts=, k= and groups= away")
        _checked(sampler.noise, size)
        check_pair(self.criterion, sampler)
        return sampler

    @property
    def link(self) -> Callable[[Tensor], Tensor]:
        """logit -> score"""
        return LINKS[self.criterion.link]

    @property
    def needs_log_z(self) -> bool:
        return self.criterion.needs_log_z

    def forward(
        self,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        bias: Tensor | None = None,
        *,
        samples: Tensor | None = None,
        log_expected: Tensor | None = None,
        log_expected_target: Tensor | None = None,
        example_weight: Tensor | None = None,
    ) -> Tensor:
        return sampled_loss(
            hidden,
            weight,
            target,
            bias,
            criterion=self.criterion,
            sampler=self.sampler,
            samples=samples,
            log_expected=log_expected,
            log_expected_target=log_expected_target,
            example_weight=example_weight,
            generator=self.generator,
            **self._options,
        )

    def extra_repr(self) -> str:
        return self._name


def _checked(noise: Noise, size: int) -> Noise:
    if noise.size != size:
        raise ValueError(f"the noise is over {noise.size} words, num_classes is {size}")
    return noise


def _noise(size: int, noise: str | Noise, counts: Tensor | None) -> Noise:
    if counts is not None and noise != "unigram":
        raise ValueError("counts= are for noise='unigram'; choose that noise, or leave them away")
    if noise == "unigram" and counts is None:
        raise ValueError("unigram noise needs counts=, one for each class")
    if isinstance(noise, str):
        return pick("noise", NOISES, noise, **({"counts": counts} if noise == "unigram" else {"size": size}))
    if isinstance(noise, Tensor) or not hasattr(noise, "inverse"):
        raise TypeError(f"noise= is a name or a Noise, not {type(noise).__name__}; for given counts: Unigram(counts)")
    return noise
