"""Trainings that are killed, interrupted, starved, damaged: the tests run a few trials, benchmarks/torture.py many."""

import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial, partialmethod
from pathlib import Path
from unittest import mock

import torch
from faults import cut, damaged, flip_a_bit, zero_a_page

import selfnorm
from selfnorm import cli, run, training
from selfnorm.checkpoint import Checkpoints
from selfnorm.corpus.batches import Batch
from selfnorm.corpus.prepare import prepare
from selfnorm.recipe import Recipe, Table, to_toml
from selfnorm.training.trainer import Trainer

CLOCK = ("words_per_second", "peak_mib")  # the fields that no seed decides
LISTED = ("README.md", "config.json", "model.safetensors", "recipe.toml", "vocab.txt")

_LSTM = {"layers": 2, "hidden": 16, "embedding": 8, "dropout": 0.2}
_TRANSFORMER = {"layers": 1, "hidden": 16, "feed_forward": 16, "heads": 2, "embedding": 16, "dropout": 0.1}
_STREAMS = {"name": "streams", "sequences": 8, "steps": 6}
_SENTENCES = {"positions": 64, "max_length": 16}

# every criterion, sampler, optimizer, schedule, model and kind of history is in some case
CASES: dict[str, dict[str, dict]] = {
    "mode3": {
        "sampler": {"name": "systematic", "k": 20, "groups": 2, "noise": {"name": "unigram", "power": 0.75}},
        "model": {"name": "lstm", "sparse": True, **_LSTM},
        "schedule": {"name": "cosine", "warmup": 5},
    },
    "ce": {
        "model": {"name": "lstm", **_LSTM},
        "batches": _STREAMS,
        "optimizer": {"name": "sgd", "lr": 5.0, "momentum": 0.5},
        "schedule": {"name": "newbob", "threshold": 0.1},
    },
    "nce": {
        "sampler": {"name": "replacement", "k": 20},
        "model": {"name": "transformer", **_TRANSFORMER},
        "optimizer": {"name": "adamw"},
    },
    "mode2": {
        "sampler": {"name": "excluding", "k": 10, "sharing": "position"},
        "model": {"name": "transformer", "positions": "rotary", "memory": 9, **_TRANSFORMER},
        "batches": _STREAMS,
        "optimizer": {"name": "adagrad"},
    },
    "sampled_softmax": {
        "sampler": {"name": "distinct", "k": 30},
        "model": {"name": "lstm", "tied": True, "sparse": True, **_LSTM, "embedding": 16},
        "batches": _STREAMS,
        "optimizer": {"name": "adagrad"},
        "schedule": {"name": "step", "hold": 1, "warmup": 3},
    },
    "is": {"sampler": {"name": "rejection", "k": 20}, "model": {"name": "lstm", **_LSTM}},
    "mode1": {"sampler": {"name": "systematic", "k": 60, "noise": "uniform"}, "model": {"name": "lstm", **_LSTM}},
    "bce": {"model": {"name": "transformer", "tied": True, **_TRANSFORMER}, "batches": _STREAMS},
    "ce_vr": {"model": {"name": "lstm", "sparse": True, **_LSTM}, "optimizer": {"name": "sgd", "lr": 1.0}},
    "linear": {"sampler": {"k": 40}, "model": {"name": "lstm", **_LSTM}, "batches": _STREAMS},
}


