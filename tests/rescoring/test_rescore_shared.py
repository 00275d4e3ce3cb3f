"""The second pass by several processes: the same bytes as by one, whoever does which part, is killed, or sleeps."""

import gzip
import json
import os
import random
import resource
import shutil
import signal
import time
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import torch
from faults import kill_midway
from small import WORDS, drawn, listed, neural, ngram

from selfnorm import lattices as formats
from selfnorm.lattices import htk, nbest
from selfnorm.lattices.paths import best, words_of
from selfnorm.rescoring import ALGORITHMS, NEURAL, NGRAM, Rescorer, Setting, grouped, parts
from selfnorm.rescoring.kept import load_lists, load_rescored, save_lists, save_rescored
from selfnorm.rescoring.plan import Reader, Row, planned
from selfnorm.rescoring.second_pass import Output, Tally, second_pass
from selfnorm.rescoring.shared import Ways, shared_pass
from selfnorm.rescoring.tuning import Lists, joined

FORK = get_context("fork")
torch.set_num_threads(1)  # the same sums in this process and in its forked children


def contents(folder: Path) -> dict[str, bytes]:
    """All that the second pass writes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: content for name, content in contents(folder).items() if not name.startswith("shared/")}


class Case:
    """Lattices and lists in files of every format, with broken and doubled ones, and scorers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "slf").mkdir()
        for seed in range(36):
            htk.write(drawn(seed), folder / "slf" / f"{seed:02}.slf")
        (folder / "slf" / "20-broken.slf").write_text("N=1")
        shutil.copy(folder / "slf" / "07.slf", folder / "slf" / "30-again.slf")
        with nbest.writer(folder / "lists.jsonl") as write:
            for seed in range(100, 110):
                write(listed(drawn(seed, end=False)))
        text = "".join(f"k_{n}\n0 1 w{n % 5} {n % 3},2,\n0 1 w1 2,3,\n1 0.5,0,\n\n" for n in range(8))
        (folder / "lat.1.gz").write_bytes(gzip.compress(text.encode()))
        self.paths = [folder / "slf", folder / "lists.jsonl", folder / "lat.1.gz"]
        scorers = {NEURAL: neural(), NGRAM: ngram(folder)}
        self.rescorer = Rescorer(scorers, Setting(lm_scale=1.5, weight=0.7, ngram_weight=0.3), arcs=60)
        self.said = {}
        for item in formats.read(self.paths):
            if isinstance(item, formats.Broken):
                continue
            first = item.hypotheses[0].words if isinstance(item, formats.NBest) else words_of(item, best(item).arcs)
            self.said[item.utterance] = tuple(word for word in first if word != "w2")

    def develop(self, tally: Tally):
        return tally.good(formats.read([self.folder / "slf"])), self.said

    def alone(self, to: Path, *, ways: Ways, kind: str | None):
        tally = Tally()
        return second_pass(
            tally.good(formats.read(self.paths)),
            self.rescorer,
            Output(to, kind, 3),
            references=ways.references,
            develop=ways.develop and ways.develop(Tally()),
            folds=ways.folds,
            risk=ways.risk,
        ), tally

    def together(self, to: Path, *, ways: Ways, kind: str | None = None, given: str = "", **more):
        read = more.pop("read", lambda path: formats.read([path]))
        return shared_pass(self.paths, read, self.rescorer, Output(to, kind, 3), ways, {"given": given}, **more)


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return Case(tmp_path_factory.mktemp("case"))


def begun(action, *arguments, **options):
    process = FORK.Process(target=action, args=arguments, kwargs=options, daemon=True)
    process.start()
    return process


def ended(processes):
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


WAYS = {
    "plain": (lambda case: Ways(), "expanded"),
    "risk": (lambda case: Ways(risk=True), "replaced"),
    "develop": (lambda case: Ways(develop=case.develop), None),
    "folds": (lambda case: Ways(references=case.said, folds=4), "replaced"),
}


