"""N-best lists as lines of JSON."""

import gzip
import json
import time
import tracemalloc
from pathlib import Path

import fuzz
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from selfnorm.lattices import nbest
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.nbest import Hypothesis, NBest

ASR = Path(__file__).parents[2].parent / "shared" / "data" / "asr"
GOOD = '{"utt": "good", "hyps": [{"text": "a b", "am": -1.5}]}'


def read(folder, *lines, name="nbest.jsonl"):
    path = folder / name
    data = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return list(nbest.read(path))


@pytest.mark.parametrize("name", ["nbest.jsonl", "nbest.jsonl.gz"])
def test_words_scores_and_what_is_besides(tmp_path, name):
    line = (
        '{"utt": "u-1", "ref": "a  b\\tc", "dur": 1.5, "hyps": ['
        '{"text": "a für", "am": -1.5, "lm": -3, "score": -7.25, "ntok": 4}, {"text": ["a", "b"], "am": 2, "lm": 0.5},'
        '{"text": "", "am": -9, "lm": -1e-5}]}'
    )
    first, second = read(tmp_path, line, "", GOOD, name=name)
    assert first == NBest(
        "u-1",
        (
            Hypothesis(("a", "für"), -1.5, -3.0, {"score": -7.25, "ntok": 4}),
            Hypothesis(("a", "b"), 2.0, 0.5),
            Hypothesis((), -9.0, -1e-5),
        ),
        ("a", "b", "c"),
        {"dur": 1.5},
    )
    assert second == NBest("good", (Hypothesis(("a", "b"), -1.5),))


def test_only_ascii_white_space_parts_words(tmp_path):
    (found,) = read(tmp_path, '{"utt": "u", "hyps": [{"text": "a\\u00a0b c\\u3000d", "am": 0}]}')
    assert found.hypotheses[0].words == ("a\u00a0b", "c\u3000d")


def test_the_limits_of_a_sentence_are_no_words(tmp_path):
    path = tmp_path / "list.jsonl"
    path.write_text('{"utt": "u", "ref": "<s> a </s>", "hyps": [{"text": ["<s>", "a", "b", "</s>"], "am": 0}]}\n')
    assert list(nbest.read(path)) == [NBest("u", (Hypothesis(("a", "b"), 0.0),), ("a",))]


def test_lists_without_acoustic_scores_say_so(tmp_path):
    (found,) = read(tmp_path, '{"utt": "u", "hyps": [{"text": "a"}, {"text": "b", "am": null, "lm": null}]}')
    assert [each.acoustic for each in found.hypotheses] == [0.0, 0.0]
    assert found.notes == ('no hypothesis has an "am" score; all count as 0',)


def hyps(*each):
    return f'{{"utt": "u", "hyps": [{", ".join(each)}]}}'


BAD = {
    '{"utt": "u", "hyps": [': "no JSON at column",
    "[]": "no JSON object",
    '{"hyps": [{"text": "a", "am": 1}]}': '"utt" is missing',
    '{"utt": 7, "hyps": [{"text": "a", "am": 1}]}': '"utt" is 7',
    '{"utt": "a b", "hyps": [{"text": "a", "am": 1}]}': '"utt" is "a b"',
    '{"utt": "u"}': '"hyps" is no list',
    '{"utt": "u", "hyps": []}': '"hyps" is no list with hypotheses',
    '{"utt": "u", "hyps": "a"}': '"hyps" is no list',
    hyps("3"): "hypothesis 1 is 3, no object",
    hyps('{"am": 1}'): 'hypothesis 1 has no "text"',
    hyps('{"text": 3, "am": 1}'): "the text of hypothesis 1 is 3",
    hyps('{"text": ["a", 3], "am": 1}'): "the text of hypothesis 1 is",
    hyps('{"text": "a", "am": 1}', '{"text": "b"}'): 'hypothesis 2 has no "am"',
    hyps('{"text": "a", "am": 1, "lm": 1}', '{"text": "b", "am": 1}'): 'hypothesis 2 has no "lm"',
    hyps('{"text": "a", "am": "1"}'): '"am" of hypothesis 1 is "1", no number',
    hyps('{"text": "a", "am": true}'): '"am" of hypothesis 1 is true, no number',
    hyps('{"text": "a", "am": NaN}'): "NaN is no finite number",
    hyps('{"text": "a", "am": 0, "lm": -Infinity}'): "-Infinity is no finite number",
    hyps('{"text": "a", "am": 1e999}'): "1e999 is no finite number",
    hyps('{"text": "a", "am": ' + "9" * 350 + "}"): "too large for a number",
    hyps('{"text": "a", "am": ' + "9" * 5000 + "}"): "99999999999999999999... is no finite number",
    hyps('{"text": "a", "am": 1, "am": 2}'): 'the key "am" is there twice',
    '{"utt": "u", "ref": 3, "hyps": [{"text": "a", "am": 1}]}': "the ref is 3",
    hyps('{"text": "\\ud800", "am": 1}'): "half a character",
    "[" * 100_000: "nested too deeply",
    '{"utt": ' + "[" * 900 + "]" * 900 + "}": "",
}


