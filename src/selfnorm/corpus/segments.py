"""Words to numbers in one pass over the text, in bounded memory, exactly.

A worker gives words numbers in order of appearance and writes the numbers of each block to its scratch file. When its
table of words is full, or another text begins, the table is put away as a *segment*: the sorted words with their counts
(a *run*), and the rank of each number among them. Merging all runs gives the counts, as in an external sort; once the
vocabulary is chosen, a segment's table translates its numbers to ids. So the text is read, unpacked and split once, and
no count is ever approximate.
"""

import heapq
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from selfnorm.corpus.numbering import Numbering, without_blank
from selfnorm.corpus.text import check
from selfnorm.vocabulary import Vocabulary

FAN = 64  # runs merged at a time: each is an open file
CHUNK = 1 << 24  # bytes of numbers counted at a time
OPEN = 64  # files of numbers: more than there are workers that take turns
LINES = 1 << 16  # bytes of a run read at a time

Ids = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Placed:
    """Where the numbers of a block were put, and what was counted in it."""

    worker: str
    segment: int
    bytes: int
    words: int
    sentences: int


class Segments:
    """One worker's words and numbers: at most about `types` distinct words in memory."""

    def __init__(self, scratch: str, worker: str, types: int, keep_empty: bool) -> None:
        self.scratch, self.worker, self.types, self.keep_empty = Path(scratch), worker, types, keep_empty
        self.file = (self.scratch / f"{worker}.numbers").open("w+b")
        self.text: int | None = None
        self.segment, self.begin, self.numbering = 0, 0, Numbering()

    def add(self, text: int, fresh: bool, data: bytes) -> Placed:
        """Number a block of text number `text`; `fresh` as in `Block`."""
        check(data)
        if self.text is not None and (text != self.text or len(self.numbering) > self.types):
            self._put_away()
        self.text = text
        numbers = self.numbering.number(data)
        numbers = numbers if self.keep_empty else without_blank(numbers, fresh)
        self.file.write(numbers.tobytes())
        sentences = int((numbers == 0).sum())
        return Placed(self.worker, self.segment, numbers.nbytes, len(numbers) - sentences, sentences)

    def finish(self) -> None:
        if self.text is not None:
            self._put_away()
        self.close()

    def close(self) -> None:
        self.file.close()

    def _put_away(self) -> None:
        words, counts = self.numbering.words[1:], self._counts()[1:].tolist()
        order = sorted(range(len(words)), key=words.__getitem__)
        rank = np.empty(len(words), np.uint32)
        rank[order] = np.arange(len(words), dtype=np.uint32)
        np.save(rank_path(self.scratch, self.worker, self.segment), rank)
        write_run(run_path(self.scratch, self.worker, self.segment), ((words[i], counts[i]) for i in order))
        self.segment, self.begin, self.numbering = self.segment + 1, self.file.tell(), Numbering()

    def _counts(self) -> npt.NDArray[np.int64]:
        """How often each number of this segment was written; counted here, as each pass costs the size of the table."""
        counts = np.zeros(len(self.numbering), np.int64)
        self.file.seek(self.begin)
        while data := self.file.read(CHUNK):
            counts += np.bincount(np.frombuffer(data, np.uint32), minlength=len(counts))
        return counts


def run_path(scratch: Path, worker: str, segment: int) -> Path:
    return scratch / f"{worker}.{segment}.run"


def rank_path(scratch: Path, worker: str, segment: int) -> Path:
    return scratch / f"{worker}.{segment}.npy"


def write_run(path: Path, pairs: Iterable[tuple[bytes, int]]) -> int:
    """Write sorted words with their counts; how many there were."""
    types = 0
    with path.open("wb") as file:
        for types, pair in enumerate(pairs, start=1):  # noqa: B007  the last one is the answer
            file.write(b"%b\t%d\n" % pair)
    return types


def read_run(path: Path) -> Iterator[tuple[bytes, int]]:
    with path.open("rb") as file:
        while data := file.read(LINES):
            fields = (data + file.readline()).split()  # no word holds white space
            yield from zip(fields[::2], map(int, fields[1::2]))


def merge(runs: list[Path], scratch: Path) -> Iterator[tuple[bytes, int]]:
    """The words of all runs in order, each once with the sum of its counts; `scratch` is a folder for runs between."""
    while len(runs) > FAN:
        first, runs = runs[:FAN], runs[FAN:]
        handle, name = tempfile.mkstemp(".run", dir=scratch)
        os.close(handle)
        write_run(Path(name), merge(first, scratch))
        runs.append(Path(name))
    if len(runs) == 1:
        yield from read_run(runs[0])
        return
    last, total = b"", 0
    for word, count in heapq.merge(*map(read_run, runs)):
        if word == last:
            total += count
            continue
        if total:
            yield last, total
        last, total = word, count
    if total:
        yield last, total


class Translator:
    """Numbers to ids; remembers one table per worker, as a worker's segments follow one another."""

    def __init__(self, scratch: Path, vocabulary: Vocabulary) -> None:
        self.scratch, self.vocabulary = scratch, vocabulary
        self.files: dict[str, IO[bytes]] = {}
        self.tables: dict[str, tuple[int, Ids]] = {}

    def ids(self, placed: Placed) -> Ids:
        """The ids of the next block of a worker: blocks must come in the order in which it got them."""
        if placed.worker not in self.files:
            if len(self.files) == OPEN:
                self.close()
            self.files[placed.worker] = (self.scratch / f"{placed.worker}.numbers").open("rb")
        numbers = np.frombuffer(self.files[placed.worker].read(placed.bytes), np.uint32)
        if placed.worker not in self.tables or self.tables[placed.worker][0] != placed.segment:
            self.tables[placed.worker] = placed.segment, self._table(placed.worker, placed.segment)
        return self.tables[placed.worker][1][numbers]

    def _table(self, worker: str, segment: int) -> Ids:
        ids = self.vocabulary.encode(word.decode() for word, _ in read_run(run_path(self.scratch, worker, segment)))
        rank = np.load(rank_path(self.scratch, worker, segment), allow_pickle=False)
        return np.concatenate((np.array([self.vocabulary.end], np.uint32), np.array(ids, np.uint32)[rank]))

    def close(self) -> None:
        for file in self.files.values():
            file.close()
        self.files, self.tables = {}, {}
