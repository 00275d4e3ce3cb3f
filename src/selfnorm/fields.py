"""The fields of many lines at once, bytes between white space, and the numbers in them: none of them is an object."""

import numpy as np
import numpy.typing as npt

WIDE = 16  # bytes of a number that are read at once
DIGITS = 15  # that a double holds exactly

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_POWERS = 10.0 ** np.arange(DIGITS + 1)


class Fields:
    """Where each field begins, and its length; how many each line has that is not blank, and the first of these."""

    def __init__(self, block: bytes) -> None:
        self.bytes = block + b"\n" + bytes(WIDE)
        data = np.frombuffer(self.bytes, np.uint8)[: len(block) + 1]
        space = (data - np.uint8(9) <= 4) | (data == 32)  # as bytes.split() sees it
        edges = np.flatnonzero(np.diff(space, prepend=True))  # where a field begins, where it ends, ...
        self.begins, self.lengths = edges[::2], np.diff(edges)[::2]
        counts = np.diff(np.searchsorted(self.begins, np.flatnonzero(data == 10)), prepend=0)
        self.counts = counts[counts > 0]
        self.firsts = np.cumsum(self.counts) - self.counts

    def at(self, place: int, rows: Ids | slice = slice(None)) -> tuple[Ids, Ids]:
        """Where the field at this place of each of the lines begins, and its length."""
        fields = self.firsts[rows] + place
        return self.begins[fields], self.lengths[fields]

    def text(self, begin: int, length: int) -> bytes:
        return self.bytes[begin : begin + length]

    def texts(self, begins: Ids, lengths: Ids) -> list[bytes]:
        return [self.bytes[begin:end] for begin, end in zip(begins.tolist(), (begins + lengths).tolist())]

    def windows(self, wide: int) -> npt.NDArray[np.uint8]:
        """The next bytes, up to 16 of them, from each place on."""
        return np.ndarray((len(self.bytes) - wide, wide), "u1", self.bytes, strides=(1, 1))

    def numbers(self, begins: Ids, lengths: Ids) -> tuple[Floats, Ids]:
        """Digits to doubles, exactly as float() does it; and which texts are spelled otherwise, and are left to it."""
        wide = min(WIDE, int(lengths.max(initial=1)))
        chars = np.ascontiguousarray(self.windows(wide)[begins].T)  # [wide, numbers]
        inside = np.arange(wide)[:, None] < lengths
        digits = chars - np.uint8(48)
        is_digit = (digits < 10) & inside
        dots = (chars == 46) & inside
        minus = chars[0] == 45
        number, plain = np.zeros(len(begins)), is_digit | dots
        plain[0] |= minus
        factor, digit = is_digit * np.uint8(9) + np.uint8(1), is_digit * digits
        for place in range(wide):
            number *= factor[place]
            number += digit[place]
        places = np.arange(1, wide + 1, dtype=np.uint8)[:, None]
        dot = (dots * places).sum(0, dtype=np.int64)  # where it stands; 0: nowhere
        decimals = np.where(dot > 0, lengths - dot, 0)
        many = is_digit.sum(0)
        values = np.where(minus, -number, number) / _POWERS[np.clip(decimals, 0, DIGITS)]
        regular = (plain | ~inside).all(0) & (dots.sum(0) <= 1) & (many > 0) & (many <= DIGITS) & (lengths <= wide)
        return values, np.flatnonzero(~regular)

    def wholes(self, begins: Ids, lengths: Ids) -> Ids:
        """Digits to whole numbers; -1 where there is anything else, or more of them than a double holds."""
        wide = min(WIDE, int(lengths.max(initial=1)))
        digits = np.ascontiguousarray(self.windows(wide)[begins].T) - np.uint8(48)
        number, wrong = np.zeros(len(begins), np.int64), (lengths < 1) | (lengths > DIGITS)
        for place in range(wide):
            inside = place < lengths
            number = np.where(inside, 10 * number + digits[place], number)
            wrong |= inside & (digits[place] > 9)
        number[wrong] = -1
        return number
