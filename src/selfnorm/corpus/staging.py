"""A folder that appears whole or not at all, also in the place of an older one."""

import ctypes
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfnorm import manifest
from selfnorm.claims import here, leftovers
from selfnorm.files import naming, sha256, silent, sync_folder

SCRATCH = "scratch"  # a folder in the staged one for what is not to stay


@contextmanager
def staged(to: Path) -> Iterator[Path]:
    """A hidden folder beside `to` that takes its place, with a manifest, if the block ends well; else it is removed."""
    with _stage(to) as (to, folder):
        yield folder
        _finish(folder)
        exchange(folder, to)
        sync_folder(to.parent)


@contextmanager
def settled(to: Path) -> Iterator[Path]:
    """The same for what all who write it write alike: a folder that is whole already stays."""
    with _stage(to) as (to, folder):
        yield folder
        _finish(folder, sync=True)
        try:
            os.rename(folder, to)
        except OSError:
            if not to.is_dir():
                raise
            if not is_whole(to):
                exchange(folder, to)
        sync_folder(to.parent)


def is_whole(folder: Path) -> bool:
    """Whether a folder has a manifest, which comes last, and all its files at their sizes."""
    try:
        return all((folder / name).stat().st_size == entry.bytes for name, entry in manifest.read(folder).items())
    except (ValueError, OSError):
        return False


@contextmanager
def _stage(to: Path) -> Iterator[tuple[Path, Path]]:
    """The place that a link leads to, and a new folder beside it."""
    to = to.resolve()  # a link stays a link
    to.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{to.name}.{here()}-"
    for folder in leftovers(to.parent, stem):
        shutil.rmtree(folder, ignore_errors=True)
    folder = to.with_name(f"{stem}{os.getpid()}.tmp")
    try:
        with naming(to, folder):
            (folder / SCRATCH).mkdir(parents=True)
            yield to, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is left of the work, or what was replaced


def _finish(folder: Path, sync: bool = False) -> None:
    """What stays, with its manifest; `sync` brings files to the disk that their writers did not."""
    shutil.rmtree(folder / SCRATCH)
    entries = {path.name: manifest.Entry(path.stat().st_size, sha256(path)) for path in folder.iterdir()}
    for name in entries if sync else ():
        sync_folder(folder / name)  # a file's handle does as well
    manifest.write_file(folder / manifest.MANIFEST, manifest.render(entries), silent)
    sync_folder(folder)


def exchange(folder: Path, to: Path) -> None:
    """Put `folder` in the place of `to`; Linux swaps two folders in one step, so there is always one under the name."""
    if not to.exists() or not any(to.iterdir()):
        os.replace(folder, to)
        return
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None or renameat2(here, os.fsencode(folder), here, os.fsencode(to), swap) != 0:
        old = folder.with_suffix(".old")
        os.rename(to, old)
        os.rename(folder, to)
        os.rename(old, folder)
