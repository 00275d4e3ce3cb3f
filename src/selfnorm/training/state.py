"""Everything the next step depends on: to disk and back, bit by bit, on as many ranks as there are then."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from selfnorm.checkpoint import Checkpoint
from selfnorm.distributed.shards import mine, whole
from selfnorm.evaluation import Evaluation

if TYPE_CHECKING:
    from selfnorm.training.parts import Parts
    from selfnorm.training.trainer import Trainer


DEVELOPMENT = "development text"  # the best model so far is the best on it


def identity(parts: "Parts") -> dict[str, Any]:
    """What must not change between the two halves of one run."""
    recipe, config, valid = parts.recipe, parts.config, parts.data.valid
    return {
        "model": [config["model"], config["options"]],
        "criterion": [config["criterion"], dict(recipe.criterion.options)],
        "vocabulary": config["vocabulary"],
        "training text": parts.data.train.about.sha256,
        DEVELOPMENT: [None if valid is None else valid.about.sha256, parts.settings.evaluation_words],
        "batches": [config["histories"], dict(recipe.batches.options)],
        "optimizer": recipe.optimizer.name or "adam",
        "schedule": recipe.schedule.name or "constant",
        "seed": parts.settings.seed,
    }


def weights(parts: "Parts") -> dict[str, Tensor]:
    """The model's tensors; where they are spread over ranks, whole on the first."""
    parameters = dict(parts.model.named_parameters())
    return {name: whole(parameters.get(name, value), value) for name, value in parts.model.state_dict().items()}


def fingerprint(parts: "Parts") -> list[int]:
    """Of every parameter a number that is the same for the same bits, on whatever device."""
    return [int(each.detach().view(torch.int32).sum()) for each in parts.model.parameters()]


def tensors(trainer: "Trainer") -> dict[str, Tensor]:
    """Of all ranks; all take part, and the first has the result."""
    parts, world = trainer.parts, trainer.parts.world
    found = {f"model.{name}": value for name, value in weights(parts).items()}
    places = parts.optimizer.places()
    owners = {places[id(parameter)]: (name, parameter) for name, parameter in parts.model.named_parameters()}
    for place, value in parts.optimizer.tensors().items():
        numbers, _, key = place.rpartition(".")
        name, parameter = owners[numbers]
        found[f"optimizer.{name}.{key}"] = whole(parameter, value)
    found |= {"chance.sampler": trainer.generator.get_state(), "counts": trainer.counts}
    for rank, chances in enumerate(world.all(_chances(trainer))):
        found |= {f"chance.{kind}{f'.{rank}' if rank else ''}": value for kind, value in chances.items()}
    state = trainer.state
    if trainer.streams and state is not None and not world.alone:
        state = parts.model.join(world.all(tree.tree_map(_to_cpu, state)))
    leaves = enumerate(tree.tree_leaves(state))
    return found | {f"state.{number}": leaf for number, leaf in leaves if leaf is not None}


def numbers(trainer: "Trainer") -> dict[str, Any]:
    """The same of what is no tensor."""
    return {
        "words": trainer.words,
        "skipped": trainer.skipped,
        "evaluated": trainer.evaluated,
        "best": None if trainer.best is None else asdict(trainer.best),
        "schedule": trainer.parts.schedule.state(),
        "identity": identity(trainer.parts),
        "processes": trainer.parts.world.size,
    }


def restore(trainer: "Trainer", saved: Checkpoint | None) -> int | None:
    """Go on from what the first rank has read; returns the number of processes that wrote it, None if there is none."""
    parts, world = trainer.parts, trainer.parts.world
    about = world.of_first(None if saved is None else (saved.step, saved.state, str(saved.path)))
    if about is None:
        return None
    step, state, path = about
    current, other = identity(parts), state["identity"]
    if state["best"] is None or DEVELOPMENT not in other:  # nothing was measured on it, or before it was noted
        del current[DEVELOPMENT]
    if changed := [name for name in current if current[name] != other.get(name)]:
        raise ValueError(
            f"{path}: was made with another {', '.join(changed)} than the recipe says; "
            "go on with the run's own recipe.toml, or train into a new run with --from"
        )
    kept = _sorted_out(trainer, world.tensors_of_first(saved.tensors if saved else {}))
    parts.schedule.restore(state["schedule"])
    trainer.step, trainer.words, trainer.skipped, trainer.unsaved = step, state["words"], state["skipped"], False
    trainer.evaluated = state["evaluated"]
    trainer.best = None if state["best"] is None else Evaluation.of(state["best"])
    _set_chances(trainer, kept)
    _set_state(trainer, kept)
    return int(state.get("processes", 1))


def _sorted_out(trainer: "Trainer", whole_tensors: Iterator[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Model and optimizer take what is theirs, one tensor at a time; returns the others."""
    parts, kept, of_optimizer = trainer.parts, {}, {}
    entries = dict(parts.model.state_dict())
    parameters = dict(parts.model.named_parameters())
    places = parts.optimizer.places()
    for name, value in whole_tensors:
        kind, _, rest = name.partition(".")
        if kind == "model":
            entries[rest] = mine(parameters.get(rest, value), value)
        elif kind == "optimizer":
            name, _, key = rest.rpartition(".")
            if (owner := parameters.get(name)) is None:
                raise ValueError(
                    f"{trainer.run}: its checkpoint knows a parameter {name} that the model has not; go on with the "
                    "version that wrote it, or train into a new run with --from"
                )
            of_optimizer[f"{places[id(owner)]}.{key}"] = mine(owner, value)
        else:
            kept[name] = value
    parts.model.load_state_dict(entries)
    parts.optimizer.restore(of_optimizer)
    return kept


def _chances(trainer: "Trainer") -> dict[str, Tensor]:
    device = trainer.parts.device
    cuda = {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else {}
    return {"cpu": torch.get_rng_state(), **cuda}


def _set_chances(trainer: "Trainer", kept: dict[str, Tensor]) -> None:
    """A rank that had no part in the run so far has a chance of its own, but not that of the first step."""
    trainer.generator.set_state(kept["chance.sampler"])
    trainer.counts.copy_(kept["counts"])
    rank, device = trainer.parts.world.rank, trainer.parts.device
    end = f".{rank}" if rank else ""
    if f"chance.cpu{end}" not in kept:
        torch.manual_seed(trainer.seed + trainer.step)
        return
    torch.set_rng_state(kept[f"chance.cpu{end}"])
    if device.type == "cuda" and f"chance.cuda{end}" in kept:
        torch.cuda.set_rng_state(kept[f"chance.cuda{end}"], device)


def _set_state(trainer: "Trainer", kept: dict[str, Tensor]) -> None:
    leaves = {name: value for name, value in kept.items() if name.startswith("state.")}
    if not leaves:
        return
    parts = trainer.parts
    spec = tree.tree_structure(parts.model.start(1))
    values = [leaves.get(f"state.{number}") for number in range(spec.num_leaves)]  # None where there was none
    state = tree.tree_unflatten([None if each is None else each.to(parts.device) for each in values], spec)
    if not parts.world.alone:
        state = parts.model.select(state, parts.streams_here)
    trainer.state = state


def _to_cpu(leaf: Any) -> Any:
    return leaf.cpu() if isinstance(leaf, Tensor) else leaf
