"""Anything that gives words scores, one at a time: start() / advance()."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from selfnorm.scorers.interpolated import Interpolated
from selfnorm.scorers.neural import Neural
from selfnorm.scorers.ngram import NGram

State = Any  # of one history; each scorer has its own kind


class Scorer(Protocol):
    def start(self) -> State: ...
    def advance(self, states: Sequence[State], words: Sequence[str]) -> tuple[Tensor, list[State]]: ...


SCORERS: dict[str, Callable[..., Scorer]] = {
    "neural": Neural.load,
    "ngram": NGram.load,
    "interpolated": Interpolated,
}


def load(path: str | Path, device: str | None = None) -> Neural | NGram:
    """The model of a run, or an n-gram model from an ARPA file: `score`, `log_prob`, `start` and `advance`."""
    path = Path(path)
    if not path.exists():
        raise ValueError(f"{path}: there is no such run or file; give what `selfnorm train` wrote, or an ARPA file")
    return Neural.load(path, device) if path.is_dir() else NGram.load(path)


__all__ = ["SCORERS", "Interpolated", "NGram", "Neural", "Scorer", "load"]
