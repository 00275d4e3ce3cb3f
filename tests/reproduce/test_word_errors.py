import pytest

from selfnorm.corpus.numbered import Numbered
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.reproduce.errors import word_errors
from selfnorm.rescoring import NGRAM, Rescorer
from selfnorm.scorers import NGram


def test_words_are_decided_on_as_the_command_does(corpus, tmp_path, monkeypatch):
    """With Transformers the best paths are scored again: what is heard comes through `settled`."""
    estimate_arpa(Numbered(corpus.train), tmp_path / "lm.arpa", 2)
    seen, settled = [], Rescorer.settled
    monkeypatch.setattr(
        Rescorer, "settled", lambda self, rescored, *more: seen.append(rescored) or settled(self, rescored, *more)
    )
    found = word_errors(corpus.utterances[0], {NGRAM: NGram.load(tmp_path / "lm.arpa")}, folds=3)
    assert len(seen) == found["all"]["utterances"]


def test_rows_keep_the_errors_of_each_utterance(corpus, tmp_path):
    """To compare two systems."""
    estimate_arpa(Numbered(corpus.train), tmp_path / "lm.arpa", 2)
    found = word_errors(corpus.utterances[0], {NGRAM: NGram.load(tmp_path / "lm.arpa")}, folds=3)["all"]
    each = [tuple(map(int, one.split("/"))) for one in found["each"].split()]
    assert [words for _, words in each] == [len(said) for said in corpus.utterances[0].read()[1].values()]
    assert 100 * sum(wrong for wrong, _ in each) / found["words"] == pytest.approx(found["wer"])
