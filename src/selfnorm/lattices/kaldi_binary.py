"""Kaldi's binary archives: a name, a blank, and the bytes of an OpenFst VectorFst, utterance after utterance.

All numbers are little-endian. Header: magic number, `vector`, the kind of arc (strings have their length before them),
version, flags, properties, start, number of nodes, number of arcs (0: a VectorFst leaves it out). Then node by node:
its final cost (infinite: it is not final), how many arcs leave it, and these: input, word, cost, target. A cost is two
numbers, graph and acoustic; in a CompactLattice also the length of an alignment, and its transition ids.
"""

import math
import re
import struct
from array import array
from io import BufferedReader
from typing import Any

import numpy as np

from selfnorm.lattices.kaldi_columns import FINAL, Columns
from selfnorm.lattices.lattice import Ids
from selfnorm.lattices.symbols import LARGEST, Symbols, shown, words_of

BLOCK = 1 << 20
MAGIC = struct.pack("<i", 2125659606)
VECTOR = MAGIC + struct.pack("<i", 6) + b"vector"
KALDI = b"\0B"  # which Kaldi writes before other binary objects; taken here too
NAME = 256  # bytes of an utterance's name
DAMAGED = "the file is damaged, copy it again"
ALIGNMENT = 1 << 20  # transition ids of an arc: hours of speech
EXPANDED = 0b11  # properties: an expanded, mutable FST; the others are left for the reader to find out
SYMBOLS = 0b11  # flags: tables of inputs and words follow the header

_KIND = re.compile(rb"(compact)?lattice([48])((?(1)[48]))")  # bytes of a cost, and of a transition id
_FLOATS = {b"4": "f", b"8": "d"}
_IDS = {b"": "", b"4": "i", b"8": "q"}
_COUNT, _TARGET, _LABELS = struct.Struct("<q"), struct.Struct("<i"), struct.Struct("<ii")
_REST = struct.Struct("<iiQqqq")  # version, flags, properties, start, nodes, arcs


def starts_binary(first: bytes) -> bool:
    """Whether an archive with these first bytes is binary."""
    behind = first.lstrip(b" \t\r\n").partition(b" ")[2]
    return behind.startswith((MAGIC, KALDI))


class Fault(Exception):  # noqa: N818  it carries a byte, not yet a sentence
    """What is wrong at a byte of the archive."""

    def __init__(self, byte: int, what: str) -> None:
        super().__init__(byte, what)
        self.byte, self.what = byte, what


class Stream:
    """Bytes with a place in them: `data[at:]` is what comes next, as much as `need` asked for and often more."""

    def __init__(self, file: BufferedReader) -> None:
        self.file, self.data, self.at = file, b"", 0
        self.before = 0  # bytes of the file before data

    @property
    def byte(self) -> int:
        return self.before + self.at

    def need(self, count: int) -> bool:
        """Read on until `count` bytes lie ahead; False where the file has not so many."""
        while len(self.data) - self.at < count:
            block = self.file.read1(BLOCK)
            if not block:
                return False
            self.before += self.at
            self.data, self.at = self.data[self.at :] + block, 0
        return True

    def ahead(self, count: int, what: str) -> None:
        """As `need`, where the file must have them."""
        if not self.need(count):
            end = self.before + len(self.data)
            self.at = len(self.data)
            raise Fault(end, f"the file ends within {what}; it is cut off, copy it again")

    def take(self, count: int, what: str) -> bytes:
        if self.at + count > len(self.data):
            self.ahead(count, what)
        self.at += count
        return self.data[self.at - count : self.at]

    def string(self, what: str) -> bytes:
        (length,) = struct.unpack("<i", self.take(4, what))
        if not 0 < length < 100:
            raise Fault(self.byte - 4, f"{what} has {length} bytes; this is no lattice of Kaldi, or it is damaged")
        return self.take(length, what)

    def name(self) -> str | None:
        """The name of the next utterance; None at the end of the file."""
        self.need(NAME)
        while self.data[self.at : self.at + 1] in (b"\n", b" ") and self.need(1):
            self.at += 1
        if not self.need(1):
            return None
        name, blank, _ = self.data[self.at : self.at + NAME].partition(b" ")
        if not blank or not _is_name(name):
            what = f"{shown(name)} is no name of an utterance, which has up to {NAME - 2} bytes"
            raise Fault(self.byte, f"{what}; shorten it, or copy the file again if it is damaged")
        self.at += len(name) + 1
        return name.decode()

    def skip(self) -> bool:
        """Go to the name before the next header; False where there is none."""
        while True:
            found = self.data.find(VECTOR, self.at)
            if found >= 0:
                before = self.data[self.at : found].removesuffix(KALDI)
                name = re.split(rb"[\0-\x20]", before.removesuffix(b" ")[-NAME:])[-1]
                if before.endswith(b" ") and _is_name(name):
                    self.at += len(before) - len(name) - 1
                    return True
                self.at = found + len(VECTOR)
                continue
            self.at = max(self.at, len(self.data) - NAME - len(VECTOR))
            if not self.need(len(self.data) - self.at + 1):
                return False


