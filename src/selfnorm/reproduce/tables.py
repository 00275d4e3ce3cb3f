"""Finished rows -> tables with the paper's figures beside ours."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from selfnorm.reproduce.compared import CrossEntropy
from selfnorm.reproduce.paper import PAPER
from selfnorm.reproduce.rows import Made

Group = Sequence[Made]  # the rows of one label: one for each seed
Table = tuple[str, list[str], list[list[str]]]  # what its title adds, its head, its cells
Numbers = Mapping[str, Any]

NONE, COUNTED = "-", "4-gram"


@dataclass(frozen=True)
class Column:
    head: str
    cell: Callable[[Group, Numbers], str]


def by_label(found: Sequence[Made]) -> dict[str, list[Made]]:
    groups: dict[str, list[Made]] = {}
    for row in found:
        groups.setdefault(row["label"], []).append(row)
    return groups


def tables(item: str, found: Sequence[Made], every: Sequence[Made] = ()) -> Iterator[Table]:
    """The tables of an item, in the order of its rows; none where there is no row yet.

    `every` row there is, of other items too, may be what these are compared with.
    """
    groups = by_label(found)
    if not groups:
        return
    parts = (
        {"": _statistics()}
        if item == "table1"
        else {"": _perplexities(item, found, every or found), ", speed": _speed(item)}
    )
    for title, columns in parts.items():
        some = [Column("", lambda group, _: group[0]["label"]), *columns]
        here = {label: group for label, group in groups.items() if title != ", speed" or group[0]["model"] != COUNTED}
        body = [[column.cell(group, PAPER[item].get(label, {})) for column in some] for label, group in here.items()]
        if body:
            yield title, [column.head for column in some], body
    whole = [(name, subset) for name, subset in _sets(found) if subset == "all"]
    rest = [(name, subset) for name, subset in _sets(found) if subset != "all"]
    if whole:
        told = {label: _paper_wer(PAPER[item].get(label, {})) for label in groups}
        head = ["", "paper", *(f"ours: {name}" for name, _ in whole)]
        first = ["first pass", NONE, *(_first(found, *each) for each in whole)]
        body = [[label, told[label], *(_wer(group, *each) for each in whole)] for label, group in groups.items()]
        yield ", WER", head, [first, *body]
        first = ["first pass", *(_first(found, *each) for each in rest)]
        body = [[label, *(_wer(group, *each) for each in rest)] for label, group in groups.items()]
        yield ", WER by subset", ["", *(_titled(found, *each) for each in rest)], [first, *body]


def _statistics() -> Iterator[Column]:
    yield Column("ours", lambda group, _: group[0]["corpus"])
    for name, head in (("vocabulary", "vocabulary"), ("words", "running words")):
        yield _paper(name, head, 0)
        yield _ours(name, head, 0)
    yield _ours("oov", "test words not in it, %", 2, scale=100)


def _perplexities(item: str, found: Sequence[Made], every: Sequence[Made]) -> Iterator[Column]:
    """The paper interpolates with the 4-gram in table 3."""
    entropy = CrossEntropy(every)
    yield Column("K", lambda group, _: f"{group[0]['k']:,}" if group[0].get("k") else NONE)
    if item == "table3":
        yield _paper("mixture_perplexity", "PPL with 4-gram", 1)
        yield _ours("mixture_perplexity", "PPL with 4-gram", 2)
    elif item not in ("figure1", "beyond"):
        yield _paper("perplexity", "PPL", 1)
    yield _ours("perplexity", "PPL", 2)
    if any(entropy.percent(row) is not None for row in found):
        yield Column("ours: PPL against CE, %", lambda group, _: spread(list(map(entropy.percent, group)), 1, "+z"))
    if item in ("table4", "table5"):
        yield _ours("mixture_perplexity", "PPL with 4-gram", 2)
    for name in dict.fromkeys(name for row in found for name in row.get("texts", {})):
        yield Column(f"ours: PPL {name}", partial(_text, name))
    yield _ours("perplexity_as_is", "PPL as is", 2)
    yield Column("ours: log Z", _log_z)


def _speed(item: str) -> Iterator[Column]:
    yield Column("batch", lambda group, _: group[0]["batch"])
    if item in ("table3", "table4", "table5"):
        yield _paper("seconds_per_batch", "s/batch", 3)
    yield _ours("seconds_per_batch", "s/batch", 4)
    yield _ours("words_per_second", "words/s", 0)
    yield _ours("words_per_second_large", "words/s, large batch", 0)


def _paper(name: str, head: str, digits: int) -> Column:
    return Column(f"paper: {head}", lambda _, paper: f"{paper[name]:,.{digits}f}" if name in paper else NONE)


def _ours(name: str, head: str, digits: int, scale: float = 1.0) -> Column:
    def cell(group: Group, _: Numbers) -> str:
        found = [row.get(name) for row in group]
        if all(row.get("stopped") for row in group):
            return "stopped"
        return spread([None if each is None else scale * each for each in found], digits)

    return Column(f"ours: {head}", cell)


def spread(values: Sequence[float | None], digits: int, sign: str = "") -> str:
    """The mean over seeds and, where they differ, half their range."""
    found = [value for value in values if value is not None]
    if not found:
        return NONE
    mean = f"{sum(found) / len(found):{sign},.{digits}f}"
    return mean if len(set(found)) == 1 else f"{mean} ± {(max(found) - min(found)) / 2:,.{digits}f}"


def _log_z(group: Group, _: Numbers) -> str:
    found = [(row["log_z_mean"], row["log_z_std"]) for row in group if row.get("log_z_mean") is not None]
    if not found:
        return NONE
    mean, std = (sum(each) / len(found) for each in zip(*found))
    return f"{mean:+.3f}, std {std:.3f}"


def _text(name: str, group: Group, _: Numbers) -> str:
    return spread([row.get("texts", {}).get(name, {}).get("perplexity") for row in group], 2)


def _sets(found: Sequence[Made]) -> list[tuple[str, str]]:
    """Sets and subsets of utterances."""
    return list(
        dict.fromkeys((name, subset) for row in found for name in row.get("wer", {}) for subset in row["wer"][name])
    )


def _in(row: Made, name: str, subset: str, what: str) -> Any:
    return row.get("wer", {}).get(name, {}).get(subset, {}).get(what)


def _titled(found: Sequence[Made], name: str, subset: str) -> str:
    """A subset with the number of its utterances."""
    number = next((number for row in found if (number := _in(row, name, subset, "utterances"))), None)
    return f"{name}: {subset}" + (f" ({number})" if number else "")


def _first(found: Sequence[Made], name: str, subset: str) -> str:
    """Of the first pass, which is the same in all rows."""
    return spread([_in(row, name, subset, "first_pass") for row in found if row.get("wer")][:1], 1)


def _wer(group: Group, name: str, subset: str) -> str:
    """The mean over seeds, and the means of the ends of their intervals."""
    ends = [end for row in group if (end := _in(row, name, subset, "interval"))]
    if not ends:
        return NONE
    low, high = (sum(each) / len(ends) for each in zip(*ends))
    return f"{spread([_in(row, name, subset, 'wer') for row in group], 1)} ({low:.1f} to {high:.1f})"


def _paper_wer(paper: Numbers) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in paper["wer"].items()) if "wer" in paper else NONE
