"""metrics.jsonl: one line for each report and each evaluation."""

import json
from pathlib import Path
from typing import Any

LOG = "metrics.jsonl"


class Log:
    """The open log, and TensorBoard's events when asked."""

    def __init__(self, run: Path, tensorboard: bool) -> None:
        self.file = (run / LOG).open("a")
        self.board = _board(run) if tensorboard else None

    def write(self, line: dict[str, Any]) -> None:
        self.file.write(json.dumps(line) + "\n")
        if self.board is not None:
            for name, value in {**line, **line.get("evaluation", {})}.items():
                if isinstance(value, int | float) and name != "step":
                    kind = "valid" if "evaluation" in line else "train"
                    self.board.add_scalar(f"{kind}/{name}", value, line["step"])

    def flush(self) -> None:
        self.file.flush()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def _board(run: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "training.tensorboard needs the package tensorboard; say: pip install 'selfnorm[tensorboard]'"
        ) from None
    return SummaryWriter(str(run / "events"))
