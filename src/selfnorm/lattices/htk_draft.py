"""An HTK lattice while it is read: its lines in any order, many at once where they are alike, each of them checked."""

from array import array

import numpy as np
import numpy.typing as npt

from selfnorm.fields import Fields
from selfnorm.lattices import htk_fields as fields
from selfnorm.lattices.htk_run import Run, alike, alone, together
from selfnorm.lattices.htk_shape import Shape, shape_of, whole
from selfnorm.lattices.packed import Lines

MOST_NAMES = 1000  # of fields in a header, of lines that differ in their fields
MOST_OTHERS = 50  # columns that are kept as they are
MOST_LABELS = 100_000  # labels held once; where a column is of numbers, all differ

MANY = 32  # lines that are worth being looked at together
Labels = dict[bytes, str]
COUNTED = {"N": "nodes", "L": "arcs"}


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
        self.values: dict[bytes, bytes] = {}  # words and labels are held once
        self.labels: dict[bytes, str] = {}

    def take(self, lines: Lines) -> None:
        """Take lines that begin alike: at once if nothing is odd, else in halves, the last of them one by one."""
        if lines.text[:2] in (b"I=", b"J=") and lines.count >= MANY:
            if not self._is_kept(lines.text):
                for half in lines.halves():
                    self.take(half)
            return
        for number, line in lines:
            try:
                self._add(line)
            except ValueError as error:
                raise ValueError(f"{lines.path}:{number}: {error}") from None

    def _add(self, line: bytes) -> None:
        if line.lstrip()[:1] in (b"#", b""):
            if not self.node_ids and b"sphinx" in line.lower():
                self.on_source = True
            return
        names, values = fields.split(line)
        shape = self.shapes.get(names) or self._new_shape(names)
        if shape.kind == "header":
            self._header(shape.names, values)
            return
        for name, declared in (("N", self.nodes), ("L", self.arcs)):
            if declared < 0:
                raise ValueError(f"the header has no {name}=, how many {COUNTED[name]} follow; add it there")
        run = alone(values, shape)
        self._keep(shape, run, self._checked(shape, run))

    def _is_kept(self, text: bytes) -> bool:
        """Whether nothing is wrong with these lines, as far as can be seen at once; then they are kept."""
        checked: list[tuple[Shape, Run, Labels]] = []
        try:
            text.decode()
            if min(self.nodes, self.arcs) < 0:
                return False
            columns = Fields(text)
            for names, rows in alike(columns):
                shape = self.shapes.get(names) or self._new_shape(names)
                run = together(columns, rows, names, shape)
                checked.append((shape, run, self._checked(shape, run)))
        except ValueError:
            for shape, run, _ in checked:
                self._seen(shape)[run.numbers] = 0
            return False
        for shape, run, labels in checked:
            self._keep(shape, run, labels)
        return True

    def _new_shape(self, names: tuple[bytes, ...]) -> Shape:
        if len(self.shapes) >= MOST_NAMES:
            raise ValueError(f"this is the {MOST_NAMES}th set of fields in a line; no HTK lattice has so many")
        shape = shape_of(names, bool(self.node_ids))
        others = self.others if shape.kind == "arc" else self.node_others
        for name, _ in shape.others:
            if name not in others and len(others) >= MOST_OTHERS:
                raise ValueError(f"{name}= is one field too many; no HTK lattice has over {MOST_OTHERS}")
            others.setdefault(name, [] if shape.kind == "arc" else {})  # type: ignore[arg-type]
        self.shapes[names] = shape  # only now: lines are looked at again where something is wrong with them
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

    def _seen(self, shape: Shape) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.seen_nodes if shape.kind == "node" else self.seen_arcs, np.uint8)

    def _keep(self, shape: Shape, run: Run, known: Labels) -> None:
        """Nodes or arcs that were checked."""
        numbers = run.numbers.tolist()
        words = [None] * len(numbers) if run.words is None else [self.values.setdefault(w, w) for w in run.words]
        others = [(name, map(known.__getitem__, column)) for (name, _), column in zip(shape.others, run.others)]
        if shape.kind == "node":
            self.node_ids.extend(numbers)
            self.node_words += words
            self.times.frombytes(run.scores[0].tobytes())
            for name, labels in others:
                self.node_others[name].update(zip(numbers, labels))
            return
        for name, labels in others:
            column = self.others[name]
            column.extend([""] * (len(self.arc_ids) - len(column)))  # arcs so far that had no such field
            column.extend(labels)
        self.arc_ids.extend(numbers)
        self.arc_words += words
        for ends, found in zip((self.sources, self.targets), run.ends):
            ends.frombytes(found.tobytes())
        for score, values in zip(self.scores, run.scores):
            score.frombytes(values.tobytes())

    def _checked(self, shape: Shape, run: Run) -> Labels:
        """Nodes or arcs with the numbers that the header declares, each once; where one is wrong, none of them."""
        name, declared = ("I", "N") if shape.kind == "node" else ("J", "L")
        seen = self._seen(shape)
        if (number := int(run.numbers.max())) >= len(seen):
            raise ValueError(
                f"{name}={number}, but the header declares {declared}={len(seen)} {COUNTED[declared]}, counted from 0; "
                "the file is damaged or its header is wrong"
            )
        if seen[run.numbers].any() or len(np.unique(run.numbers)) < len(run.numbers):
            raise ValueError(
                f"{name}={number} was on an earlier line too; give each of the {COUNTED[declared]} one line"
            )
        if run.ends and max(ends.max() for ends in run.ends) >= self.nodes:
            source, target = (int(ends[0]) for ends in run.ends)
            raise ValueError(
                f"arc {number} leads from node {source} to node {target}, but the header declares N={self.nodes}; "
                "the file is damaged or its header is wrong"
            )
        labels = {value: self._label(value) for column in run.others for value in set(column)}
        seen[run.numbers] = 1  # only now: nothing is wrong with them
        return labels

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


def _limit(max_arcs: int) -> str:
    return f"the {max_arcs:,} arcs that are allowed; prune the lattice or raise --max-arcs"
