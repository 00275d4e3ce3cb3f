"""The recipe's `training` table: how long, how often, how exact."""

from dataclasses import dataclass

from selfnorm.ops import MOST

PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class Settings:
    epochs: float | None = None  # passes over the training text; give these or `steps`
    steps: int | None = None
    clip: float | None = 1.0  # norm of all gradients together
    seed: int = 1
    evaluate_every: int | None = None  # steps; None: once an epoch, and at the end
    save_every: int = 1000  # steps between checkpoints
    log_every: int = 50
    patience: int = 10  # steps in a row with a loss or gradient that is not finite, after which the run stops
    precision: str = "auto"  # bfloat16 on a GPU, float32 elsewhere
    device: str = "auto"
    most: int = MOST  # logits in memory at a time
    evaluation_words: int | None = None  # of the development text, from its start; None: all
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError(
                "training needs epochs or steps, and one of them only; give training.epochs=1, for example"
            )
        for name in ("epochs", "steps", "clip", "evaluate_every", "save_every", "log_every", "patience", "most"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"training.{name} = {value}: it must be above 0")
        if self.precision not in PRECISIONS:
            raise ValueError(f"there is no precision {self.precision!r}; choose one of: {', '.join(PRECISIONS)}")
