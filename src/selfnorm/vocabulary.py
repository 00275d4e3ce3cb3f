"""Word <-> id. Ids are ordered by falling count (log-uniform noise relies on it).

`</s>` and `<unk>` are words like any other, ranked by their counts. `<s>` is an input only: its id is C, it has an
embedding row and no output row. Unknown words become `<unk>` here and nowhere else.
"""

import hashlib
import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from selfnorm.files import open_packed, unpacking, write_whole

UNKNOWN, END, START = "<unk>", "</s>", "<s>"
BOM = b"\xef\xbb\xbf"
RATIO = 100  # unpacked bytes of a word list for each packed one, at most

Counts = Mapping[str, int] | Iterable[tuple[str, int]]


class Vocabulary:
    """C words and, where known, how often each was seen in the training text."""

    def __init__(self, words: list[str], counts: Iterable[int] | None = None, dropped: tuple[str, ...] = ()) -> None:
        self.words = words
        self.counts: npt.NDArray[np.int64] | None = None if counts is None else np.asarray(list(counts), np.int64)
        self.dropped = dropped  # entries of a word list that are no words here: <eps>, #0, <s>
        self._ids = {word: id for id, word in enumerate(words)}
        if len(self._ids) < len(words):
            raise ValueError(f"{len(words) - len(self._ids)} words of the vocabulary are duplicates; give each once")
        for word in (UNKNOWN, END):
            if word not in self._ids:
                raise ValueError(f"the vocabulary has no {word}; add it as a word of its own")
        if self.counts is not None and len(self.counts) != len(words):
            raise ValueError(f"{len(words)} words but {len(self.counts)} counts; give one count for each word")
        self.unknown = self._ids[UNKNOWN]
        self.end = self._ids[END]
        self.start = len(words)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def id(self, word: str) -> int:
        return self._ids.get(word, self.unknown)

    def encode(self, words: Iterable[str]) -> list[int]:
        return list(map(self._ids.get, words, repeat(self.unknown)))

    @property
    def falling(self) -> bool:
        """Whether ids are known to be sorted by falling count."""
        return self.counts is not None and bool((self.counts[1:] <= self.counts[:-1]).all())

    @property
    def digest(self) -> str:
        """Two vocabularies with the same digest give every word the same id, whatever their counts."""
        return hashlib.sha256("\n".join(self.words).encode()).hexdigest()

    @classmethod
    def from_counts(cls, counts: Counts, size: int | None = None, among: Iterable[str] | None = None) -> Self:
        """The `size` most frequent words, ties by the word's bytes; or all of them.

        `counts` maps word -> count, `</s>` (its count is the number of sentences) among them, or streams such pairs,
        each word once: then only the chosen words are held in memory. What is not chosen counts as `<unk>`, as does a
        literal `<unk>`. With `among` (a word list) only its words are chosen, also those that were never seen.
        """
        if size is not None and size < 3:
            raise ValueError(f"a vocabulary of size {size} holds no word beside {END} and {UNKNOWN}; ask for 3 or more")
        tally = _Tally(counts.items() if isinstance(counts, Mapping) else counts)
        pairs: Iterable[tuple[str, int]] = tally
        if among is not None:
            given = dict.fromkeys(among, 0)
            given.update(pair for pair in tally if pair[0] in given)
            pairs = [pair for pair in given.items() if pair[0] not in (UNKNOWN, END)]
        # Python compares strings by code point, which is the order of their UTF-8 bytes.
        chosen = sorted(pairs, key=_rank) if size is None else heapq.nsmallest(size - 2, pairs, key=_rank)
        outside = tally.total - sum(count for _, count in chosen)
        ranked = sorted([*chosen, (END, tally.sentences), (UNKNOWN, outside)], key=_rank)
        return cls([word for word, _ in ranked], [count for _, count in ranked])

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a vocab.txt or a word list: one word per line, Kaldi's words.txt or fairseq's dict.txt.

        Kaldi's ids may have gaps and any order; `<eps>` and `#0`, `#1`, ... are no words there.
        `<unk>` and `</s>` are added where they are missing; the order of a given list is kept (see `falling`).
        """
        if not path.exists() or path.is_dir():
            raise ValueError(f"{path}: there is no such file; give a word list, with a word on each line")
        entries = list(_entries(path))
        if not entries:
            raise ValueError(f"{path}:1: the file is empty; a vocabulary has one word per line")
        kaldi = _is_kaldi(entries, path)
        drop = re.compile(r"<s>|<eps>|#\d+" if kaldi else "<s>")
        first: dict[str, _Entry] = {}
        dropped = []
        for entry in entries:
            if drop.fullmatch(entry.word):
                dropped.append(entry.word)
            elif first.setdefault(entry.word, entry) is not entry:
                twin = first[entry.word].line
                raise ValueError(f"{path}:{entry.line}: the word {entry.word!r} is also on line {twin}; keep one")
        for word in (UNKNOWN, END):
            first.setdefault(word, _Entry(word, 0, 0))
        counted = entries[0].number is not None and not kaldi
        counts = [entry.number or 0 for entry in first.values()] if counted else None
        return cls(list(first), counts, tuple(dropped))

    def save(self, path: Path) -> None:
        """Write vocab.txt, whole or not at all."""
        write_whole(path, self.render())

    def render(self) -> bytes:
        """vocab.txt: one `word<TAB>count` a line."""
        if self.counts is None:
            lines = [f"{word}\n" for word in self.words]
        else:
            lines = [f"{word}\t{count}\n" for word, count in zip(self.words, self.counts.tolist())]
        return "".join(lines).encode()


class _Tally:
    """Passes on the pairs of ordinary words and adds up, on the way, what `from_counts` needs to know of the others."""

    def __init__(self, pairs: Iterable[tuple[str, int]]) -> None:
        self.pairs = pairs
        self.total = 0  # occurrences of all words but </s>
        self.sentences = 0

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for word, count in self.pairs:
            if word == END:
                self.sentences += count
                continue
            self.total += count
            if word != UNKNOWN:
                yield word, count


def _rank(pair: tuple[str, int]) -> tuple[int, str]:
    return -pair[1], pair[0]


class _Entry(NamedTuple):
    word: str
    number: int | None
    line: int


def _entries(path: Path) -> Iterator[_Entry]:
    """The lines of a word list; all have the columns of the first: a word, or a word and a number."""
    content = _content(path)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte {error.start} (0x{content[error.start]:02x}) is not UTF-8; convert the file to UTF-8"
        ) from None
    lines = content.removeprefix(BOM).removesuffix(b"\n").split(b"\n") if content else []
    columns = len(lines[0].split()) if lines else 0
    for line, text in enumerate(lines, start=1):
        fields = text.split()  # of bytes: only ASCII white space parts words, here as in a text
        if not fields:
            raise ValueError(f"{path}:{line}: an empty line; a vocabulary has one word per line")
        if len(fields) > 2 or columns == 1 < len(fields):
            raise ValueError(f"{path}:{line}: {_shown(text)} has {len(fields)} columns; {_COLUMNS}")
        if len(fields) < columns:
            raise ValueError(f"{path}:{line}: no number after {_shown(text)}; {_COLUMNS}")
        yield _Entry(fields[0].decode(), _number(fields[1], path, line) if columns == 2 else None, line)


def _content(path: Path) -> bytes:
    """The whole file, unpacked, unless it is damaged or a bomb: words pack to a third, not to a hundredth."""
    most = max(1 << 21, RATIO * path.stat().st_size)
    with unpacking(path), open_packed(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path}: unpacks to over {RATIO} times its size; a vocabulary does not")
    return content


def _shown(text: bytes) -> str:
    """A line or field for a sentence: its beginning, if it is long."""
    plain = text.decode().strip()
    return repr(plain if len(plain) <= 80 else f"{plain[:77]}...")


_COLUMNS = "write a word, or a word and a number, on every line alike"


def _number(field: bytes, path: Path, line: int) -> int:
    if not field.isdigit() or len(field) > 18:
        raise ValueError(f"{path}:{line}: {_shown(field)} is neither a count nor an id; {_COLUMNS}")
    return int(field)


def _is_kaldi(entries: list[_Entry], path: Path) -> bool:
    """Kaldi's numbers are ids: 0 1 2 ..., or each once and `<eps>` 0, in any order; fairseq's and ours are counts."""
    numbers = [entry.number for entry in entries]
    if numbers == list(range(len(entries))):
        return True
    silent = next((entry for entry in entries if entry[:2] == ("<eps>", 0)), None)
    marked = any(entry.word == "#0" for entry in entries)  # else a list of counts may end with an <eps> never seen
    if silent is None or (_falls(entries) and not marked):
        return False
    first: dict[int | None, _Entry] = {}
    for entry in entries:
        if (other := first.setdefault(entry.number, entry)) is not entry:
            if silent is not entries[0]:
                return False
            raise ValueError(
                f"{path}:{entry.line}: the word {entry.word!r} has id {entry.number}, as {other.word!r} on line "
                f"{other.line} has; give each word of a Kaldi words.txt its own"
            )
    return True


def _falls(entries: list[_Entry]) -> bool:
    numbers = [entry.number or 0 for entry in entries]
    return numbers == sorted(numbers, reverse=True)
