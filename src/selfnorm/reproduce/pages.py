"""Finished rows -> tables with the paper's figures beside ours, and the page that holds them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from selfnorm import report
from selfnorm.files import atomic
from selfnorm.reproduce.findings import findings
from selfnorm.reproduce.paper import PAPER, TITLES
from selfnorm.reproduce.plan import EN, ITEMS, LIBRI, SWB, SWEPT, Scale, rows
from selfnorm.reproduce.rows import Made

Group = Sequence[Made]  # the rows of one label: one for each seed
Table = tuple[str, list[str], list[list[str]]]  # what its title adds, its head, its cells
Numbers = Mapping[str, Any]

NONE, COUNTED = "-", "4-gram"
USED = {SWB: "tables 2 and 3 and in large batches", SWEPT: "figure 1 and beyond", LIBRI: "table 4", EN: "table 5"}


@dataclass(frozen=True)
class Column:
    head: str
    cell: Callable[[Group, Numbers], str]


def tables(item: str, found: Sequence[Made]) -> Iterator[Table]:
    """The tables of an item, in the order of its rows; none where there is no row yet."""
    groups: dict[str, list[Made]] = {}
    for row in found:
        groups.setdefault(row["label"], []).append(row)
    if not groups:
        return
    parts = {"": _statistics()} if item == "table1" else {"": _perplexities(item, found), ", speed": _speed(item)}
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
        yield ", WER by subset", ["", *(f"{name}: {subset}" for name, subset in rest)], [first, *body]


def _statistics() -> Iterator[Column]:
    yield Column("ours", lambda group, _: group[0]["corpus"])
    for name, head in (("vocabulary", "vocabulary"), ("words", "running words")):
        yield _paper(name, head, 0)
        yield _ours(name, head, 0)
    yield _ours("oov", "test words not in it, %", 2, scale=100)


def _perplexities(item: str, found: Sequence[Made]) -> Iterator[Column]:
    """The paper interpolates with the 4-gram in table 3."""
    yield Column("K", lambda group, _: f"{group[0]['k']:,}" if group[0].get("k") else NONE)
    if item == "table3":
        yield _paper("mixture_perplexity", "PPL with 4-gram", 1)
        yield _ours("mixture_perplexity", "PPL with 4-gram", 2)
    elif item not in ("figure1", "beyond"):
        yield _paper("perplexity", "PPL", 1)
    yield _ours("perplexity", "PPL", 2)
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
        return _spread([None if each is None else scale * each for each in found], digits)

    return Column(f"ours: {head}", cell)


def _spread(values: Sequence[float | None], digits: int) -> str:
    """The mean over seeds and, where there are several, half their range."""
    found = [value for value in values if value is not None]
    if not found:
        return NONE
    mean = f"{sum(found) / len(found):,.{digits}f}"
    return mean if len(found) == 1 else f"{mean} ± {(max(found) - min(found)) / 2:,.{digits}f}"


def _log_z(group: Group, _: Numbers) -> str:
    found = [(row["log_z_mean"], row["log_z_std"]) for row in group if row.get("log_z_mean") is not None]
    if not found:
        return NONE
    mean, std = (sum(each) / len(found) for each in zip(*found))
    return f"{mean:+.3f}, std {std:.3f}"


def _text(name: str, group: Group, _: Numbers) -> str:
    return _spread([row.get("texts", {}).get(name, {}).get("perplexity") for row in group], 2)


def _sets(found: Sequence[Made]) -> list[tuple[str, str]]:
    """Sets and subsets of utterances."""
    return list(
        dict.fromkeys((name, subset) for row in found for name in row.get("wer", {}) for subset in row["wer"][name])
    )


def _in(row: Made, name: str, subset: str, what: str) -> Any:
    return row.get("wer", {}).get(name, {}).get(subset, {}).get(what)


def _first(found: Sequence[Made], name: str, subset: str) -> str:
    """Of the first pass, which is the same in all rows."""
    return _spread([_in(row, name, subset, "first_pass") for row in found if row.get("wer")][:1], 1)


def _wer(group: Group, name: str, subset: str) -> str:
    """The mean over seeds, and the means of the ends of their intervals."""
    ends = [end for row in group if (end := _in(row, name, subset, "interval"))]
    if not ends:
        return NONE
    low, high = (sum(each) / len(ends) for each in zip(*ends))
    return f"{_spread([_in(row, name, subset, 'wer') for row in group], 1)} ({low:.1f} to {high:.1f})"


def _paper_wer(paper: Numbers) -> str:
    return ", ".join(f"{name} {value:.1f}" for name, value in paper["wer"].items()) if "wer" in paper else NONE


DIFFERENCES = """\
- **Text.** Switchboard (24M words), LibriSpeech (812M) and the in-house set EN (694M for the networks, 7,473M for the
  count LM) are replaced by podcasts (26M), books (83M) and both together.
