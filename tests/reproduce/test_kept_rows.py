"""rows.jsonl: whole lines, each with its sum; what is damaged is told and made again."""

import csv
import subprocess
import sys

import pytest

from selfnorm import files
from selfnorm.reproduce import rows


def row(key, **fields):
    return {"scale": "tiny", "key": key, "item": "table2", "label": key, **fields}


def test_rows_come_back_and_the_last_of_equals_counts(tmp_path):
    assert rows.read(tmp_path) == ([], [])
    for each in (row("a", perplexity=1.0), row("b", perplexity=float("nan")), row("a", perplexity=2.0)):
        rows.append(tmp_path, each)
    found, damaged = rows.read(tmp_path)
    assert found == [row("b", perplexity=None), row("a", perplexity=2.0)]
    assert damaged == []


def test_files_of_several_machines_are_joined_by_cat(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder, each in ((one, row("a")), (other, row("b"))):
        folder.mkdir()
        rows.append(folder, each)
    both = (one / rows.ROWS).read_bytes() + (other / rows.ROWS).read_bytes()
    (tmp_path / rows.ROWS).write_bytes(both)
    assert [each["key"] for each in rows.read(tmp_path)[0]] == ["a", "b"]


@pytest.mark.parametrize("damage", [lambda line: line[:-20], lambda line: line.replace(b"1.5", b"1.6"), lambda _: b"7"])
def test_a_damaged_line_is_told(tmp_path, damage):
    rows.append(tmp_path, row("a", perplexity=1.5))
    rows.append(tmp_path, row("b"))
    first, second = (tmp_path / rows.ROWS).read_bytes().splitlines()
    (tmp_path / rows.ROWS).write_bytes(damage(first) + b"\n" + second + b"\n")
    found, damaged = rows.read(tmp_path)
    assert [each["key"] for each in found] == ["b"]
    assert damaged == [f"{tmp_path / rows.ROWS}:1: the line is damaged; its row is made again"]


def test_the_table_beside_has_a_column_for_each_number(tmp_path):
    rows.append(tmp_path, row("a", wer={"lists": {"all": {"wer": 7.5, "interval": [5.0, 9.0]}}}))
    rows.append(tmp_path, row("b", perplexity=3.0))
    with (tmp_path / rows.TABLE).open() as file:
        first, second = csv.DictReader(file)
    assert (first["wer.lists.all.wer"], first["wer.lists.all.interval.1"], first["perplexity"]) == ("7.5", "9.0", "")
    assert second["perplexity"] == "3.0"


def test_one_process_at_a_time(tmp_path):
    code = f"""from pathlib import Path
from selfnorm.files import locked
from selfnorm.reproduce.rows import BUSY
locked(Path({str(tmp_path)!r}), BUSY).__enter__()"""
    with files.locked(tmp_path, rows.BUSY):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "rows are being made in it; wait, or choose another --to" in done.stderr
    with files.locked(tmp_path, rows.BUSY):
        pass
