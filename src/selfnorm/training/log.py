"""metrics.jsonl: one line for each report and each evaluation."""

import json
import os
from pathlib import Path
from typing import Any

from selfnorm.files import finite, naming, write_whole

LOG = "metrics.jsonl"


class Log:
    """The open log, and TensorBoard's events when asked; both go on after `step`."""

    def __init__(self, run: Path, step: int, tensorboard: bool) -> None:
        self.path = run / LOG
        with naming(self.path, self.path):
            self.file = self.path.open("a")
        self.board = _board(run, step) if tensorboard else None

    def write(self, line: dict[str, Any]) -> None:
        with naming(self.path, self.path):
            self.file.write(json.dumps(finite(line), allow_nan=False) + "\n")
            self.file.flush()  # who looks on sees it, and a killed process leaves it
        if self.board is not None:
            for name, value in {**line, **line.get("evaluation", {})}.items():
                if isinstance(value, int | float) and name != "step":
                    kind = "valid" if "evaluation" in line else "train"
                    self.board.add_scalar(f"{kind}/{name}", value, line["step"])

    def flush(self) -> None:
        """To the disk: a checkpoint must not be newer than the log."""
        with naming(self.path, self.path):
            os.fsync(self.file.fileno())

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        with naming(self.path, self.path):
            self.file.close()
        if self.board is not None:
            self.board.close()


class NoLog(Log):
    """Of a rank that is not the first."""

    def __init__(self) -> None: ...
    def write(self, line: dict[str, Any]) -> None: ...
    def flush(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def cut(path: Path, step: int, pending: bool = False) -> None:
    """Back to a checkpoint: no line of a later step or half a line, and no evaluation of this step if it is to come."""
    if not path.exists():
        return
    before = path.read_bytes()
    kept = b"".join(line + b"\n" for line in before.splitlines() if _stays(line, step, pending))
    if kept != before:
        write_whole(path, kept)


def _stays(line: bytes, step: int, pending: bool) -> bool:
    try:
        read = json.loads(line)
        here = float(read["step"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return False
    return here <= step and not (pending and here == step and "evaluation" in read)


def trained(path: Path) -> tuple[int, float]:
    """Words and seconds of the steps themselves, without evaluations; also of a run that ended long ago."""
    words, seconds = 0, 0.0
    for line in map(json.loads, path.read_text().splitlines()):
        if "words_per_second" in line:
            seconds += (line["words"] - words) / line["words_per_second"]
            words = line["words"]
    return words, seconds


def _board(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "training.tensorboard needs the package tensorboard; say: pip install 'selfnorm[tensorboard]'"
        ) from None
    return SummaryWriter(str(run / "events"), purge_step=step + 1)
