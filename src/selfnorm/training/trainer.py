"""One training: the loop, its evaluations, and a state that goes to disk and comes back bit by bit."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from selfnorm.checkpoint import Checkpoint, Checkpoints
from selfnorm.corpus.ahead import Ahead
from selfnorm.corpus.batches import Batch
from selfnorm.corpus.store import TokenStore
from selfnorm.evaluation import Evaluation, evaluate
from selfnorm.models import Model
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
        self.generator = torch.Generator(parts.device).manual_seed(parts.settings.seed)
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
        # since the last line: steps, loss, clipped, skipped; and how many in a row were not finite. No host sync.
        self.counts = torch.zeros(5, device=parts.device)

    @property
    def due(self) -> bool:
        """Whether the development text is to be measured at this step, which was not done yet."""
        every = self.parts.settings.evaluate_every or self.parts.batches.steps_per_epoch
        return self.step > self.evaluated and (self.step % every == 0 or self.step >= self.parts.total)

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
            torch.manual_seed(self.parts.settings.seed)
            yield

    def train(self, batches: Ahead, report: Callable[[Metrics], None], check: Callable[[int], None]) -> None:
        """Go on to the next step after which something is due; `check` may end it after any step."""
        parts, log, until = self.parts, self.parts.settings.log_every, self.stretch
        parts.model.train()
        begin, words = time.perf_counter(), self.words
        for batch in batches:
            norm, hidden = self.update(batch)
            self.step, self.unsaved = self.step + 1, True
            self.words += sum(batch.lengths)
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
        with torch.autocast(parts.device.type, dtype=torch.bfloat16, enabled=self.half):
            if self.streams:
                hidden, state = parts.model.advance(batch.inputs, state)
            else:
                hidden = parts.model(batch.inputs)
        hidden = batch.of_real(hidden)  # [N, H]  real positions, no padding
        sample: Any = None  # a criterion over the whole vocabulary takes none
        if parts.sampler is not None:
            sample = parts.sampler.draw(batch.targets, self.generator, batch.bounds(parts.sampler.groups))
        losses = parts.criterion.loss(hidden, parts.model.output.layer, batch.targets, sample, settings.most)
        loss = losses.mean()
        loss.backward()
        norm, finite = parts.optimizer.step(loss.detach(), settings.clip)
        self.count(loss.detach(), norm, finite)
        some = hidden.detach()[:SOME].clone()  # all of them would be kept, by every recorded shape
        return Outcome(norm, some, parts.model.detach(state) if self.streams else None)

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
        some = hidden.float()
        log_z = output.log_z(some, settings.most)
        log_prob = output.link(output.logit(some, batch.targets[: len(some)])) - log_z
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
        check(self.step)
        with _as_written(self.parts.model):
            measured = evaluate(
                self.parts.model, store, vocabulary.unknown, progress=lambda *_: check(self.step), **options
            )
        if not math.isfinite(measured.perplexity):
            raise self.stopped(f"the perplexity of the development text is {measured.perplexity}")
        return measured

    def save(self) -> Path:
        """Weights, optimizer, chance, data position: everything the next step depends on."""
        tensors = {f"model.{name}": value for name, value in self.parts.model.state_dict().items()}
        tensors |= {f"optimizer.{name}": value for name, value in self.parts.optimizer.tensors().items()}
        tensors |= {
            f"state.{number}": leaf for number, leaf in enumerate(tree.tree_leaves(self.state)) if leaf is not None
        }
        tensors |= {
            "chance.sampler": self.generator.get_state(),
            "chance.cpu": torch.get_rng_state(),
            "counts": self.counts,
        }
        if self.parts.device.type == "cuda":
            tensors["chance.cuda"] = torch.cuda.get_rng_state(self.parts.device)
        for name, tensor in tensors.items():
            if not bool(torch.isfinite(tensor).all()):
                raise self.stopped(f"{name} is not finite")
        state = {
            "words": self.words,
            "skipped": self.skipped,
            "evaluated": self.evaluated,
            "best": None if self.best is None else asdict(self.best),
            "schedule": self.parts.schedule.state(),
            "identity": self.identity(),
        }
        path = self.checkpoints.save(self.step, tensors, state)
        self.unsaved = False
        return path

    def identity(self) -> dict[str, Any]:
        """What must not change between the two halves of one run."""
        recipe, config = self.parts.recipe, self.parts.config
        return {
            "model": [config["model"], config["options"]],
            "criterion": [config["criterion"], dict(recipe.criterion.options)],
            "vocabulary": config["vocabulary"],
            "training text": self.parts.data.train.about.sha256,
            "batches": [config["histories"], dict(recipe.batches.options)],
            "optimizer": recipe.optimizer.name or "adam",
            "schedule": recipe.schedule.name or "constant",
            "seed": self.parts.settings.seed,
        }

    def restore(self, saved: Checkpoint) -> None:
        parts, state, tensors = self.parts, saved.state, saved.tensors
        mine, other = self.identity(), state["identity"]
        if changed := [name for name in mine if mine[name] != other.get(name)]:
            raise ValueError(
                f"{saved.path}: was made with another {', '.join(changed)} than the recipe says; "
                "go on with the run's own recipe.toml, or train into a new run with --from"
            )
        parts.model.load_state_dict(_under("model.", tensors))
        parts.optimizer.restore(_under("optimizer.", tensors))
        parts.schedule.restore(state["schedule"])
        self.step, self.words, self.skipped, self.unsaved = saved.step, state["words"], state["skipped"], False
        self.evaluated = state["evaluated"]
        self.best = None if state["best"] is None else Evaluation.of(state["best"])
        self.counts.copy_(tensors["counts"])
        self.generator.set_state(tensors["chance.sampler"])
        torch.set_rng_state(tensors["chance.cpu"])
        if parts.device.type == "cuda" and "chance.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["chance.cuda"], parts.device)
        leaves = _under("state.", tensors)
        if leaves:
            spec = tree.tree_structure(parts.model.start(1))
            values = [leaves.get(str(number)) for number in range(spec.num_leaves)]  # None where there was none
            self.state = tree.tree_unflatten([None if v is None else v.to(parts.device) for v in values], spec)

    def weights(self) -> dict[str, Tensor]:
        return dict(self.parts.model.state_dict())

    def log(self, line: Metrics | Evaluation) -> dict[str, Any]:
        fields = asdict(line)
        return fields if isinstance(line, Metrics) else {"step": self.step, "evaluation": fields}


def _as_written(model: Model) -> AbstractContextManager[Any]:
    """Compiled layers run as they are written: texts to be measured have shapes of every kind."""
    return torch.compiler.set_stance("force_eager") if model.compiled else nullcontext()


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
