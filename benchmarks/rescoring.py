"""Speed of rescoring: scores as they are against normalized ones, many hypotheses at a time against one.

    python benchmarks/rescoring.py [--of DIR] [--device cuda] [--lattices 64] [--many 1000]

The model is the paper's LSTM (2 x 2048) with a vocabulary of 200,000 words and random weights; lattices are those of a
folder (as often as it takes), or random ones of about 3,600 arcs. Rows go to benchmarks/results/rescoring.csv:

    output     the output layer alone: the scores of 4 words after each history
    body       one step of the body for each history
    lattices   push_forward end to end; `ratio` is the speed of scores as they are over that of normalized ones,
               `bound` what the body's time would allow if nothing but body and output layer took time
    one        the same with one lattice, and one history in the network, at a time
    many       1,000 lattices in a row: is memory bounded?
"""

import argparse
import hashlib
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from rows import append, machine

from selfnorm.lattices import read
from selfnorm.lattices.lattice import Lattice, Scales, assemble
from selfnorm.models import MODELS
from selfnorm.rescoring import NEURAL, Rescorer, Setting
from selfnorm.scorers import Neural
from selfnorm.scorers.banks import NeuralBank
from selfnorm.vocabulary import END, UNKNOWN, Vocabulary

WORDS = 4  # asked for after a history, as lattices do


def random_lattice(number: int, size: int, arcs: int = 3600, waves: int = 25) -> Lattice:
    """Words by Zipf's law; nodes in waves, arcs from each wave to the next few; many arcs share a word."""
    rng = np.random.default_rng(number)
    nodes = arcs // 3
    wave = np.sort(rng.integers(1, waves, nodes - 2))
    wave = np.concatenate([[0], wave, [waves]])
    first = np.searchsorted(wave, np.arange(waves + 2))
    sources, targets = [], []
    for node in range(1, nodes):  # into every node one arc, out of every node one
        sources.append(int(rng.integers(0, first[wave[node]])))
        targets.append(node)
    for node in range(nodes - 1):
        last = int(first[min(waves, wave[node] + 3) + 1]) if wave[node] + 3 <= waves else nodes
        for _ in range(2):
            sources.append(node)
            targets.append(int(rng.integers(first[wave[node] + 1], last)))
    near = np.minimum(
        size - 3, (np.exp(rng.uniform(0, np.log(size), 60)) - 1).astype(int)
    )  # the words of the utterance
    words = [f"w{near[rng.integers(len(near))]}" for _ in sources]
    return assemble(
        f"random-{number}",
        nodes=nodes,
        start=0,
        end=nodes - 1,
        sources=sources,
        targets=targets,
        words=words,
        acoustic=rng.normal(-60, 5, len(sources)),
        lm=rng.normal(-5, 0.5, len(sources)),
        times=wave * 0.2,
        scales=Scales(lm=10.0),
    )


def many(number: int, size: int, folder: Path | None) -> Iterator[Lattice]:
    """As many lattices as asked for, made or read when they are needed."""
    done = 0
    while done < number:
        for lattice in read([folder]) if folder else (random_lattice(done, size) for _ in range(1)):
            if done < number and isinstance(lattice, Lattice):
                yield replace(lattice, utterance=f"{lattice.utterance}-{done}")
                done += 1


def model(size: int, hidden: int, layers: int, device: str, known: set[str]) -> Neural:
    """Random weights; the words of the lattices are anywhere in the vocabulary."""
    others = [f"w{n}" for n in range(size) if f"w{n}" not in known]
    words = sorted([*known, *others[: size - 2 - len(known)]], key=lambda word: hash_of(word))
    vocabulary = Vocabulary([END, UNKNOWN, *words])
    torch.manual_seed(0)
    built = MODELS["lstm"](size, layers=layers, hidden=hidden, embedding=128)
    torch.nn.init.normal_(built.output.weight, std=0.02)
    torch.nn.init.constant_(built.output.bias, -float(np.log(size)))
    return Neural(built.to(device), vocabulary, {"histories": "sentences", "criterion": "mode3"})


