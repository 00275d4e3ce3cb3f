"""The time that was given."""

import signal
import time
from dataclasses import replace

from selfnorm.training import Interrupted, Metrics, Watcher


class TimeUp(Exception):  # noqa: N818  a wish, not an error
    """The time given is over; everything made so far is kept."""


class Clock:
    """Says when the time given is over; None gives all the time there is."""

    def __init__(self, minutes: float | None = None) -> None:
        self.until = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def passed(self) -> bool:
        return self.until is not None and time.monotonic() >= self.until

    def check(self) -> None:
        if self.passed:
            raise TimeUp("the time is up")

    def bounding(self, watcher: Watcher) -> Watcher:
        """Ends a training in good order, as a signal does: where it reports, and with all saved."""

        def heard(metrics: Metrics) -> None:
            watcher.metrics(metrics)
            if self.passed:
                raise Interrupted(signal.SIGALRM, metrics.step)

        return replace(watcher, metrics=heard)
