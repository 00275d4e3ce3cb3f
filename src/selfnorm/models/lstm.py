"""LSTM: embedding -> layers of LSTM -> hidden, with dropout on all connections but the recurrent ones."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from selfnorm.models.model import Model, check_dropout, check_sizes

State = tuple[Tensor, Tensor]  # h and c, each [layers, B, H]


class LSTM(Model):
    """The paper's model for Switchboard and EN (2 layers of 2048, embedding 128).

    With `init` all parameters start uniform in [-init, init] (Zaremba et al. 2014).
    """

    def __init__(
        self,
        size: int,
        layers: int = 2,
        hidden: int = 512,
        embedding: int = 128,
        dropout: float = 0.0,
        tied: bool = False,
        sparse: bool = False,
        init: float | None = None,
        link: str = "logsigmoid",
        normalize: bool = False,
    ) -> None:
        check_sizes(size=size, layers=layers, hidden=hidden, embedding=embedding)
        check_dropout(dropout)
        super().__init__(size, hidden, embedding, tied=tied, sparse=sparse, link=link, normalize=normalize)
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True, dropout=between)
        self.dropout = nn.Dropout(dropout)
        self.reset(init)

    def reset(self, init: float | None) -> None:
        if init is not None:
            for parameter in self.parameters():
                nn.init.uniform_(parameter, -init, init)
            return
        for name, parameter in self.lstm.named_parameters():
            if name.startswith("bias"):
                nn.init.zeros_(parameter)
        if not self.embedding.tied:  # small vectors drown in the noise that all positions share: docs/log.md
            nn.init.normal_(self.embedding.weight)

    def advance(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        vectors = self.dropout(self.embedding(inputs, self.output))  # [B, T, E]
        hidden, state = self.run(vectors, state)
        return self.dropout(hidden), state  # [B, T, H]

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # it would unroll the loop over time
    def run(self, vectors: Tensor, state: State | None) -> tuple[Tensor, State]:
        """The layers; under autocast in its own dtype, where PyTorch runs float16 even if bfloat16 was asked for."""
        kind = vectors.device.type
        if not (torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)):
            return self.lstm(vectors, state)
        dtype = torch.get_autocast_dtype(kind)
        state = state or self.start(len(vectors), vectors.device)
        options = self.lstm.num_layers, self.lstm.dropout, self.training, False, True  # one direction, batch first
        with torch.autocast(kind, enabled=False):
            vectors, h, c = (part.to(dtype) for part in (vectors, *state))
            hidden, h, c = torch.lstm(vectors, (h, c), self.weights(dtype), True, *options)
        return hidden, (h, c)

    def weights(self, dtype: torch.dtype) -> list[Tensor]:
        """The layers' weights in PyTorch's order, in one piece of memory in cuDNN's: matrices, then biases."""
        parts = [part for layer in self.lstm.all_weights for part in layer]
        order = sorted(range(len(parts)), key=lambda n: -parts[n].ndim)
        flat = torch.cat([parts[n].to(dtype).flatten() for n in order])
        pieces = dict(zip(order, flat.split([parts[n].numel() for n in order])))
        return [pieces[n].view_as(part) for n, part in enumerate(parts)]

    def start(self, batch: int, device: torch.device | str | None = None) -> State:
        weight = self.embedding.weight
        zeros = weight.new_zeros(2, self.lstm.num_layers, batch, self.width, device=device or weight.device)
        return zeros[0], zeros[1]

    def select(self, state: State, index: Tensor) -> State:
        h, c = state
        return h.index_select(1, index), c.index_select(1, index)

    def join(self, states: Sequence[State]) -> State:
        h, c = zip(*states)
        return torch.cat(h, 1), torch.cat(c, 1)

    def put(self, state: State, index: Tensor, rows: State) -> State:
        for part, new in zip(state, rows):
            part.index_copy_(1, index, new.to(part.dtype))
        return state

    def detach(self, state: State) -> State:
        h, c = state
        return h.detach(), c.detach()
