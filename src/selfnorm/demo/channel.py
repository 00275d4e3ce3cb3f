"""A noisy channel: from a sentence to the lattice that a recogniser might have made of hearing it, without any audio.

A span of letters is a word of the sentence, two neighbours said as one, or the half of a word that was cut in two; the
words of the vocabulary that are spelled or sound like it are what may have been heard there. Each of them gets

    acoustic = - edit * distance + noise * chance,    chance from a normal distribution, drawn for each span and word

where a boundary put in or left out is part of the distance. So the truth is most often, but not always, the best by
sound; the best few of every span stay. The first pass's bigram is exact on every arc, since a node knows the word that
leads to it, and `</s>` has arcs of its own. Paths far behind the best one are cut off. A word that the vocabulary does
not have is in no lattice. Time goes by the letters, and at some places between words there is silence.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from selfnorm.demo.confusions import Confusions, Near
from selfnorm.lattices.lattice import SILENT, Lattice, Scales, assemble
from selfnorm.lattices.paths import prune
from selfnorm.scorers import NGram
from selfnorm.vocabulary import END, START

LETTER, PAUSE = 0.07, 0.25  # seconds
BETWEEN = 0.15  # of the places between words have silence
FAR, JOINED = 2.0, 1.0  # the largest distance of what is heard for a word, and for two that are taken for one
LONGEST = 12  # letters of two words that may be taken for one


@dataclass(frozen=True)
class Noise:
    """How bad the line is: with the defaults, about one word in five is wrong after the first pass."""

    edit: float = 10.0  # nats that a distance of one costs
    noise: float = 5.5  # nats, the standard deviation of what chance adds
    most: int = 10  # words for a span
    beam: float = 36.0  # nats behind the best path
    lm_scale: float = 3.0  # of the first pass, in the header of every lattice; there is no word penalty
    seed: int = 0


class Heard(NamedTuple):
    """A word that may have been said from one letter of the sentence to another."""

    begin: int
    end: int
    word: str
    acoustic: float


class Channel:
    """What one utterance gets by chance depends on its name and the seed alone."""

    def __init__(self, confusions: Confusions, bigram: NGram, noise: Noise = Noise()) -> None:  # noqa: B008  frozen
        if bigram.order != 2:
            raise ValueError(f"the first pass has a model of order {bigram.order}; give the channel a bigram")
        self.confusions, self.bigram, self.noise = confusions, bigram, noise

    def lattice(self, utterance: str, sentence: Sequence[str]) -> Lattice:
        if not sentence:
            raise ValueError(f"utterance {utterance}: nothing is said in it; give it a word")
        chance = np.random.default_rng([self.noise.seed, zlib.crc32(utterance.encode())])
        ends = np.cumsum([0, *map(len, sentence)])
        between = chance.random(len(ends)) < BETWEEN
        between[[0, -1]] = True
        draft = Draft(ends[between].tolist())
        draft.grow(list(self.hear(sentence, chance)))
        return prune(self._assembled(utterance, draft), self.noise.beam)

    def hear(self, sentence: Sequence[str], chance: np.random.Generator) -> Iterator[Heard]:
        """The words that may have been heard, span by span."""
        place = 0
        for word, following in zip(sentence, [*sentence[1:], ""]):
            end = place + len(word)
            near = self.confusions.near(word, FAR) or self.confusions.nearest(word, self.noise.most)
            yield from self._best(place, end, near, 0.0, chance)
            for cut in range(1, len(word)):
                first, second = map(self.confusions.alike, (word[:cut], word[cut:]))
                if first and second:
                    yield from self._best(place, place + cut, first, 0.5, chance)
                    yield from self._best(place + cut, end, second, 0.5, chance)
            if following and len(both := word + following) <= LONGEST:
                yield from self._best(place, place + len(both), self.confusions.near(both, JOINED), 1.0, chance)
            place = end

    def _best(self, begin: int, end: int, near: Near, gaps: float, chance: np.random.Generator) -> list[Heard]:
        """The best few by sound; `gaps` are the boundaries put in or left out, those of two halves shared by them."""
        luck = self.noise.noise * chance.standard_normal(len(near))
        scores = [luck - self.noise.edit * (distance + gaps) for (_, distance), luck in zip(near, luck.tolist())]
        heard = [Heard(begin, end, word, score) for (word, _), score in zip(near, scores)]
        return sorted(heard, key=lambda each: -each.acoustic)[: self.noise.most]

    def _assembled(self, utterance: str, draft: "Draft") -> Lattice:
        said = [arc for arc, word in enumerate(draft.words) if word != SILENT]
        lm = np.zeros(len(draft.words))
        lm[said] = self._bigrams([(draft.last[draft.sources[arc]], draft.words[arc]) for arc in said])
        return assemble(
            utterance,
            nodes=len(draft.last),
            start=0,
            end=len(draft.last) - 1,
            sources=draft.sources,
            targets=draft.targets,
            words=draft.words,
            acoustic=draft.acoustic,
            lm=lm,
            times=draft.times,
            scales=Scales(lm=self.noise.lm_scale),
        )

    def _bigrams(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        """ln P(word | the one before) of each pair."""
        start = self.bigram.start()
        before = sorted({before for before, _ in pairs} - {START})
        states = dict(zip(before, self.bigram.advance([start] * len(before), before)[1])) | {START: start}
        scores, _ = self.bigram.advance([states[before] for before, _ in pairs], [word for _, word in pairs])
        return scores.numpy()


class Draft:
    """The arcs of a lattice whose nodes know a place in the sentence and the word that leads to them."""

    def __init__(self, silent: list[int]) -> None:
        self.silent = silent  # places with silence, in order
        self.sources: list[int] = []
        self.targets: list[int] = []
        self.words: list[str] = []
        self.acoustic: list[float] = []
        self.last = [START]  # [nodes] the word that leads there
        self.times = [0.0]

    def grow(self, heard: Sequence[Heard]) -> None:
        """All paths through what was heard, each up to `</s>`."""
        leaving: dict[int, list[Heard]] = {}
        arrived: dict[int, dict[str, int]] = {0: {START: 0}}  # place -> word -> node
        for each in heard:
            leaving.setdefault(each.begin, []).append(each)
            arrived.setdefault(each.end, {})
        for place in sorted(arrived):
            here = arrived[place]
            if place in self.silent:
                after = {word: self._node(word, place, after=True) for word in here}
                for word, node in here.items():
                    self._arc(node, after[word], SILENT)
                here = after
            for each in leaving.get(place, ()):
                there = arrived[each.end]
                if each.word not in there:
                    there[each.word] = self._node(each.word, each.end)
                for node in here.values():
                    self._arc(node, there[each.word], each.word, each.acoustic)
        end = self._node(END, place, after=True)
        for node in here.values():
            self._arc(node, end, END)

    def _node(self, word: str, place: int, after: bool = False) -> int:
        """A new node, before the silence at its place or `after` it."""
        pauses = (bisect_right if after else bisect_left)(self.silent, place)
        self.last.append(word)
        self.times.append(round(LETTER * place + PAUSE * pauses, 2))
        return len(self.last) - 1

    def _arc(self, source: int, target: int, word: str, acoustic: float = 0.0) -> None:
        self.sources.append(source)
        self.targets.append(target)
        self.words.append(word)
        self.acoustic.append(acoustic)
