"""`train`: a recipe and a run directory -> a trained model; what was interrupted goes on where it stopped."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from selfnorm import run as runs
from selfnorm.evaluation import Evaluation
from selfnorm.manifest import MANIFEST
from selfnorm.recipe import Recipe, to_toml
from selfnorm.training.card import card
from selfnorm.training.log import LOG, Log
from selfnorm.training.parts import build, carry_over
from selfnorm.training.signals import Interrupted, noted_signals
from selfnorm.training.trainer import Metrics, Stopped, Trainer
from selfnorm.vocabulary import Vocabulary

__all__ = ["Interrupted", "Metrics", "Result", "Stopped", "Watcher", "train"]


@dataclass(frozen=True)
class Result:
    run: Path
    steps: int
    words: int
    evaluation: Evaluation | None  # of the development text, by the model that was kept
    words_per_second: float


@dataclass
class Watcher:
    """Who is told what happens; the defaults listen to nothing."""

    begin: Callable[[int, int], None] = lambda step, total: None
    metrics: Callable[[Metrics], None] = lambda metrics: None
    evaluation: Callable[[int, Evaluation], None] = lambda step, evaluation: None
    say: Callable[[str], None] = lambda sentence: None


def train(
    recipe: Recipe, run: Path, *, where: Path = Path(), source: Path | None = None, watcher: Watcher | None = None
) -> Result:
    """Train `recipe` into `run`, or go on with it; `source` is a run to start from, `where` the folder `data` is in."""
    watcher = watcher or Watcher()
    parts = build(recipe, where)
    if run.exists() and any(run.iterdir()) and not (run / MANIFEST).exists():
        raise ValueError(f"{run}: is neither empty nor a run; give a new directory, or one that `selfnorm train` wrote")
    run.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(parts, run)
    trainer.checkpoints.warn = watcher.say
    trainer.checkpoints.tidy()
    valid = parts.data.valid
    if valid is not None and parts.settings.evaluation_words:
        valid = valid.first(parts.settings.evaluation_words)
    vocabulary = "".join(f"{word}\t{count}\n" for word, count in _counted(parts.data.vocabulary)).encode()
    with trainer.own_chance(), noted_signals() as caught:
        saved = trainer.checkpoints.latest()
        if saved is not None:
            trainer.restore(saved)
            watcher.say(f"going on from step {saved.step} of {parts.total}")
        elif source is not None:
            tensors, old = runs.load_model(source)
            shared = carry_over(parts, tensors, Vocabulary.load(runs.path_of(source, "vocab.txt")))
            watcher.say(f"starting from {source}: {shared:,} of {len(parts.data.vocabulary):,} words carried over")
            if old["options"]["link"] != parts.config["options"]["link"]:
                watcher.say(
                    f"its criterion {old['criterion']!r} has another link: scores start off and settle in training"
                )
        runs.save_files(run, {"recipe.toml": to_toml(recipe).encode(), "vocab.txt": vocabulary})
        runs.cut_log(run / LOG, trainer.step)
        watcher.begin(trainer.step, parts.total)
        evaluation: Evaluation | None = None
        speeds: list[float] = []
        with Log(run, parts.settings.tensorboard) as log:

            def heard(metrics: Metrics) -> None:
                log.write(trainer.log(metrics))
                speeds.append(metrics.words_per_second)
                watcher.metrics(metrics)

            while trainer.step < parts.total:
                trainer.train(_next(trainer), heard, lambda: bool(caught))
                if caught:
                    log.flush()
                    trainer.save()
                    raise Interrupted(caught[0], trainer.step)
                if _due(trainer, parts.settings.evaluate_every) and valid is not None:
                    evaluation = trainer.evaluate(valid)
                    log.write(trainer.log(evaluation))
                    watcher.evaluation(trainer.step, evaluation)
                    parts.schedule.observe(evaluation.perplexity)
                    if trainer.best is None or evaluation.perplexity < trainer.best:
                        trainer.best = evaluation.perplexity
                        _keep(trainer, evaluation)
                log.flush()
                if trainer.step % parts.settings.save_every == 0 or trainer.step == parts.total:
                    trainer.save()
        if valid is None:
            _keep(trainer, None)
    return Result(run, trainer.step, trainer.words, evaluation, float(np.median(speeds)) if speeds else 0.0)


def _counted(vocabulary: Vocabulary) -> Iterator[tuple[str, int]]:
    counts = vocabulary.counts if vocabulary.counts is not None else np.zeros(len(vocabulary), np.int64)
    return zip(vocabulary.words, counts.tolist())


def _next(trainer: Trainer) -> int:
    """The next step after which something is due."""
    settings = trainer.parts.settings
    every = [settings.save_every, settings.evaluate_every or trainer.parts.batches.steps_per_epoch]
    return min(trainer.parts.total, *((trainer.step // each + 1) * each for each in every))


def _due(trainer: Trainer, every: int | None) -> bool:
    return trainer.step == trainer.parts.total or trainer.step % (every or trainer.parts.batches.steps_per_epoch) == 0


def _keep(trainer: Trainer, evaluation: Evaluation | None) -> None:
    """The best model so far becomes the run's model."""
    parts = trainer.parts
    config = {**parts.config, "step": trainer.step, "words_seen": trainer.words}
    if evaluation is not None:
        config["perplexity"] = evaluation.perplexity
    page = card(parts, trainer.step, trainer.words, evaluation)
    runs.save_model(trainer.run, trainer.weights(), config, {"README.md": page.encode()})
