"""Work that any number of processes share: a folder of steps, each done once, by whoever claims it first.

A step is a folder with a manifest that appears whole, so that its presence means done. Processes may be killed at any
time, and others may come later: what is done stays done. When the last step is, the others may go.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfnorm import manifest
from selfnorm.claims import STALE, share
from selfnorm.corpus.staging import is_whole, settled
from selfnorm.files import sha256

BEGUN, LAST, CLAIMS = "begun", "done", "claims"
LARGEST = 1 << 26  # bytes of a file that is compared by its content; of a larger one, name, size and time are
SOON, SELDOM = 3.0, 30.0  # seconds until the first line of one who waits, and between two lines

Tell = Callable[[str], None]
Do = Callable[[str, Path], None]  # the name of a step, and the folder for its files


class Busy(Exception):  # noqa: N818  nothing is wrong: others hold what is left
    """Nothing to do but to wait, by one who does not."""


class Over(Exception):  # noqa: N818  nothing is wrong: others did all
    """A step is gone because the last one is done."""


class Board:
    """The steps in a folder. Who does not `wait` gets `Busy` when others hold the last that is left."""

    def __init__(self, folder: Path, tell: Tell, wait: bool = True, stale: float = STALE) -> None:
        self.folder, self.tell, self.wait, self.stale = folder, tell, wait, stale

    def begin(self, given: Mapping[str, Any]) -> None:
        """Refuse to share with a command that was given something else."""
        text = json.dumps(given)

        def note(_: str, folder: Path) -> None:
            (folder / "given.json").write_text(text)

        self.do([BEGUN], note, more=True)
        begun = manifest.read_json(self.folder / BEGUN / "given.json")
        mine = json.loads(text)
        for name in dict.fromkeys([*begun, *mine]):
            if begun.get(name) != mine.get(name):
                raise ValueError(
                    f"{self.folder}: was begun with {name.replace('_', '-')} {_shown(begun.get(name))}, and this "
                    f"command has {_shown(mine.get(name))}; give the same, or remove this folder to begin anew"
                )

    def do(self, names: Sequence[str], work: Do, more: bool = False) -> None:
        """See these steps done: by `work`, where nobody else does them. Where `more` is to be done after, all wait."""

        def step(name: str) -> None:
            try:
                with settled(self.folder / name) as folder:
                    work(name, folder)
            except OSError:
                if not self.over:  # who slept while others ended may find his files gone
                    raise

        report = _Waiting(self.tell, len(names)) if self.wait or more else None
        if not share(self.folder / CLAIMS, names, self.done, step, report, self.stale):
            raise Busy(f"{self.folder}: others are at work on all that is left; it will be there when they are done")

    def done(self, name: str) -> bool:
        return is_whole(self.folder / name) or (name != BEGUN and self.over)

    @property
    def over(self) -> bool:
        return is_whole(self.folder / LAST)

    def path(self, name: str, file: str) -> Path:
        """A file of a step, checked."""
        with self._unless_over(name):
            manifest.check(self.folder / name / file, manifest.read(self.folder / name)[file])
        return self.folder / name / file

    def files(self, name: str) -> list[str]:
        with self._unless_over(name):
            return sorted(manifest.read(self.folder / name))

    @contextmanager
    def _unless_over(self, name: str) -> Iterator[None]:
        """A step that cannot be read may be one that is not needed any more."""
        try:
            yield
        except (ValueError, OSError):
            if self.over and name != LAST:
                raise Over from None
            raise

    def read(self, name: str, file: str) -> Any:
        return manifest.read_json(self.path(name, file))

    def tidy(self) -> None:
        """Remove all steps but the first and the last."""
        assert self.over
        for path in self.folder.iterdir():
            if path.name not in (BEGUN, LAST, CLAIMS):
                shutil.rmtree(path, ignore_errors=True)


class _Waiting:
    """Says who holds what: soon, then seldom."""

    def __init__(self, tell: Tell, steps: int) -> None:
        self.tell, self.steps = tell, steps
        self.next: float | None = None

    def __call__(self, held: Mapping[str, str]) -> None:
        now = time.monotonic()
        self.next = now + SOON if self.next is None else self.next
        if now < self.next:
            return
        self.next = now + SELDOM
        first = ", ".join(f"{name} ({holder})" for name, holder in list(held.items())[:3])
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        self.tell(f"waiting for {first}{more}; {self.steps - len(held)} of {self.steps} done")


def numbered(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number:06d}" for number in range(count)]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def alike(value: Any) -> Any:
    """What to compare of something a command was given: of a file or folder its content, of several their listing."""
    if isinstance(value, Path):
        if value.is_dir():
            known = value / manifest.MANIFEST
            return f"sha256 {sha256(known)}" if known.is_file() else listing([value])
        if value.is_file() and value.stat().st_size <= LARGEST:
            return f"sha256 {sha256(value)}"
        return listing([value])
    if isinstance(value, list | tuple) and value and isinstance(value[0], Path):
        return listing(value)
    return value


def listing(paths: Iterable[Path]) -> str:
    """Names, sizes and times of files, and of the files in folders, as one sum."""
    lines = []
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                status = file.stat()
                lines.append(f"{file.relative_to(path.parent)}\t{status.st_size}\t{int(status.st_mtime)}")
    return f"{len(lines)} files, {hashlib.sha256(os.fsencode(os.linesep.join(lines))).hexdigest()}"
