"""A lattice in a few numbers: its size, how dense it is, its best path, and how near it comes to a reference."""

from collections.abc import Sequence
from dataclasses import dataclass

from selfnorm.lattices.lattice import SILENT, Lattice
from selfnorm.lattices.oracle import oracle
from selfnorm.lattices.paths import best, words_of
from selfnorm.vocabulary import END
from selfnorm.wer import Errors, count


@dataclass(frozen=True)
class Heard:
    """The words of a path; how many errors they have is known with a reference only."""

    words: tuple[str, ...]
    score: float  # at the lattice's scales
    errors: Errors | None = None


@dataclass(frozen=True)
class Summary:
    utterance: str
    nodes: int
    arcs: int
    words: int  # different ones, on all arcs
    seconds: float | None
    best: Heard
    nearest: Heard | None  # to the reference
    notes: tuple[str, ...]

    @property
    def arcs_per_second(self) -> float | None:
        return self.arcs / self.seconds if self.seconds else None

    @property
    def arcs_per_word(self) -> float | None:
        """Arcs for each word of the best path."""
        return self.arcs / len(self.best.words) if self.best.words else None


def summarize(lattice: Lattice, reference: Sequence[str] | None = None) -> Summary:
    """With a reference also the errors of the best path and of the one nearest to it."""
    first = best(lattice)
    words = words_of(lattice, first.arcs)
    nearest = None
    if reference is not None:
        found = oracle(lattice, reference)
        nearest = Heard(found.words, float(lattice.total()[list(found.arcs)].sum()), found.errors)
    return Summary(
        lattice.utterance,
        lattice.nodes,
        lattice.arcs,
        len(set(lattice.words) - {SILENT, END}),
        None if lattice.times is None else float(lattice.times[-1] - lattice.times[0]),
        Heard(words, first.score, None if reference is None else count(reference, words)),
        nearest,
        lattice.notes,
    )
