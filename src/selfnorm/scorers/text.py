"""A model's scores of whole texts: every word once, in batches."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selfnorm.corpus.batches import Streams, evaluation_batches
from selfnorm.corpus.store import TokenStore
from selfnorm.distributed.world import World
from selfnorm.models import Model
from selfnorm.ops import MOST

Floats = npt.NDArray[np.float64]
Hidden = tuple[Tensor, Tensor, npt.NDArray[np.int64]]  # hidden [N, H], targets [N], their places in the text [N]

STRETCH = 1000  # words of a stream at a time


@dataclass(frozen=True)
class Words:
    """What a model says of every word of a text, `</s>` among them, in the text's order."""

    targets: npt.NDArray[np.int64]
    scores: Floats  # log q(x, c), used as it is
    log_probs: Floats  # normalized
    log_z: Floats  # of the link's values: raw logits for criteria that need log Z
    seconds: float


@torch.no_grad()
def measure(
    model: Model,
    store: TokenStore,
    *,
    histories: str = "sentences",
    positions: int = 8192,
    most: int = MOST,
    progress: Callable[[int, int], None] | None = None,
    world: World | None = None,
) -> Words:
    """Score every word of a text; `histories` start fresh with each sentence or run on as one stream.

    The ranks of a `world` share the work, and each has the whole result.
    """
    world = world or World()
    if not len(store.ids):
        raise ValueError("the text holds no sentence; there is nothing to evaluate")
    found = np.zeros((3, len(store.ids)))
    done, begin = 0, time.perf_counter()
    for hidden, targets, places in hiddens(model, store, histories, positions, world):
        log_z = model.output.log_z(hidden, most)
        link = model.output.link(model.output.logit(hidden, targets))
        log_prob = link - log_z
        score = log_prob if model.output.normalize else link
        found[:, places] = torch.stack([score, log_prob, log_z]).double().cpu().numpy()
        done += len(places)
        if progress:
            progress(done, len(store.ids))
    if histories != "streams":
        world.total(torch.from_numpy(found))
    scores, log_probs, log_zs = found
    return Words(np.asarray(store.ids, np.int64), scores, log_probs, log_zs, time.perf_counter() - begin)


@torch.no_grad()
def hiddens(
    model: Model, store: TokenStore, histories: str, positions: int, world: World | None = None
) -> Iterator[Hidden]:
    """Every word of the text once, in batches; the model is in evaluation mode meanwhile.

    The ranks of a `world` share the batches, but each runs over all of a stream.
    """
    world = world or World()
    device = model.output.weight.device
    training = model.training
    model.eval()
    try:
        if histories == "streams":
            yield from _stream(model, store, device)
        else:
            mine = islice(evaluation_batches(store, positions), world.rank, None, world.size)
            for batch, places in mine:
                there = batch.to(device)
                yield there.of_real(model(there.inputs)), there.targets, places
    finally:
        model.train(training)


def _stream(model: Model, store: TokenStore, device: torch.device) -> Iterator[Hidden]:
    stream = Streams(store, sequences=1, steps=STRETCH)
    state = model.start(1, device)
    for index in range(stream.steps_per_epoch):
        batch = stream.batch(0, index).to(device)
        hidden, state = model.advance(batch.inputs, state)
        state = model.detach(state)
        first = index * STRETCH
        yield hidden[0], batch.targets, np.arange(first, first + len(batch.targets))
