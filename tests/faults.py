"""Faults for tests: a child killed at a chosen stage of a writer, a full disk, flipped bits and cut files."""

import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

Hook = Callable[[str], None]


def _start(action: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)  # the parent's threads do not live in the child
            action()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child


def in_child(action: Callable[[], None]) -> int:
    """Run `action` in a forked child; its exit status, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(_start(action), 0)[1])


@contextmanager
def beside(action: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """`action` in a child that is killed at the end of the block; whether it still runs."""
    child = _start(action)

    def runs() -> bool:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    try:
        yield runs
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def stages(write: Callable[[Hook], object]) -> list[str]:
    """The stages a writer passes through."""
    seen: list[str] = []
    write(seen.append)
    return seen


def kill_at(number: int, write: Callable[[Hook], object]) -> None:
    """Run a writer in a child and kill it -9 at its stage `number`."""
    left = number

    def hook(_stage: str) -> None:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    assert in_child(lambda: write(hook) and None) == -signal.SIGKILL


def kill_midway(processes: list[Any], done: Callable[[], int], goal: int, pause: float) -> int:
    """Kill them when so much is done, and a moment later; how many had not ended by themselves."""
    while done() < goal and any(process.is_alive() for process in processes):
        time.sleep(0.001)
    time.sleep(pause)
    for process in processes:
        process.kill()  # which knows whether it has ended
        process.join()
    return sum(process.exitcode == -signal.SIGKILL for process in processes)


def fail_at(number: int, code: int) -> Hook:
    """A hook that raises an error of the system, as write() does, at stage `number`."""
    left = number

    def hook(_stage: str) -> None:
        nonlocal left
        if left == 0:
            left -= 1  # once: cleaning up passes through the hook again
            raise OSError(code, os.strerror(code))
        left -= 1

    return hook


def error_with_small_files(limit: int, action: Callable[[], None], report: Path) -> str:
    """The error of `action` in a child that may write files of at most `limit` bytes."""

    def child() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            action()
        except OSError as error:
            report.write_text(f"{type(error).__name__} {error.errno}: {error}")

    assert in_child(child) == 0
    return report.read_text()


def flip_a_bit(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([content[place] ^ 1 << chance.randrange(8)]) + content[place + 1 :]


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def zero_a_page(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(0, len(content), 4096)
    end = min(start + 4096, len(content))
    return content[:start] + bytes(end - start) + content[end:]


@contextmanager
def damaged(path: Path, content: bytes) -> Iterator[None]:
    """The file with other content, and as it was afterwards."""
    whole = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(whole)


class Evil:
    """Unpickling this runs a command that leaves a file behind."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self):
        return os.system, (f"touch {self.sentinel}",)
