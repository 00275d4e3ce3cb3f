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
