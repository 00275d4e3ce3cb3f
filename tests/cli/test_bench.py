"""`selfnorm bench output` as a user meets it."""

import json
from functools import partial

import pytest
from trials import call

from selfnorm.bench import row
from selfnorm.bench.row import Shape


@pytest.fixture
def verb(tmp_path, monkeypatch):
    """`selfnorm bench output --quick ARGUMENTS` on a smaller shape still."""
    monkeypatch.setitem(row.SHAPES, "quick", Shape("quick", 1500, 16, 32))
    return partial(call, tmp_path / "said", "bench", "output", "--quick")


def test_a_table_on_stdout_and_progress_on_stderr(verb):
    status, out, err = verb()
    assert status == 0
    assert "quick: C = 1,500, H = 16, N = 32; " in out
    assert "x faster" in out
    for way in ("mode3, K = 1,000", "mode3, K = 100", "torch"):
        assert f"│ {way} " in out
    assert "mode3, G = 1, rows: agrees with float64" in err
    assert "agrees" not in out


def test_json_has_every_row_and_how_much_faster_it_is(verb):
    status, out, _ = verb("--json", "--k", "50", "--groups", "1", "--groups", "4", "--criterion", "nce")
    assert status == 0
    rows = json.loads(out)["rows"]
    ours = [each for each in rows if each["k"] == 50 and each["pass"] == "step"]
    assert [(each["criterion"], each["groups"]) for each in ours] == [("nce", 1), ("nce", 4)]
    best = min(each["ms"] for each in rows if each["k"] == 1500 and each["pass"] == "step")
    assert ours[0]["times_faster"] == pytest.approx(best / ours[0]["ms"], rel=1e-2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--shape", "tiny"], "there is no shape 'tiny'; choose one of: swb, "),
        (["--criterion", "ce"], "there is no sampled criterion 'ce'; did you mean 'nce'? choose one of: nce, "),
        (["--k", "0"], "--k 0 --groups 1: both are at least 1"),
        (["--budget", "-1"], "nothing could be measured; the lines above say why"),
    ],
)
def test_wrong_input_is_one_sentence(verb, arguments, sentence):
    status, out, err = verb(*arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