@pytest.mark.parametrize("line", BAD, ids=[said or "deep" for said in BAD.values()])
def test_a_bad_line_is_named_and_the_next_one_is_read(tmp_path, line):
    good, broken, last = read(tmp_path, GOOD, line, GOOD)
    assert good == last
    assert isinstance(broken, Broken)
    assert broken.sentence.startswith(f"{tmp_path / 'nbest.jsonl'}:2: ")
    assert BAD[line] in broken.sentence
    assert len(broken.sentence) < 400


def test_bytes_that_are_no_text_and_lines_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(nbest, "LONGEST", 1000)
    path = tmp_path / "nbest.jsonl"
    path.write_bytes(b"\xff\n" + b"x" * 10_000 + b"\n" + GOOD.encode())
    encoding, long, good = nbest.read(path)
    assert encoding.sentence.startswith(f"{path}:1: byte 0 of the line is not UTF-8")
    assert long.sentence.startswith(f"{path}:2: the line is longer than 1,000 bytes")
    assert good.utterance == "good"


def test_ten_megabytes_in_a_line_are_one_sentence(tmp_path):
    start = time.process_time()
    broken, good = read(tmp_path, '{"utt": "u", "hyps": ' + "[" * 10_000_000, GOOD)
    assert time.process_time() - start < 5
    assert "nested too deeply" in broken.sentence
    assert good.utterance == "good"


def test_an_empty_and_a_cut_file(tmp_path):
    (broken,) = read(tmp_path)
    assert ":1: the file is empty" in broken.sentence
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress((GOOD + "\n").encode() * 100)[:-12])
    assert "cut off" in list(nbest.read(path))[-1].sentence


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("abü\ud7ff"),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text("abc", max_size=2), each, max_size=3),
    max_leaves=4,
)
WORDS = st.lists(st.text("abcü'\u00a0", min_size=1, max_size=3), max_size=4).map(tuple)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def lists(draw):
    has_lm = draw(st.booleans())
    extra = st.dictionaries(st.sampled_from(["score", "raw", "set"]), JSON, max_size=2)
    hypothesis = st.builds(Hypothesis, WORDS, NUMBERS, NUMBERS if has_lm else st.none(), extra)
    hypotheses = draw(st.lists(hypothesis, min_size=1, max_size=4))
    return NBest("u", tuple(hypotheses), draw(st.none() | WORDS), draw(extra))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(lists(), min_size=1, max_size=3), st.sampled_from(["n.jsonl", "n.jsonl.gz"]))
def test_read_is_the_inverse_of_write(tmp_path, given, name):
    with nbest.writer(tmp_path / name) as write:
        for each in given:
            write(each)
    assert list(nbest.read(tmp_path / name)) == given


@pytest.mark.parametrize(
    "hypothesis", [Hypothesis(("a b",), 0.0), Hypothesis(("",), 0.0), Hypothesis(("a",), float("nan"))], ids=str
)
def test_what_cannot_be_read_again_is_not_written(tmp_path, hypothesis):
    with pytest.raises(ValueError, match=r"no finite number|empty one"), nbest.writer(tmp_path / "n") as write:
        write(NBest("u", (hypothesis,)))
    assert not (tmp_path / "n").exists()


def tried(path, data):
    path.write_bytes(data)
    tracemalloc.start()
    for item in nbest.read(path):
        if isinstance(item, Broken):
            assert fuzz.one_sentence(ValueError(item.sentence), path)
        else:
            assert item.hypotheses
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_damaged_files(tmp_path):
    lines = [hyps('{"text": "a für", "am": -1.25, "lm": 3e2}', '{"text": ["b"], "am": 2, "lm": 0, "raw": "x"}'), GOOD]
    for data in fuzz.damaged("\n".join(lines * 2).encode(), fuzz.trials(200)):
        tried(tmp_path / "n", data)


KEYS = st.sampled_from(["utt", "ref", "hyps", "text", "am", "lm", "x"])
MADE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(["u", "a b"]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(KEYS, each, max_size=4),
)
HYPS = st.lists(st.fixed_dictionaries({"text": MADE}, optional={"am": MADE, "lm": MADE}), max_size=3)
LINES = MADE | st.fixed_dictionaries({"utt": st.just("u") | MADE, "hyps": HYPS | MADE}, optional={"ref": MADE})


@settings(max_examples=fuzz.trials(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES.map(json.dumps) | st.text(max_size=20), max_size=4))
def test_made_up_files(tmp_path, lines):
    tried(tmp_path / "n", "\n".join(lines).encode(errors="surrogatepass"))


SETS = {"ps-lattices": (166, 1744), "moonshine-nbest": (261, 2161)}


@pytest.mark.skipif(not ASR.is_dir(), reason="the shared n-best lists are not beside the repository")
@pytest.mark.parametrize("name", SETS)
def test_the_real_lists_are_read_and_written_again(name, tmp_path):
    found = list(nbest.read(ASR / name / "nbest.jsonl.gz"))
    assert not [each for each in found if isinstance(each, Broken)]
    references = dict(line.split(None, 1) for line in (ASR / name / "refs.txt").read_text().splitlines())
    assert {each.utterance: " ".join(each.reference) for each in found} == references
    assert (len(found), sum(len(each.reference) for each in found)) == SETS[name]
    with nbest.writer(tmp_path / "again.jsonl.gz") as write:
        for each in found:
            write(each)
    assert list(nbest.read(tmp_path / "again.jsonl.gz")) == found
