"""The measurement of the output layer: nothing wrong is timed, nothing that fails is lost, limits are what they say."""

import pytest
import torch

from selfnorm.bench import agreement, machine, output, peers
from selfnorm.bench.machine import Limits
from selfnorm.bench.output import measure
from selfnorm.bench.peers import PEERS, Peer
from selfnorm.bench.row import SAMPLED, Row, Shape, times_faster

CPU = torch.device("cpu")
TINY = Shape("tiny", 300, 8, 20)
COLUMNS = "shape,impl,criterion,pass,k,groups,N,C,H,dtype,ms,limit_ms,ratio,peak_mib,machine,torch,triton"


@pytest.fixture(autouse=True)
def known_limits(monkeypatch):
    """A machine with a thousand operations and ten bytes in a millisecond."""
    monkeypatch.setattr(machine, "limits", lambda device, repeats: Limits(1000.0, 10.0))


@pytest.fixture
def told():
    return []


def rows(told, **options):
    options = {"ks": [30], "peers": ["torch"], "device": CPU, "repeats": 2, "tell": told.append, **options}
    return list(measure([TINY], **options))


def test_rows_of_ours_and_of_full_softmax(told):
    found = rows(told, dense=True)
    kinds = [(row.impl, row.part, row.gradients, row.k) for row in found]
    assert kinds == [
        ("plain", "loss", "rows", 30),
        ("plain", "step", "rows", 30),
        ("plain", "loss", "dense", 30),
        ("torch Adam", "optimizer", "dense", 300),
        ("torch", "loss", "dense", 300),
        ("torch", "step", "dense", 300),
    ]
    assert all(list(row.columns()) == COLUMNS.split(",") for row in found)
    assert all(row.ms > 0 for row in found)
    assert found[5].ms == pytest.approx(found[3].ms + found[4].ms)


def test_limits_are_products_and_touched_rows(told, monkeypatch):
    monkeypatch.setattr(output, "_touched", lambda drawn, targets: 40.0)
    limit = {(row.impl, row.part): row.limit_ms for row in rows(told)}
    assert limit["plain", "loss"] == pytest.approx(6 * 20 * 30 * 8 / 1000)
    assert limit["plain", "step"] == pytest.approx(6 * 20 * 30 * 8 / 1000 + 40 * 8 * 28 / 10)
    assert limit["torch", "loss"] == pytest.approx(6 * 20 * 300 * 8 / 1000)
    assert limit["torch Adam", "optimizer"] == pytest.approx(300 * 8 * 28 / 10)
    assert limit["torch", "step"] == pytest.approx(6 * 20 * 300 * 8 / 1000 + 300 * 8 * 28 / 10)


def test_touched_rows_are_the_distinct_words():
    drawn = [torch.tensor([[1, 2], [2, 3]]), torch.tensor([[1, 2], [1, 2]])]
    targets = [torch.tensor([3, 3, 9]), torch.tensor([2, 1, 1])]
    assert output._touched(drawn, targets) == (4 + 2) / 2


def test_a_step_moves_the_table_and_leaves_no_gradient():
    bench = output.Bench(CPU, print, 1.0, 1)
    inputs = output.Inputs(TINY, bench)
    weight, bias = inputs.table()
    optimizer = torch.optim.SGD([weight, bias], lr=1.0)

    def loss(hidden, targets):
        return peers.half(hidden, weight, targets, bias)

    for step in output._steps(inputs, loss, (weight, bias), optimizer, update=False):
        step()
    assert torch.equal(weight, inputs.weight)
    for step in output._steps(inputs, loss, (weight, bias), optimizer, update=True):
        step()
    assert not torch.equal(weight, inputs.weight)
    assert all(each.grad is None for each in (weight, bias, *inputs.hidden))


@pytest.mark.parametrize("criterion", SAMPLED)
@pytest.mark.parametrize("groups", [1, 8])
def test_every_criterion_agrees_with_float64(criterion, groups):
    for sparse in (True, False):
        far, near = agreement.of_criterion(criterion, groups, torch.float32, CPU, sparse=sparse)
        assert near, far
        assert far.keys() == {"loss", "hidden", "weight", "bias"}


