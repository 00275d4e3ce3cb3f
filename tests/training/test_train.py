"""Whole trainings: the same twice, cut anywhere, finished, prolonged; and numbers that go wrong in them."""

import json
import math
import os
import re
import shutil
import signal
import threading
from contextlib import suppress
from dataclasses import asdict, replace

import pytest
import torch
from trials import CASES, differing, outcome, recipe

import selfnorm
from selfnorm import training
from selfnorm.checkpoint import Checkpoints
from selfnorm.corpus.ahead import Ahead
from selfnorm.corpus.prepare import prepare
from selfnorm.optim import RowOptimizer
from selfnorm.recipe import Table
from selfnorm.tensorfile import read_tensors
from selfnorm.training import Interrupted, Stopped, Watcher, train
from selfnorm.training.parts import build, carry_over
from selfnorm.training.trainer import Trainer


def lines_of(run, kind=None):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if kind is None or ("evaluation" in line) == (kind == "evaluation")]


def changed(made, table, **options):
    old = getattr(made, table)
    return replace(made, **{table: Table(options.pop("name", old.name), {**old.options, **options})})


@pytest.fixture
def short(data):
    return recipe(data, "mode3", steps=6, save_every=2, evaluate_every=3, log_every=2)


@pytest.fixture
def told():
    return []


@pytest.fixture
def listening(told):
    return Watcher(say=told.append)


@pytest.mark.parametrize("criterion", CASES)
def test_the_same_seed_gives_the_same_run(data, tmp_path, criterion, monkeypatch):
    """R15: bit by bit, whatever the caller's generator holds and however many batches are made ahead."""
    made = recipe(data, criterion, steps=8, save_every=3, evaluate_every=4)
    train(made, tmp_path / "one")
    torch.manual_seed(99)
    mine = torch.get_rng_state()
    monkeypatch.setattr("selfnorm.training.Ahead", lambda *arguments: Ahead(*arguments, depth=1))
    train(made, tmp_path / "two")
    assert torch.equal(torch.get_rng_state(), mine)
    one, two = outcome(tmp_path / "one"), outcome(tmp_path / "two")
    assert differing(one, two) == []
    train(changed(made, "training", seed=2), tmp_path / "three")
    assert "model.output.weight" in differing(one, outcome(tmp_path / "three"))


@pytest.mark.parametrize("criterion", ["ce", "mode2"])
def test_resumed_at_every_step(data, tmp_path, criterion):
    """R15: also where an evaluation, a line of the log or the end is due at that very step."""
    made = recipe(data, criterion, steps=20, save_every=7, evaluate_every=5, log_every=4)
    train(made, tmp_path / "whole")
    wanted = outcome(tmp_path / "whole")
    for step in range(1, 21):
        run = tmp_path / f"cut-{step}"
        with pytest.raises(Interrupted, match=f"stopped by SIGTERM at step {step}, all saved"):
            with_signal(made, run, step)
        assert Checkpoints(run / "checkpoints").latest().step == step
        train(made, run)
        assert differing(outcome(run), wanted) == [], step


def with_signal(made, run, step):
    def update(self, batch):
        if self.step + 1 == step:
            signal.raise_signal(signal.SIGTERM)
        return plain(self, batch)

    plain = Trainer.update
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", update)
        train(made, run)


def test_a_signal_in_an_evaluation_ends_it_and_it_is_done_again(tmp_path, short, monkeypatch):
    train(short, tmp_path / "whole")
    from selfnorm.training import trainer

    def evaluate(*arguments, progress, **options):
        signal.raise_signal(signal.SIGUSR1)
        return plain(*arguments, progress=progress, **options)

    plain = trainer.evaluate
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "evaluate", evaluate)
        with pytest.raises(Interrupted, match="SIGUSR1 at step 3"):
            train(short, tmp_path / "cut")
    assert lines_of(tmp_path / "cut", "evaluation") == []
    train(short, tmp_path / "cut")
    assert differing(outcome(tmp_path / "cut"), outcome(tmp_path / "whole")) == []


