"""The tables of README and docs, made from benchmarks/results/*.csv and never typed by hand.

    python benchmarks/tables.py           rewrite them in place
    python benchmarks/tables.py --check   only say whether they are up to date

A table stands between `<!-- table: NAME -->` and `<!-- end -->`.
"""

import csv
import json
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from selfnorm.reproduce import plan
from selfnorm.reproduce import rows as kept
from selfnorm.reproduce.pages import origin
from selfnorm.reproduce.tables import tables

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, str]


def rows(name: str) -> list[Row]:
    path = ROOT / "benchmarks" / "results" / f"{name}.csv"
    return list(csv.DictReader(path.open())) if path.exists() else []


def latest(found: list[Row], *keys: str) -> list[Row]:
    """Of the rows that agree in `keys`, the one measured last."""
    return list({tuple(row[key] for key in keys): row for row in found}.values())


def grid(head: Sequence[str], lines: Iterable[Sequence[str]], left: Collection[int] = (0,)) -> str:
    """A table whose columns are numbers, but for those at `left`."""
    rule = "|" + "|".join(" --- " if place in left else " ---: " for place in range(len(head))) + "|"
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines), ""])


def measured(found: Iterable[dict[str, Any]]) -> str:
    """Where and when, below a table."""
    keys = {"machine": "", "torch": "torch ", "date": ""}
    origin = sorted({", ".join(f"{word}{row[key]}" for key, word in keys.items() if key in row) for row in found})
    return "\n".join(["", *(f"Measured on {each}." for each in origin), ""])


def markdown(columns: dict[str, str], found: list[Row]) -> str:
    left = [place for place, key in enumerate(columns) if key in LEFT]
    lines = [[shown(key, row[key]) for key in columns] for row in found]
    return grid(list(columns.values()), lines, left) + measured(found)


LEFT = {"by", "body", "pass", "way", "what", "shape", "criterion", "noise", "impl", "gradients", "sampler"}
DIGITS = {
    "valid_perplexity": 1,
    "test_perplexity": 1,
    "test_perplexity_as_is": 1,
    "test_log_z_mean": 3,
    "test_log_z_std": 3,
}


def shown(key: str, value: str) -> str:
    if value == "":
        return "-"
    if key in LEFT:
        return f"`{value}`" if key in ("criterion", "noise", "sampler") else value
    number = float(value)
    if key in DIGITS:
        return f"{number:+.{DIGITS[key]}f}" if key == "test_log_z_mean" else f"{number:.{DIGITS[key]}f}"
    return f"{number:,.0f}" if number == int(number) else f"{number:,g}"


def trainings(corpus: str, speed: bool) -> str:
    found = [row for row in rows("training") if row["recipe"].startswith(f"{corpus}/")]
    # another text: docs/rescoring.md; another optimizer: docs/speed.md
    found = [row for row in found if not re.search("200k|adam", row["recipe"])]
    found = latest([row for row in found if int(row["words_seen"]) > 10_000_000], "recipe", "seed")
    found.sort(key=lambda row: row["recipe"])
    columns = {"criterion": "criterion", "k": "K", "noise": "noise"}
    columns |= {"words_per_second": "words/s"} if speed else {}
    columns |= {"valid_perplexity": "development perplexity", "test_perplexity": "test perplexity"}
    columns |= {
        "test_perplexity_as_is": "test, scores as they are",
        "test_log_z_mean": "log Z mean",
        "test_log_z_std": "log Z std",
    }
    return markdown(columns, found)


def paper() -> str:
    """What README shows of table 3."""
    planned = [row.key for row in plan.rows("table3", plan.SCALES["small"])]
    made = {row["key"]: row for row in kept.read(ROOT / "benchmarks" / "results" / "reproduce")[0]}
    found = [made[key] for key in planned if key in made]
    cells: dict[str, dict[str, str]] = {}
    for _, head, body in reversed(list(tables("table3", found))):  # the first pass, in the last, comes first
        for label, *line in body:
            cells.setdefault(label, {}).update(zip(head[1:], line))
    names = ("words/s", "PPL", "PPL with 4-gram", "PPL as is", "log Z")
    heads = {"K": "K"} | {f"ours: {name}": name for name in names}
    heads |= {f"ours: {name}": f"WER {name}" for name in ("ps-lattices", "moonshine-nbest")}
    lines = [[label, *(line.get(head, "-") for head in heads)] for label, line in cells.items()]
    return grid(["", *heads.values()], lines) + f"\n{origin(found, len(planned))}\n"


