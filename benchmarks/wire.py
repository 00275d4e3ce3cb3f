"""What 2 and 4 ranks send at a step, beside what the model of scaling.py says: rows of results/scaling.csv.

    unshare -rn sh -c "ip link set lo up && GLOO_SOCKET_IFNAME=lo python benchmarks/wire.py"

A step is embedding, criterion `mode3` and the exchange; the body that would stand between them has the same dense
gradients in all ways. The kernel counts the bytes of the loopback device, headers too; `unshare` gives the ranks one of
their own, without it others' bytes are counted with theirs.
"""

import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests/distributed"))
from ranks import on_ranks
from rows import append, machine
from scaling import MEASURED, WAYS, Case, handed, sent

from selfnorm.corpus.batches import Share
from selfnorm.criteria import CRITERIA
from selfnorm.distributed.exchange import Exchange
from selfnorm.distributed.shards import compact, spread
from selfnorm.distributed.world import World
from selfnorm.noise import LogUniform
from selfnorm.ops import expect, take
from selfnorm.output import Layer


class Words(nn.Module):
    """The three tables; `forward` is a step's loss, with dense gradients."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        assert case.H == case.E, "there is no body between the tables"
        self.case = case
        self.weight = nn.Parameter((torch.rand(case.H) / case.H).repeat(case.C, 1))
        self.bias = nn.Parameter(torch.zeros(case.C))
        self.embedding = nn.Parameter(torch.rand(case.E).repeat(case.C + 1, 1))

    def given(self, world: World, number: int) -> tuple[Tensor, Tensor, Any]:
        """Inputs and targets of this rank, and the draw that all ranks have in common."""
        own = torch.Generator().manual_seed(1000 * number + world.rank)
        draws = torch.rand(2, self.case.N, generator=own, dtype=torch.float64)
        inputs, targets = LogUniform(self.case.C).inverse(draws)
        return inputs, targets, self.case.sampler.draw(targets, torch.Generator().manual_seed(number))

    def forward(self, inputs: Tensor, targets: Tensor, sample: Any) -> Tensor:
        layer = Layer(self.weight, self.bias)
        return CRITERIA["mode3"]().loss(take(self.embedding, inputs), layer, targets, sample).sum()


def dense_step(world: World, words: Words) -> Callable[[int], None]:
    wrapped = nn.parallel.DistributedDataParallel(words, gradient_as_bucket_view=True)
    return lambda number: wrapped(*words.given(world, number)).backward()


def row_step(world: World, words: Words, spread_tables: bool = False) -> Callable[[int], None]:
    """As the trainer makes it; the pieces of the step before are dropped, as an optimizer would."""
    if spread_tables:
        for name in ("weight", "bias", "embedding"):
            spread(world, words, name)
    output, inputs = [words.weight, words.bias], [words.embedding]
    left = [expect(table) for table in (*output, *inputs)]
    exchange = Exchange(world, [], *(([], []) if spread_tables else (output, inputs)))

    def step(number: int) -> None:
        for pieces in left:
            pieces.clear()
        came, targets, sample = words.given(world, number)
        exchange.begin(Share(0, 0, 0, 0, len(targets.unique()), len(came.unique())))
        layer = Layer(words.weight, words.bias, sparse=True)
        hidden, drawn = take(words.embedding, came, sparse=True), sample.ids
        if spread_tables:
            layer, targets, sample = compact(layer, targets, sample)
        losses = CRITERIA["mode3"]().loss(hidden, layer, targets, sample)
        exchange.backward(losses.sum(), hidden, drawn)

    return step


STEPS: dict[str, Callable[[World, Words], Callable[[int], None]]] = {
    "dense": dense_step,
    "rows": row_step,
    "spread": lambda world, words: row_step(world, words, spread_tables=True),
}


def loopback() -> int:
    """Bytes sent over the loopback device so far, by anybody, as the kernel counts them: headers too."""
    (line,) = (line for line in Path("/proc/net/dev").read_text().splitlines() if line.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[8])


def measure(case: Case, way: str, ranks: int, steps: int) -> dict[str, Any]:
    words = Words(case)

    def work(world: World) -> float:
        step, found = STEPS[way](world, words), []
        for number in range(steps + 2):  # the first two make buffers and connections
            dist.barrier()
            before = loopback()
            dist.barrier()
            step(number)
            dist.barrier()
            found.append((loopback() - before) / ranks)
        return statistics.median(found[2:])

    counted = on_ranks(ranks, work)[0]
    expected = sent(handed(case, way, ranks), ranks)
    return {
        "way": way,
        "ranks": ranks,
        **asdict(case),
        "steps": steps,
        "sent_bytes": round(counted),
        "model_bytes": round(expected),
        "ratio": round(counted / expected, 4),
        "machine": machine(),
        "torch": torch.__version__,
    }


def main() -> None:
    torch.set_num_threads(1)
    small, large = Case(30_000, **MEASURED), Case(1_000_000, **MEASURED)
    cases = {small: WAYS, replace(small, C=200_000): WAYS, large: WAYS[1:], replace(large, H=64, E=64): WAYS}
    for case, ways in cases.items():  # at 1M and H = 512 dense would take 12 GB a rank
        for ranks in (2, 4):
            for way in ways:
                row = measure(case, way, ranks, steps=5 if way == "dense" else 15)
                print(row, flush=True)
                append("scaling", [row])


if __name__ == "__main__":
    main()
