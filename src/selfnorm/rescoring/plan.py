"""What there is to rescore, file by file, and the parts that it is cut into for several processes.

A part is exactly what one process would work on together (`grouped`): the last digits of a network's scores depend on
what stands in a batch beside them, and so they come out the same, whoever does which part.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from selfnorm.lattices.broken import Broken
from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest

Given = Lattice | NBest
Read = Callable[[Path], Iterator[Given | Broken]]  # of one file

FILES, BYTES = 32, 1 << 22  # of what is looked through in one step

LIST, HTK, TEXT, BINARY = "list", "htk", "text", "binary"  # the last two are Kaldi's


class Row(NamedTuple):
    """What is known of an utterance before it is rescored."""

    utterance: str
    arcs: int = 0
    kind: str = ""
    notes: int = 0
    note: str = ""  # the first
    broken: str = ""  # a sentence
    scale: float = 1.0  # of the language model, as the header says
    penalty: float = 0.0
    scored: bool = False  # whether the hypotheses of a list have LM scores

    @classmethod
    def of(cls, item: Given | Broken) -> "Row":
        if isinstance(item, Broken):
            return cls(item.utterance, broken=item.sentence)
        row = cls(item.utterance, item.arcs, _kind(item), len(item.notes), item.notes[0] if item.notes else "")
        if isinstance(item, NBest):
            return row._replace(scored=any(each.lm is not None for each in item.hypotheses))
        return row._replace(scale=item.scales.lm, penalty=item.scales.penalty)


def _kind(item: Given) -> str:
    if isinstance(item, NBest):
        return LIST
    if "kind" not in item.header:
        return HTK
    return BINARY if item.header.get("binary") == "true" else TEXT


class Place(NamedTuple):
    file: int
    number: int  # of the utterance in the file
    utterance: str


@dataclass(frozen=True)
class Plan:
    parts: list[list[Place]]
    broken: list[str]  # a sentence for each that cannot be read
    arcs: int
    notes: int
    note: str
    kaldi: dict[str, str]  # the first utterance of Kaldi's text, and of its binary archives
    rows: list[Row]  # of all that can be read


def chunks(files: Sequence[Path]) -> list[range]:
    """Files next to each other that are looked through in one step."""
    found, first, size = [], 0, 0
    for number, path in enumerate(files):
        here = path.stat().st_size
        if number > first and (number - first == FILES or size + here > BYTES):
            found.append(range(first, number))
            first, size = number, 0
        size += here
    return [*found, range(first, len(files))]


def planned(rows: Iterable[Sequence[Row]], files: Sequence[Path], arcs: int) -> Plan:
    """The parts, of at most so many arcs, unless one lattice has more; `rows` has those of each file."""
    seen: set[str] = set()
    broken: list[str] = []
    good: list[tuple[Place, Row]] = []
    for file, each_file in enumerate(rows):
        for number, row in enumerate(each_file):
            if row.broken:
                broken.append(row.broken)
            elif row.utterance in seen:
                name = f"{files[file]}: {row.utterance}"
                broken.append(f"{name}: a second utterance has this name; rename it or leave it out")
            else:
                seen.add(row.utterance)
                good.append((Place(file, number, row.utterance), row))
    parts: list[list[Place]] = []
    count, last = 0, ""
    for place, row in good:
        if not parts or count + row.arcs > arcs or (row.kind == LIST) != (last == LIST):
            parts.append([])
            count = 0
        parts[-1].append(place)
        count, last = count + row.arcs, row.kind
    kaldi: dict[str, str] = {}
    for _, row in good:
        if row.kind in (TEXT, BINARY):
            kaldi.setdefault(row.kind, row.utterance)
    noted = [row for _, row in good if row.notes]
    return Plan(
        parts,
        broken,
        sum(row.arcs for _, row in good),
        sum(row.notes for row in noted),
        f"{noted[0].utterance}: {noted[0].note}" if noted else "",
        kaldi,
        [row for _, row in good],
    )


class Reader:
    """Reads the utterances of one part after another, on from where the last one ended if it can."""

    def __init__(self, files: Sequence[Path], read: Read) -> None:
        self.files, self.read = files, read
        self.file, self.next = -1, 0
        self.items: Iterator[Given | Broken] = iter(())

    def part(self, places: Sequence[Place]) -> Iterator[Given]:
        for place in places:
            if place.file != self.file or place.number < self.next:
                self.file, self.next, self.items = place.file, 0, self.read(self.files[place.file])
            item = next(islice(self.items, place.number - self.next, None), None)
            self.next = place.number + 1
            if item is None or isinstance(item, Broken) or item.utterance != place.utterance:
                raise ValueError(
                    f"{self.files[place.file]}: changed while it was rescored, {place.utterance} is not where it was; "
                    "begin anew with files that stay as they are"
                )
            yield item
