"""Kaldi's text archives, line by line."""

import gzip

import numpy as np
import pytest

from selfnorm.lattices import kaldi
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.lattice import SILENT

GOOD = "good \n0 1 b 1,2,\n1\n\n"


def read(folder, text, name="lat.txt", **options):
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return list(kaldi.read(path, **options))


def rows(lattice):
    columns = (lattice.sources, lattice.targets, lattice.words, lattice.lm, lattice.acoustic)
    return [tuple(row) for row in zip(*columns)]


COMPACT = """utt-1 
0 1 a 0.5,10.25,1_1_2
0 2 <eps> 0,3,5
2 1 b -1.5,0,7_8
1 3 a 2,1,9
1 0.25,0.75,4_4
3 0,0,4

utt-2
0 1 a
1
"""  # noqa: W291  as Kaldi writes it


@pytest.mark.parametrize("name", ["lat.txt", "lat.1.gz"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_a_compact_lattice_has_scores_for_costs_and_one_end(tmp_path, name, ends):
    first, second = read(tmp_path, COMPACT.replace("\n", ends), name)
    assert first.utterance == "utt-1"
    assert rows(first) == [  # nodes by time: 0; 2 (frame 1); 1 (frame 3); 3 (frame 4); the end (frame 5)
        (0, 1, SILENT, 0.0, -3.0),
        (0, 2, "a", -0.5, -10.25),
        (1, 2, "b", 1.5, 0.0),
        (2, 3, "a", -2.0, -1.0),
        (2, 4, SILENT, -0.25, -0.75),
        (3, 4, SILENT, 0.0, 0.0),
    ]
    assert first.extra == {"alignment": ("5", "1_1_2", "7_8", "9", "4_4", "4")}
    np.testing.assert_allclose(first.times, [0, 0.01, 0.03, 0.04, 0.05])
    assert first.header == {"kind": "compact"}
    assert first.notes == ()
    assert rows(second) == [(0, 1, "a", 0.0, 0.0)]  # a free final cost needs no arc
    assert second.times is None
    assert second.extra == {}


def test_tabs_part_columns_too(tmp_path):
    spaced, tabbed = (read(tmp_path, COMPACT.replace(" ", blank)) for blank in " \t")
    assert [rows(each) for each in spaced] == [rows(each) for each in tabbed]


def test_frame_shift_is_the_time_of_one_transition_id(tmp_path):
    first, _ = read(tmp_path, COMPACT, frame_shift=0.03)
    np.testing.assert_allclose(first.times, [0, 0.03, 0.09, 0.12, 0.15])


def test_ways_of_different_length_give_no_times(tmp_path):
    (lattice,) = read(tmp_path, "u\n0 1 a 1,1,1\n0 1 b 1,1,1_2\n1\n")
    assert lattice.times is None
    assert lattice.extra == {"alignment": ("1", "1_2")}


def test_a_lattice_has_inputs_and_words_anywhere(tmp_path):
    text = "u \n0 1 31 0 0.5,2\n0 1 33 0\n1 2 0 17 0,1\n2 3 32 0 1,0.25\n3 0.5,0.125\n\n"
    words = tmp_path / "words.txt"
    words.write_text("<eps> 0\nyes 17\n")
    (lattice,) = read(tmp_path, text, words=words)
    assert rows(lattice) == [
        (0, 1, SILENT, -0.5, -2.0),
        (0, 1, SILENT, 0.0, 0.0),
        (1, 2, "yes", 0.0, -1.0),
        (2, 3, SILENT, -1.0, -0.25),
        (3, 4, SILENT, -0.5, -0.125),
    ]
    assert lattice.extra == {"input": ("31", "33", "0", "32", "0")}
    assert lattice.header == {"kind": "lattice"}
    np.testing.assert_allclose(lattice.times, [0, 0.01, 0.01, 0.02, 0.02])


def test_a_lattice_without_any_costs_is_one_by_its_columns(tmp_path):
    (lattice,) = read(tmp_path, "u\n0 1 5 yes\n1 2 6 <eps>\n2\n")
    assert (lattice.header["kind"], lattice.words) == ("lattice", ("yes", SILENT))


def test_the_start_is_the_first_line_s_and_numbers_are_free(tmp_path):
    (lattice,) = read(tmp_path, "u\n900000000 7 a 1,0,\n7 3 b 2,0,\n3\n")
    assert rows(lattice) == [(0, 1, "a", -1.0, 0.0), (1, 2, "b", -2.0, 0.0)]


def test_an_infinite_final_cost_means_not_final(tmp_path):
    (lattice,) = read(tmp_path, "u\n0 1 a 1,0,\n1 2 b 2,0,\n1 Infinity,Infinity,\n2 0,0,\n")
    assert lattice.words == ("a", "b")


def test_ids_need_words_txt_and_each_must_be_there(tmp_path):
    text = "u\n0 1 17 1,0,\n1\n\nv\n0 1 18 1,0,\n1\n"
    unnamed, _ = read(tmp_path, text)
    assert unnamed.sentence.startswith(f"{tmp_path / 'lat.txt'}:2: utterance u: its words are ids, such as 17")
    words = tmp_path / "words.txt"
    words.write_text("<eps> 0\nyes 17\n")
    found, missing = read(tmp_path, text, words=words)
    assert found.words == ("yes",)
    assert missing.utterance == "v"
    assert f"{tmp_path / 'lat.txt'}:6: utterance v: the word id 18 is not in {words}" in missing.sentence


BAD = {
    "u\n0 1 a 1,2,\n": (":1:", "no node is final"),
    "u\n": (":1:", "no arcs"),
    "u v\n0 1 a 1,2,\n1\n": (":1:", "'u v' is no name"),
    "u\n0 1 a 1,2,\n1 2 b 1,2,\n2 1 c 1,2,\n2\n": (":1:", "cycle"),
    "u\n0 1 a 1,2,\n2 3 b 1,2,\n3\n": (":1:", "no path leads from the start"),
    "u\n0 1 a 1,2,\n1 1 <eps> 0,0,\n1\n": (":1:", "cycle"),
    "u\n0 1 a 1,2,\n1 2 b 1,x,\n2\n": (":3:", "the costs '1,x,' are not"),
    "u\n0 1 a 1,2,\n1 2 b 1_0,2,\n2\n": (":3:", "the costs '1_0,2,' are not"),
    "u\n0 1 a 1,2,\n1 2 b 1,2,3__4\n2\n": (":3:", "the costs '1,2,3__4' are not"),
    "u\n0 1 a 1,2,\n1 2 b 1,2\n2\n": (":3:", "the costs '1,2' are not `graph,acoustic,alignment`"),
    "u\n0 1 a 1,2,\n1 2 b nan,2,\n2\n": (":3:", "finite"),
    "u\n0 1 a 1,2,\n1 2 b Infinity,Infinity,\n2\n": (":3:", "finite"),
    "u\n0 1 a 1,2,\n1 inf,0,\n": (":3:", "finite"),
    "u\n0 1 a 1,2,\n-1 2 b 1,2,\n2\n": (":3:", "'-1' is no number"),
    "u\n0 1 a 1,2,\n1 99999999999 b 1,2,\n2\n": (":3:", "'99999999999' is no number"),
    "u\n0 1 a 1,2,\n1 2 5 b 1,2\n2\n": (":3:", "5 columns; the lattice is a CompactLattice"),
    "u\n0 1 5 a 1,2\n1 2 b\n2\n": (":3:", "3 columns; the lattice is a Lattice"),
    "u\n0 1 a 1,2,\n1\nv\n0 1 a 1,2,\n1\n": (":4:", "'v' is no node; if it is the next utterance"),
    "u\n0 1 a b c d\n1\n": (":2:", "6 columns"),
}


@pytest.mark.parametrize("text", BAD, ids=[said for _, said in BAD.values()])
def test_a_bad_utterance_is_named_and_the_next_one_is_read(tmp_path, text):
    place, said = BAD[text]
    broken, good = read(tmp_path, text + "\n" + GOOD)
    assert isinstance(broken, Broken)
    assert broken.sentence.startswith(f"{tmp_path / 'lat.txt'}{place} ")
    assert said in broken.sentence
    assert broken.utterance == ("lat.txt" if "no name" in said else "u")
    assert good.utterance == "good"


def test_a_name_that_is_too_long_is_told_so(tmp_path):
    good, broken = read(tmp_path, GOOD + "x" * 257 + GOOD.removeprefix("good"))
    assert good.utterance == "good"
    assert "lat.txt:5: the name 'xxx" in broken.sentence
    assert "is too long: a name has up to 256 bytes; shorten it" in broken.sentence
    assert read(tmp_path, "x" * 256 + GOOD.removeprefix("good"))[0].utterance == "x" * 256


def test_bytes_that_are_no_text_are_named(tmp_path):
    name, word, good = read(tmp_path, b"\xff\xfe \n0 1 a 1,2,\n1\n\nu\n0 1 \xff 1,2,\n1\n\n" + GOOD.encode())
    assert name.sentence.startswith(f"{tmp_path / 'lat.txt'}:1: the name '\\\\xff\\\\xfe' is not UTF-8")
    assert word.sentence.startswith(f"{tmp_path / 'lat.txt'}:6: utterance u: the word '\\\\xff' is not UTF-8")
    assert good.utterance == "good"


def test_dead_arcs_and_twins_are_left_out_with_a_note(tmp_path):
    (lattice,) = read(tmp_path, "u\n0 1 a 1,2,\n0 1 a 1,2,\n0 2 b 1,2,\n1 0.5,0,\n")
    assert lattice.words == ("a", SILENT)
    assert len(lattice.notes) == 2


def test_a_file_without_utterances_is_said(tmp_path):
    (broken,) = read(tmp_path, "")
    assert broken == Broken("lat.txt", f"{tmp_path / 'lat.txt'}: the file is empty; write the archive again")
    assert read(tmp_path, "\n \n\n" + GOOD)[0].words == ("b",)
    assert read(tmp_path, "\ufeff" + GOOD)[0].utterance == "good"


def test_a_cut_gzip_file_gives_what_is_whole(tmp_path):
    text = "".join(f"u{number}\n0 1 w{number * 7919} {number}.5,2,\n1\n\n" for number in range(20_000))
    path = tmp_path / "lat.1.gz"
    data = gzip.compress(text.encode())
    path.write_bytes(data[: len(data) // 2])
    *whole, broken = kaldi.read(path)
    assert len(whole) > 1000
    assert "cut off" in broken.sentence
    assert str(path) in broken.sentence


def test_too_many_arcs_are_counted_and_the_next_utterance_is_read(tmp_path):
    arcs = "".join(f"{node} {node + 1} a 1,2,\n" for node in range(1001))
    text = f"big\n{arcs}1001\n\n{GOOD}"
    broken, good = read(tmp_path, text, max_arcs=1000)
    assert broken.utterance == "big"
    assert broken.sentence == (
        f"{tmp_path / 'lat.txt'}:1: utterance big: has more than 1,000 arcs; prune it, or raise --max-arcs"
    )
    assert good.utterance == "good"
    assert read(tmp_path, text, max_arcs=1001)[0].arcs == 1001


def test_an_overlong_line_is_named_and_the_next_utterance_is_read(tmp_path):
    broken, good = read(tmp_path, "long\n0 1 a 1,2," + "1_" * 6_000_000 + "1\n1\n\n" + GOOD)
    assert broken.utterance == "long"
    assert "longer than 1,048,576 bytes" in broken.sentence
    assert good.utterance == "good"
