"""`manifest.json`: size and SHA-256 of a folder's files, and of itself: no flipped bit is read in silence."""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from selfnorm.files import Hook, Write, flushed, naming, sha256

MANIFEST = "manifest.json"
FORMAT = 1
LARGEST = 1 << 20  # bytes of a manifest; ours have a handful of lines

Content = bytes | Callable[[Write], None]  # the bytes, or whoever hands them on piece by piece


@dataclass(frozen=True)
class Entry:
    """What a file must be."""

    bytes: int
    sha256: str


Entries = Mapping[str, Entry]


def write_file(path: Path, content: Content, hook: Hook, known_as: Path | None = None) -> Entry:
    """Write one file, flushed to disk, and return its entry; errors name it `known_as`."""
    digest, size = hashlib.sha256(), 0
    with naming(known_as or path, path), flushed(path, hook) as file:

        def write(piece: bytes | memoryview) -> None:
            nonlocal size
            file.write(piece)
            digest.update(piece)
            size += len(piece)

        write(content) if isinstance(content, bytes) else content(write)
    return Entry(size, digest.hexdigest())


def render(entries: Entries) -> bytes:
    """The one spelling of a manifest; any other is refused, so every bit of the file counts."""
    body = {"format": FORMAT, "files": {name: asdict(entries[name]) for name in sorted(entries)}}
    own = hashlib.sha256(json.dumps(body).encode()).hexdigest()
    return (json.dumps(body | {"sha256": own}, indent=1) + "\n").encode()


def read(folder: Path) -> dict[str, Entry]:
    """The entries of a folder's manifest, which must be exactly as `render` writes it."""
    path = folder / MANIFEST
    size = _regular(path)
    if size > LARGEST:
        raise ValueError(f"{path}: {size} bytes are too many for a manifest; it was damaged or is not ours")
    raw = path.read_bytes()
    entries = _parse(path, raw)
    for name in entries:
        if not is_plain(name):
            raise ValueError(f"{path}: {name!r} is not a plain file name inside the folder; the manifest is not ours")
    if render(entries) != raw:
        raise ValueError(f"{path}: the manifest does not match its own SHA-256; it was damaged or edited")
    return entries


def check(path: Path, entry: Entry) -> None:
    """Refuse a file that is not bit for bit the one of its entry."""
    size = _regular(path)
    if size != entry.bytes:
        raise ValueError(
            f"{path}: {size} bytes instead of the {entry.bytes} in {MANIFEST}; the file was cut or replaced"
        )
    if sha256(path) != entry.sha256:
        raise ValueError(f"{path}: its SHA-256 is not the one in {MANIFEST}; the file was damaged or replaced")


def is_plain(name: str) -> bool:
    """A name that stays in its folder, is not hidden and is not the manifest's own."""
    return (
        name == os.path.basename(name)
        and not name.startswith(".")
        and not set(name) & set("\\\0")
        and name not in ("", MANIFEST)
    )


def read_json(path: Path) -> Any:
    """JSON from a file whose sum has been checked; hostile nesting is an error like any other."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not valid JSON ({error}); it was not written by selfnorm") from error


def _parse(path: Path, raw: bytes) -> dict[str, Entry]:
    try:
        files = json.loads(raw)["files"]
        return {name: Entry(int(fields["bytes"]), str(fields["sha256"])) for name, fields in files.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{path}: not a manifest ({type(error).__name__}: {error}); it was damaged or is not ours"
        ) from error


def _regular(path: Path) -> int:
    """The size of a plain file; links, pipes and folders are refused before anything is opened."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        raise ValueError(f"{path}: the file is missing; it was removed, or its folder is not a whole one") from None
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a plain file"
        raise ValueError(f"{path}: is {kind}, which is refused; put the file itself there")
    return status.st_size
