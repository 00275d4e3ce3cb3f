"""A block of ARPA lines, bytes to columns to numbers and ids, for all lines at once: no line or field is an object."""

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from selfnorm.ngrams.index import Ids, Logs, find, hashed, sort

LN10 = float(np.log(10))
ZERO = np.float32(-99 * LN10)  # the log of no probability at all, as SRILM writes it: with it paths can be compared
WIDE = 16  # bytes of a number that are read at once; longer ones go to float()
DIGITS = 15  # that a double holds exactly

Floats = npt.NDArray[np.float64]

_MASKS = np.array([(1 << 8 * bytes) - 1 for bytes in range(9)], np.uint64)  # the first 0 to 8 bytes of a word
_POWERS = 10.0 ** np.arange(DIGITS + 1)


class BadRow(Exception):  # noqa: N818  it carries a place, not yet a sentence
    """Something in an n-gram of a section, counted from 0."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(row, what)
        self.row, self.what = row, what


class Columns:
    """The fields of a block: log probabilities in column 0, then the words, then back-offs, which a row may lack."""

    def __init__(self, block: bytes, order: int, highest: bool, first: int) -> None:
        self.order = order
        self.first = first  # the row of the first line among all of its section
        self._bytes = block + b"\n" + bytes(WIDE)
        data = np.frombuffer(self._bytes, np.uint8)[: len(block) + 1]
        space = (data - np.uint8(9) <= 4) | (data == 32)  # as bytes.split() sees it
        edges = np.flatnonzero(np.diff(space, prepend=True))  # where a field begins, where it ends, ...
        self._begins, self._lengths = edges[::2], np.diff(edges)[::2]
        counts = np.diff(np.searchsorted(self._begins, np.flatnonzero(data == 10)), prepend=0)  # fields of each line
        self._counts = counts[counts > 0]
        self._rows = np.cumsum(self._counts) - self._counts
        self._highest = highest
        if len(bad := np.flatnonzero((self._counts < order + 1) | (self._counts > order + 2))):
            raise BadRow(first + int(bad[0]), _misshapen(int(self._counts[bad[0]]), order))

    def __len__(self) -> int:
        return len(self._counts)

    def log_probs(self) -> Logs:
        values = self._numbers(self._rows)
        if len(bad := np.flatnonzero(~(values <= 0))):
            shown = self.shown(int(bad[0]), 0)
            self.bad(int(bad[0]), f"the log probability {shown} is above 0 or no number; restore the file")
        return _natural(values)

    def backoffs(self) -> Logs:
        """0 where there is none; those of the highest order are never asked for, whatever they are."""
        values = np.zeros(len(self))
        there = np.flatnonzero((self._counts == self.order + 2) & (not self._highest))
        values[there] = self._numbers(self._rows[there] + self.order + 1, there)
        natural = _natural(values) + np.float32(0)  # -0 becomes 0: the index gives -0 a meaning
        if len(bad := np.flatnonzero(~(natural < np.inf))):
            shown = self.shown(int(bad[0]), self.order + 1)
            self.bad(int(bad[0]), f"the back-off {shown} is no finite number; restore the file")
        return natural

    def hashes(self, column: int) -> Ids:
        """64 bits of each word, alike for two by chance in 1 of 10**7 files with a million words: `WordTable` tells."""
        begins, lengths = self._begins[self._rows + column], self._lengths[self._rows + column]
        eights: npt.NDArray[np.uint64] = np.ndarray((len(self._bytes) - 7,), "<u8", self._bytes, strides=(1,))
        hashes = lengths.copy()
        left = np.arange(len(begins))
        for place in range(0, int(lengths.max(initial=0)), 8):
            left = left[lengths[left] > place] if place else left
            part = eights[begins[left] + place] & _MASKS[np.minimum(lengths[left] - place, 8)]
            hashes[left] = hashed(hashes[left] ^ part.view(np.int64)).view(np.int64)
        return hashes

    def words(self, column: int) -> list[bytes]:
        return [self.field(number) for number in (self._rows + column).tolist()]

    def shown(self, row: int, column: int) -> str:
        return shown(self.field(int(self._rows[row]) + column))

    def field(self, number: int) -> bytes:
        begin = int(self._begins[number])
        return self._bytes[begin : begin + int(self._lengths[number])]

    def bad(self, row: int, what: str) -> NoReturn:
        raise BadRow(self.first + row, what)

    def _numbers(self, fields: Ids, rows: Ids | None = None) -> Floats:
        """Digits to doubles, all fields at once, exactly as float() does it; to which all other spellings go."""
        begins, lengths = self._begins[fields], self._lengths[fields]
        wide = min(WIDE, int(lengths.max(initial=1)))
        windows: npt.NDArray[np.uint8] = np.ndarray((len(self._bytes) - wide, wide), "u1", self._bytes, strides=(1, 1))
        chars = np.ascontiguousarray(windows[begins].T)  # [wide, fields]
        inside = np.arange(wide)[:, None] < lengths
        digits = chars - np.uint8(48)
        is_digit = (digits < 10) & inside
        dots = (chars == 46) & inside
        minus = chars[0] == 45
        number, plain = np.zeros(len(fields)), is_digit | dots
        plain[0] |= minus
        factor, digit = is_digit * np.uint8(9) + np.uint8(1), is_digit * digits
        for place in range(wide):
            number *= factor[place]
            number += digit[place]
        decimals = (is_digit & np.logical_or.accumulate(dots)).sum(0)
        many = is_digit.sum(0)
        values = np.where(minus, -number, number) / _POWERS[np.minimum(decimals, DIGITS)]
        regular = (plain | ~inside).all(0) & (dots.sum(0) <= 1) & (many > 0) & (many <= DIGITS) & (lengths <= wide)
        for odd in np.flatnonzero(~regular).tolist():
            text = self.field(int(fields[odd]))
            try:
                values[odd] = float(text)
            except ValueError:
                self.bad(int(odd if rows is None else rows[odd]), f"{shown(text)} is no number; restore the file")
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
