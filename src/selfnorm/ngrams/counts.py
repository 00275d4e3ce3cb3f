"""Text -> its distinct n-grams of every order, with their counts.

N-grams are kept in *suffix order*: by the last word, then the word before it, and so on. Three things follow from it:
an n-gram's suffix w_2 .. w_n is a step back in the same tree, so the rows that share one lie together; how many words
stand before a suffix, which Kneser-Ney counts, is the number of its rows; and the rows of different last words have
nothing to do with each other, so the work falls into pieces of any size, for several threads and a bounded memory.

A row is known by its rank, and (rank of the suffix, word before it) is the key of the next order: two numbers where
the n-gram has n. The rank of every position of the text leads from an n-gram to its history, the n-gram that ends one
position earlier. Ids are lmplz's, in order of appearance.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from selfnorm.ngrams.scratch import Array, Scratch

UNKNOWN, START, END, SPECIALS = 0, 1, 2, 3  # ids; the words of the text follow

PIECE = 1 << 20  # positions sorted at a time: what fits the processor's cache and, with their keys, 64 bits
LINE_END = 0  # the number that ends a sentence; others number the words, from 1

Places = npt.NDArray[np.int64]
Seen = Callable[[int, int], None]  # done, of how many


@dataclass(frozen=True)
class Text:
    """`<s> word ... word </s> <s> word ...` as ids."""

    ids: Array
    counts: Places  # of each id
    sentences: int

    @property
    def size(self) -> int:
        """C, with `<unk>`, `<s>` and `</s>`."""
        return len(self.counts)

    @property
    def words(self) -> int:
        return int(self.counts.sum()) - 2 * self.sentences


@dataclass(frozen=True)
class Grams:
    """The distinct n-grams of one order, in suffix order."""

    at: Array  # a position of the text where it ends
    count: Array  # how often it occurs
    adjusted: Array  # how many words stand before it; its count if it is of the highest order or begins with <s>
    suffix: Array  # the row of w_2 .. w_n

    def __len__(self) -> int:
        return len(self.count)


@dataclass(frozen=True)
class Counts:
    text: Text
    grams: list[Grams]  # of orders 1 .. N
    ranks: list[Array]  # of orders 1 .. N - 1: the row of the n-gram that ends at a position

    @property
    def order(self) -> int:
        return len(self.grams)

    def history(self, order: int, rows: slice) -> Array:
        """The rows of w_1 .. w_n-1 for some n-grams."""
        return self.ranks[order - 2].take(self.grams[order - 1].at[rows] - 1)


@dataclass(frozen=True)
class _Level:
    """The n-grams of one order that end in a span, ranks counted from the span's first."""

    ends: Array  # their positions, in suffix order
    rank: Array  # the row of each position
    at: Array
    count: Array
    adjusted: Array
    suffix: Array


_NONE = np.zeros(2, np.int64)
_SPECIALS = _Level(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE)  # <unk> and <s>: unigrams that are never counted


def read(numbers: Iterable[Array], scratch: Scratch) -> Text:
    """The ids of a text given as numbers, piece by piece."""
    column = scratch.column(np.uint32)
    column.append(np.array([START], np.uint32))
    counts = np.zeros(SPECIALS, np.int64)
    for piece in numbers:
        ids = with_marks(piece)
        column.append(ids)
        size = max(len(counts), int(ids.max(initial=0)) + 1)
        counts = np.pad(counts, (0, size - len(counts))) + np.bincount(ids, minlength=size)
    counts[START] = counts[END]  # a <s> follows each </s>; the one that opens the text stands for the last
    return Text(column.finish(), counts, int(counts[END]))


def with_marks(numbers: Array) -> Array:
    """Numbers to ids; a line end becomes `</s> <s>`."""
    ids = np.repeat(numbers + np.uint32(SPECIALS - 1), 1 + (numbers == LINE_END))
    marks = np.flatnonzero(ids == LINE_END + SPECIALS - 1)
    ids[marks[0::2]], ids[marks[1::2]] = END, START
    return ids


def count(text: Text, order: int, scratch: Scratch, seen: Seen, threads: int = 1, piece: int = PIECE) -> Counts:
    """All n-grams with n <= `order`."""
    place = np.int32 if len(text.ids) < 2**31 else np.int64
    ends = by_word(text, scratch, place, piece)
    ranks = [text.ids, *(scratch.array(len(text.ids), place) for _ in range(2, order))]
    tables = [_Table(scratch, place) for _ in range(order)]
    tables[0].add(_SPECIALS, 0)
    done = 0

    def tree(span: slice) -> list[_Level]:
        return levels(text.ids, ends[span], order, text.size)

    with ThreadPoolExecutor(threads) as pool:
        for found in in_order(pool, tree, spans(text.counts, piece), 2 * threads):
            first = [0, *(table.rows for table in tables)]
            for n, level in enumerate(found, start=1):
                tables[n - 1].add(level, first[n - 1])
                if 1 < n < order:
                    ranks[n - 1][level.ends] = level.rank + first[n]
            done += len(found[0].ends)
            seen(done, len(ends))
    return Counts(text, [table.finish() for table in tables], ranks[: order - 1])


