"""The tables of README and docs are those of the measured rows."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parent.parent
tables = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))


def test_every_table_is_that_of_its_rows():
    for page in tables["pages"]():
        assert tables["renewed"](page.read_text()) == page.read_text(), f"{page.name}: run python benchmarks/tables.py"


def test_there_are_tables():
    found = [match["name"] for page in tables["pages"]() for match in tables["PLACE"].finditer(page.read_text())]
    assert {"training-ptb", "training-books", "output-layer-cpu"} <= set(found)


def test_the_last_row_wins():
    old, new = {"a": "1", "b": "2"}, {"a": "1", "b": "3"}
    assert tables["latest"]([old, new, {"a": "2", "b": "9"}], "a") == [new, {"a": "2", "b": "9"}]
