"""The plots of docs/, made from benchmarks/results/*.csv.

python benchmarks/plots.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tables
from tables import ROOT, best_softmax, latest, rows, steps_of

from selfnorm import report


def second_pass() -> list[Path]:
    found = [row for row in latest(rows("second_pass"), "set", "subset", "system") if row["subset"] == "all"]
    sets = list(dict.fromkeys(row["set"] for row in found))
    values: dict[str, list[tuple[float, float, float]]] = {}
    for row in found:
        values.setdefault(row["system"], []).append((float(row["wer"]), float(row["low"]), float(row["high"])))
    return report.plot_errors(ROOT / "docs" / "second_pass", values, sets)


def output_layer() -> list[Path]:
    """The best full softmax and `mode3` at three K, one shape beside the other."""
    shapes = list(dict.fromkeys(row["shape"] for row in steps_of()))
    chosen: dict[str, list[tables.Row | None]] = {"best full softmax": [best_softmax(shape) for shape in shapes]}
    for k in ("8192", "1000", "100"):
        chosen[f"mode3, K = {int(k):,}"] = [
            next((row for row in steps_of(shape) if _kind(row) == ("mode3", k, "1")), None) for shape in shapes
        ]
    bars = {
        name: [(float(row["ms"]), float(row["limit_ms"])) if row else None for row in found]
        for name, found in chosen.items()
    }
    sizes = {row["shape"]: f"{row['shape']}\nC = {int(row['C']):,}" for row in steps_of()}
    return report.plot_speed(ROOT / "docs" / "output_layer", bars, list(sizes.values())) if shapes else []


def _kind(row: tables.Row) -> tuple[str, str, str]:
    return row["criterion"], row["k"], row["groups"]


def steps() -> list[Path]:
    """A line for each body, batch and criterion."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in latest(rows("steps"), "body", "criterion", "k", "C", "positions"):
        kind = f"{row['criterion']}, K = {int(row['k']):,}" if row["k"] else row["criterion"]
        name = f"{row['body']}, {int(row['positions']):,} words a step, {kind}"
        lines.setdefault(name, []).append((float(row["C"]), float(row["words_per_second"])))
    return report.plot_steps(ROOT / "docs" / "steps", lines) if lines else []


if __name__ == "__main__":
    for path in (*second_pass(), *output_layer(), *steps()):
        if path.suffix == ".png":  # pages show the SVG
            path.unlink()
        else:
            print(path.relative_to(ROOT))
