"""The token store: the ids of a text on disk, memory-mapped, in a file that is refused unless it is whole.

header   4096 bytes: magic, SHA-256 of the rest of the header, then JSON (format, counts, dtype, vocabulary, SHA-256 of
         what follows), zeros
ids      every sentence ends with the id of </s>; 2 bytes each where the vocabulary allows it, else 4; zeros to 8
starts   8 bytes each: where sentence i starts among the ids; one more than sentences, the last is their number
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from selfnorm import manifest
from selfnorm.files import BLOCK, atomic
from selfnorm.vocabulary import Vocabulary

MAGIC = b"selfnorm token store\n"
FORMAT = 1
HEADER = 4096
VOCABULARY = "vocab.txt"
PARTS = ("train", "valid", "test")

Ids = npt.NDArray[np.unsignedinteger]
Starts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class About:
    """What the header of a store says of its text and its vocabulary."""

    words: int  # without </s>
    sentences: int
    unknown: int  # occurrences of <unk>
    dtype: str
    size: int  # C
    end: int  # id of </s>
    vocabulary: str  # digest
    sha256: str = ""
    format: int = FORMAT


@dataclass(frozen=True)
class TokenStore:
    """The ids of a text; sentence i is `ids[starts[i] : starts[i + 1]]`, with its `</s>`."""

    ids: Ids
    starts: Starts
    about: About

    @property
    def start(self) -> int:
        """The id of `<s>`, an input only."""
        return self.about.size

    @property
    def end(self) -> int:
        return self.about.end

    def __len__(self) -> int:
        return self.about.sentences

    def __getitem__(self, sentence: int) -> Ids:
        return self.ids[self.starts[sentence] : self.starts[sentence + 1]]

    @property
    def lengths(self) -> Starts:
        """Positions of each sentence, `</s>` among them."""
        return np.diff(self.starts)

    def first(self, words: int | None) -> Self:
        """The first sentences, as many as `words` positions hold, and one at least; all for None."""
        if words is None:
            return self
        sentences = max(1, int(np.searchsorted(self.starts, words, side="right")) - 1)
        ids = self.ids[: self.starts[sentences]]
        about = replace(self.about, words=len(ids) - sentences, sentences=sentences)
        return replace(self, ids=ids, starts=self.starts[: sentences + 1], about=about)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int]], vocabulary: Vocabulary) -> Self:
        """A store in memory, of sentences as `Vocabulary.encode` gives them (without `</s>`)."""
        whole = [[*sentence, vocabulary.end] for sentence in sentences]
        ids = np.array([id for sentence in whole for id in sentence], _dtype(vocabulary))
        starts = np.cumsum([0, *map(len, whole)], dtype=np.int64)
        unknown = int((ids == vocabulary.unknown).sum())
        return cls(ids, starts, _about(vocabulary, len(ids) - len(whole), len(whole), unknown))

    @classmethod
    def open(cls, path: Path, vocabulary: Vocabulary | None = None, verify: bool = True) -> Self:
        """Map a store; `verify` reads it once to check its sum."""
        with path.open("rb") as file:
            about = _read_header(file, path)
            if verify and _sum(file) != about.sha256:
                raise ValueError(f"{path}: the ids do not match their SHA-256; the file was damaged, prepare it again")
        if vocabulary is not None and vocabulary.digest != about.vocabulary:
            raise ValueError(
                f"{path}: prepared with another vocabulary (of {about.size} words; this one has {len(vocabulary)}); "
                "prepare the text with this vocabulary"
            )
        content = np.memmap(path, np.uint8, "r", offset=0)
        middle = HEADER + _padded(_id_bytes(about))
        ids = content[HEADER : HEADER + _id_bytes(about)].view(about.dtype)
        return cls(ids, content[middle:].view(np.int64), about)


def write_store(path: Path, vocabulary: Vocabulary, pieces: Iterable[Ids]) -> About:
    """Write the ids of a text, which come in pieces of any length, whole or not at all; memory holds one piece."""
    dtype = _dtype(vocabulary)
    digest = hashlib.sha256()
    written = unknown = sentences = 0
    with atomic(path) as file, tempfile.TemporaryFile(dir=path.parent) as starts:
        file.write(bytes(HEADER))
        starts.write(bytes(8))
        for piece in pieces:
            ends = np.flatnonzero(piece == vocabulary.end) + (written + 1)
            starts.write(ends.astype(np.int64).tobytes())
            _write(file, piece.astype(dtype).tobytes(), digest)
            written, sentences = written + len(piece), sentences + len(ends)
            unknown += int((piece == vocabulary.unknown).sum())
        about = _about(vocabulary, written - sentences, sentences, unknown)
        _write(file, bytes(_padded(_id_bytes(about)) - _id_bytes(about)), digest)
        starts.seek(0)
        while block := starts.read(BLOCK):
            _write(file, block, digest)
        about = replace(about, sha256=digest.hexdigest())
        file.seek(0)
        file.write(_header(about))
    return about


def _write(file: IO[bytes], data: bytes, digest: Any) -> None:
    file.write(data)
    digest.update(data)


def _dtype(vocabulary: Vocabulary) -> str:
    return "<u2" if len(vocabulary) < 1 << 16 else "<u4"


def _about(vocabulary: Vocabulary, words: int, sentences: int, unknown: int) -> About:
    return About(words, sentences, unknown, _dtype(vocabulary), len(vocabulary), vocabulary.end, vocabulary.digest)


def _id_bytes(about: About) -> int:
    return (about.words + about.sentences) * np.dtype(about.dtype).itemsize


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _header(about: About) -> bytes:
    body = json.dumps(asdict(about)).encode().ljust(HEADER - len(MAGIC) - 32, b"\0")
    return MAGIC + hashlib.sha256(body).digest() + body


def _read_header(file: IO[bytes], path: Path) -> About:
    """The header, after the checks that need no pass over the ids."""
    header = file.read(HEADER)
    if not header.startswith(MAGIC):
        raise ValueError(f"{path}: not a token store; make one with `selfnorm prepare`")
    digest, body = header[len(MAGIC) : len(MAGIC) + 32], header[len(MAGIC) + 32 :]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path}: the header does not match its SHA-256; the file was damaged, prepare it again")
    about = _parse(json.loads(body.rstrip(b"\0")), path)
    due = HEADER + _padded(_id_bytes(about)) + 8 * (about.sentences + 1)
    if (size := path.stat().st_size) != due:
        raise ValueError(f"{path}: {size} bytes where the header says {due}; the file was cut, prepare it again")
    return about


def _parse(fields: dict[str, Any], path: Path) -> About:
    """Our own sums vouch for a header, but not for who wrote it: a dtype of Python objects would run wild."""
    if fields.get("format") != FORMAT:
        raise ValueError(f"{path}: format {fields.get('format')}, this version reads {FORMAT}; prepare the text again")
    kinds = {name: type(value) for name, value in fields.items()}
    if kinds != About.__annotations__ or fields["dtype"] not in ("<u2", "<u4"):
        raise ValueError(f"{path}: the header is not one that `selfnorm prepare` writes; prepare the text again")
    return About(**fields)


def _sum(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Data:
    """What `prepare` wrote: a vocabulary and the stores made with it."""

    vocabulary: Vocabulary
    train: TokenStore
    valid: TokenStore | None
    test: TokenStore | None

    @classmethod
    def open(cls, folder: Path, verify: bool = True) -> Self:
        """Open a DATA folder; `verify` reads every file once to check it against the manifest."""
        entries = verify_folder(folder) if verify else manifest.read(folder)
        vocabulary = Vocabulary.load(folder / VOCABULARY)
        stores = {
            part: TokenStore.open(folder / f"{part}.ids", vocabulary, verify=False)
            for part in PARTS
            if f"{part}.ids" in entries
        }
        return cls(vocabulary, stores["train"], stores.get("valid"), stores.get("test"))


def is_data(folder: Path) -> bool:
    """Whether `prepare` made this folder: its manifest is whole and lists our files."""
    try:
        entries = manifest.read(folder)
    except (ValueError, OSError):
        return False
    return {VOCABULARY, "train.ids"} <= set(entries)


def verify_folder(folder: Path) -> manifest.Entries:
    """Refuse a DATA folder in which any bit of any file differs from what `prepare` wrote."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such folder; make one with `selfnorm prepare TEXT --to {folder}`")
    entries = manifest.read(folder)
    for name, entry in entries.items():
        manifest.check(folder / name, entry)
    if not {VOCABULARY, "train.ids"} <= set(entries):
        raise ValueError(f"{folder}: no {VOCABULARY} and train.ids in it; make it with `selfnorm prepare`")
    return entries
