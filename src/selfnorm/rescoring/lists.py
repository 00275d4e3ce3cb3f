"""N-best lists as lattices: a tree of prefixes, so that what hypotheses share is scored once.

Some recognisers write the limits of the sentence into their texts; they are no words.
"""

import numpy as np

from selfnorm.lattices.lattice import Lattice, Scales
from selfnorm.lattices.nbest import NBest
from selfnorm.vocabulary import END, START

NUMBER = "hypothesis"  # of the list, on the arc of `</s>` that ends it


def tree(nbest: NBest) -> Lattice:
    """Every hypothesis is a path; its own scores are on its last arc."""
    nodes: dict[tuple[int, str], int] = {}
    sources, targets, words = [], [], []
    ends: list[int] = []
    for hypothesis in nbest.hypotheses:
        node = 0
        for word in (word for word in hypothesis.words if word not in (START, END)):
            if (node, word) not in nodes:
                nodes[node, word] = len(nodes) + 1
                sources.append(node)
                targets.append(nodes[node, word])
                words.append(word)
            node = nodes[node, word]
        ends.append(node)
    last, inner = len(nodes) + 1, len(sources)
    scores = np.zeros((2, inner + len(ends)))
    scores[0, inner:] = [hypothesis.acoustic for hypothesis in nbest.hypotheses]
    scores[1, inner:] = [hypothesis.lm or 0.0 for hypothesis in nbest.hypotheses]
    lattice = Lattice(
        nbest.utterance,
        np.array(sources + ends),
        np.array(targets + [last] * len(ends)),
        (*words, *[END] * len(ends)),
        scores[0],
        scores[1],
        scales=Scales(),
        extra={NUMBER: (*[""] * inner, *map(str, range(len(ends))))},
    )
    return lattice.keep(np.arange(lattice.arcs), lattice.sources, lattice.targets, None)
