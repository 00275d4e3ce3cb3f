"""Signals that end a training in good order."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KINDS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Interrupted(Exception):  # noqa: N818  a wish, not an error
    """A signal asked for the end: the run is saved."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} at step {step}, all saved")
        self.number = number


class Noted:
    """The first signal that came, if one did."""

    number: int | None = None


@contextmanager
def noted_signals(patience: float = 0.0) -> Iterator[Noted]:
    """SIGTERM, SIGINT and SIGUSR1 are noted; the step under way is finished first. A second one ends at once.

    Within `patience` seconds it does not: one of several processes is told by everybody who wants all of them to end.
    """
    noted = Noted()
    first = 0.0

    def note(number: int, frame: Any) -> None:
        nonlocal first
        if noted.number is None:
            noted.number, first = number, time.monotonic()
        elif time.monotonic() - first >= patience:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    if threading.current_thread() is not threading.main_thread():  # there, signals cannot be caught
        yield noted
        return
    before = {kind: signal.signal(kind, note) for kind in KINDS}
    try:
        yield noted
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
