"""Training by copies in half precision, against autocast and torch's Adam; the kernel against its definition."""

import copy

import pytest
import torch

from selfnorm.models import MODELS
from selfnorm.models.linear import Linear
from selfnorm.ops import ADAM, Rule, Scalars, halves
from selfnorm.optim import OPTIMIZERS, HalfAdam, Optimizer

SIZE = 30
OPTIONS = {"layers": 2, "hidden": 16, "feed_forward": 32, "heads": 2, "embedding": 8}
NUMBERS = {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 1e-6}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return MODELS["transformer"](size=SIZE, **OPTIONS)


def by_halves(model, **options):
    pairs = model.keep_half()
    mine = {id(parameter) for parameter, _ in pairs}
    others = [each for each in model.parameters() if id(each) not in mine]
    return Optimizer(OPTIMIZERS["adam"](others, **NUMBERS | options), HalfAdam(pairs, **NUMBERS | options))


def by_autocast(model, **options):
    return Optimizer(OPTIMIZERS["adam"](list(model.parameters()), **NUMBERS | options))


def loss_of(model, words):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model(words[:, :-1])
    logits = hidden.float() @ model.output.weight.T + model.output.bias
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())


def train(model, optimizer, steps=6, clip=0.1):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        loss = loss_of(model, torch.randint(SIZE, (4, 6), generator=generator))
        loss.backward()
        yield optimizer.step(loss.detach(), clip)[0]


def test_the_first_gradient_is_autocasts_and_steps_are_torchs(model):
    other = copy.deepcopy(model)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    norms = list(zip(train(model, by_halves(model)), train(other, by_autocast(other)), strict=True))
    torch.testing.assert_close(*norms[0], rtol=1e-6, atol=0)  # later ones hang on how weights were rounded
    for (name, mine), theirs in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        moved = (theirs - start[name]).abs().mean()
        assert (mine - theirs).abs().mean() < 0.05 * moved, name


def test_one_step_in_float32_is_torchs():
    generator = torch.Generator().manual_seed(3)
    mine, theirs = (torch.nn.Parameter(torch.randn(7, 5, generator=generator.manual_seed(3))) for _ in range(2))
    half = mine.detach().bfloat16().requires_grad_()
    ours = HalfAdam([(mine, half)], **NUMBERS)
    torchs = torch.optim.Adam([theirs], lr=0.01, betas=(0.8, 0.95), eps=1e-6, foreach=False)
    for _ in range(5):
        half.grad = torch.randn(7, 5, generator=generator).bfloat16()
        theirs.grad = half.grad.float()
        ours.step()
        torchs.step()
        assert half.grad is None
        torch.testing.assert_close(mine, theirs)
        assert torch.equal(half, mine.bfloat16())
    for name, value in torchs.state[theirs].items():
        torch.testing.assert_close(ours.state[mine][name], value, msg=lambda text, name=name: f"{name}: {text}")
    before = mine.clone()
    half.grad = torch.ones_like(half)
    ours.step(finite=torch.tensor(False))
    assert torch.equal(mine, before)
    assert ours.steps == 5


@pytest.mark.parametrize("size", [1, 100, halves.BLOCK, 2 * halves.BLOCK + 7])
@pytest.mark.parametrize("finite", [0.0, 1.0])
def test_the_kernel_moves_as_plain_does(size, finite):
    generator = torch.Generator().manual_seed(size)
    weights, first, grads = (torch.randn(size, generator=generator) for _ in range(3))
    second = torch.rand(size, generator=generator)
    scalars = Scalars(*map(torch.tensor, (0.01, 7.0, 0.5, finite)))

    def moved(impl):
        flat = [each.clone() for each in (weights, torch.zeros(size), first, second, grads)]
        impl(*flat, Rule(ADAM, 1e-6, 0.8, 0.95), scalars)
        return flat

    for mine, theirs in zip(moved(halves.fused), moved(halves.plain), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert torch.equal(moved(halves.fused)[0], weights) == (not finite)


def test_a_copy_without_a_gradient_stays_with_its_momentum():
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(2)]
    copies = [each.detach().bfloat16().requires_grad_() for each in parameters]
    optimizer = HalfAdam(zip(parameters, copies), **NUMBERS)
    for each in optimizer._apart(optimizer.grads):
        each.fill_(9.0)  # of a step before
    copies[0].grad = torch.ones(3).bfloat16()
    assert optimizer.square() == 3
    optimizer.step()
    assert torch.equal(parameters[1], torch.ones(3))
    assert not torch.equal(parameters[0], torch.ones(3))


