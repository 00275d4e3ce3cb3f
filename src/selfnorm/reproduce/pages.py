"""The page of all tables: what was found, what was expected, and what differs from the paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from selfnorm import report
from selfnorm.files import atomic
from selfnorm.reproduce.findings import findings, serving
from selfnorm.reproduce.measures import TIMED
from selfnorm.reproduce.paper import TITLES
from selfnorm.reproduce.plan import EN, ITEMS, LIBRI, SWB, SWEPT, Scale, rows
from selfnorm.reproduce.rows import Made
from selfnorm.reproduce.tables import by_label, tables

USED = {SWB: "tables 2 and 3 and in large batches", SWEPT: "figure 1 and beyond", LIBRI: "table 4", EN: "table 5"}
SAID = {True: "yes", False: "no", None: "even: seeds differ by more"}

WHY = """\
Why: all positions of a batch share one draw, and with it the draw's error, which only steps average out. Batches of 32
sentences make many steps: 1,000 samples are enough. Large batches make few, and need more samples, or groups with a
draw each, which cost little while K is small. A systematic draw is as good as a distinct one, without a pass over the
vocabulary. So the library draws systematically, 8,000 samples in one group unless told otherwise: that serves both.
"""
DIFFERENCES = """\
- **Text.** Switchboard (24M words), LibriSpeech (812M) and the in-house set EN (694M for the networks, 7,473M for the
  count LM) are replaced by podcasts (26M), books (83M) and both together.
- **Length of training.** The paper does not say how long it trained. Here all rows of a task see the same words, with
  the same seed and size of batch in the same order:
{passes}
- **Optimizer.** Adam with a cosine schedule and gradient clipping at 1. Sampled criteria update the rows of words that
  they touch (row-sparse Adam). Mode2 with a draw per position, CE and BCE update all rows; in table 4, of the inputs'
  rows, CE and BCE only those that they touch.
- **Utterances.** The paper rescores lattices of its own recognisers. Ours are public: lattices of pocketsphinx (166
  utterances) and lists of Moonshine tiny (261), of read English. Scales are cross-validated over utterances. So word
  error rates compare criteria with each other, not with the paper's.
- **Test text.** Perplexities are of the test text of each corpus, in table 5 of both corpora together.
- **4-gram.** Modified Kneser-Ney on the training text with the network's vocabulary; for books and for both texts
  together trigrams and 4-grams seen once are left out. It is interpolated in table 3 as in the paper, and in every
  second pass here.
- **Speed.** The paper timed a GTX 1080 Ti. s/batch and words/s are the median of {timed} runs over the training's
  first batches, with the paper's 32 or 64 sentences, on an otherwise idle machine; words/s in large batches are of
  the same training step on one full batch of {large:,} positions, again and again. A row that differs
  from a timed one in seed or length only takes its timing. Trainings that run several at a time (`--at-once`) take
  longer each: their minutes add up to more than it took.
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
        f"{run} table2 {at} --data DATA --to DIR --at-once 4    four at a time, timed alone before",
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
        DIFFERENCES.format(passes=passes or "  - a few steps", large=scale.large, timed=TIMED),
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
        yield from (f"| {each.expected} | {each.found} | {SAID[each.holds]} |" for each in told)
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
    if item == "beyond":
        yield from _best(_averaged(item, here), "Worth their time, since whatever has a lower perplexity takes longer:")
        yield from _best(_averaged(item, here, large=True), "And in large batches:")
        yield from (WHY,) if serving(here) else ()
    for row in here:
        if row.get("stopped"):
            yield from (f"{row['label']}, seed {row['seed']}: {row['stopped']}.", "")
    yield from (origin(here, len(order)), "")


def _best(tried: Sequence[Made], head: str) -> Iterator[str]:
    """What is worth its time: whatever else has a lower perplexity takes longer."""
    best: list[Made] = []
    for row in sorted(tried, key=lambda row: (_minutes(row), row["perplexity"])):
        if not best or row["perplexity"] < best[-1]["perplexity"]:
            best.append(row)
    if len(tried) > 1:
        yield from (head, "")
        yield from (f"- {row['label']}: {row['perplexity']:.2f} in {_minutes(row):.2f} minutes" for row in best)
        yield ""


def origin(here: Sequence[Made], planned: int) -> str:
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


def _averaged(item: str, found: Sequence[Made], large: bool = False) -> list[Made]:
    """The rows of an item in the paper's batches, or in large ones, each with the means over its seeds."""
    names = ("perplexity", "words_per_second")
    here = [row for row in found if row["item"] == item and ("large" in row["label"]) == large]
    some = [row for row in here if all(map(row.get, names))]
    groups = by_label(some).values()
    return [group[0] | {name: sum(row[name] for row in group) / len(group) for name in names} for group in groups]


def _minutes(row: Made) -> float:
    return row["words_seen"] / row["words_per_second"] / 60


def write(path: Path, found: Sequence[Made], scale: Scale) -> list[Path]:
    """The page and, where there are rows for them, its plots beside it."""
    swept: dict[str, list[tuple[float, float, float]]] = {}
    for row in _averaged("figure1", found):
        swept.setdefault(f"G = {row['groups']}", []).append((row["k"], row["perplexity"], row["words_per_second"]))
    tried = _averaged("beyond", found)
    whole = next(((row["perplexity"], row["words_per_second"]) for row in tried if row["criterion"] == "ce"), None)
    costs = {row["label"]: (_minutes(row), row["perplexity"]) for row in tried}
    plots = [report.plot_samples(path.with_name("reproduce"), swept, whole)] if swept else []
    plots += [report.plot_costs(path.with_name("reproduce_costs"), costs)] if costs else []
    for png, _ in plots:
        png.unlink()  # pages show the SVG
    with atomic(path) as file:
        file.write(page(found, scale).encode())
    return [path, *(svg for _, svg in plots)]
