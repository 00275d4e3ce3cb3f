"""Transformer: pre-norm, decoder only, causal attention; a cache of keys and values to go on from."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from selfnorm.models.linear import Linear
from selfnorm.models.model import SPREAD, Model, check_dropout, check_sizes
from selfnorm.ops import is_short, short_attention
from selfnorm.registry import named

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU}
LONGEST_WAVE = 10000.0
VARIANTS = 32  # of a block that is compiled: trained or not; one word, few or many; with a history or without

Turn = tuple[Tensor, Tensor]  # cosine and sine


class State(NamedTuple):
    """Keys and values of each layer. Shorter histories are padded on the left, so that new inputs go on the right."""

    past: tuple[Tensor, ...]  # of each layer [B, S, 2, heads, D]
    lengths: Tensor  # [B]  how many inputs each history has had
    padding: Tensor | None = None  # [B]  how many of the S are padding; None: none in any row

    @property
    def columns(self) -> int:  # S
        return self.past[0].shape[1]


class Transformer(Model):
    """The paper's model for Librispeech (42 layers of 512, feed-forward 2048, 8 heads, no positional encoding).

    A detached state keeps the last `memory` inputs: a stream that is carried on for ever must not grow for ever.
    """

    small_state = False
    deep = True

    def __init__(
        self,
        size: int,
        layers: int = 6,
        hidden: int = 512,
        feed_forward: int = 2048,
        heads: int = 8,
        embedding: int = 512,
        dropout: float = 0.0,
        positions: str = "none",
        tied: bool = False,
        sparse: bool = False,
        activation: str = "gelu",
        memory: int = 512,
        link: str = "logsigmoid",
        normalize: bool = False,
    ) -> None:
        check_sizes(size=size, layers=layers, hidden=hidden, embedding=embedding)
        check_sizes(feed_forward=feed_forward, heads=heads, memory=memory)
        check_dropout(dropout)
        if hidden % heads:
            raise ValueError(f"{heads} heads cannot share a hidden size of {hidden}; choose heads that divide it")
        waved = named("positional encoding", {"none": 0, "sinusoidal": hidden, "rotary": hidden // heads}, positions)
        if waved % 2:
            raise ValueError(f"{positions} positions need an even size, not {waved}; choose another hidden or heads")
        super().__init__(size, hidden, embedding, tied=tied, sparse=sparse, link=link, normalize=normalize)
        self.heads, self.positions, self.memory = heads, positions, memory
        self.into = nn.Identity() if embedding == hidden else Linear(embedding, hidden, bias=False)
        block = partial(Block, hidden, feed_forward, heads, dropout, activation, scale=1 / math.sqrt(2 * layers))
        self.blocks = nn.ModuleList(block() for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.dropout = nn.Dropout(dropout)

    def forward(self, inputs: Tensor, state: State | None = None) -> Tensor:
        return self._through(inputs, state, keep=False)[0]

    def advance(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        return self._through(inputs, state, keep=True)

    def _through(self, inputs: Tensor, state: State | None, keep: bool) -> tuple[Tensor, State]:
        """All blocks; `keep` hands on their keys and values, which cost memory and, in training, a gradient."""
        batch, length = inputs.shape
        if state is None:
            state = self.start(batch, inputs.device)
        hidden = _cast(self.into(self.embedding(inputs, self.output)))  # [B, T, H]
        turn = None
        if self.positions == "sinusoidal":
            hidden = hidden + SPREAD * torch.cat(waves(state.lengths, length, self.width), -1).to(hidden.dtype)
        if self.positions == "rotary":
            turn = waves(state.lengths, length, self.width // self.heads)
        hidden = self.dropout(hidden)
        seen = visible(state, length)
        past = []
        for block, before in zip(self.blocks, state.past):
            hidden, after = block(hidden, before, seen, turn, keep)
            past.append(after)
        hidden = self.norm(hidden).to(hidden.dtype)  # autocast would leave float32 here
        return hidden, State(tuple(past), state.lengths + length, state.padding)

    @property
    def layers(self) -> Sequence[nn.Module]:
        return list(self.blocks)

    def compile_parts(self) -> None:
        import torch._dynamo.config as compiler

        self.compiled = True
        compiler.recompile_limit = max(compiler.recompile_limit, VARIANTS)
        for block in self.blocks:
            block.compile()

    def start(self, batch: int, device: torch.device | str | None = None) -> State:
        weight = self.norm.weight
        none = weight.new_empty(batch, 0, 2, self.heads, self.width // self.heads, device=device or weight.device)
        return State((none,) * len(self.blocks), torch.zeros(batch, dtype=torch.long, device=none.device))

    def select(self, state: State, index: Tensor) -> State:
        past = tuple(rows.index_select(0, index) for rows in state.past)
        lengths = state.lengths.index_select(0, index)
        if state.padding is None or not len(index):
            return State(past, lengths)
        padding = state.padding.index_select(0, index)
        spare, most = torch.stack(padding.aminmax()).tolist()  # columns that are padding in every row go
        return State(tuple(rows[:, spare:] for rows in past), lengths, padding - spare if most > spare else None)

    def join(self, states: Sequence[State]) -> State:
        columns = max(state.columns for state in states)
        past = tuple(
            torch.cat([F.pad(rows, (0, 0, 0, 0, 0, 0, columns - rows.shape[1], 0)) for rows in layer])
            for layer in zip(*(state.past for state in states))
        )
        lengths = torch.cat([state.lengths for state in states])
        if all(state.padding is None and state.columns == columns for state in states):
            return State(past, lengths)
        padding = [
            columns - state.columns + (torch.zeros_like(state.lengths) if state.padding is None else state.padding)
            for state in states
        ]
        return State(past, lengths, torch.cat(padding))

    def put(self, state: State, index: Tensor, rows: State) -> State:
        kept = torch.ones(len(state.lengths), dtype=torch.bool, device=index.device).index_fill_(0, index, False)
        others = kept.nonzero()[:, 0]
        order = torch.cat([others, index])  # where each row of the joined batch belongs
        joined = self.join([self.select(state, others), rows])
        return self.select(
            joined, torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
        )

    def detach(self, state: State) -> State:
        past = tuple(rows[:, -self.memory :].detach() for rows in state.past)
        gone = max(state.columns - self.memory, 0)
        return State(past, state.lengths, None if state.padding is None else (state.padding - gone).clamp(min=0))


class Block(nn.Module):
    """hidden + attention(norm(hidden)), then hidden + feed_forward(norm(hidden))"""

    def __init__(
        self, width: int, feed_forward: int, heads: int, dropout: float, activation: str, *, scale: float
    ) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = Linear(width, 3 * width)
        self.mix = Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.widen = Linear(width, feed_forward)
        self.activation = named("activation", ACTIVATIONS, activation)()
        self.narrow = Linear(feed_forward, width)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():  # what a block adds starts small: the sum over many must not grow with their number
            for last in (self.mix, self.narrow):
                last.weight.mul_(scale)
                last.bias.zero_()

    def forward(
        self, hidden: Tensor, past: Tensor, seen: Tensor | None, turn: Turn | None, keep: bool
    ) -> tuple[Tensor, Tensor]:
        mixed, new = self.attend(self.attention_norm(hidden), past, seen, turn)
        hidden = hidden + self.dropout(mixed)
        wide = self.activation(self.widen(self.feed_forward_norm(hidden)))
        return hidden + self.dropout(self.narrow(wide)), new if keep else past

    def attend(self, hidden: Tensor, past: Tensor, seen: Tensor | None, turn: Turn | None) -> tuple[Tensor, Tensor]:
        three = self.query_key_value(hidden).unflatten(-1, (3, self.heads, -1))  # [B, T, 3, heads, D]
        if turn is not None:
            three = torch.cat([turned(three[:, :, :2], turn), three[:, :, 2:]], 2)
        new, fresh = three[:, :, 1:], not past.shape[1]
        if fresh and seen is None and is_short(three):
            return self.mix(short_attention(three)), new
        query, key, value = three.unbind(2)
        past = new if fresh else torch.cat([past.to(new.dtype), new], 1)  # [B, S + T, 2, heads, D]
        if not fresh:
            key, value = past.unbind(2)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))  # [B, heads, …, D]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, is_causal=fresh)
        return self.mix(mixed.transpose(1, 2).flatten(2)), past


def _cast(hidden: Tensor) -> Tensor:
    """In autocast's dtype: the sum that runs through all blocks would be float32 for ever, at twice the bytes."""
    kind = hidden.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return hidden.to(torch.get_autocast_dtype(kind))
    return hidden


