"""`train`: a recipe and a run directory -> a trained model; what was interrupted goes on where it stopped."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from selfnorm import __version__
from selfnorm import run as runs
from selfnorm.corpus.ahead import Ahead
from selfnorm.corpus.store import VOCABULARY, TokenStore
from selfnorm.distributed.world import World
from selfnorm.evaluation import Evaluation
from selfnorm.recipe import Recipe, to_toml
from selfnorm.training import folder, state
from selfnorm.training.card import card
from selfnorm.training.folder import RECIPE
from selfnorm.training.log import LOG, Log, NoLog, cut
from selfnorm.training.parts import Parts, build, carry_over
from selfnorm.training.signals import Interrupted, noted_signals
from selfnorm.training.trainer import Metrics, Stopped, Trainer
from selfnorm.vocabulary import Vocabulary

__all__ = ["Interrupted", "Metrics", "Result", "Stopped", "Watcher", "train"]

SAME = 5.0  # seconds in which a signal that comes again was sent to several processes, not twice
Check = Callable[[int], None]  # told the step wherever the training may end; ends it by an exception


@dataclass(frozen=True)
class Result:
    run: Path
    steps: int
    words: int
    evaluation: Evaluation | None  # of the development text, by the model that was kept
    words_per_second: float  # 0 if the run was finished before


@dataclass
class Watcher:
    """Who is told what happens; the defaults listen to nothing."""

    begin: Callable[[int, int], None] = lambda step, total: None
    metrics: Callable[[Metrics], None] = lambda metrics: None
    evaluation: Callable[[int, Evaluation], None] = lambda step, evaluation: None
    say: Callable[[str], None] = lambda sentence: None


def train(
    recipe: Recipe,
    run: Path,
    *,
    where: Path = Path(),
    source: Path | None = None,
    watcher: Watcher | None = None,
    world: World | None = None,
) -> Result:
    """Train `recipe` into `run`, or go on with it; `source` is a run to start from, `where` the folder `data` is in.

    Of several ranks of a `world` the first one writes, and its watcher is told.
    """
    world = world or World()
    watcher = watcher if watcher is not None and world.first else Watcher()
    parts = build(recipe, where, world)
    world.agree(version=__version__, recipe=to_toml(replace(recipe, data="")), **_data(parts))
    world.agree(kind_of_device=str(parts.device).partition(":")[0], precision=parts.settings.half)
    patience = 0.0 if world.alone else SAME
    with folder.ours(run) if world.first else nullcontext(), noted_signals(patience) as noted:

        def check(step: int) -> None:
            if number := world.vote(noted.number or 0):
                raise Interrupted(number, step)

        trainer = Trainer(parts, run, watcher.say)
        with trainer.own_chance():
            _begin(trainer, source, watcher)
            if not parts.in_step:
                world.agree(starting_model=state.fingerprint(parts))
            if world.first and not trainer.ended:  # what is finished was not trained by this recipe
                runs.save_files(run, _origin(parts))
                cut(run / LOG, trainer.step, trainer.due)
            speed = _loop(trainer, watcher, check)
    return Result(run, trainer.step, trainer.words, trainer.best, speed)


def _data(parts: Parts) -> dict[str, str | None]:
    """What the data are known by."""
    data = parts.data
    valid = None if data.valid is None else data.valid.about.sha256
    return {"vocabulary": data.vocabulary.digest, "training_text": data.train.about.sha256, "development_text": valid}


def _begin(trainer: Trainer, source: Path | None, watcher: Watcher) -> None:
    """Go on from the last checkpoint, or start: from another run's model, or from nothing."""
    parts, run, world = trainer.parts, trainer.run, trainer.parts.world
    saved = None
    if world.first:
        trainer.checkpoints.warn = watcher.say
        trainer.checkpoints.tidy()
        saved = trainer.checkpoints.latest()
    if (before := state.restore(trainer, saved)) is not None:
        if trainer.evaluated and (fault := world.of_first(folder.fault(run) if world.first else None)):
            watcher.say(f"{fault}; the next model to be evaluated takes its place")
            trainer.best, trainer.evaluated = None, 0
        more = "the run is finished; for more, raise training.steps or epochs"
        others = "" if before == world.size else f", with {world.size} processes instead of {before}"
        if world.first and (changed := folder.changed(run, parts.recipe)):
            others += f"; changed in the recipe: {', '.join(changed)}"
        watcher.say(more if trainer.ended else f"going on from step {trainer.step} of {parts.total}{others}")
    elif source is not None:
        tensors, old = runs.load_model(source)
        shared = carry_over(parts, tensors, Vocabulary.load(runs.path_of(source, VOCABULARY)))
        trainer.unsaved = True  # from its first step on the run needs `source` no more
        watcher.say(f"starting from {source}: {shared:,} of {len(parts.data.vocabulary):,} words carried over")
        if old["options"]["link"] != parts.config["options"]["link"]:
            watcher.say(f"its criterion {old['criterion']!r} has another link: scores start off and settle in training")
    if not trainer.step and (cut := parts.batches.cut):
        sentences = f"{cut:,} of {len(parts.data.train):,} training sentences"
        watcher.say(f"{sentences} are longer than batches.max_length and are cut, each piece with a history of its own")


