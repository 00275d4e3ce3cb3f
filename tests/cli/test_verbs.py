"""train, evaluate and score as a user meets them: what they print, how they end, and the sentence for each mistake."""

import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from trials import call, recipe

import selfnorm
from selfnorm import training
from selfnorm.files import WriteError
from selfnorm.recipe import to_toml

SELFNORM = Path(sys.executable).parent / "selfnorm"
KEYS = {"perplexity", "perplexity_as_is", "log_z_mean", "log_z_std", "words", "oov", "words_per_second"}


@pytest.fixture
def verb(tmp_path):
    """`selfnorm ARGUMENTS`: exit status, standard output, standard error."""
    return partial(call, tmp_path / "said")


@pytest.fixture
def toml(data, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(data, "ce", steps=6)))
    return path


def strict(text):
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_the_installed_command_trains(verb, data, toml, tmp_path):
    """A process of its own, with nothing imported before."""
    done = subprocess.run(
        [SELFNORM, "train", toml, tmp_path / "run", "--set", f"data={data}", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert strict(done.stdout)["steps"] == 6
    assert "step 4/6" in done.stderr
    found = strict(verb("evaluate", tmp_path / "run", data.parent / "valid.txt", "--json")[1])
    assert found.keys() >= KEYS
    assert found["perplexity"] == pytest.approx(strict(done.stdout)["evaluation"]["perplexity"])


def test_train_prints_a_result(verb, toml, tmp_path):
    status, out, err = verb("train", toml, tmp_path / "run")
    assert status == 0
    assert "run: 6 steps, " in out
    assert "development text: perplexity " in out
    assert "Traceback" not in err
    status, out, err = verb("train", toml, tmp_path / "run", "--json")
    assert (status, err) == (0, "the run is finished; for more, raise training.steps or epochs\n")
    assert strict(out).keys() == {"run", "steps", "words", "evaluation", "words_per_second"}
    assert strict(out)["evaluation"].keys() >= KEYS


def test_evaluate_is_what_python_says(verb, run, data):
    text = data.parent / "valid.txt"
    found = strict(verb("evaluate", run, text, "--json")[1])
    scorer = selfnorm.load(run, "cpu")
    lines = text.read_text().splitlines()
    scores = [score for line in lines for score in scorer.score(line)]
    assert found["words"] == len(scores) == sum(len(line.split()) + 1 for line in lines)
    assert found["perplexity_as_is"] == pytest.approx(math.exp(-sum(scores) / len(scores)), rel=1e-5)
    assert found["oov"] == sum(word not in scorer.vocabulary for line in lines for word in line.split())
    status, out, _ = verb("evaluate", run, text)
    assert status == 0
    assert "perplexity, normalized" in out


def test_a_name_with_brackets_is_a_name(verb, run, data, tmp_path):
    """Rich takes [bold] for markup."""
    text = tmp_path / "wiki[bold].txt"
    text.write_text((data.parent / "valid.txt").read_text())
    for given in (["evaluate", run, text], ["prepare", text, "--to", tmp_path / "data"]):
        assert "wiki[bold].txt" in re.sub(r"[\s│]", "", verb(*given)[1])  # it is long, and folded


def test_standard_error_may_be_closed(verb, run, data):
    status, out, err = verb(
        "evaluate", run, data.parent / "valid.txt", "--json", before=lambda: setattr(sys, "stderr", None)
    )
    assert (status, err) == (0, "")
    assert strict(out)["words"]


def test_evaluate_plots(verb, run, data, tmp_path):
    found = strict(verb("evaluate", run, data.parent / "valid.txt", "--json", "--plot", tmp_path / "plots")[1])
    assert sorted(Path(path).name for path in found["plots"]) == [
        "calibration.png",
        "calibration.svg",
        "log_z.png",
        "log_z.svg",
    ]
    assert all(Path(path).stat().st_size > 1000 for path in found["plots"])


def test_a_text_of_unknown_words_is_valid_json(verb, run, tmp_path):
    (tmp_path / "text").write_text("zzz yyy\n")
    found = strict(verb("evaluate", run, tmp_path / "text", "--json")[1])
    assert (found["words"], found["oov"], found["oov_rate"]) == (3, 2, 1.0)


def test_score_is_word_by_word(verb, run, tmp_path):
    (tmp_path / "text").write_text("w1 w2 zebra\n\nw0\n")
    scorer = selfnorm.load(run, "cpu")
    status, out, _ = verb("score", run, tmp_path / "text")
    rows = [line.split("\t") for line in out.splitlines()]
    assert status == 0
    assert [(number, word, mark) for number, word, _, mark in rows] == [
        ("1", "w1", "known"),
        ("1", "w2", "known"),
        ("1", "zebra", "unknown"),
        ("1", "</s>", "known"),
        ("2", "w0", "known"),
        ("2", "</s>", "known"),
    ]
    wanted = scorer.score("w1 w2 zebra") + scorer.score("w0")
    assert [float(score) for _, _, score, _ in rows] == pytest.approx(wanted, abs=1e-5)
    lines = [strict(line) for line in verb("score", run, tmp_path / "text", "--format", "jsonl")[1].splitlines()]
    assert [line["words"] for line in lines] == [["w1", "w2", "zebra"], ["w0"]]
    assert [score for line in lines for score in line["scores"]] == pytest.approx(wanted, abs=1e-5)
    assert lines[0]["known"] == [True, True, False]
    normalized = strict(verb("score", run, tmp_path / "text", "--normalize", "--json")[1])
    assert normalized["score"] == pytest.approx(sum(scorer.log_prob("w1 w2 zebra") + scorer.log_prob("w0")), abs=1e-4)
    assert strict(verb("score", run, tmp_path / "text", "--keep-empty", "--json")[1])["sentences"] == 3


@pytest.mark.parametrize("name", ["evaluate", "score"])
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "holds no sentence; give a text with one sentence per line"),
        (b"\n \n", "holds no sentence"),
        (b"a b\nc \xff d\n", "text:2: byte 6 (0xff) is not UTF-8"),
        (b"a <s> b\n", "text:1: byte 2 starts the word '<s>'"),
        (None, "there is no such file; give a text"),
    ],
)
def test_a_bad_text_is_a_sentence(verb, run, tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / "text").write_bytes(content)
    status, out, err = verb(name, run, tmp_path / "text")
    assert (status, out) == (2, "")
    assert sentence in err
    assert str(tmp_path / "text") in err
    assert err.count("\n") == 1


