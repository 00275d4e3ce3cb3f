"""From items to words, scales and files: given, tuned on development data, or cross-validated."""

import json
from dataclasses import asdict, replace

import pytest
from small import drawn, listed, neural, ngram, planted

from selfnorm.lattices.broken import Broken
from selfnorm.lattices.nbest import Hypothesis, NBest
from selfnorm.rescoring import NEURAL, NGRAM, Rescorer, Setting
from selfnorm.rescoring.second_pass import Output, Tally, load_scales, second_pass, tuned
from selfnorm.rescoring.tuning import Lists, cross_validate


@pytest.fixture
def mixed():
    """Lattices and lists, one after the other."""
    return [drawn(1), listed(drawn(2)), drawn(3), drawn(4), listed(drawn(5))]


def test_every_item_has_its_result_and_its_turn(mixed, tmp_path):
    rescorer = Rescorer({NEURAL: neural(), NGRAM: ngram(tmp_path)}, Setting(weight=0.5, ngram_weight=0.2))
    done = []
    outcome = second_pass(iter(mixed), rescorer, Output(tmp_path / "out", "expanded", 2), progress=done.append)
    assert [result.utterance for result in outcome.results] == [item.utterance for item in mixed]
    assert done == [1, 2, 3, 4, 5]
    assert outcome.folds == []
    assert outcome.setting == rescorer.setting == load_scales(tmp_path / "out" / "scales.json")
    alone = [second_pass([item], rescorer).results[0] for item in mixed]
    for one, other in zip(outcome.results, alone):
        assert one.words == other.words
        assert one.score == pytest.approx(other.score, abs=1e-5)


def test_scales_are_tuned_on_development_data_only(tmp_path):
    items, references = planted(40, seed=3)
    test, _ = planted(10, seed=4)
    outcome = second_pass(test, Rescorer({}), Output(tmp_path), develop=(items, references))
    assert outcome.setting == tuned(Rescorer({}), items, references) == load_scales(tmp_path / "scales.json")
    assert outcome.setting.lm_scale == pytest.approx(3, rel=0.25)
    again = second_pass(test, Rescorer({}, load_scales(tmp_path / "scales.json")))
    assert again.results == outcome.results


def test_each_fold_has_its_setting_and_all_have_one(tmp_path):
    items, references = planted(20, seed=5)
    outcome = second_pass(items, Rescorer({}), Output(tmp_path), references=references, folds=4)
    lists = Lists.of(list(Rescorer({}).rescore(items)), references, Setting())
    whole, folds, fold = cross_validate(lists, 4)
    assert (outcome.setting, outcome.folds) == (whole, folds)
    assert load_scales(tmp_path / "scales.json") == whole  # what other data are rescored with
    stored = json.loads((tmp_path / "scales.json").read_text())
    assert stored["folds"] == [asdict(setting) for setting in folds]
    for item, n, result in zip(items, fold, outcome.results):
        assert result == replace(second_pass([item], Rescorer({}, folds[n])).results[0], first=result.first)


def test_tuning_needs_a_reference_for_each(tmp_path):
    items, references = planted(4)
    for missing in ({}, {name: words for name, words in references.items() if name != "u2"}):
        with pytest.raises(ValueError, match=r"have no reference, u\d the first; give one for each"):
            second_pass(items, Rescorer({}), Output(tmp_path / "out"), references=missing, folds=2)
        with pytest.raises(ValueError, match="have no reference"):
            tuned(Rescorer({}), items, missing)
    with pytest.raises(ValueError, match="there is no utterance to tune on"):
        tuned(Rescorer({}), [], references)
    assert not list((tmp_path / "out").iterdir())


def test_nothing_to_rescore_leaves_what_is_there(tmp_path):
    for name in ("hypotheses.txt", "hypotheses.ctm", "scales.json"):
        (tmp_path / name).write_text("old")
    with pytest.raises(ValueError, match="there is no utterance to rescore"):
        second_pass([], Rescorer({}), Output(tmp_path))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
        ("hypotheses.txt", "hypotheses.ctm", "scales.json"), "old"
    )


def test_words_of_a_list_have_no_score_to_keep():
    items = [NBest("u", (Hypothesis(("new",), -1.0, -1.0),))]
    with pytest.raises(ValueError, match="u is a list, whose words have no scores of their own"):
        second_pass(items, Rescorer({NEURAL: neural()}, keep=True))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no scales"),
        ("[]", "holds no scales"),
        ('{"lm_scale": 1}', "has no 'weight'"),
        ("\x80", "holds no scales"),
        (None, "holds no scales"),
        (json.dumps(asdict(Setting()) | {"lm_scale": "9"}), "the lm scale is '9', which is no number"),
        (json.dumps(asdict(Setting()) | {"weight": 7}), "the weight is 7"),
        (json.dumps(asdict(Setting()) | {"word_penalty": float("nan")}), "the word penalty is nan"),
    ],
)
def test_stored_scales_that_are_none(tmp_path, text, said):
    path = tmp_path / "scales.json"
    if text is not None:
        path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"^{path}: .*{said}"):
        load_scales(path)


def test_a_tally_counts_and_reports():
    heard = []
    tally = Tally(report=heard.append)
    noted = replace(drawn(1), notes=("one", "two"))
    passed = list(tally.good([noted, Broken("x", "x: broken"), listed(drawn(2)), replace(drawn(3), notes=("three",))]))
    assert passed[0] is noted
    assert (tally.failed, heard) == (1, ["x: broken"])
    assert (tally.notes, tally.note) == (3, f"{noted.utterance}: one")
    hypotheses = listed(drawn(2)).hypotheses
    assert tally.arcs == noted.arcs + drawn(3).arcs + sum(len(each.words) + 1 for each in hypotheses)
