"""Words to numbers, many at once.

`split()` and a dict make 4M words/s. Nearly all words have at most 16 bytes, that is two 64-bit keys, which NumPy reads
for a whole block; a table of slots, looked up by hash, knows the numbers of most of them: 13M words/s. What it does not
know is asked of the dict, which alone decides: whatever the table holds, the numbers are the same.
"""

from collections import defaultdict

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]  # [2, n]

LINE_END = b"\n"  # counts as a word, the first: number 0
KEYED = 16  # bytes of the longest word with keys

_SPACE, _WORD, _LINE = 0, 1, 2
_KIND = np.full(256, _WORD, np.uint8)
_KIND[list(b" \t\r\v\f")] = _SPACE
_KIND[ord("\n")] = _LINE

_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # a mask of so many bytes
_LENGTHS = np.arange(KEYED + 2)
_MASKS = (_BYTES[np.minimum(_LENGTHS, 8)], _BYTES[np.clip(_LENGTHS - 8, 0, 8)])  # by a word's length

_BITS = 20  # 2^20 slots, 4 MiB: more would not fit the processor's cache, fewer send more words to the dict
_MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd, without pattern (golden ratio; xxHash)


class Numbering:
    """Gives words numbers in order of appearance."""

    def __init__(self) -> None:
        self.known: defaultdict[bytes, int] = defaultdict()
        self.known.default_factory = self.known.__len__  # a new word gets the next number, without a Python call
        self.known[LINE_END]
        self.slots = np.zeros(1 << _BITS, np.uint32)  # hash -> number; an empty slot says 0, whose keys will not fit
        self.keys = np.zeros((2, 1 << 10), np.uint64)  # number -> keys of its word, 0 while unknown
        self.keys[0, 0] = ord("\n")

    def __len__(self) -> int:
        return len(self.known)

    @property
    def words(self) -> list[bytes]:
        """By number; the first is `LINE_END`."""
        return list(self.known)

    def number(self, data: bytes) -> Numbers:
        """The numbers of the words and line ends of a text."""
        begin, end = _places(data)
        length = np.minimum(end - begin, KEYED + 1)
        keys = _keys(data, begin, length)
        slot = ((keys[0] * _MIX[0]) ^ (keys[1] * _MIX[1])) * _MIX[0] >> np.uint64(64 - _BITS)
        numbers = self.slots[slot]
        unsure = np.flatnonzero(
            (self.keys[0, numbers] != keys[0]) | (self.keys[1, numbers] != keys[1]) | (length > KEYED)
        )
        words = [data[i:j] for i, j in zip(begin[unsure].tolist(), end[unsure].tolist())]
        found = np.fromiter(map(self.known.__getitem__, words), np.uint32, len(words))
        numbers[unsure] = found
        keyed = length[unsure] <= KEYED
        self._remember(found[keyed], slot[unsure[keyed]], keys[:, unsure[keyed]])
        return numbers

    def _remember(self, numbers: Numbers, slot: Keys, keys: Keys) -> None:
        if (missing := len(self.known) - self.keys.shape[1]) > 0:
            self.keys = np.pad(self.keys, ((0, 0), (0, missing + len(self.known))))
        self.keys[:, numbers] = keys
        empty = self.slots[slot] == 0  # who came first, stays: frequent words come early
        self.slots[slot[empty]] = numbers[empty]


def without_blank(numbers: Numbers, fresh: bool) -> Numbers:
    """Without the line ends right after a line end, or, in a `fresh` block, at first."""
    ends = numbers == 0
    return numbers[~(ends & np.concatenate(([fresh], ends[:-1])))]


def _places(data: bytes) -> tuple[Places, Places]:
    """Where words and line ends begin and end."""
    kind = _KIND[np.frombuffer(b" %b " % data, np.uint8)]
    word, line = kind == _WORD, kind == _LINE
    begin = np.flatnonzero(word[1:] & ~word[:-1] | line[1:])
    end = np.flatnonzero(word[:-1] & ~word[1:] | line[:-1])
    return begin, end


def _keys(data: bytes, begin: Places, length: Places) -> Keys:
    """The first 16 bytes of each word as two numbers; bytes behind its end are zero, and no text holds a zero."""
    padded = data + bytes(KEYED)
    at = np.ndarray((len(data) + 9,), "<u8", padded, strides=(1,))  # eight bytes from any place on
    return np.stack([at[begin] & _MASKS[0][length], at[begin + 8] & _MASKS[1][length]])
