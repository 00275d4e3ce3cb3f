"""Models: inputs -> hidden. Each owns its output layer, none makes a loss."""

from collections.abc import Mapping
from typing import Any

from selfnorm.models.lstm import LSTM
from selfnorm.models.model import Model
from selfnorm.models.transformer import Transformer
from selfnorm.registry import named

__all__ = ["LSTM", "MODELS", "PRESETS", "Model", "Transformer", "expand"]

MODELS = {"lstm": LSTM, "transformer": Transformer}

_PAPER_LSTM = {"layers": 2, "hidden": 2048, "embedding": 128}
_PAPER_TRANSFORMER = {
    "layers": 42,
    "hidden": 512,
    "feed_forward": 2048,
    "heads": 8,
    "embedding": 512,
    "positions": "none",
    "activation": "relu",
}

PRESETS: dict[str, tuple[str, dict[str, Any]]] = {
    "swb-lstm": ("lstm", _PAPER_LSTM),
    "en-lstm": ("lstm", _PAPER_LSTM),
    "libri-transformer": ("transformer", _PAPER_TRANSFORMER),
    "tiny-lstm": ("lstm", {"layers": 1, "hidden": 128, "embedding": 64}),
    "tiny-transformer": ("transformer", {"layers": 2, "hidden": 64, "feed_forward": 256, "heads": 4, "embedding": 64}),
}


def expand(table: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's `model` table as `name` and options, its preset written out; what the table itself says wins."""
    options = dict(table)
    preset = options.pop("preset", None)
    if preset is None:
        if "name" not in options:
            raise ValueError(f"the model has neither name ({', '.join(MODELS)}) nor preset ({', '.join(PRESETS)})")
        return options
    name, defaults = named("preset", PRESETS, preset)
    if options.get("name", name) != name:
        raise ValueError(f"preset {preset!r} is a {name}, but the model has name = {options['name']!r}; leave one out")
    return {"name": name, **defaults, **options}