def output_layer() -> str:
    found = latest(rows("output_layer_cpu"), "C", "impl", "gradients", "k")
    columns = {"C": "C", "impl": "loss", "gradients": "gradients", "k": "words summed over", "ms": "ms"}
    return markdown({**columns, "limit_ms": "limit, ms", "times_faster": "times faster"}, found)


def samplers() -> str:
    found = [row for row in rows("sampler") if row["noise"] == "log_uniform" and row["k"] == "8000"]
    return markdown({"sampler": "sampler", "C": "C", "k": "K", "ms": "ms"}, latest(found, "machine", "C", "sampler"))


FAULTS = {
    "R1": "kill -9 at a random moment of a training, then on to the end",
    "R2": "kill -9 inside a write, at each of its stages",
    "R3": "SIGTERM, SIGINT, SIGUSR1",
    "R4": "a full disk (file size limit)",
    "R5": "a flipped bit, a cut, a zeroed page in a file of run or data",
    "R6": "the same in a file that has no checksum",
    "R7": "a test of a lattice or list parser with 20,000 files, made up or damaged",
    "R7 others": "one of the other parsers with 20,000 damaged files",
    "R9": "a file that asks for time or memory without end",
    "R10": "a file that would run a command or leave its folder",
    "R11": "a number that goes wrong",
    "R12": "files that do not belong together",
    "R13": "SIGKILL or SIGSTOP to one of two ranks, started again to the end",
    "R13 matrix": "a criterion on 2 or 4 ranks beside one process, 100 steps",
    "R15": "a stop at a step and a resume, every step of 50 in turn",
    "R17": "our numbers beside another program's",
}
LISTED = {"R7", "R7 others", "R9", "R10", "R11", "R12", "R13 matrix"}  # no chance in them: no rate to bound


def reliable() -> list[dict]:
    return json.loads((ROOT / "benchmarks" / "results" / "reliability.json").read_text())


def bound(row: dict) -> str:
    """Trials without a failure bound the rate of failures: below 3 / N with 95 % confidence."""
    if row["failures"]:
        return "see [what failed](#what-failed)"
    if row["id"] in LISTED:
        return "all of a list" if row["N"] >= row["asked"] else "part of a list"
    return f"below {100 * 3 / row['N']:.2g} %"


def reliability() -> str:
    head = ["fault", "trials", "asked for", "failures", "failure rate, 95 %", "seeds", "minutes"]
    lines = []
    for row in reliable():
        cells = [f"{row['id']}: {FAULTS[row['id']]}", f"{row['N']:,}", f"{row['asked']:,}", f"{row['failures']}"]
        lines.append([*cells, bound(row), ", ".join(map(str, row["seeds"])), f"{row['minutes']:g}"])
    return grid(head, lines) + measured(reliable())


def kinds_of_trials() -> str:
    some = (row for row in reliable() if len(row["kinds"]) > 1)
    lines = [[row["id"], ", ".join(f"{kind} {number:,}" for kind, number in row["kinds"].items())] for row in some]
    return grid(["item", "trials of each kind"], lines, left=(0, 1))


def failed_trials() -> str:
    lines = []
    for row in reliable():
        for each in row["failed"]:
            what = "; ".join(each["faults"]).replace("|", "/")[:200]
            case = each["case"] or each.get("input", each["kind"])
            lines.append([row["id"], f"{each['seed']}", f"{each['trial']}", case, what])
    return grid(["item", "seed", "trial", "case", "what went wrong"], lines, (0, 3, 4)) if lines else "None.\n"


