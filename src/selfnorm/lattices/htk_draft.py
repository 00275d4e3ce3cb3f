"""An HTK lattice while it is read: its lines in any order, checked one by one."""

import math
import re
from array import array
from dataclasses import dataclass

from selfnorm.lattices import htk_fields as fields

MOST_NAMES = 1000  # of fields in a header, of lines that differ in their fields
MOST_OTHERS = 50  # columns that are kept as they are
MOST_LABELS = 100_000  # labels held once; where a column is of numbers, all differ

COUNTED = {"N": "nodes", "L": "arcs"}
MISSING = math.nan  # a score or time that is not given; one that is given is finite


@dataclass(frozen=True)
class Shape:
    """Lines with the same names: where in the line each field is; -1 for nowhere."""

    kind: str  # header, node or arc
    names: list[str]
    pattern: re.Pattern[bytes] | None  # of ordinary lines of this shape, whose numbers need no further look
    ends: tuple[int, ...]  # S and E
    scores: tuple[int, ...]  # of an arc: a, l, r; of a node: t
    word: int
    others: list[tuple[str, int]]  # what is kept as it is


class Draft:
    """What the file has said so far."""

    def __init__(self, max_arcs: int) -> None:
        self.max_arcs = max_arcs
        self.header: dict[str, str] = {}
        self.on_source = False  # pocketsphinx: an arc's word is on the node it comes from
        self.nodes = self.arcs = -1  # as declared
        self.seen_nodes, self.seen_arcs = bytearray(), bytearray()
        self.node_ids, self.arc_ids = array("q"), array("q")
        self.times = array("d")
        self.sources, self.targets = array("q"), array("q")
        self.scores = (array("d"), array("d"), array("d"))  # a, l, r
        self.node_words: list[bytes | None] = []
        self.arc_words: list[bytes | None] = []
        self.node_others: dict[str, dict[int, str]] = {}
        self.others: dict[str, list[str]] = {}
        self.shapes: dict[tuple[bytes, ...], Shape] = {}
        self.last: Shape | None = None
        self.values: dict[bytes, bytes] = {}  # words and labels are held once
        self.labels: dict[bytes, str] = {}

    def add(self, line: bytes) -> None:
        """Take a line; the errors are sentences that do not say where."""
        if not line:
            return
        last = self.last
        if last is not None and (match := last.pattern.fullmatch(line)):  # type: ignore[union-attr]
            self._take(last, match.groups())
        elif line.lstrip()[:1] in (b"#", b""):
            if not self.node_ids and b"sphinx" in line.lower():
                self.on_source = True
        else:
            names, values = fields.split(line)
            shape = self.shapes.get(names) or self._new_shape(names)
            if shape.kind == "header":
                self._header(shape.names, values)
            else:
                for name, declared in (("N", self.nodes), ("L", self.arcs)):
                    if declared < 0:
                        raise ValueError(f"the header has no {name}=, how many {COUNTED[name]} follow; add it there")
                _check_numbers(shape, values)
                self.last = shape
                self._take(shape, values)

    def _new_shape(self, names: tuple[bytes, ...]) -> Shape:
        if len(self.shapes) >= MOST_NAMES:
            raise ValueError(f"this is the {MOST_NAMES}th set of fields in a line; no HTK lattice has so many")
        shape = self.shapes[names] = shape_of(names, bool(self.node_ids))
        others = self.others if shape.kind == "arc" else self.node_others
        for name, _ in shape.others:
            others.setdefault(name, [] if shape.kind == "arc" else {})  # type: ignore[arg-type]
            if len(others) > MOST_OTHERS:
                raise ValueError(f"{name}= is one field too many; no HTK lattice has over {MOST_OTHERS}")
        return shape

    def _header(self, names: list[str], values: tuple[bytes, ...]) -> None:
        for name, value in zip(names, values):
            if name == "SUBLAT":
                raise ValueError("sub-lattices are not read; expand them first, for example with HTK's HBuild -x")
            if name in self.header:
                raise ValueError(f"the field {name}= was in the header before; keep one, a file has one lattice")
            if len(self.header) >= MOST_NAMES:
                raise ValueError(f"the header has over {MOST_NAMES} fields; this is no HTK lattice")
            self.header[name] = fields.utterance(value) if name == "UTTERANCE" else self._label(value)
            if name == "N":
                self.nodes = whole(value, name)
                if not self.nodes:
                    raise ValueError("N=0: the lattice has no nodes; make it again or leave the file out")
                if self.nodes > self.max_arcs + 1:
                    raise ValueError(f"N={self.nodes} nodes have more than {_limit(self.max_arcs)}")
                self.seen_nodes = bytearray(self.nodes)
            if name == "L":
                self.arcs = whole(value, name)
                if self.arcs > self.max_arcs:
                    raise ValueError(f"L={self.arcs} is more than {_limit(self.max_arcs)}")
                self.seen_arcs = bytearray(self.arcs)

    def _take(self, shape: Shape, values: tuple[bytes, ...]) -> None:
        """A node or an arc whose numbers are numbers."""
        number = int(values[0])
        if shape.kind == "node":
            self._number_once(number, "I", self.seen_nodes, "N")
            self.node_ids.append(number)
            self.node_words.append(self._value(values[shape.word]) if shape.word >= 0 else None)
            time = shape.scores[0]
            self.times.append(float(values[time]) if time >= 0 else MISSING)
            for name, place in shape.others:
                self.node_others[name][number] = self._label(values[place])
            return
        self._number_once(number, "J", self.seen_arcs, "L")
        ends = int(values[shape.ends[0]]), int(values[shape.ends[1]])
        if max(ends) >= self.nodes:
            raise ValueError(
                f"arc {number} leads from node {ends[0]} to node {ends[1]}, but the header declares N={self.nodes}; "
                "the file is damaged or its header is wrong"
            )
        for name, place in shape.others:
            column = self.others[name]
            if len(column) < len(self.arc_ids):
                column.extend([""] * (len(self.arc_ids) - len(column)))
            column.append(self._label(values[place]))
        self.arc_ids.append(number)
        self.sources.append(ends[0])
        self.targets.append(ends[1])
        for score, place in zip(self.scores, shape.scores):
            score.append(float(values[place]) if place >= 0 else MISSING)
        self.arc_words.append(self._value(values[shape.word]) if shape.word >= 0 else None)

    def _number_once(self, number: int, name: str, seen: bytearray, declared: str) -> None:
        if number >= len(seen):
            raise ValueError(
                f"{name}={number}, but the header declares {declared}={len(seen)} {COUNTED[declared]}, counted from 0; "
                "the file is damaged or its header is wrong"
            )
        if seen[number]:
            raise ValueError(
                f"{name}={number} was on an earlier line too; give each of the {COUNTED[declared]} one line"
            )
        seen[number] = 1

    def _value(self, value: bytes) -> bytes:
        return self.values.setdefault(value, value)

    def _label(self, value: bytes) -> str:
        text = self.labels.get(value)
        if text is None:
            text = fields.label(value)
            if len(self.labels) < MOST_LABELS:
                self.labels[value] = text
        return text

    def check_complete(self) -> None:
        """Whether all came that the header promised."""
        if self.nodes < 0 or self.arcs < 0:
            raise ValueError("the header does not end with N= and L=; this is no HTK lattice, or it was cut off")
        for name, seen in (("N", self.seen_nodes), ("L", self.seen_arcs)):
            if (first := seen.find(0)) >= 0:
                raise ValueError(
                    f"of {name}={len(seen)} {COUNTED[name]} that the header declares {seen.count(0)} are missing, "
                    f"number {first} the first; the file is cut off or its header is wrong"
                )


