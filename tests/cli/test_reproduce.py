"""`selfnorm reproduce` as a user meets it."""

import importlib
import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from selfnorm.cli import app
from selfnorm.demo import english as module
from selfnorm.reproduce import rows as kept
from selfnorm.reproduce.plan import SCALES

verb = importlib.import_module("selfnorm.cli.reproduce")  # the module: `cli` has the verb under this name


@pytest.fixture(autouse=True)
def tinier(monkeypatch):
    """Fewer words, steps and utterances; the fall-back text is the same wherever this Python is."""
    tiny = SCALES["tiny"]
    tasks = {name: replace(task, training={"steps": 3}, warmup=1) for name, task in tiny.tasks.items()}
    extra = {"save_every": 1000, "log_every": 1, "evaluation_words": 200}
    tiny = replace(tiny, tasks=tasks, evaluation_words=300, repeats=1, shrink=100, large=256, folds=2, extra=extra)
    monkeypatch.setitem(SCALES, "tiny", tiny)
    monkeypatch.setattr(verb, "SIZE", 300)
    monkeypatch.setattr(verb, "UTTERANCES", 4)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)


@pytest.fixture(scope="module")
def to(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce") / "made"


def call(*arguments):
    result = CliRunner().invoke(app, ["reproduce", *map(str, arguments)])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result


def test_a_row_its_table_and_its_json(to):
    result = call("table3", "--to", to, "--only", "mode3", "--json")
    (row,) = json.loads(result.stdout)["rows"]
    needed = {"criterion", "k", "perplexity", "perplexity_as_is", "log_z_mean", "log_z_std", "words_per_second", "wer"}
    assert needed <= row.keys()
    assert (row["criterion"], row["k"], row["paper"]["mixture_perplexity"]) == ("mode3", 80, 51.7)
    assert set(row["wer"]["channel"]) == {"all", "test"}
    assert "step 3/3" in result.stderr
    again = call("table3", "--to", to, "--only", "mode3")
    assert "step" not in again.stderr
    assert "51.7" in again.stdout
    assert "All 10.2, SWB 6.9, CH 13.6" in again.stdout


def test_rows_and_minutes_bound_the_work(to):
    result = call("table1", "--to", to, "--rows", 1, "--json")
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["label"], row["vocabulary"], row["perplexity"]) == ("Switchboard", 300, None)
    assert "1 of 3 rows are done; the same command goes on" in result.stderr
    result = call("table1", "--to", to, "--minutes", 0)
    assert "the time is up; 1 of 3 rows are done" in result.stderr


def test_a_plan_makes_nothing(tmp_path):
    result = call("all", "--scale", "small", "--to", tmp_path / "new", "--plan", "--json")
    planned = json.loads(result.stdout)["rows"]
    assert {each["state"] for each in planned} == {"to do", "shared"}
    assert not (tmp_path / "new").exists()
    assert "8 of 8 rows to make; 8 trainings" in call("table2", "--to", tmp_path / "new", "--plan").stdout


def test_parts_give_the_order(tmp_path):
    result = call("all", "--to", tmp_path / "new", "--plan", "--json", "--only", "table4/ce", "--only", "ce/g1/seed1")
    keys = [each["key"] for each in json.loads(result.stdout)["rows"]]
    assert keys == ["table4/ce/g1/seed1", "table3/ce/g1/seed1", "beyond/ce/g1/seed1"]


def test_a_page_is_written_from_rows(to, tmp_path):
    call("all", "--to", to, "--page", tmp_path / "page.md")
    found = {row["item"] for row in kept.read(to)[0]}
    assert (tmp_path / "page.md").read_text().count("Not run yet.") == 7 - len(found)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["table6"], "there is no item 'table6'"),
        (["table2", "--scale", "huge"], "there is no scale 'huge'"),
        (["table2", "--scale", "small"], "--scale small needs --data, the folder that holds podcasts, books"),
        (["table2", "--scale", "small", "--data", "nowhere"], "train.txt.bz2: is missing, and podcasts needs it"),
        (["table2", "--only", "mode3", "--only", "mode9"], "--only mode9: no row is called so; see --plan"),
        (["all", "--page", "page.md"], "rows.jsonl: has no row of --scale tiny to make a page from; check --to"),
    ],
)
def test_mistakes_are_sentences(arguments, sentence, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--to", str(tmp_path / "to")])
    assert isinstance(result.exception, ValueError)
    assert sentence in str(result.exception)