def prepares() -> str:
    names = {"prepare": "`prepare`: counting and encoding", "polars": "polars, counting"}
    names["counter"] = "Counter, 2 processes"
    found = [
        {**row, "way": names[row["way"]], "machine": f"{row['cpu']}, {row['cores']} cores"}
        for row in latest(rows("prepare"), "way")
    ]
    columns = {"way": "what", "seconds": "seconds", "words_per_second": "words/s", "peak_mib": "MiB"}
    return markdown(columns, found)


def ngrams() -> str:
    found = [{**row, "way": f"`{row['way']}`"} for row in latest(rows("ngram"), "way", "text")]
    columns = {"way": "estimated by", "words": "words", "order": "order", "seconds": "seconds", "peak_mib": "MiB"}
    return markdown({**columns, "ratio": "times as fast as lmplz"}, found)


def queries() -> str:
    found = latest(rows("ngram_query"), "backend", "what")
    found = [{**row, "way": f"{row['backend']}: {row['what']}"} for row in found]
    columns = {"way": "what", "seconds": "seconds", "words_per_second": "words/s"}
    return markdown({**columns, "ratio": "times as fast as kenlm's `score`, CPU"}, found)


def errors(subsets: bool) -> str:
    """Of one set after the other; below zero, the difference is a gain over what the system is compared with."""
    found = latest(rows("second_pass"), "set", "subset", "system")
    found = [row for row in found if (row["subset"] != "all") == subsets]
    if subsets:
        found = [row for row in found if row["system"] in ("first pass", "mode3", "mode3 + 4-gram, least risk")]
    head = ["set", "subset", "words"] if subsets else ["set"]
    head += ["system", "WER %", "95 %", "oracle %", "against", "difference", "95 %", "p"]
    lines = []
    for row in found:
        cells = [row["set"], row["subset"], row["words"]] if subsets else [row["set"]]
        rate, low, high, least = (f"{float(row[key]):.2f}" for key in ("wer", "low", "high", "oracle"))
        cells += [row["system"], rate, f"{low} to {high}", least, row["against"] or "-"]
        gain = f"{float(row['difference']):+.2f}" if row["difference"] else "-"
        span = f"{float(row['difference_low']):+.2f} to {float(row['difference_high']):+.2f}" if row["p"] else "-"
        lines.append([*cells, gain, span, row["p"] or "-"])
    origin = sorted({row["machine"] for row in found if row["seconds"]})
    dates = sorted({row["date"] for row in found})
    table = grid(head, lines, left=range(len(head)))
    return f"{table}\nRescored on {' and '.join(origin)}, {', '.join(dates)}.\n"


def errors_short() -> str:
    """The first pass, its own scales tuned, and the best path with the new models."""
    found = [row for row in latest(rows("second_pass"), "set", "subset", "system") if row["subset"] == "all"]
    systems = ("first pass", "no new model", "mode3", "mode3 + 4-gram", "mode3 + 4-gram, least risk")
    lines = []
    for name in dict.fromkeys(row["set"] for row in found):
        here = {row["system"]: row for row in found if row["set"] == name}
        rates = [f"{float(here[system]['wer']):.1f} %" for system in systems]
        lines.append([f"`{name}`", *rates, f"{float(here[systems[0]]['oracle']):.1f} %"])
    dates = sorted({row["date"] for row in found})
    table = grid(["set", *systems, "oracle"], lines)
    return f"{table}\nRescored on NVIDIA H200, {', '.join(dates)}; cross-validated scales.\n"


def searches() -> str:
    found = latest(rows("search"), "order", "most", "beam", "run")
    head = ["words recombination compares", "hypotheses at a node", "beam", "same words", "within 0.5 nats"]
    lines = []
    for row in found:
        limits = [row["order"] or "all", row["most"] or "any", "none" if row["beam"] == "inf" else row["beam"]]
        shares = [f"{row[key]} of {row['lattices']}" for key in ("same_words", "within_half_a_nat")]
        lines.append([*limits, *shares, row["largest_loss"], row["seconds"]])
    return grid([*head, "largest loss, nats", "seconds"], lines, left=()) + measured(found)


