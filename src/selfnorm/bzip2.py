"""bzip2, unpacked by several threads: a block hangs on none before it, and begins with a mark of 48 bits, at any bit.

What lies between two marks becomes a file of its own, with one block, which `bz2` unpacks. All that is odd (a damaged
or a cut file, a mark by chance) is left to `bz2` alone, from the beginning: it says what is wrong.
"""

import bz2
import io
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, pairwise
from typing import IO, Any

MARK, END = 0x314159265359, 0x177245385090  # of a block and of the last one's end, each followed by a sum of 32 bits
WIDTH = 48  # bits of both
SUM = 32
HEADER = b"BZh9"  # 9: blocks of any size
CHUNK = 1 << 22  # bytes that are looked through at a time
LONGEST = 8 << 21  # bits, more than a block can have


class OddError(Exception):
    """Not blocks one after the other, each whole."""


class Reader(io.RawIOBase):
    """The unpacked bytes of `file`, which with `keep` stays open."""

    def __init__(self, file: IO[bytes], threads: int, keep: bool = True) -> None:
        self.file, self.keep, self.ahead = file, keep, 2 * threads
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="bzip2")
        self.pieces = _pieces(file)
        self.waiting: deque[Future[bytes]] = deque()
        self.piece = memoryview(b"")
        self.given = 0  # bytes of all pieces
        self.process, self.alone = os.getpid(), False  # threads stay behind in a fork
        self.plain: bz2.BZ2File | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.piece:
            self.piece = memoryview(self._next())
            if not self.piece:
                return 0
        into = memoryview(buffer).cast("B")
        number = min(len(into), len(self.piece))
        into[:number], self.piece = self.piece[:number], self.piece[number:]
        return number

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)
        if not self.keep:
            self.file.close()
        super().close()

    def _next(self) -> bytes:
        """What the next block holds; nothing at the end."""
        if not self.alone and os.getpid() == self.process:
            try:
                for piece in islice(self.pieces, self.ahead - len(self.waiting)):
                    self.waiting.append(self.pool.submit(_unpacked, piece))
                if not self.waiting:
                    return b""
                found = self.waiting[0].result()
                self.given += len(found)
                self.waiting.popleft()
                return found
            except BaseException as fault:
                self.alone = True
                if not isinstance(fault, OddError | OSError):
                    raise
        if self.plain is None:
            self.plain = self._past(self.given)
        return self.plain.read1()

    def _past(self, given: int) -> bz2.BZ2File:
        """The file by `bz2` alone, after so many bytes."""
        if os.getpid() != self.process:  # the place in the file is the parent's, too
            self.file, self.keep = os.fdopen(os.open(self.file.name, os.O_RDONLY), "rb"), False
        self.file.seek(0)
        plain = bz2.BZ2File(self.file)
        while again := plain.read(min(given, CHUNK)):
            given -= len(again)
        return plain


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """A file of its own for each block."""
    data, first, total = file.read(len(HEADER)), 8 * len(HEADER), 0
    if data[:3] != HEADER[:3]:
        raise OddError
    while more := file.read(CHUNK):
        data += more
        marks = _marks(data)
        if marks[:1] != [first] or 8 * len(data) - marks[-1] > LONGEST:
            raise OddError
        for begin, after in pairwise(marks):
            ends = _restarts(data, after)
            end = _end(data, after // 8 - len(HEADER)) if ends else after
            total = _added(total, data, begin)
            if ends:
                total = _checked(total, data, end)
            yield _alone(data, begin, end)
        data, first = data[marks[-1] // 8 :], marks[-1] % 8
    end = _end(data, len(data))
    _checked(_added(total, data, first), data, end)
    yield _alone(data, first, end)


def _added(total: int, data: bytes, mark: int) -> int:
    """The sum of a file after one block more."""
    return (total << 1 | total >> (SUM - 1)) & ((1 << SUM) - 1) ^ _bits(data, mark + WIDTH, SUM)


def _checked(total: int, data: bytes, end: int) -> int:
    """The sum of the next file, where that of this one is right."""
    if _bits(data, end + WIDTH, SUM) != total:
        raise OddError
    return 0


def _marks(data: bytes) -> list[int]:
    """The bits at which blocks begin."""
    found = []
    for shift in range(8):
        inner = (MARK << (8 - shift)).to_bytes(7)[1:6]  # the bytes that are the mark's alone
        place = data.find(inner)
        while place >= 0:
            bit = 8 * (place - 1) + shift
            if bit >= 0 and _bits(data, bit, WIDTH) == MARK:
                found.append(bit)
            place = data.find(inner, place + 1)
    return sorted(found)


def _restarts(data: bytes, mark: int) -> bool:
    """Whether another file begins there: some tools write one after the other."""
    place = mark // 8 - len(HEADER)
    return mark % 8 == 0 and place >= 0 and data[place : place + 3] == HEADER[:3]


def _end(data: bytes, place: int) -> int:
    """The bit after the last block of a file that ends before this byte."""
    for bit in range(8 * place - WIDTH - SUM - 7, 8 * place - WIDTH - SUM + 1):
        if bit >= 0 and _bits(data, bit, WIDTH) == END:
            return bit
    raise OddError


def _alone(data: bytes, begin: int, end: int) -> bytes:
    """The bits of one block as a whole file; its own sum is that of the file."""
    number = end - begin
    if number < WIDTH + SUM:
        raise OddError
    block = _bits(data, begin, number)
    total = (block >> (number - WIDTH - SUM)) & ((1 << SUM) - 1)
    block = (block << WIDTH | END) << SUM | total
    number += WIDTH + SUM
    return HEADER + (block << -number % 8).to_bytes((number + 7) // 8)


def _bits(data: bytes, begin: int, number: int) -> int:
    """So many bits from this one on; fewer at the end of the data."""
    last = begin + number
    piece = data[begin // 8 : (last + 7) // 8]
    return (int.from_bytes(piece) >> (-last % 8)) & ((1 << number) - 1)


def _unpacked(piece: bytes) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    found = unpacker.decompress(piece)
    if not unpacker.eof or not found:
        raise OddError
    return found
