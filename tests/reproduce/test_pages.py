"""Tables have the paper's figures beside ours; the page is that of its rows and claims nothing without them."""

import re
from pathlib import Path

import pytest

from selfnorm.reproduce import rows as kept
from selfnorm.reproduce.pages import page, write
from selfnorm.reproduce.plan import ITEMS, SCALES, rows
from selfnorm.reproduce.tables import tables

ROOT = Path(__file__).parents[2]
SMALL = SCALES["small"]
NAMES = ("item", "label", "task", "criterion", "k", "groups", "sampler", "sharing", "noise", "seed", "key")


def row(planned, perplexity=60.0, **more):
    fields = {name: getattr(planned, name) for name in NAMES}
    found = {"scale": "small", "model": "swb-lstm", "batch": "32 sequences", "corpus": "podcasts", "run": planned.key}
    found |= {"perplexity": perplexity, "perplexity_as_is": perplexity + 1, "log_z_mean": -0.01, "log_z_std": 0.1}
    found |= {"words_per_second": 150_000.0, "words_per_second_large": 9e5, "seconds_per_batch": 0.003}
    found |= {
        "words_seen": 55_800_000,
        "test_words": 267_237,
        "training_seconds": 360.0,
        "mixture_perplexity": perplexity - 5,
    }
    return fields | found | {"machine": "NVIDIA H200", "torch": "2.11", "date": "2026-11-15"} | more


def planned(item, label, seed=1):
    return next(each for each in rows(item, SMALL) if (each.label, each.seed) == (label, seed))


def cells(item, found, which=0):
    _, head, body = list(tables(item, found))[which]
    return [dict(zip(head, line)) for line in body]


def test_the_paper_stands_beside():
    (found,) = cells("table2", [row(planned("table2", "Mode1, K = 100"), 90.123)])
    assert found == {
        "": "Mode1, K = 100",
        "K": "100",
        "paper: PPL": "87.2",
        "ours: PPL": "90.12",
        "ours: PPL as is": "91.12",
        "ours: log Z": "-0.010, std 0.100",
    }
    (found,) = cells("table3", [row(planned("table3", "CE"))])
    assert (found["paper: PPL with 4-gram"], found["ours: PPL with 4-gram"]) == ("49.9", "55.00")
    (found,) = cells("table3", [row(planned("table3", "CE"))], which=1)
    assert (found["paper: s/batch"], found["ours: s/batch"], found["ours: words/s"]) == ("0.100", "0.0030", "150,000")


def test_seeds_are_one_line_with_their_spread():
    label = "NCE, K = 8000"
    found = [row(planned("table2", label, seed), value) for seed, value in ((1, 60.0), (2, 61.0))]
    (line,) = cells("table2", found)
    assert line["ours: PPL"] == "60.50 ± 0.50"


def test_what_is_worth_its_time():
    found = [
        row(planned("beyond", "CE", 1), 80.0, words_per_second=100_000.0),
        row(planned("beyond", "CE", 2), 82.0, words_per_second=100_000.0),
        row(planned("beyond", "Mode3, K = 1000, distinct"), 81.5),  # faster
        row(planned("beyond", "Mode3, K = 8000, distinct"), 81.6, words_per_second=120_000.0),  # slower, and no better
        row(planned("beyond", "CE, large batch"), 65.0, batch="8192 positions"),
        row(planned("beyond", "Mode3, K = 8000, systematic, large batch"), 64.0, batch="8192 positions"),
    ]
    text = page(found, SMALL).partition("Best for their time")[2]
    told = [line for line in text.splitlines() if line.startswith("- ") or "large batches:" in line][:4]
    assert told == [
        "- Mode3, K = 1000, distinct: +1.9 % in 6.20 minutes",  # than CE of the same seed
        "- CE: +0.0 % in 9.30 minutes",
        "And in large batches:",
        "- Mode3, K = 8000, systematic, large batch: -1.5 % in 6.20 minutes",
    ]


@pytest.mark.parametrize(
    ("label", "worse"),
    [
        (None, None),
        ("Mode3, K = 1000, systematic", 85.0),
        ("Mode3, K = 8000, systematic, large batch", 70.0),
        ("Mode3, K = 100, systematic, large batch", 66.0),  # few samples would be enough
        ("Mode3, K = 100, systematic, G = 16, large batch", 95.0),  # groups would not help
    ],
)
def test_the_defaults_are_explained_where_the_rows_bear_them_out(label, worse):
    told = {"CE": 80.0, "CE, large batch": 65.0}
    told |= {f"Mode3, K = {k}, {sampler}": 80.1 for k in (1000, 8000) for sampler in ("systematic", "distinct")}
    told |= {"Mode3, K = 8000, systematic, large batch": 65.2}
    told |= {"Mode3, K = 100, systematic, large batch": 90.0, "Mode3, K = 100, systematic, G = 16, large batch": 70.0}
    found = [row(planned("beyond", name), value) for name, value in told.items()]
    assert ("\nWhy: " in page([each for each in found if each["label"] != label], SMALL)) == (label is None)
    if label is not None:
        changed = [each | {"perplexity": worse} if each["label"] == label else each for each in found]
        assert "\nWhy: " not in page(changed, SMALL)


