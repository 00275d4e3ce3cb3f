"""Cases for device_checks.py: sums over drawn words and over every word, each against plain in float64."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from selfnorm.criteria import CRITERIA
from selfnorm.noise import LogUniform, Unigram
from selfnorm.ops import MOST, columns, fused, softplus_sum
from selfnorm.output import Layer, identity
from selfnorm.registry import pick
from selfnorm.samplers import SAMPLERS, Sample

GPU = torch.cuda.is_available()
PLACE = "cuda" if GPU else "cpu"
SLACK = {"float32": 2e-6, "bfloat16": 2e-3, "mixed": 2e-3, "float16": 3e-4}
DTYPES = {  # of hidden and weight; the bias is float32
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
    "mixed": (torch.bfloat16, torch.float32),
}
WAYS = [  # sampler, noise
    ("systematic", "log_uniform"),
    ("systematic", "unigram"),
    ("distinct", "log_uniform"),
    ("replacement", "log_uniform"),
    ("excluding", "log_uniform"),
    ("excluding", "unigram"),
]


@dataclass(frozen=True)
class Found:
    """Cases, the largest share of an allowed distance, and those that are beyond it."""

    cases: int = 0
    worst: float = 0.0
    wrong: tuple[str, ...] = ()

    def __add__(self, other: "Found") -> "Found":
        return Found(self.cases + other.cases, max(self.worst, other.worst), self.wrong + other.wrong)


def judged(name: str, shares: dict[str, float]) -> Found:
    """One case: shares of the allowed distance, by what was compared."""
    shares = {each: math.inf if math.isnan(share) else share for each, share in shares.items()}
    beyond = ", ".join(f"{each} {share:.3g}" for each, share in shares.items() if share > 1)
    return Found(1, max(shares.values()), (f"{name}: {beyond} times what is allowed",) if beyond else ())


def distance(found: Tensor, truth: Tensor) -> float:
    truth = truth.double()
    return float((found.double() - truth).norm() / truth.norm().clamp(min=1e-30))


Values = dict[str, Tensor]


def compared(name: str, run: Callable[[str, str], Values], dtype: str) -> Found:
    """`run` with plain and fused in `dtype`, both against plain in float64."""
    truth, by_plain, by_fused = run("plain", "float64"), run("plain", dtype), run("fused", dtype)
    allowed = {each: 1.5 * distance(by_plain[each], truth[each]) + SLACK[dtype] for each in truth}
    return judged(f"{name} {dtype}", {each: distance(by_fused[each], truth[each]) / allowed[each] for each in truth})


@dataclass(frozen=True)
class Case:
    """Random vectors and weights, with logits around -6, as those of rare words are."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    targets: Tensor

    @staticmethod
    def made(n: int, size: int, h: int, bias: bool) -> "Case":
        generator = torch.Generator().manual_seed(n * size + h)
        draw = partial(torch.randn, generator=generator)
        hidden, weight, offsets = 2 * draw(n, h), draw(size, h) / h**0.5, draw(size) - 6
        targets = LogUniform(size).inverse(torch.rand(n, generator=generator))
        return Case(
            *(each.to(PLACE) for each in (hidden, weight)), offsets.to(PLACE) if bias else None, targets.to(PLACE)
        )

    def run(self, criterion: Any, sample: Any, like: str, impl: str, dtype: str, most: int = MOST) -> Values:
        """Loss, targets' logits and every gradient; inputs are rounded to `like` first, so that all start alike."""
        rounded = self.hidden.to(DTYPES[like][0]), self.weight.to(DTYPES[like][1])
        wide = torch.float64 if dtype == "float64" else torch.float32
        hidden, weight = (
            each.to(wide if dtype == "float64" else kind).clone().requires_grad_()
            for each, kind in zip(rounded, DTYPES[like])
        )
        bias = None if self.bias is None else self.bias.to(wide).clone().requires_grad_()
        layer = Layer(weight, bias, impl=impl)
        loss = criterion.loss(hidden, layer, self.targets, sample, most)
        shares = torch.linspace(0.5, 1.5, len(loss), dtype=loss.dtype, device=PLACE)
        (loss * shares).sum().backward()
        logit = softplus_sum(hidden, layer, sample, self.targets)[0]
        grads = {"hidden": hidden, "weight": weight} | ({} if bias is None else {"bias": bias})
        return {"loss": loss.detach(), "logit": logit.detach()} | {name: each.grad for name, each in grads.items()}


