"""`selfnorm rescore` as a user meets it: every option, the files, the JSON, the exit status, the sentences."""

import gzip
import json
import math
import os
import random
import shutil
import signal
from functools import partial

import pytest
from slow_ngram import random_model, render
from spoken import LATTICE
from trials import call

from selfnorm import lattices as formats
from selfnorm.cli.rescore_inputs import unknown_words
from selfnorm.files import locked
from selfnorm.lattices.paths import best, words_of
from selfnorm.rescoring import NGRAM, Rescorer, Setting, second_pass
from selfnorm.rescoring.results import decide
from selfnorm.scorers import NGram

NAMES = ["anna_1", "anna_2", "ben_1", "ben_2", "ben_3"]


@pytest.fixture
def verb(tmp_path):
    """`selfnorm rescore ARGUMENTS`: exit status, standard output, standard error."""
    return partial(call, tmp_path / "said", "rescore")


@pytest.fixture
def slf(tmp_path):
    """Five lattices of two speakers."""
    folder = tmp_path / "slf"
    folder.mkdir()
    for n, name in enumerate(NAMES):
        (folder / f"{name}.slf").write_text(LATTICE.format(n, n + 1, n + 2, n + 3, name=name))
    return folder


@pytest.fixture
def said(tmp_path):
    path = tmp_path / "refs.txt"
    path.write_text("".join(f"{name} w{n + 1} w{n + 3}\n" for n, name in enumerate(NAMES)))
    return path


