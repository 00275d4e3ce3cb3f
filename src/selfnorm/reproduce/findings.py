"""What was expected of the rows, and what they say; an expectation whose rows are missing says nothing."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from selfnorm.reproduce.rows import Made
from selfnorm.reproduce.tables import spread

SELF_NORMALIZED = ("bce", "nce", "mode1", "mode2", "mode3")
CLEARLY, CLOSE, NEAR = 1.1, 1.05, 1.01  # times another perplexity
MEAN, STD = 0.02, 0.15  # of log Z
ENOUGH = 1000  # samples for that, if there are no groups
DRAWN = "Mode3, K = 1000, systematic, unigram"  # our sampler and noise; and with groups:
GROUPED = f"{DRAWN}, G = 8"
SERVING = {  # what the library's defaults rest on: rows of `beyond`, and what each is about as good as
    "Mode3, K = 1000, systematic": ("CE", "Mode3, K = 1000, distinct"),
    "Mode3, K = 8000, systematic": ("CE", "Mode3, K = 8000, distinct"),
    "Mode3, K = 8000, systematic, large batch": ("CE, large batch",),
}


@dataclass(frozen=True)
class Finding:
    expected: str
    found: str
    holds: bool | None  # None: seeds differ by more than what is compared


class Missing(Exception):  # noqa: N818  nothing is wrong
    """A row that an expectation speaks of is not there."""


class Rows:
    def __init__(self, found: Sequence[Made]) -> None:
        self.found = [row for row in found if row.get("perplexity")]

    def group(self, item: str, label: str) -> list[Made]:
        """All seeds of a row."""
        group = [row for row in self.found if (row["item"], row["label"]) == (item, label)]
        if not group:
            raise Missing
        return group

    def perplexities(self, item: str, label: str) -> list[float]:
        return [row["perplexity"] for row in self.group(item, label)]

    def perplexity(self, item: str, label: str) -> float:
        return statistics.mean(self.perplexities(item, label))

    def errors(self, item: str, label: str) -> dict[str, list[float]]:
        """WER of each set of utterances and the ends of its interval, means over seeds."""
        found: dict[str, list[list[float]]] = {}
        for row in self.group(item, label):
            for name, subsets in row.get("wer", {}).items():
                found.setdefault(name, []).append([subsets["all"]["wer"], *subsets["all"]["interval"]])
        return {name: [sum(each) / len(each) for each in zip(*seeds)] for name, seeds in found.items()}


def findings(found: Sequence[Made]) -> Iterator[Finding]:
    rows = Rows(found)
    for check in CHECKS:
        try:
            yield from check(rows)
        except Missing:
            continue


def serving(found: Sequence[Made]) -> bool:
    """Whether the rows bear out the library's defaults, and what the page says of them; not without all of them."""
    rows = Rows(found)
    try:
        entropy, one, many = _large(rows)
        pairs = [(rows.perplexity("beyond", mine), _best_of(rows, others)) for mine, others in SERVING.items()]
    except Missing:
        return False
    return one > CLEARLY * entropy and many < one and all(mine < NEAR * best for mine, best in pairs)


def _best_of(rows: Rows, labels: Sequence[str]) -> float:
    return min(rows.perplexity("beyond", label) for label in labels)


def _worse(rows: Rows) -> Iterator[Finding]:
    others = [rows.perplexity("table2", f"{name}, K = 100") for name in ("NCE", "Mode2", "Mode3")]
    mine = rows.perplexity("table2", "Mode1, K = 100")
    told = f"{mine:.1f} against {min(others):.1f} to {max(others):.1f}"
    yield Finding("Mode1 at K = 100 is clearly worse than the others", told, mine > CLEARLY * max(others))


def _close(rows: Rows) -> Iterator[Finding]:
    for k in (100, 8000):
        found = {name: rows.perplexity("table2", f"{name}, K = {k}") for name in ("NCE", "Mode2", "Mode3")}
        told = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
        near = max(found.values()) < CLOSE * min(found.values())
        yield Finding(f"NCE, Mode2 and Mode3 at K = {k} are close to each other", told, near)


def _more(rows: Rows) -> Iterator[Finding]:
    names = ("NCE", "Mode1", "Mode2", "Mode3")
    pairs = {name: [rows.perplexity("table2", f"{name}, K = {k}") for k in (100, 8000)] for name in names}
    told = ", ".join(f"{name} {few:.1f} to {many:.1f}" for name, (few, many) in pairs.items())
    better = all(many < few for few, many in pairs.values())
    yield Finding("More samples are better: from K = 100 to 8000", told, better)


