"""The page of all tables: what was found, what was expected, and what differs from the paper."""

import math
import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from selfnorm import report
from selfnorm.files import atomic
from selfnorm.reproduce.compared import SPEED, CrossEntropy, seeds, timed_again
from selfnorm.reproduce.findings import CHANCE, CLEARLY, CLOSE, findings, serving
from selfnorm.reproduce.measures import TIMED
from selfnorm.reproduce.paper import TITLES
from selfnorm.reproduce.plan import EN, ITEMS, LIBRI, SWB, SWEPT, Scale, rows
from selfnorm.reproduce.rows import Made
from selfnorm.reproduce.tables import by_label, tables

Costs = dict[str, tuple[float, list[float]]]  # of each label: minutes, and per cent of perplexity by seeds

USED = {SWB: "tables 2 and 3 and in large batches", SWEPT: "figure 1 and beyond", LIBRI: "table 4", EN: "table 5"}
SAID = {True: "yes", False: "no", None: "undecided"}
SOME = 12  # missing rows that are named
FIRST = 1  # the seed that all rows have

RULES = f"""\
Clearly worse is by {100 * (CLEARLY - 1):.0f} %, close is within {100 * (CLOSE - 1):.0f} % of the perplexity.
Perplexities are compared seed by seed: yes and no are what all seeds say (two agree every other time by chance),
undecided is where they disagree, or where one is alone and what it compares lies within {100 * (CHANCE - 1):.1f} %.
That a WER lies within the interval says that no difference was found, not that there is none: the interval of the
difference says how large it may be. It is paired where both rows hold the errors of each utterance, and else as wide as
if the utterances were different ones; undecided is where it holds both.
"""
WHY = """\
Why: all positions of a batch share one draw, and with it the draw's error, which only steps average out. Batches of 32
sentences make many steps: 1,000 samples are enough. Large batches make few, and need more samples, or groups with a
draw each, which cost little while K is small. A systematic draw is as good as a distinct one, without a pass over the
vocabulary. So the library draws systematically, 8,000 samples in one group unless told otherwise: that serves both.
"""
READING = """\
- **PPL** is the perplexity of test text, normalized over the whole vocabulary; **PPL as is** takes scores as they are.
  Where log Z is above 0 they add up to more than 1, and PPL as is comes out too low: compare it with PPL of the same
  row only. log Z of CE and sampled softmax is that of their raw logits.
- **PPL against CE** compares trainings of the same task, size of batch and seed, which saw the same words in the same
  order.
- **±** stands after the mean over seeds, and is half their range: with two seeds, the standard error of that mean. A
  figure without it is of seed 1 alone, or the same for both. So do not compare means of one and of two seeds; compare
  them against CE.
- **An interval of a WER** is 95 %, by bootstrap over utterances, its ends averaged over seeds. It is that of one
  system, on these speakers, with the scales that were chosen: `fraser` and `ljspeech` are one speaker each, `libri` is
  5 utterances, and 134 utterances of `fraser` are in both sets. `so762-test` has 55 speakers; had these been drawn
  instead of utterances, its interval would be wider.
- **s/batch and words/s** are the median of {timed} runs over the training's first batches, with the paper's 32 or 64
  sentences, on an otherwise idle machine; words/s in large batches are of the same training step on one full batch of
  {large:,} positions, again and again. A row that differs from a timed one in seed or length only takes its timing.
- **Time that trainings took** is added up: those that ran several at a time (`--at-once`) took longer each, and less
  than that in all.
"""
DIFFERENCES = """\
- **Text.** Switchboard (24M words), LibriSpeech (812M) and the in-house set EN (694M for the networks, 7,473M for the
  count LM) are replaced by podcasts (26M), books (83M) and both together.
- **Length of training.** The paper does not say how long it trained. Here all rows of a task see the same words, with
  the same seed and size of batch in the same order:
{passes}
- **Optimizer.** Adam with a cosine schedule and gradient clipping at 1. Sampled criteria update the rows of words that
  they touch (row-sparse Adam). Mode2 with a draw per position, CE and BCE update all rows; in table 4, of the inputs'
  rows, CE and BCE only those that they touch. On PTB the two ways end within 0.3 % ([speed.md](speed.md)).
- **Learning rates** are one for all criteria of a task, chosen on development text in short trainings: for the LSTM
  with CE, which had 1 % less at twice the rate; for the Transformer with Mode3, on podcasts. Large batches have the
  rate of small ones. So a criterion might do better with its own. Such choices move the order of criteria: with Adam's
  beta2 at 0.99 instead of 0.999 CE was 7 % behind NCE ([log.md](log.md)).
- **Utterances.** The paper rescores lattices of its own recognisers. Ours are public: lattices of pocketsphinx (166
  utterances) and lists of Moonshine tiny (261), of read English. Scales, weights and penalties are cross-validated over
  utterances; how they are tuned was settled with these utterances in sight ([rescoring.md](rescoring.md)). So word
  error rates compare criteria with each other, not with the paper's.
- **Test text.** Perplexities are of the test text of each corpus, in table 5 of both corpora together.
- **4-gram.** Modified Kneser-Ney on the training text; n-grams with words outside the network's vocabulary are left
  out, as `lmplz` does, so that it thinks little of `<unk>`, which the networks learn; for books and for both texts
  together trigrams and 4-grams seen once are left out, too. It is interpolated in table 3 as in the paper, with a
  weight fitted to development text, and in every second pass here.
- **Speed.** The paper timed a GTX 1080 Ti.
- **K = C in figure 1** is trained without groups only: each group would draw every word.
"""


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
        f"This page is made from finished rows and never typed by hand. {_state(found, scale)}",
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
    hours = sum({row["run"]: row["training_seconds"] for row in found if row.get("training_seconds")}.values()) / 3600
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
        "DATA holds `podcasts`, `books`, `librispeech` and `asr`. Finished rows are in `DIR/rows.jsonl`, a line for",
        "each; those of several machines are joined by `cat`. Trainings that share a GPU run side by side only under",
        "NVIDIA's MPS (`nvidia-cuda-mps-control -d`); without it they take turns.",
        "",
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
        yield from ("", textwrap.fill(RULES, 120), "")


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
        yield from _best(costs, "Worth their time, since whatever has a lower perplexity takes longer (against CE):")
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
    if tested := sorted({row["test_words"] for row in here if row.get("test_words")}):
        sentence += f"; the test text has {' and '.join(f'{each:,}' for each in tested)} words"
    return f"{sentence}."


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
    with atomic(path) as file:
        file.write(page(found, scale).encode())
    return [path, *(svg for _, svg in plots)]