@pytest.fixture
def lm(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(render(random_model(random.Random(1), 2, 9, 0.6)))
    return path


@pytest.fixture
def kaldi(tmp_path):
    """The archive and its words.txt."""
    (tmp_path / "words.txt").write_text("<eps> 0\nw0 1\nw1 2\n</s> 3\n")
    (tmp_path / "lat.1.gz").write_bytes(gzip.compress(b"k_1\n0 1 1 1,2,\n0 1 2 2,3,\n1 0.5,0,\n\n"))
    return tmp_path / "lat.1.gz", tmp_path / "words.txt"


@pytest.fixture
def lists(tmp_path):
    path = tmp_path / "list.jsonl"
    rows = [{"text": "w1 w2", "am": -1.5, "own": 1}, {"text": "w2", "am": -2}]
    path.write_text("".join(json.dumps({"utt": f"l_{n}", "hyps": rows}) + "\n" for n in range(3)))
    return path


def first_pass(folder):
    return {each.utterance: words_of(each, best(each).arcs) for each in formats.read([folder])}


def lines(path):
    return {line.split()[0]: tuple(line.split()[1:]) for line in path.read_text().splitlines()}


def test_weight_0_is_the_first_pass(verb, slf, tmp_path, run):
    status, out, err = verb(slf, "--to", tmp_path / "out", "--model", run, "--weight", "0", "--json")
    assert (status, err) == (0, "")
    assert lines(tmp_path / "out" / "hypotheses.txt") == first_pass(slf)
    found = json.loads(out)
    assert found.keys() == {"utterances", "failed", "arcs", "seconds", "scales", "unknown"}
    assert (found["utterances"], found["failed"], found["arcs"]) == (5, 0, 30)
    assert found["scales"] == {
        "lm_scale": 2.0,  # the headers'
        "weight": 0.0,
        "word_penalty": -0.5,
        "ngram_weight": 0.5,
        "unknown_penalty": -math.log(10_000),
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "hypotheses.ctm",
        "hypotheses.trn",
        "hypotheses.txt",
        "scales.json",
    ]


def test_what_a_verb_does_a_python_user_does(verb, slf, lm, tmp_path):
    options = ["--weight", "0.5", "--lm-scale", "3", "--word-penalty", "0.25", "--unknown", "-2"]
    status, _, err = verb(slf, "--to", tmp_path / "out", "--ngram", lm, *options, "--nbest", "2")
    assert (status, err) == (0, "")
    setting = Setting(3.0, 0.5, 0.25, 0.5, -2.0)
    done = Rescorer({NGRAM: NGram.load(lm)}, setting).rescore(formats.read([slf]))
    wanted = {each.lattice.utterance: decide(each, setting) for each in done}
    assert lines(tmp_path / "out" / "hypotheses.txt") == {name: each.words for name, each in wanted.items()}
    for each in formats.read([tmp_path / "out" / "nbest.jsonl.gz"]):
        assert each.hypotheses[0].extra["score"] == pytest.approx(wanted[each.utterance].score)
        assert len(each.hypotheses) == 2


def test_errors_beside_those_of_the_first_pass(verb, slf, lm, said, tmp_path):
    arguments = [slf, "--to", tmp_path / "out", "--ngram", lm, "--references", said]
    status, out, _ = verb(*arguments, "--json")
    found = json.loads(out)["wer"]
    assert status == 0
    assert found["words"] == 10
    assert {"wer", "interval", "substitutions", "deletions", "insertions", "difference", "p"} <= found.keys()
    assert found["sets"].keys() == {"anna", "ben"}
    status, out, _ = verb(*arguments)
    assert status == 0
    assert "first pass" in out
    assert "lm scale 2.000, weight 1.000, word penalty -0.500, ngram weight 1.000" in out
    assert f"{tmp_path / 'out'}: 5 utterances, 30 arcs in " in out


def test_scales_that_no_header_says_are_told(verb, slf, lists, kaldi, lm, tmp_path):
    path = tmp_path / "scored.jsonl"
    rows = [{"text": "w1 w2", "am": -1.5, "lm": -3}, {"text": "w2", "am": -2, "lm": -2}]
    path.write_text("".join(json.dumps({"utt": f"s_{n}", "hyps": rows}) + "\n" for n in range(3)))
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "text").write_text("f_1-1 w1\nf_1-2 w2\n")
    for name in ("ac_cost", "lm_cost"):
        (folder / name).write_text("f_1-1 3.5\nf_1-2 4\n")
    for n, (given, utterance) in enumerate(((path, "s_0"), (folder, "f_1"))):
        arguments = [given, "--ngram", lm, "--to", tmp_path / f"out{n}"]
        status, out, err = verb(*arguments)
        assert (status, err.count("\n")) == (0, 1)
        assert f"{utterance}: lists do not say the scale of their LM scores; give --lm-scale" in err
        assert "lm scale 1.000, weight 1.000, word penalty 0.000" in out
        assert verb(*arguments, "--shared")[2] == err
        assert verb(*arguments, "--lm-scale", "10")[2] == ""
    assert verb(lists, "--ngram", lm, "--to", tmp_path / "out")[2] == ""  # which have none
    (slf / "anna_1.slf").write_text((slf / "anna_1.slf").read_text().replace("lmscale=2", "lmscale=5"))
    assert "lm scale 2.000 to 5.000, weight" in verb(slf, "--ngram", lm, "--to", tmp_path / "out")[1]


@pytest.mark.parametrize("shared", [[], ["--shared"]], ids=["alone", "shared"])
def test_headers_that_differ_are_told_where_tuning_begins_with_one(verb, slf, said, lm, tmp_path, shared):
    for name in ("ben_1", "ben_2"):
        path = slf / f"{name}.slf"
        path.write_text(path.read_text().replace("lmscale=2", "lmscale=5"))
    ways = [["--cross-validate", "2", "--references", said], ["--tune-on", slf, "--tune-references", said]]
    for n, way in enumerate(ways):
        given = [slf, "--ngram", lm, *way, *shared]
        status, out, err = verb(*given, "--to", tmp_path / f"out{n}", "--json")
        assert (status, err.count("\n")) == (0, 1)
        assert isinstance(json.loads(out)["scales"]["lm_scale"], float)  # tuned
        assert "ben_1 has other scales than anna_1 (LM scale 5, not 2; word penalty -0.5, not -0.5)" in err
        assert verb(*given, "--lm-scale", "3", "--to", tmp_path / f"same{n}")[2] == ""
    _, out, err = verb(slf, "--ngram", lm, "--to", tmp_path / "plain", *shared, "--json")
    assert (json.loads(out)["scales"]["lm_scale"], err) == ([2.0, 5.0], "")


