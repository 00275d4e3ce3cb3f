"""The plots of docs/, made from benchmarks/results/*.csv.

python benchmarks/plots.py
"""

import sys
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import tables
from tables import ROOT, best_softmax, latest, rows, steps_of

from selfnorm import report

BARS = ("#999999", "#0072b2", "#56b4e9", "#009e73")  # the first is what all others are compared with


def second_pass() -> list[Path]:
    found = [row for row in latest(rows("second_pass"), "set", "subset", "system") if row["subset"] == "all"]
    sets = list(dict.fromkeys(row["set"] for row in found))
    values: dict[str, list[tuple[float, float, float]]] = {}
    for row in found:
        values.setdefault(row["system"], []).append((float(row["wer"]), float(row["low"]), float(row["high"])))
    return plot_errors(ROOT / "docs" / "second_pass", values, sets)


def plot_errors(
    path: Path, values: Mapping[str, Sequence[tuple[float, float, float]]], sets: Sequence[str]
) -> list[Path]:
    """Word error rates and their 95 % intervals: a row for each system, a colour for each set."""

    def draw(axes: Any) -> None:
        places = np.arange(len(values))[::-1]
        for n, (colour, marker, name) in enumerate(zip(cycle(report.COLOURS), cycle(report.MARKERS), sets)):
            rate, low, high = np.array([each[n] for each in values.values()]).T
            bars = [rate - low, high - rate]
            axes.errorbar(rate, places, xerr=bars, fmt=marker, color=colour, markersize=6, capsize=3)
            axes.text(rate[0], len(values) - 0.45, name, color=colour, ha="center")
            for place, each in zip(places, rate):
                axes.annotate(f"{each:.1f}", (each, place), (0, 6), textcoords="offset points", ha="center", fontsize=8)
        axes.set_yticks(places, list(values))
        axes.set_ylim(-0.6, len(values))
        axes.set_xlim(left=0)
        axes.set_xlabel("word error rate in per cent; bars: 95 % intervals")
        axes.set_title("Second pass on real recogniser output", loc="left")
        axes.grid(axis="x", alpha=0.3)

    return report.save(path, draw)


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
    return plot_speed(ROOT / "docs" / "output_layer", bars, list(sizes.values())) if shapes else []


def plot_speed(
    path: Path, bars: Mapping[str, Sequence[tuple[float, float] | None]], places: Sequence[str]
) -> list[Path]:
    """Milliseconds of each way at each place, bars on a log axis; a black mark is what the machine allows at best."""
    found = [each for ways in bars.values() for each in ways if each]
    low, high = 0.6 * min(min(each) for each in found), max(max(each) for each in found)

    def draw(axes: Any) -> None:
        width = 0.84 / len(bars)
        for n, (colour, (name, ways)) in enumerate(zip(cycle(BARS), bars.items())):
            spots = [place + (n - (len(bars) - 1) / 2) * width for place in range(len(places))]
            here = [(spot, *each) for spot, each in zip(spots, ways) if each]
            at, ms, limit = ([each[i] for each in here] for i in range(3))
            axes.bar(at, ms, 0.92 * width, color=colour, label=name)
            mark: dict[str, Any] = {
                "color": "black",
                "linewidth": 1.6,
                "label": "limit" if n == len(bars) - 1 else None,
            }
            axes.hlines(limit, [each - 0.46 * width for each in at], [each + 0.46 * width for each in at], **mark)
            for spot, each, least in here:
                axes.annotate(
                    f"{each:.2g}",
                    (spot, max(each, least)),
                    (0, 2),
                    textcoords="offset points",
                    ha="center",
                    fontsize=7,
                )
        axes.set_yscale("log")
        axes.set_ylim(low, 6 * high)  # room for the legend
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_xticks(range(len(places)), places)
        axes.tick_params(axis="x", length=0)
        axes.set_ylabel("milliseconds of one step")
        axes.set_title("Output layer: sampler, loss, gradients and optimizer", loc="left")
        axes.legend(frameon=False, ncols=3, fontsize=9)

    return report.save(path, draw)


def _kind(row: tables.Row) -> tuple[str, str, str]:
    return row["criterion"], row["k"], row["groups"]


def steps() -> list[Path]:
    """A line for each body, batch and criterion."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in latest(rows("steps"), "body", "criterion", "k", "C", "positions"):
        kind = f"{row['criterion']}, K = {int(row['k']):,}" if row["k"] else row["criterion"]
        name = f"{row['body']}, {int(row['positions']):,} words a step, {kind}"
        lines.setdefault(name, []).append((float(row["C"]), float(row["words_per_second"])))
    return plot_steps(ROOT / "docs" / "steps", lines) if lines else []


def plot_steps(path: Path, lines: Mapping[str, Sequence[tuple[float, float]]]) -> list[Path]:
    """Words in a second against the size of the vocabulary, a line for each way to train."""

    def draw(axes: Any) -> None:
        for colour, marker, (name, found) in zip(cycle(report.COLOURS), cycle(report.MARKERS), lines.items()):
            ordered = sorted(found)
            rates = [rate / 1e3 for _, rate in ordered]
            axes.plot([size for size, _ in ordered], rates, marker=marker, color=colour, label=name)
        sizes = sorted({size for found in lines.values() for size, _ in found})
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size / 1e6:g}M" if size >= 1e6 else f"{size / 1e3:.3g}k" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("words in the vocabulary")
        axes.set_ylabel("thousand words in a second")
        axes.set_title("Whole training steps", loc="left")
        axes.grid(axis="y", alpha=0.3)
        axes.legend(frameon=False)

    return report.save(path, draw)


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

    return report.save(ROOT / "docs" / "scaling", draw, panels=2)


if __name__ == "__main__":
    for path in (*second_pass(), *output_layer(), *steps(), *scaling()):
        if path.suffix == ".png":  # pages show the SVG
            path.unlink()
        else:
            print(path.relative_to(ROOT))