@pytest.mark.parametrize("way", WAYS)
def test_four_processes_write_what_one_writes(case, tmp_path, way):
    make, kind = WAYS[way]
    options = {"ways": make(case), "kind": kind}
    outcome, tally = case.alone(tmp_path / "one", **options)
    codes = ended([begun(case.together, tmp_path / "four", **options) for _ in range(4)])
    assert codes == [0] * 4
    assert outputs(tmp_path / "four") == contents(tmp_path / "one")
    again, went, broken = case.together(tmp_path / "four", **options)  # late
    assert replace(again, seconds=0.0) == replace(outcome, seconds=0.0)
    assert (went.arcs, went.notes, went.note) == (tally.arcs, tally.notes, tally.note)
    assert went.failed == len(broken) == tally.failed * (2 if way == "develop" else 1) == (4 if way == "develop" else 2)
    assert any("random-7: a second utterance has this name" in sentence for sentence in broken)
    assert {path.name for path in (tmp_path / "four" / "shared").iterdir()} == {"begun", "claims", "done"}


def test_there_are_many_parts_and_they_are_the_groups_of_one_process(case):
    files = [file for path in case.paths for file, _ in formats.files(path)]
    rows = [[Row.of(item) for item in formats.read([path])] for path in files]
    plan = planned(rows, files, 60)
    assert len(plan.parts) > 10
    groups = list(grouped(Tally().good(formats.read(case.paths)), 60))
    assert [[place.utterance for place in part] for part in plan.parts] == [
        [item.utterance for item in group] for group in groups
    ]
    reader = Reader(files, lambda path: formats.read([path]))
    order = list(range(len(groups)))
    random.Random(1).shuffle(order)
    for number in order:  # on and back
        assert [item.utterance for item in reader.part(plan.parts[number])] == [
            item.utterance for item in groups[number]
        ]
    sentences = [item.sentence for item in formats.read(case.paths) if isinstance(item, formats.Broken)]
    assert plan.broken == sentences


def test_killed_at_random_and_begun_again(case, tmp_path):
    rng = random.Random(2)
    options = {"ways": Ways(references=case.said, folds=3), "kind": "replaced"}
    case.alone(tmp_path / "one", **options)
    kills, work = 0, tmp_path / "shared" / "shared"

    def done():
        return len(list(work.glob("[a-z]*-*")))

    for _ in range(8):
        goal = done() + rng.randint(0, 5)
        processes = [begun(case.together, tmp_path / "shared", **options) for _ in range(2)]
        kills += kill_midway(processes, done, goal, rng.uniform(0, 0.02))
    assert kills  # most of them; a fast machine is done before some
    assert ended([begun(case.together, tmp_path / "shared", **options)]) == [0]
    assert outputs(tmp_path / "shared") == contents(tmp_path / "one")


def test_killed_while_it_joins(case, tmp_path, monkeypatch):
    replaced = os.replace

    def killed(path, place):
        if place == tmp_path / "two" / "hypotheses.txt":  # some files are in their place, others are not
            os.kill(os.getpid(), signal.SIGKILL)
        replaced(path, place)

    options = {"ways": Ways(), "kind": "expanded"}
    case.alone(tmp_path / "one", **options)
    monkeypatch.setattr(parts.os, "replace", killed)
    assert ended([begun(case.together, tmp_path / "two", **options)]) == [-signal.SIGKILL]
    assert (tmp_path / "two" / "hypotheses.ctm").exists()
    assert not (tmp_path / "two" / "hypotheses.txt").exists()
    monkeypatch.undo()
    assert ended([begun(case.together, tmp_path / "two", **options)]) == [0]
    assert outputs(tmp_path / "two") == contents(tmp_path / "one")


def test_others_arguments_are_refused(case, tmp_path):
    case.together(tmp_path / "out", ways=Ways(), given="mine")
    with pytest.raises(
        ValueError, match=r"out/shared: was begun with given mine, and this command has yours; give the"
    ):
        case.together(tmp_path / "out", ways=Ways(), given="yours")
    (tmp_path / "out" / "scales.json").unlink()
    with pytest.raises(ValueError, match=r"scales\.json: is gone, though .*out/shared says it was written; remove"):
        case.together(tmp_path / "out", ways=Ways(), given="mine")


def test_a_full_disk_leaves_no_half_part(case, tmp_path):
    def small(limit):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            case.together(tmp_path / "out", ways=Ways(), kind="expanded")
        except OSError as error:
            (tmp_path / "said").write_text(str(error))

    assert ended([begun(small, 4000)]) == [0]
    said = (tmp_path / "said").read_text()
    assert "cannot be written: File too large; mend this and go on" in said
    assert "shared/" in said
    work = tmp_path / "out" / "shared"
    assert not list(work.glob(".*"))
    assert outputs(tmp_path / "out") == {}
    case.alone(tmp_path / "one", ways=Ways(), kind="expanded")
    case.together(tmp_path / "out", ways=Ways(), kind="expanded")
    assert outputs(tmp_path / "out") == contents(tmp_path / "one")


