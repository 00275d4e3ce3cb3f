"""A picture shows each word of the best paths once, in a place of its own, and is XML whatever the words are."""

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from pathlib import Path

import pytest
from comparing import toy
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.lattices import drawing, htk
from selfnorm.lattices.lattice import assemble
from selfnorm.vocabulary import END

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture, *classes):
    """What the picture says, from left to right: (x, y, text)."""
    found = [each for each in ET.fromstring(picture).iter(f"{SVG}text") if each.get("class") in classes]
    return sorted((float(each.get("x")), float(each.get("y")), each.text) for each in found)


LEGEND = ' d="M4 -4H24"/>'


def count(picture, style):
    """How many arcs are drawn in a style."""
    return picture.count(f'<path class="{style}" d="') - picture.count(f'<path class="{style}"{LEGEND}')


def legend(picture):
    return re.findall(rf'<path class="(\w+)"{LEGEND}', picture)


def test_every_word_of_the_paths_is_there_once():
    picture = drawing.svg(toy())
    words = [text for _, _, text in texts(picture, "word", "silent")]
    assert sorted(words) == sorted(["silence", "a", "b", "c", "d", END])
    assert [text for _, _, text in texts(picture, "score")].count("−2.5 · −1.0") == 1
    assert [text for _, _, text in texts(picture, "time")] == ["0.00 s", "0.10 s", "0.30 s", "0.70 s"]
    assert "the 3 best paths of different words: 6 of 6 arcs" in picture
    assert "best path, −25.1: a c" in picture


def test_the_best_path_is_straight_and_marked():
    picture = drawing.svg(toy())
    straight = [text for _, y, text in texts(picture, "word", "silent") if y == -8]
    assert straight == ["silence", "a", "c", END]
    assert legend(picture) == ["best"]
    assert count(picture, "best") == 4
    assert count(picture, "nearest") == 0


def test_the_path_nearest_to_the_reference_is_marked():
    picture = drawing.svg(toy(), ["d"])
    assert "nearest path, 0 errors: d" in picture
    assert "reference: d" in picture
    assert legend(picture) == ["best", "nearest"]
    assert count(picture, "nearest") == 3


def test_of_equally_near_paths_the_best_is_marked():
    """Both say a; the better of them is the best path itself, so nothing is added."""
    same = toy(words=["", "a", "a", "d", "c", END])
    picture = drawing.svg(same, ["a", "c"], most=1)
    assert "4 of 6 arcs" in picture
    assert "5 of 6 arcs" in drawing.svg(same, ["d"], most=1)


def test_a_reference_of_no_words():
    assert "nearest path, 1 error: d" in drawing.svg(toy(), [])


def test_without_times_nodes_stand_in_their_order():
    picture = drawing.svg(toy(times=None))
    assert texts(picture, "time") == []
    assert [text for _, y, text in texts(picture, "word", "silent") if y == -8] == ["silence", "a", "c", END]


def test_fewer_paths_draw_fewer_arcs():
    assert len(texts(drawing.svg(toy(), most=1), "word", "silent")) == 4
    assert "the best path: 4 of 6 arcs" in drawing.svg(toy(), most=1)


def test_a_lattice_without_arcs():
    picture = drawing.svg(toy(start=4))
    ET.fromstring(picture)
    assert "0 of 0 arcs" in picture


@pytest.mark.parametrize("word", ["<&>\"'", "\x00\x1b[31m", "a\u2028b", "]]>", "語" * 30, "[bold]"])
def test_words_are_text_whatever_they_are(word):
    picture = drawing.svg(toy(words=["", word, "b", "d", "c", END]), [word])
    ET.fromstring(picture)
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", picture)


def test_the_same_lattice_gives_the_same_picture():
    assert drawing.svg(toy(), ["a"]) == drawing.svg(toy(), ["a"])


@st.composite
def lattices(draw):
    nodes = draw(st.integers(2, 7))
    pairs = [(node, node + 1) for node in range(nodes - 1)]
    more = st.tuples(st.integers(0, nodes - 2), st.integers(1, nodes - 1)).filter(lambda pair: pair[0] < pair[1])
    pairs += draw(st.lists(more, max_size=12))
    size = len(pairs)
    return assemble(
        "any",
        nodes=nodes,
        start=0,
        end=nodes - 1,
        sources=[source for source, _ in pairs],
        targets=[target for _, target in pairs],
        words=draw(st.lists(st.sampled_from(["", "a", "bb", "a long one", END]), min_size=size, max_size=size)),
        acoustic=draw(st.lists(st.integers(-9, 0), min_size=size, max_size=size)),
        lm=[0.0] * size,
        times=draw(st.none() | st.lists(st.integers(0, 5), min_size=nodes, max_size=nodes).map(sorted)),
    )


@given(lattices(), st.lists(st.sampled_from(["a", "bb", "c"]), max_size=4))
@settings(max_examples=100)
def test_no_two_words_overlap(lattice, reference):
    picture = drawing.svg(lattice, reference)
    said = texts(picture, "word", "silent")
    for (x, y, text), (other_x, other_y, other) in combinations(said, 2):
        apart = abs(x - other_x) >= 7 * (len(text) + len(other)) / 2
        assert apart or abs(y - other_y) >= 20, (text, other)


SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "asr" / "ps-lattices"


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared lattices are not beside the repository")
def test_a_real_lattice():
    lattice = htk.read(SHARED / "slf" / "fraser_arctic_a0498.slf.gz")
    picture = drawing.svg(lattice, ["the", "lines", "were", "now", "very", "taut"])
    ET.fromstring(picture)
    assert "nearest path, 2 errors" in picture
    assert 10 < len(texts(picture, "word")) < 100
