"""One training: the loop and its evaluations."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from selfnorm.checkpoint import Checkpoints
from selfnorm.corpus.ahead import Ahead
from selfnorm.corpus.batches import Batch
from selfnorm.corpus.store import TokenStore
from selfnorm.distributed.shards import compact
from selfnorm.distributed.world import World
from selfnorm.evaluation import Evaluation, evaluate
from selfnorm.models import Model
from selfnorm.samplers import Sample
from selfnorm.training import state
from selfnorm.training.parts import Parts
from selfnorm.training.steps import Outcome, Steps

SOME = 256  # positions of a batch at which training looks at log Z
SETTLE = 100  # steps after which all rows catch up, so that rare words are used as they should be
SETTLED = 1000  # rows a step that this may cost: larger tables wait longer


class Stopped(Exception):  # noqa: N818  not an error of ours
    """The run stopped by itself: exit status 3."""


@dataclass(frozen=True)
class Metrics:
    """One line of metrics.jsonl."""

    step: int
    epoch: float
    words: int  # seen so far
    loss: float  # mean over the steps since the last line; nan if none of them was finite
    perplexity: float  # normalized, at some positions of the last batch
    log_z: float  # mean there
    lr: float  # of the last step, as is the norm
    gradient_norm: float
    clipped: float  # share of the steps since the last line
    skipped: int  # steps so far that were not finite
    words_per_second: float
    peak_mib: float | None  # GPU memory


class Trainer:
    def __init__(self, parts: Parts, run: Path, say: Callable[[str], None] = lambda sentence: None) -> None:
        self.parts, self.run = parts, run
        self.checkpoints = Checkpoints(run / "checkpoints")
        self.generator = torch.Generator(parts.device).manual_seed(parts.settings.seed)  # alike on all ranks
        self.seed = (parts.settings.seed + parts.world.rank * 0x9E3779B97F4A7C15) % 2**63  # of dropout, each its own
        self.half = parts.settings.half
        self.streams = parts.config["histories"] == "streams"
        groups = 1 if parts.sampler is None else parts.sampler.groups
        self.steps = Steps(
            self.work,
            self.generator,
            record=parts.recordable,
            groups=groups,
            forget=parts.optimizer.forget,
            say=say,
        )
        self.step = self.words = self.skipped = 0
        self.evaluated = 0  # the last step at which what was due then has been done
        self.unsaved = False
        self.best: Evaluation | None = None  # of the model that was kept
        self.state: Any = None  # of the model, carried along streams
        self.drawn: Tensor | None = None  # the sum of the last ids that all ranks have in common
        # since the last line: steps, loss, clipped, skipped; and how many in a row were not finite. No host sync.
        self.counts = torch.zeros(5, device=parts.device)

    @property
    def due(self) -> bool:
        """Whether the development text is to be measured at this step, which was not done yet."""
        every = self.parts.settings.evaluate_every or self.parts.batches.steps_per_epoch
        return self.step > self.evaluated and (self.step % every == 0 or self.step >= self.parts.total)

    @property
    def ended(self) -> bool:
        return self.step >= self.parts.total and not self.due

    @property
    def stretch(self) -> int:
        """The next step after which something is due."""
        settings = self.parts.settings
        every = [settings.save_every, settings.evaluate_every or self.parts.batches.steps_per_epoch]
        return min(self.parts.total, *((self.step // each + 1) * each for each in every))

    @contextmanager
    def own_chance(self) -> Iterator[None]:
        """Dropout draws from PyTorch's global generators: they are ours inside, the caller's again after."""
        devices = [self.parts.device] if self.parts.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self.seed)
            yield

    def train(self, batches: Ahead, report: Callable[[Metrics], None], check: Callable[[int], None]) -> None:
        """Go on to the next step after which something is due; `check` may end it after any step."""
        parts, log, until = self.parts, self.parts.settings.log_every, self.stretch
        parts.model.train()
        begin, words = time.perf_counter(), self.words
        for batch in batches:
            norm, hidden = self.update(batch)
            self.step, self.unsaved = self.step + 1, True
            self.words += batch.positions
            if self.step % log == 0 or self.step == parts.total:  # wherever the run was cut
                report(self.metrics(batch, hidden, norm, begin, words))
                begin, words = time.perf_counter(), self.words
            if self.step == until:
                return
            check(self.step)

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One step; returns the gradient's norm and some of the hidden vectors."""
        parts = self.parts
        scale = parts.schedule.scale(self.step, self.step / parts.batches.steps_per_epoch, parts.total)
        parts.optimizer.set_rate(scale)
        if self.streams and (self.state is None or self.step % parts.batches.steps_per_epoch == 0):
            self.state = parts.model.start(len(batch.inputs), parts.device)
        try:
            norm, hidden, self.state = self.steps(batch, self.state)
        except torch.OutOfMemoryError as error:
            k, lower = (f"K = {parts.sampler.k} samples", ", sampler.k") if parts.sampler else ("every word", "")
            raise torch.OutOfMemoryError(
                f"step {self.step}: out of memory with N = {len(batch.targets)} positions and {k} of "
                f"C = {parts.model.size}; lower batches.positions (or sequences){lower} or training.most"
            ) from error
        if (self.step + 1) % max(SETTLE, parts.model.size // SETTLED) == 0:
            parts.optimizer.settle()
        return norm, hidden

    def work(self, batch: Batch, state: Any) -> Outcome:
        """What a step does on the device; nothing here waits for the host or hangs on the step's number."""
        parts, settings = self.parts, self.parts.settings
        parts.exchange.begin(batch.share)
        with torch.autocast(parts.device.type, dtype=torch.bfloat16, enabled=self.half):
            if self.streams:
                hidden, state = parts.model.advance(batch.inputs, state)
            else:
                hidden = parts.model(batch.inputs)
        hidden = batch.of_real(hidden)  # [N, H]  real positions, no padding
        sample: Any = None  # a criterion over the whole vocabulary takes none
        if parts.sampler is not None:
            sample = self.draw(batch)
            if not parts.world.alone and sample.bounds is not None:
                self.drawn = sample.ids.sum()
        layer, targets, drawn = parts.model.output.layer, batch.targets, parts.in_common(sample)
        if parts.spread:
            layer, targets, sample = compact(layer, targets, sample)
        losses = parts.criterion.loss(hidden, layer, targets, sample, settings.most)
        loss = parts.exchange.backward(losses.sum() / batch.positions, hidden, drawn)
        norm, finite = parts.optimizer.step(loss, settings.clip)
        self.count(loss, norm, finite)
        some = hidden.detach()[:SOME].clone()  # all of them would be kept, by every recorded shape
        return Outcome(norm, some, parts.model.detach(state) if self.streams else None)

    def draw(self, batch: Batch) -> Sample:
        """The same ids on all ranks; where each position has its own, as if one process had drawn for all."""
        sampler, share = self.parts.sampler, batch.share
        assert sampler is not None
        if share is None or sampler.sharing != "position":
            return sampler.draw(batch.targets, self.generator, batch.bounds(sampler.groups))
        here = slice(share.before, share.before + len(batch.targets))
        targets = batch.targets.new_zeros(share.positions)
        targets[here] = batch.targets
        return sampler.draw(targets, self.generator).of(here)

    def count(self, loss: Tensor, norm: Tensor, finite: Tensor) -> None:
        clip = self.parts.settings.clip
        clipped = norm > clip if clip else torch.zeros_like(finite)
        row = self.counts[4] + 1
        now = torch.stack([torch.ones_like(loss), loss.where(finite, 0.0), clipped & finite, ~finite])
        self.counts.copy_(torch.cat([self.counts[:4] + now, row.where(~finite, 0.0)[None]]))

    @torch.no_grad()
    def metrics(self, batch: Batch, hidden: Tensor, norm: Tensor, begin: float, words: int) -> Metrics:
        """What happened since the last line, at `begin` with `words` seen; the one place that waits for a GPU."""
        settings, output, device = self.parts.settings, self.parts.model.output, self.parts.device
        steps, loss, clipped, skipped, row = self.counts.tolist()  # all steps are made now, so time can be taken
        speed = (self.words - words) / (time.perf_counter() - begin)
        if row >= settings.patience:
            raise self.stopped(f"{row:.0f} steps in a row had a loss or gradient that is not finite")
        self.skipped += int(skipped)
        self.counts[:4] = 0
        self.parts.world.agree(draw=None if self.drawn is None else int(self.drawn))
        some, targets = hidden.float(), batch.targets[: len(hidden)]
        if self.parts.spread:  # all ranks look at the same positions, each at its own rows
            some, targets = (each.to(device) for each in self.parts.world.of_first((some.cpu(), targets.cpu())))
        log_z = output.log_z(some, settings.most)
        log_prob = output.link(output.logit(some, targets)) - log_z
        good = steps - skipped
        return Metrics(
            step=self.step,
            epoch=round(self.step / self.parts.batches.steps_per_epoch, 4),
            words=self.words,
            loss=loss / good if good else math.nan,
            perplexity=float((-log_prob.mean()).clamp(max=80).exp()),
            log_z=float(log_z.mean()),
            lr=self.parts.optimizer.rate,
            gradient_norm=float(norm),
            clipped=clipped / max(1, good),
            skipped=self.skipped,
            words_per_second=speed,
            peak_mib=torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
        )

    def stopped(self, why: str) -> Stopped:
        good = self.checkpoints.latest()
        kept = f"the last good checkpoint is {good.path}" if good else "there is no checkpoint yet"
        return Stopped(
            f"step {self.step}: {why}, at learning rate {self.parts.optimizer.rate:.3g}; {kept}; "
            "lower optimizer.lr or training.clip and go on"
        )

    def evaluate(self, store: TokenStore, check: Callable[[int], None]) -> Evaluation:
        vocabulary, settings = self.parts.data.vocabulary, self.parts.settings
        options = {"histories": self.parts.config["histories"], "most": settings.most}
        world = World() if self.parts.in_step else self.parts.world  # in step, all read everything

        def progress(*_: int) -> None:
            if self.parts.world.alone:  # of several, each has its own number of batches: they cannot vote here
                check(self.step)

        check(self.step)
        with _as_written(self.parts.model):
            measured = evaluate(self.parts.model, store, vocabulary.unknown, progress=progress, world=world, **options)
        measured = self.parts.world.of_first(measured)  # another machine may round otherwise: all go by one
        if not math.isfinite(measured.perplexity):
            raise self.stopped(f"the perplexity of the development text is {measured.perplexity}")
        return measured

    def save(self) -> None:
        """All ranks bring what they have, the first one writes."""
        tensors = state.tensors(self)
        if self.parts.world.first:
            for name, tensor in tensors.items():
                if not bool(torch.isfinite(tensor).all()):
                    raise self.stopped(f"{name} is not finite")
            self.checkpoints.save(self.step, tensors, state.numbers(self))
        self.unsaved = False

    def log(self, line: Metrics | Evaluation) -> dict[str, Any]:
        fields = asdict(line)
        return fields if isinstance(line, Metrics) else {"step": self.step, "evaluation": fields}


def _as_written(model: Model) -> AbstractContextManager[Any]:
    """Compiled layers run as they are written: texts to be measured have shapes of every kind."""
    return torch.compiler.set_stance("force_eager") if model.compiled else nullcontext()
