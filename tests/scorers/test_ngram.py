"""An n-gram model as a scorer: the definition's numbers, kenlm's numbers, word by word and text by text."""

import importlib.util
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from slow_ngram import random_model, render, sentence

import selfnorm
from selfnorm.scorers import SCORERS, NGram
from selfnorm.scorers import ngram as module

SENTENCES = ["w0 w1 w2", "", "w1", "zebra w0 w0 zebra w2 w3 w1", "w2 w2 w2 w2 w2", "<unk> w1"]
MATERIAL = sorted((Path(__file__).parents[1] / "ngrams" / "material").glob("*.arpa*"))
backends = pytest.mark.parametrize(
    "backend",
    [
        "numpy",
        pytest.param(
            "kenlm", marks=pytest.mark.skipif(not importlib.util.find_spec("kenlm"), reason="kenlm is not installed")
        ),
    ],
)


@pytest.fixture(params=[2, 3, 4])
def levels(request):
    return closed(random_model(random.Random(request.param), request.param, 5, 0.4))


def closed(levels):
    """Without the n-grams whose suffix is missing: kenlm does not read most models that have them."""
    for number in range(1, len(levels)):
        for gram in list(levels[number]):
            if gram[1:] not in levels[number - 1] or gram[:-1] not in levels[number - 1]:
                del levels[number][gram]
    return levels


@pytest.fixture
def path(levels, tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(render(levels))
    return path


@backends
def test_scores_are_the_definition(levels, path, backend):
    scorer = NGram.load(path, backend)
    assert scorer.order == len(levels)
    for text in SENTENCES:
        wanted = np.array(sentence(levels, text.split())) * np.log(10)
        np.testing.assert_allclose(scorer.score(text), wanted, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scorer.log_prob(text.split()), wanted, rtol=1e-5, atol=1e-5)


@backends
def test_word_by_word_is_the_text(path, backend):
    scorer = NGram.load(path, backend)
    texts = [[*text.split(), "</s>"] for text in SENTENCES]
    states, scored = [scorer.start() for _ in texts], [[] for _ in texts]
    for step in range(max(map(len, texts))):
        here = [number for number in range(len(texts)) if step < len(texts[number])]
        scores, after = scorer.advance([states[number] for number in here], [texts[number][step] for number in here])
        assert isinstance(scores, torch.Tensor)
        for number, score, state in zip(here, scores.tolist(), after):
            scored[number].append(score)
            states[number] = state
    whole = scorer.text([text.split() for text in SENTENCES])
    np.testing.assert_allclose(np.concatenate(scored), whole.scores, rtol=1e-6, atol=1e-6)
    assert [each.tolist() for each in scorer.sentences(list(map(str.split, SENTENCES)))] == list(
        map(scorer.score, SENTENCES)
    )
    assert whole.oov == 3
    assert len(whole.known) == whole.starts[-1] == len(whole.scores)
    assert "w1" in scorer.vocabulary
    assert "zebra" not in scorer.vocabulary


@backends
@pytest.mark.parametrize("path", MATERIAL, ids=lambda path: path.name)
def test_a_model_of_lmplz_sums_to_one_and_agrees(path, backend, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    scorer = NGram.load(copy, backend)
    words = NGram.load(copy).vocabulary.words
    state, by_numpy = scorer.start(), NGram.load(copy)
    for word in [None, *random.Random(1).sample(words, min(20, len(words)))]:
        if word:
            _, (state,) = scorer.advance([state], [word])
        scores, _ = scorer.advance([state] * len(words), words)
        assert float(scores.exp().sum()) == pytest.approx(1, abs=1e-4)
    text = [random.Random(seed).choices(words, k=12) for seed in range(50)]
    np.testing.assert_allclose(scorer.text(text).scores, by_numpy.text(text).scores, rtol=1e-5, atol=1e-5)


def test_states_are_few(path):
    """Histories that matter alike are one state, so that a rescorer can join them."""
    scorer = NGram.load(path)
    states = {}
    for text in ["w0 zebra", "w1 zebra", "zebra", "zebra zebra"]:
        state = scorer.start()
        for word in text.split():
            _, (state,) = scorer.advance([state], [word])
        states[text] = state
    scored = {text: scorer.advance([state] * 2, ["w0", "</s>"])[0].tolist() for text, state in states.items()}
    for one in states:
        for other in states:
            assert states[one] != states[other] or scored[one] == scored[other]
    assert all(isinstance(hash(state), int) for state in states.values())


def test_ways_to_load(path):
    wanted = NGram.load(path).score("w0 w1")
    assert selfnorm.load(path).score("w0 w1") == wanted
    assert SCORERS["ngram"](str(path)).score("w0 w1") == wanted
    assert selfnorm.load(path).score("w0\u3000w1") == NGram.load(path).score(["w0\u3000w1"])
    with pytest.raises(ValueError, match="there is no n-gram back end 'nunpy'; did you mean 'numpy'"):
        NGram.load(path, "nunpy")


def test_without_kenlm_its_back_end_is_a_sentence(path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "kenlm", None)
    with pytest.raises(ValueError, match=r"pip install 'selfnorm\[kenlm\]'"):
        NGram.load(path, "kenlm")


def test_kenlm_cannot_read_is_a_sentence(path):
    pytest.importorskip("kenlm")
    path.write_text("no model")
    with pytest.raises(ValueError, match="kenlm cannot read it"):
        NGram.load(path, "kenlm")


def test_an_empty_text(path):
    found = NGram.load(path).text([])
    assert len(found.scores) == found.oov == 0
    assert module.BACKENDS.keys() == {"numpy", "kenlm"}
