"""The second pass by any number of processes: part by part, each by whoever claims it, joined by one of them.

Steps, each done once: look through the files (`look`), tune (`tuned`), rescore the parts (`part`), join them (`done`).
With folds the parts are rescored first (`scored`), tuned on together, and then decided. The files are to the last byte
those of one process.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from selfnorm.corpus.sharing import LAST, Board, Over, Tell, numbered
from selfnorm.corpus.staging import SCRATCH
from selfnorm.lattices import files
from selfnorm.rescoring import Rescorer
from selfnorm.rescoring.earlier import SCALES, Earlier
from selfnorm.rescoring.kept import load_lists, load_rescored, save_lists, save_rescored
from selfnorm.rescoring.parts import RESULTS, join, load_results, pack_lattices, publish, save_results
from selfnorm.rescoring.plan import Plan, Read, Reader, Row, chunks, planned
from selfnorm.rescoring.results import TEXT, TRN, Result, decide, writing
from selfnorm.rescoring.second_pass import (
    NOTHING,
    Given,
    Outcome,
    Output,
    Progress,
    References,
    Shares,
    Tally,
    check_references,
    pairs_of,
    save_scales,
    tuned,
)
from selfnorm.rescoring.setting import Rescored, Setting
from selfnorm.rescoring.tuning import Lists, cross_validate, joined

WORK, ABOUT = "shared", "about.json"

Pairs = Iterable[tuple[Given, Rescored]]


@dataclass(frozen=True)
class Ways:
    """What is asked for besides the scores."""

    references: References | None = None
    develop: Callable[[Tally], tuple[Iterable[Given], References]] | None = None
    folds: int | None = None
    risk: bool = False


def shared_pass(
    paths: Sequence[Path],
    read: Read,
    rescorer: Rescorer,
    output: Output,
    ways: Ways,
    given: Mapping[str, Any],
    *,
    check: Callable[[Plan], None] = lambda plan: None,
    progress: Progress = lambda done: None,
    tell: Tell = lambda sentence: None,
    wait: bool = True,
) -> tuple[Outcome, Tally, list[str]]:
    """As `second_pass`, together with all others who call this for the same folder with what is `given` alike.

    `check` is told the plan and may refuse it. Also returned is what went by on the way, and a sentence for each that
    could not be read. Seconds are the sum of all processes'.
    """
    board = Board(output.folder / WORK, tell, wait)
    board.begin(given)
    try:
        if not board.over:
            every = [file for path in paths for file, _ in files(path)]
            _Pass(board, rescorer, output, ways, progress).run(every, read, check)
    except Over:
        pass
    about = board.read(LAST, ABOUT)
    for name in about["written"]:
        if not (output.folder / name).exists():
            raise ValueError(
                f"{output.folder / name}: is gone, though {board.folder} says it was written; remove that folder to "
                "begin anew"
            )
    board.tidy()
    results = list(load_results(board.path(LAST, RESULTS)))
    settings = Setting(**about["setting"]), [Setting(**each) for each in about["folds"]]
    outcome = Outcome(results, *settings, about["seconds"], about["unknown"])
    return outcome, Tally(**about["tally"]), about["broken"]


class _Pass:
    """What this process does of the steps."""

    def __init__(self, board: Board, rescorer: Rescorer, output: Output, ways: Ways, progress: Progress) -> None:
        self.board, self.output, self.ways, self.progress = board, output, ways, progress
        self.rescorer, self.start = rescorer, rescorer.setting
        self.count = 0  # utterances that this process did
        self.seconds = 0.0

    def run(self, files: list[Path], read: Read, check: Callable[[Plan], None]) -> None:
        self.plan = self._look(files, read)
        check(self.plan)
        if not self.plan.parts:
            raise ValueError(NOTHING)
        self.reader = Reader(files, read)
        self.names = numbered("part", len(self.plan.parts))
        self.first = [0]
        for part in self.plan.parts:
            self.first.append(self.first[-1] + len(part))
        if self.ways.develop is not None:
            self.board.do(["tuned"], self._timed(self._tune), more=True)
            self.rescorer = replace(self.rescorer, setting=Setting(**self.board.read("tuned", ABOUT)["setting"]))
        if self.ways.folds is not None:
            check_references([place.utterance for part in self.plan.parts for place in part], self.ways.references)
            self.board.do(numbered("scored", len(self.names)), self._timed(self._score), more=True)
            self.board.do(["tuned"], self._timed(self._tune_folds), more=True)
        self.board.do(self.names, self._timed(self._part))
        self.board.do([LAST], self._timed(self._join))

    def _timed(self, work: Callable[[str, Path], dict[str, Any]]) -> Callable[[str, Path], None]:
        """A step that says of itself what `work` returns, and how long it took."""

        def step(name: str, folder: Path) -> None:
            began = time.perf_counter()
            about = work(name, folder)
            about["seconds"] = about.get("seconds", 0.0) + time.perf_counter() - began
            (folder / ABOUT).write_text(json.dumps(about))

        return step

    def _look(self, files: list[Path], read: Read) -> Plan:
        ranges = chunks(files)
        names = numbered("look", len(ranges))

        def work(name: str, _: Path) -> dict[str, Any]:
            chosen = ranges[_number(name)]
            return {"rows": [[Row.of(item) for item in read(files[file])] for file in chosen]}

        self.board.do(names, self._timed(work), more=True)
        found = [self.board.read(name, ABOUT) for name in names]
        self.seconds = sum(each["seconds"] for each in found)
        rows = ([Row(*row) for row in rows] for each in found for rows in each["rows"])
        return planned(rows, files, self.rescorer.arcs)

    def _tune(self, _name: str, _folder: Path) -> dict[str, Any]:
        assert self.ways.develop is not None
        sentences: list[str] = []
        tally = Tally(report=sentences.append)
        setting = tuned(self.rescorer, *self.ways.develop(tally))
        return {"setting": asdict(setting), "folds": [], "broken": sentences}

    def _score(self, name: str, folder: Path) -> dict[str, Any]:
        """Rescore a part, and keep it."""
        shares = Shares()
        rescored = [each for _, each in shares.of(self._pairs(_number(name)))]
        assert self.ways.references is not None
        save_rescored(folder / "rescored.npz", rescored)
        save_lists(folder / "lists.npz", Lists.of(rescored, self.ways.references, self.start))
        return {"words": shares.words, "strange": shares.strange}

    def _tune_folds(self, _name: str, _folder: Path) -> dict[str, Any]:
        scored = numbered("scored", len(self.names))
        lists = joined([load_lists(self.board.path(name, "lists.npz")) for name in scored])
        assert self.ways.folds is not None
        setting, settings, fold = cross_validate(lists, self.ways.folds)
        return {"setting": asdict(setting), "folds": [asdict(each) for each in settings], "fold": fold.tolist()}

    def _pairs(self, number: int) -> Iterator[tuple[Given, Rescored]]:
        return pairs_of(self.reader.part(self.plan.parts[number]), self.rescorer, None)

    def _part(self, name: str, folder: Path) -> dict[str, Any]:
        """Decide on the utterances of a part."""
        number = _number(name)
        shares = Shares()
        if self.ways.folds is None:
            pairs: Pairs = shares.of(self._pairs(number))
            settings = [self.rescorer.setting] * len(self.plan.parts[number])
        else:
            path = self.board.path(f"scored-{number:06d}", "rescored.npz")
            pairs = shares.of(load_rescored(path, self.reader.part(self.plan.parts[number])))
            found = self.board.read("tuned", ABOUT)
            folds = [Setting(**each) for each in found["folds"]]
            settings = [folds[n] for n in found["fold"][self.first[number] : self.first[number + 1]]]
        results: list[Result] = []
        with writing(folder, self.output.lattices, self.output.nbest, self.output.words) as write:
            for (given, rescored), setting in zip(pairs, settings, strict=True):
                settled = self.rescorer.settled(rescored, setting, self.output.nbest)
                write(given, rescored, setting, settled)
                results.append(decide(settled, setting, self.ways.risk, self.start))
                self.count += 1
                self.progress(self.count)
        pack_lattices(folder)
        save_results(folder / RESULTS, results)
        return {"words": shares.words, "strange": shares.strange}

    def _join(self, _name: str, folder: Path) -> dict[str, Any]:
        """All parts in the files of the output, and what every process will say of them."""
        board, to, shares = self.board, self.output.folder, Shares()
        seconds = self.seconds
        for name in self.names:
            about = board.read(name, ABOUT)
            seconds += about["seconds"]
            shares.words += about["words"]
            for scorer, count in about["strange"].items():
                shares.strange[scorer] = shares.strange.get(scorer, 0) + count
        if self.ways.folds is not None:
            seconds += sum(board.read(name, ABOUT)["seconds"] for name in numbered("scored", len(self.names)))
        tuning: dict[str, Any] = {"setting": asdict(self.start), "folds": [], "seconds": 0.0}
        if self.ways.folds is not None or self.ways.develop is not None:
            tuning = board.read("tuned", ABOUT)
        setting, folds = Setting(**tuning["setting"]), [Setting(**each) for each in tuning["folds"]]
        made = folder / SCRATCH
        results = join(made, [(name, board.files(name)) for name in self.names], board.path)
        written = {str(path.relative_to(made)) for path in made.rglob("*")}
        earlier = Earlier(to)
        save_scales(made / SCALES, Outcome(results, setting, folds, 0.0), earlier.own(written))
        earlier.clear(written)
        earlier.note(written)
        publish(made, to)
        earlier.end()
        save_results(folder / RESULTS, results)
        plan = self.plan
        broken = [*tuning.get("broken", ()), *plan.broken]
        return {
            "setting": tuning["setting"],
            "folds": tuning["folds"],
            "seconds": seconds + tuning["seconds"],
            "unknown": shares.unknown,
            "tally": {"failed": len(broken), "arcs": plan.arcs, "notes": plan.notes, "note": plan.note},
            "broken": broken,
            "written": [TEXT, TRN, SCALES],
        }


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
