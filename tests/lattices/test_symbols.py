"""words.txt of lattices: ids with gaps, and fields that are ids or words."""

import pytest

from selfnorm.lattices.lattice import SILENT
from selfnorm.lattices.symbols import Symbols, words_of


def symbols(folder, text):
    path = folder / "words.txt"
    path.write_text(text, encoding="utf-8")
    return Symbols.load(path)


def test_ids_may_have_gaps_and_epsilon_is_silent(tmp_path):
    table = symbols(tmp_path, "<eps> 0\nfür 7\r\na\t3\n#0 9\n")
    assert [table.word(id) for id in (0, 3, 7)] == [SILENT, "a", "für"]
    assert [table.id(word) for word in (SILENT, "a", "für")] == [0, 3, 7]


def test_the_end_of_the_sentence_is_silent_where_there_is_no_id_for_it(tmp_path):
    assert symbols(tmp_path, "a 1\n").id("</s>") == 0
    assert symbols(tmp_path, "a 1\n</s> 2\n").id("</s>") == 2


def test_a_missing_id_and_a_missing_word_are_named(tmp_path):
    table = symbols(tmp_path, "<eps> 0\na 1\n")
    with pytest.raises(ValueError, match=r"id 5 is not in .*words.txt; give"):
        table.word(5)
    with pytest.raises(ValueError, match=r"'b' is not in .*words.txt; add"):
        table.id("b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: the file is empty"),
        ("<eps> 0\na\n", ":2: 1 columns"),
        ("<eps> 0\na b 1\n", ":2: 3 columns"),
        ("<eps> 0\n\na 1\n", ":2: 0 columns"),
        ("<eps> 0\na -1\n", ":2: '-1' is no id"),
        ("<eps> 0\na 1_0\n", ":2: '1_0' is no id"),
        ("<eps> 0\na 2147483648\n", ":2: '2147483648' is no id"),
        ("<eps> 0\na 1\nb 1\n", ":3: the id 1 was on an earlier line too, with 'a'"),
        ("<eps> 0\na 1\na 2\n", ":3: the word 'a' was on an earlier line too, with 1"),
        ("a 0\nb 1\n", "id 0 is the word 'a'"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, said):
    with pytest.raises(ValueError, match="words") as error:
        symbols(tmp_path, text)
    assert said in str(error.value)


def test_fields_are_all_ids_or_all_words(tmp_path):
    table = symbols(tmp_path, "<eps> 0\na 1\n7 2\n")
    assert words_of([b"0", b"1", b"2"], table) == {b"0": SILENT, b"1": "a", b"2": "7"}
    assert words_of([b"<eps>", b"a", b"7"], table) == {b"<eps>": SILENT, b"a": "a", b"7": "7"}
    assert words_of([b"<eps>", b"new", b"7"], None) == {b"<eps>": SILENT, b"new": "new", b"7": "7"}
    assert words_of([b"0"], None) == {b"0": SILENT}


def test_ids_without_a_table_ask_for_it(tmp_path):
    with pytest.raises(ValueError, match=r"such as 17; give .* with --words"):
        words_of([b"0", b"17"], None)
    with pytest.raises(ValueError, match=r"word 'b' is not in"):
        words_of([b"1", b"b"], symbols(tmp_path, "a 1\n"))
    with pytest.raises(ValueError, match=r"not UTF-8"):
        words_of([b"\xff"], None)
