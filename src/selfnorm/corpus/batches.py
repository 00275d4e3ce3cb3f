"""Token store -> batches. `batch(epoch, index)` depends on nothing but the seed and its arguments.

So a step number is all that a checkpoint has to know of the data. Where several ranks train together a batch is that of
all, and each takes its own run of the batch's sequences without asking the others: whatever their number, and however
it changes, every sequence is seen once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from selfnorm.corpus.store import TokenStore

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Share:
    """Where the sequences of one rank stand in the batch of all ranks."""

    first: int  # sequence of the batch
    sequences: int  # of the batch
    before: int  # positions of the batch before ours
    positions: int  # of the batch
    targets: int = 0  # different ones among ours, and of the inputs
    inputs: int = 0


@dataclass(frozen=True)
class Batch:
    """B sequences of at most T positions; the N real positions are those of the targets, sequence by sequence."""

    inputs: Tensor  # [B, T]  the word before each position
    real: Tensor  # [N]  where among the B x T places the real positions stand: an index needs no host sync, a mask does
    targets: Tensor  # [N]
    lengths: tuple[int, ...]  # B real positions per sequence, N in all
    share: Share | None = None  # None: it is the whole batch

    @property
    def positions(self) -> int:
        """Of all ranks together."""
        return len(self.targets) if self.share is None else self.share.positions

    def of_real(self, hidden: Tensor) -> Tensor:
        """The hidden vectors of the real positions, without padding: [B, T, H] -> [N, H]"""
        flat = hidden.flatten(0, 1)
        return flat if len(self.real) == len(flat) else flat.index_select(0, self.real)

    def bounds(self, groups: int) -> tuple[int, ...]:
        """Where `groups` even groups of the whole batch's sequences begin and end among our N positions."""
        ends = (0, *accumulate(self.lengths))
        first, total = (0, len(self.lengths)) if self.share is None else (self.share.first, self.share.sequences)
        cuts = (total * group // groups - first for group in range(groups + 1))
        return tuple(ends[min(max(cut, 0), len(self.lengths))] for cut in cuts)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin(self) -> Self:
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, inputs=change(self.inputs), real=change(self.real), targets=change(self.targets))


class Batches(Protocol):
    cut: int  # sentences in pieces, each with a history of its own

    @property
    def steps_per_epoch(self) -> int: ...
    def batch(self, epoch: int, index: int) -> Batch: ...


