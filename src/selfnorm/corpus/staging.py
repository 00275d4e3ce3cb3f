"""A folder that appears whole or not at all, also in the place of an older one."""

import ctypes
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfnorm import manifest
from selfnorm.files import naming, sha256, silent, sync_folder

SCRATCH = "scratch"  # a folder in the staged one for what is not to stay


@contextmanager
def staged(to: Path) -> Iterator[Path]:
    """A hidden folder beside `to` that takes its place, with a manifest, if the block ends well; else it is removed."""
    to = to.resolve()  # a link stays a link
    to.parent.mkdir(parents=True, exist_ok=True)
    stem = f".{to.name}.{socket.gethostname()}-"
    _remove_leftovers(to.parent, stem)
    folder = to.with_name(f"{stem}{os.getpid()}.tmp")
    try:
        with naming(to, folder):
            (folder / SCRATCH).mkdir(parents=True)
            yield folder
            shutil.rmtree(folder / SCRATCH)
            entries = {path.name: manifest.Entry(path.stat().st_size, sha256(path)) for path in folder.iterdir()}
            manifest.write_file(folder / manifest.MANIFEST, manifest.render(entries), silent)
            sync_folder(folder)
            exchange(folder, to)
            sync_folder(to.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what is left of the work, or what was replaced


def _remove_leftovers(parent: Path, stem: str) -> None:
    """Folders of runs that were killed: theirs was a process of this machine that is no more."""
    for folder in parent.iterdir():
        process = folder.name.removeprefix(stem).removesuffix(".tmp")
        if folder.name == f"{stem}{process}.tmp" and process.isdigit() and not _runs(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True


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
