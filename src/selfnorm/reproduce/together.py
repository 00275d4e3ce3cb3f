"""Several rows at a time, each in a process of its own: while one is measured on the host, others train.

Processes do all that is not timed; whoever started them ends the rows, each when it is ready. Another process counts
n-grams meanwhile. A signal is passed on to all of them, so that trainings are saved. A row that finds no memory beside
the others goes on when fewer run.
"""

import multiprocessing
import os
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import torch

from selfnorm.cores import cores
from selfnorm.reproduce.clock import Clock, TimeUp
from selfnorm.reproduce.plan import Row, run_name
from selfnorm.training import Interrupted, Watcher
from selfnorm.training.signals import Noted, noted_signals

if TYPE_CHECKING:
    from selfnorm.reproduce.make import Maker

LOOK = 0.5  # seconds between two looks for signals
PATIENCE = 30.0  # seconds that a training has to be saved
TOLD = ("begin", "metrics", "evaluation", "say")  # what a watcher hears


class Ended(Interrupted):
    """A signal asked for the end of all of them."""

    def __init__(self, number: int) -> None:
        Exception.__init__(self, f"stopped by {signal.Signals(number).name}, all trainings saved")
        self.number = number


@dataclass(frozen=True)
class Begun:
    row: Row
    work: str  # what the maker does for it: "text", "count" or "prepare"
    process: Any
    stack: ExitStack  # of its watcher
    watcher: Watcher


