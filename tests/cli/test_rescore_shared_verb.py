"""`selfnorm rescore --shared` as a user meets it: several commands on one folder, and all say the same."""

import gzip
import json
import random
import shutil
import time

import pytest
from slow_ngram import random_model, render
from spoken import LATTICE
from trials import call, start

from selfnorm.claims import claimed


@pytest.fixture
def arguments(tmp_path):
    folder = tmp_path / "slf"
    folder.mkdir()
    for n in range(40):
        (folder / f"{n:02}.slf").write_text(LATTICE.format(n % 9, n % 8, n % 7, n % 5, name=f"anna_{n}"))
    (tmp_path / "refs.txt").write_text("".join(f"anna_{n} w{n % 8} w{n % 5}\n" for n in range(40)))
    (tmp_path / "lm.arpa").write_text(render(random_model(random.Random(1), 2, 9, 0.6)))
    given = ["rescore", folder, "--ngram", tmp_path / "lm.arpa", "--references", tmp_path / "refs.txt"]
    return [*given, "--together", "24", "--nbest", "2"]


def told(out):
    return {name: value for name, value in json.loads(out).items() if name != "seconds"}


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_all_say_and_write_what_one_does(arguments, tmp_path):
    status, alone, _ = call(tmp_path / "said", *arguments, "--to", tmp_path / "one", "--json")
    assert status == 0
    shared = [*arguments, "--to", tmp_path / "out", "--shared", "--json"]
    children = [start(tmp_path / f"said-{n}", *shared) for n in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert len({child.out for child in children}) == 1  # seconds too
    assert told(children[0].out) == told(alone)
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    status, late, err = call(tmp_path / "said", *shared)
    assert (status, late, err) == (0, children[0].out, "")
    table = call(tmp_path / "said", *arguments, "--to", tmp_path / "out", "--shared", "--no-wait")[1]
    assert table.splitlines()[:-1] == call(tmp_path / "said", *arguments, "--to", tmp_path / "one")[1].splitlines()[:-1]


def test_broken_files_are_told_by_all_and_strict_stops_at_the_first(arguments, tmp_path):
    (tmp_path / "slf" / "05-bad.slf").write_text("N=1")
    shared = [*arguments, "--to", tmp_path / "out", "--shared", "--json"]
    for _ in range(2):
        status, out, err = call(tmp_path / "said", *shared)
        assert (status, json.loads(out)["failed"]) == (1, 1)
        assert "05-bad.slf" in err
    status, _, err = call(tmp_path / "said", *arguments, "--to", tmp_path / "strict", "--shared", "--strict")
    assert status == 2
    assert err.startswith("selfnorm: ")
    assert "05-bad.slf" in err


def test_another_command_in_the_same_folder_is_refused(arguments, tmp_path):
    shared = [*arguments, "--to", tmp_path / "out", "--shared"]
    assert call(tmp_path / "said", *shared)[0] == 0

    def refused(*command):
        status, out, err = call(tmp_path / "said", *command)
        assert (status, out) == (2, "")
        assert len(err.splitlines()) == 1
        return err

    assert "was begun with lm-scale null, and this command has 3.0; give the same, or remove" in refused(
        *shared, "--lm-scale", "3"
    )
    (tmp_path / "lm.arpa").write_text(render(random_model(random.Random(2), 2, 9, 0.6)))
    assert "was begun with ngram sha256 " in refused(*shared)
    (tmp_path / "slf" / "00.slf").unlink()
    assert "was begun with lattices 40 files, " in refused(*shared)
    assert "--carry-over works on the speakers of all" in refused(*shared, "--carry-over")
    assert "give --shared too" in refused(*arguments, "--to", tmp_path / "other", "--no-wait")


def test_the_model_is_known_by_its_content(arguments, run, tmp_path):
    shared = [*arguments, "--to", tmp_path / "out", "--shared", "--json"]
    status, out, _ = call(tmp_path / "said", *shared, "--model", run)
    assert status == 0
    shutil.copytree(run, tmp_path / "copy")
    assert call(tmp_path / "said", *shared, "--model", tmp_path / "copy")[:2] == (0, out)
    status, _, err = call(tmp_path / "said", *shared)
    assert status == 2
    assert "was begun with model sha256 " in err


def test_who_does_not_wait_ends_well(arguments, tmp_path):
    with claimed(tmp_path / "out" / "shared" / "claims", "part-000000"):
        command = [*arguments, "--to", tmp_path / "out", "--shared", "--no-wait"]
        status, out, err = call(tmp_path / "said", *command)
    assert (status, out) == (0, "")
    assert "out/shared: others are at work on all that is left" in err
    assert len(list((tmp_path / "out" / "shared").glob("part-*"))) == 9  # but did what was free


def test_who_does_not_wait_waits_for_what_comes_before_his_work(arguments, tmp_path):
    command = [*arguments, "--to", tmp_path / "out", "--shared", "--no-wait"]
    with claimed(tmp_path / "out" / "shared" / "claims", "look-000000"):
        child = start(tmp_path / "said", *command)
        while not (tmp_path / "out" / "shared" / "look-000001").exists():
            time.sleep(0.01)
        time.sleep(0.2)
    assert child.wait() == 0
    assert (tmp_path / "out" / "hypotheses.txt").exists()


def test_kaldi_lattices(tmp_path):
    (tmp_path / "words.txt").write_text("<eps> 0\nw0 1\nw1 2\n</s> 3\n")
    text = "".join(f"k_{n}\n0 1 1 1,2,\n0 1 2 2,{n % 4},\n1 0.5,0,\n\n" for n in range(30))
    (tmp_path / "lat.1.gz").write_bytes(gzip.compress(text.encode()))
    command = ["rescore", tmp_path / "lat.1.gz", "--words", tmp_path / "words.txt", "--output", "expanded"]
    command += ["--together", "7", "--to"]
    status, _, err = call(tmp_path / "said", *command, tmp_path / "one")
    assert call(tmp_path / "said", *command, tmp_path / "out", "--shared")[::2] == (status, err) == (0, err)
    assert "k_0: Kaldi's lattices do not say their LM scale" in err
    assert contents(tmp_path / "out") == contents(tmp_path / "one")
    (tmp_path / "refs").write_text("".join(f"k_{n} w1\n" for n in range(30)))
    tuning = ["--cross-validate", "3", "--references", tmp_path / "refs"]
    found = [call(tmp_path / "said", *command, tmp_path / "tuned", *tuning, *more) for more in ([], ["--shared"])]
    assert found[0] == found[1]
    assert "for the search before tuning" in found[0][2]