def test_what_comes_through_a_pipe_is_no_file(verb, run, data, tmp_path):
    text, said, pipe = data.parent / "valid.txt", tmp_path / "said.txt", tmp_path / "pipe"
    said.write_text("one w1\n")
    os.mkfifo(pipe)
    for given in (
        ["evaluate", pipe, text],
        ["evaluate", run, text, "--ngram", pipe, "--tune", data.parent / "train.txt"],
        ["wer", pipe, said],
        ["wer", said, pipe],
        ["rescore", pipe, "--to", tmp_path / "out"],
        ["rescore", tmp_path, "--words", pipe, "--to", tmp_path / "out"],
        ["rescore", tmp_path, "--ngram", pipe, "--to", tmp_path / "out"],
    ):
        status, out, err = verb(*given)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"{pipe}: is a pipe or device, not a file; give " in err


@pytest.mark.parametrize("which", ["text", "vocab"])
def test_an_ngram_model_is_not_written_over_what_it_is_made_of(verb, data, tmp_path, which):
    paths = {"text": tmp_path / "text", "vocab": tmp_path / "vocab"}
    paths["text"].write_text("w1 w2\n")
    paths["vocab"].write_text("w1\n")
    before = paths[which].read_text()
    status, out, err = verb("ngram", paths["text"], "--vocab", paths["vocab"], "--to", paths[which])
    assert (status, out, paths[which].read_text()) == (2, "", before)
    assert f"{paths[which]}: is read, and would be written over; give another name for what is made" in err


