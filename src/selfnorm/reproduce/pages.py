"""The page of all tables: what was found, what was expected, and what differs from the paper."""

import math
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from selfnorm import report
from selfnorm.files import write_whole
from selfnorm.reproduce.compared import SPEED, CrossEntropy, seeds, timed_again
from selfnorm.reproduce.findings import findings, serving
from selfnorm.reproduce.paper import TITLES
from selfnorm.reproduce.plan import EN, ITEMS, LIBRI, SWB, SWEPT, Scale, rows
from selfnorm.reproduce.prose import BEST, CHECKED, DIFFERENCES, INTRO, READING, RULES, TEXTS, WHY
from selfnorm.reproduce.rows import Made
from selfnorm.reproduce.tables import by_label, tables
from selfnorm.training.speed import TIMED

Costs = dict[str, tuple[float, list[float]]]  # of each label: minutes, and per cent of perplexity by seeds

USED = {SWB: "tables 2 and 3 and in large batches", SWEPT: "figure 1 and beyond", LIBRI: "table 4", EN: "table 5"}
SAID = {True: "yes", False: "no", None: "undecided"}
SOME = 12  # missing rows that are named
FIRST = 1  # the seed that all rows have


def page(found: Sequence[Made], scale: Scale) -> str:
    """All of it as Markdown; an item without rows says so and nothing else."""
    passes = "\n".join(
        f"  - {task.training['epochs']:g} times {task.corpus} in {USED[name]}"
        for name, task in scale.tasks.items()
        if "epochs" in task.training
    )
    reading = READING.format(large=scale.large, timed=TIMED)
    lines = [
        "# The paper, redone in public",
        "",
        f"{INTRO}{textwrap.fill(_state(found, scale), 120)}",
        *(("", CHECKED) if scale.shrink > 1 else ()),
        "",
        *_expected(found),
        *("## How to read the tables", "", "".join([reading, *_chance(found)])),
    ]
    for item in ITEMS:
        lines += [f"## {TITLES[item]}", "", *_section(item, found, scale)]
    lines += ["## What differs from the paper", "", DIFFERENCES.format(passes=passes or "  - a few steps")]
    return "\n".join([*lines, *_again_by(f"--scale {scale.name}")])


def _state(found: Sequence[Made], scale: Scale) -> str:
    """How many rows there are, and which are not."""
    planned, there = rows("all", scale), {row["key"] for row in found}
    missing: dict[str, list[str]] = {}
    for row in planned:
        if row.key not in there:
            name = row.item.replace("table", "table ").replace("figure", "figure ")
            missing.setdefault(name, []).append(row.label if row.seed == FIRST else f"{row.label} (seed {row.seed})")
    number = sum(map(len, missing.values()))
    hours = _seconds(found) / 3600
    told = f"{len(planned) - number} of {len(planned)} rows are there, after {hours:.1f} hours of training"
    if not 0 < number <= SOME:
        return f"{told}."
    return f"{told}; not yet: " + "; ".join(f"{name}: {', '.join(each)}" for name, each in missing.items()) + "."


def _chance(found: Sequence[Made]) -> Iterator[str]:
    """What another seed changes, and another timing."""
    told, against = [], []
    for task, changes, distances in seeds(found):
        told.append(f"by {min(changes):+.1f} to {max(changes):+.1f} % in {USED[task]} ({len(changes)} rows)")
        against.append(f"{max(map(abs, distances), default=0.0):.1f}")
    sentences = []
    if told:
        sentences = [
            f"The same row with seed 2 differs from that with seed 1 {' and '.join(told)}.",
            "A seed that sees a part of the text sees a part of its own.",
            f"PPL against CE differs by up to {' and '.join(against)} between seeds;",
            "of rows with one seed each, smaller differences decide nothing.",
        ]
    if apart := timed_again(found):
        sentences.append(f"A step that was timed again differed by up to {apart:.0f} %.")
    if sentences:
        yield textwrap.fill(f"- **Chance.** {' '.join(sentences)}", 120, subsequent_indent="  ") + "\n"


def _again_by(at: str) -> Iterator[str]:
    run = "selfnorm reproduce"
    yield from (
        "## How to make it again",
        "",
        "```",
        f"{run} all {at} --data DATA --to DIR --plan         what there is to do, and what is done",
        f"{run} all {at} --data DATA --to DIR --minutes 9    what is done is skipped, what was begun goes on",
        f"{run} table2 {at} --data DATA --to DIR --only mode3/k8000",
        f"{run} table2 {at} --data DATA --to DIR --at-once 4    four at a time, timed alone before",
        f"{run} all --scale tiny --to DIR                         the same machinery on built-in text, on a CPU",
        f"{run} all {at} --to benchmarks/results/reproduce --page docs/reproduce.md    this page",
        "```",
        "",
        TEXTS,
    )


def _expected(found: Sequence[Made]) -> Iterator[str]:
    """What was expected of the rows; nothing, while none is there that anything was expected of."""
    if told := list(findings(found)):
        number = Counter(SAID[each.holds] for each in told)
        yield from (
            "## What was expected, and what was found",
            "",
            f"{len(told)} expectations: " + ", ".join(f"{number[each]} {each}" for each in SAID.values()) + ".",
            "",
            "| expected | found | seeds | so it is |",
            "| --- | --- | ---: | --- |",
        )
        for each in told:
            yield f"| {each.expected} | {each.found} | {each.seeds or '-'} | {SAID[each.holds]} |"
        yield from ("", RULES)


