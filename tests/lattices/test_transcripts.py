import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfnorm.files import WriteError
from selfnorm.lattices.transcripts import Spoken, ignored, read, write_ctm, write_text, write_trn

SAID = {"a_1": ("the", "cat"), "a_2": (), "b_1": ("naïve", "(laugh)", "don't")}
FORMS = {
    "kaldi": "a_1 the cat\na_2\nb_1 naïve (laugh) don't\n",
    "trn": "the cat (a_1)\n(a_2)\nnaïve (laugh) don't (b_1)\n",
    "jsonl": '{"utt": "a_1", "text": "the cat"}\n{"utt": "a_2", "text": ""}\n'
    '{"utt": "b_1", "ref": "naïve (laugh) don\'t"}\n',
    "tabs, carriage returns, blank lines, no last line end": "a_1\tthe  cat \r\n\r\n a_2 \r\nb_1 naïve (laugh) don't",
    "byte order mark": "\ufeffa_1 the cat\na_2\nb_1 naïve (laugh) don't\n",
    "trn with comments": ";; made by hand\nthe cat (a_1)\n (a_2)\nnaïve (laugh) don't (b_1) \n",
}
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"], exclude_characters="(){};"), min_size=1)


@pytest.fixture
def given_text(tmp_path):
    def write(content, name="said"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_known_by_its_lines(form, given_text):
    assert read(given_text(FORMS[form])) == SAID
    assert read(given_text(gzip.compress(FORMS[form].encode()), "said.gz")) == SAID


def test_an_n_best_list_has_both_sides(given_text):
    lists = [
        {"utt": "a", "ref": "the cat", "hyps": [{"text": "a cat", "am": -1}, {"text": "the cat", "am": -2}]},
        {"utt": "b", "ref": "", "hyps": [{"text": "", "am": 0}]},
    ]
    path = given_text("\n".join(map(json.dumps, lists)))
    assert read(path) == {"a": ("the", "cat"), "b": ()}
    assert read(path, "hypothesis") == {"a": ("a", "cat"), "b": ()}


def test_the_limits_of_a_sentence_are_no_words_of_a_list(given_text):
    path = given_text('{"utt": "a", "ref": "<s> x </s>", "hyps": [{"text": "<s> x y </s>"}]}\n')
    assert (read(path), read(path, "hypothesis")) == ({"a": ("x",)}, {"a": ("x", "y")})


def test_a_hypothesis_in_jsonl(given_text):
    path = given_text('{"utt": "a", "hyp": "a cat", "ref": "the cat"}\n{"utt": "b", "text": "dog"}\n')
    assert read(path, "hypothesis") == {"a": ("a", "cat"), "b": ("dog",)}
    assert read(path) == {"a": ("the", "cat"), "b": ("dog",)}


def test_ctm_is_sorted_by_time(given_text):
    text = ";; from a decoder\nb 1 0.50 0.2 dog 0.9\na 1 1.00 0.3 cat\na 1 0.2 .5 the 1.0\nb 1 0.10 0.2 a 0.5 lex\n"
    assert read(given_text(text)) == {"b": ("a", "dog"), "a": ("the", "cat")}


def test_channels_are_utterances_where_there_are_several(given_text):
    text = "b A 0.50 0.2 yes\nb B 0.10 0.2 no\na 1 1.00 0.3 cat\nb A 0.10 0.2 oh\n"
    assert read(given_text(text)) == {"b_A": ("oh", "yes"), "b_B": ("no",), "a": ("cat",)}
    assert read(given_text(text), like={"a_1", "b"}).keys() == {"b_A", "b_B", "a_1"}
    with pytest.raises(ValueError, match="said: a channel of one file and another file are both called b_A; rename"):
        read(given_text(text + "b_A 1 1.0 0.3 oh\n"))


STM = """\
;; by hand
talk A anna 4.00 5.50 <o,f0,female> good bye
talk A anna 0.00 2.00 <o,f0,female> hello world
talk A inter 2.00 4.00 <o,,unknown> IGNORE_TIME_SEGMENT_IN_SCORING
call A 1 0.0 2.0 {a}
call B ben 0.0 2.0
"""


@pytest.mark.parametrize("name", ["said.stm", "said.stm.gz", "references"])
def test_stm_is_joined_in_order_of_time(name, given_text):
    for label in ("<o,f0,male> ", ""):
        text = STM.replace("{a}", f"{label}yes of course").encode()
        path = given_text(gzip.compress(text) if name.endswith(".gz") else text, name)
        assert read(path) == {
            "talk": ("hello", "world", "good", "bye"),
            "call_A": ("yes", "of", "course"),
            "call_B": (),
        }
        assert [(each.channel, each.begin, each.end) for each in ignored(path)] == [("A", 2.0, 4.0)]


def test_what_is_said_in_an_ignored_segment_is_left_out(given_text):
    words = given_text("talk A 1.7 0.4 world\ntalk A 1.8 0.5 junk\ntalk A 3.9 0.2 x\ntalk A 4.0 0.5 good\n", "h.ctm")
    segments = ignored(given_text(STM.replace("{a}", "a"), "r.stm"))
    assert read(words, "hypothesis", ignored=segments) == {"talk": ("world", "good")}
    only = given_text("talk A 2.5 0.5 junk\n", "only.ctm")
    assert read(only, "hypothesis", {"talk"}, segments) == {"talk": ()}
    assert ignored(words) == []


def test_numbers_in_a_text_are_words(given_text):
    assert read(given_text("a 1 2 3 go\nb 1 2 3 4\n")) == {"a": ("1", "2", "3", "go"), "b": tuple("1234")}


def test_spaces_of_unicode_are_parts_of_words(given_text):
    assert read(given_text("a x\u00a0y z\n")) == {"a": ("x\u00a0y", "z")}
    assert read(given_text('{"utt": "a", "text": "x\u00a0y z"}\n')) == {"a": ("x\u00a0y", "z")}


@given(st.dictionaries(WORDS, st.lists(WORDS).map(tuple), min_size=1))
def test_what_was_written_is_read(tmp_path_factory, said):
    folder = tmp_path_factory.mktemp("said")
    write_text(folder / "text", said)
    write_trn(folder / "trn", said)
    assert read(folder / "text") == read(folder / "trn") == said


@pytest.mark.parametrize("name", ["ünï(1)", "a(b", "(x)", "a)b"])
def test_names_may_have_brackets(name, tmp_path):
    said = {name: ("x", "(laugh)"), "b(2)": ()}
    write_trn(tmp_path / "trn", said)
    assert read(tmp_path / "trn") == said
    (tmp_path / "trn").write_text("x (a)\ny (laugh)(b)\nz (c)\n")
    with pytest.raises(ValueError, match=":2: the line does not end with the name of its utterance"):
        read(tmp_path / "trn")


def test_ctm_that_was_written_is_read(tmp_path):
    rows = [Spoken("a", 0.0, 0.25, "the"), Spoken("a", 0.25, 1.0, "cat"), Spoken("b", 3.5, 0.1, "dog")]
    write_ctm(tmp_path / "ctm", rows)
    assert (tmp_path / "ctm").read_text() == "a 1 0.00 0.25 the\na 1 0.25 1.00 cat\nb 1 3.50 0.10 dog\n"
    assert read(tmp_path / "ctm") == {"a": ("the", "cat"), "b": ("dog",)}


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    write_text(tmp_path / "text", SAID)

    def broken():
        yield "a", ("b",)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_ctm(tmp_path / "text", (Spoken(name, 0.0, 0.0, *words) for name, words in broken()))
    assert read(tmp_path / "text") == SAID
    with pytest.raises(WriteError, match="none/text cannot be written"):
        write_text(tmp_path / "none" / "text", SAID)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "said: is empty; a transcript has a line for each utterance"),
        ("\n  \n", "said: is empty"),
        ("a x\nb y\n\na z\n", "said:4: utterance a is also on line 1; keep one"),
        ("x (a)\ny (b)\nz (a)\n", "said:3: utterance a is also on line 1; keep one"),
        ("x (a)\ny (b)\nz\n", "said:3: the line does not end with the name of its utterance in brackets"),
        ("{ x / y } (a)\n", "said:1: { marks alternatives, which are not read; keep one of them"),
        (b"a x\nb \xff y\n", "said:2: byte 6 (0xff) is not UTF-8; convert the file to UTF-8"),
        ("a 1 0.1 0.2 x\na 1 0.3 0.2\na 1 0.4 0.2 y\n", "said:2: not a line of a CTM file, as others are"),
        ("a 1 0.1 0.2 x\na 1 0.3 0.2 y\na 1 .. 0.2 y\n", "said:3: not a line of a CTM file, as others are"),
        ("a 1 0.1 0.2 x\na 1 * * <ALT_BEGIN>\na 1 0.4 0.2 y\n", "said:2: <ALT_BEGIN> marks alternatives"),
        ('{"utt": "a", "text": "x"}\nb y\n', "said:2: not JSON ("),
        ('{"utt": "a", "text": "x"}\n[]\n', 'said:2: the object has no "utt"; name the utterance there'),
        ('{"utt": 1, "text": "x"}\n', 'said:1: the object has no "utt"'),
        ('{"utt": "a b", "text": "x"}\n', "said:1: the name 'a b' of an utterance has white space in it"),
        ('{"utt": "a", "text": 3}\n', 'said:1: "text" is no text; give the words, parted by blanks'),
        ('{"utt": "a", "hyps": []}\n', 'said:1: the object has no reference; give it as "ref" or "text"'),
        ('{"utt": "a", "text": "\\ud800"}\n', "said:1: the reference has half a character"),
        ('{"utt": "a", "text": ' + "[" * 100_000 + "\n", "said:1: not JSON ("),
    ],
)
def test_mistakes_are_sentences(content, sentence, given_text):
    with pytest.raises(ValueError, match="said") as caught:
        read(given_text(content))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a A anna 0.0", "r.stm:2: not a line of an STM file: file channel speaker begin end <label> words"),
        ("a A anna 0.0 x <o> y", "r.stm:2: 'x' is no time; write seconds"),
        ("a A anna nan 1.0 <o> y", "r.stm:2: 'nan' is no time; write seconds"),
        ("a A anna 0.0 1.0 <o> { x / y }", "r.stm:2: { marks alternatives, which are not read; keep one of them"),
    ],
)
def test_mistakes_in_stm_are_sentences(line, sentence, given_text):
    path = given_text(f"a A anna 3.0 4.0 <o> x\n{line}\n", "r.stm")
    with pytest.raises(ValueError, match="stm") as caught:
        read(path)
    assert str(caught.value).endswith(sentence)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"utt": "a", "hyps": []}', 'said:1: "hyps" is no list of hypotheses, the best first; give at least one'),
        ('{"utt": "a", "hyps": [{"am": 1}]}', 'said:1: the first of "hyps" has no "text"'),
        ('{"utt": "a", "ref": "x"}', 'said:1: the object has no hypothesis; give it as "hyp" or "text"'),
    ],
)
def test_mistakes_in_hypotheses_are_sentences(line, sentence, given_text):
    with pytest.raises(ValueError, match="said") as caught:
        read(given_text(line), "hypothesis")
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="none: there is no such file; give a transcript"):
        read(tmp_path / "none")


