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
BARS = ("#999999", "#0072b2", "#56b4e9", "#009e73")  # the first is what all others are compared with


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


def plot_speed(
    path: Path, bars: Mapping[str, Sequence[tuple[float, float] | None]], places: Sequence[str]
) -> list[Path]:
    """Milliseconds of each way at each place, bars on a log axis; a black mark is what the machine allows at best."""
    found = [each for ways in bars.values() for each in ways if each]
    low, high = 0.6 * min(min(each) for each in found), max(max(each) for each in found)

    def draw(axes: "Axes") -> None:
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

    return _save(path, draw)


def plot_steps(path: Path, lines: Mapping[str, Sequence[tuple[float, float]]]) -> list[Path]:
    """Words in a second against the size of the vocabulary, a line for each way to train."""

    def draw(axes: "Axes") -> None:
        for colour, marker, (name, found) in zip(cycle(COLOURS), cycle(MARKERS), lines.items()):
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

    return _save(path, draw)


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

    return _save(path, draw, panels=2)


def plot_costs(path: Path, found: Mapping[str, tuple[float, float]]) -> list[Path]:
    """Minutes of training and perplexity of each way to train, a line for each and the best on top."""
    ordered = sorted(found.items(), key=lambda each: each[1][1], reverse=True)
    places = range(len(ordered))

    def draw(panels: "Sequence[Axes]") -> None:
        left, right = panels
        left.plot([perplexity for _, (_, perplexity) in ordered], places, "o", color=COLOURS[0])
        low, high = left.get_xlim()
        left.set_xlim(0.99 * low, 1.01 * high)  # a tenth of a percent must not look large
        left.set_yticks(places, [label for label, _ in ordered], fontsize=7)
        left.set_ylim(-0.6, len(ordered) - 0.4)
        left.set_xlabel("perplexity, normalized")
        left.set_title("What a perplexity costs", loc="left")
        left.grid(alpha=0.3)
        right.barh(places, [minutes for _, (minutes, _) in ordered], color=COLOURS[1], height=0.6)
        right.set_yticks(places, [])
        right.set_ylim(left.get_ylim())
        right.set_xlabel("minutes of training")
        right.grid(axis="x", alpha=0.3)

    return _save(path, draw, panels=2)


def _save(path: Path, draw: Any, panels: int = 1) -> list[Path]:
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
