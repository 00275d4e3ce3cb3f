"""The recipe's `training` table: how long, how often, how exact."""

import math
import shutil
from dataclasses import dataclass

import torch

from selfnorm.ops import IMPLS, MOST
from selfnorm.registry import named

PRECISIONS = dict.fromkeys(("auto", "float32", "bfloat16"))
ABOVE_ZERO = (
    "epochs",
    "steps",
    "clip",
    "evaluate_every",
    "save_every",
    "log_every",
    "patience",
    "most",
    "evaluation_words",
)


@dataclass(frozen=True)
class Settings:
    epochs: float | None = None  # passes over the training text; give these or `steps`
    steps: int | None = None
    clip: float | None = 1.0  # norm of all gradients together; inf: none
    seed: int = 1
    evaluate_every: int | None = None  # steps; None: once an epoch, and at the end
    save_every: int = 1000  # steps between checkpoints
    log_every: int = 50
    patience: int = 10  # steps in a row with a loss or gradient that is not finite: the next line of the log stops
    precision: str = "auto"  # bfloat16 on a GPU, float32 elsewhere
    device: str = "auto"
    most: int = MOST  # logits in memory at a time
    impl: str = "auto"  # who computes sums over the output layer: auto, plain, fused
    graph: bool = True  # record steps as CUDA graphs on a GPU
    compile: bool | None = None  # compile the layers of a Transformer; None: on a GPU, for trainings of some length
    evaluation_words: int | None = None  # of the development text, from its start; None: all
    tensorboard: bool = False
    spread_tables: bool = False  # of several processes each keeps some rows of the tables of words
    spread_layers: bool = False  # and a part of every weight of the layers of a Transformer

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            both = f", not epochs = {self.epochs} and steps = {self.steps}; change the one that the recipe has"
            raise ValueError(
                "training needs epochs or steps, and one of them only"
                + ("; give training.epochs=1, for example" if self.steps is None else both)
            )
        for name in ABOVE_ZERO:
            value = getattr(self, name)
            if value is not None and not (value > 0 and (name == "clip" or math.isfinite(value))):
                raise ValueError(f"training.{name} = {value}: it must be above 0")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"training.seed = {self.seed}: it must be a whole number from 0 to 2^63 - 1")
        named("precision", PRECISIONS, self.precision)
        named("impl", IMPLS, self.impl)
        if self.precision == "bfloat16" and self.place.type != "cuda":
            raise ValueError(
                "training.precision = 'bfloat16' is for GPUs; leave it out, or give training.device='cuda'"
            )

    @property
    def place(self) -> torch.device:
        """The device to train on."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            place = torch.device(self.device)
        except RuntimeError:
            place = torch.device("meta")
        if place.type not in ("cpu", "cuda"):
            raise ValueError(f"training.device = {self.device!r}: give auto, cpu, cuda or cuda:1")
        if place.type == "cuda" and (place.index or 0) >= torch.cuda.device_count():
            raise ValueError(f"training.device = {self.device!r}: there are {torch.cuda.device_count()} GPUs here")
        return place

    @property
    def recorded(self) -> bool:
        return self.graph and self.place.type == "cuda"

    def compiled(self, deep: bool) -> bool:
        """Whether to compile the layers: that takes half a minute, and pays in models of many small kernels."""
        if self.compile is not None:
            return self.compile
        long = self.steps is None or self.steps >= 500
        return deep and long and self.place.type == "cuda" and shutil.which("cc") is not None

    @property
    def half(self) -> bool:
        """Whether the model runs in bfloat16."""
        return self.place.type == "cuda" and self.precision != "float32"