def test_an_evaluation_logged_but_not_saved_is_logged_once(tmp_path, short, monkeypatch):
    """Interrupted before what is due at step 3, gone on, and killed after the evaluation, before the checkpoint."""
    train(short, tmp_path / "whole")
    with pytest.raises(Interrupted):
        with_signal(short, tmp_path / "cut", 3)
    with monkeypatch.context() as patch:
        patch.setattr("selfnorm.training._keep", lambda trainer: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(short, tmp_path / "cut")
    assert len(lines_of(tmp_path / "cut", "evaluation")) == 1
    train(short, tmp_path / "cut")
    assert differing(outcome(tmp_path / "cut"), outcome(tmp_path / "whole")) == []


def test_signals_are_the_callers_again_and_threads_may_train(short, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    found = []
    thread = threading.Thread(target=lambda: found.append(train(short, tmp_path / "run").steps))
    thread.start()
    thread.join()
    train(short, tmp_path / "run")
    assert found == [6]
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_finished_run_says_so_and_gives_its_result(short, tmp_path, listening, told):
    first = train(short, tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run/checkpoints").iterdir()}
    again = train(short, tmp_path / "run", watcher=listening)
    assert told == ["the run is finished; for more, raise training.steps or epochs"]
    assert (again.steps, again.words, again.evaluation) == (first.steps, first.words, first.evaluation)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "run/checkpoints").iterdir()}
    assert len(lines_of(tmp_path / "run")) == 3 + 2


def test_a_run_may_be_prolonged(data, tmp_path, listening, told):
    made = recipe(data, "ce", steps=10)
    train(made, tmp_path / "run")
    train(changed(made, "training", steps=20), tmp_path / "run", watcher=listening)
    train(changed(made, "training", steps=20), tmp_path / "whole")
    assert told == ["going on from step 10 of 20; changed in the recipe: training"]
    one, two = outcome(tmp_path / "run"), outcome(tmp_path / "whole")
    assert differing(one, two) == ["metrics"]  # a line for step 10, where it ended first, so the next is of two steps
    assert [line["step"] for line in one["metrics"] if line not in two["metrics"]] == [10, 12]


def test_the_kept_model_is_the_best_one(data, tmp_path, monkeypatch):
    """The second of four evaluations is the best: its model and its figures stay, also when a later part is resumed."""
    from selfnorm.training import trainer

    plain, found = trainer.evaluate, iter([50.0, 20.0, 30.0, 21.0])
    monkeypatch.setattr(trainer, "evaluate", lambda *a, **o: replace(plain(*a, **o), perplexity=next(found)))
    made = recipe(data, "nce", steps=9, evaluate_every=3, save_every=1)
    train(made, tmp_path / "run")
    result = train(changed(made, "training", steps=12), tmp_path / "run")
    assert result.evaluation.perplexity == 20.0
    assert [line["evaluation"]["perplexity"] for line in lines_of(tmp_path / "run", "evaluation")] == [50, 20, 30, 21]
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert (config["step"], config["perplexity"]) == (6, 20.0)
    assert "| perplexity, normalized | 20.00 |" in (tmp_path / "run/README.md").read_text()


def test_without_development_text_the_newest_model_is_kept(data, tmp_path, short):
    prepare([data.parent / "train.txt"], tmp_path / "data", 100, processes=1)
    made = replace(short, data=str(tmp_path / "data"))
    assert train(made, tmp_path / "run").evaluation is None
    config = json.loads((tmp_path / "run/config.json").read_text())
    assert config["step"] == 6
    assert "perplexity" not in config
    saved = Checkpoints(tmp_path / "run/checkpoints").latest()
    kept = read_tensors(tmp_path / "run/model.safetensors")
    assert all(torch.equal(kept[name], saved.tensors[f"model.{name}"]) for name in kept)


def test_metrics_are_those_of_the_steps_since_the_last_line(data, tmp_path):
    made = recipe(data, "ce", steps=10, save_every=3, log_every=1, evaluate_every=10)
    train(made, tmp_path / "each")
    train(changed(made, "training", log_every=4), tmp_path / "some")
    each = [line["loss"] for line in lines_of(tmp_path / "each", "metrics")]
    some = {line["step"]: line["loss"] for line in lines_of(tmp_path / "some", "metrics")}
    assert some.keys() == {4, 8, 10}
    assert some == pytest.approx({4: sum(each[:4]) / 4, 8: sum(each[4:8]) / 4, 10: sum(each[8:]) / 2})


def test_the_logged_rate_is_the_one_that_was_used(data, tmp_path):
    made = replace(recipe(data, "ce", steps=4, log_every=1), schedule=Table("constant", {"warmup": 4}))
    train(made, tmp_path / "run")
    rates = [line["lr"] for line in lines_of(tmp_path / "run", "metrics")]
    assert rates == pytest.approx([5 / 4, 10 / 4, 15 / 4, 5])


@pytest.mark.parametrize(
    ("table", "options", "what"),
    [
        ("criterion", {"name": "is"}, "model, criterion"),
        ("model", {"hidden": 24}, "model"),
        ("batches", {"positions": 32}, "batches"),
        ("batches", {"name": "streams", "positions": None, "max_length": None}, "batches"),
        ("optimizer", {"name": "sgd"}, "optimizer"),
        ("schedule", {"name": "newbob", "warmup": 2}, "schedule"),
        ("training", {"seed": 7}, "seed"),
    ],
)
def test_what_makes_no_sense_to_go_on_with_is_refused(short, tmp_path, table, options, what):
    train(short, tmp_path / "run")
    before = outcome(tmp_path / "run")
    other = changed(short, table, **options)
    plain = {key: value for key, value in getattr(other, table).options.items() if value is not None}
    other = replace(other, **{table: Table(getattr(other, table).name, plain)})
    with pytest.raises(ValueError, match=f"step-00000006: was made with another {what} than the recipe says; go on"):
        train(other, tmp_path / "run")
    assert outcome(tmp_path / "run") == before


@pytest.mark.parametrize("size", [100, None])
def test_another_vocabulary_is_refused(data, short, tmp_path, size):
    train(short, tmp_path / "run")
    prepare([data.parent / "train.txt", data.parent / "valid.txt"], tmp_path / "data", size, processes=1)
    with pytest.raises(ValueError, match="was made with another vocabulary, training text, development text than"):
        train(replace(short, data=str(tmp_path / "data")), tmp_path / "run")


def test_a_run_whose_folder_is_removed_is_whole_at_the_end(data, tmp_path, told, listening):
    run, made = tmp_path / "run", recipe(data, "ce", steps=8, log_every=2, evaluate_every=8)
    train(made, run, watcher=Watcher(metrics=lambda metrics: shutil.rmtree(run) if metrics.step == 4 else None))
    assert math.isfinite(selfnorm.load(run, "cpu").score("w1")[0])
    train(made, run, watcher=listening)
    assert told == ["the run is finished; for more, raise training.steps or epochs"]


def test_data_made_anew_while_a_training_begins_change_nothing(data, short, tmp_path, monkeypatch):
    """The model's words are those of the data that it opened."""
    mine, begin = tmp_path / "data", training._begin
    shutil.copytree(data, mine)
    before = (mine / "vocab.txt").read_bytes()

    def later(*given):
        (mine / "vocab.txt").write_text("other\t2\nwords\t1\n<unk>\t0\n</s>\t0\n")
        return begin(*given)

    monkeypatch.setattr(training, "_begin", later)
    train(recipe(mine, "ce", steps=2), tmp_path / "run")
    assert (tmp_path / "run" / "vocab.txt").read_bytes() == before


def test_another_text_is_refused(data, short, tmp_path):
    train(short, tmp_path / "run")
    text = (data.parent / "train.txt").read_text().splitlines(keepends=True)
    (tmp_path / "turned.txt").write_text("".join(reversed(text)))
    prepare([tmp_path / "turned.txt"], tmp_path / "data", 100, processes=1)
    with pytest.raises(ValueError, match="was made with another training text, development text than the recipe says"):
        train(replace(short, data=str(tmp_path / "data")), tmp_path / "run")


def test_another_development_text_is_refused(data, short, tmp_path):
    """A model that is the best on one text would stay before better ones on another."""
    train(short, tmp_path / "run")
    prepare([data.parent / "train.txt"], tmp_path / "data", 100, valid=data.parent / "train.txt", processes=1)
    more = changed(short, "training", steps=8)
    for other in (changed(more, "training", evaluation_words=9), replace(more, data=str(tmp_path / "data"))):
        with pytest.raises(ValueError, match="was made with another development text than the recipe says"):
            train(other, tmp_path / "run")


def test_a_development_text_may_come_later(data, short, tmp_path):
    text, dev = data.parent / "train.txt", data.parent / "valid.txt"
    prepare([text], tmp_path / "data", 100, processes=1)
    train(replace(short, data=str(tmp_path / "data")), tmp_path / "run")
    prepare([text], tmp_path / "data", 100, valid=dev, processes=1)
    found = train(replace(changed(short, "training", steps=8), data=str(tmp_path / "data")), tmp_path / "run")
    assert found.evaluation is not None


def test_a_smaller_rate_may_go_on(short, tmp_path, listening, told):
    with pytest.raises(Interrupted):
        with_signal(short, tmp_path / "run", 2)
    train(changed(short, "optimizer", lr=1e-5), tmp_path / "run", watcher=listening)
    assert told == ["going on from step 2 of 6; changed in the recipe: optimizer"]
    assert "lr = 1e-05" in (tmp_path / "run/recipe.toml").read_text()


def test_a_finished_run_keeps_the_recipe_it_was_trained_by(short, tmp_path, listening, told):
    train(short, tmp_path / "run")
    before = (tmp_path / "run/recipe.toml").read_bytes()
    train(changed(changed(short, "optimizer", lr=1e-5), "training", steps=4), tmp_path / "run", watcher=listening)
    assert told == ["the run is finished; for more, raise training.steps or epochs"]
    assert (tmp_path / "run/recipe.toml").read_bytes() == before


def test_sentences_that_are_cut_are_told(short, tmp_path, listening, told):
    train(changed(short, "batches", max_length=3), tmp_path / "run", watcher=listening)
    (sentence,) = told
    assert re.match(r"\d+ of \d+ training sentences are longer than batches.max_length and are cut, each", sentence)


def test_what_is_no_run_is_refused_and_left_alone(data, short, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.tex").write_text("x")
    before = {path: path.read_bytes() for path in data.iterdir()}
    for folder in (tmp_path / "other", data):  # DATA has a manifest too
        with pytest.raises(ValueError, match="is neither empty nor a run"):
            train(short, folder)
    with pytest.raises(ValueError, match="is a file, not a run directory"):
        train(short, tmp_path / "other/thesis.tex")
    assert os.listdir(tmp_path / "other") == ["thesis.tex"]
    assert {path: path.read_bytes() for path in data.iterdir()} == before


def test_what_a_killed_beginning_left_is_no_hindrance(short, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.recipe.toml.tmp.staged").write_bytes(b"da")
    assert train(short, tmp_path / "run").steps == 6
    assert not list((tmp_path / "run").glob(".*"))


def test_a_run_has_one_training_at_a_time(short, tmp_path):
    def meanwhile(step, total):
        with pytest.raises(ValueError, match="another training is writing to it"):
            train(short, tmp_path / "run")

    assert train(short, tmp_path / "run", watcher=Watcher(begin=meanwhile)).steps == 6


def test_a_lost_model_is_made_again(short, tmp_path, listening, told):
    train(short, tmp_path / "run")
    (tmp_path / "run/model.safetensors").unlink()
    result = train(short, tmp_path / "run", watcher=listening)
    assert "model.safetensors: the file is missing" in told[0]
    assert "the next model to be evaluated takes its place" in told[0]
    assert result.evaluation is not None
    assert selfnorm.load(tmp_path / "run", "cpu").config["step"] == 6
    assert len(lines_of(tmp_path / "run", "evaluation")) == 2


def test_an_old_run_may_be_evaluated_less_often_than_it_is_saved(data, tmp_path):
    train(recipe(data, "ce", epochs=0.5, save_every=3), tmp_path / "run")
    assert lines_of(tmp_path / "run", "evaluation")


# numbers that go wrong (R11)


def poisoned(step, value, steps=1):
    """A Trainer.update in which one weight becomes `value` before `step`, or its gradient does for some steps."""
    plain = Trainer.update

    def update(self, batch):
        weight = self.parts.model.lstm.weight_ih_l0
        if steps == 1 and self.step == step:
            with torch.no_grad():
                weight[0, 0] = value
        if steps > 1 and step <= self.step < step + steps:
            hook = weight.register_hook(lambda grad: torch.full_like(grad, value))
            try:
                return plain(self, batch)
            finally:
                hook.remove()
        return plain(self, batch)

    return update


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("save_every", [1, 2, 50])
def test_a_broken_weight_stops_the_run_and_is_never_saved(data, tmp_path, monkeypatch, value, save_every):
    made = recipe(data, "ce", steps=40, save_every=save_every, log_every=5, evaluate_every=100, patience=8)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "update", poisoned(6, value))
        with pytest.raises(Stopped, match=r"step \d+: .* not finite.*, at learning rate 5; .*lower optimizer\.lr") as e:
            train(made, tmp_path / "run")
    saved = Checkpoints(tmp_path / "run/checkpoints").latest()
    if saved is None:
        assert "there is no checkpoint yet" in str(e.value)
    else:
        assert f"the last good checkpoint is {saved.path}" in str(e.value)
        assert saved.step == 6
        assert all(bool(torch.isfinite(tensor).all()) for tensor in saved.tensors.values())
    assert train(made, tmp_path / "run").steps == 40


def test_a_broken_weight_is_not_evaluated(data, tmp_path, monkeypatch):
    made = recipe(data, "ce", steps=8, save_every=50, log_every=50, evaluate_every=4)
    monkeypatch.setattr(Trainer, "update", poisoned(6, math.nan))
    with pytest.raises(Stopped, match="step 8: the perplexity of the development text is nan"):
        train(made, tmp_path / "run")
    assert selfnorm.load(tmp_path / "run", "cpu").config["step"] == 4


@pytest.mark.parametrize("log_every", [2, 5])
def test_many_bad_steps_stop_the_run_however_often_it_reports(data, tmp_path, monkeypatch, log_every):
    made = recipe(data, "ce", steps=60, log_every=log_every, save_every=100, patience=8)
    monkeypatch.setattr(Trainer, "update", poisoned(3, math.nan, steps=50))
    with pytest.raises(Stopped, match=r"step 1[0-5]: \d+ steps in a row had a loss or gradient that is not finite"):
        train(made, tmp_path / "run")


def test_a_few_bad_steps_are_skipped_and_counted(data, tmp_path, monkeypatch):
    made = recipe(data, "ce", steps=8, save_every=1, log_every=2, evaluate_every=8)
    monkeypatch.setattr(Trainer, "update", poisoned(4, math.inf, steps=4))
    weights = []

    def keep(self):
        weights.append(self.parts.model.lstm.weight_hh_l0.detach().clone())
        return plain(self)

    plain = Trainer.save
    monkeypatch.setattr(Trainer, "save", keep)
    train(made, tmp_path / "run")
    lines = lines_of(tmp_path / "run", "metrics")
    assert [line["skipped"] for line in lines] == [0, 0, 2, 4]
    assert [line["loss"] is None for line in lines] == [False, False, True, True]
    assert not torch.equal(weights[2], weights[3])
    assert all(torch.equal(weights[3], later) for later in weights[4:])  # a skipped step changes nothing


@pytest.mark.parametrize("criterion", ["mode1", "is", "linear", "nce"])
@pytest.mark.parametrize("lr", [1e3, 1e30, math.inf])
def test_a_wild_rate_ends_finite_or_stopped(data, tmp_path, criterion, lr):
    made = recipe(data, criterion, steps=30, save_every=1, log_every=5, evaluate_every=10, clip=math.inf)
    made = replace(made, optimizer=Table("sgd", {"lr": lr}))
    with suppress(Stopped):
        assert math.isfinite(train(made, tmp_path / "run").evaluation.perplexity)
    saved = Checkpoints(tmp_path / "run/checkpoints").latest()
    if saved is not None:
        assert all(bool(torch.isfinite(tensor).all()) for tensor in saved.tensors.values())
    for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_a_line_of_the_log_can_be_read_at_once(short, tmp_path):
    """By those who look on, and after a kill."""
    there = []
    log = tmp_path / "run/metrics.jsonl"
    watcher = Watcher(
        metrics=lambda metrics: there.append(json.loads(log.read_text().splitlines()[-1])["step"] - metrics.step)
    )
    train(short, tmp_path / "run", watcher=watcher)
    assert len(there) > 1
    assert set(there) == {0}


def test_results_are_plain_values(short, tmp_path):
    fields = asdict(train(short, tmp_path / "run"))
    assert fields.keys() == {"run", "steps", "words", "evaluation", "words_per_second"}
    assert fields["words_per_second"] > 0


# starting from another run


@pytest.mark.parametrize("criterion", ["mode3", "sampled_softmax", "bce"])  # the latter two are tied
def test_shared_words_take_their_rows_along(data, tmp_path, criterion):
    old = build(recipe(data, criterion), tmp_path)
    (tmp_path / "more.txt").write_text("w0 new words w1 w2 and w3\n" * 20)
    prepare([tmp_path / "more.txt"], tmp_path / "data", processes=1)
    made = recipe(tmp_path / "data", criterion)
    made = made if criterion == "bce" else changed(made, "sampler", k=3)
    new = build(changed(made, "batches", sequences=2) if criterion != "mode3" else made, tmp_path)
    torch.nn.init.normal_(old.model.output.weight)
    torch.nn.init.normal_(old.model.output.bias)
    words, before = new.data.vocabulary, new.model.output.bias.detach().clone()
    assert carry_over(new, old.model.state_dict(), old.data.vocabulary) == 6  # w0 to w3, </s>, <unk>
    mine, theirs = new.model.state_dict(), old.model.state_dict()
    for id, word in enumerate(words.words):
        there = old.data.vocabulary.id(word)  # a new word begins as <unk>, with its own share of the text
        assert torch.equal(mine["output.weight"][id], theirs["output.weight"][there])
        wanted = theirs["output.bias"][there] if word in old.data.vocabulary else before[id]
        assert torch.equal(mine["output.bias"][id], wanted)
    assert torch.equal(mine["embedding.weight"][-1], theirs["embedding.weight"][-1])  # <s>
    tables = ("output.", "embedding.")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs if not name.startswith(tables))


@pytest.mark.parametrize(("tied", "tables"), [(False, ["embedding.weight"]), (True, [])])
def test_a_sum_over_all_words_moves_only_the_rows_of_its_inputs(data, tmp_path, tied, tables):
    """`sparse` does not change what is learned; tied, the rows of the inputs are those of the output."""
    made = changed(recipe(data, "ce", steps=12), "model", tied=tied, embedding=16, dropout=0.0)
    dense = changed(made, "optimizer", momentum=0.0)
    rows = changed(dense, "model", sparse=True)
    parts = build(rows, tmp_path)
    moved = [each for part in parts.optimizer.parts if isinstance(part, RowOptimizer) for each in part.given]
    names = {id(each): name for name, each in parts.model.named_parameters()}
    assert [names[id(each)] for each in moved] == tables
    found = []
    for name, each in (("dense", dense), ("rows", rows)):
        train(each, tmp_path / name)
        found.append(read_tensors(tmp_path / name / "model.safetensors"))
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, msg=name)


