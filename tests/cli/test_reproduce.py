"""`selfnorm reproduce` as a user meets it."""

import importlib
import io
import json
import re
import signal
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from selfnorm.cli import app
from selfnorm.demo import english as module
from selfnorm.reproduce import rows as kept
from selfnorm.reproduce.plan import SCALES

verb = importlib.import_module("selfnorm.cli.reproduce")  # the module: `cli` has the verb under this name
train = importlib.import_module("selfnorm.cli.train")


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


def test_a_pipe_gets_whole_keys(tmp_path):
    plan = call("table2", "--to", tmp_path / "new", "--plan").stdout
    assert re.search(r" table2/mode2/k1/g1/excluding/position/log_uniform/seed1 +0.05M +to do", plan)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_outside_of_a_training_says_how_to_go_on(number, tmp_path, monkeypatch):
    said = []

    def tell(sentence):
        said.append(sentence)
        if sentence.startswith("table1"):
            signal.raise_signal(number)

    monkeypatch.setattr(verb, "tell", tell)
    before, call = signal.getsignal(signal.SIGTERM), ["reproduce", "table1", "--to", str(tmp_path / "to")]
    monkeypatch.setattr(sys, "argv", ["selfnorm", *call])
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background of a shell ignore it
    try:
        result = CliRunner().invoke(app, call)
    finally:
        signal.signal(signal.SIGINT, kept)
    assert result.exit_code == 128 + number
    again = f"selfnorm reproduce table1 --to {tmp_path}/to"
    assert said[-1] == f"selfnorm: stopped by {number.name}, all that was finished is kept; go on with: {again}"
    assert signal.getsignal(signal.SIGTERM) == before


def drawn(screen):
    return re.sub(r"\x1b\[[\d;?]*\w| ", "", screen.file.getvalue())


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_says_how_far_it_is_whatever_the_name(width, monkeypatch):
    """A key of 60 letters left no room for steps and times at 80 columns."""
    screen = Console(file=io.StringIO(), force_terminal=True, width=width)
    monkeypatch.setattr("rich.console.Console", lambda **_: screen)
    monkeypatch.setattr(verb.sys, "stderr", SimpleNamespace(isatty=lambda: True))
    name = "table2/mode3/k8000/g1/distinct/log_uniform/seed1"
    for watch in (train.watching(name), verb._bars()):
        with watch as one, one(name) if callable(one) else nullcontext(one) as watcher:
            watcher.begin(90, 104_000)
            until = time.monotonic() + 5  # it is drawn again ten times a second
            while "90/104000" not in drawn(screen) and time.monotonic() < until:
                time.sleep(0.05)
        assert "table2/mode3/k8000/g1" in drawn(screen)
        assert "90/104000" in drawn(screen)
        screen.file.seek(screen.file.truncate(0))


def test_parts_give_the_order(tmp_path):
    result = call("all", "--to", tmp_path / "new", "--plan", "--json", "--only", "table4/ce", "--only", "ce/g1/seed1")
    keys = [each["key"] for each in json.loads(result.stdout)["rows"]]
    assert keys == ["table4/ce/g1/seed1", "table3/ce/g1/seed1", "beyond/ce/g1/seed1"]


def test_a_page_is_written_from_rows(to, tmp_path):
    call("table1", "--to", to, "--rows", 1)
    before = (to / "rows.jsonl").read_bytes()
    refused = CliRunner().invoke(app, ["reproduce", "all", "--to", str(to), "--page", str(to / "rows.jsonl")])
    assert "rows.jsonl: is read, and would be written over" in str(refused.exception)
    assert (to / "rows.jsonl").read_bytes() == before
    wanted = {"pages": [str(path) for path in (tmp_path / "page.md", *sorted(tmp_path.glob("page*.svg")))]}
    assert json.loads(call("all", "--to", to, "--page", tmp_path / "page.md", "--json").stdout) == wanted
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
        (["table2", "--only", "mode3/k8000"], "keys of all rows, whose K is 100 times smaller than the paper's"),
        (["all", "--page", "page.md"], "rows.jsonl: has no row of --scale tiny to make a page from; check --to"),
    ],
)
def test_mistakes_are_sentences(arguments, sentence, tmp_path):
    result = CliRunner().invoke(app, ["reproduce", *arguments, "--to", str(tmp_path / "to")])
    assert isinstance(result.exception, ValueError)
    assert sentence in str(result.exception)
    assert ("times smaller" in str(result.exception)) == ("mode3/k8000" in arguments)
