"""Numbered text -> ARPA file."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from selfnorm.claims import here, leftovers
from selfnorm.files import check_place, naming, shortened
from selfnorm.ngrams.counts import PIECE, SPECIALS, Text, count, read
from selfnorm.ngrams.kneser_ney import Discounts, Model, estimate
from selfnorm.ngrams.scratch import Array, Scratch
from selfnorm.ngrams.write import write
from selfnorm.vocabulary import END, START, UNKNOWN, Vocabulary

MEMORY = 4 << 30  # bytes of arrays held in memory, by default
HIGHEST = 32  # order; more is a slip
OTHER_PACKINGS = (".xz", ".zst", ".zip", ".lzma", ".Z")  # that are not read, either
POSITION = 200  # bytes that sorting a position takes

Progress = Callable[[str, int, int], None]  # stage ("count", "weigh", "write"), done, of how many


class Source(Protocol):
    """A text as numbers: 0 ends a sentence, the words have 1, 2, ... in order of appearance."""

    def __iter__(self) -> Iterator[Array]: ...

    @property
    def words(self) -> list[bytes]:
        """By number, from 1 on; known when the text has been read."""


@dataclass(frozen=True)
class Summary:
    to: str
    words: int
    sentences: int
    grams: tuple[int, ...]  # of each order, in the file
    found: tuple[int, ...]  # of each order, in the text
    discounts: tuple[Discounts, ...]
    outside: int  # different words of the text that are not in the given vocabulary
    seconds: float

    @property
    def fallback(self) -> tuple[int, ...]:
        """The orders whose discounts could not be estimated."""
        return tuple(order for order, each in enumerate(self.discounts, start=1) if not each.estimated)

    def as_dict(self) -> dict[str, Any]:
        rate = {"words_per_second": self.words / self.seconds, "fallback": self.fallback}
        return asdict(self) | {"discounts": [each.amounts for each in self.discounts]} | rate


def estimate_arpa(
    source: Source,
    to: Path,
    order: int = 4,
    prune: Sequence[int] = (),
    vocabulary: Vocabulary | None = None,
    memory: int = MEMORY,
    threads: int = 2,
    progress: Progress | None = None,
) -> Summary:
    """Write the n-gram model of a text to `to`, packed if it ends in .gz or .bz2.

    `prune` are the largest counts to leave out, from unigrams (0) up; the last holds for all further orders. N-grams
    with words that are not in `vocabulary` are left out, as by `lmplz --limit_vocab_file`; where the text itself has
    `<unk>`, it is counted like any other word. Arrays beyond `memory` bytes lie in files next to `to` while this runs.
    """
    began = time.perf_counter()
    thresholds = pruning(prune, order)
    show = progress or (lambda _stage, _done, _todo: None)
    with _folder(to) as folder:
        scratch = Scratch(folder, memory)
        text = read(source, scratch)
        if not text.sentences:
            raise ValueError("no words in the text; give one with a sentence on each line")
        piece = max(1, min(PIECE, memory // (POSITION * threads)))
        counts = count(text, order, scratch, lambda *done: show("count", *done), threads, piece)
        words = [UNKNOWN.encode(), START.encode(), END.encode(), *source.words]
        outside = _outside(words, vocabulary)
        model = estimate(counts, thresholds, outside, scratch, lambda *done: show("weigh", *done), threads)
        write(model, words, to, lambda *done: show("write", *done), threads)
    return _summary(to, text, model, outside, time.perf_counter() - began)


def pruning(thresholds: Sequence[int], order: int) -> list[int]:
    """A threshold for each order; the last one given holds for those that follow."""
    if not 1 <= order <= HIGHEST:
        raise ValueError(f"order {order} is not possible; choose one from 1 to {HIGHEST}, mostly 3 to 5")
    given = list(thresholds) or [0]
    shown = " ".join(map(str, given))
    if len(given) > order:
        raise ValueError(f"{len(given)} thresholds ({shown}) to prune a model of order {order}; give at most {order}")
    if given[0] != 0 or min(given) < 0:
        raise ValueError(
            f"the thresholds {shown} would prune unigrams; begin with 0, and limit words with a vocabulary"
        )
    if given != sorted(given):
        raise ValueError(f"the thresholds {shown} fall; an n-gram would outlive its parts, so let them rise or stay")
    return given + [given[-1]] * (order - len(given))


@contextmanager
def _folder(to: Path) -> Iterator[Path]:
    """A hidden folder beside `to` for what is in the making; those of processes that were killed go."""
    if to.is_dir():
        raise ValueError(f"{to}: is a folder; name the file to write, such as {to / 'lm.arpa'}")
    if to.suffix in OTHER_PACKINGS:
        raise ValueError(f"{to}: a model is not packed as {to.suffix}; let its name end in .gz, .bz2 or .arpa")
    with naming(to, to.parent):
        if not to.parent.is_dir():
            raise ValueError(f"{to.parent}: there is no such folder to write {to.name} to; make it first")
        check_place(to)
        stem = f".{shortened(to.name)}.{here()}-"
        for left in leftovers(to.parent, stem):
            shutil.rmtree(left, ignore_errors=True)
    folder = to.with_name(f"{stem}{os.getpid()}.tmp")
    with naming(to, folder):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _outside(words: list[bytes], vocabulary: Vocabulary | None) -> npt.NDArray[np.bool_] | None:
    """The words that get no n-grams, `<unk>` as far as the text does not spell it among them; None: all get some."""
    literal = words[0] in words[SPECIALS:]
    if vocabulary is None and not literal:
        return None
    outside = np.array([vocabulary is not None and word.decode() not in vocabulary for word in words])
    outside[:SPECIALS] = False
    outside[0] = literal
    return outside


def _summary(to: Path, text: Text, model: Model, outside: npt.NDArray[np.bool_] | None, seconds: float) -> Summary:
    return Summary(
        str(to),
        text.words,
        text.sentences,
        grams=tuple(model.size(n) for n in range(1, model.counts.order + 1)),
        found=tuple(map(len, model.counts.grams)),
        discounts=tuple(model.discounts),
        outside=0 if outside is None else int(outside[SPECIALS:].sum()),
        seconds=seconds,
    )
