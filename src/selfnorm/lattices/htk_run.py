"""Many lines of an HTK lattice at once: nodes and arcs, those with the same fields together."""

import math
from typing import NamedTuple

import numpy as np

from selfnorm.fields import WIDE, Fields, Floats, Ids
from selfnorm.lattices.htk_fields import split
from selfnorm.lattices.htk_shape import Shape, finite, whole

MOST, FEW = 64, 32  # sets of names that are told apart, and lines for each of them on average

Names = tuple[bytes, ...]

QUOTES = np.frombuffer(b"'\"", np.uint8)  # a value that begins with one may hold blanks


class Run(NamedTuple):
    """The columns of some lines, one at least."""

    numbers: Ids
    ends: list[Ids]  # of arcs: S and E
    scores: list[Floats]  # of arcs: a, l, r; of nodes: t; nan where none is given: one that is given is finite
    words: list[bytes] | None
    others: list[list[bytes]]


def alone(values: tuple[bytes, ...], shape: Shape) -> Run:
    """One line as columns; the errors are sentences that do not say where."""
    number, *ends = (np.array([whole(values[place], shape.names[place])]) for place in (0, *shape.ends))
    scores = [finite(values[place], shape.names[place]) if place >= 0 else math.nan for place in shape.scores]
    words = None if shape.word < 0 else [values[shape.word]]
    return Run(number, ends, [np.array([score]) for score in scores], words, [[values[n]] for _, n in shape.others])


def alike(fields: Fields) -> list[tuple[Names, Ids]]:
    """The lines with the same names, those with the names of the first line first; a ValueError if that is hard."""
    found: list[tuple[Names, Ids]] = []
    left = np.arange(len(fields.counts))
    most = min(MOST, 1 + len(left) // FEW)
    while len(left):
        places = fields.firsts[left[0]] + np.arange(fields.counts[left[0]])
        names, _ = split(b" ".join(fields.texts(fields.begins[places], fields.lengths[places])))
        rows = left[fields.counts[left] == len(names)]
        for place, name in enumerate(names):
            start = np.frombuffer(name[: WIDE - 1] + b"=", np.uint8)
            rows = rows[(fields.windows(len(start))[fields.at(place, rows)[0]] == start).all(1)]
        if len(found) == most or left[0] not in rows[:1]:
            raise ValueError("too many sets of names, blanks in a value, or a name too long to be compared")
        found.append((names, rows))
        left = np.setdiff1d(left, rows, assume_unique=True)
    return found


def together(fields: Fields, rows: Ids, names: Names, shape: Shape) -> Run:
    """Lines with the same names as columns; a ValueError where one of them may have a wrong value."""
    values: list[tuple[Ids, Ids]] = []
    for place, name in enumerate(names):
        begins, lengths = fields.at(place, rows)
        values.append((begins + len(name) + 1, lengths - len(name) - 1))
    wholes = [fields.wholes(*values[place]) for place in (0, *shape.ends)]
    texts = [place for place in (shape.word, *(place for _, place in shape.others)) if place >= 0]
    quoted = [rows[np.isin(fields.windows(1)[values[place][0], 0], QUOTES)] for place in texts]
    if any((column < 0).any() for column in wholes) or not all(
        _is_split(fields, row, names) for some in quoted for row in some.tolist()
    ):
        raise ValueError("a number that is none, or blanks in a value")
    missing = np.full(len(rows), math.nan)
    scores = [_scores(fields, values[place], shape.names[place]) if place >= 0 else missing for place in shape.scores]
    found = {place: fields.texts(*values[place]) for place in texts}
    return Run(wholes[0], wholes[1:], scores, found.get(shape.word), [found[place] for _, place in shape.others])


def _is_split(fields: Fields, row: int, names: Names) -> bool:
    """Whether the blanks of a line part its fields, whatever quotes are in it."""
    places = fields.firsts[row] + np.arange(len(names))
    pairs = [text.split(b"=", 1) for text in fields.texts(fields.begins[places], fields.lengths[places])]
    return split(b" ".join(map(b"=".join, pairs))) == tuple(zip(*pairs))


def _scores(fields: Fields, where: tuple[Ids, Ids], name: str) -> Floats:
    begins, lengths = where
    values, others = fields.numbers(begins, lengths)
    values[others] = [finite(text, name) for text in fields.texts(begins[others], lengths[others])]
    return values
