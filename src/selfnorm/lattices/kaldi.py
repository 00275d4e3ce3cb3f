"""Kaldi's lattice archives (lat.1.gz and the like): CompactLattice and Lattice, text and binary, with a words.txt."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from selfnorm.lattices import kaldi_binary, kaldi_text
from selfnorm.lattices.archive import archive
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.kaldi_columns import Columns, from_lattice, to_lattice
from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.packed import content
from selfnorm.lattices.symbols import Symbols, shown

Write = Callable[[Lattice], None]


def read(
    path: Path, *, words: Path | None = None, max_arcs: int = 2_000_000, frame_shift: float = 0.01
) -> Iterator[Lattice | Broken]:
    """Each utterance of an archive, plain or packed.

    `words` is the words.txt of the ids; without it the archive must have words already. The alignments (a Lattice's
    inputs) are kept in `extra` and give the nodes' times, `frame_shift` seconds for each transition id. A bad utterance
    is a Broken, and reading goes on behind it.
    """
    symbols = None if words is None else Symbols.load(words)
    with content(path) as file:
        try:
            first = file.peek(kaldi_binary.NAME)
            if kaldi_binary.starts_binary(first):
                yield from _read_binary(file, path, symbols, max_arcs, frame_shift)
            elif not first:
                yield Broken(path.name, f"{path}: the file is empty; write the archive again")
            else:
                yield from _read_text(file, path, symbols, max_arcs, frame_shift)
        except ValueError as error:  # of unpacking
            yield Broken(path.name, str(error))


def _read_text(
    file: BufferedReader, path: Path, symbols: Symbols | None, max_arcs: int, frame_shift: float
) -> Iterator[Lattice | Broken]:
    for stretch in kaldi_text.stretches(file, max_arcs):
        utterance, line = path.name, stretch.line
        try:
            utterance, line, data = kaldi_text.name_of(stretch)
            if stretch.fault is not None:
                raise kaldi_text.Fault(stretch.line, stretch.fault)
            yield _lattice(utterance, kaldi_text.parse(data, line, symbols), frame_shift, binary=False)
        except kaldi_text.Fault as fault:
            yield Broken(utterance, f"{path}:{fault.line}: {_named(utterance, path)}{fault.what}")
        except _Unsound as error:
            yield Broken(utterance, f"{path}:{line - 1}: {_named(utterance, path)}{error}")


def _read_binary(
    file: BufferedReader, path: Path, symbols: Symbols | None, max_arcs: int, frame_shift: float
) -> Iterator[Lattice | Broken]:
    stream = kaldi_binary.Stream(file)
    going = True
    while going:
        utterance, place = path.name, stream.byte
        try:
            name = stream.name()
            if name is None:
                return
            utterance = name
            columns = kaldi_binary.parse(stream, symbols, max_arcs)
            yield _lattice(utterance, columns, frame_shift, binary=True)
        except kaldi_binary.Fault as fault:
            yield Broken(utterance, f"{path}: byte {fault.byte}: {_named(utterance, path)}{fault.what}")
            going = stream.skip()
        except kaldi_binary.TooLarge:
            said = f"has more than {max_arcs:,} arcs; prune it, or raise --max-arcs"
            yield Broken(utterance, f"{path}: byte {place}: {_named(utterance, path)}{said}")
            going = stream.skip()
        except _Unsound as error:
            yield Broken(utterance, f"{path}: byte {place}: {_named(utterance, path)}{error}")


class _Unsound(Exception):  # noqa: N818  it has no place yet
    """The lattice was read, but it is none."""


def _lattice(utterance: str, columns: Columns, frame_shift: float, binary: bool) -> Lattice:
    try:
        return to_lattice(utterance, columns, frame_shift, binary)
    except ValueError as error:
        raise _Unsound(str(error)) from None


def _named(utterance: str, path: Path) -> str:
    return "" if utterance == path.name else f"utterance {utterance}: "


@contextmanager
def writer(
    path: Path, words: Path | None = None, *, binary: bool | None = None, compact: bool | None = None
) -> Iterator[Write]:
    """A function that writes one lattice after another; the archive appears whole, when the block ends.

    With `words` (always for binary) the words are written as ids. Left out, `binary` and `compact` are as the lattices
    were read. Kaldi has no place for scales and notes; a pronunciation score joins the graph cost.
    """
    symbols = None if words is None else Symbols.load(words)
    chosen = binary
    with archive(path) as file:

        def write(lattice: Lattice) -> None:
            nonlocal chosen
            if chosen is None:
                chosen = lattice.header.get("binary") == "true"
            if lattice.utterance.encode().split() != [lattice.utterance.encode()]:
                raise ValueError(
                    f"{path}: {shown(lattice.utterance.encode())} is no name of an utterance; it has blanks"
                )
            kind = lattice.header.get("kind") != "lattice" if compact is None else compact
            try:
                columns = from_lattice(lattice, kind)
                if not chosen:
                    file.write(kaldi_text.write(lattice.utterance, columns, symbols))
                elif symbols is None:
                    raise ValueError("a binary archive has ids for words; give the words.txt that has them")
                else:
                    file.write(kaldi_binary.write(lattice.utterance, columns, symbols))
            except ValueError as error:
                raise ValueError(f"{path}: utterance {lattice.utterance}: {error}") from None

        yield write
