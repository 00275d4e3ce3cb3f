"""Files from recognisers, plain, .gz or .bz2, read within bounds: no file can fill the memory or go on for ever.

A packed file is known by its first bytes. Every fault is a ValueError: one sentence that names the file.
"""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from selfnorm.vocabulary import BOM

BLOCK = 1 << 17
SIP = 1 << 13
PIECE = 1 << 18  # bytes that are cut into lines at a time
LONGEST = 1 << 20  # bytes of a line
MOST = 1 << 38  # bytes of an unpacked file: an archive holds many lattices, and a reader stops at each one's arcs
FREE = 1 << 21  # bytes that any file may unpack to, few enough to be read as empty lines; beyond them, RATIO holds
RATIO = 200  # unpacked bytes for each packed one; lattices and lists reach 10 to 30, a bomb 1000

_MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh"}


def content(path: Path, *, most: int = MOST) -> io.BufferedReader:
    """The unpacked bytes; reading on from a damaged file, or over the limit, raises its sentence.

    `tell` counts unpacked bytes. Before `read(n)` with an n from the file itself, check n: it is asked for at once.
    """
    return io.BufferedReader(_Bounded(path, most), BLOCK)


@dataclass(frozen=True)
class Lines:
    """Some whole lines of a file; the last one of a file may lack its end."""

    path: Path
    number: int  # of the first line, from 1
    offset: int  # of the first byte
    text: bytes

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Each line with its number, without its end (LF or CRLF); each is valid UTF-8."""
        offset, plain = self.offset, self.text.isascii()
        for number, line in enumerate(self.text.removesuffix(b"\n").split(b"\n"), start=self.number):
            if not plain:
                _check_encoding(self.path, number, offset, line)
                offset += len(line) + 1
            if number == 1:
                line = line.removeprefix(BOM)
            yield number, line.rstrip(b"\r")

    @property
    def count(self) -> int:
        return self.text.count(b"\n") + (not self.text.endswith(b"\n"))

    def parts(self, ends: Iterable[int]) -> Iterator["Lines"]:
        """Cut behind these places, which are ends of lines."""
        number, begin = self.number, 0
        for end in ends:
            part = Lines(self.path, number, self.offset + begin, self.text[begin:end])
            yield part
            number, begin = number + part.text.count(b"\n"), end

    def halves(self) -> Iterator["Lines"]:
        """Of two lines or more."""
        middle = self.text.rfind(b"\n", 0, len(self.text) // 2) + 1 or self.text.index(b"\n") + 1
        return self.parts((middle, len(self.text)))


def blocks(path: Path, *, longest: int = LONGEST, most: int = MOST) -> Iterator[Lines]:
    """The lines of a file, many at a time."""
    number, offset, rest = 1, 0, b""
    with content(path, most=most) as file:
        while data := file.read(min(PIECE, longest)):  # so that no line but the first can be longer
            text = rest + data
            end = text.rfind(b"\n") + 1
            if (text.find(b"\n") if end else len(text)) > longest:
                raise ValueError(
                    f"{path}:{number}: the line is longer than {longest:,} bytes; its line ends are lost, "
                    "or this is no text file"
                )
            rest = text[end:]
            if end:
                yield Lines(path, number, offset, text[:end])
                number, offset = number + text.count(b"\n", 0, end), offset + end
    if rest:
        yield Lines(path, number, offset, rest)


def lines(path: Path, *, longest: int = LONGEST, most: int = MOST) -> Iterator[tuple[int, bytes]]:
    """Each line with its number, from 1, without its end (LF or CRLF); each is valid UTF-8."""
    return chain.from_iterable(blocks(path, longest=longest, most=most))


def _check_encoding(path: Path, number: int, offset: int, line: bytes) -> None:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}:{number}: byte {offset + error.start} (0x{line[error.start]:02x}) is not UTF-8; "
            "convert the file to UTF-8"
        ) from None


class _Sips(io.FileIO):
    """A file read in small pieces, so that an unpacker's reading ahead does not hide how far it has unpacked."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(SIP if size is None or size < 0 else min(size, SIP)) or b""


class _Bounded(io.RawIOBase):
    """What a BufferedReader reads from: unpacks, counts, and gives every fault its sentence."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__()
        self.path, self.most, self.unpacked = path, most, 0
        self.file: _Sips | None = None
        try:
            self.file = _Sips(path)
            first = self.file.read(3)
            self.file.seek(0)
        except OSError as error:
            self.close()
            raise ValueError(f"{path}: cannot be read ({error.strerror}); give a file that can") from error
        self.packing = next((suffix for suffix, magic in _MAGIC.items() if first.startswith(magic)), None)
        if self.packing is None and path.suffix in _MAGIC and first:
            self.close()
            raise ValueError(f"{path}: is no {path.suffix} file, whatever its name says; pack it again or rename it")
        self.stream: Any = self.file
        if self.packing:
            self.stream = gzip.GzipFile(fileobj=self.file) if self.packing == ".gz" else bz2.BZ2File(self.file)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.unpacked

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        count = self._unpack(memoryview(buffer))
        self.unpacked += count
        if self.unpacked > self.most:
            raise ValueError(f"{self.path}: unpacks to more than {self.most:,} bytes; split it into smaller files")
        if self.packing and self.unpacked > max(FREE, RATIO * self._read()):
            raise ValueError(
                f"{self.path}: unpacks to over {RATIO} times its size ({self.unpacked:,} bytes so far); "
                "no lattice does, do not trust this file"
            )
        return count

    def _read(self) -> int:
        """Bytes of the packed file read so far."""
        return self.file.tell() if self.file else 0

    def _unpack(self, buffer: memoryview) -> int:
        try:
            return self.stream.readinto(buffer)
        except EOFError as error:
            raise ValueError(
                f"{self.path}: the packed file ends at byte {self._read():,}, too early; it is cut off, copy it again"
            ) from error
        except zlib.error as error:
            raise self._damaged(error) from error
        except OSError as error:
            if error.errno is not None:  # read() knows no name
                raise OSError(error.errno, error.strerror, str(self.path)) from error
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> ValueError:
        return ValueError(
            f"{self.path}: the packed file is damaged before byte {self._read():,} ({error}); pack or copy it again"
        )

    def close(self) -> None:
        if not self.closed and self.file:
            self.file.close()
        super().close()
