"""Text files, plain or packed: UTF-8, one sentence per line, words parted by white space.

White space is ASCII's (blank, tab, CR, vertical tab, form feed), so CRLF files read like others. Unicode's further
spaces (U+00A0, U+3000, ...) are parts of words: what a space is must not depend on the language of a text, and n-gram
tools split the same way. A byte order mark at the start of a file is skipped.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from selfnorm.files import check_file, open_packed, unpacking
from selfnorm.vocabulary import BOM

BLOCK = 1 << 19  # bytes read at a time; smaller costs more calls, larger falls out of the processor's cache
LINE = 1 << 24  # bytes of a sentence to be scored: its words are all in memory
LONGEST = 1 << 20  # bytes of a word; a text without white space would otherwise fill the memory

_RESERVED = re.compile(rb"(?<!\S)</?s>(?!\S)")
_SPACES = (b" ", b"\t", b"\r", b"\v", b"\f")
_WORD = re.compile(r"[^ \t\n\r\v\f]+")


class BadText(Exception):  # noqa: N818  it carries a place, not yet a sentence
    """Something at byte `offset` of a block that no text may have."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(offset, what)
        self.offset, self.what = offset, what


@dataclass(frozen=True)
class Block:
    """A stretch of a text that cuts no word; where it can, it ends with a line."""

    data: bytes
    fresh: bool  # no word of its first line came before it
    offset: int  # where in the (unpacked) text it starts
    read: int  # bytes of the (packed) file read so far


def check_text(path: Path) -> None:
    check_file(path, "give a text, plain, .gz or .bz2")


def split(sentence: str) -> list[str]:
    """The words of a sentence, as those of a line of text."""
    return _WORD.findall(sentence)


def blocks(path: Path, size: int = BLOCK, begin: int = 0, end: int | None = None) -> Iterator[Block]:
    """The whole text, or that from one line's start to another's; a last line without its end gets one."""
    with path.open("rb") as raw, open_packed(path, raw) as file, unpacking(path):
        if begin:
            file.seek(begin)
        rest = b"" if begin else file.read(len(BOM) if end is None else min(len(BOM), end))
        rest = b" " * len(BOM) if rest == BOM else rest  # blanks keep the offsets right
        offset, fresh, whole = begin, True, True
        while data := file.read(size if end is None else max(0, min(size, end - offset - len(rest)))):
            data = rest + data
            cut = _cut(data)
            rest = data[cut:]
            if len(rest) > LONGEST and not cut:
                raise bad_text(path, BadText(offset, f"starts a word of over {LONGEST} bytes; is this a text?"))
            if cut:
                yield Block(data[:cut], fresh, offset, raw.tell())
                whole = data[cut - 1] == ord("\n")
                fresh = whole or (fresh and data[:cut].isspace())
                offset += cut
        if rest and rest[-1] != ord("\n"):
            rest, whole = rest + b"\n", True
        if rest or not whole:
            yield Block(rest or b"\n", fresh, offset, raw.tell())


def cuts(path: Path, size: int) -> list[tuple[int, int | None]]:
    """A text in pieces of about `size` bytes for `blocks`, each from a line's start to another's; packed, in one."""
    total = path.stat().st_size
    if path.suffix in (".gz", ".bz2") or total <= size:
        return [(0, None)]
    starts = [0]
    with path.open("rb") as file:
        for place in range(size, total, size):
            if place > starts[-1]:
                starts.append(_line_start(file, place, total))
    bounds = [start for start in dict.fromkeys(starts) if start < total]
    return list(zip(bounds, [*bounds[1:], None]))


def _line_start(file: IO[bytes], place: int, total: int) -> int:
    """The first start of a line from this place on, or the end of the file."""
    file.seek(place - 1)
    while data := file.read(BLOCK):
        if (found := data.find(b"\n")) >= 0:
            return file.tell() - len(data) + found + 1
    return total


def _cut(data: bytes) -> int:
    """Behind the last line end; in a line longer than the block, behind the last white space."""
    return data.rfind(b"\n") + 1 or max(map(data.rfind, _SPACES)) + 1


def check(data: bytes) -> None:
    """Refuse what is no text, and the words that only we may write."""
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            value = data[error.start]
            raise BadText(error.start, f"(0x{value:02x}) is not UTF-8; convert the text to UTF-8") from None
    if b"\0" in data:
        raise BadText(data.index(b"\0"), "is 0; if the text is UTF-16, convert it to UTF-8")
    if b"s>" in data and (match := _RESERVED.search(data)):
        raise BadText(
            match.start(), f"starts the word {match[0].decode()!r}, which marks sentences; remove it, lines do that"
        )


def bad_text(path: Path, error: BadText) -> ValueError:
    """The sentence for a fault at a byte of a text. Lines are counted only now: reading on costs, and it is rare."""
    line, left = 1, error.offset
    with open_packed(path) as file:
        while left and (data := file.read(min(left, BLOCK))):
            line += data.count(b"\n")
            left -= len(data)
    return ValueError(f"{path}:{line}: byte {error.offset} {error.what}")


def read_sentences(path: Path, keep_empty: bool = False) -> Iterator[list[str]]:
    """The words of each line, by the rules of `prepare`; blank lines are skipped unless `keep_empty`."""
    offset = 0
    with open_packed(path) as file, unpacking(path):
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                raise bad_text(path, BadText(offset, f"starts a line of over {LINE} bytes; give one sentence per line"))
            try:
                check(line)
            except BadText as error:
                raise bad_text(path, BadText(offset + error.offset, error.what)) from None
            words = (line.removeprefix(BOM) if offset == 0 else line).split()
            offset += len(line)
            if words or keep_empty:
                yield [word.decode() for word in words]
