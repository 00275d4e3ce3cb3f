"""Every model passes the same tests: a new one is one more line in CASES."""

import pytest
import torch
from torch.nn import functional as F

from selfnorm.models import MODELS, expand
from selfnorm.registry import pick

C = 50
START = C  # `<s>`

_LSTM = {"name": "lstm", "layers": 2, "hidden": 12, "embedding": 8}
_TRANSFORMER = {"name": "transformer", "layers": 3, "hidden": 16, "feed_forward": 24, "heads": 2, "embedding": 16}
CASES = {
    "lstm": _LSTM,
    "lstm-one-layer": _LSTM | {"layers": 1},
    "lstm-tied": _LSTM | {"tied": True, "embedding": 12},
    "lstm-init": _LSTM | {"init": 0.1},
    "transformer": _TRANSFORMER,
    "transformer-projected": _TRANSFORMER | {"embedding": 6, "activation": "relu"},
    "transformer-sinusoidal": _TRANSFORMER | {"positions": "sinusoidal"},
    "transformer-rotary": _TRANSFORMER | {"positions": "rotary"},
    "transformer-tied": _TRANSFORMER | {"positions": "rotary", "tied": True},
}

every_case = pytest.mark.parametrize("case", CASES)
every_model = pytest.mark.parametrize("name", MODELS)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(1)


def build(table, size=C, **options):
    return pick("model", MODELS, size=size, **(expand(table) | options))


def exact(case):
    return build(CASES[case]).double().eval()


def sentences(batch, length, size=C):
    words = torch.randint(size, (batch, length))
    words[:, :1] = size
    return words


def same(found, wanted, within=1e-10):
    torch.testing.assert_close(found, wanted, atol=within, rtol=0)


def in_parts(model, inputs, parts, state):
    found = []
    for part in inputs.split(parts, 1):
        hidden, state = model.advance(part, state)
        found.append(hidden)
    return torch.cat(found, 1)


def test_every_model_has_a_case():
    assert {table["name"] for table in CASES.values()} == set(MODELS)


@every_case
@pytest.mark.parametrize("parts", [[1] * 9, [4, 1, 2, 2], [1, 8]], ids=str)
def test_in_parts_equals_all_at_once(case, parts):
    model, inputs = exact(case), sentences(3, 9)
    wanted = model(inputs)
    assert wanted.shape == (3, 9, model.width)
    assert wanted.std() > 1e-3
    same(in_parts(model, inputs, parts, model.start(3, inputs.device)), wanted)


@every_case
def test_joined_histories_of_different_lengths_equal_separate_ones(case):
    model = exact(case)
    histories = [sentences(2, 5), sentences(1, 2), sentences(1, 5), sentences(2, 0)]
    states = [model.advance(history)[1] if history.shape[1] else model.start(2) for history in histories]
    rows = [row for history in histories for row in history]
    joined = model.join(states)
    follow = torch.randint(C, (len(rows), 4))
    for parts in ([4], [1, 1, 1, 1], [1, 3]):
        for row, more, hidden in zip(rows, follow, in_parts(model, follow, parts, joined)):
            same(hidden, model(torch.cat([row, more])[None])[0, -4:])


@every_case
@pytest.mark.parametrize("index", [[5, 0, 0, 3], [2], [2, 2], [0, 1], [4, 5]], ids=str)
def test_selected_rows_go_on_from_their_own_histories(case, index):
    model = exact(case)
    histories = [sentences(1, length) for length in (4, 4, 2, 6, 1, 3)]
    state = model.join([model.advance(history)[1] for history in histories])
    for _ in range(2):  # a selection goes on, is joined and selected again
        state = model.select(state, torch.tensor(index))
        histories = [histories[row] for row in index]
        words = torch.randint(C, (len(index), 1))
        hidden, state = model.advance(words, state)
        histories = [torch.cat([history, word[None]], 1) for history, word in zip(histories, words)]
        for history, found in zip(histories, hidden):
            same(found, model(history)[0, -1:])
        fresh = sentences(6, 2)
        histories += fresh[:, None]
        state = model.join([state, model.advance(fresh)[1]])


