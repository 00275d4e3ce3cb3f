"""Make rows, one after the other; what is made is kept, row by row and stage by stage.

rows.jsonl  rows.csv      the finished rows
data/CORPUS               vocabulary and ids; beside it CORPUS.4gram.arpa
runs/RUN                  a training, named by its recipe; rows may share it
measured/RUN/STAGE.json   what was found of it: training, text, speed, and errors of each set of utterances
"""

import datetime
import gc
import json
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from selfnorm import training
from selfnorm.files import finite, locked, write_whole
from selfnorm.registry import named
from selfnorm.reproduce import measures, together
from selfnorm.reproduce import rows as kept
from selfnorm.reproduce.clock import Clock, TimeUp
from selfnorm.reproduce.corpora import Corpus, Prepared
from selfnorm.reproduce.errors import Utterances, word_errors
from selfnorm.reproduce.plan import SWB, SWEPT, Row, Scale, recipe, run_name
from selfnorm.reproduce.rows import Made
from selfnorm.rescoring import NEURAL, NGRAM
from selfnorm.scorers import Neural, NGram
from selfnorm.training import Interrupted, Stopped, Watcher

Watch = Callable[[str], AbstractContextManager[Watcher]]
Work = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Planned:
    """A row to come, or one that is there."""

    row: Row
    run: str | None  # None: nothing is trained for it
    words: float  # that its training sees, about
    state: str  # "done", "trained", "begun", "shared" with a row before it, or "to do"


