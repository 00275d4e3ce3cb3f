"""Plots: both kinds of file, whole, the same for the same numbers, and drawn from what they were given."""

from dataclasses import dataclass

import numpy as np
import pytest

from selfnorm import report


@dataclass(frozen=True)
class Bins:
    said: np.ndarray
    seen: np.ndarray
    pairs: np.ndarray
    hits: np.ndarray


def bins():
    pairs, hits = np.array([1e6, 1e4, 100.0, 3.0]), np.array([0.0, 1.0, 20.0, 3.0])
    return Bins(np.array([1e-6, 1e-4, 0.2, 0.9]), hits / pairs, pairs, hits)


def log_z():
    chance = np.random.default_rng(1)
    return {"ce": chance.normal(0.5, 0.8, 500), "mode3": chance.normal(0, 0.1, 500)}


PLOTS = {
    "log_z": lambda path: report.plot_log_z(path, log_z()),
    "calibration": lambda path: report.plot_calibration(path, {"ce": bins(), "mode3": bins()}),
}


@pytest.mark.parametrize("name", PLOTS)
def test_png_and_svg(name, tmp_path):
    png, svg = PLOTS[name](tmp_path / name)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in svg.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.png", f"{name}.svg"]
    before = svg.read_bytes()
    PLOTS[name](tmp_path / name)
    assert svg.read_bytes() == before


def test_legend_has_mean_and_deviation_of_each_model(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(report, "save", lambda _, draw: drawn.append(draw))
    report.plot_log_z(tmp_path / "log_z", log_z())
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    drawn[0](axes)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == [f"{name}: {each.mean():+.3f} ± {each.std():.3f}" for name, each in log_z().items()]
    assert axes.get_xlabel() == "log Z, the log of the sum of exp(score) over all words, of each history"


def test_one_value_can_be_drawn(tmp_path):
    report.plot_log_z(tmp_path / "log_z", {"x": np.array([0.0])})


def test_more_models_than_colours_are_all_drawn(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(report, "save", lambda _, draw: drawn.append(draw))
    report.plot_log_z(tmp_path / "log_z", {str(n): np.zeros(3) for n in range(9)})
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    drawn[0](axes)
    assert len(axes.get_legend().get_texts()) == 9
