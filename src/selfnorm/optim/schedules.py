"""Learning rates by step and epoch, as shares of the recipe's."""

import math
from collections.abc import Callable
from typing import Any, Protocol

State = dict[str, Any]  # numbers and strings, as JSON keeps them


class Schedule(Protocol):
    """The learning rate as a share of the recipe's, by step and epoch (with its fraction), after what was observed."""

    def scale(self, step: int, epoch: float, total: int) -> float: ...
    def observe(self, perplexity: float) -> None: ...
    def state(self) -> State: ...
    def restore(self, state: State) -> None: ...


class Constant:
    """Rises over `warmup` steps, then stays."""

    def __init__(self, warmup: int = 0) -> None:
        _check(warmup=warmup)
        self.warmup = warmup

    def scale(self, step: int, epoch: float, total: int) -> float:
        return min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0

    def observe(self, perplexity: float) -> None:
        pass

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class Cosine(Constant):
    """Rises over `warmup` steps, half of a short run at most, then falls by half a cosine to `end` at the last step."""

    def __init__(self, warmup: int = 100, end: float = 0.0) -> None:
        super().__init__(warmup)
        _check(1.0, end=end)
        self.end = end

    def scale(self, step: int, epoch: float, total: int) -> float:
        warmup = min(self.warmup, total // 2)
        if step < warmup:
            return min(1.0, (step + 1) / warmup)
        done = (step - warmup) / max(1, total - warmup)
        return self.end + (1 - self.end) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


class Step(Constant):
    """Stays for `hold` epochs, then is multiplied by `factor` at the start of each."""

    def __init__(self, hold: int = 4, factor: float = 0.5, warmup: int = 0) -> None:
        super().__init__(warmup)
        _check(hold=hold)
        _check(1.0, factor=factor)
        self.hold, self.factor = hold, factor

    def scale(self, step: int, epoch: float, total: int) -> float:
        return super().scale(step, epoch, total) * self.factor ** max(0, int(epoch) - self.hold + 1)


class Newbob(Constant):
    """Is multiplied by `factor` whenever the development perplexity improves by less than `threshold` of itself."""

    def __init__(self, factor: float = 0.5, threshold: float = 0.005, warmup: int = 0) -> None:
        super().__init__(warmup)
        _check(1.0, factor=factor, threshold=threshold)
        self.factor, self.threshold = factor, threshold
        self.best, self.decays = math.inf, 0

    def scale(self, step: int, epoch: float, total: int) -> float:
        return super().scale(step, epoch, total) * self.factor**self.decays

    def observe(self, perplexity: float) -> None:
        if not perplexity < self.best * (1 - self.threshold):
            self.decays += 1
        self.best = min(self.best, perplexity)

    def state(self) -> State:
        return {"best": self.best, "decays": self.decays}

    def restore(self, state: State) -> None:
        self.best, self.decays = state["best"], state["decays"]


def _check(most: float = math.inf, **options: float) -> None:
    """A share outside 0 to 1 would turn the training round or blow it up."""
    bound = " and at most 1" if most == 1 else ""
    for name, value in options.items():
        if not 0 <= value <= most:
            raise ValueError(f"{name} = {value}: in a schedule it is at least 0{bound}")


SCHEDULES: dict[str, Callable[..., Schedule]] = {"constant": Constant, "cosine": Cosine, "step": Step, "newbob": Newbob}