def _loop(trainer: Trainer, watcher: Watcher, check: Check) -> float:
    """Train, look and save until the end; returns the words per second.

    A checkpoint comes last of what is due at a step: a run killed before it does all of that again, to the same end.
    """
    parts, settings, speeds = trainer.parts, trainer.parts.settings, [0.0]
    valid = None if parts.data.valid is None else parts.data.valid.first(settings.evaluation_words)
    watcher.begin(trainer.step, parts.total)
    with (
        Log(trainer.run, trainer.step, settings.tensorboard) if parts.world.first else NoLog() as log,
        Ahead(parts.batches, trainer.step, parts.device) as batches,
    ):

        def heard(metrics: Metrics) -> None:
            log.write(trainer.log(metrics))
            speeds.append(metrics.words_per_second)
            watcher.metrics(metrics)

        def save() -> None:
            if trainer.unsaved:
                log.flush()
                trainer.save()

        try:
            while True:
                if trainer.due:
                    _look(trainer, valid, log, watcher, check)
                ended = trainer.step >= parts.total
                if ended or trainer.step % settings.save_every == 0:
                    save()
                if ended:
                    return float(np.median(speeds[1:] or speeds))
                check(trainer.step)
                trainer.train(batches, heard, check)
        except Interrupted:
            save()
            raise


def _look(trainer: Trainer, valid: TokenStore | None, log: Log, watcher: Watcher, check: Check) -> None:
    """Measure the development text and keep the best model; without such a text, the newest."""
    trainer.parts.optimizer.settle()  # at steps that every run has: an interrupted one comes to the same end
    if valid is None:
        _keep(trainer)
    else:
        evaluation = trainer.evaluate(valid, check)
        log.write(trainer.log(evaluation))
        watcher.evaluation(trainer.step, evaluation)
        trainer.parts.schedule.observe(evaluation.perplexity)
        if trainer.best is None or evaluation.perplexity < trainer.best.perplexity:
            trainer.best = evaluation
            _keep(trainer)
    trainer.evaluated, trainer.unsaved = trainer.step, True


def _keep(trainer: Trainer) -> None:
    """The model as it is now becomes the run's model."""
    parts, weights = trainer.parts, state.weights(trainer.parts)
    if not parts.world.first:
        return
    config = {**parts.config, "step": trainer.step, "words_seen": trainer.words}
    if trainer.best is not None:
        config["perplexity"] = trainer.best.perplexity
    page = card(parts, trainer.step, trainer.words, trainer.best)
    runs.save_model(trainer.run, weights, config, {"README.md": page.encode(), **_origin(parts)})


def _origin(parts: Parts) -> dict[str, bytes]:
    """What a model is made from, with every model: who removes the folder of a training still gets a whole run."""
    vocabulary = parts.data.vocabulary.render()  # not DATA's file, which may have been made anew since it was opened
    return {RECIPE: to_toml(parts.recipe).encode(), VOCABULARY: vocabulary}