def _flattens(rows: Rows) -> Iterator[Finding]:
    first, second, third = (rows.perplexity("figure1", f"K = {k}, G = 1") for k in (10, 300, 8000))
    told = f"K = 10, 300, 8000: {first:.1f}, {second:.1f}, {third:.1f}"
    yield Finding("What more samples bring gets less", told, first - second > second - third)


def _as_good(rows: Rows) -> Iterator[Finding]:
    for item in ("table3", "table4"):
        try:
            entropy, mine = (rows.perplexity(item, name) for name in ("CE", "Mode3"))
        except Missing:
            continue
        told = f"{mine:.2f} against {entropy:.2f}, {100 * (mine / entropy - 1):+.1f} %"
        expected = f"Mode3 at K = 8000 within 1 % of cross entropy, or better (table {item[-1]})"
        yield Finding(expected, told, mine < NEAR * entropy)


def _with_less(rows: Rows) -> Iterator[Finding]:
    for label, more in ((DRAWN, " and unigram noise"), (GROUPED, ", unigram noise and 8 groups")):
        try:
            entropy, mine = rows.perplexities("beyond", "CE"), rows.perplexities("beyond", label)
        except Missing:
            continue
        expected = f"Mode3 at K = 1000 with systematic draws{more} not worse than cross entropy"
        holds = statistics.mean(mine) <= statistics.mean(entropy) or (None if min(mine) <= max(entropy) else False)
        yield Finding(expected, f"{spread(mine, 2)} against {spread(entropy, 2)}", holds)


def _log_z(rows: Rows) -> Iterator[Finding]:
    def enough(row: Made) -> bool:
        return row["k"] is None or row["k"] >= ENOUGH or row["groups"] > 1

    some = {row["run"]: row for row in rows.found if row["criterion"] in SELF_NORMALIZED and enough(row)}
    if not some:
        raise Missing
    good = [row for row in some.values() if abs(row["log_z_mean"]) < MEAN and row["log_z_std"] < STD]
    farthest = max(abs(row["log_z_mean"]) for row in some.values())
    widest = max(row["log_z_std"] for row in some.values())
    told = f"{len(good)} of {len(some)} trainings; the largest are {farthest:.3f} and {widest:.3f}"
    if exact := [row["log_z_std"] for row in some.values() if row["criterion"] == "bce"]:
        told += f"; the std of BCE, which draws nothing, is {max(exact):.3f}"
    expected = (
        f"Self-normalized, with K of {ENOUGH} or more or groups: mean log Z below {MEAN} either way, std below {STD}"
    )
    yield Finding(expected, told, len(good) == len(some))


def _not_normalized(rows: Rows) -> Iterator[Finding]:
    (row, *_) = rows.group("beyond", "sampled softmax, K = 8000")
    told = f"mean {row['log_z_mean']:+.2f}, std {row['log_z_std']:.2f}"
    yield Finding("Sampled softmax is not normalized", told, abs(row["log_z_mean"]) > MEAN or row["log_z_std"] > STD)


def _large(rows: Rows) -> list[float]:
    """Of large batches: cross entropy, and K = 100 by one draw and by 16."""
    names = ("CE", "Mode3, K = 100, systematic", "Mode3, K = 100, systematic, G = 16")
    return [rows.perplexity("beyond", f"{name}, large batch") for name in names]


def _groups(rows: Rows) -> Iterator[Finding]:
    entropy, one, many = _large(rows)
    told = f"K = 100: {one:.1f} with one draw, {many:.1f} with 16, cross entropy {entropy:.1f}"
    yield Finding("Large batches need groups", told, many < one)


def _errors(rows: Rows) -> Iterator[Finding]:
    for item in ("table3", "table4"):
        try:
            entropy, mine = (rows.errors(item, label) for label in ("CE", "Mode3"))
        except Missing:
            continue
        for name in (name for name in entropy if name in mine):
            (rate, low, high), (ours, *_) = entropy[name], mine[name]
            expected = f"WER of Mode3 as it is like that of cross entropy normalized ({name}, table {item[-1]})"
            yield Finding(expected, f"{ours:.1f} against {rate:.1f} ({low:.1f} to {high:.1f})", low <= ours <= high)


Check = Callable[[Rows], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    _worse,
    _close,
    _more,
    _flattens,
    _as_good,
    _with_less,
    _log_z,
    _not_normalized,
    _groups,
    _errors,
)
