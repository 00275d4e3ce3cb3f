"""Word error rates on utterances that somebody else recognised: scales cross-validated, per subset and in all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from selfnorm import lattices
from selfnorm.bootstrap import bootstrap
from selfnorm.lattices import transcripts
from selfnorm.lattices.broken import Broken
from selfnorm.rescoring import NEURAL, Rescored, Rescorer, Setting
from selfnorm.rescoring.results import Result, decide
from selfnorm.rescoring.tuning import Lists, cross_validate
from selfnorm.scorers import Neural, NGram
from selfnorm.wer import Errors, counts

SETS = {  # where its lattices or lists are, and the setting of the search, from which tuning starts
    "ps-lattices": ("slf", Setting(weight=0.7, ngram_weight=0.3)),
    "moonshine-nbest": ("nbest.jsonl.gz", Setting(lm_scale=0.3, ngram_weight=0.3)),
}
FOLDS = 10

Words = tuple[str, ...]


@dataclass(frozen=True)
class Utterances:
    """A set of utterances as a recogniser left them, and what was said."""

    name: str
    lattices: Path
    references: Path
    setting: Setting  # of the search, from which tuning starts

    def read(self) -> tuple[list[Any], dict[str, Words]]:
        items = list(lattices.read([self.lattices]))
        for item in items:
            if isinstance(item, Broken):
                raise ValueError(item.sentence)
        return items, transcripts.read(self.references)


def word_errors(utterances: Utterances, scorers: Mapping[str, Neural | NGram], folds: int = FOLDS) -> dict[str, Any]:
    """Of each subset and of all: what the first pass and the second leave wrong, in per cent, with its interval.

    No utterance is heard with scales that it had a part in choosing.
    """
    items, said = utterances.read()
    setting = start(utterances.setting, tuple(scorers))
    rescorer = Rescorer(scorers, setting)
    rescored = list(rescorer.rescore(items))
    heard = cross_validated(rescored, said, setting, folds, settled=rescorer.settled)
    results = {result.utterance: result for result in heard}
    return {
        subset: _rates([said[each] for each in names], [results[each] for each in names])
        for subset, names in subsets(said).items()
    }


def start(setting: Setting, scorers: Sequence[str]) -> Setting:
    """Where tuning starts with these scorers: an n-gram alone has the whole weight."""
    return setting if NEURAL in scorers else replace(setting, ngram_weight=1.0)


def cross_validated(
    rescored: Sequence[Rescored],
    said: Mapping[str, Words],
    setting: Setting,
    folds: int = FOLDS,
    risk: bool = False,
    settled: Callable[[Rescored, Setting], Rescored] = lambda rescored, setting: rescored,
) -> list[Result]:
    """What is heard in each utterance with the scales of the folds that it is not in; `settled` is the rescorer's."""
    _, settings, fold = cross_validate(Lists.of(rescored, said, setting), folds)
    return [decide(settled(each, settings[n]), settings[n], risk) for each, n in zip(rescored, fold)]


def subsets(said: Mapping[str, Words]) -> dict[str, list[str]]:
    """All utterances, then those of each subset, as in `selfnorm wer`."""
    found = {"all": list(said)}
    for utterance in said:
        found.setdefault(transcripts.set_of(utterance), []).append(utterance)
    return found


def _rates(said: Sequence[Words], results: Sequence[Result]) -> dict[str, Any]:
    errors = counts(said, [result.words for result in results])
    before = sum(counts(said, [result.first for result in results]), Errors())
    total, interval = sum(errors, Errors()), bootstrap(errors)
    return {
        "wer": 100 * total.rate,
        "interval": [interval.low, interval.high],
        "first_pass": 100 * before.rate,
        "utterances": len(errors),
        "words": total.words,
        # two systems are compared utterance by utterance
        "each": " ".join(f"{each.total}/{each.words}" for each in errors),
    }
