"""A recipe's tables -> the parts of a training: data, criterion, sampler, model, batches, optimizer, schedule."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from selfnorm.corpus.batches import BATCHES, Batches
from selfnorm.corpus.store import Data
from selfnorm.criteria import CRITERIA, Criterion
from selfnorm.distributed.exchange import Alone, Exchange
from selfnorm.distributed.layers import spread_layers
from selfnorm.distributed.shards import spread
from selfnorm.distributed.world import World
from selfnorm.functional import check_pair
from selfnorm.models import MODELS, Model, expand
from selfnorm.noise import NOISES, LogUniform, Noise
from selfnorm.ops import keep_half
from selfnorm.optim import OPTIMIZERS, SCHEDULES, HalfAdam, Optimizer, Schedule, sibling
from selfnorm.recipe import Recipe, Table
from selfnorm.samplers import SAMPLERS, Sample, Sampler
from selfnorm.training.settings import Settings
from selfnorm.training.tables import construct
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
    world: World = field(default_factory=World)
    exchange: Alone = field(default_factory=Alone)

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def recordable(self) -> bool:
        """Whether nothing in a step waits for the host, so that it can be recorded as a CUDA graph."""
        waits = self.sampler is not None and self.sampler.waits
        return self.settings.recorded and self.optimizer.never_waits and not waits and self.world.alone

    @property
    def spread(self) -> bool:
        """Whether the rows of the tables lie on different ranks."""
        return self.settings.spread_tables and not self.world.alone

    @property
    def in_step(self) -> bool:
        """Whether a model can only be run by all ranks together."""
        return (self.settings.spread_tables or self.settings.spread_layers) and not self.world.alone

    @property
    def streams_here(self) -> Tensor:
        """Which streams are this rank's."""
        share = self.batches.batch(0, 0)
        first = 0 if share.share is None else share.share.first
        return torch.arange(first, first + len(share.inputs), device=self.device)

    def in_common(self, sample: Sample | None) -> Tensor | None:
        """The ids that all ranks have in common at a step; None where every position has its own."""
        if self.world.alone:
            return None
        if sample is None:
            return torch.arange(self.model.size, device=self.device)
        return None if sample.bounds is None else sample.ids

    @property
    def total(self) -> int:
        """Steps in all."""
        settings = self.settings
        return settings.steps or max(1, round((settings.epochs or 0) * self.batches.steps_per_epoch))


def build(recipe: Recipe, where: Path, world: World | None = None) -> Parts:
    """Everything a recipe names; `where` is the folder that a relative `data` is looked up in."""
    if recipe.training.name is not None:
        raise ValueError(f"the table training has no name, but the recipe gives it {recipe.training.name!r}; remove it")
    world = world or World()
    settings = construct("table", {"training": Settings}, "training", recipe.training.options)
    data = Data.open(where / recipe.data)
    vocabulary, seed = data.vocabulary, settings.seed
    if not len(data.train):
        raise ValueError(f"{where / recipe.data}: the training text holds no sentence; prepare another text")
    criterion_name = recipe.criterion.name or "mode3"
    criterion = construct("criterion", CRITERIA, criterion_name, recipe.criterion.options)
    sampler = build_sampler(recipe.sampler, criterion, vocabulary) if criterion.sampled else None
    if sampler is not None:
        check_pair(criterion, sampler)
    name, options = _model_options(recipe.model)
    fixed: dict[str, Any] = {"link": criterion.link, "normalize": criterion.needs_log_z}
    with torch.random.fork_rng(devices=[]):  # chance is an argument: the caller's generator stays as it was
        torch.default_generator.manual_seed(seed)
        model = construct("model", MODELS, name, options, size=len(vocabulary), **fixed)
    model.output.impl = settings.impl
    if vocabulary.counts is not None:
        model.output.start_from(torch.from_numpy(vocabulary.counts.copy()))
    if not criterion.sampled:
        _touch_all(model)
    tables = _tables(model)
    if settings.spread_tables and not world.alone:
        tables = _spread_tables(world, model, criterion, tables)
    model.to(settings.place)
    apart: list[nn.Parameter] = []
    if settings.spread_layers and not world.alone:
        apart = _spread_layers(world, model, settings)
    elif settings.compiled(model.deep):
        model.compile_parts()
    kind, ours = recipe.batches.name or "sentences", {"rank": world.rank, "ranks": world.size}
    batches = construct("batches", BATCHES, kind, recipe.batches.options, store=data.train, seed=seed, **ours)
    halves = _halves(recipe.optimizer, model) if settings.half and world.alone else []
    others = (*tables, *apart, *(each for part in halves for each in part.given))
    dense = [each for each in model.parameters() if not any(each is other for other in others)]
    optimizer = _optimizer(recipe.optimizer, dense, apart, tables, world, halves)
    if model.output.sparse and settings.half and not hasattr(model.output.weight, "shards"):
        keep_half(model.output.weight)
    schedule = construct("schedule", SCHEDULES, recipe.schedule.name or "constant", recipe.schedule.options)
    config = {
        "format": 1,
        "model": name,
        "options": options | fixed,
        "criterion": criterion_name,
        "histories": kind,
        "vocabulary": vocabulary.digest,
    }
    touched = _touched(model, [] if settings.spread_tables else tables)  # what is spread needs no further exchange
    exchange = Alone() if world.alone else Exchange(world, dense, *touched)
    return Parts(
        recipe, settings, data, criterion, sampler, model, batches, optimizer, schedule, config, world, exchange
    )


