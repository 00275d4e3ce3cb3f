"""`selfnorm lattice` as a user meets it: what it prints, how it ends, and the sentence for each mistake."""

import gzip
import json
import shutil
import xml.etree.ElementTree as ET
from functools import partial

import pytest
from trials import call

LATTICE = """\
UTTERANCE=one
lmscale=10 wdpenalty=-0.5
N=4 L=4
I=0 t=0
I=1 t=0.5
I=2 t=1.5
I=3 t=2
J=0 S=0 E=1 W=[noise] a=-1 l=-1
J=1 S=1 E=2 W=a a=-2 l=-1
J=2 S=1 E=2 W=b a=-1 l=-2
J=3 S=2 E=3 W=!SENT_END a=0 l=-1
"""


@pytest.fixture
def verb(tmp_path):
    """`selfnorm lattice ARGUMENTS`: exit status, standard output, standard error."""
    return partial(call, tmp_path / "said", "lattice")


@pytest.fixture
def one(tmp_path):
    path = tmp_path / "one.slf.gz"
    path.write_bytes(gzip.compress(LATTICE.encode()))
    return path


@pytest.fixture
def two(tmp_path, one):
    folder = tmp_path / "two"
    folder.mkdir()
    (folder / "one.slf").write_text(LATTICE)
    (folder / "two.slf").write_text(LATTICE.replace("UTTERANCE=one", "UTTERANCE=two"))
    return folder


def test_one_lattice_is_a_table_of_its_numbers(verb, one):
    status, out, err = verb(one)
    assert (status, err) == (0, "")
    for said in ("2.00 s", "2 arcs/s  2.0 arcs/word", "score -34.00", "[noise] a"):
        assert said in out


def test_scales_of_the_caller(verb, one):
    """[noise] b </s>: -2 acoustic, -4 LM; [noise] a </s>: -3 and -3."""
    assert "score -6.00" in verb(one, "--lm-scale", "1", "--word-penalty", "0")[1]
    assert "[noise] b" in verb(one, "--lm-scale", "0.5", "--word-penalty", "0")[1]


def test_json_with_reference(verb, one):
    status, out, _ = verb(one, "--reference", "[noise] b c", "--json")
    found = json.loads(out)
    assert (status, found["utterances"], found["failed"]) == (0, 1, 0)
    (row,) = found["lattices"]
    assert (row["nodes"], row["arcs"], row["words"], row["seconds"]) == (4, 4, 3, 2.0)
    assert (row["arcs_per_second"], row["arcs_per_word"]) == (2.0, 2.0)
    assert (row["best"]["words"], row["best"]["errors"], row["best"]["score"]) == (["[noise]", "a"], 2, -34.0)
    assert (row["nearest"]["words"], row["nearest"]["errors"]) == (["[noise]", "b"], 1)
    assert found["nearest"]["wer"] == pytest.approx(100 / 3)


def test_a_reference_may_be_longer_than_the_name_of_a_file(verb, one):
    status, out, _ = verb(one, "--reference", "[noise] b " + "word " * 100, "--json")
    assert (status, json.loads(out)["reference_words"]) == (0, 102)


def test_a_picture(verb, one, tmp_path):
    to = tmp_path / "one.svg"
    status, out, _ = verb(one, "--svg", to, "--reference", "b")
    assert status == 0
    assert out.endswith(f"{to}\n")
    assert ET.parse(to).getroot().tag.endswith("svg")
    assert "nearest path, 1 error: [noise] b" in to.read_text()


def test_a_picture_is_not_drawn_over_what_is_read(verb, one, tmp_path):
    before, said = one.read_bytes(), tmp_path / "said.txt"
    said.write_text("one a\n")
    for path in (one, said):
        status, out, err = verb(one, "--reference", said, "--svg", path)
        assert (status, out) == (2, "")
        assert f"{path}: is read, and would be written over" in err
    assert (one.read_bytes(), said.read_text()) == (before, "one a\n")
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(one, folder)
    assert verb(folder, "--utterance", "one", "--svg", folder / one.name)[0] == 2
    assert (folder / one.name).read_bytes() == before
    status, out, err = verb(one, "--svg", tmp_path / "nowhere" / "one.svg")
    assert (status, out) == (2, "")
    assert "one.svg cannot be written: No such file or directory" in err


def test_several_lattices_are_a_table_with_sums(verb, two, tmp_path):
    references = tmp_path / "refs.txt"
    references.write_text("one [noise] b\ntwo a\n")
    status, out, err = verb(two, "--reference", references)
    assert (status, err) == (0, "")
    assert "2 lattices" in out
    assert "66.7 %" in out  # one substitution, one insertion, three words
    status, out, _ = verb(two, "--json")
    assert [row["utterance"] for row in json.loads(out)["lattices"]] == ["one", "two"]
    status, out, _ = verb(two, "--utterance", "two", "--json")
    assert [row["utterance"] for row in json.loads(out)["lattices"]] == ["two"]


def test_an_utterance_without_a_reference_is_named(verb, two, tmp_path):
    references = tmp_path / "refs.txt"
    references.write_text("one [noise] b\n")
    status, out, err = verb(two, "--reference", references, "--json")
    assert status == 0
    assert "do not have the utterance two" in err
    assert json.loads(out)["reference_words"] == 2


def test_broken_lattices_are_reported_and_the_rest_is_shown(verb, two):
    (two / "three.slf").write_text(LATTICE.replace("E=3", "E=1"))
    status, out, err = verb(two, "--json")
    assert status == 1
    assert (json.loads(out)["utterances"], json.loads(out)["failed"]) == (2, 1)
    assert "three.slf: " in err


def test_kaldi_ids_need_words(verb, tmp_path):
    (tmp_path / "lat.ark").write_text("one\n0 1 5 1,2,\n1\n\n")
    (tmp_path / "words.txt").write_text("<eps> 0\nfive 5\n")
    status, _, err = verb(tmp_path / "lat.ark")
    assert status == 2
    assert "--words" in err
    given = tmp_path / "lat.ark", "--words", tmp_path / "words.txt", "--json"
    status, out, err = verb(*given)
    assert json.loads(out)["lattices"][0]["best"]["words"] == ["five"]
    assert "one: Kaldi's lattices do not say their LM scale; give --lm-scale, 1/acwt, often 10; 1 is taken" in err
    assert verb(*given, "--lm-scale", 10)[2] == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["two", "--svg", "x.svg"], "holds several lattices, but --svg draws one; choose it with --utterance"),
        (["two", "--reference", "a b"], "but --reference has the words of one"),
        (["two", "--utterance", "three"], "holds no utterance 'three'"),
        (["two", "--reference", "absent.txt"], "absent.txt: there is no such file; give a file of references"),
        (["absent"], "absent: there is no such file or folder"),
        (["one.slf.gz", "--max-arcs", "3"], ":3: L=4 is more than the 3 arcs that are allowed"),
        (["list.jsonl"], "u is an n-best list"),
        (["text"], "is no HTK lattice, Kaldi archive or n-best list"),
    ],
)
def test_mistakes_are_one_sentence(verb, one, two, tmp_path, arguments, said):
    (tmp_path / "list.jsonl").write_text('{"utt": "u", "hyps": [{"text": "a", "am": -1}]}\n')
    (tmp_path / "text").write_text("some words\n")
    first, *rest = arguments
    status, out, err = verb(tmp_path / first, *[tmp_path / each if each == "x.svg" else each for each in rest])
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "x.svg").exists()
