"""Time of one draw by each sampler."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from selfnorm.bench import machine
from selfnorm.noise import LogUniform, Noise, Unigram
from selfnorm.samplers import SAMPLERS

POSITIONS = 1024  # N: a draw says how often each of their targets is expected, too


@dataclass(frozen=True)
class Draw:
    """A draw of k ids; one that waits for the host is no CUDA graph, and is timed with its launches."""

    k: int
    noise: str
    sampler: str
    ms: float


def draws(size: int, k: int, device: torch.device) -> Iterator[Draw]:
    """By every sampler, from both noises of text."""
    targets = torch.randint(0, size, (POSITIONS,), device=device)
    noises: dict[str, Noise] = {"log_uniform": LogUniform(size), "unigram": Unigram(torch.arange(size, 0, -1) ** 2)}
    for noise_name, noise in noises.items():
        for name, build in SAMPLERS.items():
            sampler, generator = build(noise, k), machine.generator_on(device)
            draw = partial(sampler.draw, targets, generator)
            found = machine.timed([draw], device, generator, capture=not sampler.waits)
            yield Draw(k, noise_name, name, found.ms)
