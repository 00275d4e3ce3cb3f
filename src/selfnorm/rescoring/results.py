"""What the second pass says of an utterance, and the files it is written to."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from selfnorm.lattices import htk, kaldi, nbest
from selfnorm.lattices.lattice import SILENT, Lattice, Scales
from selfnorm.lattices.nbest import Hypothesis, NBest
from selfnorm.lattices.paths import best, n_best, words_of
from selfnorm.lattices.transcripts import Spoken, write_ctm, write_text, write_trn
from selfnorm.rescoring.lists import NUMBER
from selfnorm.rescoring.risk import least_risk
from selfnorm.rescoring.setting import Rescored, Setting
from selfnorm.vocabulary import END

Words = tuple[str, ...]

LISTS, KALDI, LATTICES = "nbest.jsonl.gz", "lat.1.gz", "lattices"  # the last is a folder
TEXT, TRN, TIMES = "hypotheses.txt", "hypotheses.trn", "hypotheses.ctm"  # the best words
SLF = ".slf.gz"
LONGEST = 180  # bytes of a file's name: file systems take 255, with what is added while it is written


@dataclass(frozen=True)
class Result:
    utterance: str
    words: Words
    first: Words  # the first pass's
    score: float
    spoken: tuple[Spoken, ...] | None  # with their times, where the lattice has some
    scales: tuple[float, float] = (1.0, 0.0)  # LM scale and word penalty they were decided with


def decide(rescored: Rescored, setting: Setting, risk: bool = False, given: Setting | None = None) -> Result:
    """The best path under a setting, or the one of least `risk`, beside the best of the first pass.

    `given` has the scales of a first pass that does not say them itself, as Kaldi's does not.
    """
    lattice, totals = rescored.lattice, rescored.totals(setting)
    arcs = least_risk(rescored, setting) if risk else best(lattice, totals).arcs
    spoken = None
    if lattice.times is not None:
        begin, end = lattice.times[lattice.sources], lattice.times[lattice.targets]
        said = [arc for arc in arcs if words_of(lattice, [arc])]
        spoken = tuple(
            Spoken(lattice.utterance, float(begin[arc]), float(end[arc] - begin[arc]), lattice.words[arc])
            for arc in said
        )
    score = float(totals[list(arcs)].sum())
    scales = setting.scale(lattice), setting.penalty(lattice)
    return Result(lattice.utterance, words_of(lattice, arcs), _first(rescored.given, given), score, spoken, scales)


def _first(lattice: Lattice, given: Setting | None) -> Words:
    """What the recogniser found: the first of its list, or the best path at its own scales."""
    if NUMBER in lattice.extra:
        return words_of(lattice, _back(lattice, lattice.extra[NUMBER].index("0")))
    scales = lattice.scales
    if given is not None and (scales.lm, scales.penalty) == (Scales.lm, Scales.penalty):
        scales = replace(scales, lm=given.scale(lattice), penalty=given.penalty(lattice))
    return words_of(lattice, best(lattice, lattice.total(scales)).arcs)


def _back(tree: Lattice, last: int) -> list[int]:
    """The arcs of the hypothesis that ends with this one; in a tree there is one way."""
    came = np.empty(tree.nodes, np.int64)
    came[tree.targets] = np.arange(tree.arcs)
    arcs = [last]
    while (node := int(tree.sources[arcs[0]])) != 0:
        arcs.insert(0, int(came[node]))
    return arcs


def listed(rescored: Rescored, setting: Setting, n: int) -> list[Hypothesis]:
    """The n best hypotheses with all their scores: acoustic, the lattice's own, each scorer's, and the total."""
    lattice, totals = rescored.lattice, rescored.totals(setting)
    found = []
    for path in n_best(lattice, n, totals):
        arcs = np.array(path.arcs, np.int64)
        told = {name: float(each.score[arcs].sum()) for name, each in rescored.scores.items()}
        acoustic, lm = float(lattice.steady[arcs].sum()), float(lattice.lm[arcs].sum())
        found.append(Hypothesis(words_of(lattice, path.arcs), acoustic, lm, {**told, "score": path.score}))
    return found


def renewed(given: NBest, rescored: Rescored, setting: Setting) -> NBest:
    """A list in its new order, each hypothesis with what the file said of it, every scorer's score and the total."""
    lattice, totals = rescored.lattice, rescored.totals(setting)
    rows = []
    for last in np.flatnonzero(lattice.targets == lattice.nodes - 1).tolist():
        arcs = _back(lattice, last)
        number = int(lattice.extra[NUMBER][last])
        told = {name: float(each.score[arcs].sum()) for name, each in rescored.scores.items()}
        rows.append((float(totals[arcs].sum()), -number, told))
    hypotheses = [
        replace(given.hypotheses[-number], extra={**given.hypotheses[-number].extra, **told, "score": score})
        for score, number, told in sorted(rows, key=lambda row: row[:2], reverse=True)
    ]
    return replace(given, hypotheses=tuple(hypotheses))