def test_a_text_that_is_no_file_says_what_it_is(verb, run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path, "is a folder, not a file; give"), (tmp_path / "pipe", "is a pipe or device, not a")):
        for before, after in (("prepare", ("--to", tmp_path / "new")), ("ngram", ("--to", tmp_path / "lm"))):
            status, _, err = verb(before, path, *after)
            assert (status, err.count("\n")) == (2, 1)
            assert f"{path}: {what}" in err
        for name in ("evaluate", "score"):
            status, _, err = verb(name, run, path)
            assert (status, err.count("\n")) == (2, 1)
            assert f"{path}: {what}" in err


def test_a_path_that_the_system_refuses_is_a_sentence(verb, run, data, tmp_path):
    (tmp_path / "file").touch()
    status, out, err = verb("evaluate", run, data.parent / "valid.txt", "--plot", tmp_path / "file")
    assert (status, out, err) == (2, "", f"selfnorm: {tmp_path}/file: is a file; give a folder for the plots\n")
    status, out, err = verb("evaluate", run, data.parent / "valid.txt", "--plot", tmp_path / "file/plots")
    assert (status, out) == (2, "")
    assert err == f"selfnorm: {tmp_path}/file/plots: Not a directory; give another path, or mend this one\n"


@pytest.mark.parametrize("name", ["evaluate", "score"])
def test_a_run_that_is_none_is_a_sentence(verb, data, tmp_path, name):
    for folder, sentence in (
        (tmp_path / "none", "there is no such run or file"),
        (tmp_path, "is not a run"),
        (data, "is not a run; give a directory that `selfnorm train` wrote"),
    ):
        status, out, err = verb(name, folder, data.parent / "valid.txt")
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert sentence in err
    status, _, err = verb(name, tmp_path, data.parent / "valid.txt", "--debug")
    assert "Traceback" in err
    assert (status, err.splitlines()[-1]) == (
        2,
        f"selfnorm: {tmp_path}: is not a run, it has no manifest.json; give a directory that `selfnorm train` wrote",
    )


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("training.step=5", "table 'training' takes no option 'step'; did you mean 'steps'?"),
        ("training.steps=-1", "training.steps = -1: it must be above 0"),
        ("training.steps=1.5", "training.steps = 1.5: it must be a whole number"),
        ("training.steps=true", "training.steps = True: it must be a whole number"),
        ("training.steps=many", "training.steps = 'many': it must be a whole number"),
        ("training.epochs=1", "one of them only, not epochs = 1 and steps = 6; change the one that the recipe has"),
        ("training.clip=tight", "training.clip = 'tight': it must be a number"),
        ("training.seed=-1", "training.seed = -1: it must be a whole number from 0"),
        ("training.name=x", "the table training has no name"),
        ("training.kind=x", "table 'training' takes no option 'kind'; it takes: epochs, steps"),
        ("training.device=tpu", "training.device = 'tpu': give auto, cpu"),
        ("training.precision=bfloat16", "training.precision = 'bfloat16' is for GPUs"),
        ("optimizer.lrr=1", "optimizer 'sgd' takes no option 'lrr'; did you mean 'lr'? it takes: lr, momentum"),
        ("optimizer.parameters=1", "optimizer 'sgd' takes no option 'parameters'; it takes: lr, momentum"),
        ("optimizer.lr=fast", "optimizer.lr = 'fast': it must be a number"),
        ("optimizer.name=adm", "there is no optimizer 'adm'; did you mean 'adam'?"),
        ("schedule.factr=1", "schedule 'newbob' takes no option 'factr'; did you mean 'factor'?"),
        ("batches.sequence=1", "batches 'streams' takes no option 'sequence'; did you mean 'sequences'?"),
        (
            "batches.store=1",
            "batches 'streams' takes no option 'store'; did you mean 'steps'? it takes: sequences, steps\n",
        ),
        ("batches.seed=1", "batches 'streams' takes no option 'seed'"),
        ("batches.sequences=100000", "cannot be cut into 100000 streams; take fewer"),
        ("model.hiden=1", "model 'lstm' takes no option 'hiden'; did you mean 'hidden'?"),
        ("model.hidden=0", "hidden = 0: a model needs a whole number above 0"),
        ("model.hidden=[16]", "model.hidden = [16]: it must be a whole number"),
        ("model.size=5", "model 'lstm' takes no option 'size'"),
        ("model.link=log", "model 'lstm' takes no option 'link'"),
        ("model.normalize=true", "model 'lstm' takes no option 'normalize'"),
        ("model.preset=[1]", "model.preset = [1]: it must be a word"),
        ("criterion.name=mode4", "there is no criterion 'mode4'; did you mean"),
        ("criterion.alpha=1", "criterion 'ce' takes no option 'alpha'; it takes: none"),
        ("sampelr.k=1", "unknown key 'sampelr'; did you mean 'sampler'?"),
        ("data=/nowhere", "/nowhere: there is no such folder; make one with `selfnorm prepare"),
    ],
)
def test_a_mistake_in_the_recipe_is_a_sentence(verb, toml, tmp_path, override, sentence):
    status, out, err = verb("train", toml, tmp_path / "run", "--set", override)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert sentence in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("sampler.kk=5", "sampler 'systematic' takes no option 'kk'"),
        ("sampler.k=1000", "1000 distinct ids cannot be drawn from 100 words"),
        ("sampler.k=some", "sampler.k = 'some': it must be a whole number"),
        ("sampler.noise=unigrm", "there is no noise 'unigrm'; did you mean 'unigram'?"),
        ("sampler.noise=5", "sampler.noise = 5: it must be a name, or a table with a name"),
        ("sampler.noise={name = 'unigram', powr = 1}", "noise 'unigram' takes no option 'powr'; did you mean 'power'?"),
        ("sampler.noise={name = 'unigram', counts = 1}", "noise 'unigram' takes no option 'counts'; it takes: power"),
        ("sampler.noise={name = 'uniform', size = 1}", "noise 'uniform' takes no option 'size'; it takes: none"),
        ("sampler.noise={name = 'unigram', power = 'x'}", "noise.power = 'x': it must be a number"),
        ("sampler.name=excluding", "sampler 'excluding' goes with criterion 'mode2' alone"),
        ("criterion.name=mode2", "criterion 'mode2' needs sampler 'excluding'"),
        ("optimizer={name = 'adamw'}", "there is no row-sparse optimizer 'adamw'"),
    ],
)
def test_a_mistake_in_the_sampler_is_a_sentence(verb, data, tmp_path, override, sentence):
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(data, "mode3")))
    status, out, err = verb("train", path, tmp_path / "run", "--set", override)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert sentence in err


