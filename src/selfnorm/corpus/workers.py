"""Numbering in several processes: a thread here for each of them, which hands it blocks and takes its answers.

Workers are fresh interpreters that speak JSON lines over their pipes: they work under any caller (no `__main__` guard,
no fork of a process that runs threads or CUDA), and end by themselves when the pipe does, however this process ended.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from selfnorm.corpus.segments import Placed, Segments
from selfnorm.corpus.text import BadText, Block

TYPES = 500_000  # words in the table of a worker; about 500 bytes each while they are put away
MOST = 32  # workers that one reader can feed


class Task(NamedTuple):
    text: int
    block: Block


class Worker(Protocol):
    def add(self, text: int, fresh: bool, data: bytes) -> Placed: ...
    def finish(self) -> None: ...
    def close(self) -> None: ...


Seen = Callable[[Placed], None]


def number(
    tasks: Iterable[Task], seen: Seen, scratch: Path, processes: int, keep_empty: bool, types: int
) -> list[Placed]:
    """Number all blocks; the answers are in the order of the tasks, `seen` is told each as it comes."""
    options = [
        {"scratch": str(scratch), "worker": str(name), "types": types, "keep_empty": keep_empty}
        for name in range(processes)
    ]
    workers: list[Worker] = [Segments(**options[0])] if processes == 1 else [Child(each) for each in options]  # type: ignore[arg-type]
    shared = _Shared(tasks)
    placed: dict[int, Placed] = {}

    def drive(worker: Worker) -> None:
        for index, (text, block) in shared:
            try:
                placed[index] = worker.add(text, block.fresh, block.data)
            except BadText as error:
                raise BadBlock(text, BadText(block.offset + error.offset, error.what)) from None
            with shared.lock:
                seen(placed[index])
        worker.finish()

    try:
        with ThreadPoolExecutor(processes) as pool:
            try:
                for done in as_completed([pool.submit(drive, worker) for worker in workers]):
                    done.result()
            except BaseException:  # also Ctrl-C: the other threads stop after their block
                shared.stopped = True
                raise
    finally:
        for worker in workers:
            worker.close()
    return [placed[index] for index in range(len(placed))]


class BadBlock(Exception):  # noqa: N818  it carries a place, not yet a sentence
    def __init__(self, text: int, error: BadText) -> None:
        super().__init__(text, error)
        self.text, self.error = text, error


class _Shared:
    """Numbered tasks for several threads."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.tasks = iter(enumerate(tasks))
        self.lock = threading.Lock()
        self.stopped = False

    def __iter__(self) -> Iterator[tuple[int, Task]]:
        while True:
            with self.lock:
                if self.stopped or (task := next(self.tasks, None)) is None:
                    return
            yield task


class Child:
    """A `Segments` in a process of its own."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from selfnorm.corpus.workers import serve; serve()", json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C is for us alone
        )

    def add(self, text: int, fresh: bool, data: bytes) -> Placed:
        return Placed(**self._ask({"text": text, "fresh": fresh, "bytes": len(data)}, data))

    def finish(self) -> None:
        self._ask({"finish": True})

    def close(self) -> None:
        self.process.kill()
        with contextlib.suppress(BrokenPipeError), self.process:  # closes the pipes and waits
            pass

    def _ask(self, request: dict[str, Any], data: bytes = b"") -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n" + data)
            self.process.stdin.flush()
            reply = self.process.stdout.readline()
        except BrokenPipeError:
            reply = b""
        if not reply:
            raise ChildProcessError(
                f"a worker process died (exit status {self.process.wait()}), mostly for want of memory; "
                "free some, or use fewer processes"
            )
        return _opened(json.loads(reply))


def _opened(reply: dict[str, Any]) -> dict[str, Any]:
    match reply:
        case {"bad": [offset, what]}:
            raise BadText(offset, what)
        case {"errno": code, "strerror": why}:
            raise OSError(code, why)
    return reply


def serve() -> None:
    """The life of a worker: requests on standard input, one answer each on standard output."""
    segments = Segments(**json.loads(sys.argv[1]))
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        try:
            sink.write(json.dumps(_answer(segments, json.loads(line), source)).encode() + b"\n")
            sink.flush()
        except BrokenPipeError:  # who asked is gone
            os._exit(1)


def _answer(segments: Segments, request: dict[str, Any], source: IO[bytes]) -> dict[str, Any]:
    try:
        if "finish" in request:
            segments.finish()
            return {}
        return asdict(segments.add(request["text"], request["fresh"], source.read(request["bytes"])))
    except BadText as error:
        return {"bad": [error.offset, error.what]}
    except OSError as error:
        return {"errno": error.errno, "strerror": error.strerror}
