"""The plots of docs/, made from benchmarks/results/*.csv.

python benchmarks/plots.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from tables import ROOT, latest, rows

from selfnorm import report


def second_pass() -> list[Path]:
    found = [row for row in latest(rows("second_pass"), "set", "subset", "system") if row["subset"] == "all"]
    sets = list(dict.fromkeys(row["set"] for row in found))
    values: dict[str, list[tuple[float, float, float]]] = {}
    for row in found:
        values.setdefault(row["system"], []).append((float(row["wer"]), float(row["low"]), float(row["high"])))
    return report.plot_errors(ROOT / "docs" / "second_pass", values, sets)


if __name__ == "__main__":
    for path in second_pass():
        if path.suffix == ".png":  # pages show the SVG
            path.unlink()
        else:
            print(path.relative_to(ROOT))
