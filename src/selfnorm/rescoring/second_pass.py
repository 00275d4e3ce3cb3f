"""From what a recogniser handed on to words, files and tuned scales: rescore, choose a setting, decide, write."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from selfnorm.files import write_whole
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.lattice import Lattice
from selfnorm.lattices.nbest import NBest
from selfnorm.rescoring import Rescorer
from selfnorm.rescoring.earlier import SCALES, WRITTEN, Earlier
from selfnorm.rescoring.results import Result, decide, write_words, writing
from selfnorm.rescoring.setting import Rescored, Setting
from selfnorm.rescoring.tuning import Lists, cross_validate, tune

Given = Lattice | NBest
References = Mapping[str, tuple[str, ...]]
Progress = Callable[[int], None]  # told how many utterances are done

NOTHING = "there is no utterance to rescore; give lattices or lists that can be read"


@dataclass
class Tally:
    """What went by on the way."""

    failed: int = 0
    arcs: int = 0
    notes: int = 0
    note: str = ""  # the first of them
    report: Callable[[str], None] = field(default=lambda sentence: None)

    def good(self, items: Iterable[Given | Broken]) -> Iterator[Given]:
        """Those that could be read; a sentence for each of the others."""
        for item in items:
            if isinstance(item, Broken):
                self.failed += 1
                self.report(item.sentence)
                continue
            if item.notes and not self.notes:
                self.note = f"{item.utterance}: {item.notes[0]}"
            self.notes += len(item.notes)
            self.arcs += item.arcs
            yield item


class Shares:
    """Counts the words that went by, and those that a scorer does not know."""

    def __init__(self) -> None:
        self.words = 0
        self.strange: dict[str, int] = {}

    def of(self, pairs: Iterable[tuple[Given, Rescored]]) -> Iterator[tuple[Given, Rescored]]:
        for given, rescored in pairs:
            self.words += int(rescored.lattice.is_word.sum())
            for name, told in rescored.scores.items():
                self.strange[name] = self.strange.get(name, 0) + int(told.unknown.sum())
            yield given, rescored

    @property
    def unknown(self) -> dict[str, float]:
        return {name: count / max(1, self.words) for name, count in self.strange.items()}


@dataclass(frozen=True)
class Outcome:
    results: list[Result]
    setting: Setting  # given, or tuned: with folds, on all utterances, for the use on others
    folds: list[Setting]  # each tuned without the utterances that it was used for
    seconds: float
    unknown: dict[str, float] = field(default_factory=dict)  # of each scorer: the share of words it does not know


@dataclass(frozen=True)
class Output:
    """`lattices`: "replaced", "expanded" or None; `nbest` hypotheses of each lattice are listed."""

    folder: Path
    lattices: str | None = None
    nbest: int = 0
    words: Path | None = None


def second_pass(
    items: Iterable[Given],
    rescorer: Rescorer,
    output: Output | None = None,
    *,
    references: References | None = None,
    develop: tuple[Iterable[Given], References] | None = None,
    folds: int | None = None,
    speaker: Callable[[str], str] | None = None,
    risk: bool = False,
    progress: Progress = lambda done: None,
) -> Outcome:
    """Rescore with the given setting, with one tuned on development data, or with one tuned for each fold.

    With `risk` the words are those with the fewest errors to be expected, and not those of the best path.
    """
    begin = time.perf_counter()
    settings: list[Setting] = []
    start = setting = rescorer.setting
    if develop is not None:
        setting = tuned(rescorer, *develop)
        rescorer = replace(rescorer, setting=setting)
    results: list[Result] = []
    written: set[str] = set()
    if output is not None:
        output.folder.mkdir(parents=True, exist_ok=True)
        earlier = Earlier(output.folder)
    shares = Shares()
    with _writer(output, written) as write:

        def settle(given: Given, rescored: Rescored, setting: Setting) -> None:
            settled = rescored
            if speaker is None:  # else histories are pushed forward
                settled = rescorer.settled(rescored, setting, output.nbest if output else 0)
            write(given, rescored, setting, settled)
            results.append(decide(settled, setting, risk, start))

        if folds is None:
            for given, rescored in shares.of(pairs_of(items, rescorer, speaker)):
                settle(given, rescored, setting)
                progress(len(results))
        else:
            pairs = []
            for pair in shares.of(pairs_of(items, rescorer, speaker)):
                pairs.append(pair)
                progress(len(pairs))
            lists = _lists([each for _, each in pairs], references, rescorer.setting)
            setting, settings, fold = cross_validate(lists, folds)
            for (given, rescored), n in zip(pairs, fold):
                settle(given, rescored, settings[n])
        if not results:
            raise ValueError(NOTHING)
        if output is not None:
            earlier.note(written)
    outcome = Outcome(results, setting, settings, time.perf_counter() - begin, shares.unknown)
    if output is not None:
        earlier.clear(written)
        write_words(output.folder, results)
        save_scales(output.folder / SCALES, outcome, earlier.own(written))
        earlier.end()
    return outcome


def tuned(rescorer: Rescorer, items: Iterable[Given], references: References) -> Setting:
    """The setting with the fewest expected errors on development data."""
    return tune(_lists(list(rescorer.rescore(items)), references, rescorer.setting))


def save_scales(path: Path, outcome: Outcome, written: Sequence[str] = ()) -> None:
    """The setting, and which lists and lattices were written beside it."""
    value: dict[str, Any] = asdict(outcome.setting)
    if outcome.folds:
        value["folds"] = [asdict(setting) for setting in outcome.folds]
    if written:
        value[WRITTEN] = list(written)
    write_whole(path, (json.dumps(value, indent=2) + "\n").encode())


def load_scales(path: Path) -> Setting:
    """The setting that an earlier run stored."""
    try:
        value = json.loads(path.read_text())
        return Setting(**{name: value[name] for name in asdict(Setting())})
    except KeyError as error:
        raise ValueError(f"{path}: has no {error}; give the {SCALES} that `selfnorm rescore` wrote") from None
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: holds no scales ({error}); give the {SCALES} that `selfnorm rescore` wrote"
        ) from None


def pairs_of(
    items: Iterable[Given], rescorer: Rescorer, speaker: Callable[[str], str] | None
) -> Iterator[tuple[Given, Rescored]]:
    waiting: dict[str, Given] = {}

    def passing() -> Iterator[Given]:
        for item in items:
            if rescorer.keep and isinstance(item, NBest):
                raise ValueError(
                    f"{item.utterance} is a list, whose words have no scores of their own that unknown ones could "
                    "keep; give these a penalty"
                )
            waiting[item.utterance] = item
            yield item

    done = rescorer.rescore(passing()) if speaker is None else rescorer.carry_over(passing(), speaker)
    for rescored in done:
        yield waiting.pop(rescored.lattice.utterance), rescored


def _writer(output: Output | None, written: set[str]) -> Any:
    if output is None:
        return nullcontext(lambda given, rescored, setting, settled: None)
    return writing(output.folder, output.lattices, output.nbest, output.words, written)


def _lists(rescored: Sequence[Rescored], references: References | None, setting: Setting) -> Lists:
    known = check_references([each.lattice.utterance for each in rescored], references)
    return Lists.of(rescored, known, setting)


def check_references(utterances: Sequence[str], references: References | None) -> References:
    """The references, one for each utterance that is to be tuned on."""
    if not utterances:
        raise ValueError("there is no utterance to tune on; give lattices or lists that can be read")
    missing = [name for name in utterances if name not in (references or {})]
    if references is None or missing:
        raise ValueError(
            f"scales are tuned on utterances whose words are known, and {len(missing)} have no reference, "
            f"{missing[0]} the first; give one for each"
        )
    return references