@every_case
@pytest.mark.parametrize("index", [[5, 0, 3], [2], [0, 1, 2, 3, 4, 5], [4, 1], []], ids=str)
def test_rows_that_are_put_in_leave_all_others_as_they_are(case, index):
    """Rows of other lengths, shorter and longer than those there; the rest goes on as if nothing had happened."""
    model = exact(case)
    histories = [sentences(1, length) for length in (4, 4, 2, 6, 1, 3)]
    state = model.join([model.advance(history)[1] for history in histories])
    for longer in (0, 5):
        new = [sentences(1, 1 + longer + n % 3) for n in range(len(index))]
        if index:
            rows = model.join([model.advance(history)[1] for history in new])
            state = model.put(state, torch.tensor(index), rows)
        else:
            state = model.put(state, torch.tensor(index, dtype=torch.long), model.start(0))
        for place, history in zip(index, new):
            histories[place] = history
        words = torch.randint(C, (6, 1))
        hidden, state = model.advance(words, state)
        histories = [torch.cat([history, word[None]], 1) for history, word in zip(histories, words)]
        for history, found in zip(histories, hidden):
            same(found, model(history)[0, -1:])


def test_the_cache_grows_no_wider_than_its_longest_history():
    model = exact("transformer")
    state = model.join([model.advance(sentences(1, length))[1] for length in (9, 4, 4, 2)])
    assert state.lengths.tolist() == [9, 4, 4, 2]
    chosen = model.select(state, torch.tensor([3, 1, 2]))
    assert (chosen.columns, chosen.lengths.tolist()) == (4, [2, 4, 4])
    assert model.select(chosen, torch.tensor([1, 2])).padding is None


@pytest.mark.parametrize("positions", ["none", "rotary"])
def test_a_carried_cache_reaches_back_as_far_as_its_memory(positions):
    model = build(_TRANSFORMER | {"positions": positions, "layers": 1, "memory": 4}).double().eval()
    state = model.join([model.advance(sentences(1, 3))[1], model.start(1)])
    words = torch.randint(C, (2, 8))
    for part in words.split(2, 1):
        state = model.detach(model.advance(part, state)[1])
    assert (state.columns, state.lengths.tolist(), state.padding.tolist()) == (4, [11, 8], [0, 0])
    follow = torch.randint(C, (2, 3))
    same(model(follow, state), model(torch.cat([words[:, -4:], follow], 1))[:, -3:], within=1e-6)


@every_case
def test_padding_and_later_words_change_nothing_before_them(case):
    model, inputs = exact(case), sentences(3, 8)
    padded = inputs.clone()
    padded[0, 5:] = START
    padded[1, 2:] = 0
    hidden, wanted = model(padded), model(inputs)
    same(hidden[0, :5], wanted[0, :5])
    same(hidden[1, :2], wanted[1, :2])
    same(hidden[2], wanted[2])


def test_positions_make_a_difference_where_they_are_asked_for():
    inputs = torch.tensor([[START, 7, 7, 7]])
    for positions, differs in (("none", False), ("sinusoidal", True), ("rotary", True)):
        torch.manual_seed(1)
        model = build(_TRANSFORMER | {"positions": positions, "layers": 1}).double().eval()
        _, state = model.advance(torch.tensor([[7, 3]]))
        swapped = model.advance(torch.tensor([[3, 7]]))[1]
        by_order = (model(inputs, state) - model(inputs, swapped)).abs().max()
        assert (by_order > 1e-6) == differs, positions


@every_model
def test_learns_20_sentences_by_heart(name):
    model = build({"preset": f"tiny-{name}"}, size=100)
    words = torch.randint(100, (20, 11))
    words[:, 0] = torch.arange(20)  # the first word tells which sentence it is
    inputs, targets = words[:, :-1], words[:, 1:].flatten()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(300):
        hidden = model(inputs).flatten(0, 1)  # [N, H]
        loss = F.cross_entropy(F.linear(hidden, model.output.weight, model.output.bias), targets)
        if loss < 0.1:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError(f"the loss is still {loss:.3f} per word")


@every_case
def test_training_starts_at_the_unigram_and_z_1(case):
    model = build(CASES[case], size=2000, link="log").eval()
    model.output.start_from(torch.arange(2000, 0, -1))
    log_z = model.output.log_z(model(sentences(4, 10, 2000)))
    assert log_z.abs().max() < 0.05


@pytest.mark.parametrize("layers", [2, 42])
def test_the_hidden_spread_does_not_grow_with_the_layers(layers):
    model = build({"preset": "tiny-transformer"}, layers=layers)
    before = []
    model.norm.register_forward_pre_hook(lambda _, given: before.append(given[0].std().item()))
    model(sentences(4, 20))
    assert 0.1 < before[0] < 0.5


@every_case
def test_every_parameter_gets_a_gradient(case):
    model = build(CASES[case])
    model.output.weight.data.normal_()
    model.output.logit(model(sentences(4, 6)), torch.randint(C, (4, 6))).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@every_model
