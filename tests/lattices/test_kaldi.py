"""Kaldi's archives as a whole: what is written is read again, in every form."""

import gzip
from dataclasses import replace

import numpy as np
import pytest
from kaldi_cases import differences, random_lattice, words_file

from selfnorm.lattices import kaldi
from selfnorm.lattices.lattice import SILENT, Scales, assemble
from selfnorm.vocabulary import END

FORMS = {"text": {}, "binary": {"binary": "true"}}


def again(folder, lattices, name="lat", words=None, **options):
    path = folder / name
    with kaldi.writer(path, words, **options) as write:
        for lattice in lattices:
            write(lattice)
    return list(kaldi.read(path, words=words))


@pytest.mark.parametrize("labels", [True, False], ids=["labels", "none"])
@pytest.mark.parametrize("compact", [True, False], ids=["compact", "lattice"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["lat.1", "lat.1.gz", "lat.1.bz2"])
def test_read_is_the_inverse_of_write(tmp_path, name, form, compact, labels):
    lattices = [random_lattice(seed, compact=compact, labels=labels) for seed in range(60)]
    lattices = [replace(each, header=each.header | FORMS[form]) for each in lattices]
    found = again(tmp_path, lattices, name, words_file(tmp_path))
    assert len(found) == len(lattices)
    for one, other in zip(lattices, found):
        assert differences(one, other) == []


def test_without_words_txt_the_words_themselves_are_written(tmp_path):
    lattices = [random_lattice(seed, words=[*random_lattice(0).words, "x", END]) for seed in range(20)]
    for one, other in zip(lattices, again(tmp_path, lattices), strict=True):
        assert differences(one, other) == []


def test_text_keeps_every_digit(tmp_path):
    lattice = random_lattice(3)
    lattice = replace(lattice, lm=lattice.lm / 3 - 1e-9, acoustic=lattice.acoustic * np.pi)
    (found,) = again(tmp_path, [lattice])
    assert differences(lattice, found) == []


def test_binary_rounds_to_32_bits(tmp_path):
    lattice = replace(random_lattice(3), header={"kind": "compact", "binary": "true"})
    lattice = replace(lattice, lm=lattice.lm / 3)
    (found,) = again(tmp_path, [lattice], words=words_file(tmp_path))
    assert differences(replace(lattice, lm=lattice.lm.astype(np.float32).astype(np.float64)), found) == []


def ending(*last, words=("a", "b"), extra=None):
    """Two arcs from the start, and arcs (source, word, lm) into the end."""
    return assemble(
        "u",
        nodes=4,
        start=0,
        end=3,
        sources=[0, 0, *(source for source, _, _ in last)],
        targets=[1, 2, *(3 for _ in last)],
        words=[*words, *(word for _, word, _ in last)],
        acoustic=[-1.0] * (2 + len(last)),
        lm=[-2.0, -3.0, *(lm for _, _, lm in last)],
        header={"kind": "compact"},
        extra=extra,
    )


def test_silent_arcs_into_the_end_are_final_costs(tmp_path):
    lattice = ending((1, SILENT, -0.5), (2, SILENT, 0.0))
    (found,) = again(tmp_path, [lattice])
    text = (tmp_path / "lat").read_text()
    assert text == "u \n0 1 a 2.0,1.0,\n0 2 b 3.0,1.0,\n1 0.5,1.0,\n2 0.0,1.0,\n\n"
    assert differences(lattice, found) == []


@pytest.mark.parametrize(
    "last",
    [
        [(1, "c", -0.5), (2, SILENT, 0.0)],
        [(1, SILENT, -0.5), (1, SILENT, -0.25), (2, SILENT, 0.0)],
        [(1, END, -0.5), (2, END, -0.25)],
    ],
    ids=["a word", "two from one node", "the end of the sentence"],
)
def test_other_arcs_into_the_end_stay_arcs(tmp_path, last):
    lattice = ending(*last)
    (found,) = again(tmp_path, [lattice])
    assert (tmp_path / "lat").read_text().endswith("\n3 0.0,0.0,\n\n")
    assert differences(lattice, found) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_free_silent_arc_into_the_end_is_not_lost(tmp_path, form):
    lattice = assemble(
        "u", nodes=3, start=0, end=2, sources=[0, 1], targets=[1, 2], words=["a", SILENT], acoustic=[-1, 0], lm=[-1, 0]
    )
    lattice = replace(lattice, header={"kind": "compact"} | FORMS[form])
    (found,) = again(tmp_path, [lattice], words=words_file(tmp_path))
    assert differences(lattice, found) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_lattice_of_one_node_says_nothing(tmp_path, form):
    lattice = assemble("u", nodes=1, start=0, end=0, sources=[], targets=[], words=[], acoustic=[], lm=[])
    lattice = replace(lattice, header={"kind": "compact"} | FORMS[form])
    (found,) = again(tmp_path, [lattice], words=words_file(tmp_path))
    assert differences(lattice, found) == []


def test_the_end_of_the_sentence_is_epsilon_where_words_txt_lacks_it(tmp_path):
    (found,) = again(tmp_path, [ending((1, END, -0.5), (2, END, 0.0), words=("a", "a"))], words=words_file(tmp_path))
    assert found.words == ("a", "a", SILENT, SILENT)
    np.testing.assert_array_equal(found.lm, [-2, -3, -0.5, 0])


def test_a_pronunciation_score_joins_the_graph_cost_and_the_total_stays(tmp_path):
    lattice = ending((1, SILENT, -0.5), (2, SILENT, 0.0))
    scales = Scales(lm=14.0, pronunciation=2.0)
    lattice = replace(lattice, pronunciation=np.array([-1.0, -2.0, 0.0, 0.0]), scales=scales)
    (found,) = again(tmp_path, [lattice])
    np.testing.assert_allclose(found.total(Scales(lm=14.0)), lattice.total())


def test_a_lattice_with_inputs_can_become_compact_and_not_back(tmp_path):
    lattice = random_lattice(4, compact=False)
    (found,) = again(tmp_path, [lattice], compact=True)
    assert found.extra["alignment"] == lattice.extra["input"]
    np.testing.assert_array_equal(found.times, lattice.times)
    named = f"lat: utterance {found.utterance}: its arcs have alignments, for which a Lattice has no place; write a Com"
    with pytest.raises(ValueError, match=named):
        again(tmp_path, [found], compact=False)


def test_a_transition_id_that_binary_has_no_place_for(tmp_path):
    lattice = replace(random_lattice(1, labels=False), header={"kind": "compact", "binary": "true"})
    lattice = replace(lattice, extra={"alignment": ("7_99999999999",) * lattice.arcs})
    said = f"utterance {lattice.utterance}: the transition id 99999999999 does not fit into 32 bits; write"
    with pytest.raises(ValueError, match=said):
        again(tmp_path, [lattice], words=words_file(tmp_path))
    assert not (tmp_path / "lat").exists()


def test_a_word_that_words_txt_lacks_leaves_no_file(tmp_path):
    lattices = [random_lattice(1), replace(random_lattice(2), words=("new",) * random_lattice(2).arcs)]
    with pytest.raises(ValueError, match=r"lat: utterance utt-2: the word 'new' is not in .*words.txt"):
        again(tmp_path, lattices, words=words_file(tmp_path))
    assert not (tmp_path / "lat").exists()


@pytest.mark.parametrize("word", ["<eps>", "two words", "tab\t"])
def test_words_that_cannot_be_written_are_named(tmp_path, word):
    lattice = random_lattice(1)
    with pytest.raises(ValueError, match="cannot be written"):
        again(tmp_path, [replace(lattice, words=(word,) * lattice.arcs)])


@pytest.mark.parametrize("name", ["", "two words", "line\n"])
def test_names_that_cannot_be_written_are_named(tmp_path, name):
    with pytest.raises(ValueError, match="is no name of an utterance"):
        again(tmp_path, [replace(random_lattice(1), utterance=name)])


def test_the_same_lattices_give_the_same_packed_bytes(tmp_path):
    for name in ("one.gz", "other.gz"):
        again(tmp_path, [random_lattice(1)], name)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "other.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()).startswith(b"utt-1 \n")


def test_a_wrong_words_txt_stops_at_once(tmp_path):
    again(tmp_path, [random_lattice(1)])
    (tmp_path / "wrong.txt").write_text("a\n")
    with pytest.raises(ValueError, match=r"wrong\.txt:1: 1 columns"):
        list(kaldi.read(tmp_path / "lat", words=tmp_path / "wrong.txt"))
    with pytest.raises(ValueError, match="absent"):
        list(kaldi.read(tmp_path / "lat", words=tmp_path / "absent.txt"))
    with pytest.raises(ValueError, match="absent"):
        list(kaldi.read(tmp_path / "absent"))
