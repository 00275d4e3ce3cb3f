"""Kaldi's text archives: a line with the utterance's name, its arcs and final costs, an empty line.

A CompactLattice's arc is `source target word graph,acoustic,alignment`, a Lattice's `source target input word
graph,acoustic`; a final cost is `node` and the same costs. Costs of 0 may be left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader, BytesIO

import numpy as np

from selfnorm.lattices.kaldi_columns import FINAL, NO_INPUT, Columns
from selfnorm.lattices.lattice import SILENT, Floats, Ids
from selfnorm.lattices.packed import LONGEST
from selfnorm.lattices.symbols import EPSILON, LARGEST, Symbols, shown, words_of
from selfnorm.vocabulary import BOM

BLOCK = 1 << 20
CHUNK = 1 << 22  # bytes of one utterance turned into columns at a time: the pieces of a line are many small objects
NAME = 256  # bytes of an utterance's name

_EMPTY_LINE = re.compile(rb"\n[ \t\r]*\n")
_COMPACT_COSTS = re.compile(rb"[^,]+,[^,]+,[0-9_]*")
_ALIGNMENT = re.compile(rb"[0-9]+(?:_[0-9]+)*")


class Fault(Exception):  # noqa: N818  it carries a line, not yet a sentence
    """What is wrong on a line of an utterance, and what to do."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(line, what)
        self.line, self.what = line, what


@dataclass(frozen=True)
class Stretch:
    """The lines of one utterance, or what keeps them from being read."""

    line: int  # of the file, where it begins
    data: bytes  # whole lines; with a fault, only the first of them
    fault: str | None = None


def stretches(file: BufferedReader, max_arcs: int) -> Iterator[Stretch]:
    """Cut an archive at its empty lines. What is too long is counted, not kept: bytes are cheap, objects are not."""
    utterance = _Growing(1, max_arcs)
    carry = file.read(len(BOM)).removeprefix(BOM)
    while block := file.read1(BLOCK):
        block = carry + block
        cut = block.rfind(b"\n") + 1
        if not cut and len(block) > LONGEST:
            utterance.fault = f"has a line longer than {LONGEST:,} bytes; its line ends are lost, or this is no lattice"
            utterance.add(block[:NAME])
            carry = b""
            continue
        carry = block[cut:]
        begin = 0
        for match in _EMPTY_LINE.finditer(b"\n" + block[:cut]):
            end = match.end() - 1
            utterance.add(block[begin:end])
            yield from utterance.stretch()
            utterance = _Growing(utterance.line + utterance.lines, max_arcs)
            begin = end
        utterance.add(block[begin:cut])
    utterance.add(carry)
    yield from utterance.stretch()


class _Growing:
    """One utterance as its bytes come in."""

    def __init__(self, line: int, max_arcs: int) -> None:
        self.line, self.max_arcs = line, max_arcs
        self.lines = 0
        self.pieces: list[bytes] = []
        self.fault: str | None = None

    def add(self, piece: bytes) -> None:
        self.lines += piece.count(b"\n")
        if self.fault is None and self.lines - 2 > self.max_arcs + 1:  # without the name and the empty line
            self.fault = f"has more than {self.max_arcs:,} arcs; prune it, or raise --max-arcs"
        if piece and (self.fault is None or not self.pieces):
            self.pieces.append(piece)
        if self.fault is not None:
            self.pieces = [self.pieces[0][: 2 * NAME]] if self.pieces else []

    def stretch(self) -> Iterator[Stretch]:
        data = b"".join(self.pieces)
        if self.fault is not None or (data and not data.isspace()):
            yield Stretch(self.line, data, self.fault)