def test_names_with_brackets_are_names(verb, slf, tmp_path):
    status, out, err = verb(slf, "--to", tmp_path / "[/out]")
    assert (status, err) == (0, "")
    assert "[/out]: 5 utterances" in out


def test_utterances_without_a_reference_are_counted(verb, slf, said, tmp_path):
    said.write_text("anna_1 w1\n")
    status, out, err = verb(slf, "--to", tmp_path / "out", "--references", said, "--json")
    assert (status, json.loads(out)["wer"]["words"]) == (0, 1)
    assert err == "4 utterances have no reference; their errors were not counted\n"


def test_references_that_were_not_counted_are_told(verb, slf, said, tmp_path):
    with said.open("a") as file:
        file.writelines(f"carl_{n} w1\n" for n in range(5))
    (slf / "ben_3.slf").write_text("N=1")  # broken
    status, out, err = verb(slf, "--to", tmp_path / "out", "--references", said, "--json")
    assert (status, json.loads(out)["wer"]["words"], json.loads(out)["wer"]["not_counted"]) == (1, 8, 6)
    assert err.splitlines()[1:] == [
        "6 of 10 references were not counted (ben_3, carl_0, carl_1 …): there was nothing to rescore for them that "
        "could be read; the WER is of the other 4"
    ]


def test_no_reference_for_any_utterance_is_a_mistake(verb, slf, said, tmp_path):
    said.write_text("nobody w1\n")
    status, out, err = verb(slf, "--to", tmp_path / "out", "--references", said)
    assert (status, "WER" in out) == (1, False)
    assert "anna_1 is the first utterance, nobody the first reference; name them alike" in err
    assert (tmp_path / "out" / "hypotheses.txt").exists()


def test_folds_are_tuned_and_stored(verb, slf, said, lm, tmp_path):
    status, out, _ = verb(
        slf, "--to", tmp_path / "out", "--ngram", lm, "--references", said, "--cross-validate", "2", "--json"
    )
    found = json.loads(out)
    assert status == 0
    assert len(found["folds"]) == 2
    stored = json.loads((tmp_path / "out" / "scales.json").read_text())
    assert stored == found["scales"] | {"folds": found["folds"]}
    again = [slf, "--to", tmp_path / "again", "--ngram", lm, "--scales", tmp_path / "out" / "scales.json"]
    status, out, _ = verb(*again, "--json")
    assert json.loads(out)["scales"] == found["scales"]
    _, out, _ = verb(slf, "--to", tmp_path / "out", "--ngram", lm, "--references", said, "--cross-validate", "2")
    assert "fold 1: lm scale " in out
    assert "fold 2: " in out


def test_development_data_are_tuned_on_and_not_counted(verb, slf, said, lm, lists, tmp_path):
    tuning = ["--tune-on", slf, "--tune-references", said]
    status, out, _ = verb(lists, "--to", tmp_path / "out", "--ngram", lm, *tuning, "--json")
    found = json.loads(out)
    assert (status, found["utterances"], found["arcs"]) == (0, 3, 15)
    assert found["scales"]["lm_scale"] is not None
    (slf / "bad.slf").write_text("N=1")
    status, out, err = verb(lists, "--to", tmp_path / "out", "--ngram", lm, *tuning, "--json")
    assert (status, json.loads(out)["failed"]) == (1, 1)
    assert "bad.slf" in err


