"""Checkpoints: whole or absent, verified before use, the last good one untouched until the next is whole.

A checkpoint is a folder with three files, written under a hidden name, flushed to disk and renamed in one go:

    checkpoints/step-00001234/  tensors.safetensors  state.json  manifest.json

Only one process writes to a folder; any number may read.
"""

import json
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from selfnorm import manifest
from selfnorm.files import Hook, naming, silent, sync_folder
from selfnorm.tensorfile import read_tensors, write_tensors

TENSORS, STATE = "tensors.safetensors", "state.json"
FOLDER = re.compile(r"step-(\d{8,})(?:\.(\d+))?")  # .1, .2 … when a step is saved again
HIDDEN = ".tmp"  # ends the names of folders that are being written or removed


class BrokenCheckpoint(UserWarning):
    """A checkpoint is broken and an older one is used in its place."""


@dataclass(frozen=True)
class Checkpoint:
    """What `save` was given, and where it lies."""

    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    path: Path


@dataclass(frozen=True, order=True)
class Generation:
    """A folder that claims to hold a checkpoint; the greater, the newer."""

    step: int
    again: int
    path: Path


def _warn(sentence: str) -> None:
    warnings.warn(sentence, BrokenCheckpoint, stacklevel=3)


class Checkpoints:
    """The checkpoints of one run: those of the `keep` newest steps."""

    def __init__(self, folder: Path, keep: int = 2, warn: Callable[[str], None] = _warn) -> None:
        if keep < 1:
            raise ValueError(f"keep = {keep} would remove every checkpoint; keep at least 1, better 2")
        self.folder = folder
        self.keep = keep
        self.warn = warn

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], hook: Hook = silent) -> Path:
        """Write a checkpoint, then remove those it makes needless."""
        assert step >= 0, step
        self._make_folder()
        self.tidy()
        self._refuse_older(step)
        final = self._free_name(step)
        temporary = _hidden(final)
        try:
            with naming(final, temporary):
                temporary.mkdir()
                hook("folder made")
                _write(temporary, final, step, tensors, state, hook)
                sync_folder(temporary)
                hook("folder flushed")
                temporary.rename(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        hook("renamed")
        sync_folder(self.folder)
        hook("rename flushed")
        self._prune(final, step, hook)
        return final

    def latest(self) -> Checkpoint | None:
        """The newest whole checkpoint, None if none was ever written; every broken one in between is a warning."""
        broken = []
        for generation in self._generations():
            try:
                checkpoint = _read(generation)
            except (ValueError, OSError) as error:
                broken.append(str(error))
                continue
            for sentence in broken:
                self.warn(f"{sentence}; the checkpoint of step {checkpoint.step} is used instead")
            return checkpoint
        if broken:
            raise ValueError(
                f"{self.folder}: no whole checkpoint is left ({'; '.join(broken)}); "
                "restore the folder from a copy, or remove it to start at step 0"
            )
        return None

    def tidy(self) -> None:
        """Remove what a killed writer left. One process writes here, so whatever is hidden is nobody's."""
        for path in self.folder.glob(f".*{HIDDEN}"):
            _delete(path)

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(parents=True)
            sync_folder(self.folder.parent)

    def _generations(self) -> list[Generation]:
        """Newest first."""
        if not self.folder.is_dir():
            return []
        found = ((FOLDER.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted(
            (Generation(int(match[1]), int(match[2] or 0), path) for match, path in found if match), reverse=True
        )

    def _refuse_older(self, step: int) -> None:
        """A whole checkpoint of a later step means that nobody resumed from it; it must not be pruned as old."""
        for generation in self._generations():
            if generation.step > step and _is_whole(generation):
                raise ValueError(
                    f"{generation.path}: is newer than step {step}, which is to be saved; "
                    "resume from it, or train into another run directory"
                )

    def _free_name(self, step: int) -> Path:
        """A folder cannot be renamed over another, so a step saved again gets a name that sorts after the first."""
        taken = [generation.again for generation in self._generations() if generation.step == step]
        return self.folder / (f"step-{step:08d}" + (f".{max(taken) + 1}" if taken else ""))

    def _prune(self, saved: Path, step: int, hook: Hook) -> None:
        """Keep `saved` and the newest of each earlier step; others at its step or after are replaced or broken."""
        generations = self._generations()
        earlier = {entry.step: entry.path for entry in reversed(generations) if entry.step < step}  # the newest wins
        needless = len(earlier) + 1 - self.keep
        kept = {saved, *list(earlier.values())[max(0, needless) :]}
        for generation in generations:
            if generation.path not in kept:
                # Renamed first: a half-removed folder must not look like a checkpoint.
                hidden = generation.path.rename(_hidden(generation.path))
                hook(f"removing {generation.path.name}")
                _delete(hidden)
                hook(f"removed {generation.path.name}")


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}{HIDDEN}")


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _write(
    folder: Path, final: Path, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], hook: Hook
) -> None:
    def put(name: str, content: manifest.Content) -> manifest.Entry:
        return manifest.write_file(folder / name, content, lambda stage: hook(f"{name} {stage}"), final / name)

    # Python's own JSON, which has NaN and Infinity: a best loss that starts at infinity must not stop a run.
    text = json.dumps({"step": step, "state": dict(state)}, indent=1).encode()
    entries = {TENSORS: put(TENSORS, lambda write: write_tensors(write, tensors, hook)), STATE: put(STATE, text)}
    put(manifest.MANIFEST, manifest.render(entries))


def _verify(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        raise ValueError(f"{path}: is not a folder of its own but a link or a file; put the checkpoint itself there")
    entries = manifest.read(path)
    if entries.keys() != {TENSORS, STATE}:
        raise ValueError(f"{path / manifest.MANIFEST}: does not list {TENSORS} and {STATE}; it is not a checkpoint's")
    for name, entry in entries.items():
        manifest.check(path / name, entry)


def _read(generation: Generation) -> Checkpoint:
    path = generation.path
    _verify(path)
    content = manifest.read_json(path / STATE)
    if not isinstance(content, dict) or content.keys() != {"step", "state"} or not isinstance(content["state"], dict):
        raise ValueError(f"{path / STATE}: does not hold a step and a state; it was not written by selfnorm")
    if content["step"] != generation.step:
        raise ValueError(f"{path}: holds step {content['step']}, not the one in its name; the folder was renamed")
    return Checkpoint(generation.step, read_tensors(path / TENSORS), content["state"], path)


def _is_whole(generation: Generation) -> bool:
    try:
        _read(generation)
    except (ValueError, OSError):
        return False
    return True
