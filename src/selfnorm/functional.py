"""sampled_loss: the drop-in loss as a function; `SampledLoss` is the same with its options kept."""

from typing import Any

import torch
from torch import Tensor

from selfnorm.criteria import CRITERIA, Criterion
from selfnorm.criteria.importance import Mode2
from selfnorm.ops import MOST
from selfnorm.ops.rows import waiting
from selfnorm.output import Layer
from selfnorm.registry import named, pick
from selfnorm.samplers import Sample, Sampler, split
from selfnorm.samplers.excluding import Excluding

REDUCTIONS = dict.fromkeys(("mean", "sum", "none"))


def sampled_loss(
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None = None,
    *,
    criterion: str | Criterion = "mode3",
    sampler: Sampler | None = None,
    samples: Tensor | None = None,
    log_expected: Tensor | None = None,
    log_expected_target: Tensor | None = None,
    example_weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    sparse: bool = False,
    impl: str = "auto",
    generator: torch.Generator | None = None,
    most: int = MOST,
) -> Tensor:
    """The loss of `hidden` (..., H) for `target` (...) under an output layer `weight` [C, H], `bias` [C].

    Noise words come from `sampler`, or from the caller: `samples` [K], shared by all positions, or (..., K), with the
    logarithms of their expected counts (same shape) and, for `nce` and `sampled_softmax`, those of the targets (...).
    Positions whose target is `ignore_index` count nothing. "mean" divides by the sum of the example weights (by the
    number of positions that count, without weights); where nothing counts the loss is 0.
    At most `most` logits are in memory at a time, or all of those of (..., K) samples. `sparse` gives weight and bias
    row-sparse gradients: COO for torch's optimizers, or left for `selfnorm.optim.RowAdam` and its kin where a table was
    given to one of them.
    `impl` is "auto", "plain" (PyTorch) or "fused" (Triton, on a GPU).
    """
    criterion = pick("criterion", CRITERIA, criterion) if isinstance(criterion, str) else criterion
    named("reduction", REDUCTIONS, reduction)
    _check_shapes(hidden, weight, target, bias, example_weight)
    _check_rows(sparse, weight, bias)
    _check_tensors(samples=samples, log_expected=log_expected, log_expected_target=log_expected_target)
    _check_ids(samples, "sample")
    if samples is None and (log_expected is not None or log_expected_target is not None):
        raise ValueError("expected counts were given without samples; give both, or let the sampler draw")

    flat, targets = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1).long()  # [N, H], [N]
    kept = torch.ones_like(targets, dtype=torch.bool) if ignore_index is None else targets != ignore_index
    if ignore_index is not None:
        targets = _of_kept(targets, kept, 0)  # where any counts, no row is touched that only an ignored one touches
        flat = flat.masked_fill(~kept[:, None], 0)  # nothing of an ignored position comes through, not even a nan
        if log_expected_target is not None and log_expected_target.shape == target.shape:
            log_expected_target = log_expected_target.masked_fill(~kept.view(target.shape), 0)
        if samples is not None and samples.ndim and samples.shape[:-1] == target.shape:
            given = samples.reshape(len(targets), samples.shape[-1])
            samples = _of_kept(given, kept[:, None], min(1, len(weight) - 1)).view(samples.shape)  # not the target
            if log_expected is not None and log_expected.shape == samples.shape:
                log_expected = log_expected.masked_fill(~kept.view(*target.shape, 1), 0)
    elif (sparse or not torch.compiler.is_compiling()) and waiting(weight) is not None:
        flat = flat.clone()  # rows' gradients hold it until the step; the caller may write to his own before
    _check_range(targets, len(weight))

    sample: Any = None  # a criterion over the whole vocabulary takes none
    if criterion.sampled and samples is not None:
        _check_range(samples, len(weight), "sample")
        sample = _given(criterion, samples.long(), log_expected, log_expected_target, target.shape)
        if isinstance(criterion, Mode2) and _is_any(sample.ids == targets[:, None]):
            raise ValueError("criterion 'mode2' takes samples for each position, none of them its target; draw again")
    elif criterion.sampled:
        if sampler is None:
            raise ValueError("a sampled criterion needs a sampler, or samples with their log_expected")
        check_pair(criterion, sampler)
        if sampler.noise.size != len(weight):
            raise ValueError(f"the noise is over {sampler.noise.size} words, the weight has {len(weight)} rows")

    try:
        if criterion.sampled and sampler is not None and sample is None:
            sample = sampler.draw(targets, generator, _bounds(target.shape, sampler.groups))
        loss = criterion.loss(flat, Layer(weight, bias, sparse, impl), targets, sample, most)
    except torch.OutOfMemoryError as error:
        k = None if not criterion.sampled else sampler.k if samples is None and sampler else sample.ids.shape[-1]
        raise torch.OutOfMemoryError(_out_of_memory(len(flat), k, len(weight))) from error
    share = torch.ones_like(loss) if example_weight is None else example_weight.reshape(-1).to(loss.dtype)
    share = share.masked_fill(~kept, 0)
    loss = loss.masked_fill(~kept, 0) * share
    if reduction == "none":
        return loss.view(target.shape)
    if reduction == "sum":
        return loss.sum()
    total = share.sum()
    return loss.sum() / torch.where(total == 0, 1, total)


