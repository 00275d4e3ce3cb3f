"""Word error rates on real recogniser output, before and after: lattices of pocketsphinx, n-best lists of Moonshine.

    python benchmarks/second_pass.py --asr ASR --run runs/books-200k --ngram books.arpa --to out [--only ps-lattices]

ASR is a folder with `ps-lattices` and `moonshine-nbest`. Every system's scales are cross-validated (10 folds over
utterances), so no figure is tuned on the utterances it is about. Hypotheses go to OUT/SET/SYSTEM.json, so that systems
can be compared later without the models (`--tables OUT`); rows go to benchmarks/results/second_pass.csv.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm import lattices
from selfnorm.bootstrap import bootstrap, compare
from selfnorm.cli.wer import set_of
from selfnorm.lattices import transcripts
from selfnorm.lattices.nbest import NBest
from selfnorm.lattices.oracle import oracle, oracle_nbest
from selfnorm.lattices.paths import best, words_of
from selfnorm.rescoring import NEURAL, NGRAM, Rescorer, Setting
from selfnorm.rescoring.second_pass import second_pass
from selfnorm.wer import Errors, count

SETS = {  # where its lattices are, and the setting that tuning starts from
    "ps-lattices": ("slf", Setting(weight=0.5, ngram_weight=0.3)),
    "moonshine-nbest": ("nbest.jsonl.gz", Setting(lm_scale=0.3, ngram_weight=0.3)),
}
BASELINE = "no new model"  # its own scales and word penalty, cross-validated like everybody's
SYSTEMS = {  # scorers, normalized?, and what it is compared with
    "first pass": ((), False, None),
    BASELINE: ((), False, "first pass"),
    "4-gram": ((NGRAM,), False, BASELINE),
    "mode3": ((NEURAL,), False, BASELINE),
    "mode3 normalized": ((NEURAL,), True, "mode3"),
    "mode3 + 4-gram": ((NEURAL, NGRAM), False, BASELINE),
    "mode3 + 4-gram normalized": ((NEURAL, NGRAM), True, "mode3 + 4-gram"),
    "mode3 + 4-gram, least risk": ((NEURAL, NGRAM), False, BASELINE),
    "mode3 + 4-gram normalized, least risk": ((NEURAL, NGRAM), True, "mode3 + 4-gram, least risk"),
}
FOLDS = 10


def run(name: str, asr: Path, scorers: dict[str, Any], to: Path, device: str) -> None:
    place, setting = SETS[name]
    items = list(lattices.read([asr / name / place]))
    references = transcripts.read(asr / name / "refs.txt")
    for system, (names, normalize, _) in SYSTEMS.items():
        chosen = {each: scorers[each] for each in names if each in scorers}
        if len(chosen) < len(names):
            continue
        if NEURAL in chosen:
            chosen[NEURAL].model.output.normalize = normalize
        begin = time.perf_counter()
        start = setting if NEURAL in chosen or not chosen else Setting(setting.lm_scale, setting.weight, None, 1.0)
        rescorer = Rescorer(chosen, start)
        folds = None if system == "first pass" else FOLDS
        if system == "first pass":
            words = {each.utterance: first_pass(each) for each in items}
            used: list[Setting] = []
        else:
            outcome = second_pass(items, rescorer, references=references, folds=folds, risk="risk" in system)
            words = {result.utterance: result.words for result in outcome.results}
            used = outcome.folds
        seconds = time.perf_counter() - begin
        value = {"seconds": seconds, "folds": [asdict(each) for each in used], "device": device}
        value["hypotheses"] = {utterance: " ".join(each) for utterance, each in words.items()}
        (to / name).mkdir(parents=True, exist_ok=True)
        (to / name / f"{system}.json").write_text(json.dumps(value))
        errors = sum((count(references[each], words[each]) for each in references), Errors())
        print(f"{name}: {system}: {100 * errors.rate:.2f} % in {seconds:.1f} s", flush=True)


def first_pass(item: Any) -> tuple[str, ...]:
    if isinstance(item, NBest):
        return max(item.hypotheses, key=lambda each: each.acoustic).words
    return words_of(item, best(item).arcs)


def table(name: str, asr: Path, to: Path) -> Iterator[dict[str, Any]]:
    """A row for each system, all utterances and each subset."""
    references = transcripts.read(asr / name / "refs.txt")
    subsets: dict[str, list[str]] = {"all": list(references)}
    for utterance in references:
        subsets.setdefault(set_of(utterance), []).append(utterance)
    saved = {path.stem: json.loads(path.read_text()) for path in (to / name).glob("*.json")}
    heard = {
        system: {utterance: tuple(text.split()) for utterance, text in saved[system]["hypotheses"].items()}
        for system in SYSTEMS
        if system in saved
    }
    nearest = {}
    for item in lattices.read([asr / name / SETS[name][0]]):
        found = oracle_nbest if isinstance(item, NBest) else oracle
        nearest[item.utterance] = found(item, references[item.utterance]).errors
    counts = {
        system: {utterance: count(words, heard[system][utterance]) for utterance, words in references.items()}
        for system in heard
    }
    for subset, utterances in subsets.items():
        for system, (_, _, other) in SYSTEMS.items():
            if system not in counts:
                continue
            here = [counts[system][utterance] for utterance in utterances]
            interval = bootstrap(here)
            row = {
                "set": name,
                "subset": subset,
                "system": system,
                "utterances": len(here),
                "words": sum(here, Errors()).words,
                "wer": round(100 * sum(here, Errors()).rate, 2),
                "low": round(interval.low, 2),
                "high": round(interval.high, 2),
                "oracle": round(100 * sum((nearest[each] for each in utterances), Errors()).rate, 2),
                "against": other or "",
                **dict.fromkeys(("difference", "difference_low", "difference_high", "p"), ""),
                "seconds": round(saved[system]["seconds"], 1),
                "machine": saved[system]["device"],
            }
            if other in counts:
                found = compare(here, [counts[other][utterance] for utterance in utterances])
                row["difference"], row["p"] = round(found.difference, 2), f"{found.p:.4f}"
                row["difference_low"], row["difference_high"] = (
                    round(found.interval.low, 2),
                    round(found.interval.high, 2),
                )
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asr", type=Path, required=True)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--ngram", type=Path, default=None)
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--only", choices=SETS, default=None)
    parser.add_argument("--tables", action="store_true", help="only make the rows, from what OUT holds")
    options = parser.parse_args()
    sets = [options.only] if options.only else list(SETS)
    if not options.tables:
        import torch

        from selfnorm.scorers import Neural, NGram

        scorers: dict[str, Any] = {}
        device = machine()
        if options.run:
            scorers[NEURAL] = Neural.load(options.run)
            if scorers[NEURAL].device.type == "cuda":
                device = torch.cuda.get_device_name()
        if options.ngram:
            scorers[NGRAM] = NGram.load(options.ngram)
        for name in sets:
            run(name, options.asr, scorers, options.to, device)
    rows = [row for name in sets for row in table(name, options.asr, options.to)]
    for row in rows:
        print(row)
    print(append("second_pass", rows))


if __name__ == "__main__":
    main()
