"""Files that are either whole or absent: atomic writing, checksums, and opening packed text."""

import bz2
import gzip
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

BLOCK = 1 << 20

Hook = Callable[[str], None]  # told each stage of a write, so that a test can stop there


def _silent(_stage: str) -> None:
    pass


@contextmanager
def atomic(path: Path, hook: Hook = _silent) -> Iterator[IO[bytes]]:
    """Write `path` so that it appears whole or not at all: temporary name, flushed to disk, renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            hook("opened")
            yield file
            hook("written")
            file.flush()
            os.fsync(file.fileno())
        hook("flushed")
        os.replace(temporary, path)
        hook("renamed")
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def open_packed(path: Path) -> IO[bytes]:
    """Open a plain, .gz or .bz2 file for reading bytes."""
    if path.suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if path.suffix == ".bz2":
        return bz2.open(path, "rb")
    return path.open("rb")
