"""What every model has: word vectors going in, hidden vectors coming out, an output layer, a state to go on from."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from selfnorm.models.linear import Linear, Pair
from selfnorm.ops import take
from selfnorm.output import Output

SPREAD = 0.1  # standard deviation of the word vectors, and about that of tied logits, before training

State = Any  # of a batch of histories; each model has its own kind


class Model(nn.Module):
    """inputs -> hidden: ids 0 to C - 1 are the words, id C is `<s>`, which is an input only.

    Right padding is harmless: no hidden vector depends on an input after its own.
    A state holds one history per row of the batch, and every input that went into it counts, padding too.
    """

    small_state: ClassVar[bool] = True  # of one size, however many words a history has
    deep: ClassVar[bool] = False  # many layers of small kernels: compiling them pays

    def __init__(
        self, size: int, width: int, embedding: int, *, tied: bool, sparse: bool, link: str, normalize: bool
    ) -> None:
        super().__init__()
        self.compiled = False
        self.size = size  # C
        self.width = width  # H
        self.output = Output(size, width, link=link, normalize=normalize, sparse=sparse)
        self.embedding = Embedding(self.output, embedding, tied=tied, sparse=sparse)

    def forward(self, inputs: Tensor, state: State = None) -> Tensor:
        """Hidden vectors [B, T, H] of the inputs [B, T]; histories start fresh or go on from `state`."""
        return self.advance(inputs, state)[0]

    def advance(self, inputs: Tensor, state: State = None) -> tuple[Tensor, State]:
        """Hidden vectors, and the state after the last input."""
        raise NotImplementedError

    def start(self, batch: int, device: torch.device | str | None = None) -> State:
        """The state before the first input."""
        raise NotImplementedError

    def select(self, state: State, index: Tensor) -> State:
        """These rows of the batch, in this order; a row may come more than once."""
        raise NotImplementedError

    def join(self, states: Sequence[State]) -> State:
        """One batch of the rows of all `states`; their histories may differ in length."""
        raise NotImplementedError

    def put(self, state: State, index: Tensor, rows: State) -> State:
        """The state with these rows of the batch replaced, which may happen in its own memory."""
        raise NotImplementedError

    @property
    def layers(self) -> Sequence[nn.Module]:
        """What can be spread over processes, layer by layer."""
        return ()

    def keep_half(self) -> list[Pair]:
        """From now on train by copies in half precision; which these are, beside their parameters."""
        return [pair for each in self.modules() if isinstance(each, Linear) for pair in each.keep_half()]

    def compile_parts(self) -> None:
        """Compile what gains by it; the first steps then take longer."""

    def detach(self, state: State) -> State:
        """The state to carry on a stream from: no gradient flows back through it, and it stays of bounded size."""
        raise NotImplementedError


class Embedding(nn.Module):
    """Vectors of the words and of `<s>`; tied, the words' vectors are the rows of the output times sqrt(H)."""

    def __init__(self, output: Output, width: int, *, tied: bool, sparse: bool) -> None:
        super().__init__()
        size, hidden = output.weight.shape
        if tied and width != hidden:
            raise ValueError(
                f"tied weights need an embedding as wide as the hidden vectors, not {width} beside {hidden}; "
                f"set embedding = {hidden} or tied = false"
            )
        self.size, self.tied, self.sparse = size, tied, sparse
        self.weight = nn.Parameter(torch.empty(1 if tied else size + 1, width))  # tied: `<s>` alone
        nn.init.normal_(self.weight, std=SPREAD)
        if tied:  # a table of zeros would make all words the same
            nn.init.normal_(output.weight, std=SPREAD / math.sqrt(hidden))

    def forward(self, inputs: Tensor, output: Output) -> Tensor:
        if not self.tied:
            return take(self.weight, inputs, self.sparse)
        start = inputs == self.size
        rows = take(output.weight, inputs.masked_fill(start, 0), self.sparse)
        return torch.where(start[..., None], self.weight, rows * math.sqrt(rows.shape[-1]))


def check_sizes(**sizes: int) -> None:
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} = {value!r}: a model needs a whole number above 0")


def check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout = {dropout!r}: it is the share of values set to 0, at least 0 and below 1")
