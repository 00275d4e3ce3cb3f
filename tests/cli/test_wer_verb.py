"""`selfnorm wer` as a user meets it: lines, tables, alignments, JSON, and the sentence for each mistake."""

import json
import subprocess
import sys
from functools import partial
from io import StringIO

import pytest
import sclite
from rich.console import Console
from spoken import LATTICE
from trials import call

from selfnorm.bootstrap import bootstrap, compare
from selfnorm.cli.alignment import aligned
from selfnorm.cli.wer import kaldi_lines, score
from selfnorm.lattices.transcripts import read, set_of, write_text, write_trn
from selfnorm.wer import Errors, align, count

SAID = {
    "x_1": "the cat sat on the mat",
    "x_2": "a dog barked",
    "y_1": "she sells sea shells",
    "y_2": "nothing to be done",
    "y_3": "",
}
HEARD = SAID | {"x_1": "the cat sat on mat", "x_2": "a fog barked", "y_1": "he cells sea shells today", "y_3": "uh"}
BETTER = SAID | {"y_1": "she cells sea shells"}
SPEAKERS = {"x_1": "anna", "x_2": "ben", "y_1": "anna", "y_2": "ben", "y_3": "ben"}


@pytest.fixture
def verb(tmp_path):
    return partial(call, tmp_path / "said", "wer")


@pytest.fixture
def files(tmp_path):
    def words(texts):
        return {name: text.split() for name, text in texts.items()}

    write_text(tmp_path / "references", words(SAID))
    write_trn(tmp_path / "heard.trn", words(HEARD))
    write_text(tmp_path / "better.txt", words(BETTER))
    write_text(tmp_path / "utt2spk", words(SPEAKERS))
    lists = [
        {"utt": name, "hyps": [{"text": text, "am": -1.0}, {"text": BETTER[name], "am": -2.0}]}
        for name, text in HEARD.items()
    ]
    (tmp_path / "lists.jsonl").write_text("\n".join(map(json.dumps, lists)) + "\n")
    return tmp_path


def errors_of(texts, names=tuple(SAID)):
    return [count(SAID[name].split(), texts[name].split()) for name in names]


def test_kaldis_lines_come_first(verb, files):
    status, out, err = verb(files / "references", files / "heard.trn")
    assert (status, err) == (0, "")
    assert out.splitlines()[:2] == ["%WER 35.29 [ 6 / 17, 2 ins, 1 del, 3 sub ]", "%SER 80.00 [ 4 / 5 ]"]


def test_the_table_has_sets_and_all(verb, files):
    out = verb(files / "references", files / "heard.trn")[1]
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.split()}
    assert rows["x"][:6] == ["2", "9", "1", "1", "0", "22.22"]
    assert rows["y"][:6] == ["3", "8", "2", "0", "2", "50.00"]
    interval = bootstrap(errors_of(HEARD))
    assert rows["all"] == ["5", "17", "3", "1", "2", "35.29", f"{interval.low:.2f}", "…", f"{interval.high:.2f}"]


def test_the_worst_come_with_alignments(verb, files):
    out = verb(files / "references", files / "heard.trn", "--worst", 2)[1]
    worst = out[out.index("Most errors") :].splitlines()
    assert worst[2:] == [
        "y_1  3 errors (2 sub, 1 ins) in 4 words",
        "  reference   SHE SELLS sea shells *****",
        "  hypothesis  HE  CELLS sea shells TODAY",
        "              S   S                I",
        "",
        "y_3  1 error (1 ins) in 0 words",
        "  reference   **",
        "  hypothesis  UH",
        "              I",
    ]
    assert "Most errors" not in verb(files / "references", files / "heard.trn", "--worst", 0)[1]
    assert "Most errors" not in verb(files / "references", files / "references")[1]


