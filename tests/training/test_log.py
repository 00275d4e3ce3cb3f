"""metrics.jsonl is cut back to a checkpoint, whole or not at all."""

import pytest
from faults import error_with_small_files

from selfnorm.training.log import cut

KEPT = b'{"step": 1, "loss": 3.25}\n{"step": 2, "loss": 3.5}\n'
LOOKED = b'{"step": 2, "evaluation": {}}\n'


@pytest.mark.parametrize("end", [b"", b'{"step": 4, "los', b'{"st\xff', b"\0" * 100, b"[" * 100_000])
def test_a_log_is_cut_back_to_a_step(tmp_path, end):
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(KEPT + LOOKED + b'{"step": 3, "loss": 1.0}\n' + end)
    cut(log, 2)
    assert log.read_bytes() == KEPT + LOOKED
    cut(log, 2, pending=True)  # what is measured again is written again
    assert log.read_bytes() == KEPT
    assert list(tmp_path.iterdir()) == [log]


def test_a_log_that_is_missing_or_whole_is_left_alone(tmp_path):
    log = tmp_path / "metrics.jsonl"
    cut(log, 5)
    assert not log.exists()
    log.write_bytes(b'{"step": 5}\n')
    before = log.stat()
    cut(log, 5)
    assert log.stat().st_ino == before.st_ino


def test_a_log_is_cut_whole_or_not_at_all(tmp_path):
    log = tmp_path / "metrics.jsonl"
    lines = b"".join(b'{"step": %d}\n' % step for step in range(100_000))
    log.write_bytes(lines)
    error = error_with_small_files(500_000, lambda: cut(log, 90_000), tmp_path / "report")
    assert f"{log} cannot be written" in error
    assert log.read_bytes() == lines
