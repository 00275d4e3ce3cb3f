"""A language with a known truth: p(c|x) is a table, so a trained model's scores can be held against it."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from selfnorm.criteria import CRITERIA
from selfnorm.functional import sampled_loss
from selfnorm.noise import LogUniform
from selfnorm.output import Output
from selfnorm.registry import pick
from selfnorm.samplers import SAMPLERS, Sampler

STEPS = 800
POSITIONS, WIDTH = 512, 16  # N and H


class ZipfMarkov:
    """p(c|x) = (1 - mix) zipf(c) + mix zipf(rank of c in the order that belongs to x)

    Words follow Zipf's law on the whole, and each history, the word before, has favourites of its own.
    Histories fall into `orders` kinds, so that a small model can learn them exactly.
    """

    def __init__(self, size: int = 500, orders: int = 8, mix: float = 0.5, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        zipf = 1 / torch.arange(1, size + 1, dtype=torch.float64)
        zipf = zipf / zipf.sum()
        ranks = torch.stack([torch.randperm(size, generator=generator) for _ in range(orders)])
        kinds = (1 - mix) * zipf + mix * zipf[ranks]  # [orders, C]
        kind = torch.arange(size) % orders
        start = self._stationary(kinds, kind)
        order = start.argsort(descending=True)  # ids by falling frequency, as log-uniform noise needs them
        self.size = size
        self.unigram = start[order]
        self.kind = kind[order]
        self.kinds = kinds[:, order]
        # the cumulated sums of all kinds in one rising line: kind k's lies in [k, k + 1)
        self.stacked = (self.kinds.cumsum(1) + torch.arange(orders)[:, None]).flatten()

    @staticmethod
    def _stationary(kinds: Tensor, kind: Tensor) -> Tensor:
        share = torch.full((len(kind),), 1 / len(kind), dtype=torch.float64)
        for _ in range(200):
            share = torch.zeros(len(kinds), dtype=torch.float64).index_add_(0, kind, share) @ kinds
        return share

    def posterior(self, histories: Tensor) -> Tensor:
        """p(c|x), exactly: [N] -> [N, C]"""
        return self.kinds[self.kind[histories]]

    def after(self, histories: Tensor, generator: torch.Generator) -> Tensor:
        """Draw the next word of each history: [N] -> [N]"""
        kind = self.kind[histories]
        u = torch.rand(len(histories), generator=generator, dtype=torch.float64)
        place = torch.searchsorted(self.stacked, kind + u, right=True) - kind * self.size
        return place.clamp(0, self.size - 1)

    def pairs(self, number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Histories and the words after them, as they follow each other in an endless text: [number], [number]"""
        histories = torch.multinomial(self.unigram, number, replacement=True, generator=generator)
        return histories, self.after(histories, generator)

    @property
    def perplexity(self) -> float:
        """Of the truth itself: no model does better."""
        entropy = -(self.kinds * self.kinds.log()).sum(1)
        return math.exp(float((self.unigram * entropy[self.kind]).sum()))


@dataclass(frozen=True)
class Row:
    criterion: str
    k: int | None
    loss: float
    perplexity: float  # normalized
    perplexity_as_is: float  # exp of the mean negative score
    kl: float  # to the truth, normalized, in nats
    kl_as_is: float  # E_p[log p - score]: below `kl` by the mean of log Z
    log_z_mean: float
    log_z_std: float
    words_per_second: float


def compare(language: ZipfMarkov, k: int = 100, steps: int = STEPS, seed: int = 1) -> Iterator[Row]:
    """Train one small model with each criterion on the same text, and hold it against the truth."""
    for name in CRITERIA:
        yield train(language, name, k, steps, seed)


def train(language: ZipfMarkov, name: str, k: int, steps: int, seed: int) -> Row:
    criterion = pick("criterion", CRITERIA, name)
    noise = LogUniform(language.size)
    sampler: Sampler = pick("sampler", SAMPLERS, criterion.sampler, noise=noise, k=k)
    generator = torch.Generator().manual_seed(seed)
    output = Output(language.size, WIDTH, link=criterion.link, normalize=criterion.needs_log_z)
    output.start_from(language.unigram * 1e6)
    embedding = nn.Embedding(language.size, WIDTH)
    embedding.weight.data.normal_(generator=generator)
    optimizer = torch.optim.Adam([*output.parameters(), *embedding.parameters()], lr=0.02, betas=(0.9, 0.99))
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    last = max(1, steps // 4)  # the steps over which the loss is averaged
    average, begin = 0.0, time.perf_counter()
    for step in range(steps):
        histories, targets = language.pairs(POSITIONS, generator)
        loss = sampled_loss(
            embedding(histories),
            output.weight,
            targets,
            output.bias,
            criterion=criterion,
            sampler=sampler,
            generator=generator,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
        average += float(loss.detach()) / last if step >= steps - last else 0.0
    speed = steps * POSITIONS / (time.perf_counter() - begin)
    return _judge(language, name, k if criterion.sampled else None, average, output, embedding, speed)


@torch.no_grad()
def _judge(
    language: ZipfMarkov,
    name: str,
    k: int | None,
    loss: float,
    output: Output,
    embedding: Callable[[Tensor], Tensor],
    speed: float,
) -> Row:
    """Expectations over every history and word, weighted by the truth: no sampling error."""
    histories = torch.arange(language.size)
    truth = language.posterior(histories)  # [C, C]
    hidden = embedding(histories)
    raw = output.link(output.logit(hidden[:, None], histories[None])).double()
    log_z = raw.logsumexp(1)
    score = raw - log_z[:, None] if output.normalize else raw

    def mean(values: Tensor) -> float:
        return float((language.unigram * values).sum())

    def divergence(score: Tensor) -> float:
        return mean((truth * (truth.log() - score)).sum(1))

    entropy = math.log(language.perplexity)
    kl, kl_as_is = divergence(raw - log_z[:, None]), divergence(score)
    centre = mean(log_z)
    return Row(
        criterion=name,
        k=k,
        loss=loss,
        perplexity=math.exp(entropy + kl),
        perplexity_as_is=math.exp(entropy + kl_as_is),
        kl=kl,
        kl_as_is=kl_as_is,
        log_z_mean=centre,
        log_z_std=math.sqrt(mean((log_z - centre) ** 2)),
        words_per_second=speed,
    )
