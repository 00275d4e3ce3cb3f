"""Language models and classifiers trained on samples, whose raw outputs are probabilities."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from selfnorm import functional
    from selfnorm.loss import SampledLoss
    from selfnorm.noise import LogUniform, Uniform, Unigram
    from selfnorm.output import Output
    from selfnorm.scorers import load

_HOME = {
    "LogUniform": "noise",
    "Output": "output",
    "SampledLoss": "loss",
    "Uniform": "noise",
    "Unigram": "noise",
    "load": "scorers",
}

__all__ = ["LogUniform", "Output", "SampledLoss", "Uniform", "Unigram", "functional", "load"]


def __getattr__(name: str) -> Any:
    """PyTorch takes seconds to import: it is loaded by the first name that needs it."""
    if name in _HOME:
        return getattr(import_module(f"selfnorm.{_HOME[name]}"), name)
    if name == "functional":
        return import_module("selfnorm.functional")
    raise AttributeError(f"module 'selfnorm' has no attribute {name!r}")