def rescorings() -> str:
    found = latest(rows("rescoring"), "machine", "matmul", "what", "scores")
    names = {
        "output": "output layer: 4 words after each history",
        "body": "body: one step of each history",
        "lattices": "lattices, end to end",
        "one": "lattices, one history at a time",
        "many": "1,000 lattices, with reading them",
    }
    found = [
        {
            **row,
            "way": f"{names[row['what']]}; {row['scores']}".removesuffix("; -")
            + ("; TF32" if row["matmul"] == "tf32" else ""),
        }
        for row in found
    ]
    for row in found:
        for key, digits in {"seconds": 4, "ratio": 1, "bound": 1, "peak_mib": 0, "arcs_per_second": 0}.items():
            row[key] = str(round(float(row[key]), digits)) if row[key] else ""
    columns = {"way": "what", "batch": "at a time", "arcs": "arcs", "steps": "steps of the body", "seconds": "seconds"}
    columns |= {"arcs_per_second": "arcs/s", "ratio": "times faster", "bound": "body allows", "peak_mib": "MiB"}
    parts = [
        markdown(columns, [row for row in found if row["machine"] == each])
        for each in dict.fromkeys(row["machine"] for row in found)
    ]
    return "\n".join(parts)


def reading() -> str:
    columns = {key: key for key in ("what", "utterances", "arcs", "seconds")} | {"arcs_per_second": "arcs/s"}
    return markdown(columns, latest(rows("reading"), "what", "machine"))


def steps_of(shape: str | None = None) -> list[Row]:
    """Whole steps of the output layer on a GPU, loss and gradients with the optimizer, each the latest of its kind."""
    found = latest(rows("output_layer"), "shape", "impl", "criterion", "pass", "k", "groups")
    return [row for row in found if row["pass"] == "step" and shape in (None, row["shape"])]


def best_softmax(shape: str) -> Row | None:
    full = [row for row in steps_of(shape) if row["k"] == row["C"]]
    return min(full, key=lambda row: float(row["ms"]), default=None)


def by_shape(found: list[Row]) -> list[Row]:
    """In the order of their first rows; more words first."""
    order = list(dict.fromkeys(row["shape"] for row in rows("output_layer")))
    return sorted(found, key=lambda row: (order.index(row["shape"]), row["criterion"], -int(row["k"]), row["groups"]))


def output_layer_gpu(criterion: str | None = None) -> str:
    """Ours against the best full softmax: every K and G of one criterion, or every criterion at its largest K."""
    found = []
    for row in by_shape([row for row in steps_of() if row["k"] != row["C"]]):
        best = best_softmax(row["shape"])
        if (
            row["criterion"] == criterion or (criterion is None and row["k"] == "8192" and row["groups"] == "1")
        ) and best:
            faster = f"{float(best['ms']) / float(row['ms']):.3g}"
            found.append({**row, "softmax": best["ms"], "by": best["impl"], "times_faster": faster})
    columns = {"shape": "shape", "criterion": "criterion", "C": "C", "k": "K", "groups": "groups", "ms": "ms"}
    columns |= {"limit_ms": "limit, ms", "ratio": "times the limit", "peak_mib": "MiB"}
    columns |= {"softmax": "best full softmax, ms", "by": "by", "times_faster": "times faster"}
    return markdown(columns, found) if found else MISSING


def full_softmax() -> str:
    """Every peer at every shape: loss and gradients alone, and with fused Adam on the whole table."""
    found = [row for row in latest(rows("output_layer"), "shape", "impl", "pass", "k") if row["k"] == row["C"]]
    columns = {"shape": "shape", "impl": "by", "pass": "what", "C": "C", "H": "H", "N": "N", "ms": "ms"}
    columns |= {"limit_ms": "limit, ms", "ratio": "times the limit", "peak_mib": "MiB"}
    return markdown(columns, by_shape(found)) if found else MISSING