class Maker:
    """`plan` says what there is to do, `make` does it."""

    def __init__(
        self,
        to: Path,
        scale: Scale,
        corpora: Mapping[str, Corpus],
        *,
        origin: Mapping[str, str] | None = None,
        watch: Watch = lambda _: nullcontext(Watcher()),
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.to, self.scale, self.corpora = to, scale, corpora
        self.origin, self.watch, self.say = dict(origin or {}), watch, say
        self.prepared: dict[str, Prepared] = {}

    def done(self) -> dict[str, Made]:
        """The finished rows of this scale, by key."""
        rows, damaged = kept.read(self.to)
        for sentence in damaged:
            self.say(sentence)
        return {row["key"]: row for row in rows if row["scale"] == self.scale.name}

    def plan(self, rows: Sequence[Row]) -> list[Planned]:
        done, seen, found = self.done(), set(), []
        for row in rows:
            run = run_name(row, self.scale) if row.trained else None
            words = self.scale.tasks[row.task].words if row.trained else 0.0
            state = "done" if row.key in done else self._state(run, run in seen)
            found.append(Planned(row, run, words, state))
            seen.add(run)
        return found

    def _state(self, run: str | None, seen: bool) -> str:
        if run is None:
            return "to do"
        if self._stage(run, "training").exists():
            return "trained"
        if seen:
            return "shared"
        return "begun" if (self.to / "runs" / run).exists() else "to do"

    def make(
        self, rows: Sequence[Row], most: int | None = None, clock: Clock | None = None, at_once: int = 1
    ) -> Iterator[Made]:
        """At most so many rows that are not there yet; ends with TimeUp where the time is over.

        With `at_once` so many are trained at a time. They are timed before, alone, so that each row is there as soon as
        its training is, and the end of the time costs no other.
        """
        clock = clock or Clock()
        with locked(self.to, kept.BUSY):
            done = self.done()
            wanted = [row for row in rows if row.key not in done][:most]
            for row in wanted if at_once == 1 else self._ready(wanted, at_once, clock):
                if at_once == 1:
                    clock.check()
                    self.say(f"{row.key}: {row.label}")
                made = self._made(row, clock if at_once == 1 else Clock())
                kept.append(self.to, made)
                yield made

    def _ready(self, wanted: Sequence[Row], at_once: int, clock: Clock) -> Iterator[Row]:
        """All of these rows, each when nothing is left to do for it: the end of the time does not matter to it."""
        like = partial(type(self), self.to, self.scale, self.corpora, origin=self.origin)
        together.prepare(self, like, wanted, clock)
        left, failure = list[Row](), None
        for row in wanted:
            try:
                if row.trained and not self._stopped(row):
                    self._speed(row, clock)
            except torch.OutOfMemoryError as error:  # the other rows do not suffer from it
                self.say(f"{row.key}: out of memory when it was timed alone; the others go on")
                failure = error
                continue
            if self.ready(row):
                yield row
            else:
                left.append(row)
        yield from together.ahead(self, like, left, at_once, clock)
        if failure is not None:
            raise failure

    def prepare(self, row: Row, clock: Clock) -> Made:
        """All of a row that is not timed."""
        prepared = self.text(row, clock)
        if row.criterion is None:
            return {**prepared.statistics(), **self._today()}
        return self._trained(row, prepared, clock) if row.trained else self._counted(row, prepared, clock)

    def count(self, row: Row, clock: Clock) -> None:
        """Make the 4-gram model that a row is measured with."""
        self.text(row, clock).count()

    def ready(self, row: Row) -> bool:
        """Whether all of a row is there that is not timed."""
        return not self._missing(row)

    def _missing(self, row: Row) -> list[str]:
        """What is still to be found of a row, of all that is not timed."""
        if row.criterion is None:
            return []
        task = self.scale.tasks[row.task]
        name = run_name(row, self.scale) if row.trained else f"{task.corpus}-4gram"
        if row.trained and self._stopped(row):
            return []
        sets = self.corpora[task.corpus].utterances if row.rescores else ()
        stages = (*(("training",) if row.trained else ()), "text", *(f"errors-{each.name}" for each in sets))
        return [stage for stage in stages if not self._stage(name, stage).exists()]

    def _stopped(self, row: Row) -> bool:
        return "stopped" in self._found(run_name(row, self.scale), "training")

    def _made(self, row: Row, clock: Clock) -> Made:
        task = self.scale.tasks[row.task]
        made: Made = {"scale": self.scale.name, "key": row.key, "item": row.item, "label": row.label, "task": row.task}
        made |= {"criterion": row.criterion, "k": row.k, "groups": row.groups, "sampler": row.sampler}
        made |= {"sharing": row.sharing, "noise": row.noise, "seed": row.seed, "corpus": task.corpus}
        made["batch"] = f"{self.scale.large} positions" if row.large else f"{task.sequences} sequences"
        if row.criterion is not None:
            made["model"] = task.preset if row.trained else "4-gram"
        made |= self.prepare(row, clock)
        return made | self._speed(row, clock) if row.trained and "stopped" not in made else made

    def _speed(self, row: Row, clock: Clock) -> Made:
        alike = replace(row, seed=1, task=SWB if row.task == SWEPT else row.task)  # speed hangs on neither
        work = partial(measures.speed, recipe(alike, self.scale), self.to, self.scale.large, self.scale.repeats)
        return self._staged(run_name(alike, self.scale), "speed", work, clock)

    def has_text(self, row: Row) -> bool:
        return self._prepared(row).there

    def has_counts(self, row: Row) -> bool:
        return self._prepared(row).ngram.exists()

    def _prepared(self, row: Row) -> Prepared:
        corpus = named("corpus", self.corpora, self.scale.tasks[row.task].corpus)
        if corpus.name not in self.prepared:
            self.prepared.clear()  # one 4-gram model in memory is enough
            self.prepared[corpus.name] = Prepared(corpus, self.to / "data", self.scale.evaluation_words)
        return self.prepared[corpus.name]

    def text(self, row: Row, clock: Clock) -> Prepared:
        """The text of a row, prepared now if it was not before."""
        prepared = self._prepared(row)
        clock.check()
        prepared.prepare()
        return prepared

    def _trained(self, row: Row, prepared: Prepared, clock: Clock) -> Made:
        name = run_name(row, self.scale)
        run = self.to / "runs" / name

        def train() -> Mapping[str, Any]:
            try:
                with self.watch(row.key) as watcher:
                    training.train(recipe(row, self.scale), run, where=self.to, watcher=clock.bounding(watcher))
            except Stopped as stopped:  # that a training fails is a finding, too
                self.say(f"{row.key}: {stopped}")
                return {"stopped": str(stopped), **self._today()}
            return {**measures.logged(run), **self._today()}

        if self._missing(row) and not run.exists():  # what is still to be measured needs the model
            self._stage(name, "training").unlink(missing_ok=True)
        found = self._staged(name, "training", train, clock)
        if "stopped" in found:
            return {"run": name, **found}
        shutil.rmtree(run / "checkpoints", ignore_errors=True)  # they are large, and the model is kept
        found |= self._staged(name, "text", lambda: measures.perplexities(run, prepared), clock)
        return {"run": name, **found, **self._errors(row, name, run, prepared, clock)}

    def _counted(self, row: Row, prepared: Prepared, clock: Clock) -> Made:
        name = f"{prepared.corpus.name}-4gram"
        found = self._staged(name, "text", lambda: {**measures.counted(prepared), **self._today()}, clock)
        return {"run": None, **found, **self._errors(row, name, None, prepared, clock)}

    def _errors(self, row: Row, name: str, run: Path | None, prepared: Prepared, clock: Clock) -> Made:
        if not row.rescores:
            return {}

        def errors(utterances: Utterances) -> Mapping[str, Any]:
            scorers: dict[str, Neural | NGram] = {} if run is None else {NEURAL: Neural.load(run)}
            scorers[NGRAM] = prepared.counts
            return word_errors(utterances, scorers, self.scale.folds)

        sets = {each.name: partial(errors, each) for each in prepared.corpus.utterances}
        return {"wer": {each: self._staged(name, f"errors-{each}", work, clock) for each, work in sets.items()}}

    def _stage(self, name: str, stage: str) -> Path:
        return self.to / "measured" / name / f"{stage}.json"

    def _found(self, name: str, stage: str) -> Made:
        path = self._stage(name, stage)
        return json.loads(path.read_text()) if path.exists() else {}

    def _staged(self, name: str, stage: str, work: Work, clock: Clock) -> Made:
        """What an earlier call found, else what the work finds now."""
        path = self._stage(name, stage)
        if before := self._found(name, stage):
            return before
        clock.check()
        self.say(f"{name}: {stage}")
        try:
            found = finite(dict(work()))
        except Interrupted as interrupted:
            if interrupted.number == signal.SIGALRM:
                raise TimeUp(f"the time is up: {name} is saved, and goes on next time") from None
            raise
        finally:
            gc.collect()  # a trainer and its graphs hold each other, and a GPU's memory
            torch.cuda.empty_cache()  # others may run beside us
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(found, allow_nan=False) + "\n").encode())
        return found

    def _today(self) -> dict[str, str]:
        return {**self.origin, "date": datetime.date.today().isoformat()}
