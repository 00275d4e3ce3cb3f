"""Files that are either whole or absent: atomic writing, checksums, packed text, numbers as JSON has them, locks."""

import bz2
import fcntl
import gzip
import hashlib
import io
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from selfnorm import bzip2
from selfnorm.cores import cores

BLOCK = 1 << 20
LARGE = 1 << 22  # bytes of a packed file, from which on it is worth several threads
UNPACKING = 8  # threads at most
SHORT = 120  # bytes of a name that names of temporary files begin with

Hook = Callable[[str], None]  # told each stage of a write, so that a test can stop there
Write = Callable[[bytes | memoryview], object]  # takes a file piece by piece


def silent(_stage: str) -> None:
    pass


class WriteError(OSError):
    """A file that could not be written (disk full, quota, no permission); `errno` and `filename` are set."""

    def __str__(self) -> str:
        return f"{self.filename} cannot be written: {self.strerror}; mend this and go on, nothing else was changed"


def check_file(path: Path, advice: str) -> None:
    """Refuse what is no file: most are read more than once, and what comes through a pipe is not."""
    if not path.exists():
        raise ValueError(f"{path}: there is no such file; {advice}")
    if not path.is_file():
        raise ValueError(f"{path}: is a {'folder' if path.is_dir() else 'pipe or device'}, not a file; {advice}")


def check_place(path: Path) -> None:
    """Refuse what no file can take the place of."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path}: is a pipe or device, not a file; give another name for what is written")


def shortened(name: str) -> str:
    """A name to which others can be added: no file system takes more than 255 bytes."""
    return os.fsencode(name)[:SHORT].decode(errors="ignore")


def check_unread(to: Path, given: Iterable[Path | None]) -> None:
    """Refuse to write over what is read."""
    for path in given:
        if path is not None and path.exists() and to.exists() and to.samefile(path):
            raise ValueError(f"{to}: is read, and would be written over; give another name for what is made")


@contextmanager
def atomic(path: Path, hook: Hook = silent) -> Iterator[IO[bytes]]:
    """Write `path` so that it appears whole or not at all: temporary name, flushed to disk, renamed."""
    check_place(path)
    place = Path(os.path.realpath(path)) if path.is_symlink() else path  # a link stays a link
    unique = f"{os.getpid()}-{os.urandom(4).hex()}"  # in another container there may be a process of this number
    temporary = place.with_name(f".{shortened(place.name)}.{unique}.tmp")
    try:
        with naming(path, temporary):
            with flushed(temporary, hook) as file:
                yield file
            os.replace(temporary, place)
            hook("renamed")
            sync_folder(place.parent)
    except BaseException:
        with suppress(OSError):  # of a folder that cannot be written the first error tells more
            temporary.unlink()
        raise


def write_whole(path: Path, content: bytes) -> None:
    """The file with all of this in it, or as it was."""
    with atomic(path) as file:
        file.write(content)


@contextmanager
def flushed(path: Path, hook: Hook = silent) -> Iterator[IO[bytes]]:
    """Write `path` under its own name, on the disk when the block ends: for a file nobody looks at yet."""
    with path.open("wb") as file:
        hook("opened")
        yield file
        hook("written")
        file.flush()
        os.fsync(file.fileno())
    hook("flushed")


@contextmanager
def naming(path: Path, temporary: Path) -> Iterator[None]:
    """Give an error of the system the name the user knows: write() knows none, open() the temporary one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise WriteError(error.errno, os.strerror(error.errno), str(path)) from error


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


def open_packed(path: Path, raw: IO[bytes] | None = None) -> IO[bytes]:
    """Open a plain, .gz or .bz2 file for reading bytes; `raw` is that file already open, to ask how far it was read."""
    if path.suffix == ".gz":
        return gzip.open(raw or path, "rb")  # type: ignore[return-value]
    if path.suffix == ".bz2":
        threads = min(UNPACKING, cores())
        if threads == 1 or path.stat().st_size < LARGE:
            return bz2.open(raw or path, "rb")
        return io.BufferedReader(bzip2.Reader(raw or path.open("rb"), threads, keep=raw is not None), BLOCK)
    return raw or path.open("rb")


@contextmanager
def unpacking(path: Path) -> Iterator[None]:
    """Give the faults of packed files a sentence; the standard library names neither the file nor the remedy."""
    try:
        yield
    except (EOFError, zlib.error) as error:
        raise ValueError(f"{path}: the packed file is damaged ({error}); pack or copy it again") from error
    except OSError as error:
        if error.filename is not None or (error.errno is None and path.suffix not in (".gz", ".bz2")):
            raise
        if error.errno is not None:  # read() knows no name
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise ValueError(f"{path}: not a whole {path.suffix} file ({error}); pack or copy it again") from error


def finite(value: Any) -> Any:
    """The value as JSON knows it: null where it is not finite."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def locked(folder: Path, busy: str | None = None) -> Iterator[None]:
    """The folder, made if need be, for one process at a time; `busy` is said to others, else they wait for it.

    It ends with the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            raise ValueError(f"{folder}: {busy}") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