class Sentences:
    """Histories start fresh: a sequence is a sentence; inputs are `<s>` and its words, targets its words and `</s>`.

    A batch holds up to `positions` (8192), padding (a tenth at most) included, or `sequences`. Sentences of more than
    `max_length` positions are cut into pieces (`cut` says how many sentences are); a later piece starts with the
    word before it. Of `ranks`, this is number `rank`.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        positions: int | None = None,
        sequences: int | None = None,
        max_length: int = 256,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if positions is not None and sequences is not None:
            raise ValueError(f"batches hold {positions} positions or {sequences} sequences; leave one of them out")
        positions = 8192 if positions is None else positions
        if sequences is None and positions < max_length:
            what = f"a batch of {positions} positions has no room for a sentence of max_length={max_length}"
            raise ValueError(f"{what}; raise the one or lower the other")
        if max_length < 1 or (sequences is not None and sequences < 1):
            raise ValueError(f"batches need max_length and sequences above 0, not {max_length} and {sequences}")
        self.store, self.seed, self.rank, self.ranks = store, seed, rank, ranks
        self.begin, self.length = _pieces(store, max_length)  # [pieces]
        self.cut = int((store.lengths > max_length).sum())
        self.bounds = _bounds(self.length[_by_length(self.length)], positions, sequences)  # [steps + 1]
        self._plan = lru_cache(maxsize=2)(self._plan_of)  # two: the next epoch is begun ahead of time

    @property
    def steps_per_epoch(self) -> int:
        return len(self.bounds) - 1

    def batch(self, epoch: int, index: int) -> Batch:
        order, batches = self._plan(epoch)
        which = batches[_checked(index, self)]
        chosen = order[self.bounds[which] : self.bounds[which + 1]]
        begin, length = self.begin[chosen], self.length[chosen]
        if self.ranks == 1:
            return _batch(self.store, begin, length)
        mine, share = _share(length, self.rank, self.ranks)
        if mine.start < mine.stop:
            return _of_rank(_batch(self.store, begin[mine], length[mine]), share)
        return _of_rank(_nothing(_batch(self.store, begin[:1], length[:1])), share)  # it takes part all the same

    def _plan_of(self, epoch: int) -> tuple[Integers, Integers]:
        """The pieces by length, equals shuffled, and the order of the batches cut from them.

        Sorting all of them makes padding small and the cuts, hence the number of steps, the same in every epoch.
        """
        chance = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        shuffled = chance.permutation(len(self.length))
        return shuffled[_by_length(self.length[shuffled])], chance.permutation(self.steps_per_epoch)


class Streams:
    """Histories run on: the text is cut into `sequences` equal streams, a batch is the next `steps` words of each.

    The first input of the text is `</s>`, that of a later stream the word before it; every word is a target once.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        sequences: int = 20,
        steps: int = 20,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        if sequences < 1 or steps < 1:
            raise ValueError(f"streams need sequences and steps above 0, not {sequences} and {steps}")
        if len(store.ids) < sequences:
            raise ValueError(f"a text of {len(store.ids)} words cannot be cut into {sequences} streams; take fewer")
        if sequences < ranks:
            raise ValueError(f"{ranks} processes cannot share {sequences} streams; take fewer, or more sequences")
        self.rank, self.ranks = rank, ranks
        self.store, self.steps = store, steps  # there is no chance in it: `seed` is here so that all are built alike
        bounds = np.arange(sequences + 1) * len(store.ids) // sequences
        self.begin, self.length = bounds[:-1], np.diff(bounds)  # [sequences]; lengths differ by one at most
        self.cut = 0

    @property
    def steps_per_epoch(self) -> int:
        return -(-int(self.length.max()) // self.steps)

    def batch(self, epoch: int, index: int) -> Batch:
        done = _checked(index, self) * self.steps
        length = np.clip(self.length - done, 0, self.steps)
        width = int(length.max())
        mine, share = _share(length, self.rank, self.ranks)
        batch = _batch(self.store, (self.begin + done)[mine], length[mine], width, stream=True)
        return batch if self.ranks == 1 else _of_rank(batch, share)


BATCHES = {"sentences": Sentences, "streams": Streams}


def evaluation_batches(store: TokenStore, positions: int = 8192) -> Iterator[tuple[Batch, Integers]]:
    """Every sentence once, in order of length, with the places [N] of the targets in `store.ids`.

    Results come back in the order of the text by `values[places] = results`. A sentence longer than `positions` is a
    batch of its own.
    """
    begin, length = np.asarray(store.starts[:-1]), store.lengths
    order = _by_length(length)
    bounds = _bounds(length[order], positions, None)
    for first, last in pairwise(bounds):
        chosen = order[first:last]
        places = _ranges(begin[chosen], length[chosen])
        yield _batch(store, begin[chosen], length[chosen]), places


def _checked(index: int, batches: Batches) -> int:
    if not 0 <= index < batches.steps_per_epoch:
        raise IndexError(f"batch {index} of an epoch of {batches.steps_per_epoch}")
    return index


def _pieces(store: TokenStore, max_length: int) -> tuple[Integers, Integers]:
    """Where the sentences, cut at `max_length`, begin in the store, and how long they are."""
    lengths = store.lengths
    if len(lengths) == 0 or int(lengths.max()) <= max_length:
        return np.asarray(store.starts[:-1]), lengths
    pieces = -(-lengths // max_length)
    number = _ranges(np.zeros_like(pieces), pieces)  # of each piece in its sentence
    begin = np.repeat(store.starts[:-1], pieces) + number * max_length
    return begin, np.minimum(np.repeat(store.starts[1:], pieces) - begin, max_length)


def _by_length(length: Integers) -> Integers:
    """Shortest first, equals as they come; NumPy sorts 16 bits by radix, ten times faster than 64."""
    short = len(length) == 0 or int(length.max()) < 1 << 16
    return np.argsort(length.astype(np.uint16) if short else length, kind="stable")


def _ranges(begin: Integers, length: Integers) -> Integers:
    """begin_0, begin_0 + 1, ... for length_0 numbers, then begin_1, ..."""
    before = np.cumsum(length) - length
    return np.arange(int(length.sum()), dtype=np.int64) + np.repeat(begin - before, length)


def _bounds(rising: Integers, positions: int, sequences: int | None) -> Integers:
    """Cut sequences of rising length into batches: so many sequences, or at most so many positions, a tenth padding."""
    if sequences is not None:
        return np.append(np.arange(0, len(rising), sequences), len(rising))
    real = np.concatenate(([0], np.cumsum(rising)))  # positions before each sequence

    def fits(first: int, last: int) -> bool:
        padded = (last - first) * int(rising[last - 1])
        return padded <= positions and 10 * int(real[last] - real[first]) >= 9 * padded

    bounds = [0]
    while (first := bounds[-1]) < len(rising):
        low, high = first + 1, min(first + max(1, positions // int(rising[first])), len(rising))
        while low < high:  # a sequence alone is a batch whatever its length; beyond that, the last that fits
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits(first, middle) else (low, middle - 1)
        bounds.append(low)
    return np.array(bounds)


def _share(length: Integers, rank: int, ranks: int) -> tuple[slice, Share]:
    """The sequences of a rank among those of a batch."""
    cuts = [-(-len(length) * each // ranks) for each in range(ranks + 1)]  # of sentences the first rank has one
    share = Share(cuts[rank], len(length), int(length[: cuts[rank]].sum()), int(length.sum()))
    return slice(cuts[rank], cuts[rank + 1]), share


def _of_rank(batch: Batch, share: Share) -> Batch:
    counts = {"targets": len(batch.targets.unique()), "inputs": len(batch.inputs.unique())}
    return replace(batch, share=replace(share, **counts))


def _nothing(batch: Batch) -> Batch:
    """The same inputs without a position that counts: for a rank that finds no sequence left."""
    return replace(batch, real=batch.real[:0], targets=batch.targets[:0], lengths=(0,) * len(batch.lengths))


def _batch(
    store: TokenStore, begin: Integers, length: Integers, width: int | None = None, *, stream: bool = False
) -> Batch:
    """The sequences that begin at these places of the store."""
    width = width or int(length.max())
    places = begin[:, None] + np.arange(width)  # [B, T]  of the targets
    real = np.arange(width) < length[:, None]
    inputs = store.ids[np.clip(places - 1, 0, len(store.ids) - 1)].astype(np.int64)
    if stream:
        inputs[places == 0] = store.end
    else:
        first = store.ids[begin - 1] == store.end  # a place after </s>, not a later piece of a long sentence
        inputs[first | (begin == 0), 0] = store.start
    inputs[~real] = store.end
    return Batch(
        inputs=torch.from_numpy(inputs),
        real=torch.from_numpy(np.flatnonzero(real)),
        targets=torch.from_numpy(store.ids[places[real]].astype(np.int64)),
        lengths=tuple(length.tolist()),
    )