def _of_kept(ids: Tensor, kept: Tensor, other: int) -> Tensor:
    """At positions that do not count the ids of the first one that does; `other` where there is none."""
    if not len(ids):
        return ids
    first = ids.index_select(0, kept.view(-1).long().argmax(0, keepdim=True))
    return torch.where(kept, ids, torch.where(kept.any(), first, other))


def check_pair(criterion: Criterion, sampler: Sampler) -> None:
    """Mode2 goes with the sampler that excludes the target, and nothing else does."""
    if isinstance(criterion, Mode2) and not isinstance(sampler, Excluding):
        raise ValueError(
            "criterion 'mode2' needs sampler 'excluding': with draws that may hit the target it would be 'is'; "
            "choose that sampler, or criterion 'mode3'"
        )
    if isinstance(sampler, Excluding) and not isinstance(criterion, Mode2):
        raise ValueError(
            "sampler 'excluding' goes with criterion 'mode2' alone: it never draws the target, whose expected count "
            "the other criteria need; choose sampler 'systematic', or criterion 'mode2'"
        )


def _check_rows(sparse: bool, weight: Tensor, bias: Tensor | None) -> None:
    for name, table in (("weight", weight), ("bias", bias)):
        if sparse and table is not None and table.requires_grad and not table.is_leaf:
            raise ValueError(
                f"{name} is computed, and rows do not go back through that; give the parameter, or sparse=False"
            )


def _check_shapes(
    hidden: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None, example_weight: Tensor | None
) -> None:
    given = {"hidden": hidden, "weight": weight, "target": target, "bias": bias, "example_weight": example_weight}
    for name, value in given.items():
        if not isinstance(value, Tensor) and not (value is None and name in ("bias", "example_weight")):
            hint = "; give its .weight, and its .bias as bias" if hasattr(value, "weight") else ""
            raise TypeError(f"{name} must be a tensor, not {type(value).__name__}{hint}")
    if weight.ndim != 2 or hidden.shape[-1:] != weight.shape[1:]:
        raise ValueError(f"hidden {tuple(hidden.shape)} and weight {tuple(weight.shape)} must be (..., H) and (C, H)")
    if target.shape != hidden.shape[:-1]:
        raise ValueError(
            f"target {tuple(target.shape)} must have one id for each vector of hidden {tuple(hidden.shape)}"
        )
    if target.is_floating_point() or target.dtype == torch.bool:
        raise ValueError(f"target must hold ids as integers, not {target.dtype}")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias {tuple(bias.shape)} must have one value for each of {len(weight)} rows of weight")
    if example_weight is not None and example_weight.shape != target.shape:
        raise ValueError(
            f"example_weight {tuple(example_weight.shape)} must have the shape of target {tuple(target.shape)}"
        )


