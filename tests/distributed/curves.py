"""Every criterion, model, optimizer and kind of gradient as one process trains it and as several do."""

import json
from dataclasses import replace
from pathlib import Path

from ranks import on_ranks
from trials import CASES, recipe

from selfnorm import training
from selfnorm.recipe import Recipe, Table

STEPS = 100
# optimizers with which rounding errors do not grow: at a learning rate of 0.1 they double every two steps
CALM = {"mode2": Table("adagrad", {"lr": 0.01}), "nce": Table("adam")}


def calm(data: Path, criterion: str, options: dict | None = None, model: dict | None = None) -> Recipe:
    """A case of trials.py without dropout; `options` are of its table training, `model` of its model."""
    due = {"log_every": 1, "evaluate_every": 50, "save_every": 60, "clip": 0.15}  # some steps are clipped, some not
    made = recipe(data, criterion, steps=STEPS, **due, **(options or {}))
    table = Table(made.model.name, {**made.model.options, "dropout": 0.0, **(model or {})})
    return replace(made, model=table, optimizer=CALM.get(criterion, made.optimizer))


def every_kind(data: Path) -> dict[str, Recipe]:
    """The full matrix: each criterion as it stands in trials.py, dense and row-sparse; spread tables and layers."""
    made = {}
    for criterion in CASES:
        momentum = CASES[criterion].get("optimizer", {}).get("momentum")
        for sparse in (False, True) if not momentum else (False,):
            made[f"{criterion}, {'rows' if sparse else 'dense'}"] = calm(data, criterion, model={"sparse": sparse})
        if criterion == "mode2":  # one draw for all, with stand-ins
            shared = Table("excluding", {"k": 20, "groups": 2, "sharing": "batch"})
            made["mode2, shared"] = replace(calm(data, "mode2", model={"sparse": True}), sampler=shared)
        if criterion not in ("ce", "bce", "ce_vr"):
            made[f"{criterion}, spread tables"] = calm(data, criterion, {"spread_tables": True}, {"sparse": True})
        if CASES[criterion]["model"]["name"] == "transformer":
            made[f"{criterion}, spread layers"] = calm(data, criterion, {"spread_layers": True})
    return made


def losses(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def perplexity(run: Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["evaluation"]["perplexity"] for line in lines if "evaluation" in line][-1]


def train_on(size: int, recipes: dict[str, Recipe], folder: Path) -> None:
    """All of them, one after the other, in one process group."""

    def work(world) -> None:
        for name, made in recipes.items():
            training.train(made, folder / f"{name}, {size}", world=world)

    on_ranks(size, work)


def farthest(recipes: dict[str, Recipe], folder: Path, size: int) -> dict[str, float]:
    """The largest relative difference of any loss to that of one process, for each."""
    found = {}
    for name in recipes:
        pairs = list(zip(losses(folder / f"{name}, 1"), losses(folder / f"{name}, {size}"), strict=True))
        assert len(pairs) == STEPS, name
        found[name] = max(abs(one - other) / abs(one) for one, other in pairs)
    return found
