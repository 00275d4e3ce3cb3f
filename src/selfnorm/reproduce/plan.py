"""The rows of every table, and the recipe of each: one base for each of the paper's tasks, small changes by row.

A row is what is made, skipped and reported; a run is what is trained. Rows that need the same training share it, since
a run is named by its recipe.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from selfnorm.criteria import CRITERIA
from selfnorm.recipe import Recipe, Table, to_toml
from selfnorm.registry import named, pick

ORDER = ("table2", "table3", "table4", "figure1", "table5", "beyond", "table1")  # of importance
ITEMS = ("table1", "table2", "figure1", "table3", "table4", "table5", "beyond")

SWB, LIBRI, EN = "Switchboard", "LibriSpeech", "EN"  # the paper's tasks
SWEPT = "Switchboard, many times"  # what many rows are compared on; at `small` on less text
COUNT = "count"  # the criterion of a 4-gram, so to speak

SAMPLERS = {"nce": "replacement", "is": "replacement", "mode1": "replacement", "mode2": "excluding"}  # the paper's
SAMPLERS |= {"mode3": "distinct"}
NAMES = {"ce": "CE", "bce": "BCE", "is": "IS", "nce": "NCE", "mode1": "Mode1", "mode2": "Mode2", "mode3": "Mode3"}
NAMES |= {"ce_vr": "CE + (log Z)²", "linear": "linear bound", "sampled_softmax": "sampled softmax"}
SWEEP = (10, 30, 100, 300, 1000, 3000, 8000, 30_000)
LARGE = 8192  # positions of a large batch
FEW = 1000  # samples at most, where ways to draw are told apart
BETA2 = 0.999  # 0.99 is worse in batches of 32 sentences: docs/log.md


@dataclass(frozen=True)
class Row:
    """`label` is the paper's row, where it has one."""

    item: str
    label: str
    task: str
    criterion: str | None = None  # None: statistics of the text
    k: int | None = None
    groups: int = 1
    sampler: str | None = None
    noise: str | None = None
    sharing: str | None = None  # of `excluding`: "position" as in the paper, or "batch"
    large: bool = False  # batches by positions instead of the paper's sequences
    seed: int = 1

    @property
    def key(self) -> str:
        """What tells it from all others; `--only` looks here."""
        k = None if self.k is None else f"k{self.k}"
        batch = "large" if self.large else None
        parts = [self.item, self.criterion or self.task, k, f"g{self.groups}", self.sampler, self.sharing, self.noise]
        return "/".join(each for each in (*parts, batch, f"seed{self.seed}") if each)

    @property
    def trained(self) -> bool:
        return self.criterion not in (None, COUNT)

    @property
    def rescores(self) -> bool:
        return self.item in ("table3", "table4", "table5") and self.criterion is not None


@dataclass(frozen=True)
class Task:
    """What one of the paper's data sets becomes: a corpus, a model, batches, and how long to train."""

    corpus: str
    preset: str
    sequences: int  # of a batch
    training: Mapping[str, Any]
    lr: float
    warmup: int
    words: float  # that a training sees, about


@dataclass(frozen=True)
class Scale:
    name: str
    tasks: Mapping[str, Task]
    shrink: int = 1  # every K is this many times smaller than the paper's
    large: int = LARGE
    seeds: tuple[int, ...] = (1, 2)
    evaluation_words: int | None = None  # of test and development text; None: all
    repeats: int = 40  # steps that are timed together
    folds: int = 10  # of the utterances, to choose scales
    extra: Mapping[str, Any] = field(default_factory=dict)  # of every recipe's `training`


def _real(name: str, podcasts: float, swept: float, books: float, both: float) -> Scale:
    """The paper's architectures on public text, so many passes; all rows of a task see the same words."""

    def task(corpus: str, preset: str, sequences: int, passes: float, lr: float, warmup: int, words: float) -> Task:
        return Task(corpus, preset, sequences, {"epochs": passes}, lr, warmup, words * passes)

    return Scale(  # learning rates: docs/log.md for the LSTM, benchmarks/results/rates.csv for the Transformer
        name,
        {
            SWB: task("podcasts", "swb-lstm", 32, podcasts, 0.001, 1000, 27.9e6),
            SWEPT: task("podcasts", "swb-lstm", 32, swept, 0.001, 1000, 27.9e6),
            LIBRI: task("books", "libri-transformer", 64, books, 0.000125, 2000, 87.6e6),
            EN: task("books+podcasts", "en-lstm", 64, both, 0.001, 1000, 115.5e6),
        },
        extra={"save_every": 20_000, "log_every": 100, "evaluation_words": 200_000, "most": 2_000_000_000},
    )


