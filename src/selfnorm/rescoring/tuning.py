"""Scales, word penalty and mixture from development data, without the network: scores are kept, only sums change.

From every rescored lattice the best paths under a few settings are listed with the scores of their words and their
errors. What is made small is the expected number of errors when a path is drawn by its posterior, exp(total / t), at
the temperature t of the setting that the search starts from (`Setting.temperature`). The errors of the best paths alone
are a staircase on which settings win by luck; a t that is too large favours large scales, which sharpen the posterior.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import numpy.typing as npt

from selfnorm.lattices.lattice import Floats, Ids
from selfnorm.lattices.paths import n_best, words_of
from selfnorm.rescoring.setting import NEURAL, NGRAM, Rescored, Setting, Told
from selfnorm.wer import error_counts

PATHS = 100  # listed under each of the settings
STEPS = (0.4, 0.2, 0.1, 0.05)  # of the local search: of log scale, weights, penalties in units of the scale or of 10


@dataclass(frozen=True)
class Lists:
    """The listed paths of all utterances as columns, and the scores of their words as longer ones."""

    utterances: tuple[str, ...]
    first: Ids  # [utterances + 1] the paths of each
    steady: Floats  # [paths]
    lm: Floats  # [paths] the lattice's own
    length: Floats  # [paths] words
    errors: Floats  # [paths]
    begin: Ids  # [paths] where the words of each path begin
    scores: Mapping[str, Told]  # [words]
    temperature: float
    start: Setting  # that the search for better ones starts from

    @classmethod
    def of(cls, rescored: Sequence[Rescored], references: Mapping[str, Sequence[str]], setting: Setting) -> "Lists":
        rows: list[tuple[float, float, float, float]] = []
        first, begin = [0], [0]
        told: dict[str, list[Told]] = {name: [] for name in (rescored[0].scores if rescored else ())}
        for each in rescored:
            paths = [(arcs, words_of(each.lattice, arcs)) for arcs in _paths(each, setting)]
            said = list(dict.fromkeys(words for _, words in paths))
            known = dict(zip(said, error_counts([references[each.lattice.utterance]] * len(said), said).tolist()))
            steady, is_word, says = each.lattice.steady, each.lattice.is_word, each.says
            for arcs, words in paths:
                index = np.array(arcs, np.int64)
                events = index[says[index]]
                rows.append(
                    (steady[index].sum(), each.lattice.lm[index].sum(), float(is_word[index].sum()), known[words])
                )
                begin.append(begin[-1] + len(events))
                for name, parts in told.items():
                    parts.append(each.scores[name].of(events))
            first.append(len(rows))
        steadies, lms, lengths, errors = np.array(rows, np.float64).reshape(-1, 4).T
        start = _start(rescored, setting)
        names = tuple(each.lattice.utterance for each in rescored)
        scores = {name: Told(*map(np.concatenate, zip(*parts))) for name, parts in told.items()}
        temperature = start.temperature(rescored[0].lattice) if rescored else 1.0
        bounds = np.array(first), np.array(begin[:-1])
        return cls(names, bounds[0], steadies, lms, lengths, errors, bounds[1], scores, temperature, start)

    def totals(self, setting: Setting) -> Floats:
        """The score of each path; what the setting leaves to the header is the start's."""
        scale = self.start.lm_scale if setting.lm_scale is None else setting.lm_scale
        penalty = self.start.word_penalty if setting.word_penalty is None else setting.word_penalty
        assert scale is not None
        assert penalty is not None  # the start says both
        lm = self.lm
        if self.scores and setting.weight > 0:
            old = setting.old(self.scores)
            lm = setting.weigh(lm, self._sum(setting.new(self.scores)), None if old is None else self._sum(old))
        return self.steady + scale * lm + penalty * self.length

    def expected(self, setting: Setting) -> Floats:
        """The expected errors of each utterance."""
        totals = self.totals(setting) / self.temperature
        first, size = self.first[:-1], np.diff(self.first)
        mass = np.exp(totals - np.repeat(np.maximum.reduceat(totals, first), size))
        return np.add.reduceat(mass * self.errors, first) / np.add.reduceat(mass, first)

    def _sum(self, scores: Floats) -> Floats:
        return np.add.reduceat(scores, self.begin) if len(scores) else np.zeros(len(self.steady))

    @property
    def free(self) -> tuple[str, ...]:
        """What there is to choose: no scale where nothing is scaled, no mixture of one."""
        has_lm, has_new = bool(self.lm.any()), bool(self.scores)
        names = ["lm_scale"] if has_lm or has_new else []
        names += ["weight"] if has_lm and has_new else []
        names += ["ngram_weight"] if {NEURAL, NGRAM} <= self.scores.keys() else []
        names += ["unknown_penalty"] if any(told.unknown.any() for told in self.scores.values()) else []
        return (*names, "word_penalty")


