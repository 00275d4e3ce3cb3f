"""Batches: every word once, little padding, and nothing but (seed, epoch, index) decides."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.corpus.ahead import Ahead
from selfnorm.corpus.batches import BATCHES, Batch, Sentences, Streams, evaluation_batches
from selfnorm.corpus.store import TokenStore
from selfnorm.registry import pick
from selfnorm.vocabulary import Vocabulary

VOCABULARY = Vocabulary(["</s>", "<unk>", *(f"w{i}" for i in range(5_000))])
END, START = VOCABULARY.end, VOCABULARY.start
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def random_store(sentences: int, seed: int = 0, mean: float = 2.8, spread: float = 0.7) -> TokenStore:
    """Sentence lengths are about log-normal in books and in talk; sentences differ, so that they can be told apart."""
    chance = np.random.default_rng(seed)
    lengths = np.exp(chance.normal(mean, spread, sentences)).astype(int)
    return TokenStore.of([chance.integers(1, len(VOCABULARY), length).tolist() for length in lengths], VOCABULARY)


def assert_same(one: Batch, other: Batch) -> None:
    assert one.lengths == other.lengths
    for name in ("inputs", "real", "targets"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=0, rtol=0)


def sequences(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Inputs and targets of each sequence, without padding."""
    targets = batch.targets.split(list(batch.lengths))
    inputs = batch.of_real(batch.inputs[..., None])[:, 0].split(list(batch.lengths))
    return [(row.tolist(), target.tolist()) for row, target in zip(inputs, targets)]


def epoch(batches, number: int = 0) -> list[Batch]:
    return [batches.batch(number, index) for index in range(batches.steps_per_epoch)]


@pytest.mark.parametrize("options", [{"positions": 600}, {"sequences": 32}], ids=str)
def test_every_sentence_once_an_epoch_shifted_by_one(options):
    store = random_store(2_000)
    batches = Sentences(store, max_length=200, **options)
    seen = [pair for batch in epoch(batches) for pair in sequences(batch)]
    for inputs, targets in seen:
        assert inputs == [START, *targets[:-1]]
    assert sorted(targets for _, targets in seen) == sorted(sentence.tolist() for sentence in store)


@pytest.mark.parametrize("options", [{"positions": 600}, {"sequences": 32}], ids=str)
def test_batches_have_the_size_asked_for(options):
    for batch in epoch(Sentences(random_store(2_000), max_length=200, **options)):
        assert batch.inputs.numel() <= options.get("positions", batch.inputs.numel())
        assert len(batch.lengths) <= options.get("sequences", len(batch.lengths))
        assert torch.bincount(batch.real // batch.inputs.shape[1]).tolist() == list(batch.lengths)
        assert batch.bounds(1) == (0, len(batch.targets))
        assert batch.bounds(2) == (0, sum(batch.lengths[: len(batch.lengths) // 2]), len(batch.targets))
        assert len(batch.targets) == sum(batch.lengths)
        assert batch.inputs.dtype == batch.targets.dtype == torch.int64
        assert batch.inputs.max() <= START
        assert batch.targets.max() < START


@pytest.mark.parametrize("options", [{}, {"positions": 2048}, {"sequences": 32}, {"sequences": 64}], ids=str)
@pytest.mark.parametrize(("mean", "spread"), [(2.8, 0.7), (2.0, 1.0), (3.1, 0.4)], ids=["books", "talk", "news"])
def test_padding_is_under_ten_per_cent(options, mean, spread):
    batches = epoch(Sentences(random_store(8_000, mean=mean, spread=spread), **options))
    real = sum(len(batch.targets) for batch in batches)
    assert real > 0.9 * sum(batch.inputs.numel() for batch in batches)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(61, 400))
def test_a_budget_of_positions_never_pads_more_than_a_tenth(lengths, positions):
    store = TokenStore.of([[2] * length for length in lengths], VOCABULARY)
    for batch in epoch(Sentences(store, positions=positions, max_length=61)):
        assert len(batch.targets) >= 0.9 * batch.inputs.numel()


def test_batches_are_full():
    batches = epoch(Sentences(random_store(20_000), positions=2048))
    sizes = sorted(len(batch.targets) for batch in batches)
    assert np.mean(sizes[1:]) > 0.9 * 2048


def test_long_sentences_are_cut_and_counted_and_no_word_is_lost():
    store = TokenStore.of([[*range(2, 25)], [2, 3], [*range(2, 12)]], VOCABULARY)
    batches = Sentences(store, positions=64, max_length=10)
    pairs = sorted(pair for batch in epoch(batches) for pair in sequences(batch))
    assert batches.cut == 2
    assert ([11, *range(12, 21)], [*range(12, 22)]) in pairs  # a later piece starts with the word before it
    assert sorted(id for _, targets in pairs for id in targets) == sorted(store.ids.tolist())
    assert max(len(targets) for _, targets in pairs) == 10


def test_a_batch_depends_on_seed_epoch_and_index_alone():
    store = random_store(500)
    one, other = Sentences(store, positions=512, seed=3), Sentences(store, positions=512, seed=3)
    forward = [(e, i, one.batch(e, i)) for e in range(3) for i in range(one.steps_per_epoch)]
    for e, i, batch in reversed(forward):
        assert_same(batch, other.batch(e, i))
    orders = [tuple(b.targets.sum().item() for b in epoch(batches, e)) for batches, e in [(one, 0), (one, 1)]]
    assert orders[0] != orders[1]
    assert orders[0] != tuple(b.targets.sum().item() for b in epoch(Sentences(store, positions=512, seed=4)))


def test_neighbours_and_batch_order_change_from_epoch_to_epoch():
    batches = Sentences(random_store(3_000), positions=512)
    lengths = [[max(batch.lengths) for batch in epoch(batches, e)] for e in range(2)]
    assert lengths[0] != lengths[1]
    assert sorted(lengths[0]) == sorted(lengths[1])
    together = [{frozenset(tuple(t) for _, t in sequences(b)) for b in epoch(batches, e)} for e in range(2)]
    assert len(together[0] & together[1]) < 0.5 * len(together[0])


@pytest.mark.parametrize(("sentences", "streams", "steps"), [(50, 4, 7), (7, 3, 1000), (20, 1, 5), (3, 40, 2)])
def test_streams_are_the_text_shifted_by_one(sentences, streams, steps):
    store = random_store(sentences)
    batches = epoch(Streams(store, sequences=streams, steps=steps))
    rows = [[sequences(batch)[row] for batch in batches] for row in range(streams)]
    inputs = [id for row in rows for ids, _ in row for id in ids]
    targets = [id for row in rows for _, ids in row for id in ids]
    assert targets == store.ids.tolist()
    assert inputs == [END, *store.ids.tolist()[:-1]]
    assert all(batch.inputs.shape[1] <= steps for batch in batches)
    assert all(len(batch.real) == batch.inputs.numel() for batch in batches[:-1])  # only the last may be ragged, by one


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(1, 50), max_size=30), min_size=1, max_size=40), st.integers(1, 60))
def test_evaluation_sees_every_word_once_and_gives_them_back_in_order(sentences, positions):
    store = TokenStore.of(sentences, VOCABULARY)
    values = np.full(len(store.ids), -1)
    longest = 0
    for batch, places in evaluation_batches(store, positions):
        assert (values[places] == -1).all()
        values[places] = batch.targets.numpy()
        assert max(batch.lengths) >= longest
        longest = max(batch.lengths)
        assert batch.inputs.numel() <= positions or len(batch.lengths) == 1
        assert all(inputs == [START, *targets[:-1]] for inputs, targets in sequences(batch))
    assert values.tolist() == store.ids.tolist()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batches", [Sentences(random_store(300), positions=512), Streams(random_store(60))], ids=type)
