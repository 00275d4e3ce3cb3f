"""A block of ARPA lines, bytes to columns to numbers and ids, for all lines at once."""

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from selfnorm.fields import Fields, Floats
from selfnorm.ngrams.index import Ids, Logs, find, hashed, sort

LN10 = float(np.log(10))
ZERO = np.float32(-99 * LN10)  # the log of no probability at all, as SRILM writes it: with it paths can be compared

_MASKS = np.array([(1 << 8 * bytes) - 1 for bytes in range(9)], np.uint64)  # the first 0 to 8 bytes of a word


class BadRow(Exception):  # noqa: N818  it carries a place, not yet a sentence
    """Something in an n-gram of a section, counted from 0."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what


class Columns(Fields):
    """The fields of a block: log probabilities in column 0, then the words, then back-offs, which a row may lack."""

    def __init__(self, block: bytes, order: int, highest: bool, first: int) -> None:
        super().__init__(block)
        self.order, self.highest = order, highest
        self.first = first  # the row of the first line among all of its section
        if len(bad := np.flatnonzero((self.counts < order + 1) | (self.counts > order + 2))):
            raise BadRow(first + int(bad[0]), _misshapen(int(self.counts[bad[0]]), order))

    def __len__(self) -> int:
        return len(self.counts)

    def log_probs(self) -> Logs:
        values = self._numbers(self.firsts)
        if len(bad := np.flatnonzero(~(values <= 0))):
            shown = self.shown(int(bad[0]), 0)
            self.bad(int(bad[0]), f"the log probability {shown} is above 0 or no number; restore the file")
        return _natural(values)

    def backoffs(self) -> Logs:
        """0 where there is none; those of the highest order are never asked for, whatever they are."""
        values = np.zeros(len(self))
        there = np.flatnonzero((self.counts == self.order + 2) & (not self.highest))
        values[there] = self._numbers(self.firsts[there] + self.order + 1, there)
        natural = _natural(values) + np.float32(0)  # -0 becomes 0: the index gives -0 a meaning
        if len(bad := np.flatnonzero(~(natural < np.inf))):
            shown = self.shown(int(bad[0]), self.order + 1)
            self.bad(int(bad[0]), f"the back-off {shown} is no finite number; restore the file")
        return natural

    def hashes(self, column: int) -> Ids:
        """64 bits of each word, alike for two by chance in 1 of 10**7 files with a million words: `WordTable` tells."""
        begins, lengths = self.at(column)
        eights: npt.NDArray[np.uint64] = np.ndarray((len(self.bytes) - 7,), "<u8", self.bytes, strides=(1,))
        hashes = lengths.copy()
        left = np.arange(len(begins))
        for place in range(0, int(lengths.max(initial=0)), 8):
            left = left[lengths[left] > place] if place else left
            part = eights[begins[left] + place] & _MASKS[np.minimum(lengths[left] - place, 8)]
            hashes[left] = hashed(hashes[left] ^ part.view(np.int64)).view(np.int64)
        return hashes

    def words(self, column: int) -> list[bytes]:
        return self.texts(*self.at(column))

    def shown(self, row: int, column: int) -> str:
        return shown(self.field(int(self.firsts[row]) + column))

    def field(self, number: int) -> bytes:
        return self.text(int(self.begins[number]), int(self.lengths[number]))

    def bad(self, row: int, what: str) -> NoReturn:
        raise BadRow(self.first + row, what)

    def _numbers(self, fields: Ids, rows: Ids | None = None) -> Floats:
        begins, lengths = self.begins[fields], self.lengths[fields]
        values, others = self.numbers(begins, lengths)
        for other in others.tolist():
            text = self.field(int(fields[other]))
            try:
                values[other] = float(text)
            except ValueError:
                self.bad(int(other if rows is None else rows[other]), f"{shown(text)} is no number; restore the file")
        return values


class WordTable:
    """Words -> ids, by their hashes."""

    def __init__(self, hashes: Ids) -> None:
        self._ids, self._first = sort(hashes)
        self._hashes = hashes[self._ids]
        alike = np.flatnonzero(self._hashes[1:] == self._hashes[:-1])
        self.twins: tuple[int, ...] = tuple(self._ids[alike[0] : alike[0] + 2].tolist()) if len(alike) else ()

    def encode(self, hashes: Ids) -> Ids:
        """-1 where there is no such word."""
        ranks = find(self._hashes, self._first, hashes)
        return np.where(ranks < 0, -1, self._ids[ranks])


def _misshapen(count: int, order: int) -> str:
    return (
        f"{count} columns where a {order}-gram has {order + 1} or {order + 2}; the file was cut or edited, restore it"
    )


def _natural(values: Floats) -> Logs:
    """From base 10; -inf, which some tools write for a probability of 0, becomes -99."""
    with np.errstate(over="ignore"):
        logs = (values * LN10).astype(np.float32)
    logs[logs == -np.inf] = ZERO
    return logs


def shown(text: bytes) -> str:
    return repr(text[:40].decode(errors="replace"))
