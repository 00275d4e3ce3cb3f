"""N-best lists as folders of ESPnet and Kaldi."""

import gzip

import pytest

from selfnorm.lattices import nbest_folders
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.nbest import Hypothesis, NBest

ESPNET = {
    "1best_recog/text": "u1 a b\nu2 c\nu3\n",
    "1best_recog/score": "u1 tensor(-1.5000)\nu2 -2e0\nu3 tensor(-3.25, device='cuda:0')\n",
    "1best_recog/token": "u1 a b\nu2 c\n",
    "2best_recog/text": "u1 a\nu3 d e\n",
    "2best_recog/score": "u1 tensor(-2.5)\nu3 -4\n",
    "10best_recog/text": "",
    "10best_recog/score": "",
} | {f"{place}best_recog/{name}": "" for place in range(3, 10) for name in ("text", "score")}
KALDI = {
    "words_text": "x-1-1 a b\nx-1-2 a\ny-1\n",
    "acwt": "x-1-1 100.5\nx-1-2 90\ny-1 3.25\n",
    "lmwt.withlm": "x-1-1 7\nx-1-2 8.5\ny-1 -1\n",
    "lmwt.nolm": "x-1-1 1\nx-1-2 2\ny-1 3\n",
}


def folder(path, files, **changes):
    for name, text in (files | changes).items():
        if text is None:
            continue
        (path / name).parent.mkdir(exist_ok=True, parents=True)
        (path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_espnet_has_a_folder_for_each_place(tmp_path):
    path = folder(tmp_path, ESPNET)
    assert nbest_folders.is_folder(path)
    assert list(nbest_folders.read(path)) == [
        NBest("u1", (Hypothesis(("a", "b"), -1.5), Hypothesis(("a",), -2.5))),
        NBest("u2", (Hypothesis(("c",), -2.0),)),
        NBest("u3", (Hypothesis((), -3.25), Hypothesis(("d", "e"), -4.0))),
    ]


@pytest.mark.parametrize(
    ("changes", "utterance", "said"),
    [
        ({"2best_recog/score": "u3 -4\n"}, "u1", "2best_recog/score: 'u1' has no line here"),
        ({"2best_recog/text": "u1 a\n"}, "u3", "2best_recog/text: 'u3' has a score but no text"),
        ({"1best_recog/score": "u1 x\nu2 -2\nu3 -3\n"}, "u1", "1best_recog/score:1: 'x' is no finite number"),
        ({"1best_recog/score": "u1 nan\nu2 -2\nu3 -3\n"}, "u1", "'nan' is no finite number"),
        ({"1best_recog/score": "u1 1.2.3\nu2 -2\nu3 -3\n"}, "u1", "'1.2.3' is no finite number"),
        (
            {"3best_recog/text": "u2 d\n", "3best_recog/score": "u2 -4\n"},
            "u2",
            "3best_recog/text: 'u2' is here, but not in",
        ),
        ({"2best_recog/text": "u1 a\nu3 b\nu4 d\n"}, "u4", "2best_recog/text: 'u4' is here, but not in"),
    ],
)
def test_espnet_utterances_that_lack_something_are_named(tmp_path, changes, utterance, said):
    found = list(nbest_folders.read(folder(tmp_path, ESPNET, **changes)))
    (broken,) = (each for each in found if isinstance(each, Broken))
    assert broken.utterance == utterance
    assert said in broken.sentence
    assert len([each for each in found if isinstance(each, NBest)]) >= 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"1best_recog/score": None}, "1best_recog: there is no score"),
        (
            {"1best_recog/text": None, "1best_recog/score": None, "1best_recog/token": None},
            "has 2best_recog, but no 1best",
        ),
        ({"1best_recog/text": "u1 a\nu1 b\n"}, "1best_recog/text:2: 'u1' is on line 1 too"),
    ],
)
def test_espnet_folders_that_lack_a_file_are_one_sentence(tmp_path, changes, said):
    (broken,) = nbest_folders.read(folder(tmp_path, ESPNET, **changes))
    assert broken.utterance == tmp_path.name
    assert said in broken.sentence


def kaldi(path, *, words="words_text", acoustic="acwt", graph="lmwt.withlm", packing=""):
    names = {words: "words_text", acoustic: "acwt", graph: "lmwt.withlm"}
    return folder(path, {name + packing: KALDI[content] for name, content in names.items()})


