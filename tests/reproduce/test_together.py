"""Rows that are made several at a time are those that are made one by one, and a signal loses nothing."""

import multiprocessing
import os
import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from selfnorm.reproduce import measures
from selfnorm.reproduce.clock import Clock, TimeUp
from selfnorm.reproduce.corpora import Prepared
from selfnorm.reproduce.make import Maker
from selfnorm.reproduce.plan import rows
from selfnorm.reproduce.together import Ended, Processes
from selfnorm.training import Interrupted, Watcher
from selfnorm.training.signals import Noted

CLOCK = {"seconds_per_batch", "words_per_second", "words_per_second_large", "training_seconds"}


def maker(to, scale, corpus, **options):
    return Maker(to, scale, {corpus.name: corpus}, origin={"machine": "a desk", "torch": "2"}, **options)


def chosen(scale, *keys):
    return [row for row in rows("all", scale) if any(row.key.startswith(key) for key in keys)]


def without_times(found):
    """In the order of their keys: those that run beside each other end in any order."""
    rows = sorted(found, key=lambda row: row["key"])
    return [{key: value for key, value in row.items() if key not in CLOCK} for row in rows]


@pytest.fixture(scope="module")
def texts(tmp_path_factory, corpus):
    folder = tmp_path_factory.mktemp("texts")
    Prepared(corpus, folder).prepare()
    Prepared(corpus, folder).count()
    return folder


@pytest.fixture
def prepared(tmp_path, texts):
    """Where the text is prepared and counted already, which takes a process each."""
    shutil.copytree(texts, tmp_path / "data")
    return tmp_path


def test_rows_are_the_same_as_one_by_one(tmp_path, scale, corpus):
    wanted = chosen(scale, "table2/mode3/k200", "table3/mode3", "table3/count", "table2/nce/k200", "table1/Switchboard")
    heard = {}

    @contextmanager
    def watch(name):
        yield Watcher(
            begin=lambda step, total: heard.setdefault(name, []).append((step, total)),
            metrics=lambda metrics: heard[name].append(metrics.step),
        )

    first = list(maker(tmp_path / "a", scale, corpus, watch=watch).make(wanted, at_once=2))
    assert heard["table3/mode3/k200/g1/distinct/log_uniform/seed1"] == [(0, 6), 2, 4, 6]  # the row that asks for most
    assert "table2/mode3/k200/g1/distinct/log_uniform/seed1" not in heard
    assert without_times(first) == without_times(maker(tmp_path / "b", scale, corpus).make(wanted))


def test_a_signal_is_passed_on_and_all_is_saved(prepared, scale, corpus):
    wanted = chosen(scale, "table2/mode3", "table2/nce")
    raised = []

    def once(metrics):  # both get there, and a second signal ends everything at once
        if not raised:
            raised.append(metrics.step)
            signal.raise_signal(signal.SIGTERM)

    @contextmanager
    def watch(_):
        yield Watcher(metrics=once)

    long = replace(
        scale, tasks={name: replace(task, training={"steps": 500_000}) for name, task in scale.tasks.items()}
    )
    one = maker(prepared, long, corpus, watch=watch)
    with pytest.raises(Ended, match="stopped by SIGTERM, all trainings saved") as ended:
        list(one.make(wanted[:2], at_once=2))
    assert isinstance(ended.value, Interrupted)
    assert "begun" in [each.state for each in one.plan(wanted[:2])]
    assert list((prepared / "runs").glob("*/checkpoints/*"))
    assert not multiprocessing.active_children()


def test_what_fails_is_said_and_the_others_are_ended(tmp_path, scale, corpus):
    small = replace(corpus, size=102)
    with pytest.raises(ValueError, match="200 distinct ids cannot be drawn from 102 words"):
        list(maker(tmp_path, scale, small).make(chosen(scale, "table2/mode3/k200", "table2/nce/k200"), at_once=2))


def test_processes_import_nothing_from_the_folder_one_is_in(prepared, scale, corpus, monkeypatch):
    (prepared / "socket.py").write_text("raise SystemExit('somebody else wrote this')")
    monkeypatch.chdir(prepared)
    monkeypatch.setenv("PYTHONSAFEPATH", "")  # as if it were not there
    assert list(maker(prepared, scale, corpus).make(chosen(scale, "table2/nce/k200"), at_once=2))


class Crowded(Maker):
    """Its NCE rows find no memory so many times."""

    times = 1

    def prepare(self, row, clock):
        tried = self.to / "tried"
        if row.criterion == "nce" and (before := tried.stat().st_size if tried.exists() else 0) < self.times:
            tried.write_text("x" * (before + 1))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 646.00 MiB")
        return super().prepare(row, clock)


class Hopeless(Crowded):
    times = 100


def test_a_row_without_memory_goes_on_when_fewer_run(prepared, scale, corpus):
    wanted, said = chosen(scale, "table2/mode3/k200", "table2/nce/k200"), []
    one = Crowded(prepared, scale, {corpus.name: corpus}, say=said.append)
    assert len(list(one.make(wanted, at_once=2))) == 2
    assert "table2/nce/k200/g1/replacement/log_uniform/seed1: out of memory, it goes on when fewer than 2 run" in said


