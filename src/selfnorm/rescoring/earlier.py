"""What an earlier run left in the folder for results: of that, what this run does not write is removed.

A run keeps the names of its lists and lattices in scales.json, which comes last, and until then in a hidden file; no
others are ever removed.
"""

import json
from collections.abc import Iterable, Set
from pathlib import Path

from selfnorm.files import write_whole
from selfnorm.rescoring.results import KALDI, LATTICES, LISTS, SLF

SCALES, WRITTEN = "scales.json", "written"
APPEARING = ".written.json"


class Earlier:
    """Looks at the folder before anything is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = _written(folder / SCALES) | _written(folder / APPEARING)

    @staticmethod
    def own(names: Iterable[str]) -> list[str]:
        """Of the new names those to be kept in mind."""
        return sorted(filter(_is_ours, names))

    def note(self, names: Iterable[str]) -> None:
        """What is about to appear: it is known even if this run is killed before its end."""
        if own := self.own(names):
            content = json.dumps({WRITTEN: sorted(self.written.union(own))})
            write_whole(self.folder / APPEARING, content.encode())

    def clear(self, names: Set[str]) -> None:
        """Remove what was written before and is not among the new names."""
        old = self.written - names
        for name in old:
            (self.folder / name).unlink(missing_ok=True)
        lattices = self.folder / LATTICES
        if any(name.startswith(LATTICES) for name in old) and lattices.is_dir() and not any(lattices.iterdir()):
            lattices.rmdir()

    def end(self) -> None:
        """All that was written stands in scales.json."""
        (self.folder / APPEARING).unlink(missing_ok=True)


def _is_ours(name: str) -> bool:
    """A list, an archive of Kaldi, or a lattice in its folder."""
    folder, _, file = name.partition("/")
    return name in (LISTS, KALDI) or (folder == LATTICES and file.endswith(SLF) and "/" not in file)


def _written(scales: Path) -> set[str]:
    try:
        return set(Earlier.own(json.loads(scales.read_text()).get(WRITTEN, ())))
    except (OSError, ValueError, AttributeError, TypeError):  # no run of ours, or of an older version
        return set()
