"""Small lattices and small scorers with random numbers in them."""

import random

import hypothesis.strategies as st
import numpy as np
import torch
from slow_ngram import random_model, render

from selfnorm.lattices.lattice import SILENT, Scales, assemble
from selfnorm.lattices.nbest import Hypothesis, NBest
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


def lattices(**options):
    """Any graph that goes forward, with words, silence and unknown words; the end of the sentence here or nowhere."""
    return st.integers(0, 2**32 - 1).map(lambda seed: drawn(seed, **options))


def drawn(seed, most_nodes=7, most_arcs=14, words=("", *WORDS, "new"), end=True):
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


def listed(lattice):
    """Every path as a hypothesis of a list, the best of the first pass first."""
    totals, found = lattice.total(), []
    for arcs in paths(lattice):
        words = tuple(lattice.words[arc] for arc in arcs if lattice.words[arc] not in (SILENT, END))
        found.append((totals[arcs].sum(), Hypothesis(words, lattice.acoustic[arcs].sum(), lattice.lm[arcs].sum())))
    found.sort(key=lambda pair: -pair[0])
    return NBest(lattice.utterance, tuple(hypothesis for _, hypothesis in found))


def planted(count=60, seed=1):
    """Lists whose errors are fewest where acoustic + 3 lm + 2 for each word is largest."""
    rng = np.random.default_rng(seed)
    items, references = [], {}
    for n in range(count):
        hypotheses, goodness = [], []
        for m in range(12):
            words = ("a",) * int(rng.integers(1, 8)) + (f"x{m}",)
            acoustic, lm = rng.normal(0, 9), rng.normal(0, 3)
            hypotheses.append(Hypothesis(words, acoustic, lm))
            goodness.append(acoustic + 3 * lm + 2 * len(words))
        items.append(NBest(f"u{n}", tuple(hypotheses)))
        references[f"u{n}"] = hypotheses[int(np.argmax(goodness))].words
    return items, references