def test_a_checkpoint_with_states_of_unknown_parameters_is_refused(short, tmp_path):
    with pytest.raises(Interrupted):
        with_signal(short, tmp_path, 4)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    saved = checkpoints.latest()
    tensors = {name.replace("optimizer.lstm", "optimizer.gru"): value for name, value in saved.tensors.items()}
    checkpoints.save(saved.step, tensors, saved.state)
    with pytest.raises(
        ValueError, match=r"knows a parameter gru\S+ that the model has not; go on with the version that"
    ):
        train(short, tmp_path)


@pytest.fixture
def in_half(monkeypatch):
    monkeypatch.setattr("selfnorm.training.settings.Settings.half", True)


def test_copies_in_half_precision_survive_a_cut_and_learn_as_well(data, tmp_path, in_half, monkeypatch):
    made = changed(recipe(data, "nce", steps=12, save_every=5, log_every=2), "optimizer", name="adam")  # a Transformer
    train(made, tmp_path / "whole")
    wanted = outcome(tmp_path / "whole")
    with pytest.raises(Interrupted):
        with_signal(made, tmp_path / "cut", 3)
    train(made, tmp_path / "cut")
    assert differing(outcome(tmp_path / "cut"), wanted) == []
    monkeypatch.setattr("selfnorm.models.Model.keep_half", lambda self: [])
    train(made, tmp_path / "without")
    losses = [[line["loss"] for line in lines_of(tmp_path / run, "metrics")] for run in ("whole", "without")]
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
    assert losses[0] != losses[1]
    train(changed(made, "optimizer", name="sgd"), tmp_path / "others")  # they know no copies
