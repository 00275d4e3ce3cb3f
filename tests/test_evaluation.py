"""Perplexity and log Z against sums made by hand in float64."""

import math

import numpy as np
import pytest
import torch

from selfnorm.corpus.store import TokenStore
from selfnorm.evaluation import Evaluation, calibrate, evaluate, summarize
from selfnorm.files import finite
from selfnorm.models import LSTM
from selfnorm.scorers.text import Words
from selfnorm.vocabulary import Vocabulary

SIZE = 40


@pytest.fixture
def vocabulary():
    return Vocabulary.from_counts({"</s>": 30} | {f"w{rank}": 1000 // (rank + 1) for rank in range(60)}, SIZE)


@pytest.fixture
def store(vocabulary):
    chance = np.random.default_rng(1)
    sentences = [[f"w{word}" for word in chance.integers(0, 60, chance.integers(0, 9))] for _ in range(25)]
    return TokenStore.of(map(vocabulary.encode, sentences), vocabulary)


def build(link, normalize):
    torch.manual_seed(1)
    model = LSTM(SIZE, layers=1, hidden=8, embedding=8, dropout=0.5, link=link, normalize=normalize)
    torch.nn.init.normal_(model.output.weight, std=0.7)
    torch.nn.init.normal_(model.output.bias, mean=-3.0)
    return model


def by_hand(model, store, histories):
    """Score and log Z of each word, one sentence (or the whole stream) after the other, in float64."""
    exact = build(model.output.link_name, model.output.normalize).double().eval()
    exact.load_state_dict({name: value.double() for name, value in model.state_dict().items()})
    texts = [store.ids] if histories == "streams" else [store[number] for number in range(len(store))]
    first = store.end if histories == "streams" else store.start
    link, log_z = [], []
    for text in texts:
        ids = torch.tensor(text.astype(np.int64))
        hidden = exact(torch.cat([torch.tensor([first]), ids[:-1]])[None])[0]
        logits = hidden @ exact.output.weight.T + exact.output.bias
        values = logits if model.output.link_name == "log" else -torch.log1p(torch.exp(-logits))
        link.append(values.gather(1, ids[:, None])[:, 0])
        log_z.append(values.exp().sum(1).log())
    return torch.cat(link).detach().numpy(), torch.cat(log_z).detach().numpy()


@pytest.mark.parametrize("histories", ["sentences", "streams"])
@pytest.mark.parametrize(("link", "normalize"), [("log", True), ("log", False), ("logsigmoid", False)])
def test_every_figure_is_the_one_by_hand(vocabulary, store, link, normalize, histories):
    model = build(link, normalize).train()
    found = evaluate(model, store, vocabulary.unknown, histories=histories, positions=32, most=100)
    value, log_z = by_hand(model, store, histories)
    targets = store.ids.astype(np.int64)
    known = targets != vocabulary.unknown
    log_prob = value - log_z
    assert found.perplexity == pytest.approx(math.exp(-log_prob.mean()), rel=1e-5)
    assert found.perplexity_as_is == pytest.approx(math.exp(-(log_prob if normalize else value).mean()), rel=1e-5)
    assert found.perplexity_without_unk == pytest.approx(math.exp(-log_prob[known].mean()), rel=1e-5)
    assert found.log_z_mean == pytest.approx(log_z.mean(), abs=1e-5)
    assert found.log_z_std == pytest.approx(log_z.std(), abs=1e-5)
    assert found.log_z_quantiles["0.5"] == pytest.approx(np.median(log_z), abs=1e-5)
    assert found.log_z_quantiles["0.01"] == pytest.approx(np.quantile(log_z, 0.01), abs=1e-5)
    assert (found.words, found.sentences, found.oov) == (len(targets), 25, int((~known).sum()))
    assert found.oov_rate == pytest.approx((~known).sum() / (len(targets) - 25))
    assert 0 < found.oov < found.words
    assert [band.ranks for band in found.bands] == ["1 to 10", "11 to 40"]
    assert sum(band.words for band in found.bands) == found.words
    head = targets < 10
    assert found.bands[0].perplexity == pytest.approx(math.exp(-log_prob[head].mean()), rel=1e-5)
    assert found.bands[1].log_z_std == pytest.approx(log_z[~head].std(), abs=1e-5)
    assert model.training  # as it was


def test_histories_matter(vocabulary, store):
    model = build("log", True)
    values = [
        evaluate(model, store, vocabulary.unknown, histories=kind).perplexity for kind in ("sentences", "streams")
    ]
    assert values[0] != pytest.approx(values[1], rel=1e-3)


def test_calibration_adds_up(store):
    model = build("logsigmoid", False)
    found = calibrate(model, store, words=10**6)
    words = len(store.ids)
    value, log_z = by_hand(model, store, "sentences")
    assert found.pairs.sum() == words * SIZE
    assert found.hits.sum() == words
    assert (found.said * found.pairs).sum() == pytest.approx(np.exp(log_z).sum(), rel=1e-5)
    assert found.seen == pytest.approx(found.hits / found.pairs)
    assert (np.diff(found.said) > 0).all()  # the bins rise
    low = np.searchsorted(found.said, np.exp(value).min())
    assert found.hits[: max(0, low - 1)].sum() == 0


def test_calibration_looks_at_some_words_only(store):
    assert calibrate(build("log", True), store, words=1).pairs.sum() <= 2048 * SIZE


def words(log_probs, scores=None, targets=None):
    log_probs = np.array(log_probs, float)
    targets = np.zeros(len(log_probs), np.int64) if targets is None else targets
    return Words(
        targets, log_probs if scores is None else np.array(scores, float), log_probs, np.zeros(len(log_probs)), 1.0
    )


def test_what_is_not_finite_stays_so_and_is_null_in_json(vocabulary):
    store = TokenStore.of([[1, 2]], vocabulary)
    assert math.isnan(summarize(words([-1, math.nan, -1]), store, vocabulary.unknown).perplexity)
    assert summarize(words([-1, -math.inf, -1]), store, vocabulary.unknown).perplexity == math.inf
    assert summarize(words([-1e4] * 3), store, vocabulary.unknown).perplexity == math.inf
    unknown = np.full(3, vocabulary.unknown)
    assert math.isnan(summarize(words([-1] * 3, targets=unknown), store, vocabulary.unknown).perplexity_without_unk)
    assert finite({"a": [math.nan, 1.5, (math.inf, "x")], "b": None}) == {"a": [None, 1.5, [None, "x"]], "b": None}


def test_an_empty_text_is_a_sentence(vocabulary):
    with pytest.raises(ValueError, match="the text holds no sentence"):
        evaluate(build("log", True), TokenStore.of([], vocabulary), vocabulary.unknown)


def test_an_evaluation_comes_back_from_json(vocabulary, store):
    import json
    from dataclasses import asdict

    found = evaluate(build("log", True), store, vocabulary.unknown)
    assert Evaluation.of(json.loads(json.dumps(asdict(found)))) == found