def name_of(stretch: Stretch) -> tuple[str, int, bytes]:
    """The utterance, the number of the line behind its name, and what follows."""
    data, line = stretch.data, stretch.line
    while True:
        first, _, rest = data.partition(b"\n")
        line += 1
        if first.strip() or not rest:
            break
        data = rest
    fields = first.split()
    if len(fields) == 1 and len(fields[0]) > NAME:
        raise Fault(line - 1, f"the name {shown(fields[0])} is too long: a name has up to {NAME} bytes; shorten it")
    if len(fields) != 1:
        raise Fault(line - 1, f"{shown(first.strip())} is no name of an utterance; a name stands alone on its line")
    try:
        return fields[0].decode(), line, rest
    except UnicodeDecodeError:
        raise Fault(line - 1, f"the name {shown(fields[0])} is not UTF-8; convert the file to UTF-8") from None


def parse(data: bytes, line: int, symbols: Symbols | None) -> Columns:
    """The rows of an utterance, the first of them on `line`; raises Fault."""
    chunks: list[_Chunk] = []
    fields: dict[bytes, bytes] = {}
    compact = True
    file = BytesIO(data)
    number = line
    while lines := file.readlines(CHUNK):
        rows = [row for row in map(bytes.split, lines) if row]
        if not rows:
            continue
        if not chunks:
            compact = _is_compact(rows)
        try:
            chunks.append(_Chunk(rows, compact, fields))
        except (ValueError, TypeError, OverflowError):
            raise _fault(lines, number, compact) from None
        number += len(lines)
    if not chunks:
        raise Fault(line - 1, "it has no arcs; the recogniser failed on it, or the file is cut off")
    try:
        words = {b"": SILENT} | words_of((field for field in fields if field), symbols)
    except ValueError as error:
        raise Fault(line, str(error)) from None
    columns = Columns(
        compact,
        int(chunks[0].sources[0]),
        np.concatenate([chunk.sources for chunk in chunks]),
        np.concatenate([chunk.targets for chunk in chunks]),
        [words[field] for chunk in chunks for field in chunk.words],
        np.concatenate([chunk.graph for chunk in chunks]),
        np.concatenate([chunk.acoustic for chunk in chunks]),
        [label for chunk in chunks for label in chunk.labels],
        np.concatenate([chunk.frames for chunk in chunks]),
    )
    kept = np.flatnonzero(np.isfinite(columns.graph))  # an infinite final cost: the node is not final
    return columns if len(kept) == len(columns.sources) else columns.rows(kept)


def _is_compact(rows: list[list[bytes]]) -> bool:
    """By the first line that tells."""
    for row in rows:
        if len(row) in (3, 5):
            return len(row) == 3
        if len(row) == 4:
            return _COMPACT_COSTS.fullmatch(row[3]) is not None
        if len(row) == 2:
            return row[1].count(b",") == 2
    return True


class _Chunk:
    """Some thousand lines as columns; any error means that a line is wrong, and `_fault` finds it."""

    def __init__(self, rows: list[list[bytes]], compact: bool, seen: dict[bytes, bytes]) -> None:
        width, free = (4, b"0,0,") if compact else (5, b"0,0")
        final = []
        for number, row in enumerate(rows):
            if len(row) != width:
                if len(row) <= 2:
                    final.append(number)
                    row[1:1] = [b"0", b""] if compact else [b"0", b"0", b""]
                if len(row) == width - 1:
                    row.append(free)
        states, targets, *inputs, words, costs = zip(*rows, strict=True)
        if len(rows[0]) != width:
            raise ValueError
        self.sources = _numbers(states)
        self.targets = _numbers(targets)
        self.targets[final] = FINAL
        self.words = [seen.setdefault(word, word) for word in words]
        graph, acoustic, *alignments = zip(*[cost.split(b",") for cost in costs], strict=True)
        if len(alignments) != compact:
            raise ValueError
        self.graph, self.acoustic = _floats(graph), _floats(acoustic)
        if compact:
            if not all(map(_ALIGNMENT.fullmatch, filter(None, alignments[0]))):
                raise ValueError
            self.labels = [label.decode() for label in alignments[0]]
            self.frames = np.array([label.count("_") + 1 if label else 0 for label in self.labels], np.int64)
        else:
            self.frames = (_numbers(inputs[0]) > 0).astype(np.int64)
            known = {input: str(int(input)) for input in set(inputs[0])}
            self.labels = [known[input] for input in inputs[0]]
        _check_infinite(self.graph, self.acoustic, self.targets)


