import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "training"), str(TESTS / "ngrams")]  # faults, trials, slow_ngram
torch.set_num_threads(1)  # the same sums in this process and in its forked children


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    from trials import make_data

    return make_data(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="session")
def run(data, tmp_path_factory):
    """A trained run."""
    from trials import recipe

    from selfnorm.training import train

    folder = tmp_path_factory.mktemp("runs") / "mode3"
    train(recipe(data, "mode3", steps=20), folder)
    return folder