@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize(
    "names",
    [
        {},
        {"words": "text", "acoustic": "ac_cost", "graph": "lm_cost"},
        {"words": "words", "graph": "lmwt"},
    ],
    ids=["rnnlmrescore.sh", "costs", "plain"],
)
def test_kaldi_has_a_file_for_each_column_and_costs(tmp_path, names, packing):
    path = kaldi(tmp_path, packing=packing, **names)
    assert nbest_folders.is_folder(path)
    assert list(nbest_folders.read(path)) == [
        NBest("x-1", (Hypothesis(("a", "b"), -100.5, -7.0), Hypothesis(("a",), -90.0, -8.5))),
        NBest("y", (Hypothesis((), -3.25, 1.0),)),
    ]


def test_kaldi_without_lm_scores_and_with_the_graph_s_own(tmp_path):
    files = {name: KALDI[name] for name in ("words_text", "acwt", "lmwt.nolm")}
    first, second = nbest_folders.read(folder(tmp_path, files))
    assert [each.lm for each in first.hypotheses] == [None, None]
    assert [each.extra for each in (*first.hypotheses, *second.hypotheses)] == [
        {"no_lm": -1},
        {"no_lm": -2},
        {"no_lm": -3},
    ]


def test_kaldi_ids_go_through_words_txt(tmp_path):
    path = folder(tmp_path / "nbest", {"words": "u-1 5 0 7\n", "acwt": "u-1 1\n"})
    (broken,) = nbest_folders.read(path)
    assert f"{path / 'words'}: its words are ids, such as 7; give the words.txt" in broken.sentence
    (tmp_path / "words.txt").write_text("<eps> 0\na 5\nb 7\n")
    (found,) = nbest_folders.read(path, words=tmp_path / "words.txt")
    assert found.hypotheses == (Hypothesis(("a", "b"), -1.0),)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"acwt": "x-1-1 1\ny-1 2\n"}, "acwt: 'x-1-2' has no line here"),
        ({"lmwt.withlm": "x-1-1 1\ny-1 2\n"}, "lmwt.withlm: 'x-1-2' has no line here"),
        ({"words_text": "x-1-1 a\ny-1\n"}, "words_text: 'x-1-2' has no line here"),
        ({"words_text": "x-1-1 a\nx-1-3 b\ny-1\n", "acwt": "x-1-1 1\nx-1-3 1\ny-1 2\n"}, "words_text: 'x-1-2' has no"),
        ({"acwt": "x-1-1 1\nx-1-2 inf\ny-1 2\n"}, "acwt:2: 'inf' is no finite number"),
    ],
)
def test_kaldi_utterances_that_lack_something_are_named(tmp_path, changes, said):
    broken, good = nbest_folders.read(folder(tmp_path, KALDI, **changes))
    assert broken.utterance == "x-1"
    assert said in broken.sentence
    assert good.utterance == "y"


def test_names_without_a_number_are_no_list(tmp_path):
    (broken,) = nbest_folders.read(folder(tmp_path, {"text": "utt a b\n", "acwt": "utt 1\n"}))
    assert "text:1: 'utt' is no utterance-1, utterance-2, ..." in broken.sentence


def test_the_limits_of_a_sentence_are_no_words(tmp_path):
    marked = folder(tmp_path / "kaldi", KALDI, words_text="x-1-1 <s> a b </s>\nx-1-2 a </s>\ny-1 <s> </s>\n")
    assert list(nbest_folders.read(marked)) == list(nbest_folders.read(folder(tmp_path / "plain", KALDI)))
    marked = folder(tmp_path / "espnet", ESPNET, **{"2best_recog/text": "u1 <s> a </s>\nu3 d e </s>\n"})
    assert list(nbest_folders.read(marked)) == list(nbest_folders.read(folder(tmp_path / "other", ESPNET)))


def test_other_folders_are_none(tmp_path):
    assert not nbest_folders.is_folder(tmp_path)
    assert not nbest_folders.is_folder(folder(tmp_path / "data", {"text": "u a\n"}))
    assert not nbest_folders.is_folder(tmp_path / "data" / "text")
    assert not nbest_folders.is_folder(tmp_path / "absent")
