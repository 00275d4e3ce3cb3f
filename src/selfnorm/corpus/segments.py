"""Words to numbers in one pass over the text, in bounded memory, exactly.

A worker gives words numbers in order of appearance and writes the numbers of each block to its scratch file, while
counting them. When its table of words is full, or another text begins, the table is put away as a *segment*: the
sorted words with their counts (a *run*), and the rank of each number among them. Merging all runs gives the counts, as
in an external sort; once the vocabulary is chosen, a segment's table translates its numbers to ids. So the text is
read, unpacked and split once, and no count is ever approximate.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from selfnorm.corpus.text import check
from selfnorm.vocabulary import Vocabulary

LINE_END = b"\xff"  # stands for a line's end among the words; no UTF-8 text has this byte. Its number is always 0
FAN = 64  # runs merged at a time: each is an open file

Ids = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class Placed:
    """Where the numbers of a block were put, and what was counted in it."""

    worker: str
    segment: int
    bytes: int
    words: int
    sentences: int


class Numbering:
    """One worker's table of words: at most about `types` of them in memory."""

    def __init__(self, scratch: str, worker: str, types: int, keep_empty: bool) -> None:
        self.scratch, self.worker, self.types, self.keep_empty = Path(scratch), worker, types, keep_empty
        self.file = (self.scratch / f"{worker}.numbers").open("wb")
        self.text: int | None = None
        self.segment = -1
        self._begin()

    def _begin(self) -> None:
        self.numbers: defaultdict[bytes, int] = defaultdict()
        self.numbers.default_factory = self.numbers.__len__  # a new word gets the next number, without a Python call
        self.numbers[LINE_END]
        self.counts = np.zeros(1, np.int64)
        self.segment += 1

    def add(self, text: int, fresh: bool, data: bytes) -> Placed:
        """Number and count a block of text number `text`; `fresh` as in `Block`."""
        check(data)
        if len(self.numbers) > self.types or text != self.text:
            self._put_away()
        self.text = text
        words = data.replace(b"\n", b" %b " % LINE_END).split()
        numbers = np.fromiter(map(self.numbers.__getitem__, words), np.uint32, len(words))
        if not self.keep_empty:
            numbers = _without_blank_lines(numbers, fresh)
        self.file.write(numbers.tobytes())
        counts = np.bincount(numbers, minlength=len(self.numbers))
        sentences = int(counts[0])
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        return Placed(self.worker, self.segment, numbers.nbytes, len(numbers) - sentences, sentences)

    def finish(self) -> None:
        self._put_away()
        self.close()

    def close(self) -> None:
        self.file.close()

    def _put_away(self) -> None:
        if self.text is None:
            return
        words, counts = list(self.numbers)[1:], self.counts[1:].tolist()
        order = sorted(range(len(words)), key=words.__getitem__)
        rank = np.empty(len(words), np.uint32)
        rank[order] = np.arange(len(words), dtype=np.uint32)
        np.save(rank_path(self.scratch, self.worker, self.segment), rank)
        write_run(run_path(self.scratch, self.worker, self.segment), ((words[i], counts[i]) for i in order))
        self._begin()


def _without_blank_lines(numbers: Ids, fresh: bool) -> Ids:
    end = numbers == 0
    after_end = np.concatenate(([fresh], end[:-1]))  # a line end right after a line end closes a blank line
    return numbers[~(end & after_end)]


def run_path(scratch: Path, worker: str, segment: int) -> Path:
    return scratch / f"{worker}.{segment}.run"


def rank_path(scratch: Path, worker: str, segment: int) -> Path:
    return scratch / f"{worker}.{segment}.npy"


def write_run(path: Path, pairs: Iterable[tuple[bytes, int]]) -> int:
    """Write sorted words with their counts; how many there were."""
    types = 0
    with path.open("wb") as file:
        for types, (word, count) in enumerate(pairs, start=1):  # noqa: B007  the last one is the answer
            file.write(b"%b\t%d\n" % (word, count))
    return types


def read_run(path: Path) -> Iterator[tuple[bytes, int]]:
    with path.open("rb") as file:
        for line in file:
            word, _, count = line.partition(b"\t")  # no word holds a tab
            yield word, int(count)


def merge(runs: list[Path]) -> Iterator[tuple[bytes, int]]:
    """The words of all runs in order, each once with the sum of its counts."""
    while len(runs) > FAN:
        first, runs = runs[:FAN], runs[FAN:]
        merged = first[0].with_suffix(".merged" + first[0].suffix)
        write_run(merged, merge(first))
        runs.append(merged)
    pairs = heapq.merge(*map(read_run, runs))
    for word, group in groupby(pairs, key=itemgetter(0)):
        yield word, sum(count for _, count in group)


class Translator:
    """Numbers to ids; remembers one table per worker, as a worker's segments follow one another."""

    def __init__(self, scratch: Path, vocabulary: Vocabulary) -> None:
        self.scratch, self.vocabulary = scratch, vocabulary
        self.files = {path.stem: path.open("rb") for path in scratch.glob("*.numbers")}
        self.tables: dict[str, tuple[int, Ids]] = {}

    def ids(self, placed: Placed) -> Ids:
        """The ids of the next block of a worker: blocks must come in the order in which it got them."""
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