def test_case_counts_unless_it_is_ignored(verb, files):
    loud = {name: text.upper().split() for name, text in HEARD.items()}
    write_text(files / "loud", loud)
    status, out, err = verb(files / "references", files / "loud", "--worst", 1)
    assert (status, out.split()[1]) == (0, "111.76")
    wanted = "loud: 13 words differ from the reference only in case; --ignore-case takes them for right\n"
    assert err.endswith(wanted)
    assert "ON  THE mat\n  hypothesis  *** THE CAT SAT ON  MAT\n" in out
    arguments = files / "references", files / "loud", "--ignore-case"
    assert verb(*arguments) == (0, verb(files / "references", files / "heard.trn")[1], "")
    quiet = verb(*arguments, "--against", files / "loud", "--oracle", files / "lists.jsonl", "--json")
    found = json.loads(quiet[1])
    assert (found["difference"], found["oracle"]["wer"], quiet[2]) == (0, pytest.approx(100 / 17), "")


def test_case_is_ignored_in_lattices(verb, files):
    (files / "one").write_text("u the zebra\n")
    (files / "u.slf").write_text(
        LATTICE.format("A", "THE", "b", "C", name="u").replace("=w", "=").replace("zeb", "Zeb")
    )
    arguments = files / "one", files / "one", "--oracle", files / "u.slf", "--json"
    assert json.loads(verb(*arguments)[1])["oracle"]["substitutions"] == 2
    assert json.loads(verb(*arguments, "--ignore-case")[1])["oracle"]["wer"] == 0


STM = """\
c1 A s1 0.0 2.0 <o,f0> hello there world
c1 A s1 2.0 4.0 <o,f0> ignore_time_segment_in_scoring
c1 A s1 4.0 6.0 <o,f0> good bye
c1 B s2 0.0 4.0 <o,f1> yes of course
c2 A s1 0.0 4.0 <o,f1> so they say
"""
CTM = """\
c1 A 0.1 0.3 hello
c1 A 0.5 0.3 their
c1 A 1.0 0.3 world
c1 A 2.1 0.3 junk
c1 A 4.5 0.3 good
c1 A 6.5 0.3 outside
c1 B 0.5 0.3 yes
c1 B 1.0 0.3 of
c1 B 1.5 0.3 coarse
c2 A 0.5 0.3 so
c2 A 1.5 0.3 they
"""


