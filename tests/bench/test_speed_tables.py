"""The tables and plots of docs/speed.md, from made-up rows."""

import runpy
import sys
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from selfnorm import report

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HEAD = "shape,impl,criterion,pass,k,groups,N,C,H,dtype,ms,limit_ms,ratio,peak_mib,machine,torch,triton,commit,date"


def row(impl, criterion, part, k, ms, groups="1"):
    numbers = ["4096", "200000", "512", "bfloat16", ms, "0.2", "2", "30"]
    origin = ["H200", "2.11", "3.6", "abc", "2026-01-01"]
    return dict(zip(HEAD.split(","), ["libri", impl, criterion, part, k, groups, *numbers, *origin], strict=True))


ROWS = [
    row("fused", "mode3", "step", "8192", "9.0"),  # measured again below
    row("fused", "mode3", "step", "8192", "0.4"),
    row("fused", "mode3", "step", "1000", "0.3", groups="8"),
    row("fused", "nce", "step", "8192", "0.5"),
    row("torch Adam", "ce", "optimizer", "200000", "1"),
    row("torch", "ce", "loss", "200000", "9"),
    row("torch", "ce", "step", "200000", "10"),
    row("Liger, eager", "ce", "step", "200000", "8"),
]


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setitem(sys.modules, "tables", None)  # not the one that another test may have imported
    found = runpy.run_path(str(BENCHMARKS / "tables.py"))
    inside = found["steps_of"].__globals__
    monkeypatch.setitem(inside, "rows", lambda name: ROWS if name == "output_layer" else [])
    return inside["TABLES"]


def body(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"][2:]


def test_ours_stands_beside_the_best_full_softmax(tables):
    assert body(tables["output-layer-gpu"]()) == [
        ["libri", "`mode3`", "200,000", "8,192", "1", "0.4", "0.2", "2", "30", "8", "Liger, eager", "20"],
        ["libri", "`mode3`", "200,000", "1,000", "8", "0.3", "0.2", "2", "30", "8", "Liger, eager", "26.7"],
    ]


def test_every_criterion_at_the_largest_k(tables):
    assert [(line[1], line[-1]) for line in body(tables["output-layer-criteria"]())] == [
        ("`mode3`", "20"),
        ("`nce`", "16"),
    ]


def test_every_peer_has_its_rows(tables):
    found = [line[1:3] for line in body(tables["full-softmax"]())]
    assert found == [["torch Adam", "optimizer"], ["torch", "loss"], ["torch", "step"], ["Liger, eager", "step"]]


def test_what_was_not_measured_is_said(tables):
    assert tables["steps"]() == "Not measured yet.\n"


def test_every_measured_bar_and_its_limit_are_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    drawn, bars = [], {"full softmax": [(1.8, 1.1), (7.1, 3.6)], "mode3": [(0.6, 0.4), None]}  # ms and limit
    monkeypatch.setattr(report, "save", lambda _, draw: drawn.append(draw))
    runpy.run_path(str(BENCHMARKS / "plots.py"))["plot_speed"](tmp_path / "speed", bars, ["swb", "libri"])
    axes = Figure().subplots()
    drawn[0](axes)
    assert [bar.get_height() for bar in axes.patches] == [1.8, 7.1, 0.6]
    assert [mark[0][1] for marks in axes.collections for mark in marks.get_segments()] == [1.1, 3.6, 0.4]
    assert axes.get_yscale() == "log"