def test_a_packed_file_that_is_cut_off(given_text):
    whole = gzip.compress(b"".join(b"a%d x y z\n" % number for number in range(999)))
    with pytest.raises(ValueError, match=r"said\.gz: .*copy it again"):
        read(given_text(whole[:-20], "said.gz"))


@pytest.mark.parametrize("channel", ["A", "1"])
def test_ignored_segments_go_by_the_name_of_the_utterance(channel, given_text):
    """Who writes CTM files may call a file's only channel otherwise than the STM file does."""
    stm = "f A anna 0.0 1.0 <o> x\nf A anna 1.0 2.0 <o> ignore_time_segment_in_scoring\n"
    segments = ignored(given_text(stm, "r.stm"))
    heard = given_text(f"f {channel} 0.1 0.2 x\nf {channel} 1.1 0.2 y\n", "h.ctm")
    assert read(heard, like={"f"}, ignored=segments) == {"f": ("x",)}
    named = given_text("f_A 1 0.1 0.2 x\nf_A 1 1.1 0.2 y\n", "named.ctm")
    assert read(named, like={"f_A"}, ignored=segments) == {"f_A": ("x",)}


@pytest.mark.parametrize(
    "text", ["u1 hmm well . . ok", "u1 from about 3.50 4.20 dollars\nu2 yes", "u1 it fell from 4.20 3.50 cents"]
)
def test_a_text_is_not_taken_for_stm(text, given_text):
    assert read(given_text(text, "text"))["u1"] == tuple(text.splitlines()[0].split()[1:])