def sampled(small: bool, shape: tuple[int, int, int, int, bool], dtype: str) -> Iterator[Found]:
    """Every sampled criterion with every sampler that goes with it."""
    n, k, h, groups, bias = shape
    size = 60 if small else 3000
    case = Case.made(n, size, h, bias)
    counts = torch.rand(size, generator=torch.Generator().manual_seed(5)) ** 4 * 1000
    noises = {"log_uniform": LogUniform(size), "unigram": Unigram(counts)}
    for name in CRITERIA:
        criterion = pick("criterion", CRITERIA, name)
        for way, noise in WAYS if criterion.sampled else []:
            if (way == "excluding") == (name == "mode2"):
                sampler = pick("sampler", SAMPLERS, way, noise=noises[noise], k=k, groups=groups)
                sample = sampler.draw(case.targets, torch.Generator(PLACE).manual_seed(k))
                run = partial(case.run, criterion, sample, dtype)
                yield compared(f"{name} {way} {noise} {shape}", run, dtype)


def own(small: bool, shape: tuple[int, int, int, int, bool], dtype: str) -> Iterator[Found]:
    """Every sampled criterion with samples that each position has to itself, frequent words many times among them."""
    n, k, size, h, bias = shape
    case, noise = Case.made(n, size, h, bias), LogUniform(size)
    ids = noise.inverse(torch.rand(n, k, generator=torch.Generator().manual_seed(k)).double()).to(PLACE)
    ids = torch.where(ids == case.targets[:, None], (ids + 1) % size, ids)  # Mode2 is for samples without the target
    sample = Sample(ids, k * noise.prob(ids), k * noise.prob(case.targets))
    for name in CRITERIA:
        if (criterion := pick("criterion", CRITERIA, name)).sampled:
            yield compared(f"{name} own {shape}", partial(case.run, criterion, sample, dtype), dtype)


def every_word(small: bool, shape: tuple[int, int, int, bool], dtype: str) -> Iterator[Found]:
    n, size, h, bias = shape
    if small:
        fused.STRETCH = 128  # several stretches
    case = Case.made(n, size, h, bias)
    for name in ("ce", "ce_vr", "bce"):
        for how, most in (("at once", MOST), ("in stretches", n * size - 1)):
            run = partial(case.run, pick("criterion", CRITERIA, name), None, dtype, most=most)
            yield compared(f"{name} {how} {shape}", run, dtype)
    for link in (identity, F.logsigmoid):
        kind = columns.LOG_SIGMOIDS if link is F.logsigmoid else columns.LOG_SUM

        def run(impl: str, wanted: str, link: Callable[[Tensor], Tensor] = link, kind: int = kind) -> Values:
            hidden, weight = (each.to(to) for each, to in zip((case.hidden, case.weight), DTYPES[dtype]))
            bias = case.bias
            if wanted == "float64":
                hidden, weight, bias = hidden.double(), weight.double(), None if bias is None else bias.double()
            if impl == "fused":
                return {"log_z": fused.log_z(hidden, weight, bias, kind)}
            logit = (hidden @ weight.to(hidden.dtype).T).to(torch.promote_types(hidden.dtype, torch.float32))
            return {"log_z": link(logit if bias is None else logit + bias).logsumexp(-1)}

        yield compared(f"log_z {link.__name__} {shape}", run, dtype)
