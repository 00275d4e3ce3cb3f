"""The run directory: its files change together, or not at all, and are verified before use.

    recipe.toml  vocab.txt  model.safetensors  config.json  README.md  manifest.json      listed in the manifest
    metrics.jsonl  checkpoints/  TensorBoard events                                       not listed: they grow

The manifest is the commit point. New files are first staged under hidden names that carry their SHA-256, then the
manifest is replaced in one rename, then the staged files are renamed over the old ones. A reader takes, for each entry
of the manifest, the staged file if there is one and the public one otherwise: before the rename of the manifest that
is all of the old generation, after it all of the new one, wherever a writer was killed.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from selfnorm import manifest
from selfnorm.files import Hook, atomic, naming, silent, sync_folder
from selfnorm.manifest import MANIFEST, Content, Entry
from selfnorm.tensorfile import read_tensors, write_tensors

T = TypeVar("T")

MODEL, CONFIG = "model.safetensors", "config.json"
STAGED = ".staged"  # ends the names of files that wait for their manifest, or for their last rename
LEFTOVERS = (f".*{STAGED}", f".{MANIFEST}.*.tmp", ".metrics.jsonl.*.tmp")  # one process writes here: they are nobody's


def save_model(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    files: Mapping[str, bytes],
    hook: Hook = silent,
) -> None:
    """Write the model, its config and `files` (vocab.txt, README.md, recipe.toml …) as one change of the run."""
    try:
        text = json.dumps(dict(config), indent=1, allow_nan=False)  # other programs read this file
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG}: the config holds NaN or infinity; leave the value out") from error
    contents: dict[str, Content] = dict(files)
    contents[MODEL] = lambda write: write_tensors(write, tensors, hook)
    contents[CONFIG] = f"{text}\n".encode()
    save_files(folder, contents, hook=hook)


def save_files(folder: Path, files: Mapping[str, Content], hook: Hook = silent) -> None:
    """Write some files as one change of the run; the others stay as they are."""
    for name in files:
        if not manifest.is_plain(name):
            raise ValueError(f"{name!r} cannot be a file of a run; give a plain name other than {MANIFEST}")
    folder.mkdir(parents=True, exist_ok=True)
    old = _old_entries(folder)
    try:
        entries = old | {name: _stage(folder, name, content, hook) for name, content in files.items()}
        sync_folder(folder)
        hook("all staged")
        with atomic(folder / MANIFEST, lambda stage: hook(f"{MANIFEST} {stage}")) as file:
            file.write(manifest.render(entries))
    finally:  # after an error too: by then the manifest is the old one or the new
        _settle(folder, _old_entries(folder), hook)


def load_model(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the config of a run, after every file of it was verified."""

    def read(paths: dict[str, Path]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        if MODEL not in paths or CONFIG not in paths:
            if "recipe.toml" not in paths:  # DATA has a manifest, too
                raise ValueError(f"{folder}: is not a run; give a directory that `selfnorm train` wrote")
            raise ValueError(f"{folder}: the run has no model yet; go on with `selfnorm train` until it is saved")
        return read_tensors(paths[MODEL]), _read_config(paths[CONFIG])

    return _read_whole(folder, read)


def verify(folder: Path) -> dict[str, Path]:
    """Refuse a run with a broken or missing file, by name; else say where each file is to be read."""
    return _read_whole(folder, lambda paths: paths)


def path_of(folder: Path, name: str) -> Path:
    """Where one listed file is to be read, unverified: not always its public name, if a writer was killed."""
    _, paths = _look(folder)
    if name not in paths:
        raise ValueError(f"{folder}: the run has no {name}; go on with `selfnorm train` until it is saved")
    return paths[name]


def _read_whole(folder: Path, read: Callable[[dict[str, Path]], T]) -> T:
    """Verify every file, then read; once more if a training saved its next model meanwhile."""
    while True:
        look = entries, paths = _look(folder)
        try:
            for name, path in paths.items():
                manifest.check(path, entries[name])
            result = read(paths)
        except (ValueError, OSError):
            if _look(folder) == look:
                raise
            continue
        if _look(folder) == look:
            return result


def _look(folder: Path) -> tuple[dict[str, Entry], dict[str, Path]]:
    """What the run should hold, and where each file lies now."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: there is no such directory; give one that `selfnorm train` wrote")
    if not os.path.lexists(folder / MANIFEST):
        raise ValueError(f"{folder}: is not a run, it has no {MANIFEST}; give a directory that `selfnorm train` wrote")
    entries = manifest.read(folder)
    return entries, {name: _path(folder, name, entry) for name, entry in entries.items()}


def _read_config(path: Path) -> dict[str, Any]:
    config = manifest.read_json(path)
    if not isinstance(config, dict):
        raise ValueError(f"{path}: is not a JSON object; it was not written by selfnorm")
    return config


def _stage(folder: Path, name: str, content: Content, hook: Hook) -> Entry:
    """Write a file under a name that only a manifest with its very hash leads to."""
    temporary = folder / f".{name}.tmp{STAGED}"
    try:
        entry = manifest.write_file(temporary, content, lambda stage: hook(f"{name} {stage}"), folder / name)
        with naming(folder / name, temporary):
            os.replace(temporary, _staged(folder, name, entry))
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    hook(f"{name} staged")
    return entry


def _settle(folder: Path, entries: Mapping[str, Entry], hook: Hook) -> None:
    """Give the staged files of the manifest their public names and remove those of changes that never came to be."""
    for name, entry in entries.items():
        staged = _staged(folder, name, entry)
        if staged.exists():
            os.replace(staged, folder / name)
            hook(f"{name} renamed")
    sync_folder(folder)
    for path in [path for pattern in LEFTOVERS for path in folder.glob(pattern)]:
        path.unlink()
        hook("leftover removed")


def _staged(folder: Path, name: str, entry: Entry) -> Path:
    return folder / f".{name}.{entry.sha256[:16]}{STAGED}"


def _path(folder: Path, name: str, entry: Entry) -> Path:
    staged = _staged(folder, name, entry)
    return staged if os.path.lexists(staged) else folder / name


def _old_entries(folder: Path) -> dict[str, Entry]:
    """What the run has so far. A damaged manifest must not stop a training from saving: it is replaced, loudly."""
    if not os.path.lexists(folder / MANIFEST):
        return {}
    try:
        return manifest.read(folder)
    except ValueError as error:
        warnings.warn(f"{error}; it is replaced and lists only the files saved now", stacklevel=4)
        return {}
