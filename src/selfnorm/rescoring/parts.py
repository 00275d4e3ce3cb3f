"""The files of one part of a second pass, and all parts made into the files that one process would have written."""

import gzip
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from selfnorm.files import BLOCK, flushed, sync_folder
from selfnorm.lattices.archive import archive
from selfnorm.lattices.transcripts import Spoken
from selfnorm.rescoring.results import KALDI, LATTICES, LISTS, TIMES, Result, write_words

RESULTS, PACKED = "results.jsonl", "lattices.zip"

Find = Callable[[str, str], Path]  # a file of a part, checked


def save_results(path: Path, results: Iterable[Result]) -> None:
    """One line for each; numbers are read again as they were."""
    with path.open("w") as file:
        file.writelines(json.dumps(asdict(result)) + "\n" for result in results)


def load_results(path: Path) -> Iterator[Result]:
    with path.open() as file:
        for fields in map(json.loads, file):
            fields |= {name: tuple(fields[name]) for name in ("words", "first", "scales")}
            if fields["spoken"] is not None:
                fields["spoken"] = tuple(Spoken(*each) for each in fields["spoken"])
            yield Result(**fields)


def pack_lattices(folder: Path) -> None:
    """The lattices of a part in one file."""
    if (folder / LATTICES).is_dir():
        with zipfile.ZipFile(folder / PACKED, "w") as packed:
            for path in sorted((folder / LATTICES).iterdir()):
                packed.write(path, path.name)
        shutil.rmtree(folder / LATTICES)


def join(folder: Path, parts: Sequence[tuple[str, Sequence[str]]], find: Find) -> list[Result]:
    """Write the files of all parts as one process does; `parts` has the names of each and of its files."""
    results = [result for part, _ in parts for result in load_results(find(part, RESULTS))]
    for name, copy in ((LISTS, _by_line), (KALDI, _by_block)):
        holders = [part for part, files in parts if name in files]
        if holders:
            with archive(folder / name) as file:
                for part in holders:
                    with gzip.open(find(part, name), "rb") as packed:
                        copy(packed, file)
    for part, files in parts:
        if PACKED in files:
            _unpack(find(part, PACKED), folder / LATTICES)
    write_words(folder, results)
    return results


def publish(folder: Path, to: Path) -> None:
    """Move the files to where they are wanted, each in one step; times of an earlier run go."""
    if not (folder / TIMES).exists():
        (to / TIMES).unlink(missing_ok=True)
    for path in sorted(folder.rglob("*")):
        place = to / path.relative_to(folder)
        if path.is_dir():
            place.mkdir(exist_ok=True)
        else:
            os.replace(path, place)
    sync_folder(to)


def _by_line(source: Any, to: IO[bytes]) -> None:
    for line in source:
        to.write(line)


def _by_block(source: Any, to: IO[bytes]) -> None:
    shutil.copyfileobj(source, to, BLOCK)


def _unpack(path: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path) as packed:
        for name in packed.namelist():
            if (folder / name).exists():
                raise ValueError(f"{folder.name}/{name}: two utterances would have this file; rename one of them")
            with packed.open(name) as source, flushed(folder / name) as to:
                shutil.copyfileobj(source, to)
