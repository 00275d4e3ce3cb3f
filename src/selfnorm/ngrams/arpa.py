"""ARPA files, plain or packed, in large blocks: a file is split into columns, never into lines.

Base 10 ends here: what comes out are natural logs. Numbers may be parted by tabs or blanks, lines end with LF or CRLF,
back-offs may be missing (they are 0 then), -inf is -99, text before \\data\\ is skipped. A model of a closed vocabulary
has no `<unk>`: as in KenLM it is `<UNK>` then, else it gets the log10 probability -100. Whatever else is odd is refused
with its line.
"""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path
from typing import IO

import numpy as np

from selfnorm.files import open_packed
from selfnorm.ngrams.columns import BadRow, Columns, WordTable, shown
from selfnorm.ngrams.index import Ids, Logs
from selfnorm.vocabulary import BOM, END, START, UNKNOWN

BLOCK = 1 << 19  # bytes looked at at a time: the arrays of their fields stay in the processor's cache
NEVER = -100  # log10 of an unknown word's probability, where a model has none: KenLM's
LONGEST = 1 << 20  # bytes of a line
FOREWORD = 1 << 16  # bytes before \data\, where CMU's tools and the standard models of DARPA describe themselves


@dataclass(frozen=True)
class Rows:
    """Some n-grams of one section."""

    first: int  # the row of the first among all of its section
    words: Ids  # [rows, order]
    log_probs: Logs
    backoffs: Logs


