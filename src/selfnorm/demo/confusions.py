"""Words of a vocabulary that are spelled or sound nearly like a given one.

The distance of two words is the mean of two edit distances, of their letters and of their sounds: "night" and "knight"
are half apart, "night" and "might" one. An index of all spellings and all sounds, whole and with one letter left out,
finds what may be near; what it finds is measured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from selfnorm.demo.sounds import sounds

Near = list[tuple[str, float]]  # words and their distances, the nearest first


class Confusions:
    """Each list is made once."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = sorted(set(words))
        self.spelled = Forms(self.words, letters)
        self.spoken = Forms(self.words, sounds)
        self.near = cache(self._near)
        self.nearest = cache(self._nearest)
        self.alike = cache(self._alike)

    def _near(self, text: str, far: float) -> Near:
        """Words at most so far from a text, which need not be a word: all within one edit, and some beyond."""
        return self._measured(text, [*self.spelled.similar(text), *self.spoken.similar(text)], far)

    def _nearest(self, text: str, number: int) -> Near:
        """So many words, however far they are."""
        return self._measured(text, range(len(self.words)), number=number)

    def _alike(self, text: str) -> Near:
        """Words that are spelled or sound exactly like a text."""
        return self._measured(text, [*self.spelled.same(text), *self.spoken.same(text)])

    def _measured(self, text: str, found: Iterable[int], far: float = np.inf, number: int | None = None) -> Near:
        numbers = np.unique(np.fromiter(found, np.int64))
        if not len(numbers):
            return []
        distances = (self.spelled.distances(text, numbers) + self.spoken.distances(text, numbers)) / 2
        order = np.argsort(distances, kind="stable")[:number]
        pairs = zip(numbers[order].tolist(), distances[order].tolist())
        return [(self.words[number], distance) for number, distance in pairs if distance <= far]


class Forms:
    """The words in one way of writing them: their letters, or their sounds."""

    def __init__(self, words: Sequence[str], write: Callable[[str], str]) -> None:
        self.write = write
        self.forms = [write(word) for word in words]
        self.lengths = np.fromiter(map(len, self.forms), np.int64, len(words))
        width = int(self.lengths.max(initial=1))
        self.letters = np.array([form.ljust(width) for form in self.forms]).view(np.uint32).reshape(-1, width)
        self.index: dict[str, list[int]] = defaultdict(list)
        for number, form in enumerate(self.forms):
            for short in shortened(form):
                self.index[short].append(number)

    def same(self, text: str) -> Iterator[int]:
        form = self.write(text)
        return (number for number in self.index.get(form, ()) if self.forms[number] == form)

    def similar(self, text: str) -> Iterator[int]:
        """All words at distance 1, and some at 2."""
        for short in shortened(self.write(text)):
            yield from self.index.get(short, ())

    def distances(self, text: str, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The fewest letters to put in, take out or change."""
        letters = self.letters[numbers]
        gaps = np.arange(letters.shape[1] + 1)
        row = np.tile(gaps, (len(numbers), 1))  # of the first 0, 1, 2, ... letters of each word
        for letter in self.write(text):
            paired = row[:, :-1] + (letters != ord(letter))
            row = row + 1
            np.minimum(row[:, 1:], paired, out=row[:, 1:])
            row = np.minimum.accumulate(row - gaps, axis=1) + gaps
        return row[np.arange(len(numbers)), self.lengths[numbers]]


def letters(word: str) -> str:
    """Without apostrophes, which nobody hears; never empty."""
    return word.replace("'", "") or word


def shortened(form: str) -> set[str]:
    """A form, and all that is left of it without one letter."""
    return {form, *(form[:n] + form[n + 1 :] for n in range(len(form)))}
