"""The kernel against PyTorch's attention in float64. Without a GPU it runs in Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F

from selfnorm import ops
from selfnorm.models import transformer
from selfnorm.ops import attention

pytest.importorskip("triton", reason="Triton is not installed")

GPU = torch.cuda.is_available()
PLACE = "cuda" if GPU else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if GPU else [torch.float32]  # the interpreter's bfloat16 products are wrong
SLACK = {torch.float32: 2e-6, torch.bfloat16: 2e-3, torch.float16: 3e-4}
SHAPES = [(2, length, 3, size) for length in (1, 2, 7, 16, 17, 33, 64) for size in (16, 32, 64)]  # B, T, heads, D
SHAPES += [(2, 20, 2, 128), (5, 3, 1, 64)]


def case(shape, dtype=torch.float32):
    """Queries, keys and values with scores of a few units, and a gradient for what comes out."""
    batch, length, heads, size = shape
    generator = torch.Generator().manual_seed(length * size)
    three = 1.5 * torch.randn(batch, length, 3, heads, size, generator=generator)
    grad = torch.randn(batch, length, heads * size, generator=generator)
    return three.to(PLACE, dtype), grad.to(PLACE, dtype)


def plain(three):
    query, key, value = (part.transpose(1, 2) for part in three.unbind(2))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


def value_and_grads(attend, three, grad):
    three = three.detach().requires_grad_()
    mixed = attend(three)
    (back,) = torch.autograd.grad(mixed, three, grad.to(mixed.dtype))
    return {"mixed": mixed.detach(), "all": back} | dict(zip(("query", "key", "value"), back.unbind(2)))


def distance(found, truth):
    return float((found.double() - truth).norm() / truth.norm().clamp(min=1e-3))  # of one position, some are 0


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_it_is_as_close_to_the_truth_as_plain(shape, dtype):
    three, grad = case(shape, dtype)
    truth = value_and_grads(plain, three.double(), grad)
    by_plain, ours = (value_and_grads(attend, three, grad) for attend in (plain, ops.short_attention))
    assert ours["mixed"].shape == truth["mixed"].shape
    assert ours["mixed"].dtype == ours["all"].dtype == dtype
    for name in truth:
        allowed = 1.5 * distance(by_plain[name], truth[name]) + SLACK[dtype]
        assert distance(ours[name], truth[name]) <= allowed, name


@pytest.mark.parametrize("length", [5, 16, 40])
def test_what_comes_later_is_not_seen(length):
    three, grad = case((2, length, 2, 16))
    wanted, seen = value_and_grads(ops.short_attention, three, grad), length // 2
    changed, of_first = three.clone(), grad.clone()
    changed[:, seen:] = 100.0
    torch.testing.assert_close(ops.short_attention(changed)[:, :seen], wanted["mixed"][:, :seen], rtol=0, atol=0)
    of_first[:, seen:] = 0.0
    back = value_and_grads(ops.short_attention, three, of_first)["all"]
    assert not back[:, seen:].any()
    torch.testing.assert_close(
        back[:, :seen], value_and_grads(ops.short_attention, three[:, :seen].clone(), grad[:, :seen])["all"]
    )


def test_other_sentences_and_heads_are_not_seen():
    three, grad = case((3, 9, 3, 16))
    wanted = value_and_grads(ops.short_attention, three, grad)
    one = value_and_grads(ops.short_attention, three[1:2, :, :, 2:], grad[1:2, :, 32:])
    torch.testing.assert_close(one["mixed"], wanted["mixed"][1:2, :, 32:])
    torch.testing.assert_close(one["all"], wanted["all"][1:2, :, :, 2:])


def test_tensors_that_lie_otherwise_give_the_same():
    three, grad = case((2, 6, 2, 16))
    wanted = value_and_grads(ops.short_attention, three, grad)
    turned, beside = three.transpose(0, 1).contiguous().transpose(0, 1), grad.mT.contiguous().mT
    assert not turned.is_contiguous()
    assert not beside.is_contiguous()
    found = value_and_grads(ops.short_attention, turned, beside)
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=0, atol=0)
    alike = value_and_grads(lambda given: 2 * ops.short_attention(given).sum((0, 1)), three, torch.ones(32).to(PLACE))
    spread = value_and_grads(ops.short_attention, three, torch.full_like(grad, 2.0))
    torch.testing.assert_close(alike["all"], spread["all"], rtol=0, atol=0)


def test_large_scores_stay_finite():
    three, grad = case((1, 12, 1, 16))
    found = value_and_grads(ops.short_attention, 200 * three, grad)
    assert all(each.isfinite().all() for each in found.values())


@pytest.mark.parametrize("shape", [(1, 65, 1, 16), (1, 5, 1, 24), (1, 5, 1, 256), (1, 0, 1, 16)], ids=str)
def test_what_it_is_not_for_is_refused(shape):
    with pytest.raises(ValueError, match="are not for this kernel"):
        ops.short_attention(case(shape)[0])


def test_pytorch_finds_nothing_wrong_with_the_operators():
    three, grad = case((2, 5, 2, 16))
    torch.library.opcheck(torch.ops.selfnorm.short_attention.default, (three.requires_grad_(),))
    torch.library.opcheck(torch.ops.selfnorm.short_attention_back.default, (three.detach(), grad))


def test_it_is_chosen_on_a_gpu_alone(monkeypatch):
    three = case((2, 5, 2, 16))[0].cpu()
    assert not any(ops.is_short(three.to(dtype)) for dtype in (torch.float32, torch.bfloat16, torch.float16))

    class Elsewhere:
        device, dtype, shape = torch.device("cuda"), torch.bfloat16, (2, 64, 3, 8, 64)

    monkeypatch.setattr(ops, "_has_products", lambda device: True)
    assert ops.is_short(Elsewhere)
    for name, value in {"dtype": torch.float32, "shape": (2, 65, 3, 8, 64)}.items():
        other = type("Other", (Elsewhere,), {name: value})
        assert not ops.is_short(other)
    assert not ops.is_short(type("Other", (Elsewhere,), {"shape": (2, 5, 3, 8, 48)}))
    assert not ops.is_short(type("Other", (Elsewhere,), {"shape": (2, 0, 3, 8, 64)}))
    monkeypatch.setattr(ops, "_has_products", lambda device: False)
    assert not ops.is_short(Elsewhere)


def test_a_compiled_model_may_ask(monkeypatch):
    """What no tracer can look into is asked when a model is compiled."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    ask = torch.compile(lambda x: x + 1 if ops._has_products(x.device) else x, backend="eager", fullgraph=True)
    assert ask(torch.zeros(1)).item() == 1


