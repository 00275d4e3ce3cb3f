"""Speed of what is done with text before a training: ids, and an n-gram model, beside KenLM if it is there.

All that is written goes into a temporary folder.
"""

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import which
from typing import Any

from selfnorm.cores import cores
from selfnorm.corpus.numbered import Numbered
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.text import read_sentences
from selfnorm.ngrams.estimate import MEMORY, estimate_arpa
from selfnorm.scorers import NGram

ASKED = 50_000  # sentences, at most, whose words an n-gram model is asked for
LENIENT = ("--discount_fallback", "--skip_symbols")  # else lmplz refuses small texts, and <unk> in any
BACKENDS = {"selfnorm": "numpy", "kenlm": "kenlm"}


@dataclass(frozen=True)
class Stage:
    """What was done, by us or by another tool; so many words went through, where it is about words."""

    stage: str
    by: str
    words: int | None
    seconds: float

    @property
    def words_per_second(self) -> float | None:
        return None if self.words is None else self.words / self.seconds


def preparing(texts: Sequence[Path], size: int, repeats: int) -> Iterator[Stage]:
    """`selfnorm prepare`: its two passes over the text, and all of it."""
    words, *times = zip(*(_prepared(texts, size) for _ in range(repeats)))
    for stage, seconds in zip(("count", "encode", "all"), times):
        yield Stage(stage, "selfnorm", words[0], statistics.median(seconds))


def _prepared(texts: Sequence[Path], size: int) -> tuple[int, float, float, float]:
    """The words, and the seconds of both passes and of all."""
    encoding: list[float] = []

    def watch(stage: str, done: int, total: int, words: int) -> None:
        if stage == "encode" and not encoding:
            encoding.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        summary = prepare(list(texts), Path(folder) / "data", size, progress=watch)
        ended = time.perf_counter()
    return summary.words, encoding[0] - began, ended - encoding[0], ended - began


def counting(texts: Sequence[Path], order: int, repeats: int) -> Iterator[Stage]:
    """`selfnorm ngram`, beside lmplz; then the model is loaded and asked for words of the text, beside kenlm."""
    with tempfile.TemporaryDirectory() as folder:
        arpa = Path(folder) / "ours.arpa"

        def estimate() -> int:
            return estimate_arpa(Numbered(texts), arpa, order, threads=cores()).words

        words, seconds = _timed(estimate, repeats)
        yield Stage("estimate", "selfnorm", words, seconds)
        if lmplz := which("lmplz"):
            plain = Path(folder) / "text"
            with plain.open("w", encoding="utf-8") as file:
                file.writelines(" ".join(sentence) + "\n" for text in texts for sentence in read_sentences(text))
            files = ["-T", folder, "--text", str(plain), "--arpa", f"{folder}/theirs.arpa"]
            command = [lmplz, "-o", str(order), "-S", f"{MEMORY}b", *LENIENT, *files]
            yield Stage("estimate", "lmplz", words, _timed(lambda: _run(command), repeats)[1])
        asked = list(islice((each for text in texts for each in read_sentences(text)), ASKED))
        for by, backend in BACKENDS.items():
            yield from _asked(arpa, asked, by, backend, repeats)


def _asked(arpa: Path, sentences: list[list[str]], by: str, backend: str, repeats: int) -> Iterator[Stage]:
    """Of a back end that is there; ours keeps what it made of the file at the first time."""
    try:
        scorer, first = _timed(lambda: NGram.load(arpa, backend), 1)
    except ValueError as error:
        if isinstance(error.__context__, ImportError):
            return
        raise
    scored, seconds = _timed(lambda: scorer.text(sentences), repeats)
    words = len(scored.scores)
    yield Stage("load", by, None, first)
    if backend == "numpy":
        yield Stage("load again", by, None, _timed(lambda: NGram.load(arpa, backend), repeats)[1])
    yield Stage("score", by, words, seconds)


def _timed(work: Callable[[], Any], repeats: int) -> tuple[Any, float]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - began)
    return result, statistics.median(seconds)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise ChildProcessError(f"{command[0]} ended with status {done.returncode}: {done.stderr[-200:].decode()}")
