"""Whole trainings: words/s, perplexity and log Z of one or several recipes, one after the other.

    python benchmarks/training.py recipes/books/ce.toml recipes/books/mode3.toml --to runs [--set training.steps=100]

Each recipe's data must be prepared (its first line says how). Rows go to benchmarks/results/training.csv.
"""

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from rows import append

from selfnorm import recipe as recipes
from selfnorm import scorers
from selfnorm.bench.machine import default_device, name_of
from selfnorm.corpus.store import Data
from selfnorm.evaluation import evaluate
from selfnorm.training import Watcher, train


def measure(path: Path, runs: Path, sets: list[str]) -> dict[str, object]:
    chosen = recipes.load(path, sets)
    name = "-".join([path.parent.name, path.stem, *(each.replace("=", "-") for each in sets if "seed" in each)])
    watcher = Watcher(
        metrics=lambda line: print(
            f"{name} step {line.step} loss {line.loss:.3f} ppl {line.perplexity:.1f} log Z {line.log_z:+.3f} "
            f"|g| {line.gradient_norm:.3f} {line.words_per_second:,.0f} words/s",
            flush=True,
        ),
        evaluation=lambda step, found: print(
            f"{name} step {step}: development perplexity {found.perplexity:.2f}", flush=True
        ),
        say=print,
    )
    result = train(chosen, runs / name, watcher=watcher)
    valid = result.evaluation
    row: dict[str, object] = {
        "recipe": f"{path.parent.name}/{path.stem}",
        "criterion": chosen.criterion.name,
        "k": chosen.sampler.options.get("k"),
        "noise": chosen.sampler.options.get("noise"),
        "C": None,
        "words_seen": result.words,
        "words_per_second": round(result.words_per_second),
        "valid_perplexity": round(valid.perplexity, 2) if valid else None,
    }
    scorer = scorers.load(runs / name)
    row["C"] = len(scorer.vocabulary)
    data = Data.open(Path(chosen.data), verify=False)
    text = data.test if data.test is not None else data.valid
    words = chosen.training.options.get("evaluation_words")
    if text is not None:
        text = text.first(words) if words else text
        found = evaluate(scorer.model, text, scorer.vocabulary.unknown, histories=scorer.histories)
        fields = asdict(found)
        for key in ("words", "perplexity", "perplexity_as_is", "log_z_mean", "log_z_std"):
            row[f"test_{key}"] = round(fields[key], 4)
    seed = chosen.training.options.get("seed", 1)
    return {**row, "seed": seed, "machine": name_of(default_device()), "torch": torch.__version__}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, default=Path("runs"), help="where the runs go")
    parser.add_argument("--set", action="append", default=[], help="override a recipe's value, as in selfnorm train")
    arguments = parser.parse_args()
    for path in arguments.recipes:
        row = measure(path, arguments.to, arguments.set)
        print(row, flush=True)
        append("training", [row])
