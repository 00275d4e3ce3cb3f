"""What was expected of the rows, and what they say; an expectation whose rows are missing says nothing.

Perplexities are compared seed by seed: an expectation holds if every seed says so, and fails if none does.
"""

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from selfnorm.criteria import CRITERIA
from selfnorm.registry import pick
from selfnorm.reproduce.compared import apart, rates
from selfnorm.reproduce.paper import PAPER
from selfnorm.reproduce.rows import Made

AS_IS = [name for name in CRITERIA if not pick("criterion", CRITERIA, name).needs_log_z]
CLEARLY, CLOSE, NEAR = 1.1, 1.05, 1.01  # times another perplexity
CHANCE = 1.005  # what one seed alone does not tell from 1: the page says what seeds change
MEAN, STD = 0.02, 0.15  # of log Z
ENOUGH = 1000  # samples for that, if there are no groups
DRAWN = "Mode3, K = 1000, systematic, unigram"  # our sampler and noise; and with groups:
GROUPED = f"{DRAWN}, G = 8"
SERVING = {  # what the library's defaults rest on: rows of `beyond`, and what each is about as good as
    "Mode3, K = 1000, systematic": ("CE", "Mode3, K = 1000, distinct"),
    "Mode3, K = 8000, systematic": ("CE", "Mode3, K = 8000, distinct"),
    "Mode3, K = 8000, systematic, large batch": ("CE, large batch",),
}
CRITERIA_3_4 = ("CE", "BCE", "IS", "NCE", "Mode3")  # of tables 3 and 4
SAMPLED = CRITERIA_3_4[2:]


@dataclass(frozen=True)
class Finding:
    expected: str
    found: str
    holds: bool | None  # None: some seeds say so and others not, or an interval holds both
    seeds: int = 0  # that all compared rows have, where seeds are compared


class Missing(Exception):  # noqa: N818  nothing is wrong
    """A row that an expectation speaks of is not there."""


class Rows:
    def __init__(self, found: Sequence[Made]) -> None:
        self.found = [row for row in found if row.get("perplexity")]

    def seeds(self, item: str, label: str) -> dict[int, Made]:
        return {row["seed"]: row for row in self.found if (row["item"], row["label"]) == (item, label)}

    def alike(self, item: str, labels: Sequence[str]) -> list[list[Made]]:
        """The rows of these labels, a list for each seed that all of them have."""
        each = [self.seeds(item, label) for label in labels]
        both = sorted(set.intersection(*(set(seeds) for seeds in each)))
        if not both:
            raise Missing
        return [[seeds[seed] for seeds in each] for seed in both]

    def perplexities(self, item: str, *labels: str, name: str = "perplexity") -> list[list[float]]:
        return [[row[name] for row in rows] for rows in self.alike(item, labels)]


def findings(found: Sequence[Made]) -> Iterator[Finding]:
    rows = Rows(found)
    for check, *what in CHECKS:
        with suppress(Missing):
            yield from check(rows, *what)


def serving(found: Sequence[Made]) -> bool:
    """Whether the rows bear out the library's defaults, and what the page says of them; not without all of them."""
    rows = Rows(found)
    try:
        large = all(one > CLEARLY * entropy and many < one for entropy, one, many, _ in _large(rows))
        some = [rows.perplexities("beyond", mine, *others) for mine, others in SERVING.items()]
    except Missing:
        return False
    return large and all(statistics.mean(mine / min(others) for mine, *others in seeds) < NEAR for seeds in some)


def _said(each: Iterable[bool]) -> bool | None:
    """What all seeds say, or None."""
    votes = set(each)
    return votes.pop() if len(votes) == 1 else None


def _not_above(pairs: Iterable[tuple[float, float]]) -> bool | None:
    """Whether the first of each pair is no higher; one pair alone is undecided where chance could turn it."""
    seeds = list(pairs)
    if len(seeds) == 1 and max(seeds[0]) < CHANCE * min(seeds[0]):
        return None
    return _said(one <= other for one, other in seeds)


def _means(values: Iterable[Sequence[float]]) -> list[float]:
    return [statistics.mean(each) for each in zip(*values)]


def _percents(pairs: Iterable[Sequence[float]]) -> str:
    return " and ".join(f"{100 * (mine / other - 1):+.1f} %" for mine, other in pairs)


def _worse(rows: Rows) -> Iterator[Finding]:
    seeds = rows.perplexities("table2", *(f"{name}, K = 100" for name in ("Mode1", "NCE", "Mode2", "Mode3")))
    mine, *others = _means(seeds)
    told = f"{mine:.1f} against {min(others):.1f} to {max(others):.1f}"
    holds = _not_above((CLEARLY * max(others), mine) for mine, *others in seeds)
    yield Finding("Mode1 at K = 100 is clearly worse than the others (table 2)", told, holds, len(seeds))