def _check_tensors(**given: Any) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, not {type(value).__name__}")


def _check_ids(ids: Tensor | None, what: str) -> None:
    if ids is not None and (ids.is_floating_point() or ids.dtype == torch.bool):
        raise ValueError(f"{what}s must be ids, whole numbers, not {ids.dtype}")


def _check_range(ids: Tensor, size: int, what: str = "target") -> None:
    wrong = (ids < 0) | (ids >= size)
    if _is_any(wrong):
        raise ValueError(f"{what} {int(ids[wrong][0])} is outside the {size} words 0 to {size - 1}")


def _is_any(wrong: Tensor) -> bool:
    """On a GPU the check runs there: what is wrong fails at the next synchronization, as in torch's own losses."""
    if wrong.device.type != "cpu":
        torch._assert_async(~wrong.any())
        return False
    if torch.compiler.is_compiling():  # which drops a check that has nothing to say
        torch._assert_async(~wrong.any(), "a target or a sample of the loss is out of range")
        return False
    return bool(wrong.any())


def _bounds(shape: torch.Size, groups: int) -> tuple[int, ...]:
    """Groups of whole sequences: the first dimension counts them."""
    each = shape[1:].numel()  # positions
    return tuple(bound * each for bound in split(shape[0] if shape else 1, groups))


def _given(
    criterion: Criterion,
    samples: Tensor,
    log_expected: Tensor | None,
    log_expected_target: Tensor | None,
    shape: torch.Size,
) -> Sample:
    if not samples.ndim:
        raise ValueError(f"samples () must be [K], or {(*shape, 'K')} for each position's own")
    if log_expected is None or log_expected.shape != samples.shape:
        raise ValueError("samples need log_expected, the logarithm of each one's expected count, in the same shape")
    if _is_any(log_expected.isnan() | log_expected.isneginf()):
        raise ValueError("log_expected holds nan or -inf; what was drawn has an expected count above 0")
    if not samples.shape[-1]:
        raise ValueError("samples are empty; give at least one for each position")
    own = samples.shape[:-1] == shape
    if not own and samples.ndim != 1:
        raise ValueError(f"samples {tuple(samples.shape)} must be [K], or {(*shape, 'K')} for each position's own")
    if isinstance(criterion, Mode2) and not own:
        raise ValueError("criterion 'mode2' takes samples for each position, (..., K), none of them its target")
    if log_expected_target is None:
        if criterion.uses_expected_target:
            raise ValueError("this criterion needs log_expected_target, the logarithm of each target's expected count")
        log_expected_target = torch.zeros(shape, device=samples.device)
    if log_expected_target.shape != shape:
        raise ValueError(
            f"log_expected_target {tuple(log_expected_target.shape)} must have the shape of target {tuple(shape)}"
        )
    if criterion.uses_expected_target and _is_any(log_expected_target.isnan() | log_expected_target.isneginf()):
        raise ValueError("log_expected_target holds nan or -inf; this criterion needs an expected count above 0")
    k, positions = samples.shape[-1], shape.numel()
    return Sample(
        samples.reshape(-1, k),
        log_expected.reshape(-1, k).double().exp(),
        log_expected_target.reshape(-1).double().exp(),
        None if own else (0, positions),
    )


def _out_of_memory(n: int, k: int | None, c: int) -> str:
    """N positions, K samples (None: every word counts), C words: what was asked for, and what to lower."""
    samples, lower = ("every word", "the batch") if k is None else (f"K = {k} samples", "k, the batch")
    return (
        f"the sums over N = {n} positions and {samples} of C = {c} words do not fit into the device's memory; "
        f"lower {lower}, or most (the logits in memory at a time)"
    )
