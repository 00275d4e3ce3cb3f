"""Word errors: hypothesis against reference, counted as NIST's sclite counts them.

The alignment has the least weight, 4 for a substitution, 3 for an insertion or a deletion; of several such, the one
that, read from its end, takes a pair of words before an insertion and an insertion before a deletion. That is sclite's
own choice, so substitutions, deletions and insertions equal its counts one by one. The total is the fewest errors
possible (Levenshtein's, jiwer's) unless the two texts have next to nothing in common: there, sclite takes six errors
around two right words (weight 18) for better than five substitutions (weight 20), and so do we.

Words are equal or they are not: case and spelling are the caller's to settle (sclite folds case unless told not to,
as `lower` does).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

try:
    from kaldialign import edit_distance
except ImportError:  # an option: the counts are the same without it, a few times slower
    edit_distance = None

SUBSTITUTION, GAP = 4, 3  # sclite's weights; a gap is an insertion or a deletion
MOST = 1 << 30  # cells of an alignment, a byte each

Pair = tuple[str | None, str | None]  # word of the reference, word of the hypothesis; None: there is none

_PAIR, _INSERTION, _DELETION = range(3)


@dataclass(frozen=True)
class Errors:
    """Counts that add up over utterances; rates are computed from the sums."""

    substitutions: int = 0
    deletions: int = 0
    insertions: int = 0
    words: int = 0  # of the reference
    utterances: int = 0
    wrong: int = 0  # utterances with an error

    @property
    def total(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Errors for each word of the reference; without any word it is 0 or infinite."""
        if self.words:
            return self.total / self.words
        return float("inf") if self.total else 0.0

    def __add__(self, other: Self) -> "Errors":
        return Errors(
            self.substitutions + other.substitutions,
            self.deletions + other.deletions,
            self.insertions + other.insertions,
            self.words + other.words,
            self.utterances + other.utterances,
            self.wrong + other.wrong,
        )


def count(reference: Sequence[str], hypothesis: Sequence[str]) -> Errors:
    """The errors of one utterance."""
    if edit_distance is not None:
        found = edit_distance(reference, hypothesis, sclite_mode=True)
        substitutions, deletions, insertions = found["sub"], found["del"], found["ins"]
        # Three substitutions weigh as much as two insertions and two deletions. kaldialign's weight is sclite's, its
        # choice between alignments of the same weight is not: take its counts where they are the only ones.
        if substitutions < 3 and min(deletions, insertions) < 2:
            return _errors(substitutions, deletions, insertions, len(reference))
    return counted(align(reference, hypothesis))


def counted(pairs: Iterable[Pair]) -> Errors:
    """The errors of an alignment."""
    substitutions = deletions = insertions = words = 0
    for word, heard in pairs:
        words += word is not None
        if word is None:
            insertions += 1
        elif heard is None:
            deletions += 1
        elif word != heard:
            substitutions += 1
    return _errors(substitutions, deletions, insertions, words)


def lower(words: Iterable[str]) -> tuple[str, ...]:
    """Words without their case."""
    return tuple(map(str.lower, words))


def only_case(reference: Sequence[str], hypothesis: Sequence[str]) -> int:
    """How many words would be right if case were ignored, and differ in case."""
    words = {*reference, *hypothesis}
    if len(set(lower(words))) == len(words):  # mostly so, and at once
        return 0
    said, heard = iter(reference), iter(hypothesis)
    number = 0
    for word, other in align(lower(reference), lower(hypothesis)):
        spelled = (word is not None and next(said), other is not None and next(heard))
        number += word == other and spelled[0] != spelled[1]
    return number


def align(reference: Sequence[str], hypothesis: Sequence[str]) -> list[Pair]:
    """Each word with its counterpart, in order."""
    ways = _ways(reference, hypothesis)
    row, column = len(reference), len(hypothesis)
    pairs: list[Pair] = []
    while row or column:
        way = ways[row - 1, column - 1] if row and column else _DELETION if row else _INSERTION
        row -= way != _INSERTION
        column -= way != _DELETION
        word = None if way == _INSERTION else reference[row]
        pairs.append((word, None if way == _DELETION else hypothesis[column]))
    return pairs[::-1]


def _ways(reference: Sequence[str], hypothesis: Sequence[str]) -> npt.NDArray[np.uint8]:
    """The last step of the best alignment of the first n words with the first m, at [n - 1, m - 1]."""
    if len(reference) * len(hypothesis) > MOST:
        raise ValueError(
            f"a reference of {len(reference):,} words and a hypothesis of {len(hypothesis):,} are too long to align; "
            "cut them into utterances"
        )
    ids = {word: id for id, word in enumerate(dict.fromkeys((*reference, *hypothesis)))}
    heard = np.array([ids[word] for word in hypothesis], np.int32)
    ways = np.full((len(reference), len(heard)), _DELETION, np.uint8)
    gaps = np.arange(len(heard) + 1, dtype=np.int32) * GAP
    weights = gaps  # of the first n words with the first 0, 1, 2, ... of the hypothesis
    for row, word in zip(ways, reference):
        paired = weights[:-1] + SUBSTITUTION * (heard != ids[word])
        weights = weights + GAP  # a deletion
        np.minimum(weights[1:], paired, out=weights[1:])
        weights = np.minimum.accumulate(weights - gaps) + gaps  # then any number of insertions
        row[weights[1:] == weights[:-1] + GAP] = _INSERTION
        row[weights[1:] == paired] = _PAIR
    return ways


def _errors(substitutions: int, deletions: int, insertions: int, words: int) -> Errors:
    wrong = substitutions or deletions or insertions
    return Errors(substitutions, deletions, insertions, words, 1, int(bool(wrong)))