def build_sampler(table: Table, criterion: Criterion, vocabulary: Vocabulary) -> Sampler:
    """The sampler of a recipe; its `noise` is a name, or a table with a name and options."""
    options = dict(table.options)
    given = options.pop("noise", "log_uniform")
    noise = build_noise(dict(given) if isinstance(given, Mapping) else {"name": given}, vocabulary)
    return construct("sampler", SAMPLERS, table.name or criterion.sampler, {**options, "noise": noise})


def build_noise(options: dict[str, Any], vocabulary: Vocabulary) -> Noise:
    name = options.pop("name", "log_uniform")
    if not isinstance(name, str):
        raise ValueError(f"sampler.noise = {name!r}: it must be a name, or a table with a name")
    if name == "unigram":
        if vocabulary.counts is None:
            raise ValueError("unigram noise needs counts, but vocab.txt has none; prepare the text again")
        return construct("noise", NOISES, name, options, counts=torch.from_numpy(vocabulary.counts.copy()))
    noise = construct("noise", NOISES, name, options, size=len(vocabulary))
    if isinstance(noise, LogUniform) and not vocabulary.falling:
        raise ValueError(
            "log-uniform noise takes ids for ranks, but vocab.txt is not sorted by falling count; "
            "prepare the text with `selfnorm prepare`, or choose noise 'unigram'"
        )
    return noise


def _model_options(table: Table) -> tuple[str, dict[str, Any]]:
    named = {} if table.name is None else {"name": table.name}
    if not isinstance(preset := table.options.get("preset", ""), str):
        raise ValueError(f"model.preset = {preset!r}: it must be a word in quotes")
    options = expand({**named, **table.options} or {"preset": "tiny-lstm"})
    return options.pop("name"), options


def _optimizer(
    table: Table,
    dense: list[nn.Parameter],
    apart: list[nn.Parameter],
    rows: list[nn.Parameter],
    world: World,
    halves: list[HalfAdam],
) -> Optimizer:
    """`dense` parameters are alike on all ranks, of those `apart` and of some `rows` each has its part."""
    name = table.name or "adam"
    first = construct("optimizer", OPTIMIZERS, name, table.options, parameters=dense)
    others = [construct("optimizer", OPTIMIZERS, name, table.options, parameters=apart)] if apart else []
    others += [sibling(name, rows, table.options)] if rows else []
    return Optimizer(first, *others, *halves, total=world.total)


def _halves(table: Table, model: Model) -> list[HalfAdam]:
    """For what the model trains by copies in half precision; the other optimizers know none."""
    pairs = model.keep_half() if (table.name or "adam") == "adam" else []
    if not pairs:
        return []
    optimizer = construct("optimizer", {"adam": HalfAdam}, "adam", table.options, pairs=pairs)
    model.register_load_state_dict_post_hook(lambda *_: optimizer.renew())
    return [optimizer]


def _touch_all(model: Model) -> None:
    """A criterion over all words touches every row of the output layer: only those of the inputs can be few."""
    model.output.sparse = False
    model.embedding.sparse = model.embedding.sparse and not model.embedding.tied


def _tables(model: Model) -> list[nn.Parameter]:
    """What has row-sparse gradients: the words' rows, going in and out; tied, `<s>` stands alone and is dense."""
    rows = [model.output.weight, model.output.bias] if model.output.sparse else []
    if model.embedding.sparse and not model.embedding.tied:
        rows.append(model.embedding.weight)
    return [row for row in rows if row is not None]


def _spread_tables(world: World, model: Model, criterion: Criterion, tables: list[nn.Parameter]) -> list[nn.Parameter]:
    if not tables or not criterion.sampled:
        raise ValueError(
            "training.spread_tables is for sampled criteria with row-sparse tables; set model.sparse = true, "
            "choose such a criterion, or leave spread_tables out"
        )
    spread(world, model.output, "weight")
    spread(world, model.output, "bias")
    if not model.embedding.tied:
        spread(world, model.embedding, "weight")
    return _tables(model)


def _spread_layers(world: World, model: Model, settings: Settings) -> list[nn.Parameter]:
    if not model.layers:
        raise ValueError("training.spread_layers is for the layers of a Transformer; leave it out for this model")
    return spread_layers(world, model, model.layers, settings.place)


def _touched(model: Model, tables: list[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Of the tables with row gradients: which the loss touches, and which the inputs."""
    first = model.output.weight if model.embedding.tied else model.embedding.weight
    return [each for each in tables if each is not model.embedding.weight], [first] if tables else []


@torch.no_grad()
def carry_over(parts: Parts, tensors: Mapping[str, Tensor], old: Vocabulary) -> int:
    """Start from another run's weights; returns how many words were carried over.

    With another vocabulary the rows of shared words move along, and new words begin as the old `<unk>` did, with a bias
    of their own from the unigram. Everything that is not a table of words must fit.
    """
    model, new = parts.model, parts.data.vocabulary
    if parts.in_step:
        raise ValueError(
            "a model that is spread over processes cannot start from another run yet; "
            "make the first checkpoint without training.spread_tables and spread_layers, then go on with them"
        )
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
