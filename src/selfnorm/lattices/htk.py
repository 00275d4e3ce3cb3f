"""HTK's standard lattice format (SLF): one utterance a file, words on nodes or on arcs, any log base.

HTK means that an arc says the word of the node it leads to. pocketsphinx, which names itself in a comment, puts word
and score of an arc on the node it comes from. We write words on arcs and natural logs.
"""

import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from selfnorm.lattices import htk_fields as fields
from selfnorm.lattices import nbest
from selfnorm.lattices.archive import archive
from selfnorm.lattices.htk_draft import Draft
from selfnorm.lattices.htk_shape import finite, whole
from selfnorm.lattices.lattice import SILENT, Floats, Ids, Lattice, Scales, assemble
from selfnorm.lattices.packed import blocks
from selfnorm.vocabulary import END

FORMAT = re.compile(r"\.(slf|lat|lats|lattice|htk|ark|jsonl|json|txt)$", re.IGNORECASE)  # in the name of a file
_RUN = re.compile(rb"(?:[IJ]=.*\n)++|(?:(?![IJ]=).*\n)++|.+")  # nodes and arcs, others, a line without end
NEARLY_E = 2e-4  # files say base=2.718 and mean e
SCALES = {"acoustic": "acscale", "lm": "lmscale", "pronunciation": "prscale", "penalty": "wdpenalty"}


