"""Do two processes that share this machine's GPU train as one does? They talk by gloo: NCCL needs a GPU for each.

    python benchmarks/device_ranks.py [--device cpu]

Each kind is 100 steps on a small text, by one process and by two; its line has the largest relative difference of any
loss, and how far apart they may be. Results go to results/device_ranks.json; one that fails: exit status 1.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path

import torch

sys.path.extend(
    str(Path(__file__).resolve().parents[1] / folder)
    for folder in ("benchmarks", "tests", "tests/training", "tests/distributed")
)
from curves import calm, farthest
from rows import RESULTS, commit, machine
from trials import make_data

from selfnorm.recipe import Recipe, Table, to_toml

EXACT, HALF = 1e-4, 3e-2  # relative, of a loss: another order of sums in float32; the same in bfloat16


def kinds(data: Path, device: str) -> dict[str, tuple[Recipe, float]]:
    def made(criterion: str, precision: str = "float32", model: dict | None = None, **options: object) -> Recipe:
        recipe = calm(data, criterion, options, model)
        return replace(
            recipe, training=Table(None, {**recipe.training.options, "device": device, "precision": precision})
        )

    sparse = {"sparse": True}
    found = {
        "rows": (made("mode3"), EXACT),
        "dense": (made("ce"), EXACT),
        "position by position": (made("mode2", model=sparse), EXACT),
        "spread tables": (made("mode3", model=sparse, spread_tables=True), EXACT),
        "spread layers": (made("nce", spread_layers=True), EXACT),
    }
    if device != "cpu":
        found["rows, bfloat16"] = (made("mode3", "bfloat16"), HALF)
        found["spread tables, bfloat16"] = (made("mode3", "bfloat16", sparse, spread_tables=True), HALF)
    return found


def trained(recipe: Path, run: Path, *more: str) -> str | None:
    """What went wrong, if something did."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "selfnorm", "train", str(recipe), str(run), *more]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    return None if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def compared(folder: Path, name: str, made: Recipe, allowed: float) -> dict[str, object]:
    recipe = folder / f"{name}.toml"
    recipe.write_text(to_toml(made))
    wrong = trained(recipe, folder / f"{name}, 1") or trained(recipe, folder / f"{name}, 2", "--processes=2")
    far = None if wrong else farthest({name: made}, folder, 2)[name]
    return {
        "kind": name,
        "farthest": far,
        "allowed": allowed,
        "pass": far is not None and far <= allowed,
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (made, allowed) in kinds(make_data(Path(folder) / "text"), device).items():
            rows.append(compared(Path(folder), name, made, allowed))
            print(rows[-1], flush=True)
    about = {"machine": machine(), "torch": torch.__version__, "date": date.today().isoformat(), "commit": commit()}
    if device != "cpu":
        (RESULTS / "device_ranks.json").write_text(json.dumps({**about, "kinds": rows}, indent=1) + "\n")
    sys.exit(not all(row["pass"] for row in rows))


if __name__ == "__main__":
    main()
