"""`prepare` by several processes: the same bytes as by one, however they are cut, killed and started again."""

import bz2
import gzip
import json
import os
import random
import resource
import signal
import time
from contextlib import suppress
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import pytest
from faults import kill_midway
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from selfnorm import claims
from selfnorm.claims import claimed
from selfnorm.cli import app
from selfnorm.corpus import shared
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.shared import prepare_shared
from selfnorm.corpus.sharing import Busy
from selfnorm.corpus.text import blocks, cuts

FORK = get_context("fork")
SMALL = {"shard": 4000, "block": 700, "types": 150}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> dict[str, object]:
    """A large text, one with every oddity, packed ones, and words that are kept."""
    folder = tmp_path_factory.mktemp("texts")
    rng = random.Random(3)

    def lines(count: int) -> bytes:
        words = [f"w{int(rng.paretovariate(0.7))}" for _ in range(count)]
        return " ".join(word + "\n" * (rng.random() < 0.15) for word in words).encode()

    (folder / "large").write_bytes(lines(8000))
    (folder / "odd").write_bytes(b"\xef\xbb\xbf\r\n a b\r\n\n\n" + lines(1500).replace(b"\n", b"\n \n") + b"no end")
    (folder / "long").write_bytes(b"a line of " + b"many words " * 2000 + b"\n" + lines(100))
    (folder / "packed.gz").write_bytes(gzip.compress(lines(2000)))
    (folder / "packed.bz2").write_bytes(bz2.compress(lines(1000)))
    names = ("large", "odd", "long", "packed.gz", "packed.bz2")
    return {
        "texts": [folder / name for name in names],
        "valid": folder / "odd",
        "test": folder / "packed.gz",
        "size": 200,
    }


@pytest.fixture(scope="module", params=[False, True], ids=["", "keep_empty"])
def wanted(request, texts, tmp_path_factory):
    to = tmp_path_factory.mktemp("wanted") / "data"
    prepare(**texts, to=to, keep_empty=request.param)
    return texts | {"keep_empty": request.param}, contents(to)


def begun(options, to: Path, **more: object):
    """One more process on the same work."""
    process = FORK.Process(target=prepare_shared, kwargs=SMALL | options | {"to": to} | more, daemon=True)
    process.start()
    return process