def test_a_vocabulary_that_is_not_sorted_needs_another_noise(verb, tmp_path):
    from selfnorm import manifest
    from selfnorm.corpus.store import write_store
    from selfnorm.vocabulary import Vocabulary

    vocabulary = Vocabulary(["rare", "often", "<unk>", "</s>"], [1, 9, 1, 3])
    folder = tmp_path / "data"
    folder.mkdir()
    vocabulary.save(folder / "vocab.txt")
    import numpy as np

    write_store(folder / "train.ids", vocabulary, [np.array([1, 1, 0, 3] * 30, "<u2")])
    from selfnorm.files import sha256

    entries = {path.name: manifest.Entry(path.stat().st_size, sha256(path)) for path in folder.iterdir()}
    (folder / "manifest.json").write_bytes(manifest.render(entries))
    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(folder, "linear", steps=3)))
    status, _, err = verb("train", path, tmp_path / "run", "--set", "sampler.k=2")
    assert status == 2
    assert "vocab.txt is not sorted by falling count" in err
    assert verb("train", path, tmp_path / "run", "--set", "sampler={k = 2, noise = 'unigram'}")[0] == 0


def test_stopped_by_itself_is_3(verb, toml, tmp_path):
    wild = ["--set", "optimizer.lr=1e38", "--set", "training.clip=1e38", "--set", "training.save_every=1"]
    status, _, err = verb("train", toml, tmp_path / "run", *wild)
    assert status == 3
    assert "not finite" in err or "is nan" in err or "is inf" in err
    assert "at learning rate 1e+38" in err
    assert "Traceback" not in err
    status, _, err = verb("train", toml, tmp_path / "other", *wild, "--debug")
    assert status == 3
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("selfnorm: ")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ChildProcessError("a worker died"), 3),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 3),
        (MemoryError(), 3),
        (PermissionError(errno.EACCES, "Permission denied"), 2),
        (WriteError(errno.ENOENT, os.strerror(errno.ENOENT), "nowhere/page.md"), 2),
        (WriteError(errno.EDQUOT, os.strerror(errno.EDQUOT), "page.md"), 3),
        (ValueError("wrong"), 2),
    ],
)
def test_exit_status_by_error(verb, toml, tmp_path, error, status):
    def fail(*_, **__):
        raise error

    found, _, err = verb("train", toml, tmp_path / "run", before=lambda: setattr(training, "train", fail))
    assert found == status
    assert err.startswith("selfnorm: ")
    assert err.count("\n") == 1
    given = ["train", toml, tmp_path / "run", "--debug"]
    assert verb(*given, before=lambda: setattr(training, "train", fail))[0] == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_says_how_to_go_on(verb, toml, tmp_path, number):
    def line(_metrics):
        signal.raise_signal(number)
        return ""

    module = sys.modules["selfnorm.cli.train"]
    run = tmp_path / "a run"
    status, out, err = verb("train", toml, run, before=lambda: setattr(module, "line", line))
    assert (status, out) == (128 + number, "")
    assert err.endswith(
        f"stopped by {number.name} at step 4, all saved; go on with: selfnorm train '{run}/recipe.toml' '{run}'\n"
    )
    assert verb("train", run / "recipe.toml", run)[0] == 0


