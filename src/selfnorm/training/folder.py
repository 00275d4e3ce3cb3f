"""The run directory as a training finds it: new or a run, and nobody else's at the moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfnorm import manifest, recipe, run
from selfnorm.files import locked
from selfnorm.manifest import MANIFEST

RECIPE = "recipe.toml"


@contextmanager
def ours(folder: Path) -> Iterator[None]:
    """The folder for one training at a time; the system lets go of it when a process dies."""
    _refuse_foreign(folder)
    with locked(folder, "another training is writing to it; wait for it, or end it first"):
        yield


def _refuse_foreign(folder: Path) -> None:
    """What is hidden may be left from a training killed in its first moments."""
    advice = "give a new directory, or one that `selfnorm train` wrote"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder}: is a file, not a run directory; {advice}")
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")} if folder.exists() else set()
    if names and RECIPE not in names and not (MANIFEST in names and RECIPE in _listed(folder)):
        raise ValueError(f"{folder}: is neither empty nor a run; {advice}")


def _listed(folder: Path) -> manifest.Entries:
    try:
        return manifest.read(folder)
    except ValueError:
        return {}


def changed(folder: Path, given: recipe.Recipe) -> list[str]:
    """The tables of a recipe that are not those of the run so far."""
    try:
        before = recipe.load(run.path_of(folder, RECIPE))
    except ValueError:  # it is damaged, and written anew
        return []
    return [key for key in recipe.KEYS[1:] if getattr(before, key) != getattr(given, key)]


def fault(folder: Path) -> str | None:
    """What is wrong with the files of a run that should hold a model; None if nothing is."""
    try:
        missing = run.MODEL not in run.verify(folder)
    except ValueError as error:
        return str(error)
    return f"{folder}: its {MANIFEST} lists no {run.MODEL}" if missing else None