class Arpa:
    """An open ARPA file: `counts` of its header at once, then `rows` of every order, one after the other."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._lines = _Lines(path, file)
        self.counts = self._header()
        self.words: list[bytes] = []  # the unigrams, in the file's order; once all are read, <s> goes to the end
        self.start = 0  # the row of <s>
        self._rows: dict[bytes, int] = {}
        self._hashes: list[Ids] = []

    @property
    def order(self) -> int:
        return len(self.counts)

    def rows(self, order: int) -> Iterator[Rows]:
        """The n-grams of the next section; once they are through, its count has been checked."""
        title, found = self._title(f"\\{order}-grams:"), 0
        try:
            for block in self._lines.blocks():
                columns = Columns(block, order, order == self.order, found)
                if found + len(columns) > self.counts[order - 1]:
                    raise BadRow(self.counts[order - 1], f"one {order}-gram more than the header declares; {_COUNTS}")
                words = self._add(columns) if order == 1 else self._encode(columns)
                yield Rows(found, words, columns.log_probs(), columns.backoffs())
                found += len(columns)
        except BadRow as error:
            raise self.error(order, error) from None
        if found < self.counts[order - 1]:
            raise ValueError(
                f"{self.path}:{title}: {found} {order}-grams follow where the header declares "
                f"{self.counts[order - 1]}; {_COUNTS}"
            )
        if order == 1:
            if not self._has_unknown():
                yield self._unknown(found)
            self._number_words(title)

    def end(self) -> None:
        """Nothing but `\\end\\` may be left."""
        self._title("\\end\\")
        for block in self._lines.blocks():
            if not block.isspace():
                raise ValueError(f"{self.path}:{self._lines.line}: text after \\end\\; remove it, or restore the file")
        if text := self._lines.next():
            raise ValueError(f"{self.path}:{self._lines.line}: {shown(text)} after \\end\\; remove it")

    def error(self, order: int, error: BadRow) -> ValueError:
        """The sentence for an n-gram. Its line is looked for only now: counting along costs, and it is rare."""
        title = b"\\%d-grams:" % order
        with open_packed(self.path) as file:
            lines = ((number, line.strip()) for number, line in enumerate(file, start=1))
            section = (number for number, text in dropwhile(lambda line: line[1] != title, lines) if text)
            place = next(islice(section, error.row + 1, None), 1)
        return ValueError(f"{self.path}:{place}: {error.what}")

    def _header(self) -> list[int]:
        skipped = 0
        while (text := self._lines.next()) != b"\\data\\":
            skipped += len(text) + 1
            if not text or text == b"iARPA" or skipped > FOREWORD:  # IRSTLM's own format has other numbers
                raise ValueError(f"{self.path}:1: no \\data\\ here; give a language model in ARPA format")
        data, counts = self._lines.line, list[int]()
        for block in self._lines.blocks():
            for number, text in enumerate(block.split(b"\n"), start=self._lines.line):
                match = re.fullmatch(rb"\s*ngram\s+(\d{1,2})\s*=\s*(\d{1,15})\s*", text)
                if match and int(match[1]) == len(counts) + 1:
                    counts.append(int(match[2]))
                elif text.strip():
                    due = f"ngram {len(counts) + 1}=COUNT"
                    raise ValueError(f"{self.path}:{number}: {shown(text)} where {due!r} is due; restore the header")
        if not counts:
            raise ValueError(f"{self.path}:{data}: \\data\\ declares no n-grams; restore the header")
        return counts

    def _title(self, title: str) -> int:
        """The line on which a section starts."""
        text = self._lines.next()
        if text != title.encode():
            found = f"{shown(text)} stands" if text else "the file ends"
            raise ValueError(
                f"{self.path}:{self._lines.line}: {found} where {title} is due; the file was cut or edited, restore it"
            )
        return self._lines.line

    def _add(self, columns: Columns) -> Ids:
        """Unigrams, the only words that are looked at one by one."""
        first, words = columns.first, columns.words(1)
        self.words += words
        self._rows.update(zip(words, range(first, first + len(words))))
        if len(self._rows) < len(self.words):
            seen = set(self.words[:first])
            row = next(row for row, word in enumerate(words, first) if word in seen or seen.add(word))  # type: ignore[func-returns-value]
            raise BadRow(row, f"the word {shown(self.words[row])} was there before; keep one line for each n-gram")
        try:
            b"\n".join(words).decode()
        except UnicodeDecodeError as error:
            row = first + error.object.count(b"\n", 0, error.start)
            raise BadRow(row, f"the word {shown(self.words[row])} is not UTF-8; convert the file to UTF-8") from None
        self._hashes.append(columns.hashes(1))
        return np.arange(first, first + len(words))[:, None]

    def _encode(self, columns: Columns) -> Ids:
        ids = np.stack([self._ids.encode(columns.hashes(column)) for column in range(1, columns.order + 1)], 1)
        if len(bad := np.argwhere(ids < 0)):
            row, column = bad[0].tolist()
            word = columns.shown(row, column + 1)
            columns.bad(row, f"the word {word} is not among the unigrams; add it there, or restore it")
        return ids

    def _has_unknown(self) -> bool:
        """Whether there is an `<unk>`; if not, `<UNK>` takes its name."""
        if UNKNOWN.encode() in self._rows:
            return True
        row = self._rows.pop(UNKNOWN.upper().encode(), None)
        if row is not None:
            self.words[row] = UNKNOWN.encode()
            self._rows[self.words[row]] = row
        return row is not None

    def _unknown(self, row: int) -> Rows:
        """A unigram that the file lacks."""
        self.counts[0] += 1
        columns = Columns(b"%d %s" % (NEVER, UNKNOWN.encode()), 1, False, row)
        return Rows(row, self._add(columns), columns.log_probs(), columns.backoffs())

    def _number_words(self, title: int) -> None:
        """`<s>` gets the id behind all others, as in a neural model."""
        for word in (START, END):
            if word.encode() not in self._rows:
                raise ValueError(
                    f"{self.path}:{title}: no {word} among the unigrams; estimate the model with it, or add its line"
                )
        self.start = self._rows[START.encode()]
        self.words.append(self.words.pop(self.start))
        hashes = np.concatenate(self._hashes)
        self._ids = WordTable(np.r_[np.delete(hashes, self.start), hashes[self.start]])
        if twins := [shown(self.words[id]) for id in self._ids.twins]:
            raise ValueError(
                f"{self.path}:{title}: the words {' and '.join(twins)} have the same hash, so their n-grams cannot be "
                "told apart; rename one of them"
            )


@contextmanager
def open_arpa(path: Path) -> Iterator[Arpa]:
    """Open an ARPA file; the faults of packed files get a sentence and the line they were met at."""
    with open_packed(path) as file:
        lines: _Lines | None = None
        try:
            arpa = Arpa(path, file)
            lines = arpa._lines
            yield arpa
        except (EOFError, zlib.error) as error:
            raise _packed(path, lines, error) from error
        except OSError as error:
            if error.errno is not None or error.filename is not None or path.suffix not in (".gz", ".bz2"):
                raise
            raise _packed(path, lines, error) from error


def _packed(path: Path, lines: "_Lines | None", error: Exception) -> ValueError:
    line = lines.line if lines else 1
    return ValueError(f"{path}:{line}: the packed file is damaged behind this line ({error}); pack or copy it again")


class _Lines:
    """The lines of a file: headers one at a time, what lies between them in blocks."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file
        self.line = 1  # of what was handed out last, or of its first line
        self._after = 1  # of what comes next
        self._rest = file.read(BLOCK).removeprefix(BOM)

    def next(self) -> bytes:
        """The next line that is not blank, without its white space; nothing at the end."""
        blank = 0
        while True:
            blank += len(self._take(len(self._rest) - len(self._rest.lstrip())))
            if blank > LONGEST:  # a packed file may hold gigabytes of them
                raise ValueError(f"{self.path}:{self.line}: over {LONGEST} bytes of blanks; is this an ARPA file?")
            end = self._rest.find(b"\n") + 1
            if end or not self._fill():
                return self._take(end or len(self._rest)).strip()

    def blocks(self) -> Iterator[bytes]:
        """Whole lines up to one that starts with a backslash, which no n-gram does."""
        while not self._rest.startswith(b"\\"):
            end = self._rest.find(b"\n\\") + 1
            if not end and len(self._rest) >= BLOCK:
                end = self._rest.rfind(b"\n") + 1
            if end:
                yield self._take(end)
            elif not self._fill():
                if self._rest:
                    yield self._take(len(self._rest))
                return

    def _fill(self) -> bool:
        if len(self._rest) - self._rest.rfind(b"\n") > LONGEST:
            line = self._after + self._rest.count(b"\n")
            raise ValueError(f"{self.path}:{line}: a line of over {LONGEST} bytes; is this an ARPA file?")
        data = self.file.read(BLOCK)
        self._rest += data
        return bool(data)

    def _take(self, end: int) -> bytes:
        text, self._rest = self._rest[:end], self._rest[end:]
        self.line, self._after = self._after, self._after + text.count(b"\n")
        return text


_COUNTS = "the file was cut or edited: restore it, or correct the header"
