import gzip
import json
import random
import time
from pathlib import Path

import numpy as np
import pytest

from selfnorm.lattices import htk
from selfnorm.lattices.lattice import SILENT, Lattice, assemble
from selfnorm.lattices.nbest import Hypothesis, NBest
from selfnorm.lattices.oracle import oracle, oracle_nbest
from selfnorm.lattices.transcripts import read
from selfnorm.vocabulary import END
from selfnorm.wer import Errors, count

DATA = Path(__file__).parents[3] / "shared" / "data" / "asr"
shared = pytest.mark.skipif(not DATA.is_dir(), reason="the shared recordings' lattices are not beside the repository")


def random_lattice(generator):
    nodes = generator.randint(1, 6)
    arcs = [(node, node + 1, generator.choice(["a", "b", SILENT])) for node in range(nodes - 1)]
    for _ in range(generator.randint(0, 8) if nodes > 1 else 0):
        source = generator.randrange(nodes - 1)
        arcs.append((source, generator.randint(source + 1, nodes - 1), generator.choice(["a", "b", "c", SILENT, END])))
    columns = tuple(zip(*arcs)) or ((), (), ())
    zero = np.zeros(len(arcs))
    return assemble(
        "u", nodes=nodes, start=0, end=nodes - 1, sources=columns[0], targets=columns[1], words=columns[2],
        acoustic=zero, lm=zero,
    )  # fmt: skip


def all_paths(lattice):
    def behind(node):
        if node == lattice.nodes - 1:
            yield ()
        for arc in range(lattice.first_arcs[node], lattice.first_arcs[node + 1]):
            for rest in behind(int(lattice.targets[arc])):
                yield arc, *rest

    return behind(0)


def words_of(lattice, arcs):
    return tuple(lattice.words[arc] for arc in arcs if lattice.words[arc] not in (SILENT, END))


def test_no_path_is_nearer():
    generator = random.Random(1)
    for _ in range(500):
        lattice = random_lattice(generator)
        reference = generator.choices("abcd", k=generator.randint(0, 6))
        found = oracle(lattice, reference)
        paths = list(all_paths(lattice))
        assert found.arcs in paths
        assert found.words == words_of(lattice, found.arcs)
        assert found.errors == count(reference, found.words)
        totals = [count(reference, words_of(lattice, path)) for path in paths]
        assert (found.errors.total, found.errors.substitutions) == min((t.total, t.substitutions) for t in totals)


def test_a_path_that_is_the_reference_is_found_in_silence():
    lattice = assemble(
        "u", nodes=5, start=0, end=4, sources=[0, 1, 1, 2, 3, 3], targets=[1, 2, 2, 3, 4, 4],
        words=[SILENT, "the", "a", SILENT, "cat", "dog"], acoustic=np.zeros(6), lm=np.zeros(6),
    )  # fmt: skip
    found = oracle(lattice, ["a", "dog"])
    assert found.errors == Errors(words=2, utterances=1)
    assert [lattice.words[arc] for arc in found.arcs] == [SILENT, "a", SILENT, "dog"]


def test_the_nearest_of_a_list_is_the_first_of_several():
    hypotheses = [Hypothesis(tuple(text.split()), 0.0) for text in ("a x y", "a b x", "a b", "")]
    found = oracle_nbest(NBest("u", tuple(hypotheses)), ["a", "b", "c"])
    assert found == Errors(substitutions=1, words=3, utterances=1, wrong=1)


def wide(nodes, arcs, span, seed=0):
    generator = np.random.default_rng(seed)
    source = np.sort(np.concatenate((np.arange(nodes - 1), generator.integers(0, nodes - 1, arcs - nodes + 1))))
    target = np.minimum(source + generator.integers(1, span, arcs), nodes - 1)
    target[np.flatnonzero(np.diff(source, prepend=-1))] = np.arange(1, nodes)
    order = np.lexsort((target, source))
    words = np.array([f"w{number}" for number in range(2000)], object)[generator.integers(0, 2000, arcs)]
    return Lattice("u", source[order], target[order], tuple(words), np.zeros(arcs), np.zeros(arcs))


def test_many_arcs_are_done_in_blocks():
    lattice = wide(2000, 200_000, 300)
    path = []
    while not path or lattice.targets[path[-1]] < lattice.nodes - 1:  # always the longest arc
        path.append(int(lattice.first_arcs[lattice.targets[path[-1]] + 1 if path else 1]) - 1)
    reference = [lattice.words[arc] for arc in path]
    reference[1:3] = ["x"]
    begin = time.process_time()
    found = oracle(lattice, reference)
    assert time.process_time() - begin < 10
    assert found.errors.total <= 2
    arcs = list(found.arcs)
    assert [*lattice.sources[arcs], lattice.nodes - 1] == [0, *lattice.targets[arcs]]


def test_a_node_with_more_arcs_than_a_block_holds():
    lattice = wide(2, 200_000, 2)
    assert oracle(lattice, ["x", "w7", "y"]).words == ("w7",)


def test_too_many_places_are_refused():
    with pytest.raises(ValueError, match=r"utterance u: 2,000 nodes and a reference of 99,999 words .* prune"):
        oracle(wide(2000, 3000, 3), ["a"] * 99_999)


@shared
@pytest.mark.parametrize(
    ("part", "wanted"), [("ljspeech", 12.1), ("libri", 20.4)]
)  # all: 18.2, which takes long to read
def test_lattices_have_the_oracle_they_were_made_with(part, wanted):
    references = read(DATA / "ps-lattices" / "refs.txt")
    names = [name for name in references if name.startswith(part)]
    found = [oracle(htk.read(DATA / "ps-lattices" / "slf" / f"{name}.slf.gz"), references[name]) for name in names]
    assert 100 * sum((each.errors for each in found), Errors()).rate == pytest.approx(wanted, abs=0.05)


@shared
@pytest.mark.parametrize(("name", "wanted"), [("ps-lattices", 25.9), ("moonshine-nbest", 10.1)])
def test_lists_have_the_oracle_they_were_made_with(name, wanted):
    errors = []
    with gzip.open(DATA / name / "nbest.jsonl.gz", "rt", encoding="utf-8") as lines:
        for entry in map(json.loads, lines):
            hypotheses = tuple(Hypothesis(tuple(each["text"].split()), each["am"]) for each in entry["hyps"])
            errors.append(oracle_nbest(NBest(entry["utt"], hypotheses), entry["ref"].split()))
    assert 100 * sum(errors, Errors()).rate == pytest.approx(wanted, abs=0.05)
