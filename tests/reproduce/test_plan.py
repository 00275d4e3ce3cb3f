"""The plan holds the paper's rows, each once, and every recipe of it can be built."""

import re

import pytest

from selfnorm.corpus.prepare import prepare
from selfnorm.recipe import load, to_toml
from selfnorm.reproduce.paper import PAPER, TITLES
from selfnorm.reproduce.plan import ITEMS, ORDER, SCALES, SWEEP, recipe, rows, run_name
from selfnorm.training.parts import build

SMALL = SCALES["small"]


def test_every_row_of_the_paper_is_planned():
    assert set(PAPER) == set(TITLES) == set(ITEMS) == set(ORDER)
    for item, reported in PAPER.items():
        labels = [row.label for row in rows(item, SMALL) if row.seed == 1]
        assert len(labels) == len(set(labels))
        if reported:
            assert [label for label in labels if label in reported] == list(reported)
            assert set(labels) - set(reported) <= {"count LM"}
    assert [len(PAPER[item]) for item in ITEMS] == [3, 8, 0, 5, 5, 5, 0]


def test_k_is_the_papers():
    for row in rows("all", SMALL):
        found = re.search(r"K = (\d+)", row.label)
        if row.criterion in (None, "count", "ce", "bce", "ce_vr"):
            assert row.k is None
        else:
            assert row.k == (int(found[1]) if found else 8000), row.key
    sweep = [(row.groups, row.k) for row in rows("figure1", SMALL) if row.seed == 1]
    assert sweep == [(1, k) for k in SWEEP] + [(8, k) for k in SWEEP[:-1]]


def test_draws_are_the_papers():
    how = {"nce": "replacement", "is": "replacement", "mode1": "replacement", "mode2": "excluding", "mode3": "distinct"}
    for item in ("table2", "figure1", "table3", "table4", "table5"):
        for row in rows(item, SMALL):
            assert row.sampler == how.get(row.criterion)
            assert row.noise == ("log_uniform" if row.sampler else None)
            assert row.sharing == ("position" if row.criterion == "mode2" else None)
            if row.trained:
                table = recipe(row, SMALL)
                assert table.batches.options == {"sequences": 64 if item in ("table4", "table5") else 32}
                by_rows = row.criterion in ("nce", "is", "mode1", "mode3") or item == "table4"
                assert bool(table.model.options.get("sparse")) == by_rows


@pytest.mark.parametrize("name", SCALES)
def test_keys_are_unique(name):
    keys = [row.key for row in rows("all", SCALES[name])]
    assert len(set(keys)) == len(keys)


def test_the_same_training_is_shared_and_no_other():
    first = {row.key: row for row in rows("all", SMALL)}
    by_run = {}
    for row in first.values():
        if row.trained:
            by_run.setdefault(run_name(row, SMALL), []).append(row)
    keys = {tuple(sorted(row.item for row in found)) for found in by_run.values()}
    assert ("table2", "table3") in keys  # Mode3, K = 8000
    assert ("beyond", "figure1") in keys  # Mode3, K = 1000
    for found in by_run.values():
        assert (
            len({(row.criterion, row.k, row.groups, row.sampler, row.noise, row.seed, row.large) for row in found}) == 1
        )
        assert len({row.task for row in found}) == 1


def test_importance_comes_first_and_further_seeds_last():
    found = rows("all", SMALL)
    seeds = [row.seed for row in found]
    assert seeds == sorted(seeds)
    items = list(dict.fromkeys(row.item for row in found if row.seed == 1))
    assert items == list(ORDER)
    again = [row for row in found if row.seed == 2]
    assert {row.item for row in again} == {"table2", "table3", "figure1", "beyond"}
    trained = {row.key for row in rows("table3", SMALL) if row.trained}
    assert {row.key for row in again if row.item == "table3"} < trained
    assert len({run_name(row, SMALL) for row in again}) == 12
    runs = {run_name(row, SMALL) for row in found if row.trained and row.seed == 1}
    assert not runs & {run_name(row, SMALL) for row in again}
    assert all(row.seed == 1 for row in rows("all", SCALES["tiny"]))


def test_an_unknown_item_is_a_sentence():
    with pytest.raises(ValueError, match="there is no item 'table6'; did you mean 'table"):
        rows("table6", SMALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A vocabulary as large as that of `tiny`."""
    to = tmp_path_factory.mktemp("plan")
    text = to / "text.txt"
    text.write_text("".join(f"w{n} w{n // 2} w{n // 4}\n" for n in range(3100)))
    prepare([text], to / "data" / "built-in", 3000)
    return to


def test_every_recipe_of_tiny_can_be_built(folder):
    scale = SCALES["tiny"]
    names = set()
    for row in rows("all", scale):
        if row.trained and run_name(row, scale) not in names:
            names.add(run_name(row, scale))
            made = recipe(row, scale)
            (folder / "recipe.toml").write_text(to_toml(made))
            assert load(folder / "recipe.toml") == made
            assert build(made, folder).total == made.training.options["steps"]
    assert len(names) == 51
