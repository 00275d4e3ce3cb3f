"""Rescored lattices, and their lists for tuning, as files between two steps: columns of numbers, nothing else."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.rescoring import as_lattice
from selfnorm.rescoring.forest import ended
from selfnorm.rescoring.setting import Rescored, Setting, Told
from selfnorm.rescoring.tuning import Lists

COLUMNS = ("steady", "lm", "length", "errors")


def save_rescored(path: Path, rescored: Sequence[Rescored]) -> None:
    """What the given lattices do not say themselves."""
    times = [each.lattice.times for each in rescored]
    lengths = [
        (each.lattice.arcs, -1 if each.lattice.times is None else len(each.lattice.times), each.given.arcs)
        for each in rescored
    ]
    columns: dict[str, Any] = {
        "lengths": np.array(lengths, np.int64).reshape(-1, 3),
        "arcs": _all(each.arcs for each in rescored),
        "sources": _all(each.lattice.sources for each in rescored),
        "targets": _all(each.lattice.targets for each in rescored),
        "times": _all(each for each in times if each is not None),
    }
    for name in rescored[0].scores:
        columns[f"score {name}"] = _all(each.scores[name].score for each in rescored)
        columns[f"unknown {name}"] = _all(each.scores[name].unknown for each in rescored)
    np.savez(path, **columns)


def load_rescored(path: Path, items: Iterable[Lattice | NBest]) -> Iterator[tuple[Lattice | NBest, Rescored]]:
    """With the given lattices or lists, read again, in the same order."""
    columns = _columns(path)
    scores = _told(columns)
    first = moment = 0
    for item, (count, moments, given_arcs) in zip(items, columns["lengths"].tolist(), strict=True):
        here = slice(first, first + count)
        times = None if moments < 0 else columns["times"][moment : moment + moments]
        given = as_lattice(item)
        given = given if given.arcs == given_arcs else ended(given)
        arcs = columns["arcs"][here]
        lattice = given.keep(arcs, columns["sources"][here], columns["targets"][here], times)
        yield item, Rescored(lattice, {name: told.of(here) for name, told in scores.items()}, given, arcs)
        first, moment = first + count, moment + max(0, moments)


def save_lists(path: Path, lists: Lists) -> None:
    about = {"start": asdict(lists.start), "temperature": lists.temperature, "utterances": lists.utterances}
    columns = {name: getattr(lists, name) for name in ("first", "begin", *COLUMNS)}
    for name, told in lists.scores.items():
        columns |= {f"score {name}": told.score, f"unknown {name}": told.unknown}
    np.savez(path, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **columns)


def load_lists(path: Path) -> Lists:
    columns = _columns(path)
    about = json.loads(columns["about"].tobytes())
    steady, lm, length, errors = (columns[name] for name in COLUMNS)
    start, place = Setting(**about["start"]), (tuple(about["utterances"]), columns["first"])
    return Lists(*place, steady, lm, length, errors, columns["begin"], _told(columns), about["temperature"], start)


def _columns(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def _told(columns: Mapping[str, Any]) -> dict[str, Told]:
    """Of each scorer that the columns have scores of."""
    names = [name.removeprefix("score ") for name in columns if name.startswith("score ")]
    return {name: Told(columns[f"score {name}"], columns[f"unknown {name}"]) for name in names}


def _all(columns: Iterable[Any]) -> Any:
    found = list(columns)
    return np.concatenate(found) if found else np.zeros(0)
