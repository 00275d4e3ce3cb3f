"""`selfnorm prepare` beside a polars count and a plain two-process Counter, in one run on the same texts.

    python benchmarks/prepare.py [TEXT ...] [--size N] [--repeat N]

prepare counts *and* encodes, the other two only count; `ratio` is the speed of all its work to that of polars' count,
`count_ratio` the same up to where its vocabulary is chosen. Each way runs in a process of its own; memory is the sum of
that process and its children, sampled. The best of `--repeat` runs is kept. Rows are added to results/prepare.csv.
Without TEXT, five million words of Zipf noise are made in a temporary folder.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rows import append

from selfnorm.cores import cores

COLUMNS = (
    *("way", "words", "types", "seconds", "count_seconds", "words_per_second", "ratio", "count_ratio", "peak_mib"),
    *("texts", "cpu", "cores", "python", "polars"),
)

Counted = tuple[int, int, float]  # words, types, when the counts were known


def by_prepare(texts: list[Path], size: int) -> Counted:
    from selfnorm.corpus.prepare import prepare

    encoding: list[float] = []

    def watch(stage: str, done: int, total: int, words: int) -> None:
        if stage == "encode" and not encoding:
            encoding.append(time.perf_counter())

    with tempfile.TemporaryDirectory(dir=texts[0].parent) as folder:
        summary = prepare(texts, Path(folder) / "data", size, progress=watch)
    return summary.words, summary.types, encoding[0]


def by_polars(texts: list[Path], size: int) -> Counted:
    import polars as pl

    lines = [
        pl.scan_csv(text, separator="\x01", has_header=False, new_columns=["word"], quote_char=None) for text in texts
    ]
    words = pl.concat(lines).select(pl.col("word").str.split(" ").explode())
    counts = words.group_by("word").len().collect(engine="streaming").filter(pl.col("word") != "")
    return int(counts["len"].sum()), counts.height, time.perf_counter()


def by_counter(texts: list[Path], size: int) -> Counted:
    with ProcessPoolExecutor(cores()) as pool:
        total = sum(pool.map(count_stretch, *zip(*stretches(texts, 32 << 20))), Counter())
    return total.total(), len(total), time.perf_counter()


def count_stretch(text: Path, begin: int, end: int) -> Counter[bytes]:
    counts: Counter[bytes] = Counter()
    with text.open("rb") as file:
        file.seek(begin)
        if begin:
            file.readline()  # belongs to the stretch before
        while file.tell() <= end and (data := file.read(min(4 << 20, max(1, end - file.tell())))):
            counts.update((data + file.readline()).split())
    return counts


def stretches(texts: list[Path], size: int) -> Iterator[tuple[Path, int, int]]:
    for text in texts:
        total = text.stat().st_size
        yield from ((text, begin, min(begin + size, total)) for begin in range(0, total, size))


WAYS: dict[str, Callable[[list[Path], int], Counted]] = {
    "prepare": by_prepare,
    "polars": by_polars,
    "counter": by_counter,
}


def measured(way: str, texts: list[Path], size: int) -> dict[str, Any]:
    """Run one way in a process of its own."""
    command = [sys.executable, __file__, "--way", way, "--size", str(size), *map(str, texts)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    with peak_memory(process.pid) as peak:
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{way} ended with status {process.returncode}")
    return json.loads(output) | {"peak_mib": round(peak[0] / 2**20)}


@contextmanager
def peak_memory(pid: int) -> Iterator[list[int]]:
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], sum(map(resident, family(pid))))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def family(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has just ended
        return []
    return [pid, *(each for child in children for each in family(child))]


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def zipf_text(folder: Path, words: int = 5_000_000, types: int = 200_000) -> Path:
    import numpy as np

    chance = np.random.default_rng(1)
    ids = (np.exp(chance.random(words) * np.log(types + 1)) - 1).astype(int)  # log-uniform, as words nearly are
    ends = np.where(chance.random(words) < 0.05, "\n", " ")
    text = folder / "zipf.txt"
    text.write_text("".join(f"{id:x}{end}" for id, end in zip(ids.tolist(), ends.tolist())) + "\n")
    return text


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": cores(),
        "python": platform.python_version(),
        "polars": polars_version() or "",
    }


def polars_version() -> str | None:
    try:
        return importlib.metadata.version("polars")
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="*", type=Path, help="plain text, one sentence per line")
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:  # the process that is measured
        began = time.perf_counter()
        words, types, counted = WAYS[options.way](options.texts, options.size)
        seconds, count_seconds = round(time.perf_counter() - began, 2), round(counted - began, 2)
        print(json.dumps({"words": words, "types": types, "seconds": seconds, "count_seconds": count_seconds}))
        return
    with tempfile.TemporaryDirectory() as folder:
        report(compare(options.texts or [zipf_text(Path(folder))], options.size, options.repeat))


def compare(texts: list[Path], size: int, repeat: int) -> list[dict[str, Any]]:
    ways = [way for way in WAYS if way != "polars" or polars_version()]
    if len(ways) < len(WAYS):
        print("polars is not installed: its row is left out; pip install polars", file=sys.stderr)
    rounds = [{way: measured(way, texts, size) for way in ways} for _ in range(repeat)]  # others' load hits all alike
    best = {way: min((each[way] for each in rounds), key=lambda run: run["seconds"]) for way in ways}
    rows = []
    for way, run in best.items():
        run["words_per_second"] = round(run["words"] / run["seconds"])
        polars = best["polars"]["seconds"] if "polars" in best else float("nan")
        run["ratio"], run["count_ratio"] = (round(polars / run[part], 2) for part in ("seconds", "count_seconds"))
        rows.append({"way": way, "texts": " ".join(text.name for text in texts)} | run | machine())
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    shown = COLUMNS[:9]
    for row in (dict(zip(shown, shown)), *rows):
        print("  ".join(f"{row[column]:>16}" for column in shown))
    append("prepare", [{column: row[column] for column in COLUMNS} for row in rows])


if __name__ == "__main__":
    main()
