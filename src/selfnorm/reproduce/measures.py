"""What is measured of a trained model: its speed, its perplexities, and what it leaves wrong."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from selfnorm.corpus.store import TokenStore
from selfnorm.evaluation import evaluate, evaluate_mixture, evaluate_ngram, summarize
from selfnorm.recipe import Recipe
from selfnorm.reproduce.corpora import Prepared, Sentences
from selfnorm.scorers import Neural
from selfnorm.scorers.interpolated import fit
from selfnorm.scorers.text import measure
from selfnorm.training.log import LOG, trained
from selfnorm.training.parts import build
from selfnorm.training.speed import large_batch, own_batches
from selfnorm.training.trainer import Trainer

LONGER = 3  # a run over batches of all lengths, than one over a large batch
NUMBERS = ("perplexity", "perplexity_as_is", "log_z_mean", "log_z_std")

Found = dict[str, Any]


def logged(run: Path) -> Found:
    """Words and time of the steps themselves."""
    words, seconds = trained(run / LOG)
    return {"words_seen": words, "training_seconds": seconds}


def speed(recipe: Recipe, where: Path, positions: int, repeats: int) -> Found:
    """Of the training's own batches, and of large ones; nothing else may run on the machine."""
    trainer = Trainer(build(recipe, where), where / "speed")
    trainer.parts.model.train()
    with trainer.own_chance():
        found = asdict(own_batches(trainer, LONGER * repeats))
        return found | {
            "large_positions": positions,
            "words_per_second_large": large_batch(trainer, positions, repeats),
        }


def perplexities(run: Path, prepared: Prepared) -> Found:
    """Of the test text, alone and in a mixture with the 4-gram, whose weight is fitted to the development text."""
    scorer, ngram, data = Neural.load(run), prepared.counts, prepared.data()
    unknown, words = scorer.vocabulary.unknown, {}
    said: dict[str, Sentences] = {}
    stores: dict[str, TokenStore] = {}
    for part, store in (("valid", data.valid), ("test", data.test)):
        assert store is not None
        stores[part] = store.first(prepared.evaluation_words)
        said[part] = prepared.sentences(part, len(stores[part]))
        words[part] = measure(scorer.model, stores[part], histories=scorer.histories)
    result = summarize(words["test"], stores["test"], unknown)
    weight = fit([words["valid"].log_probs, ngram.text(said["valid"]).scores])[1]
    mixture = evaluate_mixture(words["test"], unknown, ngram.text(said["test"]), weight)
    found: Found = {name: getattr(result, name) for name in NUMBERS}
    for name in ("mixture_perplexity", "ngram_perplexity", "ngram_weight"):
        found[name] = getattr(mixture, name)
    found |= {"test_words": result.words, "oov_rate": result.oov_rate}
    further = prepared.further()
    if further:
        found["texts"] = {name: _further(scorer, sentences) for name, sentences in further.items()}
    return found


def _further(scorer: Neural, sentences: Sentences) -> Found:
    store = TokenStore.of(map(scorer.vocabulary.encode, sentences), scorer.vocabulary)
    result = evaluate(scorer.model, store, scorer.vocabulary.unknown, histories=scorer.histories)
    return {name: getattr(result, name) for name in NUMBERS}


def counted(prepared: Prepared) -> Found:
    """Of the 4-gram alone, on the same texts."""
    ngram, data = prepared.counts, prepared.data()
    assert data.test is not None
    store = data.test.first(prepared.evaluation_words)
    result = evaluate_ngram(ngram, prepared.sentences("test", len(store)))
    found: Found = {"perplexity": result.perplexity, "test_words": result.words, "oov_rate": result.oov_rate}
    further = {name: evaluate_ngram(ngram, each).perplexity for name, each in prepared.further().items()}
    return found | ({"texts": {name: {"perplexity": each} for name, each in further.items()}} if further else {})
