"""What an earlier run left in the folder for results: of that, what this run does not write is removed.

A run keeps the names of its lists and lattices in scales.json; no other file is ever removed.
"""

import json
from collections.abc import Set
from pathlib import Path

from selfnorm.rescoring.results import KALDI, LATTICES, LISTS, SLF

SCALES, WRITTEN = "scales.json", "written"
OURS = {LISTS, KALDI, LATTICES}


class Earlier:
    """Looks at the folder before anything is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = _written(folder / SCALES)
        self.foreign = {LATTICES} - self.written if (folder / LATTICES).exists() else set()

    def own(self, names: Set[str]) -> list[str]:
        """Of the new names those to be kept in mind; a folder of lattices that others made is not ours to empty."""
        return sorted(names & OURS - self.foreign)

    def clear(self, names: Set[str]) -> None:
        """Remove what was written before and is not among the new names."""
        for name in self.written - {LATTICES} - names:
            (self.folder / name).unlink(missing_ok=True)
        lattices = self.folder / LATTICES
        if LATTICES in self.written and lattices.is_dir():
            for path in lattices.iterdir():
                if path.name.endswith(SLF) and f"{LATTICES}/{path.name}" not in names:
                    path.unlink()
            if not any(lattices.iterdir()):
                lattices.rmdir()


def _written(scales: Path) -> set[str]:
    try:
        return OURS & set(json.loads(scales.read_text()).get(WRITTEN, ()))
    except (OSError, ValueError, AttributeError, TypeError):  # no run of ours, or of an older version
        return set()
