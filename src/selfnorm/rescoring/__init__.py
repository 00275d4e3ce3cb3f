"""The second pass: lattices and n-best lists with new language model scores, many at a time."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.registry import named
from selfnorm.rescoring.carry import carry_over
from selfnorm.rescoring.exact import exact
from selfnorm.rescoring.lists import NUMBER, tree
from selfnorm.rescoring.path_cover import path_cover
from selfnorm.rescoring.push_forward import Search, push_forward
from selfnorm.rescoring.setting import NEURAL, NGRAM, OLD, Rescored, Setting
from selfnorm.rescoring.whole import whole
from selfnorm.scorers import Neural, NGram
from selfnorm.scorers.banks import Bank, bank

WHOLE = Search(order=None, most=None, beam=float("inf"))  # a list is small: all of it is scored
BEST = 50  # paths of a lattice that are scored again where arcs have one score for all histories

Items = Iterable[Lattice | NBest]


@dataclass(frozen=True)
class Rescorer:
    """What scores, and how paths are found. `budget` bounds the words that go through the network at a time."""

    scorers: Mapping[str, Neural | NGram]  # by NEURAL, NGRAM, OLD
    setting: Setting = field(default_factory=Setting)
    algorithm: str = "auto"
    search: Search = field(default_factory=Search)
    keep: bool = False  # words that a scorer does not know keep the lattice's own score
    budget: int = 4096
    arcs: int = 500_000  # of the lattices that are worked on together

    def __post_init__(self) -> None:
        named("algorithm", ALGORITHMS, self.algorithm)

    def rescore(self, items: Items) -> Iterator[Rescored]:
        """In the order they came, with every scorer's scores on the arcs; lists as trees of prefixes."""
        for group in grouped(items, self.arcs):
            lattices = list(map(as_lattice, group))
            if self.scorers:
                yield from self._run(lattices, isinstance(group[0], NBest))
            else:
                yield from (Rescored(lattice, {}, lattice, np.arange(lattice.arcs)) for lattice in lattices)

    def carry_over(self, items: Items, speaker: Callable[[str], str]) -> Iterator[Rescored]:
        """Every utterance begins where the best path of its speaker's last one ended; in another order, then."""
        neural = self.scorers.get(NEURAL)
        if not isinstance(neural, Neural) or neural.histories != "streams":
            raise ValueError(
                "histories are carried over by a neural model that was trained on streams, and this one was not; "
                'train one with batches = { name = "streams" }'
            )
        every = list(items)
        search = WHOLE if all(isinstance(item, NBest) for item in every) else self.search
        return carry_over(map(as_lattice, every), speaker, self._banks(), self.setting, search, self.keep)

    @property
    def approximates(self) -> bool:
        """Whether an arc of a lattice has one score for all its histories."""
        return bool(self.scorers) and self._chosen == "path_cover"

    def settled(self, rescored: Rescored, setting: Setting, n: int = 0) -> Rescored:
        """What words are decided on: the given, or its best paths, at least n, scored again as whole sentences."""
        if not self.approximates or NUMBER in rescored.given.extra:  # in a tree every arc has one history
            return rescored
        return whole(rescored, self.scorers, setting, max(n, BEST), self.budget, self.keep)

    def _run(self, lattices: Sequence[Lattice], lists: bool) -> list[Rescored]:
        algorithm = self._chosen
        if lists and algorithm == "exact":
            algorithm = "nbest"  # which is, and keeps all hypotheses
        if algorithm == "nbest" and not lists:
            name = lattices[0].utterance
            raise ValueError(f"{name} is a lattice and the algorithm 'nbest' takes lists; choose another algorithm")
        return ALGORITHMS[algorithm](self, lattices, WHOLE if lists else self.search)

    @property
    def _chosen(self) -> str:
        if self.algorithm != "auto":
            return self.algorithm
        return "push_forward" if self._steps_well else "path_cover"

    @property
    def _steps_well(self) -> bool:
        """Whether a history's state is small: an LSTM's is, a Transformer's holds all words of the history."""
        neural = self.scorers.get(NEURAL)
        return not isinstance(neural, Neural) or neural.model.small_state

    def _banks(self) -> dict[str, Bank]:
        return {name: bank(scorer, self.budget) for name, scorer in self.scorers.items()}


def as_lattice(item: Lattice | NBest) -> Lattice:
    return tree(item) if isinstance(item, NBest) else item


def grouped(items: Items, arcs: int) -> Iterator[list[Lattice | NBest]]:
    """Lattices or lists next to each other, up to a number of arcs together."""
    group: list[Lattice | NBest] = []
    count = 0
    for item in items:
        if group and (count + item.arcs > arcs or isinstance(item, NBest) != isinstance(group[0], NBest)):
            yield group
            group, count = [], 0
        group.append(item)
        count += item.arcs
    if group:
        yield group


def _push_forward(rescorer: Rescorer, lattices: Sequence[Lattice], search: Search) -> list[Rescored]:
    return push_forward(lattices, rescorer._banks(), rescorer.setting, search, rescorer.keep)


def _path_cover(rescorer: Rescorer, lattices: Sequence[Lattice], _: Search) -> list[Rescored]:
    return path_cover(lattices, rescorer.scorers, rescorer.setting, rescorer.budget, rescorer.keep)


def _exact(rescorer: Rescorer, lattices: Sequence[Lattice], _: Search) -> list[Rescored]:
    return [exact(lattice, rescorer.scorers, rescorer.setting, rescorer.keep)[1] for lattice in lattices]


Algorithm = Callable[[Rescorer, Sequence[Lattice], Search], list[Rescored]]

ALGORITHMS: dict[str, Algorithm] = {
    "auto": _push_forward,
    "push_forward": _push_forward,
    "path_cover": _path_cover,
    "exact": _exact,
    "nbest": _push_forward,
}

__all__ = ["ALGORITHMS", "NEURAL", "NGRAM", "OLD", "Rescored", "Rescorer", "Search", "Setting"]