- **Length of training.** The paper does not say how long it trained. Here all rows of a task see the same words, with
  the same seed and size of batch in the same order:
{passes}
- **Optimizer.** Adam with a cosine schedule and gradient clipping at 1. Sampled criteria update the rows of words that
  they touch (row-sparse Adam); CE, BCE and Mode2 with a draw per position update all rows.
- **Utterances.** The paper rescores lattices of its own recognisers. Ours are public: lattices of pocketsphinx (166
  utterances) and lists of Moonshine tiny (261), of read English. Scales are cross-validated over utterances. So word
  error rates compare criteria with each other, not with the paper's.
- **Test text.** Perplexities are of the test text of each corpus, in table 5 of both corpora together.
- **4-gram.** Modified Kneser-Ney on the training text with the network's vocabulary; for books and for both texts
  together trigrams and 4-grams seen once are left out. It is interpolated in table 3 as in the paper, and in every
  second pass here.
- **Speed.** The paper timed a GTX 1080 Ti. s/batch and words/s are medians over steps of the training on an
  otherwise idle machine, with the paper's 32 or 64 sentences a batch; words/s in large batches are of the same training
  step on one full batch of {large:,} positions, again and again. Trainings that run several at a time
  (`--at-once`) take longer each: their minutes add up to more than it took.
- **Several seeds.** A figure with ± is the mean over seeds and half their range; an interval of a WER is 95 %, by
  bootstrap over utterances, its ends averaged over seeds.
