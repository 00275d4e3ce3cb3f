"""A trained model as a scorer: words at its border, ids behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor

from selfnorm import run
from selfnorm.corpus.batches import BATCHES, evaluation_batches
from selfnorm.corpus.store import VOCABULARY, TokenStore
from selfnorm.corpus.text import split
from selfnorm.models import MODELS, Model
from selfnorm.registry import named, pick
from selfnorm.scorers.text import Floats, measure
from selfnorm.vocabulary import Vocabulary

FORMAT = 1
KEYS = {"model", "options", "histories", "vocabulary", "criterion"}


@dataclass(frozen=True)
class History:
    """What the model knows after some words: its state, one row of a batch, and the hidden vector of the next."""

    state: Any
    hidden: Tensor  # [H]


class Neural:
    """Scores are natural logs, used as they are, without log Z, for self-normalized criteria."""

    def __init__(self, model: Model, vocabulary: Vocabulary, config: dict[str, Any]) -> None:
        self.model = model.eval()
        self.vocabulary = vocabulary
        self.config = config
        self.histories: str = config["histories"]

    @classmethod
    def load(cls, folder: Path, device: str | None = None) -> "Neural":
        """Load a run, every file verified; on a GPU when there is one and `device` does not say otherwise."""
        tensors, config = run.load_model(folder)
        if config.get("format") != FORMAT or not config.keys() >= KEYS or not isinstance(config["options"], dict):
            raise ValueError(
                f"{folder / run.CONFIG}: is not of format {FORMAT}; load it with the version that wrote it"
            )
        vocabulary = Vocabulary.load(run.path_of(folder, VOCABULARY))
        if vocabulary.digest != config["vocabulary"]:
            raise ValueError(f"{folder}: vocab.txt is not the vocabulary the model was trained with; restore the run")
        named("kind of histories", BATCHES, config["histories"])
        try:
            with torch.device("meta"):  # no memory and no chance: the tensors of the file take the parameters' places
                model = pick("model", MODELS, config["model"], **config["options"] | {"size": len(vocabulary)})
            model.load_state_dict(tensors, assign=True)
        except (RuntimeError, TypeError) as error:
            why = shorten(str(error), 300)  # torch has a line for each tensor
            raise ValueError(f"{folder}: {run.MODEL} and {run.CONFIG} do not fit ({why}); restore the run") from None
        return cls(model.to(device or ("cuda" if torch.cuda.is_available() else "cpu")), vocabulary, config)

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    def normalized(self) -> "Neural":
        """Take log Z off every score from now on, which costs the whole vocabulary at every history."""
        self.model.output.normalize = True
        return self

    @property
    def first(self) -> int:
        """The id that goes in before a sentence's first word."""
        return self.vocabulary.end if self.histories == "streams" else self.vocabulary.start

    @torch.no_grad()
    def start(self) -> History:
        """The history of a sentence before its first word."""
        inputs = torch.tensor([[self.first]], device=self.device)
        hidden, state = self.model.advance(inputs, self.model.start(1, self.device))
        return History(state, hidden[0, -1])

    @torch.no_grad()
    def advance(self, states: Sequence[History], words: Sequence[str]) -> tuple[Tensor, list[History]]:
        """The score of each word after its history [B], and the histories that hold it."""
        ids = torch.tensor(self.vocabulary.encode(words), device=self.device)
        scores = self.model.output.score(torch.stack([history.hidden for history in states]), ids)
        hidden, state = self.model.advance(ids[:, None], self.model.join([history.state for history in states]))
        rows = torch.arange(len(ids), device=self.device).split(1)
        return scores, [History(self.model.select(state, row), hidden[n, -1]) for n, row in enumerate(rows)]

    @torch.inference_mode()
    def sentences(self, sentences: Sequence[Sequence[str]], positions: int = 8192) -> list[Floats]:
        """The scores of each sentence's words, `</s>` last, in batches; every sentence starts afresh."""
        store = TokenStore.of(map(self.vocabulary.encode, sentences), self.vocabulary)
        scores = np.zeros(len(store.ids))
        output = self.model.output
        for batch, places in evaluation_batches(store, positions):
            there = batch.to(self.device)
            inputs = there.inputs.masked_fill(there.inputs == self.vocabulary.start, self.first)
            hidden = there.of_real(self.model(inputs))
            scores[places] = output.score(hidden, there.targets).double().cpu().numpy()
        return [scores[first:last] for first, last in pairwise(store.starts.tolist())]

    def score(self, sentence: str | Sequence[str]) -> list[float]:
        """The score of each word of a sentence and, last, of `</s>`."""
        return self._words(sentence)[0]

    def log_prob(self, sentence: str | Sequence[str]) -> list[float]:
        """The same, normalized over the whole vocabulary."""
        return self._words(sentence)[1]

    def _words(self, sentence: str | Sequence[str]) -> tuple[list[float], list[float]]:
        words = split(sentence) if isinstance(sentence, str) else sentence
        store = TokenStore.of([self.vocabulary.encode(words)], self.vocabulary)
        result = measure(self.model, store, histories=self.histories)
        return result.scores.tolist(), result.log_probs.tolist()
