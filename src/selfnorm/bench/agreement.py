"""Nobody is timed who is wrong: a small odd case, loss and gradients against float64."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from selfnorm.bench.peers import Loss, Peer
from selfnorm.criteria import CRITERIA
from selfnorm.noise import LogUniform
from selfnorm.ops import keep_half
from selfnorm.output import Layer
from selfnorm.samplers import SAMPLERS, Sampler

N, C, H, K = 150, 1000, 72, 70
SLACK = {torch.bfloat16: 2e-3, torch.float32: 1e-5}
FULL = {torch.bfloat16: 3e-2, torch.float32: 1e-5}  # for those whose way we do not know

Case = tuple[Tensor, Tensor, Tensor, Tensor]  # hidden, weight, targets, bias
Distances = dict[str, float]


def build_case(
    size: int, width: int, positions: int, device: torch.device, generator: torch.Generator, sets: int = 1
) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
    """Targets are log-uniform and the bias is their log probability: as in a trained model, most logits are far
    below 0. Hidden vectors and targets come in `sets`."""
    noise = LogUniform(size)
    unigram = noise.prob(torch.arange(size, device=device))
    hidden, targets = [], []
    for _ in range(sets):
        hidden.append(1.5 * torch.randn(positions, width, device=device, generator=generator))
        uniform = torch.rand(positions, device=device, generator=generator, dtype=torch.float64)
        targets.append(noise.inverse(uniform))
    weight = torch.randn(size, width, device=device, generator=generator).mul_(width**-0.5)
    return hidden, weight, targets, unigram.log().float()


def build_sampler(criterion: str, size: int, k: int, groups: int) -> Sampler:
    """The one that SampledLoss takes by default."""
    return SAMPLERS[CRITERIA[criterion]().sampler](noise=LogUniform(size), k=k, groups=groups)


def of_criterion(
    criterion: str, groups: int, dtype: torch.dtype, device: torch.device, *, sparse: bool, impl: str = "auto"
) -> tuple[Distances, bool]:
    """How far we are from float64, and whether that is near enough: about as near as plain in the same dtype."""
    case = _small(device)
    generator = torch.Generator(device).manual_seed(3)
    sample = build_sampler(criterion, C, K, groups).draw(case[2], generator)
    rule = CRITERIA[criterion]()

    def loss(impl: str, sparse: bool) -> Loss:
        def compute(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
            return rule.loss(hidden, Layer(weight, bias, sparse, impl), targets, sample).mean()

        return compute

    truth = _grads(loss("plain", False), case, torch.float64, torch.float64)
    plain = distances(_grads(loss("plain", False), case, dtype, dtype), truth)
    ours = distances(_grads(loss(impl, sparse), case, dtype, torch.float32, keep_half), truth)
    return ours, all(ours[name] <= 2 * plain[name] + SLACK[dtype] for name in truth)


def of_peer(peer: Peer, loss: Loss, dtype: torch.dtype, device: torch.device) -> tuple[Distances, bool]:
    case = _small(device)

    def full(hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, weight, bias if peer.biased else None), targets)

    truth = _grads(full, case, torch.float64, torch.float64)
    found = distances(_grads(loss, case, dtype, torch.float32), truth)
    return found, all(each <= FULL[dtype] for each in found.values())


def distances(found: dict[str, Tensor], truth: dict[str, Tensor]) -> Distances:
    """Of the loss and of each gradient, relative; what is not there is infinitely far."""
    return {
        name: float((found[name].double() - true).norm() / true.norm()) if name in found else float("inf")
        for name, true in truth.items()
    }


def _small(device: torch.device) -> Case:
    hidden, weight, targets, bias = build_case(C, H, N, device, torch.Generator(device).manual_seed(2))
    return hidden[0], weight, targets[0], bias


def _grads(
    loss: Loss, case: Case, dtype: torch.dtype, of_table: torch.dtype, prepare: Callable[[Tensor], None] | None = None
) -> dict[str, Tensor]:
    """The loss and its gradients; the weight in dtype `of_table`, the bias in float32 at least."""
    hidden, weight, targets, bias = case
    hidden = hidden.detach().to(dtype).requires_grad_()
    weight = weight.detach().to(of_table, copy=True).requires_grad_()
    bias = bias.detach().to(torch.promote_types(of_table, torch.float32), copy=True).requires_grad_()
    if prepare is not None and dtype == torch.bfloat16:
        prepare(weight)
    value = loss(hidden, weight, targets, bias)
    found = torch.autograd.grad(value, (hidden, weight, bias), allow_unused=True)
    names = {"hidden": found[0], "weight": found[1], "bias": found[2]}
    grads = {name: each.to_dense() if each.is_sparse else each for name, each in names.items() if each is not None}
    return {"loss": value.detach(), **grads}
