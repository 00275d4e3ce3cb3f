"""Lattices for the tests of Kaldi's archives, and what equal means."""

import random

import numpy as np

from selfnorm.lattices.lattice import SILENT, Lattice, assemble

WORDS = ["a", "für", "it's", "日本", "<unk>", SILENT, SILENT]
SHIFT = 0.01


def words_file(folder, words=("a", "für", "it's", "日本", "<unk>", "7", "0")):
    """A words.txt whose ids have gaps."""
    path = folder / "words.txt"
    rows = [f"{word} {3 * place + 3}\n" for place, word in enumerate(words)]
    path.write_text("<eps> 0\n" + "".join(rows), encoding="utf-8")
    return path


def random_lattice(seed: int, *, compact: bool = True, labels: bool = True, words=WORDS) -> Lattice:
    """Connected from 0 to its end, scores exact in 32 bits; with labels, every node has its time."""
    rng = random.Random(seed)
    nodes = rng.randint(2, 8)
    frames = [0]
    for _ in range(nodes - 1):
        frames.append(frames[-1] + (rng.randint(1, 3) if compact else 1))
    pairs = [(node, node + 1) for node in range(nodes - 1)]
    if compact:  # a Lattice has one frame on an arc, and so no arc over two of ours
        pairs += [tuple(sorted(rng.sample(range(nodes), 2))) for _ in range(rng.randint(0, 10))]
    else:
        pairs += [rng.choice(pairs) for _ in range(rng.randint(0, 10))]
    extra = {}
    if labels and compact:
        lengths = [frames[target] - frames[source] for source, target in pairs]
        extra = {"alignment": ["_".join(str(rng.randint(1, 9999)) for _ in range(length)) for length in lengths]}
    elif labels:
        extra = {"input": [str(rng.randint(1, 9999)) for _ in pairs]}
    scores = np.array([[rng.choice([0.0, rng.uniform(-100, 5)]) for _ in pairs] for _ in range(2)], np.float32)
    lattice = assemble(
        f"utt-{seed}",
        nodes=nodes,
        start=0,
        end=nodes - 1,
        sources=[source for source, _ in pairs],
        targets=[target for _, target in pairs],
        words=[rng.choice(words) for _ in pairs],
        acoustic=scores[0].astype(np.float64),
        lm=scores[1].astype(np.float64),
        times=[SHIFT * frame for frame in frames] if labels else None,
        extra=extra,
        header={"kind": "compact" if compact else "lattice"},
    )
    return Lattice(**{**vars(lattice), "notes": ()})


def differences(one: Lattice, other: Lattice) -> list[str]:
    """The fields in which two lattices are not the same."""
    return [name for name in vars(one) if not _same(getattr(one, name), getattr(other, name))]


def _same(one, other) -> bool:
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else one == other
