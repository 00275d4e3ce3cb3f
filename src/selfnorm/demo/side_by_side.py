"""One small model trained with several criteria on the same words in the same order, and measured on the same text."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from selfnorm import evaluation, report, scorers, training
from selfnorm.corpus.prepare import Summary, prepare
from selfnorm.corpus.store import Data, TokenStore
from selfnorm.criteria import CRITERIA
from selfnorm.demo.english import English
from selfnorm.evaluation import Calibration
from selfnorm.noise import Unigram
from selfnorm.recipe import Recipe, Table
from selfnorm.registry import pick
from selfnorm.scorers.text import Floats, measure
from selfnorm.training import Watcher
from selfnorm.training.log import LOG, trained

CALIBRATED = 2000  # words of the test text at which the probability of every other word is looked at

Watch = Callable[[str], AbstractContextManager[Watcher]]


@dataclass(frozen=True)
class Setting:
    """What all models share; the defaults take minutes on two cores."""

    criteria: tuple[str, ...] = ("ce", "nce", "mode3")
    size: int = 10_000  # words of the vocabulary
    hidden: int = 128
    k: int = 1000
    positions: int = 512  # of a batch
    steps: int = 600
    lr: float = 0.01

    def recipe(self, criterion: str, data: Path) -> Recipe:
        training = {"steps": self.steps, "save_every": 200, "log_every": 25, "evaluation_words": 5000}
        return Recipe(
            data=str(data),
            criterion=Table(criterion),
            sampler=Table(None, {"noise": "log_uniform", "k": self.k}) if _sampled(criterion) else Table(),
            model=Table("lstm", {"layers": 1, "hidden": self.hidden, "embedding": self.hidden}),
            batches=Table("sentences", {"positions": self.positions}),
            optimizer=Table("adam", {"lr": self.lr, "beta2": 0.99}),
            schedule=Table("cosine", {"warmup": min(50, self.steps // 4)}),
            training=Table(None, training),
        )


@dataclass(frozen=True)
class Row:
    criterion: str
    k: int | None
    perplexity: float  # normalized
    perplexity_as_is: float
    log_z_mean: float
    log_z_std: float
    words_per_second: float  # in training
    seconds: float  # of training


@dataclass(frozen=True)
class Measured:
    row: Row
    needs_log_z: bool
    log_z: Floats
    calibration: Calibration


class SideBySide:
    """The stages, in order: `prepare`, `models`, `plot`; what a folder already holds is not done again."""

    def __init__(self, english: English, to: Path, setting: Setting = Setting()) -> None:  # noqa: B008  frozen
        self.english, self.to, self.setting = english, to, setting
        self.text, self.data, self.plots = to / "text", to / "data", to / "plots"

    def run(self, criterion: str) -> Path:
        return self.to / "runs" / criterion

    def prepare(self) -> Summary:
        self._check()
        paths = self.english.write(self.text)
        return prepare([paths["train"]], self.data, self.setting.size, paths["valid"], paths["test"])

    def _check(self) -> None:
        """A folder is new, or holds a demo of this text."""
        if not self.to.exists() or (self.to.is_dir() and not any(self.to.iterdir())):
            return
        before = self.text / "train.txt"
        if not before.is_file():
            if all(path.is_dir() or path.name.startswith(".") for path in self.to.rglob("*")):
                return  # it could not be written
            raise ValueError(f"{self.to}: is neither empty nor of an earlier demo; choose another folder with --to")
        if before.read_text().splitlines() != self.english.sentences["train"]:
            raise ValueError(f"{self.to}: holds a demo of another text; remove it, or choose another folder with --to")

    def models(self, watch: Watch = lambda _: nullcontext(Watcher())) -> Iterator[Measured]:
        """Train each model, or go on with it, and measure it on the test text."""
        store = self._test(Data.open(self.data))
        for criterion in self.setting.criteria:
            recipe = self.setting.recipe(criterion, self.data)
            with watch(criterion) as watcher:
                training.train(recipe, self.run(criterion), watcher=watcher)
            yield self._measure(criterion, store)

    def _measure(self, criterion: str, store: TokenStore) -> Measured:
        scorer = scorers.Neural.load(self.run(criterion))
        model, histories = scorer.model, scorer.histories
        words = measure(model, store, histories=histories)
        result = evaluation.summarize(words, store, scorer.vocabulary.unknown)
        seen, seconds = trained(self.run(criterion) / LOG)
        row = Row(
            criterion=criterion,
            k=self.setting.k if _sampled(criterion) else None,
            perplexity=result.perplexity,
            perplexity_as_is=result.perplexity_as_is,
            log_z_mean=result.log_z_mean,
            log_z_std=result.log_z_std,
            words_per_second=seen / seconds,
            seconds=seconds,
        )
        calibration = evaluation.calibrate(model, store.first(CALIBRATED), histories)
        return Measured(row, model.output.normalize, words.log_z, calibration)

    def unigram(self) -> float:
        """The test text's perplexity for a model without histories, where all of them begin."""
        data = Data.open(self.data)
        assert data.vocabulary.counts is not None
        noise = Unigram(torch.from_numpy(data.vocabulary.counts.copy()))
        ids = torch.from_numpy(self._test(data).ids.astype("int64"))
        return math.exp(-float(noise.prob(ids).log().mean()))

    def plot(self, measured: list[Measured]) -> list[Path]:
        self.plots.mkdir(exist_ok=True)
        log_z = {each.row.criterion: each.log_z for each in measured}
        calibration = {each.row.criterion: each.calibration for each in measured}
        return report.plot_log_z(self.plots / "log_z", log_z) + report.plot_calibration(
            self.plots / "calibration", calibration
        )

    @staticmethod
    def _test(data: Data) -> TokenStore:
        assert data.test is not None
        return data.test


def _sampled(criterion: str) -> bool:
    return pick("criterion", CRITERIA, criterion).sampled
