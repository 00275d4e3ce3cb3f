"""metrics.jsonl: one line for each report and each evaluation."""

import json
import os
from pathlib import Path
from typing import Any

from selfnorm import run as runs
from selfnorm.files import atomic, finite, naming

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


def cut(path: Path, step: int, pending: bool) -> None:
    """Back to a checkpoint: no line of a later step, and no evaluation of this one if it is still to come."""
    runs.cut_log(path, step)
    if pending and path.exists():
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line for line in lines if not ("evaluation" in (read := json.loads(line)) and read["step"] == step)]
        if len(kept) < len(lines):
            with atomic(path) as file:
                file.writelines(kept)


def _board(run: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "training.tensorboard needs the package tensorboard; say: pip install 'selfnorm[tensorboard]'"
        ) from None
    return SummaryWriter(str(run / "events"), purge_step=step + 1)
