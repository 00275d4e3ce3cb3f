"""The index of an ARPA file, kept beside it as FILE.index: mapped, not read, the next time.

header   4096 bytes: magic, SHA-256 of the rest of the header, then JSON (format, the ARPA file it is of, counts,
         SHA-256 of what follows), zeros
parts    the words, one a line; then of each order its keys, buckets, log probabilities and back-offs; each padded with
         zeros to 64 bytes

An index that is damaged, of another format or of another ARPA file is made anew: it is never an error, nor is a folder
that cannot be written, where the index stays in memory.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from selfnorm.files import Hook, WriteError, atomic, sha256, silent
from selfnorm.ngrams.build import build
from selfnorm.ngrams.index import Index, Level, buckets_for
from selfnorm.vocabulary import Vocabulary

MAGIC = b"selfnorm n-gram index\n"
FORMAT = 1
HEADER = 4096
ALIGN = 64

Part = npt.NDArray[Any]


@dataclass(frozen=True)
class About:
    """What the header says: of which file, how many n-grams, and the sum of the parts."""

    bytes: int  # of the ARPA file
    mtime_ns: int
    sha256: str
    counts: list[int]
    text: int  # bytes of the words
    parts: str  # SHA-256 of the parts' SHA-256s
    format: int = FORMAT


KINDS = {name: getattr(kind, "__origin__", kind) for name, kind in About.__annotations__.items()}


def load(path: Path) -> Index:
    """The index of an ARPA file: the one beside it when it is whole and of this very file, else made and kept there."""
    status = path.stat()
    beside = index_path(path)
    try:
        if (index := _cached(beside, path, status)) is not None:
            return index
    except (ValueError, OSError):
        pass  # damaged: made anew below
    index = build(path)
    with suppress(WriteError, ValueError):  # no place for a file, a full disk: the index stays in memory
        save(beside, index, path, status)
    return index


def index_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.index")


def save(beside: Path, index: Index, path: Path, status: os.stat_result, hook: Hook = silent) -> None:
    """Write an index whole or not at all; `status` is of the ARPA file before it was read, and it is so still."""
    text = np.frombuffer("\n".join(index.vocabulary.words).encode(), np.uint8)
    parts: list[Part] = [text]
    for level in index.levels:
        parts += [level.keys, level.first, level.log_probs, level.backoffs]
    counts = [len(level) for level in index.levels]
    about = About(status.st_size, status.st_mtime_ns, sha256(path), counts, len(text), _sum(parts))
    if _version(path.stat()) != _version(status):
        return  # another file took its place meanwhile: whether the index is of this one nobody knows
    with atomic(beside, hook) as file:
        file.write(header(asdict(about)))
        for part in parts:
            file.write(part.data)
            file.write(bytes(-part.nbytes % ALIGN))


def read(beside: Path, about: About) -> Index:
    """Map an index, every part checked against its sum."""
    content = np.asarray(np.memmap(beside, np.uint8, "r"))
    shapes = list(_shapes(about))
    sizes = (np.dtype(dtype).itemsize * count for dtype, count in shapes)
    ends = list(accumulate((size + -size % ALIGN for size in sizes), initial=HEADER))
    if len(content) != ends[-1]:
        raise ValueError(f"{beside}: {len(content)} bytes where the header says {ends[-1]}; the file was cut")
    padded = [content[first:end] for first, end in pairwise(ends)]
    parts = [part.view(dtype)[:count] for part, (dtype, count) in zip(padded, shapes)]
    if _sum(padded) != about.parts:
        raise ValueError(f"{beside}: a part does not match its SHA-256; the file was damaged")
    words = parts[0].tobytes().decode().split("\n")
    levels = [Level(*parts[first : first + 4]) for first in range(1, len(parts), 4)]
    if len(words) + 1 != len(levels[0]):
        raise ValueError(f"{beside}: {len(words)} words and <s>, but {len(levels[0])} unigrams; it is not ours")
    if any(np.isneginf(part.min(initial=0.0)) for level in levels for part in (level.log_probs, level.backoffs)):
        raise ValueError(f"{beside}: has scores of -inf, which are no longer written")
    return Index(Vocabulary(words), tuple(levels))


def read_about(beside: Path) -> About:
    """The header, checked against its own sum."""
    with beside.open("rb") as file:
        head = file.read(HEADER)
    digest, body = head[len(MAGIC) : len(MAGIC) + 32], head[len(MAGIC) + 32 :]
    if not head.startswith(MAGIC) or hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{beside}: the header does not match its SHA-256; the file was damaged or is not ours")
    fields = json.loads(body.rstrip(b"\0"))
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError(f"{beside}: not of format {FORMAT}, which this version reads")
    kinds = {name: type(value) for name, value in fields.items()}
    if kinds != KINDS or not all(type(count) is int and count >= 0 for count in fields["counts"]):
        raise ValueError(f"{beside}: the header is not one that selfnorm writes")
    return About(**fields)


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _cached(beside: Path, path: Path, status: os.stat_result) -> Index | None:
    """The index kept beside an ARPA file, unless it is stale; a copied file has another time but the same sum."""
    if not beside.is_file():
        return None
    about = read_about(beside)
    if about.bytes != status.st_size or (about.mtime_ns != status.st_mtime_ns and about.sha256 != sha256(path)):
        return None
    return read(beside, about)


def header(about: Any) -> bytes:
    body = json.dumps(about).encode().ljust(HEADER - len(MAGIC) - 32, b"\0")
    return MAGIC + hashlib.sha256(body).digest() + body


def _shapes(about: About) -> Iterator[tuple[str, int]]:
    """The dtype and length of every part."""
    yield "u1", about.text
    for order, count in enumerate(about.counts, start=1):
        yield "<i8", count if order > 1 else 0
        yield "<u4", buckets_for(count) + 1 if order > 1 else 0
        yield "<f4", count
        yield "<f4", count if order < len(about.counts) else 0


def _sum(parts: Sequence[Part]) -> str:
    """Of the parts with their padding; hashlib lets go of the interpreter, so every core takes one."""

    def digest(part: Part) -> bytes:
        found = hashlib.sha256(part.data)
        found.update(bytes(-part.nbytes % ALIGN))
        return found.digest()

    with ThreadPoolExecutor() as pool:
        return hashlib.sha256(b"".join(pool.map(digest, parts))).hexdigest()
