"""Rows of histories: what they score is what the scorer says, whatever was dropped and taken again in between."""

import random

import numpy as np
import pytest
from small import WORDS, neural, ngram

from selfnorm.scorers import banks
from selfnorm.scorers.banks import bank
from selfnorm.vocabulary import END

KINDS = ["lstm", "lstm normalized", "lstm on streams", "transformer", "ngram"]
SAID = [*WORDS, "new", END]


@pytest.fixture(params=KINDS)
def scorer(request, tmp_path):
    if request.param == "ngram":
        return ngram(tmp_path)
    name, _, more = request.param.partition(" ")
    return neural(name, "streams" if more == "on streams" else "sentences", more == "normalized")


@pytest.mark.parametrize("budget", [1, 3, 4096])
def test_rows_come_and_go_in_a_small_pool(scorer, budget, monkeypatch):
    """At random: start, grow (a row more than once), drop, and take the places of those that were dropped."""
    monkeypatch.setattr(banks, "ROWS", 4)
    made = bank(scorer, budget)
    known = made.tell(SAID)
    assert known.tolist() == [word != "new" for word in SAID]
    chance, histories = random.Random(7), {}
    histories.update((row, ()) for row in made.start(3).tolist())
    for _ in range(12):
        chosen = chance.choices(sorted(histories), k=chance.randrange(1, 7))
        words = [chance.randrange(len(SAID) - 1) for _ in chosen]
        scores = made.scores(np.array(chosen), np.array(words))
        for row, word, score in zip(chosen, words, scores):
            assert score == pytest.approx(_score(scorer, histories[row], SAID[word]), abs=1e-4)
        grown = made.grow(np.array(chosen), np.array(words)).tolist()
        assert len(set(grown)) == len(grown)
        assert not set(grown) & histories.keys()
        histories.update((new, (*histories[row], SAID[word])) for new, row, word in zip(grown, chosen, words))
        gone = chance.sample(sorted(histories), max(0, len(histories) - 9))
        made.drop(np.array(gone, np.int64))
        for row in gone:
            del histories[row]
    rows = np.array(sorted(histories))
    for n, word in enumerate(SAID):
        wanted = [_score(scorer, histories[row], word) for row in rows.tolist()]
        assert made.scores(rows, np.full(len(rows), n)) == pytest.approx(wanted, abs=1e-4)


def _score(scorer, history, word):
    """By `advance`, one word after the other."""
    state = scorer.start()
    for each in history:
        _, (state,) = scorer.advance([state], [each])
    return float(scorer.advance([state], [word])[0][0])


def test_nothing_is_asked_of_no_rows(scorer):
    made = bank(scorer)
    made.tell(SAID)
    none = np.zeros(0, np.int64)
    assert made.scores(none, none).shape == made.grow(none, none).shape == (0,)
    made.drop(none)


def test_words_can_be_numbered_anew(scorer):
    made = bank(scorer)
    made.tell(SAID)
    rows = made.start(2)
    before = made.scores(rows, np.array([0, 1]))
    made.tell(SAID[::-1])
    last = len(SAID) - 1
    assert made.scores(rows, np.array([last, last - 1])) == pytest.approx(before)


SENTENCES = [["w0", "w3"], [], ["new", "w1", "w1", "w4", "w2"], ["w2"], ["w0", "w3"]]


@pytest.mark.parametrize("positions", [6, 8192])  # no batch is smaller than its longest sentence
def test_many_sentences_are_each_alone(scorer, positions):
    found = scorer.sentences(SENTENCES, positions)
    assert [len(scores) for scores in found] == [len(words) + 1 for words in SENTENCES]
    for words, scores in zip(SENTENCES, found):
        assert scores == pytest.approx(scorer.score(words), abs=1e-4)
