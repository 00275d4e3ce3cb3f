"""Scores and states against the definition of a back-off model."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_ngram import START, random_model, render, score, sentence

from selfnorm.ngrams import query
from selfnorm.ngrams.build import build

models = st.builds(
    lambda seed, order, names, density: random_model(random.Random(seed), order, names, density),
    st.integers(0, 10**9),
    st.integers(1, 4),
    st.integers(1, 5),
    st.floats(0, 1),
)
texts = st.lists(st.lists(st.sampled_from(["w0", "w1", "w2", "w3", "w4", "zebra"]), max_size=7), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("arpa")


def index_of(levels, folder):
    path = folder / "lm.arpa"
    path.write_text(render(levels))
    return build(path)


def encode(index, sentences):
    ids = [[*index.vocabulary.encode(words), index.vocabulary.end] for words in sentences]
    starts = np.cumsum([0, *map(len, ids)])[:-1]
    return np.array([id for each in ids for id in each], np.int64), starts


@settings(max_examples=150, deadline=None)
@given(levels=models, sentences=texts, span=st.integers(1, 30))
def test_a_text_is_scored_by_the_definition(folder, levels, sentences, span):
    index = index_of(levels, folder)
    wanted = [each for words in sentences for each in sentence(levels, words)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query, "SPAN", span)  # wherever a text is cut, the scores are the same
        found = query.score(index, *encode(index, sentences))
    np.testing.assert_allclose(found / np.log(10), wanted, rtol=1e-6, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(levels=models, sentences=texts)
def test_word_by_word_is_all_at_once(folder, levels, sentences):
    index = index_of(levels, folder)
    states, found = [query.start(index) for _ in sentences], [[] for _ in sentences]
    ids = [[*index.vocabulary.encode(words), index.vocabulary.end] for words in sentences]
    for step in range(max(map(len, ids))):
        here = [number for number in range(len(ids)) if step < len(ids[number])]
        word = np.array([ids[number][step] for number in here])
        scores, after = query.advance(index, [states[number] for number in here], word)
        for number, value, state in zip(here, scores.tolist(), after):
            found[number].append(value)
            states[number] = state
    wanted = query.score(index, *encode(index, sentences))
    np.testing.assert_array_equal(np.concatenate(found), wanted)


@settings(max_examples=25, deadline=None)
@given(levels=models)
def test_histories_of_one_state_score_alike_forever(folder, levels):
    index = index_of(levels, folder)
    words = [word for (word,) in levels[0] if word not in (START, "</s>")][:3]
    end = index.vocabulary.end
    seen = {}
    for length in range(4):
        for history in product(words, repeat=length):
            state = query.start(index)
            for id in index.vocabulary.encode(history):
                _, (state,) = query.advance(index, [state], np.array([id]))
            ids = np.array([*index.vocabulary.encode(words), end])
            scores, after = query.advance(index, [state] * len(ids), ids)
            by_hand = [score(levels, (START, *history), word) for word in (*words, "</s>")]
            np.testing.assert_allclose(scores / np.log(10), by_hand, rtol=1e-6, atol=1e-6)
            first = seen.setdefault(state, (scores.tolist(), after))
            assert first == (scores.tolist(), after)


def test_states_forget_what_does_not_matter(folder):
    levels = [
        {
            ("<s>",): (-99, -0.5),
            ("<unk>",): (-2, None),
            ("</s>",): (-1, None),
            ("a",): (-0.5, -0.1),
            ("b",): (-0.6, 0.0),
        },
        {("<s>", "a"): (-0.2, None), ("a", "b"): (-0.1, -0.3), ("a", "a"): (-0.1, 0.0)},
        {("a", "a", "b"): (-0.05, None)},
    ]
    index = index_of(levels, folder)
    a, b, unknown = (index.vocabulary.id(word) for word in ("a", "b", "zebra"))
    _, (after_a,) = query.advance(index, [query.start(index)], np.array([a]))
    assert after_a == (a, -1)  # <s> a: no back-off and nothing longer
    _, (after_unknown,) = query.advance(index, [after_a], np.array([unknown]))
    assert after_unknown == (-1, -1)
    _, (after_aa,) = query.advance(index, [after_a], np.array([a]))
    assert after_aa[1] >= 0  # its back-off is 0, but a longer one starts with it
    _, (after_ab,) = query.advance(index, [after_a], np.array([b]))
    assert after_ab[0] == -1
    assert after_ab[1] >= 0  # nothing longer starts with it, but it has a back-off


def test_nothing_to_score(folder):
    index = index_of(random_model(random.Random(1), 3, 2, 0.5), folder)
    assert len(query.score(index, np.zeros(0, np.int64), np.zeros(0, np.int64))) == 0
    scores, states = query.advance(index, [], np.zeros(0, np.int64))
    assert len(scores) == len(states) == 0
