"""The channel's lattices are what its text says: exact bigram scores, stated chance, times, silence, `</s>`."""

import numpy as np
import pytest

from selfnorm.demo.channel import Channel, Noise
from selfnorm.demo.confusions import Confusions
from selfnorm.demo.second_pass import Part
from selfnorm.lattices.lattice import SILENT
from selfnorm.lattices.oracle import oracle
from selfnorm.lattices.paths import n_best, words_of
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.scorers import NGram
from selfnorm.vocabulary import END

TEXT = """the night is near and the knight is here
now is the way to see the sea
a way is not away from here
we know no right way to write
their hair is here and there
the sun and the son are near"""
WORDS = set(TEXT.split())
SENTENCE = ["the", "knight", "is", "away", "to", "see"]


@pytest.fixture(scope="module")
def bigram(tmp_path_factory):
    path = tmp_path_factory.mktemp("lm") / "bigram.arpa"
    estimate_arpa(Part(TEXT.splitlines()), path, order=2)
    return NGram.load(path)


@pytest.fixture(scope="module")
def confusions():
    return Confusions(WORDS)


@pytest.fixture(scope="module")
def lattice(confusions, bigram):
    return Channel(confusions, bigram, Noise(beam=80)).lattice("one", SENTENCE)


def test_bigram_scores_are_exact_on_every_path(lattice, bigram):
    paths = n_best(lattice, 200)
    assert len(paths) == 200
    for path in paths:
        arcs = list(path.arcs)
        assert lattice.lm[arcs].sum() == pytest.approx(sum(bigram.score(words_of(lattice, arcs))), abs=1e-9)
        assert lattice.words[arcs[-1]] == END


def test_words_are_those_of_the_vocabulary(lattice):
    assert set(lattice.words) - {SILENT, END} <= WORDS
    assert oracle(lattice, SENTENCE).errors.total == 0


@pytest.mark.parametrize(("said", "heard"), [(("away",), ("a", "way")), (("a", "way"), ("away",))])
def test_splits_and_merges(confusions, bigram, said, heard):
    lattice = Channel(confusions, bigram, Noise(beam=80)).lattice("one", said)
    assert heard in {words_of(lattice, path.arcs) for path in n_best(lattice, 1000)}


def test_times_and_silence(lattice):
    silent = np.array([word == SILENT for word in lattice.words])
    length = lattice.times[lattice.targets] - lattice.times[lattice.sources]
    np.testing.assert_allclose(length[silent], 0.25)
    said = ~silent & lattice.is_word
    assert (length[said] > 0).all()
    assert silent[0]  # before the first word
    assert not lattice.acoustic[silent].any()


def test_the_same_seed_hears_the_same(confusions, bigram):
    """Whatever was heard before it."""
    channel = Channel(confusions, bigram)
    first = channel.lattice("one", SENTENCE)
    channel.lattice("two", SENTENCE[::-1])
    again = channel.lattice("one", SENTENCE)
    other = Channel(confusions, bigram, Noise(seed=1)).lattice("one", SENTENCE)
    assert first.words == again.words
    np.testing.assert_array_equal(first.acoustic, again.acoustic)
    assert first.words != other.words or not np.array_equal(first.acoustic, other.acoustic)


def test_without_noise_the_acoustic_score_is_the_distance(confusions, bigram):
    lattice = Channel(confusions, bigram, Noise(noise=0, beam=1000)).lattice("one", ["knight"])
    scores = dict(zip(lattice.words, lattice.acoustic))
    assert scores["knight"] == 0
    assert scores["night"] == pytest.approx(-10 * 0.5)


def test_chance_has_the_stated_spread(confusions, bigram):
    channel = Channel(confusions, bigram, Noise(most=4000))
    chance, near = np.random.default_rng(0), [("here", 1.0)] * 4000
    scores = [each.acoustic for each in channel._best(0, 4, near, 0.0, chance)]
    assert np.mean(scores) == pytest.approx(-10, abs=0.4)
    assert np.std(scores) == pytest.approx(5.5, rel=0.05)


def test_a_word_that_is_like_no_other_is_heard_as_something(confusions, bigram):
    lattice = Channel(confusions, bigram).lattice("one", ["hurlyburlyhurlyburly"])
    assert set(lattice.words) & WORDS


def test_nothing_said(confusions, bigram):
    with pytest.raises(ValueError, match="nothing is said"):
        Channel(confusions, bigram).lattice("one", [])
