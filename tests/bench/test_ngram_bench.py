"""The benchmark of `selfnorm ngram` runs the command as it is."""

import runpy
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_it_measures_the_command(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    compare = runpy.run_path(str(BENCHMARKS / "ngram.py"))["compare"]
    text = tmp_path / "text.txt"
    text.write_text("a rose is a rose\nis a rose\n" * 20)
    ours, *lmplzs = compare(text, order=2, repeat=1, memory="1G")
    assert (ours["way"], ours["words"], ours["order"]) == ("selfnorm", 160, 2)
    assert ours["words_per_second"] > 0
    assert all(float(row["difference"]) < 1e-4 for row in lmplzs)