def _section(item: str, found: Sequence[Made], scale: Scale) -> Iterator[str]:
    order = {row.key: number for number, row in enumerate(rows(item, scale))}
    here = sorted((row for row in found if row["key"] in order), key=lambda row: order[row["key"]])
    if not here:
        yield from ("Not run yet.", "")
        return
    if item == "figure1":
        yield from ("![Perplexity and words in a second against K, with one group and with eight](reproduce.svg)", "")
    costs = _costs(here) if item == "beyond" else {}
    if costs:
        yield from ("![Perplexity of each way to train, and the minutes it takes](reproduce_costs.svg)", "")
    for title, head, body in tables(item, here, found):
        if title:
            yield from (f"{title.removeprefix(', ')}:", "")
        yield "| " + " | ".join(head) + " |"
        yield "|" + "|".join(" ---: " if number else " --- " for number in range(len(head))) + "|"
        yield from ("| " + " | ".join(cells) + " |" for cells in body)
        yield ""
    if item == "beyond":
        yield from _best(costs, BEST)
        yield from _best(_costs(here, large=True), "And in large batches:")
        yield from (WHY,) if serving(here) else ()
    for row in here:
        if row.get("stopped"):
            yield from (f"{row['label']}, seed {row['seed']}: {row['stopped']}.", "")
    yield from (origin(here, len(order)), "")


def _best(costs: Costs, head: str) -> Iterator[str]:
    """What is worth its time: whatever else has a lower perplexity takes longer."""
    best: dict[str, float] = {}
    for label, (_, percents) in sorted(costs.items(), key=lambda each: each[1]):
        mean = statistics.mean(percents)
        if mean < min(best.values(), default=math.inf):
            best[label] = mean
    if len(costs) > 1:
        yield from (head, "")
        yield from (f"- {label}: {mean:+z.1f} % in {costs[label][0]:.2f} minutes" for label, mean in best.items())
        yield ""


def origin(here: Sequence[Made], planned: int) -> str:
    """Where the figures come from: text, machine, date, words, time."""
    places = sorted({f"{row['machine']}, torch {row['torch']}" for row in here if "machine" in row})
    dates = sorted({row["date"] for row in here})
    seen = sorted({row["words_seen"] for row in here if row.get("words_seen")})
    corpora = {row["corpus"] for row in here}
    text = f", trained on {corpora.pop()}" if len(corpora) == 1 else ""
    sentence = f"{len(here)} of {planned} rows{text}, made on {' and '.join(places)}, {dates[0]}"
    sentence += f" to {dates[-1]}" if len(dates) > 1 else ""
    if seen:
        minutes = _seconds(here) / 60
        words = f"{seen[0]:,}" if len(seen) == 1 else f"{seen[0]:,} to {seen[-1]:,}"
        sentence += f"; each training saw {words} words, sentence ends among them; all took {minutes:,.1f} minutes"
    if tested := sorted({row["test_words"] for row in here if row.get("test_words")}):
        sentence += f"; the test text has {' and '.join(f'{each:,}' for each in tested)} words"
    return f"{sentence}."


def _seconds(found: Sequence[Made]) -> float:
    """Of all trainings; one that several rows share counts once."""
    return sum({row["run"]: row["training_seconds"] for row in found if row.get("training_seconds")}.values())


def _costs(found: Sequence[Made], large: bool = False) -> Costs:
    """Of all ways to train in the paper's batches, or in large ones: minutes, and perplexities against CE by seeds."""
    entropy, costs = CrossEntropy(found), Costs()
    for label, group in by_label([row for row in found if ("large" in row["label"]) == large]).items():
        percents = [0.0 if row["criterion"] == "ce" else entropy.percent(row) for row in group]
        told = [each for each in percents if each is not None]
        if told and group[0].get(SPEED):
            costs[label] = group[0]["words_seen"] / group[0][SPEED] / 60, told
    return costs


def write(path: Path, found: Sequence[Made], scale: Scale) -> list[Path]:
    """The page and, where there are rows for them, its plots beside it."""
    swept: dict[str, list[tuple[float, float, float]]] = {}
    first = [row for row in found if row["seed"] == FIRST and row.get("perplexity") and row.get(SPEED)]
    for row in (row for row in first if row["item"] == "figure1"):
        swept.setdefault(f"G = {row['groups']}", []).append((row["k"], row["perplexity"], row[SPEED]))
    tried = [row for row in found if row["item"] == "beyond"]
    whole = next(
        ((row["perplexity"], row[SPEED]) for row in first if (row["item"], row["label"]) == ("beyond", "CE")), None
    )
    costs = _costs(tried)
    plots = [report.plot_samples(path.with_name("reproduce"), swept, whole)] if swept else []
    plots += [report.plot_costs(path.with_name("reproduce_costs"), costs)] if costs else []
    for png, _ in plots:
        png.unlink()  # pages show the SVG
    write_whole(path, page(found, scale).encode())
    return [path, *(svg for _, svg in plots)]
