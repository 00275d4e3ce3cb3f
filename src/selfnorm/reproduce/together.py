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
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

import torch

from selfnorm.reproduce.clock import Clock, TimeUp
from selfnorm.reproduce.plan import Row, run_name
from selfnorm.training import Interrupted, Watcher
from selfnorm.training.signals import noted_signals

if TYPE_CHECKING:
    from selfnorm.reproduce.make import Maker

LOOK = 0.5  # seconds between two looks for signals
TOLD = ("begin", "metrics", "evaluation", "say")  # what a watcher hears


class Ended(Interrupted):
    """A signal asked for the end of all of them."""

    def __init__(self, number: int) -> None:
        Exception.__init__(self, f"stopped by {signal.Signals(number).name}, all trainings saved")
        self.number = number


@dataclass(frozen=True)
class Begun:
    row: Row
    work: str  # of the maker: "prepare" or "count"
    process: Any
    stack: ExitStack  # of its watcher
    watcher: Watcher


def prepare(maker: "Maker", like: Callable[..., "Maker"], rows: Sequence[Row], clock: Clock) -> None:
    """The texts of the rows, all at the same time; `like` makes a maker like ours in another process."""
    texts = {maker.scale.tasks[row.task].corpus: row for row in rows}
    if len(texts) < 2:
        for row in texts.values():
            maker.text(row, clock)
        return
    maker.say(f"preparing {', '.join(texts)}")
    with ProcessPoolExecutor(len(texts), multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(_prepare, like, row, clock) for row in texts.values()]:
            done.result()


def _prepare(like: Callable[..., "Maker"], row: Row, clock: Clock) -> None:
    like().text(row, clock)


def ahead(
    maker: "Maker", like: Callable[..., "Maker"], rows: Sequence[Row], number: int, clock: Clock
) -> Iterator[Row]:
    """All that is not timed of the rows, `number` at a time; `like` makes a maker like ours in another process.

    Each row comes out when it is ready.
    """
    waiting, begun, left = _apart(maker, rows), dict[Connection, Begun](), list(rows)
    failure: BaseException | None = None
    passed_on = False
    try:
        with noted_signals() as noted:
            for row in {maker.scale.tasks[each.task].corpus: each for each in waiting}.values():
                wire, one = _begin(maker, like, row, "count", number, clock)
                begun[wire] = one
            while begun or (waiting and not failure and not noted.number and not clock.passed):
                while waiting and _trained(begun) < number and not passed_on and not clock.passed:
                    wire, one = _begin(maker, like, waiting.pop(0), "prepare", number, clock)
                    begun[wire] = one
                for row in filter(maker.ready, list(left)):
                    left.remove(row)
                    yield row
                for wire in list(begun) if wait(list(begun), LOOK) else ():
                    if not wire.poll():
                        continue
                    row, error = begun[wire].row, _hear(wire, begun, maker)
                    if isinstance(error, torch.OutOfMemoryError) and number > 1:
                        number -= 1
                        waiting.insert(0, row)
                        maker.say(f"{row.key}: out of memory, it goes on when fewer than {number + 1} run")
                    else:
                        failure = error or failure
                if (failure or noted.number) and not passed_on:
                    passed_on = True
                    for one in begun.values():
                        with suppress(ProcessLookupError):
                            os.kill(one.process.pid, noted.number or signal.SIGTERM)
    finally:
        for one in begun.values():  # only where something unforeseen ends us
            one.process.kill()
            one.stack.close()
    yield from filter(maker.ready, left)
    if noted.number:
        raise Ended(noted.number)
    if failure:
        raise failure
    if clock.passed and not all(map(maker.ready, rows)):
        raise TimeUp("the time is up: what was begun is saved, and goes on next time")


def _apart(maker: "Maker", rows: Sequence[Row]) -> list[Row]:
    """One row of each training that has something left to do, the one that asks for most; counting comes first."""
    most: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: not row.rescores):
        if not maker.ready(row):
            most.setdefault(run_name(row, maker.scale) if row.trained else row.task, row)
    return sorted(most.values(), key=lambda row: (row.trained, rows.index(row)))


def _trained(begun: dict[Connection, Begun]) -> int:
    return sum(one.work == "prepare" for one in begun.values())


def _begin(
    maker: "Maker", like: Callable[..., "Maker"], row: Row, work: str, number: int, clock: Clock
) -> tuple[Connection, Begun]:
    fresh = multiprocessing.get_context("spawn")  # a fork would share what CUDA cannot
    here, there = fresh.Pipe(duplex=False)
    threads = max(1, (os.cpu_count() or 1) // number)
    process = fresh.Process(target=_work, args=(like, row, work, clock, threads, there), name=row.key)
    process.start()
    there.close()
    stack, watcher = ExitStack(), Watcher()
    if work == "prepare":
        maker.say(f"{row.key}: {row.label}")
        watcher = stack.enter_context(maker.watch(row.key))
    return here, Begun(row, work, process, stack, watcher)


def _hear(wire: Connection, begun: dict[Connection, Begun], maker: "Maker") -> BaseException | None:
    """One message of a process; why it failed, if it did."""
    one = begun[wire]
    try:
        kind, arguments = wire.recv()
    except EOFError:
        one.process.join()
        one.stack.close()
        wire.close()
        del begun[wire]
        status = one.process.exitcode
        if status >= 0 or -status == signal.SIGTERM:
            return None
        killed = f"its process was ended by {signal.Signals(-status).name}"
        return ChildProcessError(f"{one.row.key}: {killed}; where memory ran out, lower --at-once")
    if kind in TOLD:
        getattr(one.watcher, kind)(*arguments)
    elif kind == "maker":
        maker.say(*arguments)
    return arguments[0] if kind == "failed" else None


def _work(like: Callable[..., "Maker"], row: Row, work: str, clock: Clock, threads: int, wire: Connection) -> None:
    """What a process does; who started it hears what happens, and how it ends."""
    os.setsid()  # a terminal's signals reach who started us, and are passed on once
    torch.set_num_threads(threads)

    def telling(kind: str) -> Callable[..., None]:
        return lambda *arguments: wire.send((kind, arguments))

    @contextmanager
    def watch(_: str) -> Iterator[Watcher]:
        yield Watcher(**{kind: telling(kind) for kind in TOLD})

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