@pytest.fixture
def block():
    torch.manual_seed(1)
    made = transformer.Block(32, 48, 2, 0.0, "gelu", scale=1.0).to(PLACE)
    yield made
    torch._dynamo.reset()


def through(block, length, turn=None):
    """A block's hidden vectors, keys and values, and the gradients of its inputs and weights."""
    hidden = torch.randn(3, length, 32, generator=torch.Generator().manual_seed(length)).to(PLACE).requires_grad_()
    past = torch.empty(3, 0, 2, 2, 16, device=PLACE)
    after, new = block(hidden, past, None, turn, True)
    loss = (after**2).sum() + new[:, :, 0].sin().sum() + (new[:, :, 1] ** 3).sum()
    return [after, new, *torch.autograd.grad(loss, [hidden, *block.parameters()])]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
def test_a_block_is_the_same_with_it(block, monkeypatch, compiled, rotary):
    def turn(length):
        return transformer.waves(torch.zeros(3, dtype=torch.long, device=PLACE), length, 16) if rotary else None

    lengths = (7, 9, 1, 20)
    wanted = [through(block, length, turn(length)) for length in lengths]
    calls = []
    monkeypatch.setattr(transformer, "is_short", lambda three: three.shape[1] <= attention.LONGEST)
    monkeypatch.setattr(attention, "_grid", lambda three, grid=attention._grid: calls.append(1) or grid(three))
    run = torch.compile(block, backend="aot_eager", fullgraph=True) if compiled else block
    run.parameters = block.parameters
    for length, each in zip(lengths, wanted):
        for found, true in zip(through(run, length, turn(length)), each):
            torch.testing.assert_close(found, true, rtol=1e-4, atol=1e-5)
    assert len(calls) == 2 * len(lengths)


def test_a_history_or_a_mask_goes_the_long_way(block, monkeypatch):
    monkeypatch.setattr(transformer, "is_short", lambda three: True)
    monkeypatch.setattr(transformer, "short_attention", lambda three: pytest.fail("not for this"))
    hidden = torch.randn(3, 4, 32, device=PLACE)
    past, seen = torch.randn(3, 2, 2, 2, 16, device=PLACE), torch.ones(1, 1, 4, 6, dtype=torch.bool, device=PLACE)
    assert block(hidden, past, seen, None, True)[1].shape == (3, 6, 2, 2, 16)


def test_all_ways_through_a_compiled_block_stay_compiled(monkeypatch):
    """Two kinds of attention are more variants than PyTorch compiles unless told; beyond, it would do without."""
    monkeypatch.setattr(transformer, "is_short", lambda three: three.shape[1] <= attention.LONGEST)
    monkeypatch.setattr(transformer.Block, "compile", lambda block: torch.nn.Module.compile(block, backend="eager"))
    model = transformer.Transformer(30, layers=2, hidden=32, feed_forward=48, heads=2, embedding=32, dropout=0.1)
    model.to(PLACE)
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=8, fail_on_recompile_limit_hit=True):
        model.compile_parts()
        for train in (True, False):
            model.train(train)
            with torch.set_grad_enabled(train):
                for length in (20, 7, 70, 90, 1):
                    words = torch.randint(30, (3, length), device=PLACE)
                    state = model.advance(words)[1]
                    assert model(words).shape == model.advance(words, model.detach(state))[0].shape == (3, length, 32)
    torch._dynamo.reset()