def _is_name(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return 0 < len(name) < NAME - 1 and min(name) > 32


class TooLarge(Exception):  # noqa: N818  the archive is whole: skip this utterance
    """An utterance has more arcs than the limit."""


def parse(stream: Stream, symbols: Symbols | None, max_arcs: int) -> Columns:
    """The utterance at the stream's place, behind its name; raises Fault or TooLarge."""
    if stream.need(2) and stream.data.startswith(KALDI, stream.at):
        stream.at += len(KALDI)
    place = stream.byte
    if stream.take(4, "the header") != MAGIC:
        raise Fault(place, "no lattice begins here (OpenFst's magic number is missing); the file is damaged")
    type = stream.string("the type of the FST")
    if type != b"vector":
        raise Fault(place, f"the FST is {shown(type)}, not 'vector'; convert it with fstconvert")
    kind = stream.string("the type of the arcs")
    match = _KIND.fullmatch(kind)
    if match is None:
        raise Fault(place, f"the arcs are {shown(kind)}, not those of a lattice (compactlattice44, lattice4)")
    floats, ids = _FLOATS[match[2]], _IDS[match[3]]
    _, flags, _, start, nodes, _ = _REST.unpack(stream.take(_REST.size, "the header"))
    if flags & SYMBOLS:
        raise Fault(place, "the lattice holds tables of symbols; clear them with fstsymbols, words.txt has them")
    if not 0 <= start < nodes <= LARGEST:
        raise Fault(place, f"the header says {nodes} nodes and start {start}; the lattice is empty or damaged")
    if nodes > max_arcs + 1:
        raise TooLarge
    rows = _Rows(match[1] is not None, floats, ids, nodes, max_arcs)
    rows.read(stream)
    if not rows.sources:
        raise Fault(place, "it has no arcs and no final node; the recogniser failed on it")
    try:
        words = words_of([b"%d" % word for word in sorted(set(rows.words))], symbols)
    except ValueError as error:
        raise Fault(place, str(error)) from None
    names = {int(field): word for field, word in words.items()}
    return Columns(
        rows.compact,
        start,
        np.array(rows.sources, np.int64),
        np.array(rows.targets, np.int64),
        [names[word] for word in rows.words],
        np.array(rows.graph, np.float64),
        np.array(rows.acoustic, np.float64),
        rows.labels(),
        rows.frames(),
    )


class _Rows:
    """The columns as they grow, so that no number of the file is believed before its bytes are there.

    They are arrays, and alignments stay bytes until all is read: what is too large is known in time and in little room.
    """

    def __init__(self, compact: bool, floats: str, ids: str, nodes: int, max_arcs: int) -> None:
        self.compact, self.ids, self.nodes, self.max_arcs = compact, ids, nodes, max_arcs
        self.width = struct.calcsize(f"<{ids}")
        self.final = struct.Struct("<" + 2 * floats + "i" * compact)
        self.arc = struct.Struct("<ii" + 2 * floats + "i" * compact + "i")
        self.sources, self.targets, self.words = array("q"), array("q"), array("q")
        self.graph, self.acoustic = array("d"), array("d")
        self.inputs: Any = [] if compact else array("q")  # alignments as bytes, or ids

    def read(self, stream: Stream) -> None:
        """All nodes with their arcs, in loops that call little: here a large lattice spends its time."""
        compact, final, arc, nodes, most = self.compact, self.final, self.arc, self.nodes, self.max_arcs + 1
        columns: list[Any] = [self.sources, self.targets, self.words, self.graph, self.acoustic, self.inputs]
        add = [column.append for column in columns]
        behind, count = _TARGET.size, 0
        for node in range(nodes):
            if len(stream.data) - stream.at < final.size:
                stream.ahead(final.size, "a node")
            graph, acoustic, *some = final.unpack_from(stream.data, stream.at)
            stream.at += final.size
            input = self._alignment(stream, some[0]) if some else 0
            (left,) = _COUNT.unpack(stream.take(_COUNT.size, "a node"))
            if left < 0:
                raise Fault(stream.byte - _COUNT.size, f"node {node} has {left} arcs; {DAMAGED}")
            if not graph == acoustic == math.inf:
                for append, value in zip(add, (node, FINAL, 0, graph, acoustic, input)):
                    append(value)
                count += 1
            count += left
            if count > most:
                raise TooLarge
            for _ in range(left):
                if len(stream.data) - stream.at < arc.size:
                    stream.ahead(arc.size, "an arc")
                stream.at += arc.size
                if compact:
                    input, word, graph, acoustic, length, target = arc.unpack_from(stream.data, stream.at - arc.size)
                    said = b""
                    if length:  # then what was read behind it was no target
                        stream.at -= behind
                        said = self._alignment(stream, length)
                        (target,) = _TARGET.unpack(stream.take(behind, "an arc"))
                else:
                    said, word, graph, acoustic, target = arc.unpack_from(stream.data, stream.at - arc.size)
                    input = said
                if not 0 <= target < nodes or word < 0 or input < 0:
                    wrong = f"leads to node {target} of {nodes} with input {input} and word {word}"
                    raise Fault(stream.byte - behind, f"an arc from node {node} {wrong}; {DAMAGED}")
                add[0](node)
                add[1](target)
                add[2](word)
                add[3](graph)
                add[4](acoustic)
                add[5](said)

    def _alignment(self, stream: Stream, length: int) -> bytes:
        if not 0 <= length <= ALIGNMENT:
            raise Fault(stream.byte - 4, f"an alignment has {length} transition ids; {DAMAGED}")
        return stream.take(length * self.width, "an alignment")

    def labels(self) -> list[str]:
        """Of each row, as text has them: one string for all rows with the same."""
        known = {input: self._label(input) for input in set(self.inputs)}
        return [known[input] for input in self.inputs]

    def _label(self, input: bytes | int) -> str:
        if isinstance(input, int):
            return str(input)
        return "_".join(map(str, struct.unpack(f"<{len(input) // self.width}{self.ids}", input)))

    def frames(self) -> Ids:
        if self.compact:
            return np.array([len(input) // self.width for input in self.inputs], np.int64)
        return (np.asarray(self.inputs) != 0).astype(np.int64)


def write(utterance: str, columns: Columns, symbols: Symbols) -> bytes:
    """One utterance as Kaldi's own holders write it, costs as 32-bit numbers."""
    costs = np.stack([columns.graph, columns.acoustic])
    if len(costs[0]) and np.abs(costs).max() > np.finfo(np.float32).max:
        raise ValueError("a score does not fit into a 32-bit number; write the archive as text")
    nodes = int(max(columns.sources.max(), columns.targets.max())) + 1
    arc_type = b"compactlattice44" if columns.compact else b"lattice4"
    pieces = [
        utterance.encode() + b" " + VECTOR,
        struct.pack("<i", len(arc_type)) + arc_type,
        _REST.pack(2, 0, EXPANDED, columns.start, nodes, 0),
    ]
    ids = {word: symbols.id(word) for word in set(columns.words)}
    arcs: list[list[bytes]] = [[] for _ in range(nodes)]
    final = [_cost(math.inf, math.inf, "", columns.compact)] * nodes
    lists = (columns.sources.tolist(), columns.targets.tolist(), columns.graph.tolist(), columns.acoustic.tolist())
    for source, target, graph, acoustic, word, label in zip(*lists, columns.words, columns.labels):
        cost = _cost(graph, acoustic, label, columns.compact)
        if target == FINAL:
            final[source] = cost
        else:
            id = ids[word]
            input = id if columns.compact else int(label)
            arcs[source].append(_LABELS.pack(input, id) + cost + _TARGET.pack(target))
    for node in range(nodes):
        pieces += [final[node], _COUNT.pack(len(arcs[node])), *arcs[node]]
    return b"".join(pieces)


def _cost(graph: float, acoustic: float, label: str, compact: bool) -> bytes:
    if not compact:
        return struct.pack("<ff", graph, acoustic)
    ids = [int(id) for id in label.split("_")] if label else []
    if ids and max(ids) > LARGEST:
        raise ValueError(f"the transition id {max(ids)} does not fit into 32 bits; write the archive as text")
    return struct.pack(f"<ffi{len(ids)}i", graph, acoustic, len(ids), *ids)
