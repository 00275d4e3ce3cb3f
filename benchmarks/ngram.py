"""`selfnorm ngram` beside KenLM's lmplz, in one run on the same text.

    python benchmarks/ngram.py TEXT [--order N] [--repeat N] [--memory 6G]

Both write an ARPA file next to TEXT (removed afterwards) and are given the same memory limit; `ratio` is the speed to
that of lmplz. Each runs in a process of its own, by turns, so that others' load hits both; the best of `--repeat` runs
is kept. `peak_mib` is the sum of the process and its children, sampled. `difference` is the largest difference of any
probability or back-off from lmplz's, in log10. Without lmplz (see tests/ngrams/oracle.py) its row is left out.
Rows are added to results/ngram.csv.
"""

import argparse
import importlib.util
import itertools
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from prepare import peak_memory
from rows import append, machine

ROOT = Path(__file__).parents[1]


def lmplz() -> Path | None:
    spec = importlib.util.spec_from_file_location("oracle", ROOT / "tests" / "ngrams" / "oracle.py")
    assert spec is not None
    assert spec.loader is not None
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    return oracle.found()


def measured(command: list[str]) -> dict[str, Any]:
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with peak_memory(process.pid) as peak:
        status = process.wait()
    if status:
        raise SystemExit(f"{command[0]} ended with status {status}")
    return {"seconds": round(time.perf_counter() - began, 2), "peak_mib": round(peak[0] / 2**20)}


def difference(ours: Path, theirs: Path) -> float:
    """Both files have their lines in the same order, so they are compared side by side."""
    largest = 0.0
    with ours.open("rb") as a, theirs.open("rb") as b:
        for line, other in itertools.zip_longest(a, b, fillvalue=b""):
            mine, their = line.split(b"\t"), other.split(b"\t")
            if len(mine) == 1 or mine[1:2] != their[1:2]:
                if line != other:
                    return float("inf")
                continue
            largest = max(largest, *(abs(float(x) - float(y)) for x, y in zip(mine[::2], their[::2])))
    return largest


def compare(text: Path, order: int, repeat: int, memory: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=text.parent) as name:
        ours, theirs = Path(name) / "ours.arpa", Path(name) / "theirs.arpa"
        given = [str(text), "--keep-empty", "--to", str(ours), "--order", str(order), "--memory", memory]  # as lmplz
        ways = {"selfnorm": [sys.executable, "-m", "selfnorm", "ngram", *given]}
        if path := lmplz():
            arguments = ["-o", str(order), "--text", str(text), "--arpa", str(theirs), "-S", memory, "-T", name]
            arguments += ["--discount_fallback"]  # of a text too small to estimate them, as ours does
            ways["lmplz"] = [str(path), *arguments]
        else:
            print("lmplz is absent: its row is left out; see tests/ngrams/oracle.py", file=sys.stderr)
        rounds = [{way: measured(command) for way, command in ways.items()} for _ in range(repeat)]
        for each in rounds:
            print(each, file=sys.stderr)
        apart = difference(ours, theirs) if "lmplz" in ways else float("nan")
        words = sum(len(line.split()) for line in text.open("rb"))
    best = {way: min((each[way] for each in rounds), key=lambda run: run["seconds"]) for way in ways}
    slow = best["lmplz"]["seconds"] if "lmplz" in best else float("nan")
    return [
        {"way": way, "text": text.name, "words": words, "order": order}
        | run
        | {"words_per_second": round(words / run["seconds"]), "ratio": round(slow / run["seconds"], 2)}
        | {"difference": f"{apart:.1e}", "memory": memory, "machine": machine()}
        for way, run in best.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="plain text, one sentence per line")
    parser.add_argument("--order", type=int, default=4)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--memory", default="6G")
    options = parser.parse_args()
    found = compare(options.text, options.order, options.repeat, options.memory)
    for row in found:
        print("  ".join(f"{column} {value}" for column, value in row.items()))
    append("ngram", found)


if __name__ == "__main__":
    main()