def test_nobody_listening_does_not_end_a_training(verb, toml, tmp_path):
    def deaf():
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 2)

    assert verb("train", toml, tmp_path / "run", before=deaf)[0] == 0
    assert selfnorm.load(tmp_path / "run", "cpu").config["step"] == 6


def test_from_another_run(verb, data, run, tmp_path):
    from selfnorm.corpus.prepare import prepare

    path = tmp_path / "recipe.toml"
    path.write_text(to_toml(recipe(data, "mode3", steps=3)))
    status, _, err = verb("train", path, tmp_path / "same", "--from", run)
    assert status == 0
    assert "100 of 100 words carried over" in err
    (tmp_path / "more.txt").write_text("w0 new words w1 w2\n" * 20)
    prepare([tmp_path / "more.txt"], tmp_path / "data", processes=1)
    more = ["--from", run, "--set", f"data={tmp_path / 'data'}", "--set", "sampler.k=4"]
    status, _, err = verb("train", path, tmp_path / "new", *more)
    assert status == 0
    assert "5 of 7 words carried over" in err
    status, _, err = verb("train", path, tmp_path / "link", "--from", run, "--set", "criterion.name=nce")
    assert status == 0
    assert "its criterion 'mode3' has another link" in err
    status, _, err = verb("train", path, tmp_path / "wide", "--from", run, "--set", "model.hidden=24")
    assert status == 2
    assert "the model to start from has lstm.bias_hh_l0 (64,), the recipe's (96,); use its model table" in err
    assert verb("train", path, tmp_path / "none", "--from", tmp_path)[0] == 2


def test_out_of_memory_says_what_to_lower(verb, toml, tmp_path, monkeypatch):
    """A step names its sizes; elsewhere the recipe's are named."""
    from selfnorm.training.trainer import Trainer

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(Trainer, "work", full)
    for criterion, words, lower in (("ce", "every word", ""), ("nce", "K = 20 samples", ", sampler.k")):
        options = ["--set", f"criterion.name={criterion}", "--set", "sampler.k=20"]
        status, _, err = verb("train", toml, tmp_path / criterion, *options)
        assert status == 3
        what = rf"step 0: out of memory with N = \d+ positions and {words} of C = \d+; lower batches.positions "
        assert re.search(rf"{what}\(or sequences\){lower} or training.most", err)
    monkeypatch.setattr(Trainer, "update", full)
    status, _, err = verb("train", toml, tmp_path / "run")
    assert status == 3
    assert "make one of them smaller" in err
