"""What recognisers hand on: lattices and n-best lists, one file per format, all read into the same two classes."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfnorm.files import check_file
from selfnorm.lattices import htk, kaldi, kaldi_binary, nbest, nbest_folders
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.lattices.packed import content
from selfnorm.registry import named
from selfnorm.vocabulary import BOM

Utterance = Lattice | NBest | Broken
HEAD = 1 << 16  # bytes that a file is known by


@dataclass(frozen=True)
class Options:
    words: Path | None = None  # words.txt of Kaldi's ids
    max_arcs: int = 2_000_000
    frame_shift: float = 0.01  # seconds


@dataclass(frozen=True)
class Format:
    """How files of a kind are known, by content or else by name, how they are read, and how written.

    `writer(path, words)` is a block that gives a function; it takes one utterance after another.
    """

    starts: Callable[[bytes], bool]
    names: re.Pattern[str]
    read: Callable[[Path, Options], Iterator[Utterance]]
    writer: Callable[[Path, Path | None], AbstractContextManager[Callable[[Any], None]]]


_HTK = re.compile(
    rb"(?:[ \t]*(?:#[^\n]*)?\r?\n)*+[ \t]*(?:VERSION|V|UTTERANCE|U|N|NODES|base|start|end|\w*scale|lmname)="
)
_KALDI_TEXT = re.compile(rb"\s*[^\s=]+[ \t]*\r?\n[ \t]*\d+(?:[ \t]+\d+[ \t]+\S+|[ \t]+\S*,\S*|[ \t]*\r?\n|$)")

FORMATS = {
    "htk": Format(
        lambda head: _HTK.match(head) is not None,
        re.compile(r".*\.(slf|lat|htk)"),
        lambda path, options: iter([htk.read(path, max_arcs=options.max_arcs)]),
        lambda path, words: htk.writer(path),
    ),
    "kaldi": Format(
        lambda head: kaldi_binary.starts_binary(head) or _KALDI_TEXT.match(head) is not None,
        re.compile(r".*\.(ark|lats)|lat\.\d+|lat\.txt"),
        lambda path, options: kaldi.read(
            path, words=options.words, max_arcs=options.max_arcs, frame_shift=options.frame_shift
        ),
        lambda path, words: kaldi.writer(path, words),
    ),
    "nbest": Format(
        lambda head: head.lstrip().startswith(b"{"),
        re.compile(r".*\.(jsonl|json)"),
        lambda path, options: nbest.read(path),
        lambda path, words: nbest.writer(path),
    ),
    "nbest_folder": Format(
        lambda head: False,
        re.compile(r"(?!)"),
        lambda path, options: nbest_folders.read(path, words=options.words),
        lambda path, words: nbest.writer(path),  # as lines of JSON
    ),
}


def read(
    paths: Sequence[Path],
    *,
    format: str = "auto",
    words: Path | None = None,
    max_arcs: int = 2_000_000,
    frame_shift: float = 0.01,
) -> Iterator[Utterance]:
    """Every utterance of files and of the files in folders; what cannot be read is a Broken, and reading goes on.

    A path that is not there, and a folder without a file of these kinds, is an error at once.
    """
    if format != "auto":
        named("format", FORMATS, format)
    if words is not None:
        check_file(words, "give the words.txt of the lattices")
    found = [(file, kind) for path in paths for file, kind in files(path, format)]
    return _once(_utterances(found, Options(words, max_arcs, frame_shift)))


def recognise(path: Path) -> str | None:
    """The name of a path's format, or None; a ValueError where it cannot be read at all."""
    if path.is_dir():
        return "nbest_folder" if nbest_folders.is_folder(path) else None
    with content(path) as file:
        head = file.peek(HEAD)[:HEAD].removeprefix(BOM)
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    found = (kind for kind, each in FORMATS.items() if each.starts(head))
    return next(found, None) or next((kind for kind, each in FORMATS.items() if each.names.fullmatch(name)), None)


def files(path: Path, format: str = "auto") -> Iterator[tuple[Path, str]]:
    """What is to be read for a path, with the format of each."""
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder; give lattices or n-best lists")
    if not path.is_dir():
        check_file(path, "give lattices or n-best lists")
    if not path.is_dir() or nbest_folders.is_folder(path):
        yield path, format
        return
    found = [(each, _kind(each)) for each in sorted(path.iterdir()) if each.is_file() and each.name[0] != "."]
    chosen = [(each, kind) for each, kind in found if kind and format in ("auto", kind)]
    if not chosen:
        kinds = "lattice and no n-best list" if format == "auto" else f"file of the format {format}"
        raise ValueError(f"{path}: the folder has no {kinds}; give the files themselves or another folder")
    yield from chosen


def _kind(path: Path) -> str | None:
    """A file in a folder: one that cannot be read is tried again, and reported, in its turn."""
    try:
        return recognise(path)
    except ValueError:
        return "auto"


def _utterances(files: Sequence[tuple[Path, str]], options: Options) -> Iterator[tuple[Path, Utterance]]:
    for path, given in files:
        try:
            kind = recognise(path) if given == "auto" else given
            if kind is None:
                raise ValueError(
                    f"{path}: is no HTK lattice, Kaldi archive or n-best list by its first bytes; give one of these"
                )
            yield from ((path, each) for each in FORMATS[kind].read(path, options))
        except (ValueError, OSError) as error:
            yield path, Broken(htk.named_by(path), str(error))


def _once(utterances: Iterator[tuple[Path, Utterance]]) -> Iterator[Utterance]:
    """The second utterance of a name is broken: no result could say which of the two it is of."""
    seen: set[str] = set()
    for path, each in utterances:
        if not isinstance(each, Broken):
            if each.utterance in seen:
                sentence = f"{path}: {each.utterance}: a second utterance has this name; rename it or leave it out"
                each = Broken(each.utterance, sentence)
            seen.add(each.utterance)
        yield each


__all__ = ["FORMATS", "Broken", "Format", "Lattice", "NBest", "Options", "Utterance", "files", "read", "recognise"]
