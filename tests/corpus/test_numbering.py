"""Words to numbers: as a dict would, whatever the table of slots holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selfnorm.corpus import numbering
from selfnorm.corpus.numbering import Numbering

# Lengths around the 8 and 16 bytes of the keys, with beginnings and ends in common.
WORDS = st.builds(
    lambda length, first, last: (first + b"x" * length + last)[: max(1, length)],
    st.sampled_from([1, 2, 7, 8, 9, 15, 16, 17, 18, 40]),
    st.sampled_from([b"", b"a", b"b", "語".encode()]),
    st.sampled_from([b"", b"a", b"b"]),
)
TEXTS = st.lists(st.tuples(WORDS | st.just(b""), st.sampled_from([b" ", b"\n", b" \n\n", b"\t\r\v\f"])), max_size=40)


def by_dict(known: dict[bytes, int], text: bytes) -> list[int]:
    return [known.setdefault(word, len(known)) for word in text.replace(b"\n", b" \xff ").split()]


@pytest.mark.parametrize("bits", [1, 3, 20])
@settings(max_examples=100, deadline=None)
@given(blocks=st.lists(TEXTS, min_size=1, max_size=4))
def test_numbers_are_those_of_a_dict(bits, blocks):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbering, "_BITS", bits)
        words, known = Numbering(), {b"\xff": 0}
        for block in blocks:
            text = b"".join(word + space for word, space in block)
            assert words.number(text).tolist() == by_dict(known, text)
        assert words.words[1:] == list(known)[1:]


def test_many_words_outgrow_the_tables():
    chance = np.random.default_rng(0)
    words, known = Numbering(), {b"\xff": 0}
    for _ in range(5):
        ids = chance.zipf(1.1, 20_000) % 1_000_003
        text = " ".join(f"{id:x}" * (1 + id % 4) for id in ids.tolist()).encode()
        np.testing.assert_array_equal(words.number(text), by_dict(known, text))
    assert len(words) == len(known) > 10_000


@pytest.mark.parametrize("text", [b"", b" ", b"\n", b"a", b"a" * 16, b"\na", b"a\n"], ids=repr)
def test_the_smallest_texts(text):
    assert Numbering().number(text).tolist() == by_dict({b"\xff": 0}, text)
