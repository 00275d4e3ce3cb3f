"""The second pass of the demo: lattices of held-out sentences, rescored with each model, and the errors counted.

Synthetic are the channel, the lattices and the scores in them; text, models, rescoring and counting are real. Scales
are tuned on sentences of the development text. Files lie where the verbs can take them up:

    lattices/bigram.arpa.gz    the first pass's model, of every fifth sentence of the training text
    lattices/dev, .../test     HTK lattices; what was said in them is in dev.txt and test.txt beside
    rescored/CRITERION         what `selfnorm rescore` writes: words, times, scales
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from selfnorm.bootstrap import Comparison, Interval, bootstrap, compare
from selfnorm.corpus.numbering import Numbering, Numbers
from selfnorm.corpus.store import VOCABULARY
from selfnorm.demo.channel import Channel, Noise
from selfnorm.demo.confusions import Confusions
from selfnorm.files import sha256, write_whole
from selfnorm.lattices import htk, transcripts
from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.oracle import oracle
from selfnorm.lattices.paths import best, words_of
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.rescoring import NEURAL, Rescorer, Search, Setting
from selfnorm.rescoring.second_pass import Output, load_scales, second_pass, tuned
from selfnorm.run import MODEL
from selfnorm.scorers import Neural, NGram
from selfnorm.vocabulary import END, UNKNOWN, Vocabulary
from selfnorm.wer import Errors, counts_by_name

FORMAT = 1  # of the channel: older lattices are made anew
SHORTEST, LONGEST = 6, 20  # words of a sentence that is said
SEARCH = Search(most=4)  # quicker than the default, and enough for lattices this small

Words = tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    test: int = 200  # sentences
    dev: int = 150
    part: int = 5  # the bigram is of every fifth sentence
    noise: Noise = field(default_factory=Noise)


@dataclass(frozen=True)
class Outcome:
    """The test lattices with one model; errors of each utterance, in one order."""

    said: dict[str, Words]
    heard: dict[str, Words]
    errors: list[Errors]
    setting: Setting
    needs_log_z: bool = False
    seconds: float = 0.0  # of rescoring, without tuning

    @property
    def wer(self) -> float:
        return percent(self.errors)

    @property
    def interval(self) -> Interval:
        return bootstrap(self.errors)

    def against(self, first: "Outcome") -> Comparison:
        return compare(self.errors, first.errors)


@dataclass(frozen=True)
class Rescoring:
    """All of it: before, after with each model, and the least that any could leave wrong."""

    first: Outcome
    outcomes: dict[str, Outcome]  # by criterion
    least: list[Errors]
    arcs: int  # of the test lattices

    @property
    def oracle(self) -> float:
        return percent(self.least)

    def most_improved(self, criterion: str) -> tuple[str, int]:
        """The utterance that a model did most for, and by how many errors; of several the one with fewest left."""
        errors = zip(self.first.said, self.first.errors, self.outcomes[criterion].errors)
        gain, _, name = max((before.total - after.total, -after.total, name) for name, before, after in errors)
        return name, gain

    def fields(self, criterion: str) -> dict[str, Any]:
        """What the second pass adds to a model's row, in per cent."""
        outcome = self.outcomes[criterion]
        return {
            "wer": outcome.wer,
            "wer_interval": [outcome.interval.low, outcome.interval.high],
            "wer_first_pass": self.first.wer,
            "wer_oracle": self.oracle,
            "rescoring_seconds": outcome.seconds,
            "scales": asdict(outcome.setting),
        }


def percent(errors: list[Errors]) -> float:
    return 100 * sum(errors, Errors()).rate