def test_ahead_gives_what_asking_gives(batches, device):
    start = batches.steps_per_epoch - 2
    with Ahead(batches, start, device, depth=3) as ready:
        for step in range(start, start + 2 * batches.steps_per_epoch):
            batch = next(ready)
            assert batch.inputs.device.type == device
            assert_same(batch.to("cpu"), batches.batch(*divmod(step, batches.steps_per_epoch)))
    assert not ready.thread.is_alive()
    with pytest.raises(StopIteration):
        next(ready)


def test_ahead_is_not_too_far_ahead():
    class Counting:
        steps_per_epoch = 10
        asked = 0

        def batch(self, epoch, index):
            self.asked += 1
            return Streams(random_store(5), sequences=1).batch(0, 0)

    batches = Counting()
    with Ahead(batches, 0, depth=2) as ready:
        for _ in range(5):
            next(ready)
        ready.thread.join(0.3)
        assert batches.asked <= 5 + 2 + 1


def test_an_error_ahead_is_raised_here_after_the_good_batches():
    class Failing:
        steps_per_epoch = 10

        def batch(self, epoch, index):
            if index == 3:
                raise OSError("the disk went away")
            return Streams(random_store(5), sequences=1).batch(0, 0)

    threads = threading.active_count()
    ready = Ahead(Failing(), 0)
    for _ in range(3):
        next(ready)
    with pytest.raises(OSError, match="the disk went away"):
        next(ready)
    assert threading.active_count() == threads


def test_batches_are_picked_by_name():
    batches = pick("batches", BATCHES, "sentences", store=random_store(50), sequences=8, seed=1)
    assert batches.steps_per_epoch == 7
    with pytest.raises(ValueError, match="did you mean 'sequences'"):
        pick("batches", BATCHES, "streams", store=random_store(50), sequence=8)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda store: Sentences(store, positions=100, max_length=101), "has no room for a sentence"),
        (lambda store: Sentences(store, positions=400, sequences=4), "400 positions or 4 sequences; leave one of"),
        (lambda store: Sentences(store, sequences=0), "above 0"),
        (lambda store: Streams(store, steps=0), "above 0"),
        (lambda store: Streams(store, sequences=10_000), "cannot be cut into 10000 streams"),
    ],
)
def test_impossible_batches_are_refused(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(random_store(10))


def test_a_batch_outside_the_epoch_is_refused():
    batches = Streams(random_store(10))
    with pytest.raises(IndexError, match="of an epoch of"):
        batches.batch(0, batches.steps_per_epoch)
