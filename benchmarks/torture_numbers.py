"""R11: numbers that go wrong: a training skips the step or stops, and no checkpoint ever holds them."""

import json
import math
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from torture_trial import Trials, of_cases, of_tests, refused
from trials import CASES, make_data, recipe

from selfnorm import SampledLoss
from selfnorm.checkpoint import Checkpoints
from selfnorm.corpus.batches import Batch
from selfnorm.criteria import CRITERIA
from selfnorm.training import Stopped, train
from selfnorm.training.trainer import Trainer

TESTS = (
    "training/test_train.py",
    "criteria/test_criteria.py",
    "samplers/test_samplers.py",
    "optim/test_optim.py",
    "test_noise.py",
    "test_tensorfile.py",
    "test_evaluation.py",
    "test_loss.py",
)
CHOSEN = "broken_weight or bad_steps or wild_rate or finite or refused or cannot_be_drawn or cannot_be_saved"
CHOSEN += " or never_be_drawn or ignored_positions or all_samples_hits"
WORDS, WIDTH, POSITIONS, K = 50, 8, 12, 10
VALUES = {"NaN": math.nan, "infinity": math.inf, "minus infinity": -math.inf}


def _leaves(size: float = 1.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((POSITIONS, WIDTH), (WORDS, WIDTH), (WORDS,))
    return tuple((size * torch.randn(shape, generator=generator)).requires_grad_() for shape in shapes)


def _loss(name: str, **options: object) -> SampledLoss:
    return SampledLoss(WORDS, name, k=K, generator=torch.Generator().manual_seed(2), **options)


def _target(name: str, value: int, _folder: Path) -> None:
    hidden, weight, bias = _leaves()
    target = torch.arange(POSITIONS)
    target[3] = value
    refused(lambda: _loss(name)(hidden, weight, target, bias), f"target {value} is outside")


def _ignored(name: str, value: float, _folder: Path) -> None:
    """Whatever stands at a position that is ignored, nothing of it comes through."""
    hidden, weight, bias = _leaves()
    target = torch.arange(POSITIONS)
    target[3] = -100
    with torch.no_grad():
        hidden[3] = value
    loss = _loss(name)(hidden, weight, target, bias)
    loss.backward()
    _finite(loss, weight.grad, bias.grad, hidden.grad)


def _large(name: str, size: float, _folder: Path) -> None:
    """Logits of every size, up to 10,000 and beyond."""
    hidden, weight, bias = _leaves(size)
    loss = _loss(name)(hidden, weight, torch.arange(POSITIONS), bias)
    loss.backward()
    _finite(loss, weight.grad, bias.grad, hidden.grad)


def _too_many(name: str, _folder: Path) -> None:
    refused(lambda: SampledLoss(WORDS, "mode3", sampler=name, k=WORDS + 1), "cannot be drawn")


def _finite(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        assert bool(torch.isfinite(tensor).all()), "a loss or gradient is not finite"


def _weight(name: str) -> Callable[[Trainer], torch.Tensor]:
    return lambda trainer: dict(trainer.parts.model.named_parameters())[name].data


def _state(trainer: Trainer) -> torch.Tensor:
    return next(value for key, value in trainer.parts.optimizer.tensors().items() if "exp_avg" in key)


PLACES: dict[str, Callable[[Trainer], torch.Tensor]] = {
    "embedding": _weight("embedding.weight"),
    "output row": _weight("output.weight"),
    "bias": _weight("output.bias"),
    "optimizer state": _state,
}


def _poisoned(data: Path, criterion: str, place: str, value: float, folder: Path) -> None:
    """Before step 6 of 30 one number becomes `value`: the run stops, or ends, and whatever was saved is finite."""
    plain = Trainer.update

    def update(trainer: Trainer, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        if trainer.step == 5:
            PLACES[place](trainer).view(-1)[:50] = value
        return plain(trainer, batch)

    made = recipe(data, criterion, steps=30, save_every=3, log_every=2, evaluate_every=9, patience=4)
    with mock.patch.object(Trainer, "update", update), suppress(Stopped):
        result = train(made, folder / "run")
        assert math.isfinite(result.evaluation.perplexity), "it ended with a perplexity that is not finite"
    kept = Checkpoints(folder / "run" / "checkpoints")
    if (saved := kept.latest()) is not None:
        _finite(*(each for each in saved.tensors.values() if each.is_floating_point()))
    for line in (folder / "run" / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=_no_constant)
    assert train(made, folder / "run").steps == 30, "it cannot go on"


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} in metrics.jsonl is no JSON")


def cases(data: Path) -> dict[str, Callable[[Path], None]]:
    made: dict[str, Callable[[Path], None]] = {}
    for name in CRITERIA:
        for value in (-1, WORDS, -101):
            made[f"{name}: target {value}"] = partial(_target, name, value)
        made[f"{name}: NaN at a position that is ignored"] = partial(_ignored, name, math.nan)
        for size in (1e-30, 30.0, 60.0):
            made[f"{name}: logits up to {3 * size * size:.0g}"] = partial(_large, name, size)
    for name in ("distinct", "systematic", "rejection"):
        made[f"{name}: more samples than words"] = partial(_too_many, name)
    for place in PLACES:
        for shown, value in VALUES.items():
            for criterion in ("mode3", "nce"):
                made[f"{criterion}: {shown} in {place}"] = partial(_poisoned, data, criterion, place, value)
    return made


def numbers(folder: Path, chance: random.Random) -> Trials:
    """R11: those above, then those of the tests."""
    assert set(CASES) == set(CRITERIA)
    yield from of_cases("numbers", folder, cases(make_data(folder / "text")))
    yield from of_tests("tests", *TESTS, chosen=CHOSEN)
