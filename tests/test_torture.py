"""The machinery of `make torture`: what goes wrong is counted and kept, and the short items run here."""

import json
import random
import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import torture
import torture_files
import torture_limits
import torture_oracles
from torture_trial import Trial, of_cases, of_tests, refused


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """The results go to a file of this test."""
    monkeypatch.setattr(torture, "RESULTS", tmp_path / "results" / "reliability.json")
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


@pytest.fixture
def planted(monkeypatch):
    """An item whose every third trial fails, with the file that it read."""

    def trials(folder, chance):
        for number in range(1, 1000):
            bad = number % 3 == 0
            yield Trial("odd" if number % 2 else "even", ["a fault"] if bad else [], content=b"%d" % chance.random())

    monkeypatch.setitem(torture.ITEMS, "R1", torture.Entry(2, 8, trials))


def run(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["torture.py", *options])
    with pytest.raises(SystemExit) as end:
        torture.main()
    return end.value.code


def test_a_planted_fault_is_counted_and_its_input_kept(kept, planted, monkeypatch, capsys):
    assert run(monkeypatch, "--only", "R1", "--seed", "5", "--count", "7") == 1
    (row,) = json.loads((kept / "reliability.json").read_text())
    assert (row["N"], row["failures"], row["kinds"], row["seeds"]) == (7, 2, {"odd": 4, "even": 3}, [5])
    assert [(each["seed"], each["trial"]) for each in row["failed"]] == [(5, 3), (5, 6)]
    assert (kept / row["failed"][0]["input"]).read_bytes() == b"0"
    assert "R1, trial 3 of seed 5, odd : a fault" in capsys.readouterr().out


def test_more_adds_with_the_next_seed_up_to_the_count(kept, planted, monkeypatch):
    run(monkeypatch, "--only", "R1", "--seed", "5", "--count", "2")
    assert run(monkeypatch, "--only", "R1", "--more") == 1
    (row,) = json.loads((kept / "reliability.json").read_text())
    assert (row["N"], row["failures"], row["seeds"]) == (8, 2, [5, 6])
    assert run(monkeypatch, "--only", "R1", "--more") == 0  # nothing is missing
    assert json.loads((kept / "reliability.json").read_text()) == [row]


def test_the_short_tier_writes_nothing(kept, planted, monkeypatch):
    assert run(monkeypatch, "--only", "R1", "--short") == 0
    assert list(kept.iterdir()) == []


def saying(sentence):
    raise ValueError(sentence)


def test_what_a_case_raises_is_its_fault(tmp_path):
    def wrong(folder):
        raise KeyError(folder.name)

    good, bad = of_cases("kind", tmp_path, {"good": lambda folder: None, "bad": wrong})
    assert (good.case, good.faults) == ("good", ())
    assert (bad.case, bad.faults) == ("bad", ["KeyError: '001'"])
    with pytest.raises(AssertionError, match="nothing was refused"):
        refused(lambda: None)
    with pytest.raises(AssertionError, match="is not in: no"):
        refused(lambda: saying("no"), "yes")
    with pytest.raises(AssertionError, match="more than one line"):
        refused(lambda: saying("a\nb"))


def test_tests_are_trials_those_that_fail_too(tmp_path):
    path = tmp_path / "test_three.py"
    text = "import pytest\ndef test_good(): pass\ndef test_bad(): assert 1 == 2\n"
    path.write_text(text + "@pytest.mark.skip\ndef test_no(): pass\n")
    good, bad = of_tests("tests", str(path))
    assert (good.faults, len(bad.faults)) == ([], 1)
    assert "1 == 2" in bad.faults[0]
    (none,) = of_tests("tests", str(path), chosen="nothing")
    assert "no test ran" in none.faults[0]


class Wrong:
    """Readers that do what none may."""

    @staticmethod
    def breaks(path):
        raise KeyError("x")

    @staticmethod
    def says_nothing(path):
        raise ValueError("somewhere, something")

    @staticmethod
    def scores(path):
        return [1.0, float("nan")]

    @staticmethod
    def hangs(path):
        begin = time.process_time()
        while time.process_time() - begin < 3:
            pass
        return []

    @staticmethod
    def hoards(path):
        return [float(sum(b"x" * (200 << 20)) > 0)]


FAULTS = {
    "breaks": "KeyError: 'x'",
    "says_nothing": "no sentence about the file: ValueError: somewhere",
    "scores": "ArithmeticError: a score is NaN",
    "hangs": "took over 0 s",
    "hoards": "took ",
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_reader_that_does_what_none_may_is_found(tmp_path, monkeypatch, name):
    if name == "hangs":
        monkeypatch.setattr(torture_files, "SECONDS", 0.2)
    parser = torture_files.Parser(tmp_path / "x", b"", getattr(Wrong, name))
    (fault,) = torture_files.faults_of(parser, b"content", 64 << 20)
    assert fault.startswith(FAULTS[name])


def test_files_damaged_at_random_are_read_or_refused(tmp_path):
    """R6: 20 of each parser; `make torture` has 5,000."""
    trials = torture_files.flipped(tmp_path, random.Random(6))
    kinds = [next(trials) for _ in range(14 * 20)]
    assert [each.faults for each in kinds if each.faults] == []
    assert len({each.kind for each in kinds}) == 14


def test_a_reader_beyond_its_limits_is_found(tmp_path, monkeypatch):
    def hoards(path):
        return b"x" * (700 << 20)

    cases = {"hoards": ("x", lambda path: path.write_text("x"), hoards, False)}
    cases["leaves"] = ("x", lambda path: path.write_text("x"), lambda path: None, True)
    monkeypatch.setattr(torture_limits, "CASES", cases)
    (fault,) = torture_limits.faults_of(tmp_path / "1", "hoards")
    assert fault.startswith(("took 70", "took 699"))
    assert torture_limits.faults_of(tmp_path / "2", "leaves") == ["was not refused"]


QUICK = [name for name in torture_limits.CASES if not name.startswith(("HTK", "Kaldi"))]


@pytest.mark.parametrize("case", QUICK)
def test_files_without_end_are_refused(tmp_path, case):
    """R9, beside those of lattices/test_limits.py."""
    assert torture_limits.faults_of(tmp_path / "case", case) == []


def test_our_numbers_are_the_oracles(tmp_path):
    """R17: of each that is here, 20 at least."""
    trials = torture_oracles.agreement(tmp_path, random.Random(17))
    found = [next(trials) for _ in range(240)]
    assert [(each.case, each.faults) for each in found if each.faults] == []
    assert {"definition", "every path"} <= {each.kind for each in found}


def test_a_wrong_number_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(torture_oracles, "best", lambda lattice: type("Path", (), {"score": 1e9}))
    (trial,) = torture_oracles.by_every_path(tmp_path, random.Random(1))
    assert "the best path has 1000000000.0" in trial.faults[0]


@pytest.mark.parametrize("item", ["R10", "R12"])
def test_listed_cases_pass(tmp_path, item):
    """Without those that are tests by themselves."""
    trials = torture.ITEMS[item].run(tmp_path, random.Random(1))
    found = [next(trials) for _ in range(torture.ITEMS[item].short)]
    assert [(each.case, each.faults) for each in found if each.faults] == []
    assert len({each.case for each in found}) == len(found)
