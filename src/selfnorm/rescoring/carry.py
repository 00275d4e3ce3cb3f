"""Histories that go on from one utterance of a speaker to the next."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from selfnorm.lattices.lattice import Ids, Lattice
from selfnorm.lattices.paths import best, words_of
from selfnorm.rescoring.push_forward import Search, push_forward
from selfnorm.rescoring.setting import NEURAL, Rescored, Setting
from selfnorm.scorers.banks import Bank
from selfnorm.vocabulary import END

SPEAKERS = 64  # that are worked on together


def carry_over(
    lattices: Iterable[Lattice],
    speaker: Callable[[str], str],
    banks: dict[str, Bank],
    setting: Setting,
    search: Search,
    keep: bool,
) -> Iterator[Rescored]:
    """The utterances of each speaker in the order they came, all speakers' next ones together."""
    waiting: dict[str, deque[Lattice]] = {}
    for lattice in lattices:
        waiting.setdefault(speaker(lattice.utterance), deque()).append(lattice)
    last: dict[str, Ids] = {}  # rows of each speaker's history
    while waiting:
        every = list(waiting)
        for names in (every[first : first + SPEAKERS] for first in range(0, len(every), SPEAKERS)):
            turn = [waiting[name].popleft() for name in names]
            roots = np.stack([last.pop(name) if name in last else _start(banks) for name in names])
            done = push_forward(turn, banks, setting, search, keep, roots)
            yield from done
            said = [words_of(each.lattice, best(each.lattice, each.totals(setting)).arcs) for each in done]
            last.update(zip(names, _follow(banks, roots, said)))
        waiting = {name: queue for name, queue in waiting.items() if queue}


def _start(banks: Mapping[str, Bank]) -> Ids:
    return np.concatenate([bank.start(1) for bank in banks.values()])


def _follow(banks: Mapping[str, Bank], roots: Ids, said: Sequence[Sequence[str]]) -> Ids:
    """The rows after these words and `</s>`; those before them are given back. An n-gram starts afresh."""
    sentences = [(*words, END) for words in said]
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    number = {word: n for n, word in enumerate(words)}
    rows = []
    for column, (name, bank) in zip(roots.T, banks.items()):
        if name != NEURAL:
            bank.drop(column)
            rows.append(bank.start(len(said)))
            continue
        bank.tell(words)
        here = column.copy()
        for depth in range(max(map(len, sentences))):
            on = [row for row, sentence in enumerate(sentences) if len(sentence) > depth]
            after = bank.grow(here[on], np.array([number[sentences[row][depth]] for row in on]))
            bank.drop(here[on])
            here[on] = after
        rows.append(here)
    return np.stack(rows, 1)
