"""What lines of an HTK lattice with the same fields say, and where in the line."""

import math
from dataclasses import dataclass

from selfnorm.lattices import htk_fields as fields


@dataclass(frozen=True)
class Shape:
    """Lines with the same names: where in the line each field is; -1 for nowhere."""

    kind: str  # header, node or arc
    names: list[str]
    ends: tuple[int, ...]  # S and E
    scores: tuple[int, ...]  # of an arc: a, l, r; of a node: t
    word: int
    others: list[tuple[str, int]]  # what is kept as it is


def shape_of(names: tuple[bytes, ...], begun: bool) -> Shape:
    """What lines with these names are; `begun`: nodes have come, and only the header's own fields may still do so."""
    kind = {b"I": "node", b"J": "arc"}.get(names[0], "header")
    short = fields.canonical(kind, names)
    places = {name: place for place, name in enumerate(short)}
    if kind == "header":
        if begun and not fields.HEADER.issuperset(short):
            raise ValueError(f"the line starts with {short[0]}=, neither with I= for a node nor J= for an arc; mend it")
        return Shape(kind, short, (), (), -1, [])
    if kind == "node" and "L" in places:
        raise ValueError("L= of a node: sub-lattices are not read; expand them first, for example with HTK's HBuild -x")
    ends, scores = ("SE", "alr") if kind == "arc" else ("", "t")
    for name, where in zip(ends, ("comes from", "leads to")):
        if name not in places:
            raise ValueError(f"the arc has no {name}=, the node it {where}; mend the line")
    return Shape(
        kind,
        short,
        tuple(places[name] for name in ends),
        tuple(places.get(name, -1) for name in scores),
        places.get("W", -1),
        [(name, place) for name, place in places.items() if place and name not in (*ends, *scores, "W")],
    )


def whole(value: bytes, name: str) -> int:
    if not value.isdigit() or len(value) > 18:
        raise ValueError(f"{name}={fields.shown(value)} is no number from 0 on; mend it")
    return int(value)


def finite(value: bytes, name: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or b"_" in value:
        raise ValueError(f"{name}={fields.shown(value)} is no finite number; mend it or leave the field out")
    return number