def make_data(folder: Path) -> Path:
    """A few hundred sentences of Zipf's words, each a little like the one before."""
    chance = random.Random(1)
    words = [f"w{number}" for number in range(120)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    folder.mkdir(parents=True, exist_ok=True)
    for name, sentences in (("train.txt", 300), ("valid.txt", 30)):
        lines = (chance.choices(words, weights, k=chance.randrange(1, 14)) for _ in range(sentences))
        (folder / name).write_text("".join(" ".join(sorted(line)) + "\n" for line in lines))
    prepare([folder / "train.txt"], folder / "data", 100, folder / "valid.txt", processes=1)
    return folder / "data"


def recipe(data: Path, criterion: str, **training: object) -> Recipe:
    """The case of a criterion; 60 steps with everything due at odd steps, unless `training` says otherwise."""
    plain = {"save_every": 7, "evaluate_every": 10, "log_every": 4, "device": "cpu"}
    length = {} if "epochs" in training else {"steps": 60}
    tables = {"batches": _SENTENCES, **CASES[criterion], "training": plain | length | training}
    return Recipe(str(data), criterion=Table(criterion), **{key: _table(**value) for key, value in tables.items()})


def _table(name: str | None = None, **options: object) -> Table:
    return Table(name, options)


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, but for the clock: equal outcomes are bit-identical runs."""
    saved = Checkpoints(folder / "checkpoints").latest()
    run.verify(folder)
    found: dict[str, object] = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in LISTED}
    found |= {name: (value.dtype, value.tolist()) for name, value in saved.tensors.items()}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return found | {"step": saved.step, "state": _timeless(saved.state), "metrics": _timeless(lines)}


def _timeless(value):
    if isinstance(value, dict):
        return {key: _timeless(each) for key, each in value.items() if key not in CLOCK}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def differing(one: dict[str, object], other: dict[str, object]) -> list[str]:
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


@dataclass
class Child:
    """A verb in a process of its own, forked: PyTorch is there at once."""

    pid: int
    folder: Path

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit status, or minus the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()


def start(folder: Path, *arguments: object, before: Callable[[], object] = lambda: None) -> Child:
    """`selfnorm ARGUMENTS` in a child, which calls `before` first; what it prints goes to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, folder)
    try:
        os._exit(_in_child(folder, arguments, before))
    finally:
        os._exit(70)  # whatever happens, this process must not go on as a second pytest


def _in_child(folder: Path, arguments: tuple[object, ...], before: Callable[[], object]) -> int:
    torch.set_num_threads(1)  # the parent's threads do not live in the child
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
    sys.argv = ["selfnorm", *map(str, arguments)]
    status = 0
    try:
        before()
        cli.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        status = 1
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    return status