def test_state_goes_on_from_torchs_and_back(model):
    other = copy.deepcopy(model)
    first = by_autocast(other)
    list(train(other, first, steps=3))
    model.load_state_dict(other.state_dict())
    mine = by_halves(model)
    names = {id(each): name for name, each in other.named_parameters()}
    there = {names[each]: place for each, place in first.places().items()}
    here = {place: there[name] for name, each in model.named_parameters() for place in [mine.places()[id(each)]]}
    found = first.tensors()
    keys = ("step", "exp_avg", "exp_avg_sq")
    mine.restore(
        {f"{place}.{key}": found[f"{other_place}.{key}"] for place, other_place in here.items() for key in keys}
    )
    mine.restore(mine.tensors())  # the tensors themselves: nothing changes
    for place, other_place in here.items():
        for key in keys:
            assert torch.equal(mine.tensors()[f"{place}.{key}"], found[f"{other_place}.{key}"])


def test_compiled_blocks_train_by_their_copies(model):
    other = copy.deepcopy(model)
    optimizer = by_halves(model)
    for block in model.blocks:
        block.compile(backend="aot_eager", fullgraph=True)
    norms = list(zip(train(model, optimizer), train(other, by_halves(other)), strict=True))
    assert all(torch.equal(mine, theirs) for mine, theirs in norms)


def test_many_blocks_are_one_graph():
    """A copy is an input of the graph, not a part of it: else every block would be compiled for itself."""
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph

    model = MODELS["transformer"](size=SIZE, **OPTIONS | {"layers": 12})
    for block in model.blocks:
        block.compile(backend=backend)
    list(train(model, by_halves(model)))
    assert len(graphs) == 1


def test_every_linear_layer_has_copies_and_no_state_of_its_own(model):
    names = list(model.state_dict())
    pairs = model.keep_half()
    assert len(pairs) == 2 * 4 * OPTIONS["layers"] + 1  # `into` has no bias
    assert all(half.dtype == torch.bfloat16 and torch.equal(half, weight.bfloat16()) for weight, half in pairs)
    assert list(model.state_dict()) == names
    assert MODELS["lstm"](size=SIZE, layers=1, hidden=8, embedding=4).keep_half() == []


def test_in_use_the_parameters_count():
    layer, inputs = Linear(4, 4), torch.randn(3, 4)
    (_, half), _ = layer.keep_half()
    half.data.zero_()
    layer.eval()
    assert torch.equal(layer(inputs), torch.nn.functional.linear(inputs, layer.weight, layer.bias))


def test_dropped_gradients_are_not_used(model):
    optimizer = by_halves(model)
    loss_of(model, torch.zeros(1, 3, dtype=torch.long)).backward()
    optimizer.forget()
    assert optimizer.norm() == 0


def test_gradients_of_two_backward_passes_add_up(model):
    optimizer, words = by_halves(model), torch.randint(SIZE, (2, 4), generator=torch.Generator().manual_seed(1))
    loss_of(model, words).backward()
    once = optimizer.norm()
    loss_of(model, words).backward()
    torch.testing.assert_close(optimizer.norm(), 2 * once)


def test_it_cannot_be_copied(model):
    with pytest.raises(TypeError, match="shares memory with its model: neither can be copied; copy their state_dict"):
        copy.deepcopy(by_halves(model))