def visible(state: State, length: int) -> Tensor | None:
    """Which of the S + T columns each new input may see: [B or 1, 1, T, S + T]; None where that needs no mask."""
    columns = state.columns
    if state.padding is None and (not columns or length == 1):
        return None  # causal, or all
    column = torch.arange(columns + length, device=state.past[0].device)
    seen = (column <= column[columns:, None])[None, None]
    if state.padding is not None:
        seen = seen & (column >= state.padding[:, None, None, None])
    return seen


def waves(lengths: Tensor, more: int, size: int) -> Turn:
    """Cosine and sine of the positions after `lengths` at size / 2 wavelengths: each [B, T, size / 2], float32."""
    position = lengths[:, None] + torch.arange(more, device=lengths.device)
    rate = LONGEST_WAVE ** -(torch.arange(0, size, 2, dtype=torch.float64, device=lengths.device) / size)
    angle = position[..., None] * rate  # float64: far along a stream float32 has lost the fast waves
    return angle.cos().float(), angle.sin().float()


def turned(vectors: Tensor, turn: Turn) -> Tensor:
    """Rotary positions: each pair of coordinates turned by the angle of its position."""
    cos, sin = (part[:, :, None, None] for part in turn)  # alike for query and key, and for all heads
    a, b = vectors.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(vectors.dtype)
