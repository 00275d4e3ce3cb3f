"""Text -> DATA: a folder with the vocabulary, a token store for each text, and a manifest."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from selfnorm import manifest
from selfnorm.cores import cores
from selfnorm.corpus.segments import Placed, Translator, merge, run_path, write_run
from selfnorm.corpus.staging import SCRATCH, staged
from selfnorm.corpus.store import PARTS, VOCABULARY, is_data, write_store
from selfnorm.corpus.text import BLOCK, bad_text, blocks, check_text
from selfnorm.corpus.workers import MOST, TYPES, BadBlock, Task, number
from selfnorm.vocabulary import END, UNKNOWN, Vocabulary

Progress = Callable[[str, int, int, int], None]  # stage ("count", "encode"), bytes done, of how many, words so far

SMALL = 4 * BLOCK  # bytes of text that are not worth a process


@dataclass(frozen=True)
class TextSummary:
    """One text: `types` are its distinct words, `oov` its words that became (or were) `<unk>`."""

    part: str
    path: str
    words: int
    sentences: int
    types: int
    oov: int

    @property
    def oov_rate(self) -> float:
        return self.oov / self.words


@dataclass(frozen=True)
class Summary:
    to: str
    size: int  # C
    types: int  # distinct words of the training texts
    texts: tuple[TextSummary, ...]
    most_frequent: tuple[tuple[str, int], ...]
    dropped: tuple[str, ...]  # entries of a given word list that are no words
    seconds: float

    @property
    def words(self) -> int:
        return sum(text.words for text in self.texts)

    @property
    def words_per_second(self) -> float:
        return self.words / self.seconds

    def as_dict(self) -> dict[str, Any]:
        texts = [asdict(text) | {"oov_rate": text.oov_rate} for text in self.texts]
        return asdict(self) | {"texts": texts, "words": self.words, "words_per_second": self.words_per_second}

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Self:
        """From `asdict`, read again from a file."""
        frequent = tuple((word, count) for word, count in fields["most_frequent"])
        texts = tuple(TextSummary(**each) for each in fields["texts"])
        return cls(**fields | {"texts": texts, "most_frequent": frequent, "dropped": tuple(fields["dropped"])})


def prepare(
    texts: list[Path],
    to: Path,
    size: int | None = None,
    valid: Path | None = None,
    test: Path | None = None,
    vocab: Path | None = None,
    keep_empty: bool = False,
    processes: int | None = None,
    progress: Progress | None = None,
    block: int = BLOCK,
    types: int = TYPES,
) -> Summary:
    """Count the words of `texts`, choose the `size` most frequent (all by default), encode the texts with them.

    `vocab` is a word list to choose from. Memory does not grow with the texts: each process reads `block` bytes at a
    time and holds about `types` distinct words. A DATA folder made before is replaced in one rename.
    """
    began = time.perf_counter()
    sources = sources_of(texts, valid, test)
    words = None if vocab is None else Vocabulary.load(vocab)
    check(sources, to, size)
    with staged(to) as folder:
        work = Work(sources, folder, progress or no_progress)
        work.number(processes, keep_empty, block, types)
        work.write(size, words)
    return work.summary(to, time.perf_counter() - began)


@dataclass(frozen=True)
class Source:
    part: str
    path: Path


def sources_of(texts: list[Path], valid: Path | None, test: Path | None) -> list[Source]:
    given = [("train", path) for path in texts] + [("valid", valid), ("test", test)]
    return [Source(part, path) for part, path in given if path is not None]


def no_progress(_stage: str, _done: int, _total: int, _words: int) -> None:
    pass


def check(sources: list[Source], to: Path, size: int | None) -> None:
    """What can be wrong is said before the work, not after it."""
    if not any(source.part == "train" for source in sources):
        raise ValueError("no text to prepare; name at least one file")
    for source in sources:
        check_text(source.path)
    if size is not None:
        Vocabulary.from_counts({}, size)
    if is_data(to):
        others = {path.name for path in to.iterdir()} - {*manifest.read(to), manifest.MANIFEST}
        if others:
            what = f"{min(others)}, which `selfnorm prepare` did not make, would go with the old data"
            raise ValueError(f"{to}: {what}; move it elsewhere, or choose another name")
    elif to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise ValueError(f"{to}: exists and was not made by `selfnorm prepare`; choose another name or remove it")


class Work:
    """The stages of `prepare`, in order."""

    def __init__(self, sources: list[Source], folder: Path, progress: Progress, numbers: Path | None = None) -> None:
        self.sources, self.folder, self.progress = sources, folder, progress
        self.scratch = folder / SCRATCH
        self.numbers = numbers or self.scratch  # where workers put theirs
        self.placed: list[list[Placed]] = []  # for each text, its blocks
        self.types: list[int] = []  # of each text
        self.train_types = 0
        self.runs: list[Path] = []

    def number(self, processes: int | None, keep_empty: bool, block: int, types: int) -> None:
        """Read the texts, once; afterwards every word has a provisional number in the scratch folder."""
        total = sum(source.path.stat().st_size for source in self.sources)
        of: list[int] = []  # the text of each block
        done = words = 0

        def tasks() -> Iterator[Task]:
            nonlocal done
            before = 0
            for text, source in enumerate(self.sources):
                for piece in blocks(source.path, block):
                    of.append(text)
                    done = before + piece.read
                    yield Task(text, piece)
                before += source.path.stat().st_size

        def seen(placed: Placed) -> None:
            nonlocal words
            words += placed.words
            self.progress("count", done, total, words)

        processes = max(1, min(processes or cores(), MOST, total // SMALL))
        try:
            placed = number(tasks(), seen, self.scratch, processes, keep_empty, types)
        except BadBlock as bad:
            raise bad_text(self.sources[bad.text].path, bad.error) from None
        self.put(zip(of, placed, strict=True))

    def put(self, placed: Iterable[tuple[int, Placed]]) -> None:
        """Take the blocks of all texts in order; one run of counts for each text is made of theirs."""
        self.placed = [[] for _ in self.sources]
        for text, each in placed:
            self.placed[text].append(each)
        for source, each_text in zip(self.sources, self.placed, strict=True):
            if not any(each.words for each in each_text):
                raise ValueError(f"{source.path}: no words in it; give a text with one sentence per line")
        for text, blocks_of in enumerate(self.placed):
            segments = dict.fromkeys((each.worker, each.segment) for each in blocks_of)
            runs = [run_path(self.numbers, *segment) for segment in segments]
            self.runs.append(self.scratch / f"{text}.text")
            self.types.append(write_run(self.runs[-1], merge(runs, self.scratch)))

    def write(self, size: int | None, words: Vocabulary | None) -> None:
        """The vocabulary, chosen from `words` if these are given, and the stores."""
        self.vocabulary = self._chosen(size, words)
        self.vocabulary.save(self.folder / VOCABULARY)
        self.oov = self._encode()
        self.dropped = () if words is None else words.dropped

    def _chosen(self, size: int | None, words: Vocabulary | None) -> Vocabulary:
        """The vocabulary, by the counts of the training texts."""
        train = [text for text, source in enumerate(self.sources) if source.part == "train"]
        sentences = sum(each.sentences for text in train for each in self.placed[text])

        def counts() -> Iterator[tuple[str, int]]:
            yield END, sentences
            for word, count in merge([self.runs[text] for text in train], self.scratch):
                self.train_types += 1
                yield word.decode(), count

        return Vocabulary.from_counts(counts(), size, None if words is None else words.words)

    def _encode(self) -> list[int]:
        """Write the stores; how often each text has `<unk>`."""
        vocabulary = self.vocabulary
        total = sum(each.bytes for placed in self.placed for each in placed)
        oov = [0] * len(self.sources)
        translator = Translator(self.numbers, vocabulary)
        done = words = 0

        def pieces(part: str) -> Iterator[Any]:
            nonlocal done, words
            for text, source in enumerate(self.sources):
                for each in self.placed[text] if source.part == part else ():
                    ids = translator.ids(each)
                    oov[text] += int((ids == vocabulary.unknown).sum())
                    yield ids
                    done, words = done + each.bytes, words + each.words
                    self.progress("encode", done, total, words)

        for part in PARTS:
            if any(source.part == part for source in self.sources):
                write_store(self.folder / f"{part}.ids", vocabulary, pieces(part))
        translator.close()
        return oov

    def summary(self, to: Path, seconds: float) -> Summary:
        texts = [
            TextSummary(
                source.part,
                str(source.path),
                words=sum(each.words for each in placed),
                sentences=sum(each.sentences for each in placed),
                types=types,
                oov=unknown,
            )
            for source, placed, types, unknown in zip(self.sources, self.placed, self.types, self.oov, strict=True)
        ]
        vocabulary = self.vocabulary
        assert vocabulary.counts is not None
        ranked = zip(vocabulary.words[:12], vocabulary.counts[:12].tolist())
        frequent = [(word, count) for word, count in ranked if word not in (END, UNKNOWN)][:10]
        counts = len(vocabulary), self.train_types
        return Summary(str(to), *counts, tuple(texts), tuple(frequent), self.dropped, seconds)
