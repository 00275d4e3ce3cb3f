"""An ARPA file -> an index: keys from the ranks of histories, order by order."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from selfnorm.ngrams.arpa import Arpa, Rows, open_arpa
from selfnorm.ngrams.columns import BadRow, shown
from selfnorm.ngrams.index import NOTHING_FOLLOWS, Ids, Index, Level, Logs, sort
from selfnorm.vocabulary import Vocabulary

NO_LOGS = np.zeros(0, np.float32)
NO_KEYS, NO_BUCKETS = np.zeros(0, np.int64), np.zeros(0, np.uint32)


def build(path: Path) -> Index:
    """Read an ARPA file; the history of every n-gram must be one."""
    with open_arpa(path) as arpa:
        levels: list[Level] = []
        for order in range(1, arpa.order + 1):
            try:
                keys, log_probs, backoffs = _read(arpa, order, levels)
                level = table(keys, log_probs, backoffs) if levels else _unigrams(arpa.start, log_probs, backoffs)
            except BadRow as error:
                raise arpa.error(order, error) from None
            if levels:
                levels[-1] = _marked(levels[-1], keys // len(levels[0]))
            levels.append(replace(level, backoffs=NO_LOGS) if order == arpa.order else level)
        arpa.end()
    return Index(Vocabulary([word.decode() for word in arpa.words[:-1]]), tuple(levels))


def _read(arpa: Arpa, order: int, levels: list[Level]) -> tuple[Ids, Logs, Logs]:
    """The n-grams of one order, as the file has them."""
    keys, log_probs, backoffs = [NO_KEYS], [NO_LOGS], [NO_LOGS]
    for rows in arpa.rows(order):
        keys.append(_keys(rows, levels, arpa.words) if levels else NO_KEYS)
        log_probs.append(rows.log_probs)
        backoffs.append(rows.backoffs)
    return np.concatenate(keys), np.concatenate(log_probs), np.concatenate(backoffs)


def _keys(rows: Rows, levels: list[Level], words: list[bytes]) -> Ids:
    size = len(levels[0])
    history = rows.words[:, 0]
    for level, word in zip(levels[1:], rows.words.T[1:-1]):
        history = level.find(history * size + word)
        if len(bad := np.flatnonzero(history < 0)):
            missing = b" ".join(words[id] for id in rows.words[bad[0], :-1].tolist())
            what = f"its history {shown(missing)} is no n-gram of the file; add it, or restore the file"
            raise BadRow(rows.first + int(bad[0]), what)
    return history * size + rows.words[:, -1]


def _unigrams(start: int, log_probs: Logs, backoffs: Logs) -> Level:
    """Ids are ranks, but for `<s>`, which moves behind all others."""
    moved = np.r_[np.delete(np.arange(len(log_probs)), start), start]
    return Level(NO_KEYS, NO_BUCKETS, log_probs[moved], backoffs[moved])


def table(keys: Ids, log_probs: Logs, backoffs: Logs) -> Level:
    """Sort n-grams by the hash of their keys."""
    order, first = sort(keys)
    keys = keys[order]
    if len(twins := np.flatnonzero(keys[1:] == keys[:-1])):
        raise BadRow(int(order[twins[0] : twins[0] + 2].max()), "this n-gram was there before; keep one line for each")
    return Level(keys, first, log_probs[order], backoffs[order])


def _marked(level: Level, histories: Ids) -> Level:
    """Tell the n-grams that no longer one starts with from those with a back-off of 0: their 0 is spelled -0."""
    follows: npt.NDArray[np.bool_] = np.zeros(len(level), bool)
    follows[histories] = True
    marked = level.backoffs.copy()
    marked.view(np.uint32)[~follows & (marked == 0)] = NOTHING_FOLLOWS
    return replace(level, backoffs=marked)