_STEPS = {"steps": 100}
SCALES = {
    "tiny": Scale(
        "tiny",
        {
            SWB: Task("built-in", "tiny-lstm", 32, _STEPS, 0.01, 20, 5e4),
            SWEPT: Task("built-in", "tiny-lstm", 32, _STEPS, 0.01, 20, 5e4),
            LIBRI: Task("built-in", "tiny-transformer", 64, {"steps": 50}, 0.003, 20, 5e4),
            EN: Task("built-in", "tiny-lstm", 64, {"steps": 50}, 0.01, 20, 5e4),
        },
        shrink=10,
        large=1024,
        seeds=(1,),
        evaluation_words=4000,
        repeats=1,
        folds=3,
        extra={"save_every": 1000, "log_every": 10, "evaluation_words": 2000},
    ),
    "small": _real("small", podcasts=1, swept=0.25, books=1, both=1),
    "full": _real("full", podcasts=10, swept=10, books=5, both=5),
}


def rows(item: str, scale: Scale) -> list[Row]:
    """The rows of one item, or of `all` in the order of importance; further seeds come after all first ones."""
    if item != "all":
        named("item", dict.fromkeys((*ITEMS, "all")), item)
    found = [_shrunk(row, scale) for each in ORDER for row in _ROWS[each]()]
    close = {run_name(row, scale) for row in found if _close(row)}  # rows that share a training share its seeds
    again = [row for row in found if row.trained and run_name(row, scale) in close]
    found += [replace(row, seed=seed) for seed in scale.seeds[1:] for row in again]
    return [row for row in found if item in (row.item, "all")]


def _close(row: Row) -> bool:
    """Whether it is compared by differences that a seed can make: criteria with all they need, and ways to draw."""
    drawn = row.item == "beyond" and not row.large and row.criterion in ("ce", "mode3")
    return row.trained and (row.item == "table3" or (drawn and (row.k or 0) <= FEW))