def rows_and_dense() -> str:
    found = latest([row for row in rows("training") if row["recipe"].startswith("ptb/mode3-adam")], "recipe", "seed")
    found.sort(key=lambda row: (row["seed"], row["recipe"]))
    named = [{**row, "way": "row-sparse" if row["recipe"].endswith("rows") else "dense"} for row in found]
    columns = {"seed": "seed", "way": "updates", "valid_perplexity": "development perplexity"}
    return markdown({**columns, "test_perplexity": "test perplexity"}, named) if named else "Not measured yet.\n"


def whole_steps() -> str:
    found = latest(rows("steps"), "body", "criterion", "k", "C", "positions")
    columns = {"body": "body", "criterion": "criterion", "k": "K", "C": "C", "positions": "positions", "ms": "ms"}
    columns |= {"words_per_second": "words/s", "peak_mib": "MiB", "output_share": "share of the output layer"}
    return markdown(columns, found) if found else MISSING


def attention() -> str:
    """Forward and backward together: the kernel, PyTorch's, and what memory allows."""
    found = [row for row in latest(rows("attention"), "impl", "pass", "T") if row["pass"] == "both"]
    by = {(row["impl"], row["T"]): float(row["ms"]) for row in found}
    ours = [row for row in found if row["impl"] == "short"]
    for row in ours:
        theirs = [by["sdpa", row["T"]], by["compiled sdpa", row["T"]]]
        row |= dict(zip(("sdpa", "compiled"), (f"{1e3 * each:.1f}" for each in theirs)))
        row |= {"faster": f"{min(theirs) / float(row['ms']):.1f}"}
        row |= {key: f"{1e3 * float(row[key]):.1f}" for key in ("ms", "limit_ms")}
    columns = {"T": "words of a sentence", "ms": "the kernel, µs", "sdpa": "PyTorch, µs"}
    columns |= {"compiled": "PyTorch, compiled, µs", "limit_ms": "limit, µs", "faster": "times faster"}
    return markdown(columns, ours)


def own_samples() -> str:
    """A line for each shape and kind of gradients: ours, and what one writes by hand."""
    shape = "machine", "gradients", "N", "K", "C", "H"
    found = latest(rows("own"), "impl", *shape)
    by = {(row["impl"], *(row[key] for key in shape)): f"{float(row['ms']):.3g}" for row in found}
    impls = {"fused": "ours, fused, ms", "plain": "ours, plain, ms", "torch": "PyTorch, ms", "compiled": "compiled, ms"}
    impls = {name: title for name, title in impls.items() if any(row["impl"] == name for row in found)}
    lines = latest(found, *shape)
    for line in lines:
        line |= {f"by {name}": by.get((name, *(line[key] for key in shape)), "") for name in impls}
        line["limit_ms"] = f"{float(line['limit_ms']):.3g}"
    columns = {key: key for key in shape[1:]} | {f"by {name}": title for name, title in impls.items()}
    return markdown({**columns, "limit_ms": "limit, ms"}, lines) if lines else MISSING


def scaling(part: str) -> list[dict[str, Any]]:
    """A part of the model on paper (scaling.py)."""
    return json.loads((ROOT / "benchmarks" / "results" / "scaling.json").read_text())[part]


def wire() -> str:
    """What ranks sent, measured, beside the model."""
    found = latest(rows("scaling"), "way", "ranks", "C", "H")
    dense = {(row["ranks"], row["C"], row["H"]): float(row["sent_bytes"]) for row in found if row["way"] == "dense"}
    for row in found:
        whole = dense.get((row["ranks"], row["C"], row["H"]))
        row |= {"way": f"`{row['way']}`", "fewer": f"{whole / float(row['sent_bytes']):.3g}" if whole else ""}
        row |= {key: f"{float(row[key]) / 1e6:.4g}" for key in ("sent_bytes", "model_bytes")}
    columns = {"way": "tables", "ranks": "ranks", "C": "C", "H": "H", "sent_bytes": "sent, MB"}
    columns |= {"model_bytes": "model, MB", "ratio": "sent / model", "fewer": "times fewer than `dense`"}
    return markdown(columns, found)


