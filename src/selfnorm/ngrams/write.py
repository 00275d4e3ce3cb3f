"""The ARPA file, a whole stretch of n-grams at a time.

A line is `probability<TAB>word word ...<TAB>back-off`. All lines of a stretch are laid out in one array of bytes: their
lengths give the places of all fields, and each field is stored, for all lines at once, eight bytes by eight. A store
may run past the end of its field, by seven bytes at most; hence the order: words from left to right, each mending
what the one before spoiled, then the numbers, which fill their eleven bytes exactly. So each line begins with the
line end of the one before it.
"""

import bz2
import gzip
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from selfnorm.files import atomic
from selfnorm.ngrams.counts import Seen, in_order
from selfnorm.ngrams.kneser_ney import CHUNK, Floats, Model, chunks
from selfnorm.ngrams.scratch import Array

ZERO = -99.0  # log10 of zero, by the custom of ARPA files
NUMBER = 11  # bytes of a number with the separator before it

Words = npt.NDArray[np.uint64]
Pack = Callable[[bytes | memoryview], bytes]

PACKINGS: dict[str, Pack] = {  # gzip at its usual level; no time goes into it
    ".gz": partial(gzip.compress, compresslevel=6, mtime=0),
    ".bz2": bz2.compress,
}


class Spelling:
    """Words as bytes, each after a blank, in steps of eight bytes."""

    def __init__(self, words: list[bytes]) -> None:
        self.lengths = np.fromiter((len(word) + 1 for word in words), np.int64, len(words))
        steps = (self.lengths + 7) // 8
        self.first = np.concatenate(([0], np.cumsum(steps)[:-1]))
        padded = b"".join((b" " + word).ljust(8 * step, b"\0") for word, step in zip(words, steps.tolist()))
        self.steps: Words = np.frombuffer(padded, "<u8")
        self.begin = self.steps[self.first]
        self.after_tab = self.begin ^ np.uint64(ord(" ") ^ ord("\t"))


def lines(spelling: Spelling, words: list[Array], probability: Floats, back_off: Floats | None) -> memoryview:
    """The lines of n-grams given by the ids of their words and two logs; each begins with its line end."""
    if not len(probability):
        return memoryview(b"")
    lengths = [spelling.lengths.take(ids) for ids in words]
    stop = np.cumsum(sum(lengths) + (NUMBER if back_off is None else 2 * NUMBER))
    out = np.empty(int(stop[-1]) + 8, np.uint8)
    eight = np.ndarray((len(out) - 7,), "<u8", out, strides=(1,))
    four = np.ndarray((len(out) - 3,), "<u4", out, strides=(1,))
    begin = np.concatenate(([0], stop[:-1]))
    place = begin + NUMBER
    for n, (ids, length) in enumerate(zip(words, lengths)):
        eight[place] = (spelling.begin if n else spelling.after_tab).take(ids)
        _store_rest(eight, place, ids, length, spelling)
        place = place + length
    if back_off is not None:
        _store_numbers(eight, four, place, back_off, ord("\t"))
    _store_numbers(eight, four, begin, probability, ord("\n"))
    return out.data[:-8]


def _store_rest(eight: Words, place: Array, ids: Array, length: Array, spelling: Spelling) -> None:
    """What of the words lies behind their first eight bytes."""
    step = 0
    long = np.flatnonzero(length > 8)
    while len(long):
        step += 1
        eight[place[long] + 8 * step] = spelling.steps[spelling.first[ids[long]] + step]
        long = long[length[long] > 8 * (step + 1)]


def _heads(separator: int) -> Words:
    """Separator, sign, and four digits with their point, of -0.000 .. -99.99: seven bytes."""
    below_ten = [b"%c-%05.3f" % (separator, i / 1000) for i in range(10_000)]
    tens = [b"%c-%05.2f" % (separator, i / 100) for i in range(1000, 10_000)]
    return np.frombuffer(b"".join(head + b"\0" for head in below_ten + tens), "<u8")


_HEADS = {separator: _heads(separator) for separator in b"\n\t"}
_TAILS = np.frombuffer(b"".join(b"%04d" % i for i in range(10_000)), "<u4")
_ZERO = {separator: np.frombuffer(b"%c0.0000\0" % separator, "<u8")[0] for separator in b"\n\t"}


def _store_numbers(eight: Words, four: npt.NDArray[np.uint32], place: Array, values: Floats, separator: int) -> None:
    """Numbers from 0 down to -99.99: the separator and ten bytes, with seven decimals, or six from -10 on."""
    digits = np.rint(values * -1e7).astype(np.int64)
    tens = np.flatnonzero(digits >= 10**8)
    digits[tens] = 10**8 + np.rint(values[tens] * -1e6).astype(np.int64) - 10**7
    head, tail = np.divmod(digits, 10_000)
    heads = _HEADS[separator].take(head)
    heads[digits == 0] = _ZERO[separator]  # without a sign
    eight[place] = heads
    four[place + 7] = _TAILS.take(tail)


def log10(values: Floats) -> Floats:
    """At most 0, as rounding may leave a probability just above 1."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log10(values), ZERO, 0.0)


def section(model: Model, order: int, spelling: Spelling, rows: slice) -> memoryview:
    """The lines of some n-grams, without those that were pruned."""
    ids, grams = model.counts.text.ids, model.counts.grams[order - 1]
    probability = log10(model.probability(order, rows))
    back_off = log10(model.gammas[order - 1][rows]) if order < model.counts.order else None
    if order == 1:
        words = [np.arange(rows.start, rows.stop)]
    else:
        words = [ids.take(grams.at[rows] - n) for n in range(order - 1, -1, -1)]
    if (kept := model.kept[order - 1]) is not None:
        stay = np.flatnonzero(kept[rows])
        words, probability = [each[stay] for each in words], probability[stay]
        back_off = None if back_off is None else back_off[stay]
    return lines(spelling, words, probability, back_off)


def pieces(model: Model, words: list[bytes], seen: Seen, threads: int) -> Iterator[bytes | memoryview]:
    """The file, piece by piece."""
    spelling = Spelling(words)
    orders = range(1, model.counts.order + 1)
    yield b"\\data\\\n" + b"".join(b"ngram %d=%d\n" % (n, model.size(n)) for n in orders)
    done, todo = 0, sum(map(len, model.counts.grams))
    with ThreadPoolExecutor(threads) as pool:
        for n in orders:
            yield b"\n\\%d-grams:" % n
            size = len(model.counts.grams[n - 1])
            for piece in in_order(pool, partial(section, model, n, spelling), chunks(size), threads):
                yield piece
                done += min(CHUNK, size)
                seen(min(done, todo), todo)
            yield b"\n"
    yield b"\n\\end\\\n"


def write(model: Model, words: list[bytes], path: Path, seen: Seen, threads: int = 1) -> None:
    """Write `path` whole or not at all, packed if it ends in .gz or .bz2."""
    with atomic(path) as file:
        if pack := PACKINGS.get(path.suffix):
            _pack(pieces(model, words, seen, threads), pack, file, threads)
        else:
            for piece in pieces(model, words, seen, threads):
                file.write(piece)


def _pack(parts: Iterator[bytes | memoryview], pack: Pack, file: IO[bytes], threads: int) -> None:
    """Packed files one after the other are a packed file; so several can be made at a time."""
    with ThreadPoolExecutor(threads) as pool:
        for packed in in_order(pool, pack, parts, threads):
            file.write(packed)
