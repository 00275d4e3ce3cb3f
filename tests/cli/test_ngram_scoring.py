"""evaluate and score with an ARPA file, alone and beside a run."""

import json
import math
from functools import partial

import numpy as np
import pytest
from trials import call

import selfnorm
from selfnorm.scorers import NGram

ARPA = """\\data\\
ngram 1=6
ngram 2=2

\\1-grams:
-99\t<s>\t-0.3
-1\t<unk>
-0.8\t</s>
-0.7\tw0\t-0.2
-0.6\tw1\t-0.1
-0.9\tmine

\\2-grams:
-0.2\t<s> w0
-0.3\tw0 w1

\\end\\
"""


@pytest.fixture
def verb(tmp_path):
    return partial(call, tmp_path / "said")


@pytest.fixture
def lm(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(ARPA)
    return path


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("w0 w1 zebra mine\n\nw2 w0\n")
    return path


@pytest.fixture
def development(tmp_path):
    path = tmp_path / "development"
    path.write_text("w0 w1\nw1 w0 w5 w1\nw3\n")
    return path


def words(path):
    return [line.split() for line in path.read_text().splitlines() if line]


def test_evaluate_an_arpa_file(verb, lm, text):
    status, out, err = verb("evaluate", lm, text, "--json")
    found = json.loads(out)
    scored = NGram.load(lm).text(words(text))
    assert (status, err) == (0, "")
    assert (found["words"], found["sentences"], found["oov"]) == (8, 2, 2)
    assert found["perplexity"] == found["perplexity_as_is"] == pytest.approx(math.exp(-scored.scores.mean()))
    assert found["perplexity_without_unk"] == pytest.approx(math.exp(-scored.scores[scored.known].mean()))
    assert found["log_z_mean"] is found["log_z_std"] is None
    assert found["oov_rate"] == pytest.approx(2 / 6)
    assert found["words_per_second"] > 0
    status, out, _ = verb("evaluate", lm, text)
    assert status == 0
    assert "perplexity without unknown words" in out
    assert "log Z" not in out


def test_evaluate_a_mixture(verb, run, lm, text, development):
    status, out, _ = verb("evaluate", run, text, "--ngram", lm, "--tune", development, "--json")
    found = json.loads(out)
    assert status == 0
    neural, ngram = selfnorm.load(run, "cpu"), NGram.load(lm)

    def both(path):
        log_probs = np.concatenate([neural.log_prob(sentence) for sentence in words(path)])
        return np.exp(log_probs), np.exp(ngram.text(words(path)).scores)

    grid = np.linspace(0, 1, 1001)
    one, other = both(development)
    best = grid[np.argmax([np.log((1 - w) * one + w * other).mean() for w in grid])]
    assert found["ngram_weight"] == pytest.approx(best, abs=2e-3)
    one, other = both(text)
    mixed = np.log((1 - found["ngram_weight"]) * one + found["ngram_weight"] * other)
    assert found["mixture_perplexity"] == pytest.approx(math.exp(-mixed.mean()), rel=1e-4)
    assert found["ngram_perplexity"] == pytest.approx(math.exp(-np.log(other).mean()), rel=1e-5)
    assert found["perplexity"] == pytest.approx(math.exp(-np.log(one).mean()), rel=1e-4)
    assert (found["oov"], found["ngram_oov"]) == (2, 2)  # zebra, mine; zebra, w2
    known = [word in neural.vocabulary and word in ngram.vocabulary for each in words(text) for word in [*each, "</s>"]]
    assert known.count(False) == 3
    assert found["mixture_perplexity_without_unk"] == pytest.approx(math.exp(-mixed[known].mean()), rel=1e-4)
    status, out, _ = verb("evaluate", run, text, "--ngram", lm, "--tune", development)
    assert status == 0
    assert "weight of the n-gram in the mixture" in out


def test_a_mixture_of_different_words_is_not_normalized_and_says_so(verb, run, data, lm, text, development, tmp_path):
    arguments = ["evaluate", run, text, "--tune", development, "--ngram"]
    status, out, err = verb(*arguments, lm, "--json")
    known = len(selfnorm.load(run, "cpu").vocabulary)
    assert (status, json.loads(out)["mixture_normalized"], err.count("\n")) == (0, False, 1)
    assert f"{lm}: has 1 words that {run} does not know, and lacks {known - 4:,} that it does" in err
    assert "perplexity of the mixture, not normalized" in verb(*arguments, lm)[1]
    alike = tmp_path / "alike.arpa"
    given = ["--order", "2", "--vocab", data / "vocab.txt", "--to", alike]
    assert verb("ngram", data.parent / "train.txt", *given)[0] == 0
    status, out, err = verb(*arguments, alike, "--json")
    assert (status, json.loads(out)["mixture_normalized"], err) == (0, True, "")


def test_score_with_an_arpa_file(verb, lm, text):
    rows = [line.split("\t") for line in verb("score", lm, text)[1].splitlines()]
    wanted = NGram.load(lm).text(words(text)).scores
    assert [row[1] for row in rows] == ["w0", "w1", "zebra", "mine", "</s>", "w2", "w0", "</s>"]
    assert [float(row[2]) for row in rows] == pytest.approx(wanted, abs=1e-5)
    assert [row[3] for row in rows].count("unknown") == 2
    lines = [json.loads(line) for line in verb("score", lm, text, "--format", "jsonl")[1].splitlines()]
    assert [line["score"] for line in lines] == pytest.approx(list(map(sum, NGram.load(lm).sentences(words(text)))))
    assert json.loads(verb("score", lm, text, "--json")[1])["score"] == pytest.approx(wanted.sum())


def test_mistakes_are_sentences(verb, run, lm, text, development, tmp_path):
    def error(*arguments):
        status, out, err = verb(*arguments)
        assert (status, out) == (2, "")
        assert err.count("\n") == 1
        return err

    assert "--ngram and --tune go together" in error("evaluate", run, text, "--ngram", lm)
    assert "--ngram and --tune go together" in error("evaluate", run, text, "--tune", development)
    assert "fit the weight to another one" in error("evaluate", run, text, "--ngram", lm, "--tune", text)
    assert "need a run" in error("evaluate", lm, text, "--ngram", lm, "--tune", development)
    assert "need a run" in error("evaluate", lm, text, "--plot", tmp_path / "plots")
    (tmp_path / "empty").write_text("\n")
    assert "holds no sentence" in error("score", lm, tmp_path / "empty")
    lm.write_text(ARPA.replace("ngram 2=2", "ngram 2=3"))
    assert f"{lm}:13: 2 2-grams follow where the header declares 3" in error("evaluate", lm, text)
    assert f"{lm}:13: 2 2-grams" in error("evaluate", run, text, "--ngram", lm, "--tune", development)
