"""LSTM: embedding -> layers of LSTM -> hidden, with dropout on all connections but the recurrent ones."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from selfnorm.models.model import Model, check_dropout, check_sizes

State = tuple[Tensor, Tensor]  # h and c, each [layers, B, H]


class LSTM(Model):
    """The paper's model for Switchboard and EN (2 layers of 2048, embedding 128).

    With `init` all parameters start uniform in [-init, init] (Zaremba et al. 2014); without, forget gates start open.
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
            if name.startswith("bias_ih"):
                nn.init.ones_(
                    parameter[self.width : 2 * self.width]
                )  # gates in PyTorch's order: input, forget, cell, output

    def advance(self, inputs: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        vectors = self.dropout(self.embedding(inputs, self.output))  # [B, T, E]
        hidden, state = self.lstm(vectors, state)
        return self.dropout(hidden), state  # [B, T, H]

    def start(self, batch: int, device: torch.device | str | None = None) -> State:
        weight = self.embedding.weight
        zeros = weight.new_zeros(self.lstm.num_layers, batch, self.width, device=device or weight.device)
        return zeros, zeros

    def select(self, state: State, index: Tensor) -> State:
        h, c = state
        return h.index_select(1, index), c.index_select(1, index)

    def join(self, states: Sequence[State]) -> State:
        h, c = zip(*states)
        return torch.cat(h, 1), torch.cat(c, 1)

    def detach(self, state: State) -> State:
        h, c = state
        return h.detach(), c.detach()
