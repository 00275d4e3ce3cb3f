"""rows.jsonl: one line for each finished row, with a sum of its own; rows of several machines are joined by `cat`."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfnorm.files import finite, write_whole

ROWS, TABLE = "rows.jsonl", "rows.csv"
SUM = "sum"  # the last key of a line
BUSY = "rows are being made in it; wait, or choose another --to"
NEEDED = ("scale", "key", "item", "label")

Made = dict[str, Any]  # a finished row
Identity = tuple[str, str]


def identity(row: Mapping[str, Any]) -> Identity:
    return row["scale"], row["key"]


def read(folder: Path) -> tuple[list[Made], list[str]]:
    """The rows, of equals the last one, and a sentence for each line that is damaged."""
    path = folder / ROWS
    found: dict[Identity, Made] = {}
    damaged: list[str] = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
        row = _parsed(line)
        if row is None:
            damaged.append(f"{path}:{number}: the line is damaged; its row is made again")
        else:
            found.pop(identity(row), None)
            found[identity(row)] = row
    return list(found.values()), damaged


def append(folder: Path, row: Made) -> None:
    """Add a row, whole or not at all; rows.csv is made anew. Damaged lines go: somebody was told of them."""
    rows, _ = read(folder)
    rows = [each for each in rows if identity(each) != identity(row)] + [finite(row)]
    write_whole(folder / ROWS, b"".join(map(_line, rows)))
    write_whole(folder / TABLE, _table(rows).encode())


def _line(row: Made) -> bytes:
    text = json.dumps(row, allow_nan=False)
    return json.dumps({**row, SUM: _sum(text)}, allow_nan=False).encode() + b"\n"


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _parsed(line: bytes) -> Made | None:
    try:
        row = json.loads(line)
        told = row.pop(SUM)
        whole = told == _sum(json.dumps(row)) and all(isinstance(row[name], str) for name in NEEDED)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return row if whole else None


def _table(rows: Sequence[Made]) -> str:
    """One column for each number; those inside others are named by both."""
    flat = [dict(_flat(row)) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(fields: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{within}{name}.")
        elif isinstance(value, list):
            yield from _flat({str(number): each for number, each in enumerate(value)}, f"{within}{name}.")
        else:
            yield f"{within}{name}", value
