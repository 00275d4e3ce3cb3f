"""Recipes: what is read, what is overridden, what is written back, and the sentence for each mistake."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfnorm.recipe import KEYS, Recipe, Table, load, to_toml

MODE3 = """\
# selfnorm train mode3.toml RUN
data = "DATA"
criterion = { name = "mode3" }

[sampler]
name = "distinct"
noise = "log_uniform"
k = 8000
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "recipe.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_tables_are_a_name_and_keywords(write):
    recipe = load(write(MODE3))
    assert recipe.data == "DATA"
    assert recipe.criterion == Table("mode3")
    assert recipe.sampler == Table("distinct", {"noise": "log_uniform", "k": 8000})
    assert recipe.model == Table(None, {})


@pytest.mark.parametrize(
    ("override", "table", "key", "value"),
    [
        ("sampler.k=100", "sampler", "k", 100),
        ("optimizer.rate=1e-3", "optimizer", "rate", 1e-3),
        ("model.tied=true", "model", "tied", True),
        ("sampler.noise=unigram", "sampler", "noise", "unigram"),
        ("sampler.noise='unigram'", "sampler", "noise", "unigram"),
        (" sampler.k = 7 ", "sampler", "k", 7),
        ("model.sizes=[1, [2, 3]]", "model", "sizes", [1, [2, 3]]),
        ('model.extra={a = 1, "b c" = "x"}', "model", "extra", {"a": 1, "b c": "x"}),
        ("training.note=a=b", "training", "note", "a=b"),
        ("training.day=2024-01-02", "training", "day", "2024-01-02"),
        ("training.note=1\nk = 2", "training", "note", "1\nk = 2"),
    ],
)
def test_set_overrides_one_value(write, override, table, key, value):
    changed = getattr(load(write(MODE3), [override]), table).options[key]
    assert changed == value
    assert type(changed) is type(value)


def test_set_reaches_data_names_and_whole_tables(write):
    recipe = load(write(MODE3), ["data=/a b/c", "criterion.name=nce", "sampler={k = 5}", "sampler.k=6"])
    assert recipe.data == "/a b/c"
    assert recipe.criterion == Table("nce")
    assert recipe.sampler == Table(None, {"k": 6})


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("sampler.k", "not of the form key=value"),
        ("=5", "not of the form key=value"),
        ("sampler..k=5", "not of the form key=value"),
        ("model.a.b=5", "not of the form key=value"),
        ("sampelr.k=5", "did you mean 'sampler'"),
        ("sampler.k=", "is not a TOML value"),
        ("model.sizes=[1, 2", "is not a TOML value"),
        ("model.tied=False", "is not a TOML value"),
        ("data=\udcff", "is not a TOML value"),
        ("data.k=5", "'data' is no table"),
        ("criterion=mode3", "--set criterion=mode3: 'criterion' is a table; set an option of it"),
        ("criterion.name=5", "must be a word"),
        ("data=5", "must be the name of a folder"),
    ],
)
def test_a_wrong_set_is_a_sentence(write, override, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(write(MODE3), [override])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('data = "D"\nsamplr = { k = 5 }', r"recipe\.toml:2: unknown key 'samplr'; did you mean 'sampler'"),
        ('data = "D"\n\n[optimiser]\nrate = 1', r"recipe\.toml:3: unknown key 'optimiser'; did you mean 'optimizer'"),
        ('data = "D"\nzzz = 1', r"recipe\.toml:2: unknown key 'zzz'; a recipe has: data, criterion"),
        ('data = "D"\nmodel = = 1', r"recipe\.toml:2: not valid TOML"),
        ('data = "D"\nmodel = {', r"recipe\.toml:2: not valid TOML"),
        ('data = "D"\ndata = "E"', r"recipe\.toml:2: not valid TOML"),
        ('data = "D"\n[training]\nday = 2024-01-02', r"recipe\.toml:2: `training\.day` is a date"),
        ('data = "D"\ncriterion = "mode3"', r"recipe\.toml:2: `criterion` must be a table"),
        ('data = "D"\nmodel.name = 3', r"recipe\.toml:2: the name of `model` must be a word"),
        ("data = 3", r"recipe\.toml:1: `data` must be the name of a folder"),
        ("", r"recipe\.toml: `data` is missing"),
        (b'data = "\xff"', r"recipe\.toml: byte 8 is not UTF-8"),
        ('data = "D"\nmodel.a = ' + "[" * 10_000, r"recipe\.toml: nested too deeply"),
    ],
)
def test_a_wrong_recipe_is_a_sentence(write, text, sentence):
    with pytest.raises(ValueError, match=sentence):
        load(write(text))


def test_a_missing_recipe_is_a_sentence(tmp_path):
    for path, sentence in ((tmp_path / "none.toml", "there is no such recipe file"), (tmp_path, "is not a file")):
        with pytest.raises(ValueError, match=f"{path}: {sentence}; give the path of a .toml file"):
            load(path)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), NAMES)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
OPTIONS = st.dictionaries(NAMES.filter(lambda key: key != "name"), VALUES, max_size=4)
TABLES = st.builds(Table, st.none() | NAMES, OPTIONS)


@given(st.builds(Recipe, NAMES, *[TABLES] * (len(KEYS) - 1)))
def test_write_then_read_is_the_identity(tmp_path_factory, recipe):
    path = tmp_path_factory.mktemp("recipe") / "recipe.toml"
    path.write_text(to_toml(recipe), encoding="utf-8")
    again = load(path)
    assert again == recipe
    assert to_toml(again) == to_toml(recipe)  # so 1, 1.0 and true stay apart


def test_a_recipe_as_run_is_one_line_per_table(write):
    text = to_toml(load(write(MODE3), ["sampler.k=100", "optimizer.rate=1e-05"]))
    assert text == (
        'data = "DATA"\n'
        'criterion = { name = "mode3" }\n'
        'sampler = { name = "distinct", noise = "log_uniform", k = 100 }\n'
        "optimizer = { rate = 1e-05 }\n"
    )
    assert tomllib.loads(text)["sampler"]["k"] == 100
