"""Rows of measurements: one per measurement, appended, each with its origin."""

import csv
import datetime
import fcntl
import subprocess
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def machine() -> str:
    """The processor, in words, and how many cores of it."""
    import torch  # only here: a process that is measured must not hold it

    from selfnorm.bench.machine import name_of

    return name_of(torch.device("cpu"))


def commit() -> str:
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS)
    return done.stdout.strip() or "unknown"


def append(name: str, rows: list[dict[str, Any]]) -> Path:
    """Add rows to results/NAME.csv, beside others that do; all rows of a file have the same columns."""
    path = RESULTS / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    rows = [{**row, "commit": commit(), "date": datetime.date.today().isoformat()} for row in rows]
    with path.open("a", newline="") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = csv.DictWriter(file, list(rows[0]))
        if not path.stat().st_size:
            writer.writeheader()
        writer.writerows(rows)
    return path
