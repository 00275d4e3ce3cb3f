"""Speed of a second pass: scores as they are, and normalized."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.rescoring import NEURAL, Rescorer, Setting

WEIGHT = 0.5  # of the new scores: a search between the first pass's and the network's


@dataclass(frozen=True)
class Pass:
    """All utterances once, read before."""

    scores: str
    utterances: int
    arcs: int
    seconds: float

    @property
    def arcs_per_second(self) -> float:
        return self.arcs / self.seconds


def passes(scorers: Mapping[str, Any], given: Sequence[Lattice | NBest], setting: Setting) -> Iterator[Pass]:
    """As the model gives them, and for a network that needs no normalization with log Z taken off."""
    yield _timed("as they are", scorers, given, setting)
    neural = scorers.get(NEURAL)
    if neural is not None and not neural.model.output.normalize:
        neural.normalized()
        yield _timed("normalized", scorers, given, setting)


def _timed(scores: str, scorers: Mapping[str, Any], given: Sequence[Lattice | NBest], setting: Setting) -> Pass:
    rescorer = Rescorer(dict(scorers), setting)
    list(rescorer.rescore(given[:1]))  # the warm-up
    begin = time.perf_counter()
    done = list(rescorer.rescore(given))
    return Pass(scores, len(done), sum(each.arcs for each in given), time.perf_counter() - begin)