class _Table:
    """`Grams` that grow."""

    def __init__(self, scratch: Scratch, place: npt.DTypeLike) -> None:
        self.columns = [scratch.column(place) for _ in range(4)]
        self.rows = 0

    def add(self, level: _Level, first_suffix: int) -> None:
        for column, values in zip(
            self.columns, (level.at, level.count, level.adjusted, level.suffix + first_suffix), strict=True
        ):
            column.append(values)
        self.rows += len(level.count)

    def finish(self) -> Grams:
        return Grams(*(column.finish() for column in self.columns))


Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    pool: ThreadPoolExecutor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Iterator[Result]:
    """`pool.map` that stays only a few items ahead of who takes the results."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def by_word(text: Text, scratch: Scratch, place: npt.DTypeLike, piece: int) -> Array:
    """The positions of all words but `<s>`, sorted by id: a counting sort, in pieces."""
    counts = text.counts.copy()
    counts[START] = 0
    ends = scratch.array(int(counts.sum()), place)
    free = np.concatenate(([0], np.cumsum(counts)[:-1]))  # the next free place of each id
    for begin in range(0, len(text.ids), piece):
        ids = text.ids[begin : begin + piece].astype(np.uint64)
        keys = np.sort((ids << np.uint64(32)) | np.arange(len(ids), dtype=np.uint64))
        keys = keys[(keys >> np.uint64(32)) != START]
        if not len(keys):
            continue
        ids = (keys >> np.uint64(32)).astype(np.int64)
        first = _firsts(ids)
        nth = np.arange(len(ids)) - np.repeat(first, _lengths(first, len(ids)))
        ends[free[ids] + nth] = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64) + begin
        free[ids[first]] += _lengths(first, len(ids))
    return ends


def spans(counts: Places, piece: int) -> Iterator[slice]:
    """Stretches of the positions by word: whole words, up to `piece` positions, or one word that has more."""
    stop = np.cumsum(np.delete(counts, START))
    begin = 0
    while begin < stop[-1]:
        last = max(np.searchsorted(stop, begin + piece, "right") - 1, np.searchsorted(stop, begin, "right"))
        yield slice(begin, int(stop[last]))
        begin = int(stop[last])


def levels(ids: Array, ends: Array, order: int, size: int) -> list[_Level]:
    """The tree of the n-grams that end at the positions `ends`, which are sorted by word; each n = 1 .. `order`."""
    found: list[_Level] = []
    rank = np.zeros(len(ends), np.int64)
    for n in range(1, order + 1):
        ends, key = _sorted(ends, rank * size + ids.take(ends - (n - 1)))
        first = _firsts(key)
        lengths = _lengths(first, len(ends))
        rank = np.repeat(np.arange(len(first)), lengths)
        suffix = (key[first] // size).astype(np.int64)
        if n > 1:
            found[-1] = _adjusted(found[-1], suffix)
        found.append(_Level(ends, rank, ends[first], lengths, lengths, suffix))
        more = ids.take(ends - (n - 1)) != START  # nothing stands before <s>
        ends, rank = ends[more], rank[more]
    return found


def _adjusted(level: _Level, suffix: Array) -> _Level:
    """Counts to numbers of different words before; n-grams that begin with `<s>` keep their counts."""
    before = np.bincount(suffix, minlength=len(level.count))
    return _Level(level.ends, level.rank, level.at, level.count, np.where(before, before, level.count), level.suffix)


def _sorted(ends: Array, key: Places) -> tuple[Array, Array]:
    """`ends` and `key` by rising key. NumPy sorts numbers far faster than it sorts places, so both go in one number."""
    bits = len(ends).bit_length()
    if int(key.max(initial=0)).bit_length() + bits <= 64:
        packed = (key.astype(np.uint64) << np.uint64(bits)) | np.arange(len(ends), dtype=np.uint64)
        packed.sort()
        places = (packed & np.uint64((1 << bits) - 1)).astype(np.int64)
        return ends.take(places), packed >> np.uint64(bits)
    places = np.argsort(key, kind="stable")
    return ends.take(places), key.take(places)


def _firsts(sorted_keys: Array) -> Places:
    """Where each distinct key begins."""
    new = np.ones(len(sorted_keys), bool)
    np.not_equal(sorted_keys[1:], sorted_keys[:-1], out=new[1:])
    return np.flatnonzero(new)


def _lengths(first: Places, size: int) -> Places:
    return np.diff(first, append=size)
