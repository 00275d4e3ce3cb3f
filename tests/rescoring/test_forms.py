"""The same hypotheses as an HTK lattice, as Kaldi's and as a list give the same words and the same score."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from small import WORDS, lattices, listed, neural, ngram, paths

from selfnorm.corpus.numbered import Numbered
from selfnorm.lattices import htk, kaldi, nbest
from selfnorm.lattices.lattice import Scales
from selfnorm.lattices.paths import best, words_of
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.rescoring import NEURAL, NGRAM, OLD, Rescorer, Search, Setting
from selfnorm.rescoring.results import writing
from selfnorm.scorers import NGram
from selfnorm.vocabulary import END

UNLIMITED = Search(order=None, most=None, beam=float("inf"))
FIRST_PASS = Setting(weight=0, lm_scale=1.7, word_penalty=-0.4)
MIXTURE = Setting(weight=0.6, lm_scale=1.7, word_penalty=-0.4, ngram_weight=0.3, unknown_penalty=-2.0)
anywhere = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def scorers(tmp_path_factory):
    folders = [tmp_path_factory.mktemp(name) for name in "ab"]
    return {NEURAL: neural(), NGRAM: ngram(folders[0]), OLD: ngram(folders[1], order=2, seed=5)}


@pytest.fixture
def words(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word} {id}\n" for id, word in enumerate(["<eps>", *WORDS, "new", END])))
    return path


def forms(lattice, folder, words):
    """Through the files of each format."""
    htk.write(lattice, folder / "one.slf.gz")
    yield htk.read(folder / "one.slf.gz")
    for binary in (False, True):
        with kaldi.writer(folder / "lat.1.gz", words, binary=binary) as write:
            write(lattice)
        yield from kaldi.read(folder / "lat.1.gz", words=words)
    with nbest.writer(folder / "list.jsonl") as write:
        write(listed(lattice))
    yield from nbest.read(folder / "list.jsonl")


def result(rescored, setting):
    found = best(rescored.lattice, rescored.totals(setting))
    return words_of(rescored.lattice, found.arcs), found.score


def clear(lattice, scores):
    """Whether one sequence of words is better than all others by more than rounding."""
    top = {}
    for arcs, score in zip(paths(lattice), scores):
        said = words_of(lattice, arcs)
        top[said] = max(score, top.get(said, -np.inf))
    ranked = sorted(top.values())
    return len(ranked) == 1 or ranked[-1] - ranked[-2] > 1e-3


@pytest.mark.parametrize("names", [(NEURAL,), (NEURAL, NGRAM), (NEURAL, NGRAM, OLD)], ids=str)
@anywhere
@given(lattice=lattices(end=False))
def test_three_forms_of_a_lattice_give_the_same(scorers, names, lattice, tmp_path, words):
    chosen = {name: scorers[name] for name in names}
    totals = lattice.total(Scales(lm=1.7, penalty=-0.4))
    for setting in (FIRST_PASS, MIXTURE):
        results = []
        for form in forms(lattice, tmp_path, words):
            rescorer = Rescorer(chosen if setting.weight else {}, setting, search=UNLIMITED)
            results.append(result(*rescorer.rescore([form]), setting))
        said, scores = zip(*results)
        assert scores == pytest.approx([scores[0]] * 4, abs=1e-4)
        if setting is FIRST_PASS:
            assert scores[0] == best(lattice, totals).score  # exactly
            if clear(lattice, [totals[arcs].sum() for arcs in paths(lattice)]):
                assert set(said) == {words_of(lattice, best(lattice, totals).arcs)}


@anywhere
@given(lattice=lattices(end=False))
def test_three_forms_say_the_same_words(scorers, lattice, tmp_path, words):
    """Where the best words are clearly the best."""
    rescorer = Rescorer({NEURAL: scorers[NEURAL], NGRAM: scorers[NGRAM]}, MIXTURE, search=UNLIMITED)
    results = list(rescorer.rescore(forms(lattice, tmp_path, words)))
    every = results[0]
    if clear(every.lattice, [every.totals(MIXTURE)[arcs].sum() for arcs in paths(every.lattice)]):
        assert len({result(each, MIXTURE)[0] for each in results}) == 1


@pytest.mark.parametrize("form", ["htk", "text", "binary", "words"])
@pytest.mark.parametrize("kind", ["replaced", "expanded"])
@anywhere
@given(lattice=lattices())
def test_what_is_written_has_the_best_path_and_its_score(scorers, form, kind, lattice, tmp_path, words):
    """As many histories as there are stay apart, or meet in the nodes of the given lattice."""
    given = _given(lattice, form, tmp_path, words)
    rescorer = Rescorer({NEURAL: scorers[NEURAL], NGRAM: scorers[NGRAM]}, MIXTURE, search=UNLIMITED)
    (rescored,) = rescorer.rescore([given])
    said, score = result(rescored, MIXTURE)
    with writing(tmp_path, kind, 0, None if form in ("htk", "words") else words) as write:
        write(given, rescored, MIXTURE, rescored)
    again = _read(tmp_path, form, words)
    totals = again.total(Scales(lm=1.7, penalty=-0.4))
    if form == "htk":
        assert (again.scales.lm, again.scales.penalty) == (1.7, -0.4)
    elif END not in given.words:
        assert END not in again.words  # which Kaldi would take for a word
    assert best(again, totals).score == pytest.approx(score, abs=1e-4)
    there = [totals[arcs].sum() for arcs in paths(again) if words_of(again, arcs) == said]
    assert max(there) == pytest.approx(score, abs=1e-4)


def _given(lattice, form, folder, words):
    if form == "htk":
        return lattice
    with kaldi.writer(folder / "given", None if form == "words" else words, binary=form == "binary") as write:
        write(lattice)
    (found,) = kaldi.read(folder / "given", words=None if form == "words" else words)
    return found


def _read(folder, form, words):
    if form == "htk":
        (path,) = (folder / "lattices").iterdir()
        found = htk.read(path)
        path.unlink()
        return found
    (found,) = kaldi.read(folder / "lat.1.gz", words=None if form == "words" else words)
    assert found.header.get("binary") == ("true" if form == "binary" else None)
    return found


def test_an_empty_lattice_has_an_empty_hypothesis(scorers, tmp_path):
    (tmp_path / "one.slf").write_text("N=1 L=0\nI=0\n")
    (tmp_path / "lat").write_text("two \n0 0,0,\n\n")
    given = [htk.read(tmp_path / "one.slf"), *kaldi.read(tmp_path / "lat")]
    for algorithm in ("push_forward", "path_cover", "exact"):
        for rescored in Rescorer({NEURAL: scorers[NEURAL]}, Setting(), algorithm).rescore(given):
            said, score = result(rescored, Setting())
            assert (said, score) == ((), pytest.approx(scorers[NEURAL].score("")[0], abs=1e-5))


SHARED = Path(__file__).parents[3] / "shared" / "data" / "asr" / "ps-lattices"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared lattices are not beside the repository")
def test_three_forms_of_real_lattices_give_the_same(tmp_path):
    text = [line.split()[1:] for line in (SHARED / "refs.txt").read_text().splitlines()]
    (tmp_path / "text").write_text("".join(" ".join(words) + "\n" for words in text[::2]))
    estimate_arpa(Numbered([tmp_path / "text"]), tmp_path / "lm.arpa", order=2)
    scorer = NGram.load(tmp_path / "lm.arpa")
    archive = kaldi.read(SHARED / "kaldi" / "lat.txt.gz", words=SHARED / "kaldi" / "words.txt")
    chosen = {lattice.utterance: lattice for n, lattice in enumerate(archive) if n % 12 == 0}
    lists = {each.utterance: each for each in nbest.read(SHARED / "nbest.jsonl.gz")}
    slf = [htk.read(SHARED / "slf" / f"{name}.slf.gz") for name in chosen]
    first = Setting(weight=0, lm_scale=slf[0].scales.lm, word_penalty=slf[0].scales.penalty)
    mixture = Setting(first.lm_scale, 0.3, first.word_penalty)
    for setting, scorers in ((first, {}), (mixture, {NGRAM: scorer})):
        rescorer = Rescorer(scorers, setting)
        done = [[result(each, setting) for each in rescorer.rescore(form)] for form in (slf, chosen.values())]
        for name, one, other in zip(chosen, *done):
            assert one[0] == other[0], name
            assert one[1] == pytest.approx(other[1], abs=1e-6), name
        if not scorers:
            in_lists = [result(each, setting) for each in rescorer.rescore(lists[name] for name in chosen)]
            for name, lattice, one, listed in zip(chosen, slf, done[0], in_lists):
                assert one == (words_of(lattice, best(lattice).arcs), best(lattice).score), name
                assert one[0] == listed[0], name
                assert one[1] == pytest.approx(listed[1], abs=0.1), name  # the lists' scores are rounded