def test_kernels_that_are_a_little_off_do_not_agree(monkeypatch):
    pytest.importorskip("triton", reason="Triton is not installed")
    from selfnorm.ops import fused

    options = {"sparse": True, "impl": "fused"}
    assert agreement.of_criterion("mode3", 1, torch.float32, CPU, **options)[1]
    true = fused.softplus_sum

    def off(*arguments, **options):
        logit, total = true(*arguments, **options)
        return logit, 1.001 * total

    monkeypatch.setattr(fused, "softplus_sum", off)
    far, near = agreement.of_criterion("mode3", 1, torch.float32, CPU, **options)
    assert not near, far


def wrong(hidden, weight, targets, bias):
    return 1.01 * peers.half(hidden, weight, targets, bias)


def absent():
    raise ImportError("no module of that name")


def full(hidden, weight, targets, bias):
    if len(weight) == TINY.size:
        raise torch.OutOfMemoryError("a few GiB are missing")
    return peers.half(hidden, weight, targets, bias)


def broken(hidden, weight, targets, bias):
    raise RuntimeError("this card\nis too old")


@pytest.mark.parametrize(
    ("find", "sentence"),
    [
        (lambda: wrong, "peer: DISAGREES with float64: loss 1.0e-02, hidden 1.0e-02, weight 1.0e-02, bias 1.0e-02"),
        (absent, "tiny, peer: not there: no module of that name"),
        (lambda: full, "tiny, peer: out of memory at N = 20 positions and K = 300 words; lower one of them"),
        (lambda: broken, "tiny, peer: failed: RuntimeError: this card is too old"),
    ],
    ids=["wrong", "absent", "too large", "broken"],
)
def test_a_peer_that_cannot_be_timed_is_a_line(told, monkeypatch, find, sentence):
    monkeypatch.setitem(PEERS, "peer", Peer("peer", find))
    found = rows(told, peers=["peer", "torch"])
    assert sentence in told
    assert "peer" not in {row.impl for row in found}
    assert ("torch", "step") in {(row.impl, row.part) for row in found}


def test_a_peer_without_bias_is_judged_without():
    def loss(hidden, weight, targets, bias):
        return torch.nn.functional.cross_entropy(hidden @ weight.T, targets)

    assert agreement.of_peer(Peer("cut", lambda: loss, biased=False), loss, torch.float32, CPU)[1]
    assert not agreement.of_peer(Peer("cut", lambda: loss), loss, torch.float32, CPU)[1]


def test_what_the_budget_leaves_out_is_said(told):
    assert not rows(told, budget=-1.0)
    assert told == [f"tiny, {what}: skipped, the budget of -1 s is spent" for what in ("mode3, K = 30, G = 1", "torch")]


def test_more_samples_than_words_are_skipped(told):
    assert {row.k for row in rows(told, ks=[301, 10], peers=[])} == {10}
    assert "tiny, mode3, K = 301, G = 1: skipped, there are only 300 words" in told


def test_times_faster_is_against_the_best_full_softmax_of_shape_and_part():
    def row(impl, part, k, ms, shape=TINY):
        return Row(shape, impl, "-", part, k, 1, "dense", "float32", ms, 1.0, None, "here")

    other = Shape("other", 300, 8, 20)
    ours = row("plain", "step", 30, 2.0)
    found = [ours, row("a", "step", 300, 30.0), row("b", "step", 300, 20.0), row("c", "loss", 300, 10.0)]
    assert times_faster(ours, [*found, row("d", "step", 300, 1.0, other)]) == 10.0
    assert times_faster(ours, [ours]) is None


def test_time_on_a_cpu_is_the_median_over_all_sets():
    done = []
    steps = [lambda n=n: done.append(n) for n in range(3)]
    timing = machine.timed(steps, CPU, repeats=7)
    assert done == [0, 0, 1, 2, 0, 1, 2, 0]
    assert (timing.peak_mib, timing.eager) == (None, False)


def test_what_is_slow_is_repeated_less_often(monkeypatch):
    monkeypatch.setattr(machine, "SLOW", 0.0)
    done = []
    machine.timed([lambda: done.append(1)], CPU, repeats=100)
    assert len(done) == 1 + machine.FEW
