"""A run as a scorer: word by word, sentence by sentence and text by text it says the same."""

import json
import shutil

import pytest
import torch

import selfnorm
from selfnorm import run as runs
from selfnorm.corpus.store import TokenStore
from selfnorm.criteria import CRITERIA
from selfnorm.models import MODELS
from selfnorm.registry import pick
from selfnorm.scorers import SCORERS, Neural
from selfnorm.scorers.text import measure
from selfnorm.vocabulary import Vocabulary

WORDS = ["the", "cat", "sat", "on", "mat", "dog", "saw", "a"]
SENTENCES = ["the cat sat on the mat", "a dog", "", "the zebra saw a cat on a zebra mat", "sat"]
OPTIONS = {
    "lstm": {"layers": 2, "hidden": 8, "embedding": 6, "dropout": 0.5},
    "transformer": {"layers": 2, "hidden": 8, "feed_forward": 8, "heads": 2, "embedding": 8, "positions": "rotary"},
}
cases = pytest.mark.parametrize(
    ("name", "histories", "criterion"),
    [
        (name, kind, criterion)
        for name in MODELS
        for kind in ("sentences", "streams")
        for criterion in ("ce", "nce", "mode3")
    ],
)


def save(folder, name="lstm", histories="sentences", criterion="mode3"):
    """A run with random weights."""
    chosen = pick("criterion", CRITERIA, criterion)
    vocabulary = Vocabulary.from_counts({"</s>": 5} | {word: 9 - rank for rank, word in enumerate(WORDS)})
    options = OPTIONS[name] | {"link": chosen.link, "normalize": chosen.needs_log_z}
    torch.manual_seed(3)
    model = MODELS[name](len(vocabulary), **options)
    torch.nn.init.normal_(model.output.weight, std=0.5)
    torch.nn.init.normal_(model.output.bias)
    config = {"format": 1, "model": name, "options": options, "criterion": criterion, "histories": histories}
    vocabulary.save(folder.parent / "vocab.txt")
    text = (folder.parent / "vocab.txt").read_bytes()
    runs.save_model(folder, model.state_dict(), config | {"vocabulary": vocabulary.digest}, {"vocab.txt": text})
    return folder


@cases
def test_word_by_word_is_the_sentence_is_the_text(tmp_path, name, histories, criterion):
    scorer = selfnorm.load(save(tmp_path / "run", name, histories, criterion), "cpu")
    for sentence in SENTENCES:
        words = [*sentence.split(), "</s>"]
        state, one_by_one = scorer.start(), []
        for word in words:
            scores, (state,) = scorer.advance([state], [word])
            one_by_one.append(float(scores))
        assert one_by_one == pytest.approx(scorer.score(sentence), abs=1e-5)
        assert scorer.score(words[:-1]) == scorer.score(sentence)
        store = TokenStore.of([scorer.vocabulary.encode(words[:-1])], scorer.vocabulary)
        assert measure(scorer.model, store, histories=histories).scores.tolist() == scorer.score(sentence)


@cases
def test_many_histories_advance_at_once(tmp_path, name, histories, criterion):
    """Histories of different lengths in one batch, in any order, each as if alone."""
    scorer = selfnorm.load(save(tmp_path / "run", name, histories, criterion), "cpu")
    states, scored = [scorer.start() for _ in SENTENCES], [[] for _ in SENTENCES]
    texts = [[*sentence.split(), "</s>"] for sentence in SENTENCES]
    for step in range(max(map(len, texts))):
        here = [number for number in reversed(range(len(texts))) if step < len(texts[number])]
        scores, after = scorer.advance([states[number] for number in here], [texts[number][step] for number in here])
        for number, score, state in zip(here, scores.tolist(), after):
            scored[number].append(score)
            states[number] = state
    for sentence, found in zip(SENTENCES, scored):
        assert found == pytest.approx(scorer.score(sentence), abs=1e-5)


