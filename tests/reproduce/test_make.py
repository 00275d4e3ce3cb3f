"""Rows are made once, trainings are shared, and what was interrupted goes on."""

import shutil
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest

from selfnorm import training
from selfnorm.reproduce import measures
from selfnorm.reproduce import rows as kept
from selfnorm.reproduce.clock import Clock, TimeUp
from selfnorm.reproduce.make import Maker
from selfnorm.reproduce.plan import SWEPT, rows, run_name
from selfnorm.training import Interrupted, Stopped, Watcher

CLOCK = {"seconds_per_batch", "words_per_second", "words_per_second_large", "training_seconds"}
ORIGIN = {"machine": "a desk", "torch": "2"}


def maker(to, scale, corpus, **options):
    return Maker(to, scale, {corpus.name: corpus}, origin=ORIGIN, **options)


def only(item, scale, *parts):
    return [row for row in rows(item, scale) if any(part in row.key for part in parts)]


@pytest.fixture(scope="module")
def made(tmp_path_factory, scale, corpus):
    """Some rows of tables 1 to 4: the folder, what was wanted, what was made, and the names of the trainings."""
    to, trained = tmp_path_factory.mktemp("made"), []

    @contextmanager
    def watch(name):
        trained.append(name)
        yield Watcher()

    wanted = [*only("table2", scale, "mode3/k200"), *only("table3", scale, "mode3", "/ce/", "count")]
    wanted += [*only("table4", scale, "mode3"), rows("table1", scale)[0]]
    found = list(maker(to, scale, corpus, watch=watch).make(wanted))
    return to, wanted, found, trained


def test_a_row_has_its_numbers_and_its_origin(made):
    _, _, found, _ = made
    row = found[0]
    assert (row["item"], row["criterion"], row["k"], row["sampler"]) == ("table2", "mode3", 200, "distinct")
    assert (row["machine"], row["torch"], row["seed"]) == ("a desk", "2", 1)
    assert 1 < row["mixture_perplexity"] < row["perplexity"] < 400
    assert 0 < row["words_seen"] < 6 * 32 * 11
    assert row["log_z_std"] > 0
    assert row["seconds_per_batch"] > 0
    assert row["words_per_second_large"] > 0
    assert set(row["texts"]) == {"further"}
    assert "wer" not in row


def test_errors_are_of_each_subset_and_add_up(made):
    found = {row["label"]: row for row in made[2] if row["item"] == "table3"}
    assert set(found) == {"count LM", "CE", "Mode3"}
    for row in found.values():
        rates = row["wer"]["lists"]
        assert set(rates) == {"all", "north", "south"}
        whole = sum(rates[name]["wer"] * rates[name]["words"] for name in ("north", "south"))
        assert whole / rates["all"]["words"] == pytest.approx(rates["all"]["wer"])
        low, high = rates["all"]["interval"]
        assert low <= rates["all"]["wer"] <= high
        assert rates["all"]["first_pass"] > 0
    assert found["count LM"]["wer"]["lists"]["all"]["wer"] < found["count LM"]["wer"]["lists"]["all"]["first_pass"]
    assert found["count LM"]["perplexity"] == pytest.approx(found["CE"]["ngram_perplexity"])


def test_statistics_are_of_the_text(made, corpus):
    row = made[2][-1]
    words = len(corpus.train[0].read_text().split())
    assert (row["item"], row["words"], row["vocabulary"]) == ("table1", words, 302)


def test_a_training_is_shared(made, scale):
    to, wanted, found, trained = made
    assert len(trained) == 3  # tables 2 and 3 share one
    assert found[0]["run"] == found[3]["run"] == run_name(wanted[0], scale)
    assert len(list((to / "runs").iterdir())) == 3
    assert not list((to / "runs").glob("*/checkpoints"))


def test_finished_rows_are_skipped(made, scale, corpus, monkeypatch):
    to, wanted, found, _ = made
    monkeypatch.setattr(training, "train", None)
    again = maker(to, scale, corpus)
    assert list(again.make(wanted)) == []
    assert list(again.done().values()) == found
    assert [each.state for each in again.plan(wanted)] == ["done"] * len(wanted)


def test_a_damaged_row_is_made_again_from_what_was_measured(made, scale, corpus, monkeypatch):
    to, wanted, found, _ = made
    path, said = to / kept.ROWS, []
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"label": "CE"', b'"label": "XE"'))
    monkeypatch.setattr(training, "train", None)
    again = maker(to, scale, corpus, say=said.append)
    (row,) = again.make(wanted)
    assert row == next(each for each in found if each["label"] == "CE")
    assert any("the line is damaged" in sentence for sentence in said)
    assert not kept.read(to)[1]


def test_an_interrupted_training_goes_on_to_the_same_end(made, scale, corpus, tmp_path):
    (row,) = only("table2", scale, "mode3/k200")
    clock = Clock(60)

    @contextmanager
    def late(_):
        yield Watcher(metrics=lambda metrics: setattr(clock, "until", 0.0))

    first = maker(tmp_path, scale, corpus, watch=late)
    with pytest.raises(TimeUp, match=r"the time is up: built-in-mode3-k200-\w+ is saved, and goes on next time"):
        list(first.make([row], clock=clock))
    assert [each.state for each in first.plan([row])] == ["begun"]
    assert first.done() == {}
    steps = []

    @contextmanager
    def watch(_):
        yield Watcher(begin=lambda step, total: steps.append((step, total)))

    (found,) = maker(tmp_path, scale, corpus, watch=watch).make([row])
    assert steps == [(2, 6)]
    whole = made[2][0]
    assert {key: each for key, each in found.items() if key not in CLOCK} == {
        key: each for key, each in whole.items() if key not in CLOCK
    }


