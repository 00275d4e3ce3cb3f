"""N-best lists: one utterance's hypotheses, best first, each with its words and scores."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Hypothesis:
    words: tuple[str, ...]
    acoustic: float  # natural logs, larger is better; an end-to-end recogniser's only score
    lm: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # what the file says besides, kept for the output


@dataclass(frozen=True)
class NBest:
    utterance: str
    hypotheses: tuple[Hypothesis, ...]
    reference: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
