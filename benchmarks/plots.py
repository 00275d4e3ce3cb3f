"""The plots of docs/, made from benchmarks/results/*.csv.

python benchmarks/plots.py
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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


def scaling() -> list[Path]:
    """Bytes that a rank sends at a step over C: where it was measured, and on a cluster; lines are the model's."""
    kinds = {"dense": "dense: DDP", "rows": "rows: every rank has all rows", "spread": "spread: each has its rows"}
    shapes = ((4, 1000, 1024), (64, 8192, 8192))

    def draw(panels: Sequence[Any]) -> None:
        for axes, (ranks, k, positions) in zip(panels, shapes):
            wanted = {"ranks": ranks, "K": k, "N": positions, "G": 1, "H": 512}
            found = [row for row in tables.scaling("bytes") if wanted.items() <= row.items()]
            seen = latest(rows("scaling"), "way", "ranks", "C", "H", "K", "N")
            seen = [row for row in seen if all(row[key] == str(value) for key, value in wanted.items())]
            for colour, marker, (way, name) in zip(report.COLOURS, report.MARKERS, kinds.items()):
                axes.plot([row["C"] for row in found], [row[way] / 1e6 for row in found], color=colour, label=name)
                points = [(int(row["C"]), float(row["sent_bytes"]) / 1e6) for row in seen if row["way"] == way]
                axes.plot(*zip(*points), marker, color=colour) if points else None
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xticks([row["C"] for row in found], ["30k", "200k", "1M", "10M"])
            axes.minorticks_off()
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.set_ylim(3, 5e5)  # room for the legend
            axes.set_xlabel("words in the vocabulary, H = 512")
            axes.set_title(f"{ranks} ranks, {positions:,} positions each, K = {k:,}", loc="left", fontsize=9)
            axes.grid(axis="y", alpha=0.3)
        panels[0].set_ylabel("MB sent by a rank at a step")
        panels[0].legend(frameon=False, fontsize=8)

    return report._save(ROOT / "docs" / "scaling", draw, panels=2)


if __name__ == "__main__":
    for path in (*second_pass(), *output_layer(), *steps(), *scaling()):
        if path.suffix == ".png":  # pages show the SVG
            path.unlink()
        else:
            print(path.relative_to(ROOT))
