import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "training")]  # faults, trials
torch.set_num_threads(1)  # the same sums in this process and in its forked children


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    from trials import make_data

    return make_data(tmp_path_factory.mktemp("text"))
