"""The output layer: one row and one bias per word, and what its raw values mean.

A link turns a logit into a score, the log of what the model takes for p(c|x): the identity for criteria whose optimum
is exp(logit) = p, the log sigmoid for those with sigmoid(logit) = p. With `normalize` (`ce`, `sampled_softmax`) the
link's values are scores only after log Z is taken off.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from selfnorm.ops import IMPLS, MOST, dot, log_z, product, take
from selfnorm.registry import named


def identity(logit: Tensor) -> Tensor:
    return logit


LINKS: dict[str, Callable[[Tensor], Tensor]] = {"log": identity, "logsigmoid": F.logsigmoid}


@dataclass(frozen=True)
class Layer:
    """Weight [C, H] and bias [C] of anybody's last layer; `sparse` gives both row-sparse gradients.

    `impl` says who computes sums over it: "auto", "plain" or "fused" (see ops).
    """

    weight: Tensor
    bias: Tensor | None = None
    sparse: bool = False
    impl: str = "auto"

    def __post_init__(self) -> None:
        named("impl", IMPLS, self.impl)

    def rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """These rows of weight and bias; every row for None."""
        if ids is None and not (self.sparse and torch.is_grad_enabled()):
            return self.weight, self.bias
        ids = torch.arange(len(self.weight), device=self.weight.device) if ids is None else ids
        bias = None if self.bias is None else take(self.bias, ids, self.sparse)
        return take(self.weight, ids, self.sparse), bias

    def logit(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """w_c . h + b_c, one id for each hidden vector; their leading shapes are broadcast."""
        return dot(hidden, *self.rows(ids))


class Output(nn.Module):
    """Owns weight [C, H] and bias [C]: gives scores, log Z and the best words."""

    def __init__(
        self,
        size: int,
        width: int,
        *,
        link: str | Callable[[Tensor], Tensor] = "logsigmoid",
        normalize: bool = False,
        bias: bool = True,
        sparse: bool = False,
        impl: str = "auto",
    ) -> None:
        super().__init__()
        if size < 1 or width < 1:
            raise ValueError(f"an output layer needs at least 1 word and width 1, not {size} and {width}")
        link = next((name for name, function in LINKS.items() if function is link), link)  # a loss has the function
        if not isinstance(link, str):
            raise TypeError(f"link= is a name, one of: {', '.join(LINKS)}; or a loss's own, loss.link")
        self.link = named("link", LINKS, link)
        self.link_name, self.normalize, self.sparse, self.impl = link, normalize, sparse, impl
        self.weight = nn.Parameter(torch.zeros(size, width))
        self.bias = nn.Parameter(torch.zeros(size)) if bias else None

    @property
    def layer(self) -> Layer:
        return Layer(self.weight, self.bias, self.sparse, self.impl)

    @torch.no_grad()
    def start_from(self, counts: Tensor, smoothing: float = 1.0) -> "Output":
        """Set the bias to the unigram in the link's space: training starts at Z = 1 and the unigram's perplexity."""
        counts = torch.as_tensor(counts)
        if self.bias is None:
            raise ValueError("an output layer without bias has nowhere to keep the unigram; build it with bias=True")
        smoothed = counts.double() + smoothing
        if counts.shape != self.bias.shape or not bool(((smoothed > 0) & smoothed.isfinite()).all()):
            raise ValueError(
                f"the unigram needs one count for each of {len(self.bias)} words, finite and above {-smoothing:g}"
            )
        unigram = smoothed / smoothed.sum()
        log = unigram.log()
        self.bias.copy_(log if self.link_name == "log" else log - torch.log1p(-unigram.clamp(max=1 - 1e-9)))
        return self

    def logit(self, hidden: Tensor, ids: Tensor) -> Tensor:
        return self.layer.logit(hidden, ids)

    def score(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """log q(x, c) as it is used: hidden (..., H), ids (...), or (..., M) for M words at each position."""
        return self.log_prob(hidden, ids) if self.normalize else self.link(self.logit(*_matched(hidden, ids)))

    def log_z(self, hidden: Tensor, most: int = MOST) -> Tensor:
        """log sum_c exp(link(logit_c)) over the whole vocabulary, with at most `most` logits in memory."""
        flat = hidden.reshape(-1, hidden.shape[-1])
        found = log_z(flat, self.layer, self.link, most=most).view(hidden.shape[:-1])
        shards = getattr(self.weight, "shards", None)  # then this rank has some of the rows
        return found if shards is None else shards.log_sum(found)

    def log_prob(self, hidden: Tensor, ids: Tensor, most: int = MOST) -> Tensor:
        """The normalized score: link(logit) - log Z."""
        value = self.link(self.logit(*_matched(hidden, ids)))
        return value - _like(self.log_z(hidden, most), value)

    def scores(self, hidden: Tensor) -> Tensor:
        """The score of every word: (..., H) -> (..., C); all of them are in memory."""
        value = self.link(product(hidden, self.weight, self.bias))
        return value - value.logsumexp(-1, keepdim=True) if self.normalize else value

    @torch.no_grad()
    def topk(self, hidden: Tensor, k: int, most: int = MOST) -> tuple[Tensor, Tensor]:
        """The k best words at each position and their scores, best first: ((..., k), (..., k))."""
        if not 1 <= k <= len(self.weight):
            raise ValueError(
                f"the {k} best of {len(self.weight)} words were asked for; choose k from 1 to {len(self.weight)}"
            )
        flat = hidden.reshape(-1, hidden.shape[-1])
        found = [self.scores(part).topk(k) for part in flat.split(max(1, most // len(self.weight)))]
        scores, ids = (torch.cat(parts).view(*hidden.shape[:-1], k) for parts in zip(*found))
        return scores, ids


def _matched(hidden: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    if ids.shape == hidden.shape[:-1]:
        return hidden, ids
    if ids.shape[:-1] == hidden.shape[:-1]:
        return hidden.unsqueeze(-2), ids
    raise ValueError(f"ids of shape {tuple(ids.shape)} do not go with hidden vectors of shape {tuple(hidden.shape)}")


def _like(log_z: Tensor, score: Tensor) -> Tensor:
    return log_z if log_z.ndim == score.ndim else log_z.unsqueeze(-1)