class Processes:
    """Makers like ours, one for each process; what happens there is told here. Whoever leaves ends all of them."""

    def __init__(self, maker: "Maker", like: Callable[..., "Maker"], clock: Clock, noted: Noted) -> None:
        self.maker, self.like, self.clock, self.noted = maker, like, clock, noted
        self.begun: dict[Connection, Begun] = {}
        self.failure: BaseException | None = None  # the first one
        self.ending = False

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: Any) -> None:
        for one in self.begun.values():  # only where something unforeseen ends us
            one.process.terminate()
        for one in self.begun.values():
            one.process.join(PATIENCE)
            one.process.kill()
            one.process.join()
            one.stack.close()

    def number(self, work: str) -> int:
        """How many do this work."""
        return sum(one.work == work for one in self.begun.values())

    def begin(self, row: Row, work: str, beside: int) -> None:
        """In a process of its own, with the share of the cores that `beside` such processes have."""
        fresh = multiprocessing.get_context("spawn")  # a fork would share what CUDA cannot
        here, there = fresh.Pipe(duplex=False)
        threads = max(1, cores() // beside)
        process = fresh.Process(target=_work, args=(self.like, row, work, self.clock, threads, there), name=row.key)
        with _safe_path():
            process.start()
        there.close()
        stack, watcher = ExitStack(), Watcher()
        if work == "prepare":
            self.maker.say(f"{row.key}: {row.label}")
            watcher = stack.enter_context(self.maker.watch(row.key))
        self.begun[here] = Begun(row, work, process, stack, watcher)

    def hear(self) -> Iterator[tuple[Row, BaseException]]:
        """Wait a little for what they say: the rows that failed, and why."""
        for wire in wait(list(self.begun), LOOK):
            assert isinstance(wire, Connection)
            row, error = self.begun[wire].row, self._message(wire)
            if error is not None:
                yield row, error

    def pass_on(self, error: BaseException | None = None) -> None:
        """After a failure or a signal all others are asked to end, once."""
        self.failure = self.failure or error
        if (self.failure or self.noted.number) and not self.ending:
            self.ending = True
            for one in self.begun.values():
                with suppress(ProcessLookupError):
                    os.kill(one.process.pid, self.noted.number or signal.SIGTERM)

    def check(self) -> None:
        """Raise what went wrong."""
        if self.noted.number:
            raise Ended(self.noted.number)
        if self.failure:
            raise self.failure

    def _message(self, wire: Connection) -> BaseException | None:
        """One message of a process; why it failed, if it did."""
        one = self.begun[wire]
        try:
            kind, arguments = wire.recv()
        except EOFError:
            one.process.join()
            one.stack.close()
            wire.close()
            del self.begun[wire]
            status = one.process.exitcode
            if status >= 0 or (-status == signal.SIGTERM and self.ending):
                return None
            killed = f"its process was ended by {signal.Signals(-status).name}"
            return ChildProcessError(f"{one.row.key}: {killed}; where memory ran out, lower --at-once")
        if kind in TOLD:
            getattr(one.watcher, kind)(*arguments)
        elif kind == "maker":
            self.maker.say(*arguments)
        return arguments[0] if kind == "failed" else None


@contextmanager
def _safe_path() -> Iterator[None]:
    """Fresh interpreters import nothing from the folder one is in."""
    name, before = "PYTHONSAFEPATH", os.environ.get("PYTHONSAFEPATH")
    os.environ[name] = "1"
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


def prepare(maker: "Maker", like: Callable[..., "Maker"], rows: Sequence[Row], clock: Clock) -> None:
    """The texts of the rows, all at the same time; `like` makes a maker like ours in another process."""
    texts = {maker.scale.tasks[row.task].corpus: row for row in rows if not maker.has_text(row)}
    with noted_signals() as noted, Processes(maker, like, clock, noted) as processes:
        if texts:
            maker.say(f"preparing {', '.join(texts)}")
        for row in texts.values():
            processes.begin(row, "text", len(texts))
        while processes.begun:
            for _, error in processes.hear():
                processes.pass_on(error)
            processes.pass_on()
        processes.check()
    clock.check()


def ahead(
    maker: "Maker", like: Callable[..., "Maker"], rows: Sequence[Row], number: int, clock: Clock
) -> Iterator[Row]:
    """All that is not timed of the rows, `number` at a time, and each row when it is ready."""
    waiting, left = _apart(maker, rows), list(rows)
    with noted_signals() as noted, Processes(maker, like, clock, noted) as processes:
        for row in {maker.scale.tasks[each.task].corpus: each for each in waiting}.values():
            if not maker.has_counts(row):
                processes.begin(row, "count", number)
        while processes.begun or (waiting and not processes.ending and not clock.passed):
            while waiting and processes.number("prepare") < number and not processes.ending and not clock.passed:
                processes.begin(waiting.pop(0), "prepare", number)
            for row in filter(maker.ready, list(left)):
                left.remove(row)
                yield row
            for row, error in processes.hear():
                if isinstance(error, torch.OutOfMemoryError) and number > 1:
                    number -= 1
                    waiting.insert(0, row)
                    maker.say(f"{row.key}: out of memory, it goes on when fewer than {number + 1} run")
                else:
                    processes.pass_on(error)
            processes.pass_on()
        yield from filter(maker.ready, left)
        processes.check()
    if missing := [row.key for row in rows if not maker.ready(row)]:
        if clock.passed:
            raise TimeUp("the time is up: what was begun is saved, and goes on next time")
        raise ChildProcessError(f"{missing[0]}: its process was asked to end; the same command goes on with it")


def _apart(maker: "Maker", rows: Sequence[Row]) -> list[Row]:
    """One row of each training that has something left to do, the one that asks for most; counting comes first."""
    most: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: not row.rescores):
        if not maker.ready(row):
            most.setdefault(run_name(row, maker.scale) if row.trained else row.task, row)
    return sorted(most.values(), key=lambda row: (row.trained, rows.index(row)))


def _work(like: Callable[..., "Maker"], row: Row, work: str, clock: Clock, threads: int, wire: Connection) -> None:
    """What a process does; who started it hears what happens, and how it ends."""
    os.setsid()  # a terminal's signals reach who started us, and are passed on once
    torch.set_num_threads(threads)

    def telling(kind: str) -> Callable[..., None]:
        return lambda *arguments: wire.send((kind, arguments))

    @contextmanager
    def watch(_: str) -> Iterator[Watcher]:
        yield Watcher(**{kind: telling(kind) for kind in TOLD})

    def end(number: int, _: Any) -> None:
        raise Interrupted(number, 0)  # what was half made is tidied up

    signal.signal(signal.SIGTERM, end)
    try:
        getattr(like(watch=watch, say=telling("maker")), work)(row, clock)
    except (TimeUp, Interrupted):
        return
    except BaseException as error:
        wire.send(("failed", (_sendable(error),)))


def _sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
