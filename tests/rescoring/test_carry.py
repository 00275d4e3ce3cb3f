"""Histories that go on: the next utterance of a speaker is scored behind the words of the last one."""

import numpy as np
import pytest
from small import drawn, listed, neural, ngram

from selfnorm.rescoring import NEURAL, NGRAM, Rescorer, Search, Setting, carry
from selfnorm.rescoring.results import decide
from selfnorm.vocabulary import END

UNLIMITED = Search(None, None, float("inf"))


def speaker(utterance):
    return ("anna", "ben", "cleo")[int(utterance.split("-")[1]) % 3]


def behind(scorer, said, words):
    """The score of words and `</s>` behind all that was said before, word by word."""
    state, scores = scorer.start(), []
    for sentence in (*said, words):
        scores = []
        for word in (*sentence, END):
            score, (state,) = scorer.advance([state], [word])
            scores.append(float(score[0]))
    return scores


@pytest.mark.parametrize("name", ["lstm", "transformer"])
@pytest.mark.parametrize("mixed", [False, True], ids=["alone", "with an n-gram"])
@pytest.mark.parametrize("together", [64, 2])
def test_it_is_the_score_of_the_concatenated_words(tmp_path, monkeypatch, name, mixed, together):
    monkeypatch.setattr(carry, "SPEAKERS", together)
    scorers = {NEURAL: neural(name, "streams")} | ({NGRAM: ngram(tmp_path)} if mixed else {})
    setting = Setting(weight=0.7, ngram_weight=0.4 if mixed else 0.0, unknown_penalty=0.0)
    items = [drawn(seed, most_nodes=5) for seed in range(9)]
    rescored = list(Rescorer(scorers, setting, search=UNLIMITED, budget=3).carry_over(items, speaker))
    assert sorted(each.lattice.utterance for each in rescored) == sorted(item.utterance for item in items)
    said = {}
    for each in rescored:  # utterances of a speaker are in their order
        result = decide(each, setting)
        before = said.setdefault(speaker(result.utterance), [])
        arcs = [arc for arc in _best(each, setting) if each.lattice.words[arc]]
        told = each.scores[NEURAL].score[arcs]
        np.testing.assert_allclose(told, behind(scorers[NEURAL], before, result.words), atol=1e-4)
        if mixed:
            np.testing.assert_allclose(each.scores[NGRAM].score[arcs], scorers[NGRAM].score(result.words), atol=1e-4)
        before.append(result.words)
    assert sorted(map(len, said.values())) == [3, 3, 3]


def _best(rescored, setting):
    from selfnorm.lattices.paths import best

    return best(rescored.lattice, rescored.totals(setting)).arcs


def test_each_speakers_first_utterance_starts_afresh():
    setting, items = Setting(), [drawn(seed) for seed in range(3)]
    rescorer = Rescorer({NEURAL: neural("lstm", "streams")}, setting)
    for one, other in zip(rescorer.carry_over(items, speaker), rescorer.rescore(items)):
        assert decide(one, setting).score == pytest.approx(decide(other, setting).score, abs=1e-5)


def test_lists_are_searched_whole():
    setting, items = Setting(), [listed(drawn(seed)) for seed in range(6)]
    rescorer = Rescorer({NEURAL: neural("lstm", "streams")}, setting, search=Search(0, 1, 0.0))
    for each in rescorer.carry_over(items, speaker):
        given = next(item for item in items if item.utterance == each.lattice.utterance)
        ends = each.lattice.targets == each.lattice.nodes - 1
        assert ends.sum() == len(given.hypotheses)


@pytest.mark.parametrize("scorers", [{NEURAL: neural()}, {}], ids=["sentences", "none"])
def test_it_takes_a_model_of_streams(scorers):
    with pytest.raises(ValueError, match="by a neural model that was trained on streams, and this one was not"):
        Rescorer(scorers).carry_over([drawn(1)], speaker)
