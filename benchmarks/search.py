"""What the search of push_forward costs: its defaults against no limits, on real lattices.

    python benchmarks/search.py --of ASR/ps-lattices/slf --run runs/books-mode3-200k [--most 20000]

Without limits every history is followed, which equals `exact` (tests/rescoring). Lattices are pruned by the first pass
until at most `--most` histories are left: these are the ones that `exact` can do. Rows: benchmarks/results/search.csv.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm import lattices, scorers
from selfnorm.lattices.lattice import SILENT, Lattice
from selfnorm.lattices.paths import best, prune, words_of
from selfnorm.rescoring import NEURAL, Rescorer, Search, Setting

UNLIMITED = Search(order=None, most=None, beam=float("inf"))
BEAMS = (320, 240, 160, 120, 90, 70, 50, 35, 25, 15, 8)


def histories(lattice: Lattice, most: int) -> int:
    """How many pairs of node and history there are, counted up to `most`."""
    children: dict[tuple[int, str], int] = {}
    at: list[set[int]] = [set() for _ in range(lattice.nodes)]
    at[0].add(0)
    count = 0
    for source, target, word in zip(lattice.sources.tolist(), lattice.targets.tolist(), lattice.words):
        before = len(at[target])
        if word == SILENT:
            at[target] |= at[source]
        else:
            at[target].update(children.setdefault((history, word), len(children) + 1) for history in at[source])
        count += len(at[target]) - before
        if count > most:
            break
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--most", type=int, default=20_000)
    parser.add_argument("--weight", type=float, default=0.7)
    options = parser.parse_args()
    whole = [each for each in lattices.read([options.of]) if isinstance(each, Lattice)]
    pruned = []
    for lattice in whole:
        for beam in BEAMS:
            small = prune(lattice, beam)
            if histories(small, options.most) <= options.most:
                pruned.append(small)
                break
    print(
        f"{len(pruned)} of {len(whole)} lattices, {np.mean([each.arcs for each in pruned]):.0f} arcs on average",
        flush=True,
    )
    neural = scorers.load(options.run)
    setting = Setting(weight=options.weight)
    rows = []
    truth = None
    searches = [UNLIMITED, Search()]
    others = ((None, 12, 10.0), (4, 8, 10.0), (2, 4, 10.0), (1, 1, 8.0))
    searches += [Search(*each) for each in others]
    for search in searches:
        begin = time.perf_counter()
        found = []
        rescorer = Rescorer({NEURAL: neural}, setting, "push_forward", search, arcs=20_000)
        for each in rescorer.rescore(pruned):
            path = best(each.lattice, each.totals(setting))
            found.append((path.score / each.lattice.scales.lm, words_of(each.lattice, path.arcs)))
        seconds = time.perf_counter() - begin
        truth = truth or found
        lost = np.array(
            [true - score for (true, _), (score, _) in zip(truth, found)]
        )  # in units of the LM scores: nats
        row = {
            "order": search.order,
            "most": search.most,
            "beam": search.beam,
            "lattices": len(found),
            "same_words": sum(true == said for (_, true), (_, said) in zip(truth, found)),
            "within_half_a_nat": int((lost <= 0.5).sum()),
            "largest_loss": round(float(lost.max()), 4),
            "seconds": round(seconds, 2),
            "run": options.run.name,
            "machine": f"{neural.device.type}, {machine()}",
        }
        print(row, flush=True)
        rows.append(row)
    print(append("search", rows))


if __name__ == "__main__":
    main()
