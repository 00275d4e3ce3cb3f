"""Shapes of output layers, and the row that a measurement becomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from selfnorm.criteria import CRITERIA


@dataclass(frozen=True)
class Shape:
    name: str
    size: int  # C
    width: int  # H
    positions: int  # N


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("swb", 30_000, 2048, 2048),
        Shape("libri", 200_000, 512, 4096),
        Shape("en", 250_000, 2048, 4096),
        Shape("wiki103", 267_735, 1024, 8192),
        Shape("extreme", 1_000_000, 512, 8192),
        Shape("cpu-30k", 30_000, 512, 1024),
        Shape("cpu-200k", 200_000, 512, 1024),
        Shape("quick", 20_000, 128, 256),
    )
}
ON_GPU, ON_CPU = ("swb", "libri", "en", "wiki103", "extreme"), ("cpu-30k", "cpu-200k")
SAMPLED = tuple(name for name, criterion in CRITERIA.items() if criterion().sampled)


@dataclass(frozen=True)
class Row:
    """One measurement. `part`: "loss" (with its gradients and, if sampled, the draw), "optimizer", or "step": both."""

    shape: Shape
    impl: str
    criterion: str
    part: str
    k: int  # words summed over
    groups: int
    gradients: str  # "rows" or "dense"
    dtype: str
    ms: float
    limit_ms: float
    peak_mib: float | None  # above what was there before the step
    machine: str

    @property
    def ratio(self) -> float:
        return self.ms / self.limit_ms

    @property
    def is_full(self) -> bool:
        return self.k == self.shape.size

    def columns(self) -> dict[str, Any]:
        """As a line of a table or a file."""
        return {
            "shape": self.shape.name,
            "impl": self.impl,
            "criterion": self.criterion,
            "pass": self.part,
            "k": self.k,
            "groups": self.groups,
            "N": self.shape.positions,
            "C": self.shape.size,
            "H": self.shape.width,
            "dtype": self.dtype,
            "ms": float(f"{self.ms:.4g}"),
            "limit_ms": float(f"{self.limit_ms:.4g}"),
            "ratio": float(f"{self.ratio:.3g}"),
            "peak_mib": None if self.peak_mib is None else round(self.peak_mib),
            "machine": self.machine,
            "torch": torch.__version__,
            "triton": _triton(),
        }


def times_faster(row: Row, rows: Sequence[Row]) -> float | None:
    """Against the best full softmax of the same shape and part; None where there is none."""
    full = [each.ms for each in rows if each.is_full and (each.shape, each.part) == (row.shape, row.part)]
    return min(full) / row.ms if full else None


def _triton() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return triton.__version__