def joined(parts: Sequence[Lists]) -> Lists:
    """The lists of utterances that follow one another, as if made of all at once."""
    paths = np.cumsum([0, *(len(part.steady) for part in parts)])
    words = np.cumsum([0, *(max((len(told.score) for told in part.scores.values()), default=0) for part in parts)])
    return replace(
        parts[0],
        utterances=tuple(name for part in parts for name in part.utterances),
        first=np.concatenate([[0], *(part.first[1:] + shift for part, shift in zip(parts, paths))]),
        steady=np.concatenate([part.steady for part in parts]),
        lm=np.concatenate([part.lm for part in parts]),
        length=np.concatenate([part.length for part in parts]),
        errors=np.concatenate([part.errors for part in parts]),
        begin=np.concatenate([part.begin + shift for part, shift in zip(parts, words)]),
        scores={
            name: Told(*map(np.concatenate, zip(*(part.scores[name] for part in parts)))) for name in parts[0].scores
        },
    )


def _paths(rescored: Rescored, setting: Setting) -> Iterator[tuple[int, ...]]:
    """The best paths with much, with some and without the new scores, each once."""
    seen: set[tuple[int, ...]] = set()
    weights = (setting.weight, 0.5, 0.0) if rescored.scores and rescored.lattice.lm.any() else (setting.weight,)
    for weight in weights:
        for path in n_best(rescored.lattice, PATHS, rescored.totals(replace(setting, weight=weight))):
            if path.arcs not in seen:
                seen.add(path.arcs)
                yield path.arcs


def _start(rescored: Sequence[Rescored], setting: Setting) -> Setting:
    """The setting with the numbers of the first header."""
    if not rescored:
        return replace(setting, lm_scale=setting.lm_scale or 1.0, word_penalty=setting.word_penalty or 0.0)
    lattice = rescored[0].lattice
    return replace(setting, lm_scale=setting.scale(lattice), word_penalty=setting.penalty(lattice))


def tune(lists: Lists, chosen: npt.NDArray[np.bool_] | None = None, grid: "Grid | None" = None) -> Setting:
    """The best setting on the chosen utterances: the best of a grid, then better neighbours of it."""
    chosen = np.ones(len(lists.utterances), bool) if chosen is None else chosen
    best, least = (grid or Grid(lists)).best(chosen)
    for step in STEPS:
        moved = True
        while moved:
            moved = False
            for setting in _neighbours(best, lists.free, step):
                errors = float(lists.expected(setting)[chosen].sum())
                if errors < least - 1e-6:
                    best, least, moved = setting, errors, True
    return best


class Grid:
    """The expected errors of every utterance under every setting of a grid: folds share it."""

    def __init__(self, lists: Lists) -> None:
        start = lists.start
        scale = max(start.lm_scale or 0.0, 1e-3)
        axes = {
            "lm_scale": [scale * factor for factor in (0.125, 0.25, 0.5, 0.75, 1.0, 1.5)],
            "weight": [0.25, 0.5, 1.0],
            "ngram_weight": [0.0, 0.2, 0.5],
            "unknown_penalty": [-10.0, -5.0, 0.0],
            "word_penalty": [scale * factor for factor in (-1.0, -0.5, -0.1, 0.0, 0.25, 0.5, 1.0, 1.5, 2.0)],
        }
        free = lists.free
        self.settings = [
            start,
            *(replace(start, **dict(zip(free, values))) for values in product(*(axes[name] for name in free))),
        ]
        self.errors = np.stack([lists.expected(setting) for setting in self.settings])  # [settings, utterances]

    def best(self, chosen: npt.NDArray[np.bool_]) -> tuple[Setting, float]:
        errors = self.errors[:, chosen].sum(1)
        first = int(errors.argmin())
        return self.settings[first], float(errors[first])


def _neighbours(setting: Setting, free: Sequence[str], step: float) -> Iterator[Setting]:
    scale = setting.lm_scale or 0.0
    for name in free:
        for way in (-step, step):
            if name == "lm_scale":
                yield replace(setting, lm_scale=scale * math.exp(way))
            elif name == "word_penalty":
                yield replace(setting, word_penalty=(setting.word_penalty or 0.0) + way * max(scale, 0.1))
            elif name == "unknown_penalty":
                yield replace(setting, unknown_penalty=setting.unknown_penalty + 10 * way)
            else:
                yield replace(setting, **{name: float(np.clip(getattr(setting, name) + way, 0, 1))})


def cross_validate(lists: Lists, folds: int) -> tuple[Setting, list[Setting], Ids]:
    """The setting tuned on all; for each fold the one tuned on all others; the fold of each utterance, by its name."""
    if not 2 <= folds <= len(lists.utterances):
        raise ValueError(
            f"{folds} folds of {len(lists.utterances)} utterances were asked for; choose from 2 to their number"
        )
    order = sorted(range(len(lists.utterances)), key=lambda n: _shuffled(lists.utterances[n]))
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) % folds
    grid = Grid(lists)
    return tune(lists, None, grid), [tune(lists, fold != n, grid) for n in range(folds)], fold


def _shuffled(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
