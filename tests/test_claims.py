"""Claims: one holder at a time, whoever dies or sleeps, and exactly one who takes over."""

import json
import os
import signal
import time
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import pytest

from selfnorm.claims import claimed, here, share

FORK = get_context("fork")


def forked(action, *arguments):
    process = FORK.Process(target=action, args=arguments, daemon=True)
    process.start()
    return process


def until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def hold(folder, name, beat=0.05):
    with claimed(folder, name, beat) as holder:
        assert holder is None
        (folder / "held").touch()
        time.sleep(60)


def write_claim(path, **changes):
    """A claim as another process would have made it."""
    about = {"host": "elsewhere", "place": "elsewhere-1", "process": 7, "started": "1"} | changes
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(about))


def test_a_claim_is_held_and_let_go(tmp_path):
    with claimed(tmp_path, "a") as first, claimed(tmp_path, "a") as second, claimed(tmp_path, "b") as other:
        assert (first, other) == (None, None)
        assert second.endswith(f", process {os.getpid()}")
    with claimed(tmp_path, "a") as again:
        assert again is None
    with pytest.raises(KeyError), claimed(tmp_path, "a"):
        raise KeyError
    with claimed(tmp_path, "a") as again:
        assert again is None


def test_a_killed_holder_is_followed_at_once_and_a_living_one_is_not(tmp_path):
    process = forked(hold, tmp_path, "a")
    until((tmp_path / "held").exists)
    with claimed(tmp_path, "a") as holder:
        assert holder.endswith(f", process {process.pid}")
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")  # not yet buried
    with claimed(tmp_path, "a") as holder:
        assert holder is None
    process.join()


def test_another_process_under_the_number_is_not_the_holder(tmp_path):
    write_claim(tmp_path / "a.0", place=here(), process=os.getpid(), started="1")
    with claimed(tmp_path, "a") as holder:
        assert holder is None


def test_a_stopped_holder_goes_stale_and_its_waking_up_takes_nothing_back(tmp_path):
    process = forked(hold, tmp_path, "a")
    until((tmp_path / "held").exists)
    time.sleep(1.2)
    with claimed(tmp_path, "a", stale=1.0) as holder:
        assert holder is not None  # it is touched
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(1.2)
    with claimed(tmp_path, "a", beat=0.05, stale=1.0) as holder:
        assert holder is None
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.2)
        with claimed(tmp_path, "a", stale=1.0) as other:
            assert other.endswith(f", process {os.getpid()}")
    process.kill()
    process.join()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"place": 1}'])
def test_a_claim_without_words_goes_by_its_time(tmp_path, content):
    (tmp_path / "a.0").write_text(content)
    with claimed(tmp_path, "a") as holder:
        assert holder == "somebody"
    os.utime(tmp_path / "a.0", (1, time.time() - 61))
    with claimed(tmp_path, "a") as holder:
        assert holder is None


def test_the_clock_is_the_file_system_s(tmp_path, monkeypatch):
    write_claim(tmp_path / "a.0")
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with claimed(tmp_path, "a") as holder:
        assert holder == "elsewhere, process 7"
    before = os.stat(tmp_path / "a.0").st_mtime - 61
    os.utime(tmp_path / "a.0", (before, before))
    with claimed(tmp_path, "a") as holder:
        assert holder is None


def take(folder, names, gate, won):
    for number, name in enumerate(names):
        with ExitStack() as stack:
            gate.wait()
            mine = stack.enter_context(claimed(folder, name)) is None
            won[number] += mine  # one slot for each process and claim: no lock needed
            gate.wait()  # held until all have tried


@pytest.mark.parametrize("takers", [2, 3])
def test_of_several_takers_of_a_dead_claim_one_wins(tmp_path, takers):
    names = [f"n{number}" for number in range(200)]
    for number, name in enumerate(names):
        write_claim(tmp_path / f"{name}.0", place=here(), process=2**30)  # nobody has this number
        if number % 2:  # another machine's, untouched for long
            write_claim(tmp_path / f"{name}.0")
            os.utime(tmp_path / f"{name}.0", (1, 1))
    gate = FORK.Barrier(takers)
    won = [FORK.Array("i", len(names), lock=False) for _ in range(takers)]
    processes = [forked(take, tmp_path, names, gate, each) for each in won]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert [sum(each) for each in zip(*won)] == [1] * len(names)
    assert all(any(each) for each in won)  # the race was one


def test_one_who_acts_late_on_what_he_saw_does_not_win(tmp_path, monkeypatch):
    """Between the look at a dead claim and the taking of it another takes it, and yet another would follow."""
    from selfnorm import claims

    write_claim(tmp_path / "a.0", place=here(), process=2**30)
    made = claims._made
    with ExitStack() as stack:

        def late(path):
            monkeypatch.setattr(claims, "_made", made)
            assert stack.enter_context(claimed(tmp_path, "a")) is None
            return made(path)

        monkeypatch.setattr(claims, "_made", late)
        with claimed(tmp_path, "a") as holder:
            assert holder == "somebody"


def test_a_file_system_without_links_will_do(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with claimed(tmp_path, "a") as first, claimed(tmp_path, "a") as second:
        assert first is None
        assert second.endswith(f", process {os.getpid()}")
    assert os.listdir(tmp_path) == ["a.0"]


def test_a_link_that_was_made_though_the_answer_says_no(tmp_path, monkeypatch):
    link = os.link

    def twice(*paths):
        link(*paths)
        link(*paths)

    monkeypatch.setattr(os, "link", twice)
    with claimed(tmp_path, "a") as holder:
        assert holder is None


def work(folder, names):
    def do(name):
        assert not (folder / f"{name}.busy").exists()
        (folder / f"{name}.busy").touch()
        time.sleep(0.005)
        (folder / f"{name}.busy").unlink()
        with (folder / f"{name}.done").open("a") as file:
            file.write(f"{os.getpid()}\n")

    assert share(folder / "claims", names, lambda name: (folder / f"{name}.done").exists(), do, lambda held: None)


def test_all_is_done_once_by_several(tmp_path):
    names = [f"n{number}" for number in range(60)]
    processes = [forked(work, tmp_path, names) for _ in range(4)]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    workers = [(tmp_path / f"{name}.done").read_text().split() for name in names]
    assert all(len(each) == 1 for each in workers)
    assert len({each[0] for each in workers}) > 1


def test_who_does_not_wait_does_what_is_free(tmp_path):
    done = set()
    with claimed(tmp_path, "a"):
        assert not share(tmp_path, ["a", "b"], done.__contains__, done.add, None)
        assert done == {"b"}
    assert share(tmp_path, ["a", "b"], done.__contains__, done.add, None)
    assert done == {"a", "b"}