def _close(rows: Rows, item: str, k: int, *names: str) -> Iterator[Finding]:
    seeds = rows.perplexities(item, *(f"{name}, K = {k}" for name in names))
    means = _means(seeds)
    told = ", ".join(f"{name} {value:.1f}" for name, value in zip(names, means))
    told += f": {100 * (max(means) / min(means) - 1):.1f} % apart"
    holds = _not_above((max(each), CLOSE * min(each)) for each in seeds)
    expected = f"{', '.join(names[:-1])} and {names[-1]} at K = {k} are close to each other (table {item[-1]})"
    yield Finding(expected, told, holds, len(seeds))


def _more(rows: Rows) -> Iterator[Finding]:
    names = ("NCE", "Mode1", "Mode2", "Mode3")
    pairs = {name: rows.perplexities("table2", *(f"{name}, K = {k}" for k in (100, 8000))) for name in names}
    told = ", ".join("{} {:.1f} to {:.1f}".format(name, *_means(seeds)) for name, seeds in pairs.items())
    better = {_said(many < few for few, many in seeds) for seeds in pairs.values()}
    holds = False if False in better else None if None in better else True
    yield Finding("More samples are better: from K = 100 to 8000 (table 2)", told, holds, min(map(len, pairs.values())))


def _flattens(rows: Rows) -> Iterator[Finding]:
    seeds = rows.perplexities("figure1", *(f"K = {k}, G = 1" for k in (10, 300, 8000)))
    told = "K = 10, 300, 8000: {:.1f}, {:.1f}, {:.1f}".format(*_means(seeds))
    holds = _said(first - second > second - third for first, second, third in seeds)
    yield Finding("What more samples bring gets less (figure 1)", told, holds, len(seeds))


def _as_good(rows: Rows, item: str) -> Iterator[Finding]:
    seeds = rows.perplexities(item, "Mode3", "CE")
    told = "{:.2f} against {:.2f}: ".format(*_means(seeds)) + _percents(seeds)
    expected = f"Mode3 at K = 8000 within 1 % of cross entropy, or better (table {item[-1]})"
    yield Finding(expected, told, _not_above((mine, NEAR * entropy) for mine, entropy in seeds), len(seeds))


def _with_less(rows: Rows, label: str, more: str, batch: str = "") -> Iterator[Finding]:
    seeds = rows.perplexities("beyond", f"{label}{batch}", f"CE{batch}")
    expected = f"Mode3 at K = 1000 with systematic draws{more} not worse than cross entropy (beyond{batch})"
    told = "{:.2f} against {:.2f}: ".format(*_means(seeds)) + _percents(seeds)
    yield Finding(expected, told, _not_above((mine, entropy) for mine, entropy in seeds), len(seeds))


def _lowest(rows: Rows, item: str, name: str, more: str = "") -> Iterator[Finding]:
    """One lower criterion is enough for a no; a yes needs all of them."""
    there = [label for label in CRITERIA_3_4 if rows.seeds(item, label)]
    seeds = rows.perplexities(item, "CE", *there[1:], name=name)
    told = more + ", ".join(f"{label} {value:.2f}" for label, value in zip(there, _means(seeds)))
    expected = f"Cross entropy has the lowest perplexity, as in the paper (table {item[-1]})"
    holds = _not_above((entropy, min(others, default=entropy)) for entropy, *others in seeds)
    if len(there) == len(CRITERIA_3_4) or holds is False:
        yield Finding(expected, told, holds, len(seeds))


def _faster(rows: Rows, item: str) -> Iterator[Finding]:
    (rows_of_seed, *_) = rows.alike(item, ("CE", *SAMPLED))
    ours = _times_faster({row["label"]: row for row in rows_of_seed})
    paper = _times_faster(PAPER[item])
    told = f"{min(ours):.2f} to {max(ours):.2f} times as fast; in the paper {min(paper):.2f} to {max(paper):.2f}"
    yield Finding(f"Sampled criteria train faster than cross entropy (table {item[-1]})", told, min(ours) > 1)


def _times_faster(told: Mapping[str, Mapping[str, float]]) -> list[float]:
    return [told["CE"]["seconds_per_batch"] / told[label]["seconds_per_batch"] for label in SAMPLED]


