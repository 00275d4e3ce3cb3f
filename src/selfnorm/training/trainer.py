"""One training: the loop, its evaluations, and a state that goes to disk and comes back bit by bit."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as tree

from selfnorm.checkpoint import Checkpoint, Checkpoints
from selfnorm.corpus.ahead import ahead
from selfnorm.corpus.batches import Batch
from selfnorm.corpus.store import TokenStore
from selfnorm.evaluation import Evaluation, evaluate
from selfnorm.training.parts import Parts

SOME = 256  # positions of a batch at which training looks at log Z


class Stopped(Exception):  # noqa: N818  not an error of ours
    """The run stopped by itself: exit status 3."""


@dataclass(frozen=True)
class Metrics:
    """One line of metrics.jsonl."""

    step: int
    epoch: float
    words: int  # seen so far
    loss: float  # mean over the steps since the last line
    perplexity: float  # normalized, at some positions of the last batch
    log_z: float  # mean there
    lr: float
    gradient_norm: float
    clipped: float  # share of the steps since the last line
    skipped: int  # steps so far that were not finite
    words_per_second: float
    peak_mib: float | None  # GPU memory


class Trainer:
    def __init__(self, parts: Parts, run: Path) -> None:
        self.parts, self.run = parts, run
        self.checkpoints = Checkpoints(run / "checkpoints")
        self.generator = torch.Generator(parts.device).manual_seed(parts.settings.seed)
        self.step = self.words = self.skipped = 0
        self.best: float | None = None
        self.state: Any = None  # of the model, carried along streams
        self.counts = torch.zeros(4, device=parts.device)  # loss, clipped, skipped, not finite in a row: no host sync

    @contextmanager
    def own_chance(self) -> Iterator[None]:
        """Dropout draws from PyTorch's global generators: they are ours inside, the caller's again after."""
        devices = [self.parts.device] if self.parts.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self.parts.settings.seed)
            yield

    def train(self, until: int, report: Callable[[Metrics], None], stop: Callable[[], bool]) -> None:
        """Go on to step `until`, or to the step after which `stop` says so."""
        parts, log = self.parts, self.parts.settings.log_every
        parts.model.train()
        begin, words = time.perf_counter(), self.words
        with ahead(parts.batches, self.step, parts.device) as batches:
            for batch in batches:
                norm, hidden = self.update(batch)
                self.step += 1
                self.words += sum(batch.lengths)
                if self.step % log == 0 or self.step == parts.total:  # wherever the run was cut
                    speed = (self.words - words) / (time.perf_counter() - begin)
                    report(self.metrics(batch, hidden, norm, speed))
                    begin, words = time.perf_counter(), self.words
                if self.step == until or stop():
                    return

    def update(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One step; returns the gradient's norm and the hidden vectors."""
        parts, settings = self.parts, self.parts.settings
        hidden = batch.of_real(self.hidden(batch))  # [N, H]  real positions, no padding
        sample: Any = None  # a criterion over the whole vocabulary takes none
        if parts.sampler is not None:
            sample = parts.sampler.draw(batch.targets, self.generator, batch.bounds(parts.sampler.groups))
        losses = parts.criterion.loss(hidden, parts.model.output.layer, batch.targets, sample, settings.most)
        loss = losses.mean()
        loss.backward()
        norm, finite = parts.optimizer.step(self.scale(), settings.clip)
        self.count(loss.detach(), norm, finite)
        return norm, hidden.detach()

    def hidden(self, batch: Batch) -> Tensor:
        model, device = self.parts.model, self.parts.device
        wanted = self.parts.settings.precision
        half = device.type == "cuda" if wanted == "auto" else wanted == "bfloat16"
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            if self.parts.config["histories"] != "streams":
                return model(batch.inputs)
            if self.state is None or self.step % self.parts.batches.steps_per_epoch == 0:
                self.state = model.start(len(batch.inputs), device)
            hidden, state = model.advance(batch.inputs, self.state)
        self.state = model.detach(state)
        return hidden

    def scale(self) -> float:
        return self.parts.schedule.scale(self.step, self.step / self.parts.batches.steps_per_epoch, self.parts.total)

    def count(self, loss: Tensor, norm: Tensor, finite: Tensor) -> None:
        clip = self.parts.settings.clip
        clipped = norm > clip if clip else torch.zeros_like(finite)
        finite = finite & torch.isfinite(loss)
        bad = 1 - finite.float()
        row = (self.counts[3] + 1) * bad
        self.counts = torch.stack(
            [
                self.counts[0] + torch.where(finite, loss, 0),
                self.counts[1] + clipped * finite,
                self.counts[2] + bad,
                row,
            ]
        )

    @torch.no_grad()
    def metrics(self, batch: Batch, hidden: Tensor, norm: Tensor, speed: float) -> Metrics:
        """What happened since the last line; the one place where training waits for a GPU."""
        settings, output, device = self.parts.settings, self.parts.model.output, self.parts.device
        loss, clipped, skipped, row = self.counts.tolist()
        if row >= settings.patience:
            raise Stopped(self.last_words(int(row)))
        since = self.step % settings.log_every or settings.log_every
        self.skipped += int(skipped)
        self.counts = torch.zeros_like(self.counts)
        some, targets = hidden[:SOME].float(), batch.targets[:SOME]
        log_z = output.log_z(some, settings.most)
        log_prob = output.link(output.logit(some, targets)) - log_z
        good = max(1, since - int(skipped))
        return Metrics(
            step=self.step,
            epoch=round(self.step / self.parts.batches.steps_per_epoch, 4),
            words=self.words,
            loss=loss / good,
            perplexity=float((-log_prob.mean()).clamp(max=80).exp()),
            log_z=float(log_z.mean()),
            lr=self.parts.optimizer.lr * self.scale(),
            gradient_norm=float(norm),
            clipped=clipped / good,
            skipped=self.skipped,
            words_per_second=speed,
            peak_mib=torch.cuda.max_memory_allocated(device) / 2**20 if device.type == "cuda" else None,
        )

    def last_words(self, row: int) -> str:
        good = self.checkpoints.latest()
        kept = f"the last good checkpoint is {good.path}" if good else "there is no checkpoint yet"
        return (
            f"step {self.step}: {row} steps in a row had a loss or gradient that is not finite, at learning rate "
            f"{self.parts.optimizer.lr * self.scale():.3g}; {kept}; lower optimizer.lr or training.clip and go on"
        )

    def evaluate(self, store: TokenStore) -> Evaluation:
        vocabulary, settings = self.parts.data.vocabulary, self.parts.settings
        options = {"histories": self.parts.config["histories"], "most": settings.most}
        return evaluate(self.parts.model, store, vocabulary.unknown, **options)

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
        state = {
            "words": self.words,
            "skipped": self.skipped,
            "best": self.best,
            "schedule": self.parts.schedule.state(),
            "identity": self.identity(),
        }
        return self.checkpoints.save(self.step, tensors, state)

    def identity(self) -> dict[str, Any]:
        """What must not change between the two halves of one run."""
        return {
            "config": self.parts.config,
            "optimizer": self.parts.recipe.optimizer.name,
            "seed": self.parts.settings.seed,
        }

    def restore(self, saved: Checkpoint) -> None:
        parts, state, tensors = self.parts, saved.state, saved.tensors
        if state["identity"] != self.identity():
            raise ValueError(
                f"{saved.path}: was made with another model, criterion, vocabulary or seed than the recipe says; "
                "go on with the run's own recipe.toml, or train into a new run with --from"
            )
        parts.model.load_state_dict(_under("model.", tensors))
        parts.optimizer.restore(_under("optimizer.", tensors))
        parts.schedule.restore(state["schedule"])
        self.step, self.words, self.skipped, self.best = saved.step, state["words"], state["skipped"], state["best"]
        self.counts = tensors["counts"].to(parts.device)
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


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