def test_rows_are_compared_with_cross_entropy_of_the_same_seed():
    found = [row(planned("table3", "CE", seed), value) for seed, value in ((1, 60.0), (2, 50.0))]
    label = "Mode3, K = 8000"
    mine = [row(planned("table2", label, seed), value) for seed, value in ((1, 60.6), (2, 50.0))]
    (line,) = [dict(zip(head, body[0])) for title, head, body in tables("table2", mine, found) if not title]
    assert line["ours: PPL against CE, %"] == "+0.5 ± 0.5"
    (line,) = cells("table2", mine)
    assert "ours: PPL against CE, %" not in line


@pytest.mark.parametrize(
    ("left_out", "told"),
    [
        (0, "78 of 78 rows are there, after 7.8 hours of training."),
        (1, "77 of 78 rows are there, after 7.7 hours of training; not yet: "),
    ],
)
def test_the_page_says_what_is_missing(left_out, told):
    every = rows("all", SMALL)
    missing = every[-left_out:] if left_out else []
    text = page([row(each, words=1, vocabulary=1, oov=0) for each in every if each not in missing], SMALL)
    assert told + ", ".join(f"beyond: {each.label} (seed {each.seed})" for each in missing) in " ".join(text.split())
    assert (
        "| Mode3 at K = 8000 within 1 % of cross entropy, or better (table 4) | 60.00 against 60.00: +0.0 % | 1 |"
        in text
    )
    assert (
        text.index("What was expected") < text.index("How to read") < text.index("Table 1") < text.index("What differs")
    )


def test_errors_of_sets_and_subsets():
    def rate(wer):
        return {"wer": wer, "interval": [wer - 2, wer + 3], "first_pass": 40.0, "words": 100}

    wer = {"ps-lattices": {"all": rate(30.0), "fraser": rate(31.0), "libri": rate(20.0)}}
    found = [row(planned("table5", "count LM"), model="4-gram", wer=wer, seconds_per_batch=None)]
    found.append(row(planned("table5", "NCE, K = 100"), wer=wer))
    assert [title for title, *_ in tables("table5", found)] == ["", ", speed", ", WER", ", WER by subset"]
    assert [line[""] for line in cells("table5", found, 1)] == ["NCE, K = 100"]  # nothing is trained for a count LM
    first, count, nce = cells("table5", found, 2)
    assert first == {"": "first pass", "paper": "-", "ours: ps-lattices": "40.0"}
    assert (count["paper"], nce["paper"]) == ("EN 13.7", "EN 13.3")
    assert nce["ours: ps-lattices"] == "30.0 (28.0 to 33.0)"
    assert cells("table5", found, 3)[2]["ps-lattices: fraser"] == "31.0 (29.0 to 34.0)"


def test_a_training_that_stopped_is_told():
    whole = row(planned("table2", "Mode1, K = 100"), stopped="step 9: not finite")
    found = [{key: each for key, each in whole.items() if not re.search("perplexity|log_z|second|words", key)}]
    (line,) = cells("table2", found)
    assert line["ours: PPL"] == "stopped"
    assert "Mode1, K = 100, seed 1: step 9: not finite." in page(found, SMALL)


def test_without_rows_nothing_is_claimed():
    text = page([], SMALL)
    assert text.count("Not run yet.") == len(ITEMS)
    assert "|" not in text
    assert "  - 0.25 times podcasts in figure 1 and beyond\n  - 1 times books in table 4\n" in text


def test_the_page_says_where_rows_come_from(tmp_path):
    found = [row(each) for each in rows("figure1", SMALL)] + [row(planned("table2", "NCE, K = 100"))]
    found.append(row(planned("beyond", "CE")))
    names = [path.name for path in write(tmp_path / "reproduce.md", found, SMALL)]
    assert names == ["reproduce.md", "reproduce.svg", "reproduce_costs.svg"]
    text = (tmp_path / "reproduce.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert "(reproduce.svg)" in text
    assert "(reproduce_costs.svg)" in text
    assert "cross entropy" in (tmp_path / "reproduce.svg").read_text()
    assert "| What more samples bring gets less (figure 1) | K = 10, 300, 8000: 60.0, 60.0, 60.0 | 1 | no |" in text
    assert "\n3 expectations: 2 yes, 1 no, 0 undecided.\n" in text
    assert text.count("Not run yet.") == len(ITEMS) - 3
    made = "1 of 10 rows, trained on podcasts, made on NVIDIA H200, torch 2.11, 2026-11-15"
    seen = "each training saw 55,800,000 words, sentence ends among them; all took 6.0 minutes"
    assert f"{made}; {seen}; the test text has 267,237 words." in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 200


def test_a_page_of_tiny_says_that_it_says_nothing_of_criteria():
    sentence = "They are of built-in text, after a few steps"
    tiny = SCALES["tiny"]
    assert sentence in page([row(each) | {"scale": "tiny"} for each in rows("table2", tiny)], tiny)
    assert sentence not in page([row(each) for each in rows("table2", SMALL)], SMALL)


def test_the_page_of_the_docs_is_that_of_its_rows():
    found, damaged = kept.read(ROOT / "benchmarks" / "results" / "reproduce")
    assert not damaged
    mine = [each for each in found if each["scale"] == "small"]
    told = "run: selfnorm reproduce all --scale small --to benchmarks/results/reproduce --page docs/reproduce.md"
    assert (ROOT / "docs" / "reproduce.md").read_text() == page(mine, SMALL), told
