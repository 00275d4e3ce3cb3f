"""One step of Adam on weights with a copy in half precision, all in flat tensors: in PyTorch, and as one kernel."""

from torch import Tensor

from selfnorm.ops.updates import Rule, Scalars

BLOCK = 2048


def plain(
    weights: Tensor, copies: Tensor, first: Tensor, second: Tensor, grads: Tensor, rule: Rule, scalars: Scalars
) -> None:
    """As updates.py has it for rows."""
    if not bool(scalars.finite):
        return
    grad = grads.float() * scalars.shrink
    first.lerp_(grad, 1 - rule.beta1)
    second.lerp_(grad * grad, 1 - rule.beta2)
    one, two = (1 - beta**scalars.step for beta in (rule.beta1, rule.beta2))
    weights -= scalars.lr * (first / one) / ((second / two).sqrt() + rule.eps)
    copies.copy_(weights)


def fused(
    weights: Tensor, copies: Tensor, first: Tensor, second: Tensor, grads: Tensor, rule: Rule, scalars: Scalars
) -> None:
    from selfnorm.ops.half_kernels import move

    betas = max(rule.beta1, 1e-30), max(rule.beta2, 1e-30)  # their logarithms are taken
    flat = weights, copies, first, second, grads
    given = scalars.lr, scalars.step, scalars.shrink, scalars.finite
    grid = (-(-weights.numel() // BLOCK),)
    move[grid](*flat, *given, weights.numel(), *betas, rule.eps, BLOCK=BLOCK, num_warps=8)