def test_a_row_that_finds_no_memory_alone_fails(prepared, scale, corpus):
    wanted = chosen(scale, "table2/nce/k200")
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
        list(Hopeless(prepared, scale, {corpus.name: corpus}).make(wanted, at_once=2))
    assert (prepared / "tried").read_text() == "xx"


def test_a_process_that_is_killed_is_named(prepared, scale, corpus):
    @contextmanager
    def watch(_):
        yield Watcher(begin=lambda step, total: os.kill(multiprocessing.active_children()[-1].pid, signal.SIGKILL))

    with pytest.raises(ChildProcessError, match=r"table2/nce/k200/\S+: its process was ended by SIGKILL; where memory"):
        list(maker(prepared, scale, corpus, watch=watch).make(chosen(scale, "table2/nce/k200"), at_once=2))


def test_the_time_ends_all_of_them(prepared, scale, corpus):
    clock = Clock(60)
    long = replace(
        scale, tasks={name: replace(task, training={"steps": 500_000}) for name, task in scale.tasks.items()}
    )
    clock.until -= 60 * 60 - 12  # seconds: enough to begin, not to end
    with pytest.raises(TimeUp, match="the time is up: what was begun is saved, and goes on next time"):
        list(maker(prepared, long, corpus).make(chosen(scale, "table2/nce/k200"), clock=clock, at_once=2))


def test_a_row_is_there_as_soon_as_it_is_trained_whatever_becomes_of_the_others(tmp_path, scale, corpus):
    """Texts are prepared together, rows timed before they are trained, alone, and n-grams counted meanwhile."""
    task = replace(scale.tasks["EN"], corpus="other", training={"steps": 500_000})
    long = replace(scale, tasks={**scale.tasks, "EN": task})
    wanted, said, clock = chosen(scale, "table2/nce/k200", "table5/nce/k200"), [], Clock(60)
    one = Maker(tmp_path, long, {corpus.name: corpus, "other": replace(corpus, name="other")}, say=said.append)
    made = one.make(wanted, clock=clock, at_once=2)
    assert next(made)["key"].startswith("table2/nce")
    assert [line.rpartition(": ")[2] for line in said][:3] == ["preparing built-in, other", "speed", "speed"]
    assert [row["item"] for row in one.done().values()] == ["table2"]
    made.close()
    assert not multiprocessing.active_children()


def test_a_row_that_cannot_be_timed_keeps_no_other_from_being_made(prepared, scale, corpus, monkeypatch):
    wanted, said, speed = chosen(scale, "table2/mode3/k200", "table2/nce/k200"), [], measures.speed

    def crowded(recipe, *rest):
        if recipe.criterion.name == "mode3":
            raise torch.OutOfMemoryError("CUDA out of memory")
        return speed(recipe, *rest)

    monkeypatch.setattr(measures, "speed", crowded)
    made = maker(prepared, scale, corpus, say=said.append).make(wanted, at_once=2)
    assert next(made)["criterion"] == "nce"
    with pytest.raises(torch.OutOfMemoryError):
        list(made)
    assert f"{wanted[-1].key}: out of memory when it was timed alone; the others go on" in said


def test_what_is_ready_is_made_though_the_time_is_over_when_others_are_timed(tmp_path, scale, corpus, monkeypatch):
    wanted = sorted(chosen(scale, "table2/mode3/k200", "table2/nce/k200"), key=lambda row: row.criterion != "nce")
    one, clock, speed = maker(tmp_path, scale, corpus), Clock(60), measures.speed
    one.prepare(wanted[0], clock)

    def slow(*given):
        clock.until = 0.0
        return speed(*given)

    monkeypatch.setattr(measures, "speed", slow)
    made = one.make(wanted, clock=clock, at_once=2)
    assert next(made)["criterion"] == "nce"
    with pytest.raises(TimeUp):
        next(made)


def test_a_signal_when_texts_are_prepared_ends_all_of_it(tmp_path, scale, corpus):
    tasks = {**scale.tasks, "EN": replace(scale.tasks["EN"], corpus="other")}
    two = {corpus.name: corpus, "other": replace(corpus, name="other")}

    def say(sentence):
        assert sentence == "preparing built-in, other"
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Ended):
        list(
            Maker(tmp_path, replace(scale, tasks=tasks), two, say=say).make(
                chosen(scale, "table2/nce/k200", "table5/nce/k200"), at_once=2
            )
        )
    assert not multiprocessing.active_children()


def test_the_first_failure_is_the_one_that_is_raised(tmp_path, scale, corpus):
    with Processes(maker(tmp_path, scale, corpus), maker, Clock(), Noted()) as processes:
        for error in (ValueError("the cause"), ChildProcessError("what came of it"), None):
            processes.pass_on(error)
        with pytest.raises(ValueError, match="the cause"):
            processes.check()
