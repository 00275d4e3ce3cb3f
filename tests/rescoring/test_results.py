"""What is said of an utterance, and the files: words, times, lists, lattices."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from small import drawn, lattices, listed, neural, ngram

from selfnorm import lattices as formats
from selfnorm.lattices import nbest
from selfnorm.lattices.lattice import Scales, assemble
from selfnorm.lattices.nbest import Hypothesis, NBest
from selfnorm.lattices.paths import best, words_of
from selfnorm.lattices.transcripts import read
from selfnorm.rescoring import NEURAL, NGRAM, Rescorer, Search, Setting, results
from selfnorm.rescoring.results import Result, decide, renewed, write_words, writing
from selfnorm.vocabulary import END

MIXTURE = Setting(weight=0.6, ngram_weight=0.3)


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    return {NEURAL: neural(), NGRAM: ngram(tmp_path_factory.mktemp("lm"))}


@pytest.fixture
def timed():
    return assemble(
        "talk-1",
        nodes=5,
        start=0,
        end=4,
        sources=[0, 1, 1, 2, 3],
        targets=[1, 2, 2, 3, 4],
        words=["", "w0", "w1", "w2", END],
        acoustic=[0.0, -1.0, -9.0, 0.0, 0.0],
        lm=[0.0, -1.0, -9.0, -1.0, -1.0],
        times=[0.0, 0.25, 0.5, 1.125, 1.125],
    )


def test_words_have_the_times_of_their_arcs(timed, tmp_path):
    (rescored,) = Rescorer({}).rescore([timed])
    found = decide(rescored, Setting())
    assert (found.words, found.score) == (("w0", "w2"), -4.0)
    assert [(row.start, row.duration, row.word) for row in found.spoken] == [(0.25, 0.25, "w0"), (0.5, 0.625, "w2")]
    write_words(tmp_path, [found])
    assert (tmp_path / "hypotheses.ctm").read_text() == "talk-1 1 0.25 0.25 w0\ntalk-1 1 0.50 0.62 w2\n"
    for name in ("hypotheses.trn", "hypotheses.txt", "hypotheses.ctm"):
        assert read(tmp_path / name, "hypothesis") == {"talk-1": ("w0", "w2")}


def test_times_go_through_the_search(timed, scorers):
    for algorithm in ("push_forward", "path_cover", "exact"):
        (rescored,) = Rescorer(scorers, Setting(weight=0.1), algorithm).rescore([timed])
        assert decide(rescored, Setting(weight=0)).spoken == decide(*Rescorer({}).rescore([timed]), Setting()).spoken


def test_no_times_of_an_earlier_run_stay_behind(tmp_path):
    (tmp_path / "hypotheses.ctm").write_text("old\n")
    write_words(tmp_path, [Result("u", ("a",), ("a",), 0.0, None), Result("v", (), (), 0.0, None)])
    assert not (tmp_path / "hypotheses.ctm").exists()
    assert (tmp_path / "hypotheses.txt").read_text() == "u a\nv\n"
    assert (tmp_path / "hypotheses.trn").read_text() == "a (u)\n(v)\n"


@settings(max_examples=25)
@given(lattice=lattices())
def test_listed_hypotheses_have_all_their_scores(scorers, lattice):
    unlimited = Search(None, None, float("inf"))
    setting = replace(MIXTURE, unknown_penalty=0.0, ngram_weight=0.0)
    (rescored,) = Rescorer(scorers, setting, search=unlimited).rescore([lattice])
    found = results.listed(rescored, setting, 5)
    assert found[0].words == decide(rescored, setting).words
    assert found[0].extra["score"] == pytest.approx(decide(rescored, setting).score)
    for each in found:
        for name, scorer in scorers.items():
            assert each.extra[name] == pytest.approx(sum(scorer.score(each.words)), abs=1e-4)
        lm = 0.4 * each.lm + 0.6 * each.extra[NEURAL]
        total = each.acoustic + lattice.scales.lm * lm + lattice.scales.penalty * len(each.words)
        assert each.extra["score"] == pytest.approx(total, abs=1e-4)


@pytest.mark.parametrize("algorithm", ["push_forward", "path_cover", "nbest"])
@settings(max_examples=25)
@given(lattice=lattices(most_nodes=5, most_arcs=8))
def test_a_list_comes_out_whole_and_in_its_new_order(scorers, algorithm, lattice):
    given = listed(lattice)
    setting = replace(MIXTURE, lm_scale=1.5, word_penalty=0.3, ngram_weight=0.0, unknown_penalty=0.0)
    (rescored,) = Rescorer(scorers, setting, algorithm).rescore([given])
    found = renewed(given, rescored, setting).hypotheses
    assert sorted((each.words, each.acoustic, each.lm) for each in found) == sorted(
        (each.words, each.acoustic, each.lm) for each in given.hypotheses
    )
    scores = [each.extra["score"] for each in found]
    assert scores == sorted(scores, reverse=True)
    for each in found:
        told = sum(scorers[NEURAL].score(each.words))
        assert each.extra[NEURAL] == pytest.approx(told, abs=1e-4)
        wanted = each.acoustic + 1.5 * (0.4 * each.lm + 0.6 * told) + 0.3 * len(each.words)
        assert each.extra["score"] == pytest.approx(wanted, abs=1e-4)
    assert scores[0] == pytest.approx(decide(rescored, setting).score)


def test_limits_of_sentences_in_a_list_are_no_words(scorers, tmp_path):
    given = NBest("u", (Hypothesis(("<s>", "w0", "</s>"), -1.0), Hypothesis(("w1",), -1.5), Hypothesis((), -9.0)))
    (rescored,) = Rescorer(scorers, MIXTURE).rescore([given])
    again = renewed(given, rescored, MIXTURE)
    by_words = {each.words: each.extra[NEURAL] for each in again.hypotheses}
    assert by_words["<s>", "w0", "</s>"] == pytest.approx(sum(scorers[NEURAL].score("w0")), abs=1e-4)
    assert by_words[()] == pytest.approx(sum(scorers[NEURAL].score("")), abs=1e-4)
    with writing(tmp_path, None, 0, None) as write:
        write(given, rescored, MIXTURE, rescored)
    assert len(next(iter(nbest.read(tmp_path / "nbest.jsonl.gz"))).hypotheses) == 3


class TestFirstPass:
    def test_of_a_list_is_its_first_hypothesis(self):
        """Whatever its scores would say at a scale that nobody named."""
        given = NBest("u", (Hypothesis(("a", "b"), -9.0, -1.0), Hypothesis(("c",), -1.0, -2.0)))
        (rescored,) = Rescorer({}).rescore([given])
        found = decide(rescored, Setting(lm_scale=20.0))
        assert (found.first, found.words) == (("a", "b"), ("a", "b"))
        assert decide(rescored, Setting()).words == ("c",)

    def test_of_a_lattice_with_a_header_is_at_its_scales(self):
        lattice = drawn(5, end=False)
        (rescored,) = Rescorer({}).rescore([lattice])
        setting = Setting(lm_scale=0.0, word_penalty=-20.0)
        assert decide(rescored, setting, given=setting).first == words_of(lattice, best(lattice).arcs)

    def test_of_a_lattice_without_one_is_at_the_given_scales(self):
        lattice = replace(drawn(5, end=False), scales=Scales())
        (rescored,) = Rescorer({}).rescore([lattice])
        given = Setting(lm_scale=4.0, word_penalty=-3.0)
        wanted = best(lattice, lattice.total(Scales(lm=4.0, penalty=-3.0)))
        assert decide(rescored, Setting(lm_scale=0.1), given=given).first == words_of(lattice, wanted.arcs)


def test_files_appear_together_or_not_at_all(timed, tmp_path):
    lists, lattice = tmp_path / "nbest.jsonl.gz", tmp_path / "lattices" / "talk-1.slf.gz"
    (rescored,) = Rescorer({}).rescore([timed])
    with writing(tmp_path, "expanded", 2, None) as write:
        write(timed, rescored, Setting(), rescored)
        assert not lists.exists()
        assert not lattice.exists()
    before = lists.read_bytes(), lattice.read_bytes()

    def fail():
        with writing(tmp_path, "replaced", 1, None) as write:
            write(timed, rescored, Setting(lm_scale=3.0), rescored)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (lists.read_bytes(), lattice.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lattices", "nbest.jsonl.gz", "talk-1.slf.gz"]


def test_two_utterances_cannot_have_one_file(timed, tmp_path):
    (rescored,) = Rescorer({}).rescore([timed])
    with writing(tmp_path, "replaced", 0, None) as write:
        named = [replace(rescored, given=replace(timed, utterance=name)) for name in ("a/b", "a_b")]
        write(named[0].given, named[0], Setting(), named[0])
        with pytest.raises(ValueError, match="two utterances would have this file"):
            write(named[1].given, named[1], Setting(), named[1])


def test_names_that_no_file_could_have(timed, tmp_path):
    """Long ones, also where a character is cut in two, and those that would be hidden from the next pass."""
    names = ["x" * 300, "x" * 300 + "y", "é" * 200, "xé" * 150, ".hidden", "..", "plain"]
    (rescored,) = Rescorer({}).rescore([timed])
    with writing(tmp_path, "replaced", 0, None) as write:
        for name in names:
            each = replace(rescored, given=replace(timed, utterance=name))
            write(each.given, each, Setting(), each)
    found = [each.utterance for each in formats.read([tmp_path / "lattices"])]
    assert sorted(found) == sorted(names)
    assert (tmp_path / "lattices" / "plain.slf.gz").exists()


def test_a_list_with_every_scorer_can_be_read_again(timed, scorers, tmp_path):
    (rescored,) = Rescorer(scorers, MIXTURE).rescore([timed])
    with writing(tmp_path, None, 3, None) as write:
        write(timed, rescored, MIXTURE, rescored)
    (found,) = nbest.read(tmp_path / "nbest.jsonl.gz")
    assert found.hypotheses[0].words == decide(rescored, MIXTURE).words
    assert json.dumps(found.hypotheses[0].extra)
    assert found.hypotheses[0].extra.keys() == {NEURAL, NGRAM, "score"}
    assert np.isfinite([each.extra["score"] for each in found.hypotheses]).all()