def test_gradients_flow_through_a_state_until_it_is_detached(name):
    for detached in (False, True):
        model = exact(name)
        _, state = model.advance(torch.tensor([[START, 7]]))
        hidden = model(torch.tensor([[3]]), model.detach(state) if detached else state)
        (hidden * torch.randn(model.width)).sum().backward()
        assert (model.embedding.weight.grad[7].abs().sum() == 0) == detached


@every_model
def test_dropout_in_training_only(name):
    model, inputs = build(CASES[name], dropout=0.5), sentences(2, 6)
    assert not torch.equal(model(inputs), model(inputs))
    model.eval()
    assert torch.equal(model(inputs), model(inputs))


@pytest.mark.parametrize("case", ["lstm-tied", "transformer-tied"])
def test_tied_tables_are_one(case):
    model = build(CASES[case])
    table = model.output.weight
    assert [name for name, value in model.state_dict().items() if value.shape == table.shape] == ["output.weight"]
    hidden = model(torch.tensor([[START, 7]]))
    (hidden * torch.randn(model.width)).sum().backward()
    assert table.grad[7].abs().sum() > 0  # `<s>` is no word, 7 was read
    assert table.grad.abs().sum(1).count_nonzero() == 1
    assert model.embedding.weight.shape == (1, model.width)
    assert model.embedding.weight.grad.abs().sum() > 0


@every_case
def test_sparse_gradients_equal_dense_ones(case):
    inputs, targets = sentences(3, 6), torch.randint(C, (3, 6))
    grads = {}
    for sparse in (False, True):
        torch.manual_seed(1)
        model = build(CASES[case], sparse=sparse)
        torch.manual_seed(2)
        model.output.weight.data.normal_()
        model.output.logit(model(inputs), targets).square().sum().backward()
        grads[sparse] = {name: parameter.grad for name, parameter in model.named_parameters()}
    tables = {"output.weight", "output.bias"} | (set() if CASES[case].get("tied") else {"embedding.weight"})
    assert {name for name, grad in grads[True].items() if grad.is_sparse} == tables
    for name, grad in grads[True].items():
        torch.testing.assert_close(grad.to_dense(), grads[False][name], msg=lambda text, name=name: f"{name}: {text}")


@every_case
def test_nothing_waits_for_the_device(case):
    """Tensors on the meta device have no values: whoever looks at one fails."""
    with torch.device("meta"):
        model = build(CASES[case])
        inputs = torch.zeros(2, 5, dtype=torch.long)
        states = [model.advance(inputs[:, :length])[1] for length in (5, 2)]
        hidden, _ = model.advance(inputs.repeat(2, 1), model.join(states))
    assert hidden.shape == (4, 5, model.width)


@every_case
def test_compiled_equals_eager(case):
    model, inputs = exact(case), sentences(2, 6)
    compiled = torch.compile(model, backend="eager", fullgraph=CASES[case]["name"] != "lstm")
    same(compiled(inputs), model(inputs))


def test_weights_cast_for_autocast_keep_their_places():
    model = build(_LSTM)
    for cast, weight in zip(model.weights(torch.float64), model.lstm.parameters(), strict=True):
        assert torch.equal(cast, weight.double())


def test_autocast_gives_hidden_vectors_of_its_own_kind():
    model, inputs = build(CASES["transformer-rotary"]), sentences(2, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden, state = model.advance(inputs)
        further = model(inputs[[0, 0, 1]], model.join([model.start(1), state]))
    assert hidden.dtype == further.dtype == torch.bfloat16
    torch.testing.assert_close(further[0], hidden[0], atol=0.05, rtol=0.05)


@needs_cuda
@every_case
def test_autocast_and_graphs_on_cuda(case):
    model, inputs = build(CASES[case]).cuda(), sentences(2, 6).cuda()
    wanted = model(inputs)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden, state = model.advance(inputs)
        assert hidden.dtype == torch.bfloat16
        torch.testing.assert_close(hidden.float(), wanted, atol=0.05, rtol=0.05)
        both = model.join([model.start(1, "cuda"), model.detach(state)])
        further = model(inputs[[0, 0, 1]], both)
        torch.testing.assert_close(further[0], hidden[0], atol=0.05, rtol=0.05)
        further.float().sum().backward()
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream), torch.no_grad():
        model(inputs)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph), torch.no_grad():
        captured = model(inputs)
    graph.replay()
    torch.testing.assert_close(captured, wanted, atol=1e-3, rtol=1e-3)
