"""A recipe's tables -> the parts of a training: data, criterion, sampler, model, batches, optimizer, schedule."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfnorm.corpus.batches import BATCHES, Batches
from selfnorm.corpus.store import Data
from selfnorm.criteria import CRITERIA, Criterion
from selfnorm.functional import check_pair
from selfnorm.models import MODELS, Model, expand
from selfnorm.noise import NOISES, LogUniform, Noise
from selfnorm.optim import SCHEDULES, Optimizer, Schedule
from selfnorm.recipe import Recipe, Table
from selfnorm.registry import pick
from selfnorm.samplers import SAMPLERS, Sampler
from selfnorm.training.settings import Settings
from selfnorm.vocabulary import Vocabulary


@dataclass(frozen=True)
class Parts:
    recipe: Recipe
    settings: Settings
    data: Data
    criterion: Criterion
    sampler: Sampler | None
    model: Model
    batches: Batches
    optimizer: Optimizer
    schedule: Schedule
    config: dict[str, Any]  # what it takes to build the model again

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def total(self) -> int:
        """Steps in all."""
        settings = self.settings
        return settings.steps or max(1, round((settings.epochs or 0) * self.batches.steps_per_epoch))


def build(recipe: Recipe, where: Path) -> Parts:
    """Everything a recipe names; `where` is the folder that a relative `data` is looked up in."""
    settings = pick("table", {"training": Settings}, "training", **recipe.training.options)
    data = Data.open(where / recipe.data)
    vocabulary = data.vocabulary
    criterion_name = recipe.criterion.name or "mode3"
    criterion = pick("criterion", CRITERIA, criterion_name, **recipe.criterion.options)
    sampler = build_sampler(recipe.sampler, criterion, vocabulary) if criterion.sampled else None
    name, options = _model_options(recipe.model, criterion)
    with torch.random.fork_rng(devices=[]):  # chance is an argument: the caller's generator stays as it was
        torch.manual_seed(settings.seed)
        model = pick("model", MODELS, name, size=len(vocabulary), **options)
    if vocabulary.counts is not None:
        model.output.start_from(torch.from_numpy(vocabulary.counts.copy()))
    model.to(device_of(settings.device))
    kind = recipe.batches.name or "sentences"
    batches = pick("batches", BATCHES, kind, store=data.train, seed=settings.seed, **recipe.batches.options)
    optimizer_name = recipe.optimizer.name or "adam"
    rows = [model.output.weight, model.output.bias, model.embedding.weight] if options.get("sparse") else []
    dense = [each for each in model.parameters() if not any(each is row for row in rows)]
    optimizer = Optimizer(optimizer_name, dense, [row for row in rows if row is not None], **recipe.optimizer.options)
    schedule = pick("schedule", SCHEDULES, recipe.schedule.name or "constant", **recipe.schedule.options)
    config = {
        "format": 1,
        "model": name,
        "options": options,
        "criterion": criterion_name,
        "histories": kind,
        "vocabulary": vocabulary.digest,
    }
    return Parts(recipe, settings, data, criterion, sampler, model, batches, optimizer, schedule, config)


def build_sampler(table: Table, criterion: Criterion, vocabulary: Vocabulary) -> Sampler:
    """The sampler of a recipe; its `noise` is a name, or a table with a name and options."""
    options = dict(table.options)
    given = options.pop("noise", "log_uniform")
    noise = build_noise(given if isinstance(given, Mapping) else {"name": given}, vocabulary)
    name = table.name or ("excluding" if isinstance(criterion, CRITERIA["mode2"]) else "systematic")  # type: ignore[arg-type]
    sampler = pick("sampler", SAMPLERS, name, noise=noise, **options)
    check_pair(criterion, sampler)
    return sampler


def build_noise(table: Mapping[str, Any], vocabulary: Vocabulary) -> Noise:
    options = dict(table)
    name = options.pop("name", "log_uniform")
    if name == "unigram":
        if vocabulary.counts is None:
            raise ValueError("unigram noise needs counts, but vocab.txt has none; prepare the text again")
        return pick("noise", NOISES, name, counts=torch.from_numpy(vocabulary.counts.copy()), **options)
    noise = pick("noise", NOISES, name, size=len(vocabulary), **options)
    if isinstance(noise, LogUniform) and not vocabulary.falling:
        raise ValueError(
            "log-uniform noise takes ids for ranks, but vocab.txt is not sorted by falling count; "
            "prepare the text with `selfnorm prepare`, or choose noise 'unigram'"
        )
    return noise


def _model_options(table: Table, criterion: Criterion) -> tuple[str, dict[str, Any]]:
    named = {} if table.name is None else {"name": table.name}
    options = expand({**named, **table.options} or {"preset": "tiny-lstm"})
    name = options.pop("name")
    return name, {**options, "link": criterion.link, "normalize": criterion.needs_log_z}


def device_of(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


@torch.no_grad()
def carry_over(parts: Parts, tensors: Mapping[str, Tensor], old: Vocabulary) -> int:
    """Start from another run's weights; returns how many words were carried over.

    With another vocabulary the rows of shared words move along, and new words begin as the old `<unk>` did, with a bias
    of their own from the unigram. Everything that is not a table of words must fit.
    """
    model, new = parts.model, parts.data.vocabulary
    mine = model.state_dict()
    if new.digest == old.digest:
        model.load_state_dict(_fitting(mine, tensors))
        return len(new)
    source = torch.tensor(old.encode(new.words))
    shared = torch.tensor([word in old for word in new.words])
    tables = {name: value[source] for name, value in tensors.items() if name.startswith("output.")}
    if len(tensors["embedding.weight"]) == len(old) + 1:  # `<s>` stands last
        tables["embedding.weight"] = tensors["embedding.weight"][torch.cat([source, torch.tensor([len(old)])])]
    if "output.bias" in tables:
        tables["output.bias"] = torch.where(shared, tables["output.bias"], mine["output.bias"].cpu())
    model.load_state_dict(_fitting(mine, {**tensors, **tables}))
    return int(shared.sum())


def _fitting(mine: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    for name in sorted(mine.keys() | tensors.keys()):
        shapes = [tuple(group[name].shape) if name in group else None for group in (mine, tensors)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"the model to start from has {name} {shapes[1]}, the recipe's {shapes[0]}; use its model table"
            )
    return tensors