def _numbers(column: tuple[bytes, ...]) -> Ids:
    if not b"".join(column).isdigit() or max(map(len, column)) > 10:
        raise ValueError
    numbers = np.array(list(map(int, column)), np.int64)
    if numbers.max() > LARGEST:
        raise ValueError
    return numbers


def _floats(column: tuple[bytes, ...]) -> Floats:
    if b"_" in b"".join(column):  # which Python takes for a part of a number
        raise ValueError
    return np.array(list(map(float, column)), np.float64)


def _check_infinite(graph: Floats, acoustic: Floats, targets: Ids) -> None:
    """Only a final cost may be infinite, in both parts: then the node is not final."""
    wrong = ~(np.isfinite(graph) & np.isfinite(acoustic))
    if wrong.any() and not ((graph == np.inf) & (acoustic == np.inf) & (targets == FINAL))[wrong].all():
        raise ValueError


def _fault(lines: list[bytes], number: int, compact: bool) -> Fault:
    """The first line that is wrong, and how."""
    for line, text in enumerate(lines, start=number):
        row = text.split()
        if row:
            try:
                _Chunk([list(row)], compact, {})
            except (ValueError, TypeError, OverflowError):
                return Fault(line, _what(row, compact))
    return Fault(number, "its lines do not make a lattice; write the archive again")


def _what(row: list[bytes], compact: bool) -> str:
    kind = "CompactLattice" if compact else "Lattice"
    arc = "source target word graph,acoustic,alignment" if compact else "source target input word graph,acoustic"
    if len(row) == 1:
        return f"{shown(row[0])} is no node; if it is the next utterance, an empty line is missing before it"
    if len(row) > 5 or len(row) == (5 if compact else 3):
        return f"{len(row)} columns; the lattice is a {kind}, whose arcs are `{arc}`"
    for field in row[: 1 if len(row) == 2 else 2 if compact else 3]:
        if not field.isdigit() or len(field) > 10 or int(field) > LARGEST:
            return f"{shown(field)} is no number from 0 to {LARGEST}; an arc is `{arc}`"
    return f"the costs {shown(row[-1])} are not `{arc.split()[-1]}` with finite numbers; mend or drop the line"


def write(utterance: str, columns: Columns, symbols: Symbols | None) -> bytes:
    """One utterance with its empty line; numbers have all their digits."""
    names = {word: _field(word, symbols) for word in set(columns.words)}
    rows = [f"{utterance} "]
    lists = (columns.sources.tolist(), columns.targets.tolist(), columns.graph.tolist(), columns.acoustic.tolist())
    for source, target, graph, acoustic, word, label in zip(*lists, columns.words, columns.labels):
        costs = f"{graph!r},{acoustic!r},{label}" if columns.compact else f"{graph!r},{acoustic!r}"
        if target == FINAL:
            rows.append(f"{source} {costs}")
        elif columns.compact:
            rows.append(f"{source} {target} {names[word]} {costs}")
        else:
            rows.append(f"{source} {target} {label or NO_INPUT} {names[word]} {costs}")
    return "\n".join([*rows, "", ""]).encode()


def _field(word: str, symbols: Symbols | None) -> str:
    if symbols is not None:
        return str(symbols.id(word))
    if word == SILENT:
        return EPSILON
    if word == EPSILON or word.encode().split() != [word.encode()]:
        raise ValueError(f"the word {word!r} cannot be written: {EPSILON} and white space have their own meaning here")
    return word
