"""An n-gram model as tables: a key for each n-gram, found by its hash.

The key of an n-gram is the rank of its history (an n-gram of one word less, itself in a table) times the number of
unigrams plus its last word: 64 bits hold it at any order. Keys are sorted by their hash, and `first` says where each
bucket of hashes starts, so a look-up reads one or two keys wherever in the table they lie.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from selfnorm.vocabulary import Vocabulary

Ids = npt.NDArray[np.int64]
Logs = npt.NDArray[np.float32]
Buckets = npt.NDArray[np.uint32]  # where each starts; one more than buckets

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
NOTHING_FOLLOWS = np.float32(-0.0).view(np.uint32)  # the back-off 0 of an n-gram that is no history: spelled -0


@dataclass(frozen=True)
class Level:
    """The n-grams of one order; n-gram number i has key i, log probability i and back-off i."""

    keys: Ids  # none for unigrams: there the rank is the word's id
    first: Buckets
    log_probs: Logs
    backoffs: Logs  # none for the highest order

    def __len__(self) -> int:
        return len(self.log_probs)

    def find(self, keys: Ids) -> Ids:
        """The rank of each key, -1 where there is no such n-gram."""
        return find(self.keys, self.first, keys)


@dataclass(frozen=True)
class Index:
    """The tables of a model and its words; `<s>` has the id behind all others, as in a neural model."""

    vocabulary: Vocabulary
    levels: tuple[Level, ...]

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def size(self) -> int:
        """Unigrams, `<s>` among them."""
        return len(self.vocabulary) + 1


def find(table: Ids, first: Buckets, keys: Ids) -> Ids:
    """Where each key stands in a table that was sorted by `sort`; -1 where it does not."""
    bucket = _bucket(hashed(keys), len(first) - 1)
    here, end = first[bucket].astype(np.int64), first[bucket + 1].astype(np.int64)
    ranks, left = np.full(len(keys), -1, np.int64), np.arange(len(keys))
    if not len(table):
        return ranks
    np.minimum(here, len(table) - 1, out=here)  # an empty bucket's place holds a key of another: no harm in looking
    while len(left):  # as often as the fullest bucket has keys; most are done after one or two rounds
        hit = table[here] == keys
        ranks[left[hit]] = here[hit]
        here += 1
        on = np.flatnonzero((here < end) & ~hit)
        left, keys, here, end = left[on], keys[on], here[on], end[on]
    return ranks


def sort(keys: Ids) -> tuple[Ids, Buckets]:
    """The order of keys by their hashes, in which equal ones stand side by side, and the buckets."""
    hashes, buckets = hashed(keys), buckets_for(len(keys))
    first = np.zeros(buckets + 1, np.uint32)
    np.cumsum(np.bincount(_bucket(hashes, buckets), minlength=buckets), out=first[1:], dtype=np.uint32)
    return np.argsort(hashes), first


def buckets_for(count: int) -> int:
    """One or two keys in each bucket, on average."""
    return max(2, 1 << count.bit_length() >> 1)


def hashed(keys: Ids) -> npt.NDArray[np.uint64]:
    """Every step can be undone, so different keys have different hashes."""
    mixed = keys.view(np.uint64) * _MIX
    mixed ^= mixed >> _HALF
    mixed *= _MIX
    return mixed


def _bucket(hashes: npt.NDArray[np.uint64], buckets: int) -> Ids:
    """Which of so many buckets, a power of 2, holds a key of this hash; buckets are in the order of the hashes."""
    return (hashes >> np.uint64(65 - buckets.bit_length())).view(np.int64)
