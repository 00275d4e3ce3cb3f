"""An n-gram model as a scorer: words at its border, natural logs; unknown words are scored as `<unk>`.

KenLM's conventions: a sentence starts after `<s>` and ends with `</s>`. The same numbers come from two back ends: our
tables ("numpy", fast for many words at once) and the kenlm package ("kenlm", fast for one word at a time).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selfnorm.corpus.text import split
from selfnorm.files import check_file
from selfnorm.ngrams import cache, query
from selfnorm.ngrams.columns import LN10
from selfnorm.registry import named
from selfnorm.vocabulary import END

Floats = npt.NDArray[np.float64]
Sentences = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Scored:
    """The score of every word of a text, `</s>` among them, and whether the scorer knows it."""

    scores: Floats
    known: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.int64]  # of each sentence; one more than sentences

    @property
    def oov(self) -> int:
        return int((~self.known).sum())


class Known(Protocol):
    def __contains__(self, word: str) -> bool: ...


class Backend(Protocol):
    order: int

    @property
    def vocabulary(self) -> Known: ...
    def start(self) -> Any: ...
    def advance(self, states: Sequence[Any], words: Sequence[str]) -> tuple[Floats, list[Any]]: ...
    def text(self, words: list[str], starts: npt.NDArray[np.int64]) -> tuple[Floats, npt.NDArray[np.bool_]]: ...


class NGram:
    """Scores are normalized: they are log probabilities. States are equal where all that may follow scores alike."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.order = backend.order
        self.vocabulary = backend.vocabulary

    @classmethod
    def load(cls, path: str | Path, backend: str = "numpy") -> "NGram":
        """Load an ARPA file, plain or packed; "numpy" keeps its index beside it."""
        check_file(Path(path), "give an n-gram model in ARPA format")
        return cls(named("n-gram back end", BACKENDS, backend)(Path(path)))

    def start(self) -> Any:
        """The state of a sentence before its first word."""
        return self._backend.start()

    def advance(self, states: Sequence[Any], words: Sequence[str]) -> tuple[Tensor, list[Any]]:
        """The score of each word after its state [B], and the states that hold it."""
        scores, after = self._backend.advance(states, words)
        return torch.from_numpy(scores), after

    def score(self, sentence: str | Sequence[str]) -> list[float]:
        """The score of each word of a sentence and, last, of `</s>`."""
        return self.text([split(sentence) if isinstance(sentence, str) else sentence]).scores.tolist()

    log_prob = score  # it is normalized

    def sentences(self, sentences: Sentences, positions: int | None = None) -> list[Floats]:
        """The scores of each sentence's words, `</s>` last."""
        scored = self.text(sentences)
        return [scored.scores[first:last] for first, last in pairwise(scored.starts.tolist())]

    def text(self, sentences: Sentences) -> Scored:
        """Whole sentences, all at once."""
        words: list[str] = []
        for sentence in sentences:
            words += sentence
            words.append(END)
        starts = np.zeros(len(sentences) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, sentences), np.int64, len(sentences)) + 1, out=starts[1:])
        return Scored(*self._backend.text(words, starts), starts)


class Tables:
    """Our own back end."""

    def __init__(self, path: Path) -> None:
        self.index = cache.load(path)
        self.order = self.index.order
        self.vocabulary = self.index.vocabulary

    def start(self) -> query.State:
        return query.start(self.index)

    def advance(self, states: Sequence[query.State], words: Sequence[str]) -> tuple[Floats, list[query.State]]:
        return query.advance(self.index, states, np.array(self.vocabulary.encode(words), np.int64))

    def text(self, words: list[str], starts: npt.NDArray[np.int64]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        ids = np.fromiter(self.vocabulary.encode(words), np.int64, len(words))
        return query.score(self.index, ids, starts[:-1]), ids != self.vocabulary.unknown


class KenLM:
    """The kenlm package, which reads the ARPA file (or its own binary) by itself."""

    def __init__(self, path: Path) -> None:
        try:
            import kenlm
        except ImportError:
            raise ValueError("the back end 'kenlm' is not installed; say: pip install 'selfnorm[kenlm]'") from None
        try:
            self.vocabulary = kenlm.Model(str(path))
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path}: kenlm cannot read it ({error}); take the back end 'numpy'") from None
        self.order = self.vocabulary.order
        self._state = kenlm.State

    def start(self) -> Any:
        state = self._state()
        self.vocabulary.BeginSentenceWrite(state)
        return state

    def advance(self, states: Sequence[Any], words: Sequence[str]) -> tuple[Floats, list[Any]]:
        after = [self._state() for _ in words]
        scores = [self.vocabulary.BaseScore(*each) for each in zip(states, words, after)]
        return np.array(scores) * LN10, after

    def text(self, words: list[str], starts: npt.NDArray[np.int64]) -> tuple[Floats, npt.NDArray[np.bool_]]:
        rows = []
        for first, last in zip(starts[:-1].tolist(), (starts[1:] - 1).tolist()):
            rows += self.vocabulary.full_scores(" ".join(words[first:last]))
        found = np.array(rows, np.float64).reshape(-1, 3)  # log10, length of the n-gram, unknown
        return found[:, 0] * LN10, found[:, 2] == 0


BACKENDS: dict[str, Callable[[Path], Backend]] = {"numpy": Tables, "kenlm": KenLM}
