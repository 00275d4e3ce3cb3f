"""One step of Adam on weights with a copy in half precision, all in flat tensors: in PyTorch, and as one kernel."""

from torch import Tensor

from selfnorm.ops.updates import Scalars

BLOCK = 2048


def plain(
    weights: Tensor, copies: Tensor, first: Tensor, second: Tensor, grads: Tensor, scalars: Scalars, *numbers: float
) -> None:
    """As updates.py has it for rows."""
    if not bool(scalars.finite):
        return
    beta1, beta2, eps = numbers
    grad = grads.float() * scalars.shrink
    first.lerp_(grad, 1 - beta1)
    second.lerp_(grad * grad, 1 - beta2)
    one, two = (1 - beta**scalars.step for beta in (beta1, beta2))
    weights -= scalars.lr * (first / one) / ((second / two).sqrt() + eps)
    copies.copy_(weights)


def fused(
    weights: Tensor, copies: Tensor, first: Tensor, second: Tensor, grads: Tensor, scalars: Scalars, *numbers: float
) -> None:
    from selfnorm.ops.half_kernels import move

    beta1, beta2, eps = numbers
    betas = max(beta1, 1e-30), max(beta2, 1e-30)  # their logarithms are taken
    flat = weights, copies, first, second, grads
    given = scalars.lr, scalars.step, scalars.shrink, scalars.finite
    grid = (-(-weights.numel() // BLOCK),)
    move[grid](*flat, *given, weights.numel(), *betas, eps, BLOCK=BLOCK, num_warps=8)
