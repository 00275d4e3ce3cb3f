"""Presets and options: the paper's sizes, and a sentence for each wrong value."""

import pytest
import torch

from selfnorm.models import MODELS, PRESETS, expand
from selfnorm.registry import pick

LSTM = {"name": "lstm", "layers": 2, "hidden": 12, "embedding": 8}
TRANSFORMER = {"name": "transformer", "layers": 3, "hidden": 16, "feed_forward": 24, "heads": 2, "embedding": 16}


def build(table, size=50):
    return pick("model", MODELS, size=size, **expand(table))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_build(preset):
    with torch.device("meta"):
        model = build({"preset": preset, "dropout": 0.1}, size=30000)
        assert model(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, model.width)
    assert model.dropout.p == 0.1


@pytest.mark.parametrize(
    ("preset", "count"),
    [
        ("swb-lstm", 4 * 2048 * (128 + 2048 + 2) + 4 * 2048 * (2048 + 2048 + 2)),
        # 4 squares for the attention and 8 for the feed-forward, their biases, two norms; the last norm
        ("libri-transformer", 42 * (12 * 512**2 + (3 + 1 + 4 + 1) * 512 + 4 * 512) + 2 * 512),
    ],
)
def test_presets_have_the_papers_sizes(preset, count):
    with torch.device("meta"):
        model = build({"preset": preset}, size=200_000)
    tables = model.embedding.weight.numel() + model.output.weight.numel() + model.output.bias.numel()
    assert sum(parameter.numel() for parameter in model.parameters()) - tables == count
    assert model.embedding.weight.shape[0] == 200_001
    assert model.output.weight.shape == (200_000, model.width)


def test_expand():
    assert expand({"name": "lstm", "layers": 3}) == {"name": "lstm", "layers": 3}
    wanted = {"name": "lstm", "layers": 3, "hidden": 2048, "embedding": 128, "dropout": 0.1}
    assert expand({"preset": "swb-lstm", "layers": 3, "dropout": 0.1}) == wanted
    assert PRESETS["swb-lstm"][1]["layers"] == 2


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (TRANSFORMER | {"heads": 3}, "3 heads cannot share a hidden size of 16"),
        (TRANSFORMER | {"positions": "rotory"}, "no positional encoding 'rotory'; did you mean 'rotary'"),
        (TRANSFORMER | {"positions": "rotary", "heads": 16}, "need an even size, not 1"),
        (TRANSFORMER | {"activation": "tanh"}, "no activation 'tanh'; choose one of: gelu, relu"),
        (TRANSFORMER | {"embedding": 8, "tied": True}, "set embedding = 16 or tied = false"),
        (LSTM | {"tied": True}, "set embedding = 12 or tied = false"),
        (LSTM | {"layers": 0}, "layers = 0: a model needs a whole number above 0"),
        (LSTM | {"hidden": 2.5}, "hidden = 2.5: a model needs a whole number"),
        (LSTM | {"dropout": 1.0}, "dropout = 1.0: it is the share"),
        (LSTM | {"heads": 2}, "model 'lstm' takes no option 'heads'"),
        (LSTM | {"link": "sigmoid"}, "no link 'sigmoid'"),
        ({"preset": "swb-lstn"}, "no preset 'swb-lstn'; did you mean 'swb-lstm'"),
        ({"preset": "swb-lstm", "name": "transformer"}, "preset 'swb-lstm' is a lstm"),
        ({"layers": 2}, "neither name (lstm, transformer) nor preset"),
    ],
)
def test_bad_options_are_one_sentence(table, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        build(table)
    assert sentence in str(error.value)


def test_init_is_zarembas_uniform():
    for parameter in build(LSTM | {"init": 0.1, "hidden": 200}).parameters():
        assert parameter.abs().max() <= 0.1
        assert parameter.std().item() == pytest.approx(0.2 / 12**0.5, rel=0.2)