def test_a_signal_is_not_the_clock(scale, corpus, tmp_path):
    @contextmanager
    def watch(_):
        yield Watcher(metrics=lambda metrics: signal.raise_signal(signal.SIGTERM))

    wanted = only("table2", scale, "mode3/k200")
    with pytest.raises(Interrupted) as ended:
        list(maker(tmp_path, scale, corpus, watch=watch).make(wanted))
    assert ended.value.number == signal.SIGTERM
    assert [each.state for each in maker(tmp_path, scale, corpus).plan(wanted)] == ["begun"]


def test_no_row_is_begun_when_the_time_is_up(scale, corpus, tmp_path):
    with pytest.raises(TimeUp):
        list(maker(tmp_path, scale, corpus).make(rows("table2", scale), clock=Clock(0)))
    assert not (tmp_path / "data").exists()


def test_at_most_so_many_rows(scale, corpus, tmp_path):
    wanted = rows("table1", scale)
    assert len(list(maker(tmp_path, scale, corpus).make(wanted, 2))) == 2
    assert [each.state for each in maker(tmp_path, scale, corpus).plan(wanted)] == ["done", "done", "to do"]
    assert len(list(maker(tmp_path, scale, corpus).make(wanted, 2))) == 1


def test_rows_are_timed_when_the_model_is_gone(scale, corpus, tmp_path, monkeypatch):
    """And trained again where more than that is missing."""
    (wanted,) = only("table3", scale, "mode3")
    maker(tmp_path, scale, corpus).prepare(wanted, Clock())
    assert maker(tmp_path, scale, corpus).ready(wanted)
    assert [each.state for each in maker(tmp_path, scale, corpus).plan([wanted])] == ["trained"]
    shutil.rmtree(tmp_path / "runs")
    with monkeypatch.context() as patched:
        patched.setattr(training, "train", None)
        (row,) = maker(tmp_path, scale, corpus).make([wanted])
    assert row["words_per_second"] > 0
    assert row["wer"]["lists"]["all"]["wer"] > 0
    (tmp_path / kept.ROWS).unlink()
    (tmp_path / "measured" / row["run"] / "text.json").unlink()
    (again,) = maker(tmp_path, scale, corpus).make([wanted])
    assert again["perplexity"] == row["perplexity"]
    assert (tmp_path / "runs" / row["run"]).exists()


def test_another_seed_is_trained_and_not_timed(scale, corpus, tmp_path, monkeypatch):
    (first,) = only("table3", scale, "mode3")
    (one,) = maker(tmp_path, scale, corpus).make([first])
    monkeypatch.setattr(measures, "speed", lambda *_: pytest.fail("it is timed again"))
    (two,) = maker(tmp_path, scale, corpus).make([replace(first, seed=2)])
    assert two["words_per_second"] == one["words_per_second"]
    assert two["run"] != one["run"]
    assert two["perplexity"] != one["perplexity"]


def test_a_shorter_training_is_not_timed_again(scale, corpus, tmp_path, monkeypatch):
    scale = replace(scale, tasks={**scale.tasks, SWEPT: replace(scale.tasks[SWEPT], training={"steps": 3})})
    (long,) = only("table3", scale, "/ce/")
    short = next(row for row in rows("beyond", scale) if row.criterion == "ce" and not row.large)
    (one,) = maker(tmp_path, scale, corpus).make([long])
    monkeypatch.setattr(measures, "speed", lambda *_: pytest.fail("it is timed again"))
    (two,) = maker(tmp_path, scale, corpus).make([short])
    assert two["words_per_second"] == one["words_per_second"]
    assert two["words_seen"] < one["words_seen"]


def test_a_training_that_stops_is_a_finding(scale, corpus, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise Stopped("step 3: no")

    monkeypatch.setattr(training, "train", stop)
    (row,) = maker(tmp_path, scale, corpus).make(only("table2", scale, "mode1/k2/"))
    assert row["stopped"] == "step 3: no"
    assert row["date"]


def test_a_plan_says_what_is_shared(scale, corpus, tmp_path):
    planned = maker(tmp_path, scale, corpus).plan(only("all", scale, "mode3/k200/g1/distinct"))
    assert [each.state for each in planned] == ["to do", "shared", "to do", "shared", "to do", "shared"]
    assert [each.row.item for each in planned] == ["table2", "table3", "table4", "figure1", "table5", "beyond"]
    assert not list(tmp_path.iterdir())


def test_what_is_missing_is_a_sentence(scale, corpus, tmp_path):
    broken = replace(corpus, test=(tmp_path / "nowhere.txt",))
    with pytest.raises(ValueError, match=r"nowhere.txt: is missing, and built-in needs it; give --data the folder"):
        list(maker(tmp_path, scale, broken).make(rows("table1", scale)))


def test_a_folder_prepared_from_another_text_is_refused(made, scale, corpus):
    to, *_ = made
    other = replace(corpus, size=200)
    with pytest.raises(ValueError, match="was prepared from another text"):
        list(maker(to, scale, other).make(only("table2", scale, "nce")))


def test_what_a_killed_process_left_of_counting_is_removed(scale, corpus, tmp_path):
    left = tmp_path / "data" / ".built-in.4gram.arpa.abc"
    left.mkdir(parents=True)
    (left / "grams").write_text("large")
    (row,) = only("table3", scale, "count")
    maker(tmp_path, scale, corpus).count(row, Clock())
    assert not left.exists()
    assert (tmp_path / "data" / "built-in.4gram.arpa").exists()