def test_what_is_wrong_is_the_same_sentence_for_all(case, tmp_path):
    said = dict(list(case.said.items())[:-1])
    for _ in range(2):
        with pytest.raises(ValueError, match="words are known, and 1 have no reference, k_7 the first"):
            case.together(tmp_path / "out", ways=Ways(references=said, folds=3))
    bad = partial(case.together, tmp_path / "other", ways=Ways())
    with pytest.raises(ValueError, match="no utterance to rescore"):
        bad(read=lambda path: iter([formats.Broken("a", "b")]))


def test_a_file_that_changes_is_refused(case, tmp_path):
    calls = []

    def read(path):
        calls.append(path)
        items = list(formats.read([path]))
        return iter(items[1:] if path.name == "lists.jsonl" and calls.count(path) > 1 else items)

    with pytest.raises(
        ValueError, match=r"lists\.jsonl: changed while it was rescored, random-100 is not where it was"
    ):
        case.together(tmp_path / "out", ways=Ways(), read=read)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, None])
def test_what_is_kept_between_steps_is_what_was_found(tmp_path, algorithm):
    items = [drawn(seed) for seed in range(10)] if algorithm != "nbest" else []
    items += [listed(drawn(seed, end=False)) for seed in range(20, 24)]
    scorers = {NEURAL: neural(), NGRAM: ngram(tmp_path)} if algorithm else {}
    rescorer = Rescorer(scorers, Setting(weight=0.5, ngram_weight=0.5), algorithm or "auto")
    found = list(rescorer.rescore(items))
    save_rescored(tmp_path / "r.npz", found)
    for one, (item, two) in zip(found, load_rescored(tmp_path / "r.npz", items), strict=True):
        assert item.utterance == one.lattice.utterance
        for name in ("lattice", "given"):
            _assert_same(getattr(one, name), getattr(two, name))
        np.testing.assert_array_equal(one.arcs, two.arcs)
        assert list(one.scores) == list(two.scores)
        for name, told in one.scores.items():
            np.testing.assert_array_equal(told, two.scores[name])
    said = {item.utterance: tuple(WORDS[:2]) for item in items}
    whole = Lists.of(found, said, rescorer.setting)
    parts = []
    for n, chosen in enumerate((found[:3], found[3:4], found[4:])):
        if chosen:
            save_lists(tmp_path / f"{n}.npz", Lists.of(chosen, said, rescorer.setting))
            parts.append(load_lists(tmp_path / f"{n}.npz"))
    both = joined(parts)
    for name in vars(whole):
        one, two = getattr(whole, name), getattr(both, name)
        if name == "scores":
            assert list(one) == list(two)
            for scorer in one:
                np.testing.assert_array_equal(one[scorer], two[scorer])
        elif not (name == "begin" and not scorers):  # which nobody asks for then
            np.testing.assert_array_equal(one, two)


def _assert_same(one, two):
    for name in vars(one):
        first, second = getattr(one, name), getattr(two, name)
        if isinstance(first, np.ndarray):
            np.testing.assert_array_equal(first, second)
        else:
            assert first == second, name


def test_waiting_says_for_whom(case, tmp_path, monkeypatch):
    from selfnorm.claims import claimed
    from selfnorm.corpus import sharing

    monkeypatch.setattr(sharing, "SOON", 0.0)
    said = []
    with claimed(tmp_path / "out" / "shared" / "claims", "part-000002"):
        process = begun(case.together, tmp_path / "out", ways=Ways(), tell=(tmp_path / "said").write_text)
        (tmp_path / "said").touch()
        while len(said) < 2:
            time.sleep(0.01)
            said = (tmp_path / "said").read_text().split("; ")
        assert process.is_alive()
    assert said[0].startswith("waiting for part-000002 (")
    assert said[0].endswith(f", process {os.getpid()})")
    assert said[1].endswith(" done")
    assert ended([process]) == [0]
    assert json.loads((tmp_path / "out" / "scales.json").read_text())["weight"] == 0.7