def call(folder: Path, *arguments: object, before: Callable[[], object] = lambda: None) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a verb."""
    child = start(folder, *arguments, before=before)
    return child.wait(), child.out, child.err


class Trial:
    """One recipe, its undisturbed run and the time it takes; `again` disturbs it in a fresh run directory."""

    def __init__(self, folder: Path, made: Recipe) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.recipe, self.number = folder, folder / "recipe.toml", 0
        self.recipe.write_text(to_toml(made))
        begin = time.perf_counter()
        status, _, err = self.train(folder / "whole")
        assert status == 0, err
        self.seconds = time.perf_counter() - begin
        self.wanted = outcome(folder / "whole")

    def train(self, where: Path, before: Callable[[], object] = lambda: None) -> tuple[int, str, str]:
        return call(self.folder / "said", "train", self.recipe, where, before=before)

    def fresh(self) -> Path:
        """A new run directory; the one before goes."""
        shutil.rmtree(self.folder / f"run-{self.number}", ignore_errors=True)
        self.number += 1
        return self.folder / f"run-{self.number}"

    def faults_of(self, where: Path) -> list[str]:
        """Go on to the end: what differs from the undisturbed run, or why it cannot go on."""
        status, _, err = self.train(where)
        return differing(outcome(where), self.wanted) if status == 0 else [f"exit status {status}: {err}"]

    def start(self, where: Path, before: Callable[[], object] = lambda: None) -> Child:
        return start(self.folder / "said", "train", self.recipe, where, before=before)

    def killed(self, chance: random.Random, kills: int) -> tuple[int, list[str]]:
        """R1: kill -9 at random moments, up to `kills` times; how many came before the end, and the faults."""
        where, done = self.fresh(), 0
        for _ in range(kills):
            child = self.start(where)
            time.sleep(chance.uniform(0, self.seconds))
            child.send(signal.SIGKILL)
            if child.wait() == 0:
                break
            done += 1
        return done, self.faults_of(where)

    def stages(self) -> int:
        """R2: how many stages the writers of checkpoints and of the run pass in a whole training."""
        with hooked_writers(lambda number: None) as count:
            training.train(selfnorm.recipe.load(self.recipe), self.fresh())
        return count[0]

    def killed_at(self, stage: int) -> list[str]:
        """R2: kill -9 at one of these stages."""
        where = self.fresh()

        def die(number: int) -> None:
            if number == stage:
                os.kill(os.getpid(), signal.SIGKILL)

        status, _, err = self.train(where, before=partial(ExitStack().enter_context, hooked_writers(die)))
        return self.faults_of(where) if status == -signal.SIGKILL else [f"not killed, exit status {status}: {err}"]

    def interrupted(self, number: int, chance: random.Random) -> tuple[bool, list[str]]:
        """R3: a signal at a random moment of the training: whether it came in time, and the faults."""
        where = self.fresh()
        child = self.start(where)
        while not (where / "metrics.jsonl").exists() and os.waitpid(child.pid, os.WNOHANG) == (0, 0):
            time.sleep(0.001)  # until signals are noted
        time.sleep(chance.uniform(0, 0.8 * self.seconds))
        child.send(number)
        begin, status = time.perf_counter(), child.wait()
        saved = Checkpoints(where / "checkpoints").latest()
        if status != 128 + number and saved and saved.step == self.wanted["step"]:
            return False, self.faults_of(where)  # the training had ended, and with it the noting of signals
        faults = [] if time.perf_counter() - begin < 30 else ["took more than 30 s to end"]
        if status != 128 + number or "all saved; go on with: selfnorm train" not in child.err:
            faults.append(f"exit status {status}: {child.err}")
        return True, faults + self.faults_of(where)

    def end_at(self, step: int, where: Path) -> int:
        """The exit status of a run that a SIGTERM ends at `step`."""
        plain = Trainer.update

        def update(trainer: Trainer, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            if trainer.step + 1 == step:
                signal.raise_signal(signal.SIGTERM)
            return plain(trainer, batch)

        return self.start(where, before=lambda: setattr(Trainer, "update", update)).wait()

    def ended_at(self, step: int) -> list[str]:
        """R15: end at a step and go on."""
        where = self.fresh()
        status = self.end_at(step, where)
        return self.faults_of(where) if status == 128 + signal.SIGTERM else [f"exit status {status}"]

    def starved(self, limit: int, chance: random.Random) -> list[str]:
        """R4: no file may grow beyond `limit` bytes, in a new run or one that has a checkpoint."""
        where = self.fresh()
        if chance.random() < 0.5 and self.end_at(5, where) != 128 + signal.SIGTERM:
            return ["could not begin"]
        status, _, err = self.train(where, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        faults = []
        if status == 0:
            return differing(outcome(where), self.wanted)
        heard = len(err) >= limit or "File too large" in err  # what is printed goes to a file too
        if status != 3 or not heard or "Traceback" in err:
            faults.append(f"exit status {status}: {err}")
        return faults + self.faults_of(where)


@contextmanager
def hooked_writers(hook: Callable[[int], None]) -> Iterator[list[int]]:
    """Every stage of every writer of a run is counted and told to `hook`."""
    count = [0]

    def at(_stage: str) -> None:
        hook(count[0])
        count[0] += 1

    with (
        mock.patch.object(Checkpoints, "save", partialmethod(Checkpoints.save, hook=at)),
        mock.patch.object(run, "save_model", partial(run.save_model, hook=at)),
        mock.patch.object(run, "save_files", partial(run.save_files, hook=at)),
    ):
        yield count


def undetected(data: Path, made: Recipe, done: Path, scratch: Path, chance: random.Random) -> str | None:
    """R5: damage one file of a run or its data; what went wrong if no reader noticed, by name.

    `done` is a finished run. Of its checkpoints the newest is damaged: an older one is read only when that is broken.
    """
    newest = Checkpoints(done / "checkpoints").latest().path
    path = chance.choice([*(done / name for name in (*LISTED, "manifest.json")), *newest.iterdir(), *data.iterdir()])
    damage = chance.choice([flip_a_bit, flip_a_bit, cut, zero_a_page])
    content = damage(path.read_bytes(), chance)
    if content == path.read_bytes():
        return None
    with damaged(path, content):
        told: list[str] = []
        shutil.rmtree(scratch, ignore_errors=True)
        shutil.copytree(done, scratch)
        try:
            training.train(made, scratch, watcher=training.Watcher(say=told.append))
            again = selfnorm.load(scratch, "cpu")
            told = [sentence for sentence in told if path.name in sentence]
            if not told or not torch.isfinite(again.model.output.weight).all():
                return f"{path}, {damage.__name__}: nobody noticed"
        except ValueError as error:
            if path.name not in str(error):
                return f"{path}, {damage.__name__}: {error}"
        if path.parent == done:
            try:
                selfnorm.load(done, "cpu")
                return f"{path}, {damage.__name__}: loaded"
            except ValueError as error:
                return None if path.name in str(error) else f"{path}, {damage.__name__}: {error}"
    return None
