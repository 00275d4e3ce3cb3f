"""The demo's second pass: files that the verbs take up, counts that they confirm, nothing done twice."""

import json

import pytest
from typer.testing import CliRunner

from selfnorm.cli import app
from selfnorm.demo import english as module
from selfnorm.demo.english import english
from selfnorm.demo.second_pass import Plan, SecondPass, chosen
from selfnorm.demo.side_by_side import Setting, SideBySide
from selfnorm.lattices import transcripts

TINY = Setting(criteria=("ce", "mode3"), size=300, hidden=8, k=20, steps=3)
PLAN = Plan(test=8, dev=6)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # the fall-back text is the same wherever this Python is, and small
        patch.setattr(module.importlib.util, "find_spec", lambda _: None)
        found = SideBySide(english(), tmp_path_factory.mktemp("demo") / "demo", TINY)
    found.prepare()
    list(found.models())
    return found


@pytest.fixture(scope="module")
def rescoring(demo):
    second = SecondPass(demo.to, PLAN)
    assert second.listen()
    return second.compared({name: second.rescored(name, demo.run(name)) for name in TINY.criteria})


def verb(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    return json.loads(result.stdout)


def files(demo):
    kinds = ("lattices", "rescored")
    return {path: path.stat().st_mtime_ns for kind in kinds for path in (demo.to / kind).rglob("*.*") if path.is_file()}


def test_the_verbs_say_the_same(demo, rescoring, tmp_path):
    second = SecondPass(demo.to, PLAN)
    said, outcome = second.said("test"), rescoring.outcomes["mode3"]
    scales = second.folder("mode3") / "scales.json"
    given = [second.lattices / "test", "--references", said]
    again = verb(
        "rescore", *given, "--model", demo.run("mode3"), "--scales", scales, "--hypotheses", 4, "--to", tmp_path
    )
    assert again["wer"]["wer"] == pytest.approx(outcome.wer)
    assert again["utterances"] == PLAN.test
    assert again["arcs"] == rescoring.arcs
    first = verb("rescore", *given, "--weight", 0, "--to", tmp_path)
    assert first["wer"]["wer"] == pytest.approx(rescoring.first.wer)
    counted = verb("wer", said, second.folder("mode3") / "hypotheses.txt", "--oracle", second.lattices / "test")
    assert counted["wer"] == pytest.approx(outcome.wer)
    assert counted["interval"] == pytest.approx([outcome.interval.low, outcome.interval.high])
    assert counted["oracle"]["wer"] == pytest.approx(rescoring.oracle)


def test_only_cross_entropy_needs_log_z(rescoring):
    assert rescoring.outcomes["ce"].needs_log_z
    assert not rescoring.outcomes["mode3"].needs_log_z


def test_nothing_is_done_twice(demo, rescoring):
    before = files(demo)
    second = SecondPass(demo.to, PLAN)
    assert not second.listen()
    again = second.compared({name: second.rescored(name, demo.run(name)) for name in TINY.criteria})
    assert again == rescoring
    assert files(demo) == before


def test_what_changed_is_done_again(demo, rescoring):
    other = SecondPass(demo.to, Plan(test=5, dev=6))
    try:
        assert other.listen()
        assert len(list((other.lattices / "test").iterdir())) == 5
        assert len(other.rescored("mode3", demo.run("mode3")).errors) == 5
    finally:
        second = SecondPass(demo.to, PLAN)
        assert second.listen()
    assert second.rescored("mode3", demo.run("mode3")).heard == rescoring.outcomes["mode3"].heard


def test_lattices_cut_off_midway_are_made_anew(demo, rescoring):
    second = SecondPass(demo.to, PLAN)
    (second.lattices / "made.json").write_text('{"format": 1, ')
    assert second.listen()


def test_scales_are_tuned_on_other_sentences(demo, rescoring):
    second = SecondPass(demo.to, PLAN)
    dev, test = (set(transcripts.read(second.said(part)).values()) for part in ("dev", "test"))
    lines = {part: set(map(tuple, map(str.split, demo.english.sentences[part]))) for part in ("valid", "test")}
    assert dev <= lines["valid"]
    assert test <= lines["test"]
    assert not dev & test


def test_rows(rescoring):
    fields = rescoring.fields("mode3")
    assert fields["wer"] == rescoring.outcomes["mode3"].wer
    assert fields["wer_interval"][0] <= fields["wer"] <= fields["wer_interval"][1]
    assert fields["wer_oracle"] <= min(fields["wer"], fields["wer_first_pass"])


def test_most_improved(rescoring):
    name, gain = rescoring.most_improved("mode3")
    number = list(rescoring.first.said).index(name)
    gains = [
        before.total - after.total for before, after in zip(rescoring.first.errors, rescoring.outcomes["mode3"].errors)
    ]
    assert gain == gains[number] == max(gains)


def test_chosen():
    sentences = [" ".join(["word"] * n) for n in range(40)]
    assert {len(words) for words in chosen(sentences, "dev", 100).values()} == set(range(6, 21))
    assert [len(words) for words in chosen(sentences, "dev", 3).values()] == [6, 11, 16]
    assert list(chosen(sentences, "dev", 2)) == ["dev-001", "dev-002"]
