"""Signals that end a training in good order."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(Exception):  # noqa: N818  a wish, not an error
    """A signal asked for the end: the run is saved."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} at step {step}, all saved")
        self.number = number


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """SIGTERM, SIGINT and SIGUSR1 are noted; the step under way is finished first. A second one ends at once."""
    caught: list[int] = []
    kinds = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

    def note(number: int, frame: Any) -> None:
        if caught:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        caught.append(number)

    before = {kind: signal.signal(kind, note) for kind in kinds}
    try:
        yield caught
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
