"""All of `selfnorm bench` but `output`, as a user meets it."""

import json
import re
import sys
from datetime import date
from functools import partial

import oracle
import pytest
import torch
from spoken import LATTICE
from trials import call, recipe

from selfnorm.corpus.store import Data
from selfnorm.recipe import to_toml
from selfnorm.samplers import SAMPLERS
from selfnorm.training import speed
from selfnorm.training.trainer import Trainer


@pytest.fixture
def verb(tmp_path):
    return partial(call, tmp_path / "said", "bench")


@pytest.fixture
def recipes(data, tmp_path):
    """Of a sampled criterion and of one over all words."""
    paths = [tmp_path / f"{name}.toml" for name in ("mode3", "ce")]
    for path in paths:
        path.write_text(to_toml(recipe(data, path.stem, steps=20)))
    return paths


def test_training_tells_the_speed_of_every_recipe_and_leaves_nothing(verb, recipes, data, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    status, out, err = verb("training", *recipes, "--steps", "3", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert [(row["criterion"], row["k"]) for row in rows] == [("mode3", 20), ("ce", None)]
    assert [row["C"] for row in rows] == 2 * [len(Data.open(data).vocabulary)]
    for row in rows:
        assert row["date"] == date.today().isoformat()
        assert row["ms"] > 0
        assert row["words_per_second"] > 0
        assert row["minutes"] == pytest.approx(20 * row["ms"] / 60_000)
    assert "mode3.toml: 3 steps" in err
    assert set(tmp_path.rglob("*")) - set(before) <= set((tmp_path / "said").rglob("*")) | {tmp_path / "said"}
    status, out, _ = verb("training", recipes[0], "--set", "sampler.k=7", "--steps", "1")
    assert status == 0
    assert "│ 7 │" in out
    assert "words/s" in out


def test_slow_steps_are_few(verb, recipes, monkeypatch):
    """What the README says first would take half an hour on a small machine."""
    monkeypatch.setattr(speed, "own_batches", lambda trainer, steps: speed.Speed(21.6, 379.0))
    status, out, err = verb("training", recipes[0], "--json")
    assert (status, json.loads(out)["rows"][0]["ms"]) == (0, 21_600.0)
    assert "mode3.toml: a step takes 22 s: 1 of them instead of 20" in err


@pytest.mark.parametrize("where", ["work", "update"])
def test_out_of_memory_is_one_sentence(verb, recipes, where, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(Trainer, where, full)
    status, out, err = verb("training", recipes[0])
    assert (status, out) == (3, "")
    told = {"work": "step 0: out of memory with N = ", "update": "out of memory (CUDA out of memory.)"}
    assert err.splitlines()[-1].startswith(f"selfnorm: {told[where]}")
    monkeypatch.setattr(Trainer, where, lambda *_: [][1])
    assert "Traceback" in verb("training", recipes[0])[2]  # a slip of our own is none


def test_sampler_times_every_sampler_from_both_noises(verb):
    status, out, _ = verb("sampler", "--size", "500", "--k", "20", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {(row["noise"], row["sampler"]) for row in rows} == {
        (n, s) for n in ("log_uniform", "unigram") for s in SAMPLERS
    }
    assert all(row["ms"] > 0 and (row["C"], row["k"]) == (500, 20) for row in rows)


def test_rescoring_compares_scores_as_they_are_with_normalized_ones(verb, run, tmp_path):
    for n in range(4):
        (tmp_path / f"{n}.slf").write_text(LATTICE.format(n, n + 1, n + 2, n + 3, name=f"anna_{n}"))
    (tmp_path / "4.slf").write_text("VERSION=1.0\nN=2")
    given = [tmp_path / f"{n}.slf" for n in range(5)]
    status, out, _ = verb("rescoring", *given, "--model", run, "--most", "3", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert [(row["scores"], row["utterances"], row["arcs"]) for row in rows] == [
        ("as they are", 3, 18),
        ("normalized", 3, 18),
    ]
    assert max(row["faster"] for row in rows) >= 1
    assert min(row["faster"] for row in rows) == 1
    status, _, err = verb("rescoring", *given, "--model", run)
    assert (status, "4 utterances, 1 could not be read" in err) == (1, True)
    assert "4.slf" in err


def test_what_kaldi_does_not_say_is_told(verb, run, tmp_path):
    (tmp_path / "lat.txt").write_text("anna_1\n0 1 the 1,2,\n1\n\n")
    status, _, err = verb("rescoring", tmp_path / "lat.txt", "--model", run)
    assert (status, "give --lm-scale, 1/acwt, often 10; 1 is taken" in err) == (0, True)


def test_training_tells_of_steps_that_changed_nothing(verb, recipes):
    status, _, err = verb("training", recipes[0], "--set", "optimizer.lr=1e30", "--steps", "3")
    assert status == 0
    assert re.search(r"mode3.toml: \d+ of \d+ steps had a loss or gradient that is not finite, and changed", err)
    assert "not finite" not in verb("training", recipes[0], "--steps", "3")[2]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat\nthe dog sat on the cat\na dog and a cat\n" * 20)
    return path


def test_both_passes_over_a_text_are_timed(verb, text):
    status, out, err = verb("prepare", text, text, "--size", "8", "--repeat", "2", "--json")
    rows = {row["stage"]: row for row in json.loads(out)["rows"]}
    assert (status, list(rows)) == (0, ["count", "encode", "all"])
    assert {row["words"] for row in rows.values()} == {2 * 20 * 17}
    assert rows["all"]["words_per_second"] == pytest.approx(2 * 20 * 17 / rows["all"]["seconds"])
    assert "encode, selfnorm: " in err


def test_an_ngram_model_is_estimated_loaded_and_asked(verb, text, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "kenlm", None)
    status, out, _ = verb("ngram", text, "--order", "3", "--repeat", "1", "--json")
    rows = {row["stage"]: row for row in json.loads(out)["rows"]}
    assert (status, list(rows)) == (0, ["estimate", "load", "load again", "score"])
    assert (rows["estimate"]["words"], rows["score"]["words"]) == (20 * 17, 20 * (17 + 3))  # sentence ends have scores
    assert rows["load"]["words_per_second"] is None
    assert {row["by"] for row in rows.values()} == {"selfnorm"}


@pytest.mark.skipif(not oracle.found(), reason=oracle.ABSENT)
def test_lmplz_is_timed_where_it_is_there(verb, text, monkeypatch):
    monkeypatch.setenv("PATH", str(oracle.LMPLZ.parent))
    status, out, _ = verb("ngram", text, "--repeat", "1", "--json")
    ours, theirs = (row for row in json.loads(out)["rows"] if row["stage"] == "estimate")
    assert (status, ours["by"], theirs["by"]) == (0, "selfnorm", "lmplz")
    assert ours["words"] == theirs["words"]


def test_kenlm_is_timed_where_it_is_there(verb, text):
    pytest.importorskip("kenlm")
    _, out, _ = verb("ngram", text, "--repeat", "1", "--json")
    assert [row["stage"] for row in json.loads(out)["rows"] if row["by"] == "kenlm"] == ["load", "score"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["prepare", "absent"], "absent: there is no such file; give a text"),
        (["ngram", "absent"], "absent: there is no such file; give a text"),
        (["training", "absent.toml"], "absent.toml: "),
        (["sampler", "--size", "10", "--k", "10"], "--k 10 of --size 10 ids are all of them or more; draw fewer"),
        (["rescoring", "absent"], "there is no model to rescore with; give --model or --ngram"),
    ],
)
def test_wrong_input_is_one_sentence(verb, arguments, sentence):
    status, out, err = verb(*arguments)
    assert (status, out) == (2, "")
    assert f"selfnorm: {sentence}" in err
    assert "Traceback" not in err