def test_what_a_killed_run_wrote_does_not_stay(verb, slf, tmp_path):
    """Its lattices are there, but not yet the scales.json that has their names."""
    given = ["--output", "replaced", "--nbest", "3", "--to", tmp_path / "out"]

    def killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    assert verb(slf, *given, before=lambda: setattr(second_pass, "write_words", killed))[0] == -signal.SIGKILL
    assert (tmp_path / "out" / "lattices" / "anna_1.slf.gz").exists()
    assert verb(slf / "ben_1.slf", "--to", tmp_path / "out")[0] == 0
    names = {"hypotheses.txt", "hypotheses.trn", "hypotheses.ctm", "scales.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} <= names


def test_two_at_a_time_do_not_mix_their_results(verb, slf, tmp_path):
    with locked(tmp_path / "out"):
        status, out, err = verb(slf, "--to", tmp_path / "out")
    assert (status, out, list((tmp_path / "out").iterdir())) == (2, "", [])
    assert "out: another rescoring writes to it; wait, or give another folder" in err
    assert verb(slf, "--to", tmp_path / "out")[0] == 0


def test_errors_of_what_was_tuned_on_are_told(verb, slf, said, lm, tmp_path):
    one, other = slf / "anna_1.slf", slf / "ben_1.slf"
    cases = (([slf], [slf], 1), ([slf], [one], 1), ([one, other], [slf], 1), ([one], [other], 0))
    for given, tuned, told in cases:
        tuning = ["--ngram", lm, "--tune-references", said, *(each for path in tuned for each in ("--tune-on", path))]
        status, _, err = verb(*given, *tuning, "--references", said, "--to", tmp_path / "out")
        assert (status, err.count("--tune-on names it, too")) == (0, told)
        assert "names it" not in verb(*given, *tuning, "--to", tmp_path / "out")[2]  # nothing is counted


def test_kaldi_lattices_go_out_as_they_came(verb, kaldi, lm, tmp_path):
    archive, words = kaldi
    for kind in ("replaced", "expanded"):
        arguments = [archive, "--words", words, "--to", tmp_path / kind, "--output", kind, "--ngram", lm]
        status, _, err = verb(*arguments, "--lm-scale", "10")
        assert (status, err) == (0, "")
        text = gzip.decompress((tmp_path / kind / "lat.1.gz").read_bytes()).decode().split()
        assert text[0] == "k_1"
        (again,) = formats.read([tmp_path / kind / "lat.1.gz"], words=words)
        assert set(again.words) == {"", "w0", "w1"}  # and no </s>


@pytest.mark.parametrize("shared", [[], ["--shared"]], ids=["alone", "shared"])
def test_times_are_in_frames_of_the_given_length(verb, kaldi, tmp_path, shared):
    kaldi[0].write_bytes(gzip.compress(b"k_1\n0 1 1 1,2,5_5\n1 2 2 2,3,5_5_5\n2 0.5,0,\n\n"))
    for given, times in (([], ["0.00 0.02 w0", "0.02 0.03 w1"]), (["0.03"], ["0.00 0.06 w0", "0.06 0.09 w1"])):
        more = [each for shift in given for each in ("--frame-shift", shift)]
        out = tmp_path / f"out{len(given)}"
        assert verb(kaldi[0], "--words", kaldi[1], "--lm-scale", "10", "--to", out, *more, *shared)[::2] == (0, "")
        assert (out / "hypotheses.ctm").read_text().splitlines() == [f"k_1 1 {row}" for row in times]


def test_htk_lattices_go_out_one_by_one(verb, slf, lm, tmp_path):
    for kind in ("replaced", "expanded"):
        status, _, err = verb(slf, "--to", tmp_path / "out", "--output", kind, "--ngram", lm, "--lm-scale", "3")
        assert (status, err) == (0, "")
        names = sorted(path.name for path in (tmp_path / "out" / "lattices").iterdir())
        assert names == [f"{name}.slf.gz" for name in NAMES]
        for lattice in formats.read([tmp_path / "out" / "lattices"]):
            assert lattice.scales.lm == 3
            heard = lines(tmp_path / "out" / "hypotheses.txt")[lattice.utterance]
            assert words_of(lattice, best(lattice).arcs) == heard


def test_lists_keep_what_they_say(verb, lists, lm, tmp_path):
    status, _, _ = verb(lists, "--to", tmp_path / "out", "--ngram", lm, "--algorithm", "nbest")
    assert status == 0
    for each in formats.read([tmp_path / "out" / "nbest.jsonl.gz"]):
        assert {hypothesis.words for hypothesis in each.hypotheses} == {("w1", "w2"), ("w2",)}
        extra = next(hypothesis.extra for hypothesis in each.hypotheses if len(hypothesis.words) == 2)
        assert extra.keys() == {"own", "ngram", "score"}


SEARCHES = [
    ["--algorithm", "path_cover"],
    ["--algorithm", "exact"],
    ["--algorithm", "push_forward", "--beam", "3", "--hypotheses", "1", "--order", "1"],
    ["--hypotheses", "0", "--order", "0", "--beam", "inf", "--budget", "2"],
    ["--normalize", "--device", "cpu"],
    ["--least-risk"],
    ["--unknown", "keep"],
    ["--unknown", "share=5"],
]


@pytest.mark.parametrize("options", SEARCHES, ids=" ".join)
def test_every_way_to_search(verb, slf, run, lm, tmp_path, options):
    arguments = ["--model", run, "--ngram", lm, "--ngram-weight", "0.2", "--old-ngram", lm, "--weight", "0.5"]
    status, out, err = verb(slf, "--to", tmp_path / "out", *arguments, *options, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["utterances"] == 5
    assert len(lines(tmp_path / "out" / "hypotheses.txt")) == 5


def test_lists_by_path_cover_have_the_models_own_scores(verb, slf, lm, tmp_path):
    for weight in ("1", "0.5"):
        arguments = ["--ngram", lm, "--weight", weight, "--algorithm", "path_cover", "--nbest", "9"]
        status, _, err = verb(slf, "--to", tmp_path / "out", *arguments)
        assert (status, err) == (0, "")
        heard, scorer = lines(tmp_path / "out" / "hypotheses.txt"), NGram.load(lm)
        for each in formats.read([tmp_path / "out" / "nbest.jsonl.gz"]):
            assert heard[each.utterance] == each.hypotheses[0].words
            for hypothesis in each.hypotheses:
                assert hypothesis.extra["ngram"] == pytest.approx(sum(scorer.score(hypothesis.words)))


def test_what_path_cover_cannot_expand_is_refused(verb, slf, lm, tmp_path):
    arguments = [slf, "--to", tmp_path / "out", "--ngram", lm, "--algorithm", "path_cover", "--output"]
    status, out, err = verb(*arguments, "expanded")
    assert (status, out) == (2, "")
    assert "--output expanded keeps histories apart, and path_cover" in err
    assert verb(*arguments, "replaced")[0] == 0


@pytest.fixture(scope="session")
def streams(data, tmp_path_factory):
    from trials import recipe

    from selfnorm.training import train

    folder = tmp_path_factory.mktemp("runs") / "ce"
    train(recipe(data, "ce", steps=5), folder)  # of streams
    return folder


def test_histories_go_on_with_the_speaker(verb, slf, run, streams, tmp_path):
    (tmp_path / "utt2spk").write_text("".join(f"{name} s\n" for name in NAMES))
    carry = ["--to", tmp_path / "out", "--carry-over"]
    for more in ([], ["--speakers", tmp_path / "utt2spk"]):
        status, _, err = verb(slf, "--model", streams, *carry, *more)
        assert (status, err) == (0, "")
        assert lines(tmp_path / "out" / "hypotheses.txt").keys() == set(NAMES)
    status, _, err = verb(slf, "--model", run, *carry)
    assert status == 2
    assert "trained on streams, and this one was not" in err
    (tmp_path / "utt2spk").write_text("anna_1 s\n")
    status, _, err = verb(slf, "--model", streams, *carry, "--speakers", tmp_path / "utt2spk")
    assert status == 2
    assert "utterance anna_2 has no speaker there" in err


class TestBatch:
    """Some files are broken: they are reported and counted, the rest is done."""

    @pytest.fixture
    def broken(self, slf, kaldi):
        whole = (slf / "ben_1.slf").read_text()
        (slf / "cut.slf").write_text(whole[: len(whole) // 2])
        (slf / "cycle.slf").write_text(whole.replace("S=2 E=3", "S=2 E=0").replace("ben_1", "x"))
        (slf / "packed.slf.gz").write_bytes(gzip.compress(whole.encode())[:-20])
        (slf / "twice.slf").write_text(whole)
        (slf / "ids.ark").write_text("k\n0 1 77 1,2,\n1\n\n")
        return slf

    def test_reported_counted_and_gone_on_with(self, verb, broken, kaldi, tmp_path):
        status, out, err = verb(broken, "--words", kaldi[1], "--to", tmp_path / "out", "--json")
        found = json.loads(out)
        assert (status, found["utterances"], found["failed"]) == (1, 5, 5)
        assert len(err.splitlines()) == 5
        for name in ("cut.slf", "cycle.slf", "packed.slf.gz", "ben_1: a second utterance", "word id 77"):
            assert name in err
        assert lines(tmp_path / "out" / "hypotheses.txt") == first_pass_of_good(broken)
        _, out, _ = verb(broken, "--words", kaldi[1], "--to", tmp_path / "out")
        assert "5 utterances, 5 could not be read" in out

    def test_strict_stops_and_leaves_what_is_there(self, verb, broken, tmp_path):
        out = tmp_path / "out"
        assert verb(broken / "anna_1.slf", "--to", out, "--output", "replaced", "--nbest", "1")[0] == 0
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        status, said, err = verb(
            broken, "--to", out, "--strict", "--output", "replaced", "--nbest", "1", "--lm-scale", "7"
        )
        assert (status, said) == (2, "")
        assert err.count("\n") == 1
        assert "cut.slf" in err
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before

    def test_nothing_that_can_be_read_is_wrong_input(self, verb, broken, tmp_path):
        out = tmp_path / "out"
        out.mkdir()
        (out / "hypotheses.txt").write_text("old\n")
        status, said, err = verb(broken / "cut.slf", "--to", out)
        assert (status, said) == (2, "")
        assert "there is no utterance to rescore" in err
        assert [path.name for path in out.iterdir()] == ["hypotheses.txt"]
        assert (out / "hypotheses.txt").read_text() == "old\n"


def first_pass_of_good(folder):
    good = [each for each in formats.read([folder]) if not isinstance(each, formats.Broken)]
    return {each.utterance: words_of(each, best(each).arcs) for each in good}


def test_notes_are_told_once(verb, slf, tmp_path):
    for name in NAMES[:3]:
        path = slf / f"{name}.slf"
        path.write_text(path.read_text().replace("L=6", "L=7") + "J=6 S=3 E=3 W=!NULL\n".replace("S=3 E=3", "S=1 E=2"))
        path.write_text(path.read_text().replace("J=6 S=1 E=2 W=!NULL", "J=6 S=2 E=3 W=!SENT_END a=0 l=-1"))
    status, _, err = verb(slf, "--to", tmp_path / "out")
    assert status == 0
    assert err == (
        "anna_1: 1 arcs that repeat another in everything were left out; 2 more such notes: see `selfnorm lattice`\n"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--tune-on", "slf"], "--tune-on and --tune-references go together"),
        (["--tune-references", "refs.txt"], "--tune-on and --tune-references go together"),
        (["--cross-validate", "3"], "--cross-validate needs to know what was said; give --references"),
        (["--cross-validate", "9", "--references", "refs.txt"], "9 folds of 5 utterances were asked for"),
        (["--cross-validate", "2", "--references", "short.txt"], "4 have no reference, anna_2 the first"),
        (
            ["--cross-validate", "2", "--references", "refs.txt", "--tune-on", "slf", "--tune-references", "refs.txt"],
            "--tune-on and --cross-validate are two ways to tune; choose one",
        ),
        (["--output", "svg"], "--output 'svg': choose from replaced, expanded"),
        (["--unknown", "often"], "--unknown 'often': give keep, share=N"),
        (["--unknown", "share=0"], "--unknown 'share=0'"),
        (["--unknown", "nan"], "--unknown 'nan'"),
        (["--lm-scale", "nan"], "the lm scale is nan; give a number that is finite"),
        (["--lm-scale", "-3"], "the lm scale is -3, which would prefer the least likely words; give a number from 0"),
        (["--frame-shift", "0"], "--frame-shift 0: give the seconds of a frame, such as 0.01 or 0.03"),
        (["--frame-shift", "nan"], "--frame-shift nan: give the seconds of a frame"),
        (["--word-penalty", "inf"], "the word penalty is inf; give a number that is finite"),
        (["--algorithm", "viterbi"], "viterbi"),
        (["--algorithm", "nbest", "--ngram", "lm.arpa"], "anna_1 is a lattice and the algorithm 'nbest' takes lists"),
        (["--model", "absent"], "absent: there is no such folder; give a run"),
        (["--model", "slf"], "slf"),
        (["--ngram", "absent"], "absent: there is no such file; give an n-gram model"),
        (["--old-ngram", "lm.arpa"], "--old-ngram alone replaces nothing; give --model or --ngram too"),
        (["--references", "absent"], "absent: there is no such file; give a transcript"),
        (["--references", "slf"], "slf: is a folder, not a file; give a transcript"),
        (["--tune-on", "slf", "--tune-references", "slf"], "slf: is a folder, not a file; give a transcript"),
        (["--scales", "absent"], "absent: holds no scales"),
        (["--scales", "absent", "--lm-scale", "3"], "--scales and --lm-scale say the same thing; give one of them"),
        (["--scales", "absent", "--word-penalty", "0"], "--scales and --word-penalty say the same thing"),
        (["--scales", "absent", "--weight", "1"], "--scales and --weight say the same thing"),
        (["--scales", "absent", "--ngram-weight", "0.5"], "--scales and --ngram-weight say the same thing"),
        (["--scales", "absent", "--unknown", "-5"], "--scales and --unknown say the same thing"),
        (["--scales", "absent", "--unknown", "keep"], "absent: holds no scales"),
        (["--words", "absent"], "absent: there is no such file; give the words.txt"),
    ],
    ids=str,
)
def test_mistakes_are_one_sentence(verb, slf, said, lm, tmp_path, options, sentence):
    (tmp_path / "short.txt").write_text("anna_1 w1\n")
    files = {"slf", "refs.txt", "short.txt", "absent", "lm.arpa"}
    given = [tmp_path / each if each in files else each for each in options]
    status, out, err = verb(slf, "--to", tmp_path / "out", *given)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


EXACT = [
    ["--tune-on", "slf", "--tune-references", "refs.txt"],
    ["--cross-validate", "2", "--references", "refs.txt"],
    ["--nbest", "2"],
    ["--output", "replaced"],
    ["--output", "expanded"],
    ["--least-risk"],
]


@pytest.mark.parametrize("options", EXACT, ids=str)
def test_what_needs_several_paths_is_refused_with_exact(verb, slf, said, lm, tmp_path, options):
    given = [tmp_path / each if each in ("slf", "refs.txt") else each for each in options]
    status, out, err = verb(slf, "--to", tmp_path / "out", "--ngram", lm, "--algorithm", "exact", *given)
    assert (status, out) == (2, "")
    assert f"exact keeps one path of each lattice, and {options[0]} needs all that are good" in err
    assert verb(slf, "--to", tmp_path / "out", "--algorithm", "exact", *given)[0] == 0  # nothing is rescored


def test_lists_can_be_exact_with_all(verb, lm, tmp_path):
    """A list's hypotheses are all scored as whole sentences."""
    lists = tmp_path / "lists.jsonl"
    hyps = [{"text": text, "am": am, "lm": -1.0} for text, am in (("a b", -1.0), ("b a", -2.0))]
    lists.write_text(json.dumps({"utt": "one", "hyps": hyps}) + "\n")
    given = "--algorithm", "exact", "--nbest", "2", "--least-risk", "--lm-scale", "1"
    assert verb(lists, "--to", tmp_path / "out", "--ngram", lm, *given)[0] == 0


def test_one_best_hypothesis_can_be_exact(verb, slf, lm, tmp_path):
    assert verb(slf, "--to", tmp_path / "out", "--ngram", lm, "--algorithm", "exact", "--nbest", "1")[0] == 0


def test_a_file_where_the_folder_should_be(verb, slf, tmp_path):
    (tmp_path / "out").write_text("mine")
    status, out, err = verb(slf, "--to", tmp_path / "out")
    assert (status, out) == (2, "")
    assert str(tmp_path / "out") in err
    assert (tmp_path / "out").read_text() == "mine"


def test_policies_for_unknown_words():
    assert unknown_words("keep") == (0.0, True)
    assert unknown_words("share=100") == (-math.log(100), False)
    assert unknown_words("-4.5") == (-4.5, False)


def test_the_help_fits_and_has_panels(verb):
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "100"
    try:
        status, out, _ = verb("--help")
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    assert status == 0
    order = [out.index(f"─ {panel} ─") for panel in ("Input", "Models", "Scales", "Tuning", "Search", "Output")]
    assert order == sorted(order)
    assert max(map(len, out.splitlines())) <= 100


def test_input_is_not_written_over(verb, slf, tmp_path):
    assert "would be written over" in verb(slf, "--to", slf)[2]
    inside = tmp_path / "out" / "lattices" / "one.slf"
    inside.parent.mkdir(parents=True)
    inside.write_text(LATTICE.format(1, 2, 3, 4, name="one"))
    for given in ([inside], [slf, "--tune-on", inside, "--tune-references", slf / "anna_1.slf"]):
        assert "one.slf lies there and would be written over" in verb(*given, "--to", tmp_path / "out")[2]
    text = tmp_path / "out" / "hypotheses.txt"
    text.write_text("anna_1 w1\n")
    status, _, err = verb(slf, "--references", text, "--to", tmp_path / "out")
    assert (status, text.read_text()) == (2, "anna_1 w1\n")
    assert "hypotheses.txt lies there and would be written over" in err
    (tmp_path / "file").write_text("")
    assert "is a file; give a folder" in verb(slf, "--to", tmp_path / "file")[2]


@pytest.mark.parametrize("shared", [[], ["--shared"]], ids=["alone", "shared"])
def test_what_an_earlier_run_wrote_does_not_stay(verb, slf, kaldi, lm, tmp_path, shared):
    out = tmp_path / "out"

    def there(*arguments):
        assert verb(*arguments, "--ngram", lm, "--to", out, *shared)[0] == 0
        if shared:
            shutil.rmtree(out / "shared")
        return {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}

    always = {"hypotheses.txt", "hypotheses.trn", "scales.json"}
    timed = {*always, "hypotheses.ctm"}
    first = there(slf, "--output", "replaced", "--nbest", "2")
    assert first == {*timed, "nbest.jsonl.gz", *(f"lattices/{name}.slf.gz" for name in NAMES)}
    one = slf / "anna_1.slf"
    assert there(one, "--output", "replaced") == {*timed, "lattices/anna_1.slf.gz"}
    assert there(slf) == timed
    assert not (out / "lattices").exists()
    given = [kaldi[0], "--words", kaldi[1], "--lm-scale", "10", "--output", "replaced"]
    assert there(*given) - {"hypotheses.ctm"} == {*always, "lat.1.gz"}
    assert there(slf) == timed


def test_what_others_put_among_our_lattices_stays(verb, slf, lm, tmp_path):
    out = tmp_path / "out"
    assert verb(slf, "--ngram", lm, "--to", out, "--output", "replaced")[0] == 0
    (out / "lattices" / "mine.slf.gz").write_text("mine")
    assert verb(slf, "--ngram", lm, "--to", out)[0] == 0
    assert [path.name for path in (out / "lattices").iterdir()] == ["mine.slf.gz"]


def test_a_link_to_what_would_be_written_over_is_refused(verb, slf, lm, tmp_path):
    out, links = tmp_path / "out", tmp_path / "links"
    assert verb(slf, "--ngram", lm, "--to", out, "--output", "replaced")[0] == 0
    links.mkdir()
    (links / "one.slf.gz").symlink_to(next((out / "lattices").iterdir()))
    assert "would be written over" in verb(links, "--ngram", lm, "--to", out)[2]


def test_what_others_left_there_stays(verb, slf, lm, tmp_path):
    out = tmp_path / "out"
    (out / "lattices").mkdir(parents=True)
    for name in ("nbest.jsonl.gz", "lat.1.gz", "lattices/mine.slf.gz", "notes"):
        (out / name).write_text("mine")
    for more in ([], ["--output", "replaced"], []):
        assert verb(slf, "--ngram", lm, "--to", out, *more)[0] == 0
        for name in ("nbest.jsonl.gz", "lat.1.gz", "lattices/mine.slf.gz", "notes"):
            assert (out / name).read_text() == "mine"


def test_a_device_that_is_not_there(verb, slf, tmp_path, run):
    status, _, err = verb(slf, "--to", tmp_path / "out", "--model", run, "--device", "nowhere")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("selfnorm: --device nowhere: cannot be used here")