class SecondPass:
    """The stages, in order: `listen`, `rescored`, `compared`; what a folder already holds is not done again."""

    def __init__(self, to: Path, plan: Plan = Plan()) -> None:  # noqa: B008  frozen
        self.to, self.plan = to, plan
        self.lattices, self.bigram = to / "lattices", to / "lattices" / "bigram.arpa.gz"

    def said(self, part: str) -> Path:
        return self.lattices / f"{part}.txt"

    def folder(self, criterion: str) -> Path:
        return self.to / "rescored" / criterion

    def listen(self) -> bool:
        """Make the lattices, unless these are there; whether there was anything to do."""
        made, of = self.lattices / "made.json", self._material()
        if _read(made) == of:
            return False
        made.unlink(missing_ok=True)
        self.lattices.mkdir(exist_ok=True)
        vocabulary = Vocabulary.load(self.to / "data" / VOCABULARY)
        estimate_arpa(Part(self._lines("train")[:: self.plan.part]), self.bigram, order=2, vocabulary=vocabulary)
        confusions = Confusions(word for word in vocabulary.words if word not in (END, UNKNOWN))
        channel = Channel(confusions, NGram.load(self.bigram), self.plan.noise)
        for part, text, number in (("dev", "valid", self.plan.dev), ("test", "test", self.plan.test)):
            said = chosen(self._lines(text), part, number)
            for old in (self.lattices / part).glob("*.slf.gz"):
                old.unlink()
            with htk.writer(self.lattices / part) as write:
                for utterance, words in said.items():
                    write(channel.lattice(utterance, words))
            transcripts.write_text(self.said(part), said)
        _write(made, of)
        return True

    def _material(self) -> dict[str, Any]:
        """What the lattices are made of."""
        texts = {part: sha256(self.to / "text" / f"{part}.txt") for part in ("train", "valid", "test")}
        vocabulary = sha256(self.to / "data" / VOCABULARY)
        return {"format": FORMAT, "plan": asdict(self.plan), "texts": texts, "vocabulary": vocabulary}

    def _lines(self, part: str) -> list[str]:
        return (self.to / "text" / f"{part}.txt").read_text().splitlines()

    @cached_property
    def dev(self) -> list[Lattice]:
        return self._lattices("dev")

    @cached_property
    def test(self) -> list[Lattice]:
        return self._lattices("test")

    def _lattices(self, part: str) -> list[Lattice]:
        return [htk.read(self.lattices / part / f"{name}.slf.gz") for name in transcripts.read(self.said(part))]

    def first(self) -> Outcome:
        """The first pass, as the lattices have it."""
        heard = {lattice.utterance: words_of(lattice, best(lattice).arcs) for lattice in self.test}
        return self._outcome(heard, Setting(weight=0.0))

    def rescored(self, criterion: str, run: Path) -> Outcome:
        """Tune on the development lattices, rescore the test lattices; with scores as they are where that is right."""
        folder = self.folder(criterion)
        of = {"search": asdict(SEARCH), "model": sha256(run / MODEL), "made": sha256(self.lattices / "made.json")}
        done = _read(folder / "done.json")
        if done is None or done.get("of") != of:
            (folder / "done.json").unlink(missing_ok=True)
            scorer = Neural.load(run)
            rescorer = Rescorer({NEURAL: scorer}, search=SEARCH)
            setting = tuned(rescorer, self.dev, transcripts.read(self.said("dev")))
            outcome = second_pass(self.test, replace(rescorer, setting=setting), Output(folder))
            done = {"of": of, "needs_log_z": scorer.model.output.normalize, "seconds": outcome.seconds}
            _write(folder / "done.json", done)
        heard = transcripts.read(folder / "hypotheses.txt")
        return self._outcome(heard, load_scales(folder / "scales.json"), done["needs_log_z"], done["seconds"])

    def compared(self, outcomes: dict[str, Outcome]) -> Rescoring:
        """Models beside the first pass and the oracle, the paths nearest to the truth."""
        said = transcripts.read(self.said("test"))
        least = [oracle(lattice, said[lattice.utterance]).errors for lattice in self.test]
        return Rescoring(self.first(), outcomes, least, sum(lattice.arcs for lattice in self.test))

    def _outcome(self, heard: dict[str, Words], *rest: Any) -> Outcome:
        said = transcripts.read(self.said("test"))
        return Outcome(said, heard, list(counts_by_name(said, heard).values()), *rest)


class Part:
    """Sentences as numbers, for the n-gram model: 0 ends one, words have 1, 2, ... in order of appearance."""

    def __init__(self, sentences: list[str]) -> None:
        self.sentences, self.numbering = sentences, Numbering()

    @property
    def words(self) -> list[bytes]:
        return self.numbering.words[1:]

    def __iter__(self) -> Iterator[Numbers]:
        yield self.numbering.number("".join(f"{sentence}\n" for sentence in self.sentences).encode())


def chosen(sentences: list[str], name: str, number: int) -> dict[str, Words]:
    """Sentences neither short nor long, from all over a text; or all of these, where there are no more."""
    fitting = [words for words in map(str.split, sentences) if SHORTEST <= len(words) <= LONGEST]
    number = min(number, len(fitting))
    return {f"{name}-{n + 1:03d}": tuple(fitting[n * len(fitting) // number]) for n in range(number)}


def _write(path: Path, value: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(value, indent=2) + "\n").encode())


def _read(path: Path) -> dict[str, Any] | None:
    """What an earlier run wrote; None where it did not, or not to the end."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