def test_stm_against_ctm(verb, files):
    (files / "r.stm").write_text(STM)
    (files / "h.ctm").write_text(CTM)
    found = json.loads(verb(files / "r.stm", files / "h.ctm", "--json")[1])
    counts = [found[name] for name in ("words", "substitutions", "deletions", "insertions")]
    assert counts == [11, 3, 1, 0]
    if (program := sclite.found()) is not None:
        command = [program, "-r", files / "r.stm", "stm", "-h", files / "h.ctm", "ctm", "-o", "pra", "stdout"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        theirs = [map(int, line.split()[-4:]) for line in said.splitlines() if line.startswith("Scores:")]
        assert [sum(column) for column in zip(*theirs)] == [7, *counts[1:]]


def test_a_silent_channel_is_missing_under_its_own_name(verb, files):
    (files / "r.stm").write_text(STM)
    (files / "h.ctm").write_text("".join(line for line in CTM.splitlines(True) if " B " not in line))
    assert "are missing: c1_B; add them" in verb(files / "r.stm", files / "h.ctm")[2]


def test_json_has_the_keys_that_scripts_rely_on(verb, files):
    found = json.loads(verb(files / "references", files / "heard.trn", "--json")[1])
    interval = bootstrap(errors_of(HEARD))
    counts = {"substitutions": 3, "deletions": 1, "insertions": 2, "words": 17, "utterances": 5, "wrong": 4}
    assert found.items() >= counts.items()
    assert found["wer"] == pytest.approx(100 * 6 / 17)
    assert found["interval"] == [interval.low, interval.high]
    assert found["sets"]["y"]["wer"] == 50
    assert not {"difference", "p", "oracle"} & found.keys()


def test_two_systems(verb, files):
    arguments = files / "references", files / "heard.trn", "--against", files / "better.txt"
    found = json.loads(verb(*arguments, "--json")[1])
    wanted = compare(errors_of(HEARD), errors_of(BETTER))
    assert found["difference"] == pytest.approx(100 * 5 / 17) == pytest.approx(wanted.difference)
    assert found["difference_interval"] == [wanted.interval.low, wanted.interval.high]
    assert found["p"] is None  # 5 utterances say nothing
    assert found["against"]["substitutions"] == 1
    assert found["sets"]["x"]["difference"] == pytest.approx(100 * 2 / 9)
    out = verb(*arguments, "--worst", 1)[1]
    assert f"against {files / 'better.txt'}" in out
    assert [line for line in out.splitlines() if line.startswith(" all")][1].split()[1:4] == ["35.29", "5.88", "+29.41"]
    assert "Changed most: 0 utterances are better, 4 worse" in out
    assert "y_1  +2  3 errors (2 sub, 1 ins) against 1 error (1 sub)" in out
    assert "  reference   she SELLS sea shells\n  against     she CELLS sea shells\n" in out


@pytest.mark.parametrize("utterances", [9, 10])
def test_a_p_needs_ten_utterances(utterances):
    said = {f"u-{n}": ("a", "b") for n in range(utterances)}
    heard, other = (dict.fromkeys(said, words) for words in (("a", "b"), ("a", "c")))
    _, total = score(said, heard, dict.fromkeys(said, ""), other)
    assert (total.comparison.p is None) == (utterances < 10)
    assert total.comparison.difference == -50


def test_sets_are_speakers(verb, files):
    arguments = files / "references", files / "heard.trn", "--speakers", files / "utt2spk", "--json"
    found, drawn = (json.loads(verb(*arguments, *more)[1]) for more in ((), ("--by-speaker",)))
    assert found["sets"].keys() == {"anna", "ben"}
    assert found["sets"]["anna"]["words"] == 10
    groups = [SPEAKERS[name] for name in SAID]
    interval = bootstrap(errors_of(HEARD), groups=groups)
    assert found["interval"] != drawn["interval"] == [interval.low, interval.high]


def test_the_oracle_of_a_list(verb, files):
    arguments = files / "references", files / "lists.jsonl", "--oracle", files / "lists.jsonl"
    status, out, err = verb(*arguments, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert found["wer"] == pytest.approx(100 * 6 / 17)
    assert found["oracle"]["wer"] == pytest.approx(100 / 17)
    assert found["sets"]["x"]["oracle"]["wer"] == 0
    assert "oracle %" in verb(*arguments)[1]


def test_an_oracle_without_all_utterances(verb, files):
    lines = (files / "lists.jsonl").read_text().splitlines()
    (files / "few.jsonl").write_text("\n".join(lines[:3]) + "\n")
    (files / "broken.jsonl").write_text("\n".join([*lines[:-2], '{"utt": "y_2"}', lines[-1]]) + "\n")
    status, out, err = verb(files / "references", files / "heard.trn", "--oracle", files / "few.jsonl")
    assert (status, out) == (2, "")
    assert "few.jsonl: 2 of the 5 utterances in" in err
    assert "have no lattice: y_2, y_3; add them" in err
    status, out, err = verb(files / "references", files / "heard.trn", "--oracle", files / "broken.jsonl", "--json")
    assert status == 1  # part of the work failed
    assert "broken.jsonl:4" in err
    assert "1 utterances have no lattice; in the oracle their words count as deletions" in err
    assert json.loads(out)["oracle"]["deletions"] == 4


def test_missing_utterances_are_refused_or_counted(verb, files):
    some = {name: HEARD[name].split() for name in ("x_2", "y_2", "y_3")} | {"z_9": ["what"]}
    write_text(files / "some", some)
    status, _, err = verb(files / "references", files / "some")
    assert status == 2
    assert "some: 2 of the 5 utterances in" in err
    assert "are missing: x_1, y_1; add them, or count their words as deletions with --allow-missing" in err
    status, out, err = verb(files / "references", files / "some", "--allow-missing", "--json")
    assert status == 0
    assert "2 utterances are missing; their words count as deletions" in err
    assert "1 utterances have no reference; they are left out" in err
    found = json.loads(out)
    assert (found["missing"], found["left_out"], found["deletions"], found["words"]) == (2, 1, 10, 17)


def test_hypotheses_without_a_reference_are_refused(verb, files):
    write_text(files / "more", {name: text.split() for name, text in (HEARD | {"z_9": "what"}).items()})
    status, out, err = verb(files / "references", files / "more")
    assert (status, out) == (2, "")
    assert "more: 1 utterances have no reference in" in err
    assert ": z_9; add one for each, or leave them out with --allow-missing" in err


@pytest.mark.parametrize(
    ("files_and_options", "sentence"),
    [
        (("references", "none"), "none: there is no such file; give a transcript"),
        (("references", "strangers"), "strangers: has s_1 where "),
        (("references", "heard.trn", "--by-speaker"), "--by-speaker needs to know the speakers"),
        (("references", "heard.trn", "--speakers", "better.txt"), "better.txt: utterance x_1 has 6 speakers"),
        (("references", "heard.trn", "--speakers", "strangers"), "strangers: utterance x_1 has 0 speakers"),
    ],
)
def test_mistakes_are_sentences(verb, files, files_and_options, sentence):
    write_text(files / "strangers", {"s_1": ["hello"]})
    status, out, err = verb(*(each if each.startswith("--") else files / each for each in files_and_options))
    assert (status, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err


def test_no_words_at_all(verb, files):
    write_text(files / "silence", {"a": ()})
    write_text(files / "noise", {"a": ("uh",)})
    status, out, _ = verb(files / "silence", files / "noise", "--json")
    assert status == 0
    assert json.loads(out)["wer"] is None
    assert json.loads(out)["interval"] is None
    assert verb(files / "silence", files / "noise", "--against", files / "silence")[0] == 0
    found = json.loads(verb(files / "silence", files / "noise", "--against", files / "silence", "--json")[1])
    assert [found[key] for key in ("wer", "interval", "difference", "difference_interval", "p")] == 5 * [None]


def test_it_starts_at_once(files):
    """PyTorch takes seconds to import; counting words does not need it."""
    code = (
        "import sys\nfrom selfnorm.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules"
    )
    for more in ([], ["--json"]):
        command = [sys.executable, "-c", code, "wer", files / "references", files / "heard.trn", *more]
        subprocess.run(command, check=True, capture_output=True)


def test_names_of_sets():
    assert [set_of(name) for name in ("so762-test_01_2", "1089-134686-0000", "solo")] == ["so762-test", "1089", "solo"]


def test_one_set_for_each_utterance_is_no_set():
    said = {"a": ("x",), "b": ("y",)}
    assert score(said, said, {"a": "a", "b": "b"})[0] == {}


def test_kaldis_lines_without_utterances():
    assert list(kaldi_lines(Errors())) == ["%WER 0.00 [ 0 / 0, 0 ins, 0 del, 0 sub ]", "%SER 0.00 [ 0 / 0 ]"]


def test_alignments_are_cut_to_the_terminal_and_coloured():
    pairs = align(["one", "two", "three", "four", "five", "six"], ["one", "too", "three", "five", "six", "seven"])
    console = Console(width=30, force_terminal=True, color_system="standard", record=True, file=StringIO())
    for line in aligned(pairs, 30):
        console.print(line, soft_wrap=True)
    coloured = console.export_text(styles=True, clear=False)
    assert console.export_text().splitlines() == [
        "  reference   one TWO three",
        "  hypothesis  one TOO three",
        "                  S",
        "  reference   FOUR five six",
        "  hypothesis  **** five six",
        "              D",
        "  reference   *****",
        "  hypothesis  SEVEN",
        "              I",
    ]
    for colour, word in (("33", "TOO"), ("31", "FOUR"), ("36", "SEVEN")):
        assert f"\x1b[{colour}m{word}" in coloured


def test_wide_letters_stay_in_their_columns():
    lines = [line.plain for line in aligned([("日本", "日"), ("x", "x")], None)]
    assert lines == ["  reference   日本 x", "  hypothesis  日   x", "              S"]


def test_names_in_brackets_are_no_markup(verb, files):
    said = {"[red]_1": ("a",), "[red]_2": ("b",), "b_1": ("c",)}
    write_text(files / "odd", said)
    assert read(files / "odd") == said
    assert " [red] " in verb(files / "odd", files / "odd")[1]
