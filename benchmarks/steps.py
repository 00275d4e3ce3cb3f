"""Whole training steps on a GPU: time, words/s and memory by body, criterion and vocabulary.

    python benchmarks/steps.py [--body lstm transformer] [--size 30000 200000 1000000] [--criterion mode3]

Random words, log-uniform as in text. A step is the trainer's own (selfnorm.training): model in bfloat16, sampler, loss,
gradients, norm and clip, Adam (row-sparse on the tables of words), recorded as a CUDA graph. The criterion
"compiled ce" is cross entropy by torch.compile with fused dense Adam in the same loop. The share of the output layer is
what a step takes beyond the body alone (its forward and backward pass and its Adam); memory is what a step needs beyond
weights, moments and copies. Rows: benchmarks/results/steps.csv.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from rows import append

from selfnorm.corpus.batches import Batch
from selfnorm.criteria import CRITERIA
from selfnorm.models import MODELS, PRESETS, Model
from selfnorm.noise import LogUniform
from selfnorm.ops import MOST, keep_half
from selfnorm.optim import OPTIMIZERS, SCHEDULES, HalfAdam, Optimizer, sibling
from selfnorm.samplers import SAMPLERS
from selfnorm.training.parts import Parts
from selfnorm.training.settings import Settings
from selfnorm.training.steps import Outcome
from selfnorm.training.trainer import Trainer

BODIES = {"lstm": "en-lstm", "transformer": "libri-transformer"}
SHAPES = {"lstm": [(256, 32)], "transformer": [(64, 128), (64, 32)]}  # sequences, words


class Compiled:
    """Cross entropy as PyTorch's users have it: one compiled function over all logits."""

    link, needs_log_z, sampled, uses_expected_target = "log", True, False, False

    def __init__(self) -> None:
        self.compute = torch.compile(lambda h, w, b, t: F.cross_entropy(F.linear(h, w, b).float(), t, reduction="none"))

    def loss(self, hidden: Tensor, output: Any, targets: Tensor, sample: Any, most: int = MOST) -> Tensor:
        return self.compute(hidden, output.weight.to(hidden.dtype), output.bias.to(hidden.dtype), targets)


class Endless:
    """Batches that a trainer asks for nothing but their number."""

    steps_per_epoch = 1 << 40


def batch(sequences: int, words: int, size: int) -> Batch:
    def draw(*shape: int) -> Tensor:
        uniform = torch.rand(*shape, dtype=torch.float64, device="cuda")
        return ((size + 1) ** uniform - 1).long().clamp(max=size - 1)

    places = torch.arange(sequences * words, device="cuda")
    return Batch(draw(sequences, words), places, draw(sequences * words), (words,) * sequences)


def trainer(body: str, size: int, criterion: str, k: int, sparse: bool, settings: Settings) -> Trainer:
    name, options = PRESETS[BODIES[body]]
    rule = Compiled() if criterion == "compiled ce" else CRITERIA[criterion]()
    torch.manual_seed(1)
    with torch.device("cuda"):
        model: Model = MODELS[name](size=size, sparse=sparse, link=rule.link, normalize=rule.needs_log_z, **options)
    if settings.compiled(model.deep):
        model.compile_parts()
    tables = [model.output.weight, model.output.bias, model.embedding.weight] if sparse else []
    dense = [each for each in model.parameters() if not any(each is table for table in tables)]
    pairs = model.keep_half()
    dense = [each for each in dense if not any(each is other for other, _ in pairs)]
    others = ([sibling("adam", tables, {})] if sparse else []) + ([HalfAdam(pairs)] if pairs else [])
    optimizer = Optimizer(OPTIMIZERS["adam"](dense), *others)
    if sparse:
        keep_half(model.output.weight)
    sampler = SAMPLERS["systematic"](noise=LogUniform(size), k=k) if rule.sampled else None
    parts = Parts(
        recipe=None, settings=settings, data=None, criterion=rule, sampler=sampler, model=model, batches=Endless(),  # type: ignore[arg-type]
        optimizer=optimizer, schedule=SCHEDULES["constant"](), config={"histories": "sentences"},
    )  # fmt: skip
    return Trainer(parts, Path(tempfile.mkdtemp()), lambda sentence: print(sentence, flush=True))


def milliseconds(work: Callable[[int], object], repeat: int = 12) -> float:
    for number in range(8):  # the first ones compile, then record
        work(number)
    times = []
    for number in range(repeat):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(4):
            work(number)
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / 4)
    return 1e3 * statistics.median(times)


def without_output(self: Trainer, given: Batch, state: Any) -> Outcome:
    """The body alone: what a step would take if words cost nothing."""
    with torch.autocast("cuda", dtype=torch.bfloat16):
        vectors = self.vectors
        model = self.parts.model
        embedding, model.embedding.forward = model.embedding.forward, lambda inputs, output: vectors
        hidden = model(given.inputs)
        model.embedding.forward = embedding
    loss = hidden.float().mean()
    loss.backward()
    norm, _ = self.parts.optimizer.step(loss.detach(), 1.0)
    return Outcome(norm, hidden.detach(), None)


def measure(body: str, shape: tuple[int, int], size: int, criterion: str, k: int) -> dict[str, object]:
    sparse = criterion not in ("ce", "compiled ce")
    settings = Settings(steps=100_000, device="cuda", most=1 << 31)  # as many logits as torch.compile holds
    made = trainer(body, size, criterion, k, sparse, settings)
    given = [batch(*shape, size) for _ in range(2)]
    made.parts.model.train()
    torch.cuda.synchronize()
    ms = milliseconds(lambda number: made.update(given[number % 2]))
    model, positions = made.parts.model, shape[0] * shape[1]
    made.steps.graphs.clear()
    made.steps.seen.clear()
    made.steps.pool = None
    gc.collect()
    torch.cuda.empty_cache()
    there = torch.cuda.memory_allocated()  # weights, moments, copies
    torch.cuda.reset_peak_memory_stats()
    made.steps.work(given[0], None)
    peak = torch.cuda.max_memory_allocated() - there
    width = model.embedding.weight.shape[1]
    made.vectors = torch.randn(*shape, width, device="cuda")
    made.steps.work = lambda one, state: without_output(made, one, state)
    alone = milliseconds(lambda number: made.update(given[number % 2]))
    return {
        "body": body,
        "criterion": criterion,
        "k": k if made.parts.sampler is not None else None,
        "C": size,
        "positions": positions,
        "ms": round(ms, 3),
        "words_per_second": round(1e3 * positions / ms),
        "peak_mib": round(peak / 2**20),
        "output_share": round(1 - alone / ms, 3),
        "machine": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--body", nargs="+", default=list(BODIES), choices=list(BODIES))
    parser.add_argument("--size", type=int, nargs="+", default=[30_000, 200_000, 1_000_000])
    parser.add_argument("--criterion", nargs="+", default=["mode3"])
    parser.add_argument("--k", type=int, default=8192)
    parser.add_argument("--shape", type=int, nargs=2, metavar=("SENTENCES", "WORDS"), help="another batch")
    options = parser.parse_args()
    for body, size, criterion in product(options.body, options.size, options.criterion):
        for shape in [tuple(options.shape)] if options.shape else SHAPES[body]:
            try:
                row = measure(body, shape, size, criterion, options.k)
            except (RuntimeError, torch.OutOfMemoryError) as error:  # one that fails is a row less
                print(body, size, criterion, shape, "failed:", str(error).splitlines()[0], flush=True)
            else:
                print(row, flush=True)
                append("steps", [row])
            torch._dynamo.reset()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
