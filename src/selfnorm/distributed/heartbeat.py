"""A file that a process writes again and again while it lives: frozen, it does so no more, and who watches sees it."""

import atexit
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

BEATS = "SELFNORM_BEATS"  # the folder for these files, given by who watches
TOLD = "told"  # the file that is there when the user was told why a process ended
EVERY = 2.0  # seconds

ends: list[Callable[[], None]] = []  # of the beats of this process


def beat() -> None:
    """From now until the end of this process, if somebody watches."""
    folder = os.environ.get(BEATS)
    if folder is None:
        return
    path = Path(folder) / os.environ.get("RANK", "0")

    def work() -> None:
        number = 0
        while not ended.wait(EVERY if number else 0):
            number += 1
            with suppress(OSError):
                path.write_text(f"{os.getpid()} {number}")

    def end() -> None:
        ended.set()
        thread.join()
        path.unlink(missing_ok=True)

    ended = threading.Event()
    thread = threading.Thread(target=work, name="heartbeat", daemon=True)
    thread.start()
    ends.append(end)
    atexit.register(rest)


def rest() -> None:
    """Who has ended in good order is watched no more."""
    while ends:
        ends.pop()()


def told() -> None:
    """The user knows why we end."""
    if BEATS in os.environ:
        with suppress(OSError):
            (Path(os.environ[BEATS]) / TOLD).touch()


def beats(folder: Path) -> dict[int, tuple[int, int]]:
    """The process and the number of beats of each rank that lives."""
    found = {}
    for path in folder.iterdir():
        with suppress(OSError, ValueError):
            process, number = map(int, path.read_text().split())
            found[int(path.name)] = process, number
    return found
