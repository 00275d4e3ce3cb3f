"""Anything that gives words scores, one at a time: start() / advance()."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from selfnorm.scorers.neural import Neural

State = Any  # of one history; each scorer has its own kind


class Scorer(Protocol):
    def start(self) -> State: ...
    def advance(self, states: Sequence[State], words: Sequence[str]) -> tuple[Tensor, list[State]]: ...


SCORERS: dict[str, Callable[..., Scorer]] = {"neural": Neural.load}


def load(path: str | Path, device: str | None = None) -> Neural:
    """The model of a run: `score`, `log_prob`, `start` and `advance`."""
    return Neural.load(Path(path), device)


__all__ = ["SCORERS", "Neural", "Scorer", "load"]
