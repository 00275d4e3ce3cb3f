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
        axes.set_xlabel("log Z, the log of the sum of exp(score) over all words, of each history")
        axes.set_ylabel("density")
        axes.set_title("How well the scores normalize themselves", loc="left")
        axes.legend(frameon=False)

    return save(path, draw)


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
        axes.set_xlabel("probability of a word: its score as it is, or normalized where it needs log Z")
        axes.set_ylabel("how often that word comes")
        axes.set_title("Calibration: on the line, what a model says is what happens", loc="left")
        axes.legend(frameon=False)

    return save(path, draw)


def plot_samples(
    path: Path, lines: Mapping[str, Sequence[tuple[float, float, float]]], whole: tuple[float, float] | None = None
) -> list[Path]:
    """Perplexity, and beside it words in a second, against K; a line for each number of groups.

    `whole` has both of cross entropy, which needs all words and no K.
    """

    def draw(panels: "Sequence[Axes]") -> None:
        from matplotlib.ticker import MaxNLocator, NullLocator

        names = ("perplexity, normalized", "thousand words in a second")
        for part, (axes, name) in enumerate(zip(panels, names)):
            scale = 1e3 if part else 1
            for colour, marker, (label, found) in zip(cycle(COLOURS), cycle(MARKERS), lines.items()):
                ordered = sorted(found)
                values = [each[1 + part] / scale for each in ordered]
                axes.plot([each[0] for each in ordered], values, marker=marker, color=colour, label=label)
            if whole:
                axes.axhline(whole[part] / scale, color="black", linewidth=1, linestyle="--", label="cross entropy")
            axes.set_xscale("log")
            axes.set_xlabel("samples K")
            axes.set_ylabel(name)
            axes.grid(axis="y", alpha=0.3)
        panels[0].set_yscale("log")
        panels[0].yaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
        panels[0].yaxis.set_major_formatter("{x:g}")
        panels[0].yaxis.set_minor_locator(NullLocator())
        panels[1].set_ylim(bottom=0)
        panels[0].legend(frameon=False)
        panels[0].set_title("The number of samples", loc="left")

    return save(path, draw, panels=2)


def plot_costs(path: Path, found: Mapping[str, tuple[float, Sequence[float]]]) -> list[Path]:
    """Minutes of training and perplexities of each way to train, a line for each and the best on top.

    Perplexities are of each seed, in per cent of another's beside it.
    """
    ordered = sorted(found.items(), key=lambda each: float(np.mean(each[1][1])), reverse=True)
    places = range(len(ordered))

    def draw(panels: "Sequence[Axes]") -> None:
        left, right = panels
        for place, (_, (_, percents)) in zip(places, ordered):
            left.plot(percents, [place] * len(percents), "o-", color=COLOURS[0], markersize=5)
        left.axvline(0, color="black", linewidth=1, linestyle="--")
        left.set_yticks(places, [label for label, _ in ordered], fontsize=7)
        left.set_ylim(-0.6, len(ordered) - 0.4)
        left.set_xlabel("perplexity against CE, %, each seed")
        left.set_title("What a perplexity costs", loc="left")
        left.grid(alpha=0.3)
        right.barh(places, [minutes for _, (minutes, _) in ordered], color=COLOURS[1], height=0.6)
        right.set_yticks(places, [])
        right.set_ylim(left.get_ylim())
        right.set_xlabel("minutes of training")
        right.grid(axis="x", alpha=0.3)

    return save(path, draw, panels=2)


def save(path: Path, draw: Any, panels: int = 1) -> list[Path]:
    """One figure as PNG and SVG, each whole or not at all; one panel is drawn on, several are handed over as a row."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("plots need matplotlib; say: pip install 'selfnorm[plot]'") from None
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    row = figure.subplots(1, panels, squeeze=False)[0]
    for axes in row:
        axes.spines[["top", "right"]].set_visible(False)
    draw(row[0] if panels == 1 else row)
    written = []
    for kind in ("png", "svg"):
        target = path.with_suffix(f".{kind}")
        with atomic(target) as file, rc_context({"svg.hashsalt": "selfnorm"}):  # the same plot has the same bytes
            figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        written.append(target)
    return written
