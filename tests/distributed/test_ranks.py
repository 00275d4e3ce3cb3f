"""Several ranks train as one process does on the same batches, and twice alike; and they go on in any number."""

import random
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from curves import calm, every_kind, farthest, perplexity, train_on
from ranks import on_ranks
from trials import outcome, recipe

from selfnorm import training
from selfnorm.corpus.batches import Sentences, Streams
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.store import Data
from selfnorm.distributed.exchange import Exchange
from selfnorm.recipe import Table
from selfnorm.training.signals import Interrupted
from selfnorm.training.trainer import Trainer

HANDFUL = {  # of the matrix that `make torture` runs whole: most criteria, each model, each kind of gradient
    2: (
        "mode3, rows",
        "mode2, shared",
        "sampled_softmax, spread tables",
        "nce, spread layers",
        "ce, dense",
        "is, rows",
    ),
    4: ("mode3, spread tables", "ce_vr, rows", "mode2, dense", "bce, spread layers", "linear, dense"),
}


def until(end, made, run, world):
    """Train up to step `end`, as if a signal had come there; the words that this rank was given."""
    given, plain = [], Trainer.update

    def update(trainer, batch):
        if trainer.step == end:
            raise Interrupted(15, end)
        given.extend(batch.targets.tolist())
        return plain(trainer, batch)

    Trainer.update = update
    try:
        with suppress(Interrupted):
            training.train(made, run, world=world)
    finally:
        Trainer.update = plain
    return given


@pytest.mark.parametrize("size", HANDFUL)
def test_the_loss_curve_is_that_of_one_process(data, tmp_path, size):
    kinds = every_kind(data)
    recipes = {name: kinds[name] for name in HANDFUL[size]}
    for name, made in recipes.items():
        training.train(made, tmp_path / f"{name}, 1")
    train_on(size, recipes, tmp_path)
    assert {name: far for name, far in farthest(recipes, tmp_path, size).items() if far > 1e-5} == {}
    for name in recipes:
        assert perplexity(tmp_path / f"{name}, {size}") == pytest.approx(perplexity(tmp_path / f"{name}, 1"), rel=1e-5)


def test_ranks_without_a_sequence_take_part(data, tmp_path):
    """Batches of one to four sentences on three ranks: one or two of them have nothing to add."""
    few = {"batches": Table(None, {"positions": 16, "max_length": 16})}
    recipes = {name: replace(calm(data, name), **few) for name in ("mode3", "nce")}
    recipes["mode2"] = replace(calm(data, "mode2", {"spread_tables": True}, {"sparse": True}), **few)
    for name, made in recipes.items():
        training.train(made, tmp_path / f"{name}, 1")
    train_on(3, recipes, tmp_path)
    assert max(farthest(recipes, tmp_path, 3).values()) < 1e-5


def test_the_same_number_of_ranks_gives_the_same_bits(data, tmp_path):
    """With dropout, which every rank draws for itself; one of the two runs is cut in two."""
    made = {"mode3": recipe(data, "mode3"), "nce": recipe(data, "nce")}
    train_on(2, made, tmp_path)
    for end in (23, 60):
        on_ranks(2, lambda world, end=end: [until(end, made[name], tmp_path / name, world) for name in made])
    for name in made:
        assert outcome(tmp_path / name) == outcome(tmp_path / f"{name}, 2")


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_by_all(data, tmp_path):
    def work(world):
        plain = Exchange.backward

        def backward(exchange, loss, *others):
            return plain(exchange, loss * float("nan") if world.rank == 1 and len(seen) == 3 else loss, *others)

        seen = []
        Exchange.backward = backward
        update = Trainer.update

        def counted(trainer, batch):
            seen.append(trainer.parts.model.output.bias.detach().clone())
            return update(trainer, batch)

        Trainer.update = counted
        training.train(recipe(data, "mode3", steps=6), tmp_path / "run", world=world)
        return [bool((one != other).any()) for one, other in pairwise(seen)]

    assert on_ranks(2, work) == [[True, True, False, True, True]] * 2
    assert '"skipped": 1' in (tmp_path / "run/metrics.jsonl").read_text()


def test_ranks_draw_their_own_dropout(data, tmp_path):
    def work(world):
        seeds = []
        plain = Trainer.update

        def update(trainer, batch):
            seeds.append(tuple(torch.get_rng_state().tolist()))  # what dropout draws from
            return plain(trainer, batch)

        Trainer.update = update
        training.train(recipe(data, "mode3", steps=1), tmp_path / "run", world=world)
        return seeds[0]

    assert len(set(on_ranks(3, work))) == 3


