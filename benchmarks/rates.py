"""Learning rates for a row of `selfnorm reproduce`, before it is trained whole.

    python benchmarks/rates.py KEY --to DIR [--lr 0.0003 0.001] [--beta2 0.999] [--steps 3000] [--corpus podcasts]

Trains the row's recipe for a few steps with a whole cosine and a tenth of them to warm up. DIR is where `selfnorm
reproduce` prepared the corpus; with --corpus another one that lies there takes its place. Each line has the perplexity
of the first words of the development text. Several calls side by side share a GPU. Rows: benchmarks/results/rates.csv.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from rows import append

from selfnorm import training
from selfnorm.bench.machine import default_device, name_of
from selfnorm.recipe import Recipe, Table
from selfnorm.reproduce.plan import BETA2, SCALES, Row, Scale, recipe, rows


def short(whole: Recipe, lr: float, beta2: float, steps: int, corpus: str | None) -> Recipe:
    options = {name: value for name, value in whole.training.options.items() if name != "epochs"}
    return replace(
        whole,
        data=whole.data if corpus is None else f"data/{corpus}",
        optimizer=Table(whole.optimizer.name, {**whole.optimizer.options, "lr": lr, "beta2": beta2}),
        schedule=Table("cosine", {"warmup": max(1, steps // 10)}),
        training=Table(None, {**options, "steps": steps, "save_every": 2 * steps}),
    )


def chosen(parser: argparse.ArgumentParser, key: str, scale: Scale) -> Row:
    row = next((row for row in rows("all", scale) if row.key == key), None)
    if row is None:
        parser.error(f"{key}: no row is called so; `selfnorm reproduce all --plan` has their keys")
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("key", help="as in `selfnorm reproduce all --plan`")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--scale", default="small", choices=SCALES)
    parser.add_argument("--lr", type=float, nargs="+", default=[0.0003, 0.001])
    parser.add_argument("--beta2", type=float, nargs="+", default=[BETA2])
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--corpus")
    options = parser.parse_args()
    scale = SCALES[options.scale]
    row = chosen(parser, options.key, scale)
    for lr in options.lr:
        for beta2 in options.beta2:
            tried = short(recipe(row, scale), lr, beta2, options.steps, options.corpus)
            with tempfile.TemporaryDirectory() as folder:
                result = training.train(tried, Path(folder) / "run", where=options.to)
            assert result.evaluation is not None
            found = {"key": row.key, "data": tried.data, "lr": lr, "beta2": beta2, "steps": options.steps}
            found |= {"perplexity": round(result.evaluation.perplexity, 3), "machine": name_of(default_device())}
            append("rates", [found])


if __name__ == "__main__":
    main()