def test_four_processes_make_what_one_makes(wanted, tmp_path):
    options, whole = wanted
    processes = [begun(options, tmp_path / "data") for _ in range(4)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert contents(tmp_path / "data") == whole
    assert sorted(os.listdir(tmp_path)) == ["data", "data.shared"]
    assert sorted(os.listdir(tmp_path / "data.shared")) == ["begun", "claims", "done"]


def test_killed_at_random_and_begun_again(wanted, tmp_path):
    options, whole = wanted
    rng = random.Random(5)
    kills = 0

    def done() -> int:
        return len(list(tmp_path.glob("data.shared/shard-*")))

    for _ in range(12):
        goal = done() + rng.randint(0, 2)
        processes = [begun(options, tmp_path / "data", shard=1500) for _ in range(2)]
        kills += kill_midway(processes, done, goal, rng.uniform(0, 0.01))
        if (tmp_path / "data").exists():
            assert contents(tmp_path / "data") == whole
    assert kills  # most of them; a fast machine is done before some
    last = begun(options, tmp_path / "data", shard=1500)
    last.join()
    assert last.exitcode == 0
    assert contents(tmp_path / "data") == whole
    assert list(tmp_path.rglob("*.tmp")) == []


def elsewhere(machine: str, options, to: Path) -> None:
    """As on another machine, whose processes nobody here can ask for."""
    claims.here = lambda: machine
    prepare_shared(**SMALL, **options, to=to, stale=0.3)


def test_a_machine_that_died_is_followed_when_its_claims_are_old(texts, tmp_path):
    prepare(**texts, to=tmp_path / "one")
    first = FORK.Process(target=elsewhere, args=("one", texts, tmp_path / "data"))
    first.start()
    while not list(tmp_path.glob("data.shared/.shard-*/*.numbers")):
        time.sleep(0.001)
    first.kill()
    first.join()
    others = [FORK.Process(target=elsewhere, args=(name, texts, tmp_path / "data")) for name in ("two", "three")]
    for process in others:
        process.start()
    for process in others:
        process.join()
        assert process.exitcode == 0
    assert contents(tmp_path / "data") == contents(tmp_path / "one")


def test_one_that_sleeps_while_others_end_changes_nothing(texts, tmp_path):
    prepare(**texts, to=tmp_path / "one")
    for number in range(20):  # until it is caught at work
        to = tmp_path / f"{number}-data"
        sleeper = begun(texts, to, stale=0.2)
        while sleeper.is_alive() and not list(tmp_path.glob(f"{to.name}.shared/.shard-*/*.numbers")):
            time.sleep(0.001)
        with suppress(ProcessLookupError):
            os.kill(sleeper.pid, signal.SIGSTOP)
        if sleeper.is_alive():
            break
    prepare_shared(**SMALL, **texts, to=to, stale=0.2)
    assert contents(to) == contents(tmp_path / "one")
    os.kill(sleeper.pid, signal.SIGCONT)
    sleeper.join()
    assert sleeper.exitcode == 0
    assert contents(to) == contents(tmp_path / "one")


@settings(max_examples=80)
@given(content=st.text("ab \n\r\ufeffä", max_size=60), size=st.integers(1, 20), block=st.integers(1, 9))
def test_pieces_are_whole_lines_and_lose_nothing(tmp_path_factory, content, size, block):
    path = tmp_path_factory.mktemp("cut") / "text"
    path.write_bytes(content.encode())
    pieces = cuts(path, size)
    raw = path.read_bytes()
    assert pieces[0][0] == 0
    assert pieces[-1][1] is None
    for (_, end), (begin, _) in pairwise(pieces):
        assert end == begin
        assert raw[begin - 1 : begin] == b"\n"
    whole = b"".join(each.data for each in blocks(path, block))
    assert b"".join(each.data for piece in pieces for each in blocks(path, block, *piece)) == whole


def test_who_comes_late_says_the_same(texts, tmp_path):
    first = prepare_shared(**SMALL, **texts, to=tmp_path / "data")
    assert prepare_shared(**SMALL, **texts, to=tmp_path / "data", progress=lambda *_: pytest.fail("worked")) == first
    alone = prepare(**texts, to=tmp_path / "alone")
    assert first.texts == alone.texts
    assert (first.size, first.types, first.most_frequent) == (alone.size, alone.types, alone.most_frequent)


def test_others_arguments_are_refused(texts, tmp_path):
    prepare_shared(**SMALL, **texts, to=tmp_path / "data")
    with pytest.raises(
        ValueError, match=r"data\.shared: was begun with size 200, and this command has 100; give the same"
    ):
        prepare_shared(**SMALL, **texts | {"size": 100}, to=tmp_path / "data")
    with pytest.raises(ValueError, match=r"begun with text 5 files, "):
        prepare_shared(**SMALL, **texts | {"texts": texts["texts"][:2]}, to=tmp_path / "data")
    prepare(texts["texts"][:1], tmp_path / "data")
    with pytest.raises(ValueError, match=r"data: is not what .*data\.shared says was made; remove that folder"):
        prepare_shared(**SMALL, **texts, to=tmp_path / "data")


def test_a_bad_text_is_one_sentence_with_its_place_in_the_file(tmp_path):
    (tmp_path / "bad").write_bytes(b"good words\n" * 1000 + b"b\xffd\n" + b"good words\n" * 1000)
    for call in (prepare, prepare_shared):
        with pytest.raises(ValueError, match=r"bad:1001: byte 11001 \(0xff\) is not UTF-8"):
            call([tmp_path / "bad"], tmp_path / call.__name__, **SMALL if call is prepare_shared else {})


def test_a_full_disk_leaves_no_half_piece(texts, tmp_path):
    def small(folder):
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
        try:
            prepare_shared(**SMALL, **texts, to=folder / "data")
        except OSError as error:
            (folder / "said").write_text(str(error))

    process = FORK.Process(target=small, args=(tmp_path,))
    process.start()
    process.join()
    assert "cannot be written: File too large; mend this and go on" in (tmp_path / "said").read_text()
    left = sorted(path.name for path in (tmp_path / "data.shared").iterdir())
    assert left == ["begun", "claims"]
    prepare(**texts, to=tmp_path / "one")
    prepare_shared(**SMALL, **texts, to=tmp_path / "data")
    assert contents(tmp_path / "data") == contents(tmp_path / "one")


def test_a_damaged_piece_is_refused(texts, tmp_path, monkeypatch):
    monkeypatch.setattr(shared._Job, "merge", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prepare_shared(**SMALL, **texts, to=tmp_path / "data")
    monkeypatch.undo()
    numbers = tmp_path / "data.shared" / "shard-000001" / "0.numbers"
    content = bytearray(numbers.read_bytes())
    content[5] ^= 1
    numbers.write_bytes(content)
    with pytest.raises(ValueError, match=r"shard-000001/0\.numbers: its SHA-256 is not the one"):
        prepare_shared(**SMALL, **texts, to=tmp_path / "data")
    numbers.write_bytes(content[:-1])  # cut: not whole, so done again
    prepare_shared(**SMALL, **texts, to=tmp_path / "data")


def test_the_verb(texts, tmp_path):
    def verb(*more: object):
        return CliRunner().invoke(
            app, ["prepare", str(texts["texts"][0]), "--to", str(tmp_path / "data"), *map(str, more)]
        )

    found = verb("--shared", "--json")
    assert found.exit_code == 0
    assert verb("--shared", "--no-wait", "--json").stdout == found.stdout
    assert json.loads(found.stdout)["texts"][0]["sentences"] > 100
    assert isinstance(verb("--no-wait").exception, ValueError)


def test_who_does_not_wait_ends_well(texts, tmp_path):
    with claimed(tmp_path / "data.shared" / "claims", "shard-000000"):
        with pytest.raises(Busy, match=r"data\.shared: others are at work on all that is left"):
            prepare_shared([texts["texts"][0]], tmp_path / "data", wait=False)
        found = CliRunner().invoke(
            app, ["prepare", str(texts["texts"][0]), "--to", str(tmp_path / "data"), "--shared", "--no-wait"]
        )
    assert (found.exit_code, found.stdout) == (0, "")
    assert "others are at work" in found.stderr
