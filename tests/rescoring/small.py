"""Small lattices and small scorers with random numbers in them."""

import random

import hypothesis.strategies as st
import numpy as np
import torch
from slow_ngram import random_model, render

from selfnorm.lattices.lattice import Scales, assemble
from selfnorm.models import MODELS
from selfnorm.scorers import Neural, NGram
from selfnorm.vocabulary import END, Vocabulary

WORDS = ["w0", "w1", "w2", "w3", "w4"]  # the n-gram's; "new" is known to nobody
OPTIONS = {
    "lstm": {"layers": 2, "hidden": 8, "embedding": 6},
    "transformer": {"layers": 2, "hidden": 8, "feed_forward": 8, "heads": 2, "embedding": 8, "positions": "rotary"},
}


def neural(name="lstm", histories="sentences", normalize=False, seed=3):
    vocabulary = Vocabulary.from_counts({END: 5} | {word: 9 - rank for rank, word in enumerate(WORDS)})
    generator = torch.random.manual_seed(seed)
    model = MODELS[name](len(vocabulary), **OPTIONS[name], normalize=normalize)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.7, generator=generator)
    return Neural(model, vocabulary, {"histories": histories, "criterion": "mode3"})


def ngram(folder, order=3, seed=1):
    path = folder / "lm.arpa"
    path.write_text(render(random_model(random.Random(seed), order, len(WORDS), 0.6)))
    return NGram.load(path)


@st.composite
def lattices(draw, most_nodes=7, most_arcs=14, words=("", *WORDS, "new"), end=True):
    """Any graph that goes forward, with words, silence and unknown words; the end of the sentence here or nowhere."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, most_nodes + 1))
    arcs = [(n, int(rng.integers(n + 1, nodes))) for n in range(nodes - 1)]
    arcs += [(int(rng.integers(0, n)), n) for n in range(1, nodes)]
    for _ in range(int(rng.integers(0, most_arcs - len(arcs) + 1)) if most_arcs > len(arcs) else 0):
        source = int(rng.integers(0, nodes - 1))
        arcs.append((source, int(rng.integers(source + 1, nodes))))
    said = [str(rng.choice(words)) for _ in arcs]
    closing = end and rng.random() < 0.5
    if closing:
        arcs.append((nodes - 1, nodes))
        said.append(END)
    count = len(arcs)
    return assemble(
        f"random-{seed}",
        nodes=nodes + closing,
        start=0,
        end=nodes - 1 + closing,
        sources=[source for source, _ in arcs],
        targets=[target for _, target in arcs],
        words=said,
        acoustic=rng.normal(0, 4, count),
        lm=rng.normal(-3, 2, count),
        scales=Scales(lm=float(rng.uniform(0.2, 3)), penalty=float(rng.normal())),
        times=None if rng.random() < 0.5 else np.sort(rng.uniform(0, 3, nodes + closing)),
    )


def paths(lattice):
    """Every path, by brute force."""
    leaving = [[] for _ in range(lattice.nodes)]
    for arc, source in enumerate(lattice.sources.tolist()):
        leaving[source].append(arc)

    def walk(node, before):
        if node == lattice.nodes - 1:
            yield before
        for arc in leaving[node]:
            yield from walk(int(lattice.targets[arc]), [*before, arc])

    return list(walk(0, []))