def clusters() -> str:
    found = [row for row in scaling("clusters") if row["C"] in (200_000, 10_000_000)]
    ways = ("dense", "rows", "spread")
    head = ["body", "C", "GPUs", *(f"`{way}`, {name}" for way in ways for name in ("MB", "minutes"))]
    lines = []
    for number in range(0, len(found), len(ways)):
        by_way = found[number : number + len(ways)]
        cells = [by_way[0]["body"], f"{by_way[0]['C']:,}", f"{by_way[0]['ranks']}"]
        for row in by_way:
            ends = [(row[f"minutes_{end}"], 100 * row[f"efficiency_{end}"]) for end in ("best", "worst")]
            times = " to ".join(f"{minutes:.3g} ({share:.0f} %)" for minutes, share in ends)
            cells += [f"{row['sent_mb']:,.0f}", times if row["fits"] else f"no room: {row['held_gb']:.0f} GB"]
        lines.append(cells)
    alone = {
        row["body"]: f"`{row['body']}`: one GPU alone takes {row['alone_ms']:.2f} ms for a step of {row['N']:,} words "
        f"([speed.md](speed.md)), {row['alone_minutes']:.0f} minutes in all; body: {row['body_bytes'] / 1e6:.0f} MB."
        for row in found
    }
    largest = max(found, key=lambda row: row["ranks"])
    batch = f"On {largest['ranks']} GPUs a batch is {largest['batch']:,} words, the pass {largest['steps']:,} steps."
    return "\n".join([grid(head, lines), *alone.values(), batch, ""])


def scaling_limits() -> str:
    names = {
        "more_than_dense": "sends more than `dense`",
        "slower_than_dense": "is slower than `dense`",
        "more_than_spread": "sends more than `spread`",
        "half_the_speed": "is below half the speed",
        "does_not_fit": "does not fit",
    }
    lines = [
        [row["body"], f"{row['C']:,}", *(f"{row[key]}" if row[key] else "-" for key in names)]
        for row in scaling("limits")
    ]
    return grid(["body", "C", *names.values()], lines)


def assumptions() -> str:
    lines = [[row["what"], f"{row['value']}", row["from"]] for row in scaling("assumed")]
    return grid(["assumed", "value", "from"], lines, left=(0, 2))


MISSING = "Not measured yet.\n"
TABLES = {
    "wire": wire,
    "clusters": clusters,
    "scaling-limits": scaling_limits,
    "assumptions": assumptions,
    "output-layer-gpu": lambda: output_layer_gpu("mode3"),
    "output-layer-criteria": output_layer_gpu,
    "full-softmax": full_softmax,
    "steps": whole_steps,
    "attention": attention,
    "own-samples": own_samples,
    "rows-and-dense": rows_and_dense,
    "second-pass": lambda: errors(subsets=False),
    "second-pass-subsets": lambda: errors(subsets=True),
    "second-pass-short": errors_short,
    "search": searches,
    "rescoring": rescorings,
    "reading": reading,
    "ngrams": ngrams,
    "ngram-queries": queries,
    "prepare": prepares,
    "reliability": reliability,
    "reliability-kinds": kinds_of_trials,
    "reliability-failed": failed_trials,
    "training-ptb": lambda: trainings("ptb", speed=False),
    "training-books": lambda: trainings("books", speed=True),
    "output-layer-cpu": output_layer,
    "paper-short": paper,
    "samplers": samplers,
}


def renewed(text: str) -> str:
    return PLACE.sub(lambda match: match[1] + TABLES[match["name"]]() + match[3], text)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


if __name__ == "__main__":
    stale = {page: new for page in pages() if (new := renewed(page.read_text())) != page.read_text()}
    if "--check" in sys.argv:
        sys.exit("\n".join(f"{page.relative_to(ROOT)}: a table is not that of its rows" for page in stale) or 0)
    for page, new in stale.items():
        page.write_text(new)
        print(f"{page.relative_to(ROOT)} renewed")
