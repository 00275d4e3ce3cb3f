"""Word error rates on real recogniser output, before and after: lattices of pocketsphinx, n-best lists of Moonshine.

    python benchmarks/second_pass.py --asr ASR --run runs/books-mode3-200k --ngram books.arpa --to out

ASR is a folder with `ps-lattices` and `moonshine-nbest`. First the network: every lattice is rescored once with scores
as they are, once normalized, and once with the n-gram alone, and kept in OUT (what is there already is not done again).
Then the errors, without the network: each system's scales are cross-validated over utterances, so no figure is tuned
on the utterances it is about. Rows go to benchmarks/results/second_pass.csv, the plot to docs/.
"""

import argparse
import gzip
import json
import pickle
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm import lattices
from selfnorm.bootstrap import bootstrap, compare
from selfnorm.lattices import transcripts
from selfnorm.lattices.oracle import oracle
from selfnorm.reproduce.errors import SETS, cross_validated, start, subsets
from selfnorm.rescoring import NEURAL, NGRAM, Rescored, Rescorer, Setting
from selfnorm.rescoring.results import decide
from selfnorm.wer import Errors, count

RUNS = {"ngram": (NGRAM,), "as-is": (NEURAL, NGRAM), "normalized": (NEURAL, NGRAM)}
FIRST, BASELINE, BEST = "first pass", "no new model", "mode3 + 4-gram"
SYSTEMS: dict[str, tuple[str | None, tuple[str, ...], str | None]] = {  # run, scorers, what it is compared with
    FIRST: (None, (), None),
    BASELINE: (None, (), FIRST),  # its own scales and word penalty, cross-validated like everybody's
    "4-gram": ("ngram", (NGRAM,), BASELINE),
    "mode3": ("as-is", (NEURAL,), BASELINE),
    "mode3 normalized": ("normalized", (NEURAL,), "mode3"),
    BEST: ("as-is", (NEURAL, NGRAM), BASELINE),
    f"{BEST} normalized": ("normalized", (NEURAL, NGRAM), BEST),
    f"{BEST}, least risk": ("as-is", (NEURAL, NGRAM), BASELINE),
    f"{BEST} normalized, least risk": ("normalized", (NEURAL, NGRAM), f"{BEST}, least risk"),
}


def keep(name: str, asr: Path, scorers: dict[str, Any], to: Path, device: str) -> None:
    """Rescore a set with the scorers there are, and keep what every scorer said of every arc."""
    place, setting = SETS[name]
    (to / name).mkdir(parents=True, exist_ok=True)
    items: list[Any] = []
    for run, names in RUNS.items():
        path = to / name / f"{run}.pkl.gz"
        if path.exists() or not scorers.keys() >= set(names):
            continue
        items = items or list(lattices.read([asr / name / place]))
        if NEURAL in names:
            scorers[NEURAL].model.output.normalize = run == "normalized"
        begin = time.perf_counter()
        done = list(Rescorer({each: scorers[each] for each in names}, start(setting, names)).rescore(items))
        seconds = round(time.perf_counter() - begin, 2)
        path.write_bytes(gzip.compress(pickle.dumps(done)))
        path.with_suffix(".json").write_text(json.dumps({"seconds": seconds, "machine": device}))
        print(f"{name}: {run} rescored in {seconds:.1f} s", flush=True)


def heard(name: str, system: str, kept: dict[str, list[Rescored]], said: transcripts.Transcripts) -> dict[str, Any]:
    """The words of each utterance, with the scales of the folds it is not in."""
    run, names, _ = SYSTEMS[system]
    some = next(iter(kept.values()))
    chosen = [Rescored(each.given, {}, each.given, np.arange(each.given.arcs)) for each in some]
    if system == FIRST:
        return {each.lattice.utterance: decide(each, Setting()).first for each in chosen}
    if run is not None:
        chosen = [replace(each, scores={scorer: each.scores[scorer] for scorer in names}) for each in kept[run]]
    found = cross_validated(chosen, said, start(SETS[name][1], names), risk="risk" in system)
    return {result.utterance: result.words for result in found}


def table(name: str, asr: Path, to: Path) -> Iterator[dict[str, Any]]:
    """A row for each system, all utterances and each subset."""
    said = transcripts.read(asr / name / "refs.txt")
    kept = {
        path.name.split(".")[0]: pickle.loads(gzip.decompress(path.read_bytes())) for path in (to / name).glob("*.gz")
    }
    about = {run: json.loads((to / name / f"{run}.pkl.json").read_text()) for run in kept}
    nearest = {each.given.utterance: oracle(each.given, said[each.given.utterance]).errors for each in kept["as-is"]}
    counts: dict[str, dict[str, Errors]] = {}
    for system, (run, _, _) in SYSTEMS.items():
        if run is None or run in kept:
            words = heard(name, system, kept, said)
            counts[system] = {utterance: count(each, words[utterance]) for utterance, each in said.items()}
            print(f"{name}: {system}: {100 * sum(counts[system].values(), Errors()).rate:.2f} %", flush=True)
    for subset, utterances in subsets(said).items():
        for system, (run, _, other) in SYSTEMS.items():
            if system not in counts:
                continue
            here = [counts[system][utterance] for utterance in utterances]
            interval, total = bootstrap(here), sum(here, Errors())
            row = {
                "set": name,
                "subset": subset,
                "system": system,
                "utterances": len(here),
                "words": total.words,
                "wer": round(100 * total.rate, 2),
                "low": round(interval.low, 2),
                "high": round(interval.high, 2),
                "oracle": round(100 * sum((nearest[each] for each in utterances), Errors()).rate, 2),
                "against": other or "",
                **dict.fromkeys(("difference", "difference_low", "difference_high", "p"), ""),
                "seconds": about[run]["seconds"] if run else "",
                "machine": about[run]["machine"] if run else machine(),
            }
            if other in counts:
                found = compare(here, [counts[other][utterance] for utterance in utterances])
                low, high = found.interval.low, found.interval.high
                row |= {"difference": round(found.difference, 2), "p": f"{found.p:.4f}"}
                row |= {"difference_low": round(low, 2), "difference_high": round(high, 2)}
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asr", type=Path, required=True)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--ngram", type=Path, default=None)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--only-keep", action="store_true", help="run the network, count no errors")
    options = parser.parse_args()
    scorers: dict[str, Any] = {}
    device = machine()
    if options.run:
        import torch

        from selfnorm.scorers import Neural

        scorers[NEURAL] = Neural.load(options.run)
        if scorers[NEURAL].device.type == "cuda":
            device = torch.cuda.get_device_name()
    if options.ngram:
        from selfnorm.scorers import NGram

        scorers[NGRAM] = NGram.load(options.ngram)
    for name in SETS:
        keep(name, options.asr, scorers, options.to, device)
    if not options.only_keep:
        rows = [row for name in SETS for row in table(name, options.asr, options.to)]
        print(append("second_pass", rows))


if __name__ == "__main__":
    main()
