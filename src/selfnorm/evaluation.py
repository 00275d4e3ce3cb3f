"""Perplexity, normalized over the whole vocabulary of a model, and how well the scores normalize themselves.

That of a mixture is normalized where its models know the same words.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import torch

from selfnorm.corpus.store import TokenStore
from selfnorm.models import Model
from selfnorm.scorers.interpolated import mix
from selfnorm.scorers.ngram import NGram, Scored
from selfnorm.scorers.text import Floats, Words, hiddens, measure
from selfnorm.vocabulary import Vocabulary

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BANDS = (10, 100, 1_000, 10_000, 100_000)  # ranks of the target that part the frequency bands


@dataclass(frozen=True)
class Band:
    """Words whose target stands at these ranks of the vocabulary, the most frequent at 1."""

    ranks: str
    words: int
    perplexity: float
    log_z_mean: float
    log_z_std: float


@dataclass(frozen=True)
class Evaluation:
    perplexity: float  # normalized
    perplexity_as_is: float  # of the scores used as they are
    perplexity_without_unk: float  # normalized, over the words of the vocabulary
    log_z_mean: float
    log_z_std: float
    log_z_quantiles: dict[str, float]
    words: int  # with </s>
    sentences: int
    oov: int
    oov_rate: float  # among the words without </s>
    words_per_second: float
    bands: tuple[Band, ...]

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """Back from `asdict` and JSON."""
        return cls(**fields | {"bands": tuple(Band(**band) for band in fields["bands"])})


def summarize(words: Words, store: TokenStore, unknown: int) -> Evaluation:
    """Rates from the words' own values, once, at the end."""
    known = words.targets != unknown
    ranks = words.targets + 1
    edges = [0, *(edge for edge in BANDS if edge < store.about.size), store.about.size]
    bands = []
    for low, high in pairwise(edges):
        here = (ranks > low) & (ranks <= high)
        if here.any():
            log_z = words.log_z[here]
            name = f"{low + 1:,} to {high:,}"
            bands.append(
                Band(name, int(here.sum()), _perplexity(words.log_probs[here]), float(log_z.mean()), float(log_z.std()))
            )
    number, oov = len(words.targets), int((~known).sum())
    return Evaluation(
        perplexity=_perplexity(words.log_probs),
        perplexity_as_is=_perplexity(words.scores),
        perplexity_without_unk=_perplexity(words.log_probs[known]),
        log_z_mean=float(words.log_z.mean()),
        log_z_std=float(words.log_z.std()),
        log_z_quantiles={f"{share:g}": float(np.quantile(words.log_z, share)) for share in QUANTILES},
        words=number,
        sentences=len(store),
        oov=oov,
        oov_rate=oov / max(1, number - len(store)),
        words_per_second=number / max(words.seconds, 1e-9),
        bands=tuple(bands),
    )


def evaluate(model: Model, store: TokenStore, unknown: int, **options: Any) -> Evaluation:
    return summarize(measure(model, store, **options), store, unknown)


def evaluate_ngram(ngram: NGram, sentences: Sequence[Sequence[str]]) -> Evaluation:
    """An n-gram model is normalized: it has no log Z."""
    begin = time.perf_counter()
    scored = ngram.text(sentences)
    seconds = time.perf_counter() - begin
    perplexity, words = _perplexity(scored.scores), len(scored.scores)
    return Evaluation(
        perplexity=perplexity,
        perplexity_as_is=perplexity,
        perplexity_without_unk=_perplexity(scored.scores[scored.known]),
        log_z_mean=math.nan,
        log_z_std=math.nan,
        log_z_quantiles={},
        words=words,
        sentences=len(sentences),
        oov=scored.oov,
        oov_rate=scored.oov / max(1, words - len(sentences)),
        words_per_second=words / max(seconds, 1e-9),
        bands=(),
    )


@dataclass(frozen=True)
class Mixture:
    """A neural model, normalized, and an n-gram model, interpolated word by word.

    Each scores a word it does not know as its own `<unk>`, which stands for many words: where the two vocabularies
    differ, the words that one of them knows get the whole of the other's `<unk>` each, and the mixture adds up to more
    than 1. Make the n-gram with the run's vocabulary.
    """

    ngram_perplexity: float
    ngram_perplexity_without_unk: float  # over the words that the n-gram knows
    ngram_oov: int
    ngram_weight: float
    mixture_perplexity: float
    mixture_perplexity_without_unk: float  # over the words that both know


def evaluate_mixture(words: Words, unknown: int, scored: Scored, weight: float) -> Mixture:
    """`weight` is the n-gram's; `words` and `scored` are of the same text."""
    mixed = mix([1 - weight, weight], [words.log_probs, scored.scores])
    return Mixture(
        ngram_perplexity=_perplexity(scored.scores),
        ngram_perplexity_without_unk=_perplexity(scored.scores[scored.known]),
        ngram_oov=scored.oov,
        ngram_weight=weight,
        mixture_perplexity=_perplexity(mixed),
        mixture_perplexity_without_unk=_perplexity(mixed[scored.known & (words.targets != unknown)]),
    )


def apart(one: Vocabulary, other: Vocabulary) -> tuple[int, int]:
    """How many words each of two vocabularies has that the other has not."""
    first, second = set(one.words), set(other.words)
    return len(first - second), len(second - first)


def _perplexity(values: Floats) -> float:
    if not len(values):
        return math.nan
    mean = float(values.mean())
    return math.exp(-mean) if not mean < -700 else math.inf


@dataclass(frozen=True)
class Calibration:
    """Pairs of position and word, binned by the probability the model gave them: said against seen."""

    said: Floats  # mean probability in each bin, scores used as they are
    seen: Floats  # share of the pairs in which the word was the target
    pairs: Floats
    hits: Floats


@torch.no_grad()
def calibrate(
    model: Model, store: TokenStore, histories: str = "sentences", words: int = 20_000, per_decade: int = 4
) -> Calibration:
    """Every word of the vocabulary at the first `words` positions: 1e-8 to 1 in bins of equal ratio."""
    bins = 8 * per_decade
    device = model.output.weight.device
    sums = torch.zeros(3, bins, dtype=torch.float64, device=device)
    for hidden, targets, _ in hiddens(model, store.first(words), histories, positions=2048):
        for part, there in zip(hidden.split(256), targets.split(256)):
            q = model.output.scores(part).exp()  # [n, C]
            place = ((q.double().log10() + 8) * per_decade).long().clamp(0, bins - 1)
            hit = torch.zeros_like(q, dtype=torch.float64).scatter_(1, there[:, None], 1.0)
            for row, values in enumerate((torch.ones_like(hit), q.double(), hit)):
                sums[row].index_add_(0, place.flatten(), values.flatten())
    pairs, said, hits = sums.cpu().numpy()
    full = pairs > 0
    return Calibration(said[full] / pairs[full], hits[full] / pairs[full], pairs[full], hits[full])