def hash_of(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


class Counted(NeuralBank):
    """Counts the steps of the body and the words that are scored."""

    steps = words = 0

    def grow(self, rows: Any, words: Any) -> Any:
        Counted.steps += len(rows)
        return super().grow(rows, words)

    def scores(self, rows: Any, words: Any) -> Any:
        Counted.words += len(rows)
        return super().scores(rows, words)


def timed(work: Callable[[], Any], device: str, least: float = 2.0) -> float:
    """The median of several runs, after one to warm up."""
    times: list[float] = []
    work()
    while sum(times) < least and len(times) < 20:
        synchronize(device)
        begin = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def synchronize(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def end_to_end(neural: Neural, lattices: Iterator[Lattice] | list[Lattice], budget: int, arcs: int) -> dict[str, float]:
    import selfnorm.rescoring as rescoring

    rescoring.bank = lambda scorer, budget: Counted(scorer, budget)
    Counted.steps = Counted.words = 0
    begin = time.perf_counter()
    done = count = 0
    for each in Rescorer({NEURAL: neural}, Setting(weight=0.5), budget=budget, arcs=arcs).rescore(lattices):
        done += 1
        count += each.given.arcs
    seconds = time.perf_counter() - begin
    rates = {"arcs_per_second": count / seconds, "words_per_second": Counted.words / seconds}
    return {
        "lattices": done,
        "arcs": count,
        "steps": Counted.steps,
        "words": Counted.words,
        "seconds": seconds,
        **rates,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", type=Path, default=None, help="a folder of lattices")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tf32", action="store_true", help="let the GPU multiply in TF32 (the LSTM does anyway)")
    parser.add_argument("--size", type=int, default=200_000)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lattices", type=int, default=None, help="how many (default: 128 on a GPU, 2 on a CPU)")
    parser.add_argument("--many", type=int, default=0, help="lattices of the memory test")
    options = parser.parse_args()
    device, size = options.device, options.size
    if options.tf32:
        torch.set_float32_matmul_precision("high")
    on_gpu = device != "cpu"
    number = options.lattices or (128 if on_gpu else 2)
    batch = 4096 if on_gpu else 512
    rows: list[dict[str, Any]] = []
    origin = {
        "machine": torch.cuda.get_device_name() if on_gpu else machine(),
        "torch": torch.__version__,
        "C": size,
        "hidden": options.hidden,
        "layers": options.layers,
        "matmul": "tf32" if options.tf32 else "float32",
        "of": options.of.parent.name if options.of else "random",
    }
    columns = ("what", "scores", "batch", "lattices", "arcs", "steps", "words", "seconds", "words_per_second")
    columns = (*columns, "arcs_per_second", "ratio", "bound", "peak_mib")

    def add(**row: Any) -> None:
        rows.append({**dict.fromkeys(columns), **row, **origin})
        print({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}, flush=True)

    group = list(many(number, size, options.of))
    known = {word for lattice in group for word in lattice.words} - {"", END}
    neural = model(size, options.hidden, options.layers, device, known)
    bank = NeuralBank(neural, budget=batch)
    words = list(neural.vocabulary.words)
    bank.tell(words)
    rng = np.random.default_rng(0)
    histories = bank.grow(bank.start(batch), rng.integers(0, size, batch))
    pairs = np.repeat(histories, WORDS), rng.integers(0, size, batch * WORDS)
    hidden = bank.hidden[torch.from_numpy(histories).to(device)]
    as_is = timed(lambda: bank.scores(*pairs), device)
    with torch.inference_mode():
        log_z = timed(lambda: neural.model.output.log_z(hidden), device)

    def step() -> None:
        bank.drop(bank.grow(histories, pairs[1][:batch]))

    body = timed(step, device)
    add(
        what="output",
        scores="as they are",
        batch=batch,
        words=batch * WORDS,
        seconds=as_is,
        ratio=(as_is + log_z) / as_is,
    )
    add(what="output", scores="normalized", batch=batch, words=batch * WORDS, seconds=as_is + log_z)
    add(what="body", scores="-", batch=batch, steps=batch, seconds=body)
    bound = (body + log_z) / body

    end_to_end(neural, group[:2], batch, 500_000)  # warm
    plain = end_to_end(neural, group, batch, 500_000)
    if not on_gpu:  # the first of them is enough, one at a time
        group = group[:1]
    single = end_to_end(neural, group[:1], 1, 1)
    neural.normalized()
    end_to_end(neural, group[:1], batch, 500_000)
    normalized = end_to_end(neural, group, batch, 500_000)
    ratio = plain["arcs_per_second"] / normalized["arcs_per_second"]
    add(what="lattices", scores="as they are", batch=batch, **plain, ratio=ratio, bound=bound, peak_mib=peak(on_gpu))
    add(what="lattices", scores="normalized", batch=batch, **normalized, peak_mib=peak(on_gpu))
    add(what="one", scores="as they are", batch=1, **single, ratio=plain["arcs_per_second"] / single["arcs_per_second"])
    if options.many:
        neural.model.output.normalize = False
        del group
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        streamed = end_to_end(neural, many(options.many, size, options.of), batch, 500_000)
        add(what="many", scores="as they are", batch=batch, **streamed, peak_mib=peak(on_gpu))
    print(append("rescoring", rows))


def peak(on_gpu: bool) -> float:
    """MiB: of the GPU, or of this process."""
    if on_gpu:
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