def _shrunk(row: Row, scale: Scale) -> Row:
    return row if row.k is None else replace(row, k=max(1, row.k // scale.shrink))


def recipe(row: Row, scale: Scale) -> Recipe:
    """What to train for a row; its `data` is looked up in the folder that everything is made in."""
    assert row.criterion is not None
    task = scale.tasks[row.task]
    sampler: dict[str, Any] = {"noise": row.noise, "k": row.k, "groups": row.groups, "sharing": row.sharing}
    kept = {key: each for key, each in sampler.items() if each is not None and (key, each) != ("groups", 1)}
    batches = {"positions": scale.large} if row.large else {"sequences": task.sequences}
    length, warmup = dict(task.training), task.warmup
    if row.large:  # as many words in fewer steps; epochs say that by themselves
        warmup = max(1, 3 * warmup // 10)
        if "steps" in length:
            length["steps"] = max(1, round(length["steps"] * task.sequences * 16 / scale.large))
    return Recipe(
        data=f"data/{task.corpus}",
        criterion=Table(row.criterion),
        sampler=Table(row.sampler, kept) if row.sampler else Table(),
        model=Table(None, {"preset": task.preset} | ({"sparse": True} if _by_rows(row) else {})),
        batches=Table("sentences", batches),
        optimizer=Table("adam", {"lr": task.lr, "beta2": BETA2}),
        schedule=Table("cosine", {"warmup": warmup}),
        training=Table(None, {**length, "clip": 1.0, "seed": row.seed, **scale.extra}),
    )


def run_name(row: Row, scale: Scale) -> str:
    """The same for rows that need the same training."""
    digest = hashlib.sha256(to_toml(recipe(row, scale)).encode()).hexdigest()
    parts = [scale.tasks[row.task].corpus, row.criterion, "" if row.k is None else f"k{row.k}", digest[:10]]
    return "-".join(each for each in parts if each)


def _by_rows(row: Row) -> bool:
    """Row-sparse updates where few rows are touched: not by one draw per position, nor by sums over all words.

    These touch few rows of the inputs; that pays where the table is large, as that of the Transformer.
    """
    return row.task == LIBRI if row.sampler is None else row.sharing != "position"


def _row(item: str, task: str, criterion: str, k: int | None = None, label: str | None = None, **options: Any) -> Row:
    """A row with the paper's sampler and noise, unless `options` say others."""
    if pick("criterion", CRITERIA, criterion).sampled:
        sampler = options.pop("sampler", SAMPLERS.get(criterion, "systematic"))
        sharing = options.pop("sharing", "position") if sampler == "excluding" else None
        options |= {"sampler": sampler, "sharing": sharing, "noise": options.get("noise", "log_uniform")}
        k = 8000 if k is None else k
    return Row(item, label or NAMES[criterion], task, criterion, k, **options)


def _labelled(item: str, task: str, criteria: tuple[str, ...]) -> Iterator[Row]:
    for criterion in criteria:
        for k in (100, 8000):
            yield _row(item, task, criterion, k, f"{NAMES[criterion]}, K = {k}")


def _table1() -> Iterator[Row]:
    for task in (SWB, LIBRI, EN):
        yield Row("table1", task, task)


def _table2() -> Iterator[Row]:
    yield from _labelled("table2", SWB, ("nce", "mode1", "mode2", "mode3"))


def _table3() -> Iterator[Row]:
    yield Row("table3", "count LM", SWB, COUNT)
    for criterion in ("ce", "bce", "is", "nce", "mode3"):
        yield _row("table3", SWB, criterion)


def _table4() -> Iterator[Row]:
    for criterion in ("ce", "bce", "is", "nce", "mode3"):
        yield _row("table4", LIBRI, criterion)


def _figure1() -> Iterator[Row]:
    """With K = C every group has every word: groups change nothing there, and are left out."""
    for groups in (1, 8):
        for k in SWEEP if groups == 1 else SWEEP[:-1]:
            yield _row("figure1", SWEPT, "mode3", k, f"K = {k}, G = {groups}", groups=groups)


def _table5() -> Iterator[Row]:
    yield Row("table5", "count LM", EN, COUNT)
    yield from _labelled("table5", EN, ("nce", "mode3"))


def _beyond() -> Iterator[Row]:
    """One question after the other; what it is compared with is often a row of figure 1 as well."""

    def mode3(k: int, *more: str, **options: Any) -> Row:
        sampler = options.pop("sampler", "systematic")
        words = (f"K = {k}", sampler, *more)
        task = SWB if options.get("large") else SWEPT  # large batches make few steps
        return _row("beyond", task, "mode3", k, f"Mode3, {', '.join(words)}", sampler=sampler, **options)

    yield _row("beyond", SWEPT, "ce")
    yield mode3(1000, sampler="distinct")
    yield mode3(8000, sampler="distinct")
    for k in (100, 1000, 8000):
        yield mode3(k)
    yield mode3(1000, "unigram", noise="unigram")
    yield mode3(8000, "unigram", noise="unigram")
    yield mode3(1000, "G = 8", groups=8)
    yield mode3(1000, "unigram", "G = 8", noise="unigram", groups=8)
    for k in (100, 8000):
        yield _row("beyond", SWEPT, "mode2", k, f"Mode2, K = {k}, shared by the batch", sharing="batch")
    for criterion in ("linear", "sampled_softmax"):
        yield _row("beyond", SWEPT, criterion, 8000, f"{NAMES[criterion]}, K = 8000")
    yield _row("beyond", SWEPT, "ce_vr")
    yield _row("beyond", SWB, "ce", label="CE, large batch", large=True)
    yield mode3(8000, "large batch", large=True)
    yield mode3(8000, "unigram", "large batch", noise="unigram", large=True)
    yield mode3(100, "large batch", large=True)
    yield mode3(100, "G = 16", "large batch", groups=16, large=True)
    yield mode3(1000, "unigram", "G = 8", "large batch", noise="unigram", groups=8, large=True)


_ROWS = {
    "table1": _table1,
    "table2": _table2,
    "figure1": _figure1,
    "table3": _table3,
    "table4": _table4,
    "table5": _table5,
    "beyond": _beyond,
}