def _log_z(rows: Rows) -> Iterator[Finding]:
    def enough(row: Made) -> bool:
        return row["k"] is None or row["k"] >= ENOUGH or row["groups"] > 1

    some = {row["run"]: row for row in rows.found if row["criterion"] in AS_IS and enough(row)}
    if not some:
        raise Missing
    expected = f"Criteria that need no normalization, with K of {ENOUGH} or more, groups or all words: "
    means = {run: abs(row["log_z_mean"]) for run, row in some.items()}
    good = sum(each < MEAN for each in means.values())
    told = f"{good} of {len(some)} trainings; the largest is {max(means.values()):.3f}"
    yield Finding(f"{expected}mean of log Z within ±{MEAN}", told, good == len(some))
    stds = [row["log_z_std"] for row in some.values()]
    good = sum(each < STD for each in stds)
    told = f"{good} of {len(some)} trainings; the largest is {max(stds):.3f}"
    if exact := [row["log_z_std"] for row in some.values() if row["criterion"] == "bce"]:
        told += f"; of BCE, which draws nothing, {max(exact):.3f}"
    yield Finding(f"{expected}std of log Z below {STD}", told, good == len(some))


def _not_normalized(rows: Rows) -> Iterator[Finding]:
    ((row,), *_) = rows.alike("beyond", ("sampled softmax, K = 8000",))
    told = f"mean {row['log_z_mean']:+.2f}, std {row['log_z_std']:.2f}"
    yield Finding("Sampled softmax is not normalized", told, abs(row["log_z_mean"]) > MEAN or row["log_z_std"] > STD)


def _large(rows: Rows) -> list[list[float]]:
    """Of large batches: cross entropy, K = 100 by one draw and by 16, and K = 8000 by one."""
    names = (
        "CE",
        *(f"Mode3, K = {each}" for each in ("100, systematic", "100, systematic, G = 16", "8000, systematic")),
    )
    return rows.perplexities("beyond", *(f"{name}, large batch" for name in names))


def _groups(rows: Rows) -> Iterator[Finding]:
    seeds = _large(rows)
    entropy, one, many, enough = _means(seeds)
    told = f"K = 100: {one:.1f} with one draw, {many:.1f} with 16; K = 8000: {enough:.1f} with one; CE {entropy:.1f}"
    holds = _not_above((CLEARLY * many, one) for _, one, many, _ in seeds)
    yield Finding("Large batches need groups, while K is small (beyond)", told, holds, len(seeds))


def _errors(rows: Rows, item: str) -> Iterator[Finding]:
    for name, mine, entropy in _second_passes(rows, item, "Mode3", "CE"):
        (rate, *_), (its, low, high), difference = rates(mine), rates(entropy), apart(mine, entropy)
        held = difference.low <= 0 <= difference.high if difference.paired else low <= rate <= high
        expected = f"Mode3 as it is has the WER of cross entropy normalized, within the interval ({name}, table "
        told = f"{rate:.2f} against {its:.2f} ({low:.2f} to {high:.2f}); {difference}"
        yield Finding(f"{expected}{item[-1]})", told, held, len(mine))


def _below_counts(rows: Rows) -> Iterator[Finding]:
    for name, mine, counts in _second_passes(rows, "table5", "Mode3, K = 8000", "count LM"):
        difference = apart(mine, counts)
        told = f"{rates(mine)[0]:.2f} against {rates(counts)[0]:.2f}; {difference}"
        holds = True if difference.high < 0 else False if difference.low > 0 else None
        yield Finding(f"WER of Mode3 at K = 8000 below that of the count LM ({name}, table 5)", told, holds, len(mine))


def _second_passes(rows: Rows, item: str, mine: str, other: str) -> Iterator[tuple[str, list[Made], list[Made]]]:
    """What two rows have of each set of utterances, by seeds."""
    seeds = rows.alike(item, (mine, other))
    for name in dict.fromkeys(name for row in seeds[0] for name in row.get("wer", {})):
        if all(name in row.get("wer", {}) for each in seeds for row in each):
            ours, theirs = ([each[n]["wer"][name]["all"] for each in seeds] for n in (0, 1))
            yield name, ours, theirs


SEVERAL = ", unigram noise and 8 groups"
CHECKS: tuple[tuple[Any, ...], ...] = (  # and what each is asked of
    (_worse,),
    (_close, "table2", 100, "NCE", "Mode2", "Mode3"),
    (_close, "table2", 8000, "NCE", "Mode2", "Mode3"),
    (_close, "table5", 100, "NCE", "Mode3"),
    (_close, "table5", 8000, "NCE", "Mode3"),
    (_more,),
    (_flattens,),
    (_as_good, "table3"),
    (_as_good, "table4"),
    (_lowest, "table3", "mixture_perplexity", "with 4-gram: "),
    (_lowest, "table4", "perplexity"),
    (_with_less, DRAWN, " and unigram noise"),
    (_with_less, GROUPED, SEVERAL),
    (_with_less, GROUPED, SEVERAL, ", large batch"),
    (_groups,),
    (_log_z,),
    (_not_normalized,),
    (_errors, "table3"),
    (_errors, "table4"),
    (_below_counts,),
    (_faster, "table3"),
    (_faster, "table4"),
)
