"""n-gram queries beside kenlm's, in one run on the same model and text: loading, cold and cached, and words per second.

    python benchmarks/ngram_query.py LM.arpa TEXT [--repeat N]

`text` gives the score of every word of all sentences at once, from words (strings) to scores; kenlm's `full_scores`
does the same sentence by sentence, its `score` gives one number for a sentence. Every word's scores are compared before
speeds are. `ratio` is the speed to that of kenlm's `score`, by processor time, which others' load on the machine
disturbs least. The best of `--repeat` runs is kept. Rows are added to results/ngram_query.csv; without kenlm (pip
install kenlm) its rows are left out. A cached index beside LM.arpa is removed and made anew.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm.corpus.text import read_sentences
from selfnorm.ngrams.cache import index_path, load
from selfnorm.scorers import NGram


def timed(work: Callable[[], Any], repeat: int = 1) -> tuple[Any, dict[str, float]]:
    """The result, and the least seconds of several runs."""
    seconds = []
    for _ in range(repeat):
        began, used = time.perf_counter(), time.process_time()
        result = work()
        seconds.append((time.perf_counter() - began, time.process_time() - used))
    wall, cpu = (min(column) for column in zip(*seconds))
    return result, {"seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)}


def numpy_rows(arpa: Path, sentences: list[list[str]], repeat: int) -> tuple[list[dict[str, Any]], np.ndarray]:
    index_path(arpa).unlink(missing_ok=True)
    _, cold = timed(lambda: NGram.load(arpa))
    scorer, cached = timed(lambda: NGram.load(arpa), repeat)
    scored, text = timed(lambda: scorer.text(sentences), repeat)
    measured = {"load, cold": cold, "load, cached": cached, "text": text}
    return [{"backend": "numpy", "what": what, **each} for what, each in measured.items()], scored.scores


def kenlm_rows(arpa: Path, sentences: list[list[str]], repeat: int) -> tuple[list[dict[str, Any]], np.ndarray]:
    import kenlm

    model, cold = timed(lambda: kenlm.Model(str(arpa)))
    lines = [" ".join(sentence) for sentence in sentences]
    _, score = timed(lambda: [model.score(line) for line in lines], repeat)
    found, full = timed(lambda: [list(model.full_scores(line)) for line in lines], repeat)
    measured = {"load, cold": cold, "score": score, "full_scores": full}
    rows = [{"backend": "kenlm", "what": what, **each} for what, each in measured.items()]
    return rows, np.log(10) * np.array([each[0] for line in found for each in line])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arpa", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    sentences = list(read_sentences(options.text))
    rows, scores = numpy_rows(options.arpa, sentences, options.repeat)
    speed = float("nan")
    try:
        more, theirs = kenlm_rows(options.arpa, sentences, options.repeat)
    except ImportError:
        print("kenlm is not installed: its rows are left out", file=sys.stderr)
    else:
        np.testing.assert_allclose(scores, theirs, rtol=1e-5, atol=1e-5)
        rows += more
        speed = next(len(scores) / row["cpu_seconds"] for row in more if row["what"] == "score")
    about = {"arpa": options.arpa.name, "ngrams": sum(map(len, load(options.arpa).levels)), "words": len(scores)}
    for row in rows:
        row["words_per_second"] = row["ratio"] = ""
        if not row["what"].startswith("load"):
            row["words_per_second"] = round(len(scores) / row["seconds"])
            row["ratio"] = round(len(scores) / row["cpu_seconds"] / speed, 2)
        print("  ".join(f"{row[key]!s:>12}" for key in row))
    print(append("ngram_query", [about | row | {"machine": machine()} for row in rows]))


if __name__ == "__main__":
    main()