def shape_of(names: tuple[bytes, ...], begun: bool) -> Shape:
    """What lines with these names are; `begun`: nodes have come, and only the header's own fields may still do so."""
    kind = {b"I": "node", b"J": "arc"}.get(names[0], "header")
    short = fields.canonical(kind, names)
    places = {name: place for place, name in enumerate(short)}
    if kind == "header":
        if begun and not fields.HEADER.issuperset(short):
            raise ValueError(f"the line starts with {short[0]}=, neither with I= for a node nor J= for an arc; mend it")
        return Shape(kind, short, None, (), (), -1, [])
    if kind == "node" and "L" in places:
        raise ValueError("L= of a node: sub-lattices are not read; expand them first, for example with HTK's HBuild -x")
    ends, scores = ("SE", "alr") if kind == "arc" else ("", "t")
    for name, where in zip(ends, ("comes from", "leads to")):
        if name not in places:
            raise ValueError(f"the arc has no {name}=, the node it {where}; mend the line")
    forms = [
        _WHOLE if not place or name in ends else _SCORE if name in scores else _PLAIN
        for place, name in enumerate(short)
    ]
    return Shape(
        kind,
        short,
        re.compile(rb"\s+".join(re.escape(name) + b"=" + form for name, form in zip(names, forms)) + rb"\s*"),
        tuple(places[name] for name in ends),
        tuple(places.get(name, -1) for name in scores),
        places.get("W", -1),
        [(name, place) for name, place in places.items() if place and name not in (*ends, *scores, "W")],
    )


# A number of 30 digits is finite; a value without quotes ends at white space.
_WHOLE, _SCORE, _PLAIN = rb"(\d{1,18})", rb"(-?\d{1,15}(?:\.\d{0,30})?)", rb"((?!['\"])\S*+)"


def _check_numbers(shape: Shape, values: tuple[bytes, ...]) -> None:
    for place in (0, *shape.ends):
        whole(values[place], shape.names[place])
    for place in shape.scores:
        if place >= 0:
            finite(values[place], shape.names[place])


def _limit(max_arcs: int) -> str:
    return f"the {max_arcs:,} arcs that are allowed; prune the lattice or raise --max-arcs"


def whole(value: bytes, name: str) -> int:
    if not value.isdigit() or len(value) > 18:
        raise ValueError(f"{name}={fields.shown(value)} is no number from 0 on; mend it")
    return int(value)


def finite(value: bytes, name: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = MISSING
    if not math.isfinite(number) or b"_" in value:
        raise ValueError(f"{name}={fields.shown(value)} is no finite number; mend it or leave the field out")
    return number
