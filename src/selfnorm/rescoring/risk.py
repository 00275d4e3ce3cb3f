"""The hypothesis with the fewest errors to be expected, where the best path has the largest probability to have none.

The n best hypotheses are weighed by their posterior at the recogniser's own LM scale, and each is compared with all
others as if they were what was said (minimum Bayes risk, Goel and Byrne 2000).
"""

from itertools import product

import numpy as np

from selfnorm.lattices.paths import n_best, words_of
from selfnorm.rescoring.setting import Rescored, Setting
from selfnorm.wer import error_counts

MOST = 50  # hypotheses that are compared with each other


def least_risk(rescored: Rescored, setting: Setting, most: int = MOST) -> tuple[int, ...]:
    """The arcs of the hypothesis."""
    lattice = rescored.lattice
    paths = n_best(lattice, most, rescored.totals(setting))
    totals = np.array([path.score for path in paths]) / setting.temperature(lattice)
    posterior = np.exp(totals - np.logaddexp.reduce(totals))
    said = [words_of(lattice, path.arcs) for path in paths]
    pairs = list(product(said, said))  # what might be chosen, what might have been said
    errors = error_counts([reference for _, reference in pairs], [chosen for chosen, _ in pairs])
    # One after the other: a matrix product rounds equal risks differently, and the first of several is meant.
    risks = sum(p * each for p, each in zip(posterior, errors.reshape(len(said), -1).T))
    return paths[int(np.argmin(risks))].arcs
