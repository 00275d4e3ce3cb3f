"""Where the time of a training step goes: the kernels of one batch of a row of `selfnorm reproduce`, by their time.

    python benchmarks/where.py KEY --to DIR [--scale small] [--steps 20] [--top 25]

DIR is where `selfnorm reproduce` prepared the corpus. Steps run as they are written, not as recorded graphs, so that
each kernel has its name; the sum of their times is what a graph would need on a machine that never waits. On a CPU the
same of its operators.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).parent))
from rates import chosen

from selfnorm.recipe import Table
from selfnorm.reproduce.plan import SCALES, recipe
from selfnorm.training.parts import build
from selfnorm.training.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("key", help="as in `selfnorm reproduce all --plan`")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--scale", default="small", choices=SCALES)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--top", type=int, default=25)
    options = parser.parse_args()
    scale = SCALES[options.scale]
    row = chosen(parser, options.key, scale)
    whole = recipe(row, scale)
    plain = replace(whole, training=Table(None, {**whole.training.options, "graph": False}))
    trainer = Trainer(build(plain, options.to), options.to / "where")
    parts = trainer.parts
    parts.model.train()
    some = [parts.batches.batch(0, number) for number in range(min(20, parts.batches.steps_per_epoch))]
    batch = sorted(some, key=lambda each: each.positions)[len(some) // 2].to(parts.device)
    gpu = parts.device.type == "cuda"
    with trainer.own_chance():
        for _ in range(5):
            trainer.update(batch)
        with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as seen:
            for _ in range(options.steps):
                norm, _ = trainer.update(batch)
            float(norm)  # waits until all is done
    found = [(each.self_device_time_total if gpu else each.self_cpu_time_total, each) for each in seen.key_averages()]
    found = sorted(((time / options.steps, each) for time, each in found if time), key=lambda pair: -pair[0])
    total = sum(time for time, _ in found)
    width, length = batch.inputs.shape
    print(f"{row.key}: {width} x {length}, {batch.positions} positions, {total / 1000:.3f} ms in a step")
    for time, each in found[: options.top]:
        print(f"{time:9.1f} us {100 * time / total:5.1f} %  {each.count / options.steps:6.1f} times  {each.key[:90]}")


if __name__ == "__main__":
    main()
