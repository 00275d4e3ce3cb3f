"""What the readers' tests share: lattices from a few words, equality in every field, and the toy lattice."""

import numpy as np

from selfnorm.lattices.lattice import Scales, assemble
from selfnorm.vocabulary import END

COLUMNS = ("sources", "targets", "acoustic", "lm", "pronunciation", "times")


def differences(one, other):
    """The names of the fields in which two lattices differ; `notes` are about reading and do not count."""
    names = [name for name in COLUMNS if not _equal(getattr(one, name), getattr(other, name))]
    rest = ("utterance", "words", "scales", "extra", "header")
    return names + [name for name in rest if getattr(one, name) != getattr(other, name)]


def _equal(one, other):
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other)


def toy(**changes):
    """0 -(silence)- 1 -a|b- 2 -c- 3 -</s>- 4, and a short cut 1 -d- 3: three paths."""
    fields = {
        "nodes": 5,
        "start": 0,
        "end": 4,
        "sources": [0, 1, 1, 1, 2, 3],
        "targets": [1, 2, 2, 3, 3, 4],
        "words": ["", "a", "b", "d", "c", END],
        "acoustic": [-1.0, -2.5, -2.25, -7.0, -3.0, -0.1],
        "lm": [0.0, -1.0, -1.5, -2.0, -0.5, -0.25],
        "times": [0.0, 0.1, 0.3, 0.7, 0.7],
        "scales": Scales(1.0, 10.0, 1.0, -0.5),
    }
    return assemble("toy", **{**fields, **changes})
