"""Blocks of ARPA lines -> columns of fields -> natural logs."""

import numpy as np
import numpy.typing as npt

LN10 = float(np.log(10))

Logs = npt.NDArray[np.float32]


class BadRow(Exception):  # noqa: N818  it carries a place, not yet a sentence
    """Something in an n-gram of a section, counted from 0."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what


def columns(block: bytes, order: int, highest: bool, first: int) -> list[list[bytes]]:
    """The fields of a block by column: log probability, words, and back-offs (none at all, or one for each row)."""
    data = np.frombuffer(block if block.endswith(b"\n") else block + b"\n", np.uint8)
    space = (data - np.uint8(9) <= 4) | (data == 32)  # as bytes.split() sees it
    begins = ~space
    begins[1:] &= space[:-1]
    ends = np.flatnonzero(data == 10)
    counts = np.diff(np.searchsorted(np.flatnonzero(begins), ends), prepend=0)  # fields of each line
    counts = counts[counts > 0]
    least, most = order + 1, order + 1 + (not highest)
    if len(bad := np.flatnonzero((counts < least) | (counts > most))):
        raise BadRow(first + int(bad[0]), _misshapen(int(counts[bad[0]]), order, highest))
    fields = block.split()
    if len(fields) == most * len(counts):
        parts = [fields[column::most] for column in range(most)]
        return parts if not highest else [*parts, []]
    if len(fields) == least * len(counts):
        return [*(fields[column::least] for column in range(least)), []]
    grid, starts = np.array(fields, object), np.cumsum(counts) - counts
    last = np.full(len(counts), b"0", object)
    last[counts == most] = grid[starts[counts == most] + least]
    return [*(grid[starts + column].tolist() for column in range(least)), last.tolist()]


def _misshapen(count: int, order: int, highest: bool) -> str:
    if highest and count == order + 2:
        return f"a back-off after a {order}-gram, the highest order; remove it, or restore the file"
    due = f"{order + 1}" if highest else f"{order + 1} or {order + 2}"
    return f"{count} columns where a {order}-gram has {due}; the file was cut or edited, restore it"


def log_probs(fields: list[bytes], first: int) -> Logs:
    values = _floats(fields, first)
    if len(bad := np.flatnonzero(~(values <= 0))):
        what = f"the log probability {shown(fields[bad[0]])} is above 0 or no number"
        raise BadRow(first + int(bad[0]), f"{what}; restore the file")
    return _natural(values)


def backoffs(fields: list[bytes], rows: int, first: int) -> Logs:
    if not fields:
        return np.zeros(rows, np.float32)
    values = _natural(_floats(fields, first)) + np.float32(0)  # -0 becomes 0: the index gives -0 a meaning
    if len(bad := np.flatnonzero(~(values < np.inf))):
        raise BadRow(first + int(bad[0]), f"the back-off {shown(fields[bad[0]])} is no finite number; restore the file")
    return values


def _natural(values: npt.NDArray[np.float64]) -> Logs:
    with np.errstate(over="ignore"):
        return (values * LN10).astype(np.float32)


def _floats(fields: list[bytes], first: int) -> npt.NDArray[np.float64]:
    try:
        return np.fromiter(map(float, fields), np.float64, len(fields))
    except ValueError:
        row = next(row for row, field in enumerate(fields) if not _is_number(field))
        raise BadRow(first + row, f"{shown(fields[row])} is no number; restore the file") from None


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def shown(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))
