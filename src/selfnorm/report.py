"""Numbers -> tables and plots."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from selfnorm.files import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = npt.NDArray[np.float64]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by colour-blind readers too
MARKERS = "os^Dv*"


def plot_log_z(path: Path, values: Mapping[str, Floats]) -> list[Path]:
    """Histogram of log Z for each model: a self-normalized one piles up at 0."""
    every = np.concatenate(list(values.values()))
    low, high = np.quantile(every, [0.001, 0.999])
    low, high = min(float(low), -0.1), max(float(high), 0.1)

    def draw(axes: "Axes") -> None:
        for colour, (name, each) in zip(cycle(COLOURS), values.items()):
            label = f"{name}: {each.mean():+.3f} ± {each.std():.3f}"
            inside = np.clip(each, low, high)
            options: dict[str, Any] = {"bins": 80, "range": (low, high), "density": True, "color": colour}
            axes.hist(inside, histtype="stepfilled", alpha=0.25, **options)
            axes.hist(inside, histtype="step", linewidth=1.5, label=label, **options)
        axes.axvline(0, color="black", linewidth=1)
        axes.set_xlabel("log Z, the log of the sum of all scores in one history")
        axes.set_ylabel("density")
        axes.set_title("How well the scores normalize themselves", loc="left")
        axes.legend(frameon=False)

    return _save(path, draw)


def plot_calibration(path: Path, values: Mapping[str, Any]) -> list[Path]:
    """Said against seen probability; the bars are the 95 % range of a count, symmetric in its logarithm."""

    def draw(axes: "Axes") -> None:
        axes.axline((1, 1), slope=1, color="black", linewidth=1)
        for colour, marker, (name, each) in zip(cycle(COLOURS), cycle(MARKERS), values.items()):
            full = each.hits > 0
            said, seen, factor = each.said[full], each.seen[full], np.exp(1.96 / np.sqrt(each.hits[full]))
            bars = [seen - seen / factor, seen * factor - seen]
            axes.errorbar(
                said, seen, yerr=bars, fmt=marker, markersize=5, linewidth=1, color=colour, alpha=0.8, label=name
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("probability that the model gives a word, its score used as it is")
        axes.set_ylabel("how often that word comes")
        axes.set_title("Calibration: on the line, what a model says is what happens", loc="left")
        axes.legend(frameon=False)

    return _save(path, draw)


def plot_errors(
    path: Path, values: Mapping[str, Sequence[tuple[float, float, float]]], sets: Sequence[str]
) -> list[Path]:
    """Word error rates and their 95 % intervals: a row for each system, a colour for each set."""

    def draw(axes: "Axes") -> None:
        places = np.arange(len(values))[::-1]
        for n, (colour, marker, name) in enumerate(zip(cycle(COLOURS), cycle(MARKERS), sets)):
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

    return _save(path, draw)


def _save(path: Path, draw: Any) -> list[Path]:
    """One figure as PNG and SVG, each whole or not at all."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots need matplotlib; say: pip install 'selfnorm[plot]'") from None
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    written = []
    for kind in ("png", "svg"):
        target = path.with_suffix(f".{kind}")
        with atomic(target) as file:
            figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        written.append(target)
    return written
