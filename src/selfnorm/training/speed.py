"""How fast a training goes here: its own steps, in the order and lengths of its batches, and on one large batch."""

import statistics
import time
from dataclasses import dataclass
from itertools import islice

from selfnorm.corpus import batches as cut
from selfnorm.corpus.ahead import Ahead
from selfnorm.training.steps import SEEN
from selfnorm.training.trainer import Trainer

WARM = SEEN + 1  # steps of every shape of batch before any is timed: the first ones compile, the last records a graph
TIMED = 5  # runs over the same batches
WARM_UP = 6  # steps of one batch before any is timed
LOOKED_AT = 20  # batches, of which the fullest is timed


@dataclass(frozen=True)
class Speed:
    """Of a training's first batches; words are positions, sentence ends among them."""

    seconds_per_batch: float
    words_per_second: float


def own_batches(trainer: Trainer, steps: int) -> Speed:
    """As in training: with batches of all lengths, made meanwhile. The median of equal runs."""
    with Ahead(trainer.parts.batches, 0, trainer.parts.device) as batches:
        for batch in {batch.lengths: batch for batch in islice(batches, steps)}.values():
            for _ in range(WARM):
                trainer.update(batch)
                trainer.step += 1
    seconds = []
    for _ in range(TIMED):
        words, begin = 0, time.perf_counter()
        with Ahead(trainer.parts.batches, 0, trainer.parts.device) as batches:
            for batch in islice(batches, steps):
                norm, _ = trainer.update(batch)
                trainer.step += 1
                words += batch.positions
            float(norm)  # waits until all is done
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    return Speed(median / steps, words / median)


def large_batch(trainer: Trainer, positions: int, repeats: int) -> float:
    """Words in a second with large batches: the trainer's own step, again and again on one full batch."""
    batches = cut.Sentences(trainer.parts.data.train, positions=positions, max_length=min(256, positions))
    ready = [batches.batch(0, n) for n in range(min(LOOKED_AT, batches.steps_per_epoch))]
    batch = max(ready, key=lambda each: len(each.targets)).to(trainer.parts.device)
    for _ in range(min(WARM_UP, repeats)):
        trainer.update(batch)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        for _ in range(max(1, repeats // 4)):
            norm, _ = trainer.update(batch)
        float(norm)  # waits until all is done
        seconds.append((time.perf_counter() - begin) / max(1, repeats // 4))
    return len(batch.targets) / statistics.median(seconds)