def read(path: Path, *, max_arcs: int = 2_000_000) -> Lattice:
    """The lattice of a file; a ValueError says what is wrong with it, and where."""
    draft = Draft(max_arcs)
    last = 1
    for lines in blocks(path):
        for run in lines.parts(match.end() for match in _RUN.finditer(lines.text)):
            draft.take(run)
        last = lines.number + lines.count - 1
    try:
        draft.check_complete()
    except ValueError as error:
        raise ValueError(f"{path}:{last}: {error}") from None
    try:
        return _lattice(draft, named_by(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def named_by(path: Path) -> str:
    """The name of a file's utterance where the file does not say it: without the suffixes for format and packing.

    Other suffixes stay: sw02001.A_1 and sw02001.A_2 are two utterances.
    """
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    return FORMAT.sub("", name) or name


def _named(utterance: str) -> str:
    if nbest.split(utterance) != (utterance,):
        raise ValueError(
            f"the name {utterance!r} of the utterance has blanks in it; give it a name without, UTTERANCE="
        )
    return utterance


@np.errstate(over="ignore")  # `assemble` refuses what is inf
def _lattice(draft: Draft, utterance: str) -> Lattice:
    header = {name: value for name, value in draft.header.items() if name not in ("N", "L")}
    if header.get("VERSION") == "1.0":
        del header["VERSION"]
    unit = _unit(header.pop("base", "e"))
    scales = _scales(header, unit)
    order = np.argsort(draft.arc_ids, kind="stable")
    sources, targets = (np.asarray(column, np.int64)[order] for column in (draft.sources, draft.targets))
    start, end = _ends(header, draft.nodes, sources, targets)
    times, notes = _times(draft, _float(header.pop("tscale", "1"), "tscale"))
    columns = [_natural(column, unit)[order] for column in draft.scores]
    words = _Words(draft, order, sources, targets, start, end)
    if words.added:  # a word before the first arc or behind the last one gets an arc, at no cost, to a new node
        sources, targets = np.append(sources, words.added[0]), np.append(targets, words.added[1])
        columns = [np.append(column, 0.0) for column in columns]
        times = None if times is None else np.append(times, times[start if draft.nodes == words.added[0] else end])
    return assemble(
        _named(header.pop("UTTERANCE", "") or utterance),
        nodes=draft.nodes + bool(words.added),
        start=words.start,
        end=words.end,
        sources=sources,
        targets=targets,
        words=words.words,
        acoustic=columns[0],
        lm=columns[1],
        pronunciation=columns[2] if not np.isnan(draft.scores[2]).all() else None,
        times=times,
        scales=scales,
        extra=words.extra,
        header=header,
        notes=notes,
    )


def _unit(base: str) -> float:
    """What a score of 1 is in natural logs; 0 where scores are no logs but probabilities."""
    value = math.e if base == "e" else _float(base, "base")
    if value == 0:
        return 0.0
    if value < 0 or value == 1:
        raise ValueError(f"base={base} is the base of no logarithm; say e, 10 or another one, or 0 for probabilities")
    unit = math.log(value)
    return 1.0 if abs(unit - 1) < NEARLY_E else unit


def _scales(header: dict[str, str], unit: float) -> Scales:
    """Takes the scales out of the header. A penalty is a score; as a probability, 0 means none."""
    given = {ours: _float(header.pop(theirs), theirs) for ours, theirs in SCALES.items() if theirs in header}
    if penalty := given.get("penalty", 0.0):
        if unit == 0 and penalty < 0:
            raise ValueError(f"wdpenalty={penalty:g} is no probability, but base=0 says that it is; mend one of them")
        given["penalty"] = math.log(penalty) if unit == 0 else unit * penalty
        if math.isinf(given["penalty"]):
            raise ValueError(f"wdpenalty={penalty:g} is no finite number in natural logs; mend it or the base")
    return Scales(**given)


def _natural(column: array, unit: float) -> Floats:
    """Scores in natural logs; one that is missing is 0."""
    scores = np.array(column)
    missing = np.isnan(scores)
    if unit == 0:
        if (scores <= 0).any():
            arc = int(np.flatnonzero(scores <= 0)[0])
            raise ValueError(
                f"the score {scores[arc]:g} of an arc is no probability, but base=0 says so; mend the base"
            )
        scores = np.log(scores)
    elif unit != 1:
        scores *= unit
    scores[missing] = 0.0
    return scores


def _ends(header: dict[str, str], nodes: int, sources: Ids, targets: Ids) -> tuple[int, int]:
    """The first and the last node: as the header says, else the only ones that no arc leads to, or leaves."""
    ends = []
    used = np.bincount(sources, minlength=nodes) + np.bincount(targets, minlength=nodes) > 0
    for name, other, what in (("start", targets, "leads to"), ("end", sources, "leaves")):
        if name in header:
            node = whole(value := header.pop(name).encode(), name)
            if node >= nodes:
                raise ValueError(f"{name}={value.decode()}, but the header declares N={nodes}; the header is wrong")
        else:
            free = np.bincount(other, minlength=nodes) == 0
            among = np.flatnonzero(free & used if used.any() else free)
            if len(among) != 1:
                found = f": {', '.join(map(str, among[:5]))}{' …' if len(among) > 5 else ''}" if len(among) else ""
                raise ValueError(
                    f"the header has no {name}=, and there is not one node that no arc {what} but {len(among)}{found}; "
                    f"add {name}= to the header"
                )
            node = int(among[0])
        ends.append(node)
    return ends[0], ends[1]


def _times(draft: Draft, scale: float) -> tuple[Floats | None, list[str]]:
    times = np.empty(draft.nodes)
    times[np.asarray(draft.node_ids)] = draft.times
    missing = int(np.isnan(times).sum())
    if not missing:
        return times * scale, []
    said = f"{missing} of {draft.nodes} nodes have no time: all times were left out"
    return None, [said] if missing < draft.nodes else []


def _float(value: str, name: str) -> float:
    return finite(value.encode(), name)


class _Words:
    """Words and other columns of the arcs, wherever the file has them."""

    def __init__(self, draft: Draft, order: Ids, sources: Ids, targets: Ids, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.added: tuple[int, int] | None = None  # from where to where one more arc leads
        on_nodes = _by_node(draft)
        owners = (sources if draft.on_source else targets).tolist()
        places = order.tolist()
        values = [draft.arc_words[place] for place in places]
        if on_nodes:
            values = [on_nodes[owner] if value is None else value for value, owner in zip(values, owners)]
            if draft.on_source and on_nodes[end] is not None:
                self.added, self.end = (end, draft.nodes), draft.nodes
                values.append(on_nodes[end])
                owners.append(end)
            elif not draft.on_source and fields.word(on_nodes[start] or b"") not in (SILENT, END):
                self.added, self.start = (draft.nodes, start), draft.nodes
                values.append(on_nodes[start])
                owners.append(start)
        known = {value: fields.word(value or b"!NULL") for value in set(values)}
        self.words = [known[value] for value in values]
        self.extra = {
            name: _column(draft.others.get(name, []), places, draft.node_others.get(name), owners)
            for name in {**draft.others, **draft.node_others}
        }
        labels = {value: fields.label(b"!NULL" if value is None else value) for value in known}
        if any(fields.LABELS.get(word, word) != labels[value] for value, word in known.items()):
            self.extra["W"] = [labels[value] for value in values]


def _by_node(draft: Draft) -> list[bytes | None]:
    """The words of the nodes by their numbers; empty where none has one."""
    if not any(value is not None for value in draft.node_words):
        return []
    words: list[bytes | None] = [None] * draft.nodes
    for node, value in zip(draft.node_ids, draft.node_words):
        words[node] = value
    return words


def _column(column: list[str], places: list[int], of_nodes: dict[int, str] | None, owners: list[int]) -> list[str]:
    """What the arcs say, else the nodes that have their words, else nothing."""
    values = [column[place] if place < len(column) else "" for place in places]
    values += [""] * (len(owners) - len(values))
    if of_nodes:
        values = [value or of_nodes.get(owner, "") for value, owner in zip(values, owners)]
    return values


def write(lattice: Lattice, path: Path) -> None:
    """Write a lattice, whole or not at all; packed where the name ends in .gz or .bz2. `read` gives it back."""
    lines = _written(lattice)
    with archive(path) as file:
        while block := "".join(islice(lines, 10_000)):
            file.write(block.encode())


@contextmanager
def writer(folder: Path) -> Iterator[Callable[[Lattice], None]]:
    """A function that writes lattices into a folder, each as `<utterance>.slf.gz`."""
    folder.mkdir(parents=True, exist_ok=True)

    def write_one(lattice: Lattice) -> None:
        if "/" in lattice.utterance or lattice.utterance.startswith("."):
            raise ValueError(f"{folder}: the utterance {lattice.utterance!r} cannot be the name of a file; rename it")
        write(lattice, folder / f"{lattice.utterance}.slf.gz")

    yield write_one


def _written(lattice: Lattice) -> Iterator[str]:
    for kind, names in (("header", lattice.header), ("arc", lattice.extra)):
        for name in names:
            fields.check_name(name, kind)
    yield f"VERSION={fields.value(lattice.header.get('VERSION', '1.0'))}\n"
    yield f"UTTERANCE={fields.value_of_utterance(lattice.utterance)}\n"
    for name, text in lattice.header.items():
        if name != "VERSION":
            yield f"{name}={fields.value(text)}\n"
    yield " ".join(f"{theirs}={getattr(lattice.scales, ours)!r}" for ours, theirs in SCALES.items())
    yield f"\nbase=2.71828183\nstart=0 end={lattice.nodes - 1}\nN={lattice.nodes} L={lattice.arcs}\n"
    if lattice.times is None:
        yield from (f"I={node}\n" for node in range(lattice.nodes))
    else:
        yield from (f"I={node} t={time!r}\n" for node, time in enumerate(lattice.times.tolist()))
    scores = {"a": lattice.acoustic, "l": lattice.lm, "r": lattice.pronunciation}
    columns = {name: map(repr, column.tolist()) for name, column in scores.items() if column is not None}
    others = {name: _values(column) for name, column in lattice.extra.items() if name != "W"}
    ends = zip(lattice.sources.tolist(), lattice.targets.tolist(), _labels(lattice))
    rows = zip(ends, zip(*columns.values()), zip(*others.values()) if others else [()] * lattice.arcs)
    form = " ".join(f"{name}={{}}" for name in columns)
    for arc, ((source, target, word), numbers, texts) in enumerate(rows):
        besides = "".join(f" {name}={text}" for name, text in zip(others, texts) if text)
        yield f"J={arc} S={source} E={target} W={word} {form.format(*numbers)}{besides}\n"


def _labels(lattice: Lattice) -> Iterator[str]:
    kept: Sequence[str | None] = lattice.extra.get("W", [None] * lattice.arcs)
    pairs = list(zip(lattice.words, kept))
    known = {pair: fields.value_of_word(*pair) for pair in set(pairs)}
    return (known[pair] for pair in pairs)


def _values(column: Sequence[str]) -> Iterator[str]:
    known = {text: fields.value(text) for text in set(column)}
    return (known[text] for text in column)