@pytest.mark.parametrize("ranks", [2, 3, 7, 64])
def test_every_sequence_of_a_batch_is_one_ranks(data, ranks):
    store = Data.open(data).train
    for kind, options in ((Sentences, {"positions": 64, "max_length": 16}), (Streams, {"sequences": 64, "steps": 6})):
        whole = kind(store, seed=3, **options)
        parts = [kind(store, seed=3, rank=rank, ranks=ranks, **options) for rank in range(ranks)]
        for index in random.Random(ranks).sample(range(whole.steps_per_epoch), 5):
            batch, shares = whole.batch(1, index), [part.batch(1, index) for part in parts]
            assert torch.equal(torch.cat([share.targets for share in shares]), batch.targets)
            assert [share.share.before for share in shares] == [
                sum(len(each.targets) for each in shares[:rank]) for rank in range(ranks)
            ]
            assert all(share.share.targets == len(set(share.targets.tolist())) for share in shares)
            assert all(share.share.inputs == len(set(share.inputs.flatten().tolist())) for share in shares)
            assert {share.positions for share in shares} == {len(batch.targets)}
            for groups in (1, 2, 5):  # each rank's groups, one after the other, are those of the whole batch
                ends = [share.bounds(groups) for share in shares]
                sizes = [sum(each[group + 1] - each[group] for each in ends) for group in range(groups)]
                bounds = batch.bounds(groups)
                assert sizes == [bounds[group + 1] - bounds[group] for group in range(groups)]


def test_a_changing_number_of_ranks_sees_every_sentence_once(data, tmp_path):
    """2, then 1, then 4 processes in one epoch: what all of them were given is the text."""
    made = recipe(data, "mode3", epochs=1)
    whole = Sentences(Data.open(data).train, positions=64, max_length=16, seed=1)
    wanted = sorted(word for index in range(whole.steps_per_epoch) for word in whole.batch(0, index).targets.tolist())
    seen: list[int] = []
    for size, end in ((2, whole.steps_per_epoch // 3), (1, whole.steps_per_epoch // 2), (4, whole.steps_per_epoch)):
        words = on_ranks(size, lambda world, end=end: until(end, made, tmp_path / "run", world))
        seen += [word for mine in words for word in mine]
    assert sorted(seen) == wanted


def test_what_ranks_must_agree_on(data, tmp_path):
    def work(world):
        with pytest.raises(ValueError, match=r"process \d has another recipe than process \d; give all"):
            training.train(recipe(data, "mode3", seed=world.rank), tmp_path / "run", world=world)

    on_ranks(2, work)


def test_ranks_agree_on_texts_and_on_the_model_to_start_from(data, tmp_path):
    made = recipe(data, "mode3", steps=4)
    for seed in (1, 2):
        training.train(recipe(data, "mode3", steps=4, seed=seed), tmp_path / f"source-{seed}")
    prepare([data.parent / "train.txt"], tmp_path / "less", 100, processes=1)
    given = [made, replace(made, data=str(tmp_path / "less"))]

    def work(world):
        with pytest.raises(ValueError, match="another development text than"):
            training.train(given[world.rank], tmp_path / "a", world=world)
        with pytest.raises(ValueError, match="another starting model than"):
            training.train(made, tmp_path / "b", source=tmp_path / f"source-{world.rank + 1}", world=world)
        with pytest.raises(ValueError, match="another starting model than"):
            training.train(made, tmp_path / "c", source=tmp_path / "source-1" if world.rank else None, world=world)

    on_ranks(2, work)


def test_what_cannot_be_spread(data, tmp_path):
    def work(world):
        with pytest.raises(ValueError, match="spread_tables is for sampled criteria with row-sparse tables"):
            training.train(calm(data, "ce", {"spread_tables": True}), tmp_path / "a", world=world)
        with pytest.raises(ValueError, match="spread_layers is for the layers of a Transformer"):
            training.train(calm(data, "mode3", {"spread_layers": True}), tmp_path / "b", world=world)
        streams = Table("streams", {"sequences": 1, "steps": 6})
        with pytest.raises(ValueError, match="2 processes cannot share 1 streams"):
            training.train(replace(calm(data, "ce"), batches=streams), tmp_path / "c", world=world)

    on_ranks(2, work)


@pytest.mark.parametrize("name", ["ce", "mode2"])
def test_streams_go_on_in_any_number_of_ranks(data, tmp_path, name):
    """Each rank carries the state of its own streams; a checkpoint has all of them."""
    made = calm(data, name)
    training.train(made, tmp_path / f"{name}, 1")
    for size, end in ((2, 21), (3, 47), (1, 60), (4, 100)):
        on_ranks(size, lambda world, end=end: until(end, made, tmp_path / f"{name}, 4", world))
    assert max(farthest({name: made}, tmp_path, 4).values()) < 1e-5


def test_a_run_goes_on_spread_and_unspread(data, tmp_path):
    """What is spread over ranks is whole in a checkpoint: any number of processes goes on from it."""
    made = calm(data, "nce", {}, {"sparse": True})
    spread = calm(data, "nce", {"spread_tables": True, "spread_layers": True}, {"sparse": True})
    training.train(made, tmp_path / "nce, 1")

    for size, end in ((2, 30), (1, 55), (3, 100)):
        on_ranks(size, lambda world, end=end: until(end, spread, tmp_path / "nce, 3", world))
    assert max(farthest({"nce": made}, tmp_path, 3).values()) < 1e-5
