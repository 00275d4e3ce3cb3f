"""Fields are what bytes.split() gives, and numbers what float() and int() make of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from selfnorm.fields import DIGITS, Fields

TEXTS = st.lists(st.text("0123456789.-+eE_ab", min_size=1, max_size=20).map(str.encode), min_size=1, max_size=20)


@given(st.text(" \t\r\n\x0b\x0cab", max_size=60).map(str.encode))
def test_lines_are_split_as_bytes_are(block):
    fields, lines = Fields(block), [line.split() for line in block.split(b"\n") if line.split()]
    assert fields.texts(fields.begins, fields.lengths) == block.split()
    assert fields.counts.tolist() == [len(line) for line in lines]
    assert fields.texts(*fields.at(0)) == [line[0] for line in lines]


@given(TEXTS)
def test_numbers_are_exact_or_left_to_float(texts):
    fields = Fields(b" ".join(texts))
    values, others = fields.numbers(fields.begins, fields.lengths)
    for place, text in enumerate(texts):
        if place not in others:
            assert values[place].tobytes() == np.float64(text).tobytes()  # the sign of 0, too
        elif len(text) <= DIGITS:
            assert not text.replace(b".", b"", 1).removeprefix(b"-").isdigit()  # what is usual is not left


@given(TEXTS)
def test_whole_numbers_are_digits_alone(texts):
    fields = Fields(b" ".join(texts))
    found = fields.wholes(fields.begins, fields.lengths)
    assert found.tolist() == [int(text) if text.isdigit() and len(text) <= DIGITS else -1 for text in texts]