- **K = C in figure 1** is trained without groups only: each group would draw every word.
"""


def page(found: Sequence[Made], scale: Scale) -> str:
    """All of it as Markdown; an item without rows says so and nothing else."""
    run, at = "selfnorm reproduce", f"--scale {scale.name}"
    lines = [
        "# The paper, redone in public",
        "",
        "This page is made from finished rows and never typed by hand.",
        "",
        "```",
        f"{run} all {at} --data DATA --to DIR --plan         what there is to do, and what is done",
        f"{run} all {at} --data DATA --to DIR --minutes 9    what is done is skipped, what was begun goes on",
        f"{run} table2 {at} --data DATA --to DIR --only mode3/k8000",
        f"{run} table2 {at} --data DATA --to DIR --at-once 4    four at a time, timed alone at the end",
        f"{run} all --scale tiny --to DIR                         the same machinery on built-in text, on a CPU",
        f"{run} all {at} --to benchmarks/results/reproduce --page docs/reproduce.md    this page",
        "```",
        "",
        "DATA holds `podcasts`, `books`, `librispeech` and `asr`. Finished rows are in `DIR/rows.jsonl`, a line for",
        "each; those of several machines are joined by `cat`. Trainings that share a GPU run side by side only under",
        "NVIDIA's MPS (`nvidia-cuda-mps-control -d`); without it they take turns.",
        "",
    ]
    for item in ITEMS:
        lines += [f"## {TITLES[item]}", "", *_section(item, found, scale)]
    lines += _expected(found)
    passes = "\n".join(
        f"  - {task.training['epochs']:g} times {task.corpus} in {USED[name]}"
        for name, task in scale.tasks.items()
        if "epochs" in task.training
    )
    lines += [
        "## What differs from the paper",
        "",
        DIFFERENCES.format(passes=passes or "  - a few steps", large=scale.large),
    ]
    return "\n".join(lines)


def _expected(found: Sequence[Made]) -> Iterator[str]:
    """What was expected of the rows; nothing, while none is there that anything was expected of."""
    if told := list(findings(found)):
        yield from (
            "## What was expected, and what was found",
            "",
            "| expected | found | so it is |",
            "| --- | --- | --- |",
        )
        yield from (f"| {each.expected} | {each.found} | {'yes' if each.holds else 'no'} |" for each in told)
        yield ""


def _section(item: str, found: Sequence[Made], scale: Scale) -> Iterator[str]:
    order = {row.key: number for number, row in enumerate(rows(item, scale))}
    here = sorted((row for row in found if row["key"] in order), key=lambda row: order[row["key"]])
    if not here:
        yield from ("Not run yet.", "")
        return
    if item == "figure1":
        yield from ("![Perplexity and words in a second against K, with one group and with eight](reproduce.svg)", "")
    if item == "beyond":
        yield from ("![Perplexity of each way to train, and the minutes it takes](reproduce_costs.svg)", "")
    for title, head, body in tables(item, here):
        if title:
            yield from (f"{title.removeprefix(', ')}:", "")
        yield "| " + " | ".join(head) + " |"
        yield "|" + "|".join(" ---: " if number else " --- " for number in range(len(head))) + "|"
        yield from ("| " + " | ".join(cells) + " |" for cells in body)
        yield ""
    for row in here:
        if row.get("stopped"):
            yield from (f"{row['label']}, seed {row['seed']}: {row['stopped']}.", "")
    yield from (_origin(here, len(order)), "")


def _origin(here: Sequence[Made], planned: int) -> str:
    """Where the figures come from: machine, date, words, time."""
    places = sorted({f"{row['machine']}, torch {row['torch']}" for row in here if "machine" in row})
    dates = sorted({row["date"] for row in here})
    seen = sorted({row["words_seen"] for row in here if row.get("words_seen")})
    sentence = f"{len(here)} of {planned} rows, made on {' and '.join(places)}, {dates[0]}"
    sentence += f" to {dates[-1]}" if len(dates) > 1 else ""
    if seen:
        minutes = (
            sum({row["run"]: row["training_seconds"] for row in here if row.get("training_seconds")}.values()) / 60
        )
        words = f"{seen[0]:,}" if len(seen) == 1 else f"{seen[0]:,} to {seen[-1]:,}"
        sentence += f"; each training saw {words} words, and all of them took {minutes:,.1f} minutes"
    return f"{sentence}."


def write(path: Path, found: Sequence[Made], scale: Scale) -> list[Path]:
    """The page and, where there are rows for them, its plots beside it."""
    swept: dict[str, list[tuple[float, float, float]]] = {}
    costs: dict[str, tuple[float, float]] = {}
    whole: tuple[float, float] | None = None
    for row in (row for row in found if row.get("perplexity") and row.get("words_per_second")):
        if row["item"] == "figure1":
            one = (row["k"], row["perplexity"], row["words_per_second"])
            swept.setdefault(f"G = {row['groups']}", []).append(one)
        elif row["item"] == "beyond" and "large" not in row["label"]:
            costs[row["label"]] = (row["words_seen"] / row["words_per_second"] / 60, row["perplexity"])
            if row["criterion"] == "ce":
                whole = (row["perplexity"], row["words_per_second"])
    plots = [report.plot_samples(path.with_name("reproduce"), swept, whole)] if swept else []
    plots += [report.plot_costs(path.with_name("reproduce_costs"), costs)] if costs else []
    for png, _ in plots:
        png.unlink()  # pages show the SVG
    with atomic(path) as file:
        file.write(page(found, scale).encode())
    return [path, *(svg for _, svg in plots)]
