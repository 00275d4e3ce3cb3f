"""Word errors: hypothesis against reference, counted as NIST's sclite counts them.

The alignment has the least weight, 4 for a substitution, 3 for an insertion or a deletion; of several such, the one
that, read from its end, takes a pair of words before an insertion and an insertion before a deletion. That is sclite's
own choice, so substitutions, deletions and insertions equal its counts one by one. The total is the fewest errors
possible (Levenshtein's, jiwer's) unless the two texts have next to nothing in common: there, sclite takes six errors
around two right words (weight 18) for better than five substitutions (weight 20), and so do we.

Words are equal or they are not: case and spelling are the caller's to settle (sclite folds case unless told not to,
as `lower` does).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

SUBSTITUTION, GAP = 4, 3  # sclite's weights; a gap is an insertion or a deletion
MOST = 1 << 30  # cells of an alignment, a byte each
TOGETHER = 1 << 21  # cells of alignments that are made together

Ids = npt.NDArray[np.integer]
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
    return counted(align(reference, hypothesis))


def counts(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> list[Errors]:
    """The errors of many, all at once."""
    rows = zip(*_tallies(references, hypotheses).tolist(), map(len, references))
    return [_errors(*row) for row in rows]


def counts_by_name(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, Sequence[str]]
) -> dict[str, Errors]:
    """The errors of each reference in the hypothesis of its name."""
    for name, words in references.items():
        _check_length(len(words), len(hypotheses[name]), f"utterance {name}: ")
    said = list(references.values())
    return dict(zip(references, counts(said, [hypotheses[name] for name in references])))


def error_counts(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> Ids:
    """How many errors each of many has."""
    return _tallies(references, hypotheses).sum(0)


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
    ways = _ways(*_numbered([reference], [hypothesis]))[:, :, 0]
    row, column = len(reference), len(hypothesis)
    pairs: list[Pair] = []
    while row or column:
        way = ways[row, column]
        row -= way != _INSERTION
        column -= way != _DELETION
        word = None if way == _INSERTION else reference[row]
        pairs.append((word, None if way == _DELETION else hypothesis[column]))
    return pairs[::-1]


def _tallies(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> Ids:
    """Substitutions, deletions and insertions of each pair: [3, pairs]"""
    found = np.zeros((3, len(references)), np.int64)
    sides = [(len(one) + 1, len(other) + 1) for one, other in zip(references, hypotheses, strict=True)]
    rows, columns = np.array(sides, np.int64).reshape(-1, 2).T
    order, begin = np.lexsort((columns, rows))[::-1], 0  # the longest first: those of a size go together
    while begin < len(order):
        first = order[begin]
        rest = order[begin : begin + max(1, TOGETHER // int(rows[first] * columns[first]))]
        cells = rows[first] * np.maximum.accumulate(columns[rest]) * np.arange(1, len(rest) + 1)
        some = rest[: max(1, np.searchsorted(cells, TOGETHER, side="right"))]
        found[:, some] = _tally([references[n] for n in some], [hypotheses[n] for n in some])
        begin += len(some)
    return found


def _tally(references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]) -> Ids:
    said, heard = _numbered(references, hypotheses)
    ways = _ways(said, heard)
    row, column = (np.array(list(map(len, each))) for each in (references, hypotheses))
    left, found = np.arange(len(row)), np.zeros((3, len(row)), np.int64)
    while len(left := left[(row[left] > 0) | (column[left] > 0)]):  # the pairs whose alignment goes on
        way = ways[row[left], column[left], left]
        row[left] -= way != _INSERTION
        column[left] -= way != _DELETION
        paired = left[way == _PAIR]
        found[0, paired] += said[row[paired], paired] != heard[column[paired], paired]
        found[1, left] += way == _DELETION
        found[2, left] += way == _INSERTION
    return found


def _numbered(*sides: Sequence[Sequence[str]]) -> Iterator[Ids]:
    """Words as numbers, a column for each text: [longest, texts]; below shorter ones -1."""
    ids: dict[str, int] = {}
    for texts in sides:
        found = np.full((max(map(len, texts), default=0), len(texts)), -1, np.int32)
        for column, words in zip(found.T, texts):
            column[: len(words)] = [ids.setdefault(word, len(ids)) for word in words]
        yield found


def _ways(references: Ids, hypotheses: Ids) -> npt.NDArray[np.uint8]:
    """The last step of the best alignment of the first n words with the first m, at [n, m], of each pair."""
    rows, columns, pairs = len(references) + 1, len(hypotheses) + 1, references.shape[1]
    _check_length(rows - 1, columns - 1)
    ways = np.full((rows, columns, pairs), _DELETION, np.uint8)
    ways[0] = _INSERTION
    gaps = np.arange(columns, dtype=np.int32)[:, None] * GAP
    weights = np.repeat(gaps, pairs, 1)  # of the first n words with the first 0, 1, 2, ... of the hypothesis
    for row, word in zip(ways[1:, 1:], references):
        paired = weights[:-1] + SUBSTITUTION * (hypotheses != word)
        weights = weights + GAP  # a deletion
        np.minimum(weights[1:], paired, out=weights[1:])
        weights = np.minimum.accumulate(weights - gaps) + gaps  # then any number of insertions
        row[weights[1:] == weights[:-1] + GAP] = _INSERTION
        row[weights[1:] == paired] = _PAIR
    return ways


def _check_length(reference: int, hypothesis: int, where: str = "") -> None:
    if (reference + 1) * (hypothesis + 1) > MOST:
        raise ValueError(
            f"{where}a reference of {reference:,} words and a hypothesis of {hypothesis:,} are too long to align; "
            "cut them into utterances"
        )


def _errors(substitutions: int, deletions: int, insertions: int, words: int) -> Errors:
    wrong = substitutions or deletions or insertions
    return Errors(substitutions, deletions, insertions, words, 1, int(bool(wrong)))
