"""Speed of reading lattices and lists, unpacking and checking them included: one process, one core.

    python benchmarks/reading.py --of ASR/ps-lattices

The folder holds `slf`, `kaldi/lat.txt.gz` with `kaldi/words.txt`, and `nbest.jsonl.gz`; the binary archive is made of
the text. The best of five, since what else the machine does can only slow it down.
Rows: benchmarks/results/reading.csv.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from rows import append, machine

from selfnorm.lattices import kaldi, read


def measured(what: str, items: Callable[[], Iterable[Any]]) -> dict[str, Any]:
    """The time of the thread, which others on the machine do not lengthen much."""
    seconds = []
    for _ in range(5):
        begin = time.thread_time()
        found = list(items())
        seconds.append(time.thread_time() - begin)
    arcs, least = sum(each.arcs for each in found), min(seconds)
    row = {"what": what, "utterances": len(found), "arcs": arcs, "seconds": round(least, 3)}
    return row | {"arcs_per_second": round(arcs / least), "machine": machine(), "numpy": np.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=Path, required=True, help="a folder like ps-lattices")
    folder = parser.parse_args().of
    text, words = folder / "kaldi" / "lat.txt.gz", folder / "kaldi" / "words.txt"
    with tempfile.TemporaryDirectory() as scratch:
        binary = Path(scratch) / "lat.1.gz"
        with kaldi.writer(binary, words, binary=True) as write:
            for lattice in read([text], words=words):
                write(lattice)
        ways = {
            "HTK lattices, a file each, .gz": lambda: read([folder / "slf"]),
            "Kaldi archive, text, .gz": lambda: read([text], words=words),
            "Kaldi archive, binary, .gz": lambda: read([binary], words=words),
            "n-best JSONL, .gz": lambda: read([folder / "nbest.jsonl.gz"]),
        }
        rows = [measured(what, items) for what, items in ways.items()]
    for row in rows:
        print(row)
    print(append("reading", rows))


if __name__ == "__main__":
    main()