def write_words(folder: Path, results: Sequence[Result]) -> None:
    """As Kaldi and as NIST write them and, where there are times, with these."""
    words = {result.utterance: result.words for result in results}
    write_text(folder / TEXT, words)
    write_trn(folder / TRN, words)
    timed = [row for result in results for row in result.spoken or ()]
    if timed:
        write_ctm(folder / TIMES, timed)
    else:  # no times of an earlier run beside the words of this one
        (folder / TIMES).unlink(missing_ok=True)


Write = Callable[[Lattice | NBest, Rescored, Setting, Rescored], None]
KINDS = ("replaced", "expanded")


@contextmanager
def writing(
    folder: Path, kind: str | None, n: int, words: Path | None, written: set[str] | None = None
) -> Iterator[Write]:
    """Takes one utterance after another: lattices go out in the format they came in, lists as lists.

    `kind` of lattice: the given arcs with their scores replaced, or expanded with the histories that were kept; None:
    no lattices. `n` hypotheses of a lattice are listed, none for 0, of the one that is `settled` on. All files appear
    when the block ends; `written` takes their names.
    """
    names = set() if written is None else written
    with ExitStack() as stack:
        archives: dict[str, Callable[..., None]] = {}

        def archive(name: str, enter: Callable[[], object]) -> Callable[..., None]:
            names.add(name)
            if name not in archives:
                archives[name] = stack.enter_context(enter())  # type: ignore[arg-type]
            return archives[name]

        def lists() -> Callable[..., None]:
            return archive(LISTS, lambda: nbest.writer(folder / LISTS))

        def write(given: Lattice | NBest, rescored: Rescored, setting: Setting, settled: Rescored) -> None:
            if isinstance(given, NBest):
                lists()(renewed(given, rescored, setting))
                return
            if n:
                lists()(NBest(given.utterance, tuple(listed(settled, setting, n))))
            if kind is None:
                return
            lattice = rescored.expanded(setting) if kind == "expanded" else rescored.replaced(setting)
            if "kind" in given.header:
                archive(KALDI, lambda: kaldi.writer(folder / KALDI, words))(_as_kaldi(lattice, given))
            else:
                archive(LATTICES, lambda: _files(folder / LATTICES))(lattice)
                names.add(f"{LATTICES}/{file_of(lattice.utterance)}")

        yield write


def _as_kaldi(lattice: Lattice, given: Lattice) -> Lattice:
    """For Kaldi `</s>` would be a word of the hypothesis: silent, unless the given lattice says it."""
    if END in given.words:
        return lattice
    return replace(lattice, words=tuple(SILENT if word == END else word for word in lattice.words))


def file_of(utterance: str) -> str:
    """The name of an utterance's file: never hidden, and not too long for a file system; the utterance's is inside."""
    name = utterance.replace("/", "_")
    if name.startswith("."):
        name = f"_{name}"
    if len(name.encode()) > LONGEST:
        digest = hashlib.sha256(utterance.encode()).hexdigest()[:16]
        name = f"{name.encode()[:LONGEST].decode(errors='ignore')}-{digest}"
    return f"{name}{SLF}"


@contextmanager
def _files(folder: Path) -> Iterator[Callable[[Lattice], None]]:
    """Takes lattices of HTK, a file for each; they come to the folder together, when the block ends."""
    folder.mkdir(exist_ok=True)
    names: set[str] = set()
    with TemporaryDirectory(prefix=".", dir=folder) as waiting:

        def write(lattice: Lattice) -> None:
            name = file_of(lattice.utterance)
            if name in names:
                raise ValueError(f"{folder / name}: two utterances would have this file, {lattice.utterance} is one")
            names.add(name)
            htk.write(lattice, Path(waiting) / name)

        yield write
        for name in names:
            (Path(waiting) / name).replace(folder / name)