@cases
def test_a_text_is_its_sentences_or_one_stream(tmp_path, monkeypatch, name, histories, criterion):
    monkeypatch.setattr("selfnorm.scorers.text.STRETCH", 7)
    scorer = selfnorm.load(save(tmp_path / "run", name, histories, criterion), "cpu")
    vocabulary = scorer.vocabulary
    store = TokenStore.of([vocabulary.encode(sentence.split()) for sentence in SENTENCES], vocabulary)
    found = measure(scorer.model, store, histories=histories, positions=16, most=40).scores.tolist()
    if histories == "sentences":
        wanted = [score for sentence in SENTENCES for score in scorer.score(sentence)]
    else:
        state, wanted = scorer.start(), []
        for word in [vocabulary.words[id] for id in store.ids.tolist()]:
            score, (state,) = scorer.advance([state], [word])
            wanted.append(float(score))
    assert found == pytest.approx(wanted, abs=1e-5)


@cases
def test_log_prob_sums_to_one(tmp_path, name, histories, criterion):
    scorer = selfnorm.load(save(tmp_path / "run", name, histories, criterion), "cpu")
    start = scorer.start()
    normalized = torch.tensor([scorer.log_prob([word])[0] for word in scorer.vocabulary.words])
    torch.testing.assert_close(normalized.exp().sum(), torch.tensor(1.0))
    scores = scorer.advance([start] * len(normalized), scorer.vocabulary.words)[0]
    log_z = scores.logsumexp(0)
    torch.testing.assert_close(scores - log_z, normalized)
    assert (abs(float(log_z)) < 1e-5) == (criterion == "ce")  # scores of the others are used as they are


def test_loading_uses_no_chance_and_dropout_is_off(tmp_path):
    save(tmp_path / "run")
    torch.manual_seed(7)
    before = torch.get_rng_state()
    scorer = selfnorm.load(str(tmp_path / "run"), "cpu")
    assert scorer.score("the cat") == scorer.score("the cat")
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(scorer, Neural)
    assert SCORERS["neural"](tmp_path / "run", "cpu").score("a") == scorer.score("a")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": 2}, r"config\.json: is not of format 1"),
        ({"options": [1]}, r"config\.json: is not of format 1"),
        ({"histories": "stream"}, "there is no kind of histories 'stream'; did you mean 'streams'"),
        ({"model": "lstmm"}, "there is no model 'lstmm'; did you mean 'lstm'"),
        ({"options": {"hiden": 3}}, "takes no option 'hiden'; did you mean 'hidden'"),
        ({"options": {"hidden": 10**9, "embedding": 10**9}}, "do not fit"),
        ({"options": {"hidden": "8"}}, "a model needs a whole number above 0"),
        ({"vocabulary": "0"}, r"vocab\.txt is not the vocabulary the model was trained with"),
    ],
)
def test_a_foreign_config_is_a_sentence(tmp_path, change, sentence):
    config = json.loads((save(tmp_path / "run") / "config.json").read_text()) | change
    runs.save_files(tmp_path / "run", {"config.json": json.dumps(config).encode()})  # with all sums right
    with pytest.raises(ValueError, match=sentence):
        selfnorm.load(tmp_path / "run")


def test_a_sentence_is_split_as_a_text_is(tmp_path):
    """Unicode's spaces are parts of words."""
    scorer = selfnorm.load(save(tmp_path / "run"))
    assert scorer.score("the\u00a0cat sat\tand\r\n") == scorer.score(["the\u00a0cat", "sat", "and"])


def test_a_folder_that_is_no_run_is_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="is not a run"):
        selfnorm.load(tmp_path)
    with pytest.raises(ValueError, match="there is no such run or file"):
        selfnorm.load(tmp_path / "none")


def test_a_run_may_be_moved(tmp_path):
    scores = selfnorm.load(save(tmp_path / "run"), "cpu").score("the cat")
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    assert selfnorm.load(tmp_path / "elsewhere", "cpu").score("the cat") == scores
