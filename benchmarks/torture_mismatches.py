"""R12: files that are whole but do not belong together: a sentence, or a warning that counts."""

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from slow_ngram import random_model, render
from torture_hostile import Place
from torture_trial import Trials, of_cases, of_tests, refused
from trials import call, recipe

import selfnorm
from selfnorm import lattices, training
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.store import Data, TokenStore
from selfnorm.lattices import transcripts
from selfnorm.vocabulary import Vocabulary

TESTS = (
    "training/test_train.py",
    "scorers/test_neural.py",
    "corpus/test_store.py",
    "ngrams/test_arpa.py",
    "cli/test_verbs.py",
    "cli/test_wer_verb.py",
    "cli/test_rescore.py",
)
CHOSEN = "another_vocabulary or another_text or makes_no_sense or foreign_config or bad_files or not_sorted"
CHOSEN += " or missing_utterances or without_a_reference or without_all_utterances or mistakes or unknown_words"
LATTICE = "VERSION=1.0\nUTTERANCE={name}\nN=3 L=3\nI=0\nI=1\nI=2\n"
LATTICE += "J=0 S=0 E=1 W={word} a=-1\nJ=1 S=0 E=1 W={word}2 a=-2\nJ=2 S=1 E=2 W={end} a=0\n"
SAID = {"a-1": "one two", "a-2": "three", "b-1": "four five"}


def _arpa(folder: Path, *marks: tuple[str, str]) -> Path:
    text = render(random_model(random.Random(1), 2, 5, 0.5))
    for old, new in marks:
        text = text.replace(old, new)
    (folder / "lm.arpa").write_text(text)
    return folder / "lm.arpa"


def _mark(old: str, new: str, folder: Path) -> None:
    refused(lambda: selfnorm.load(_arpa(folder, (old, new))), "lm.arpa", f"no {old} among the unigrams")


def _rescored(place: Place, model: str, word: str, end: str, folder: Path) -> None:
    """Words that the model does not know, or another mark of the end: rescored, and no score that is NaN."""
    (folder / "in").mkdir()
    (folder / "in" / "one.slf").write_text(LATTICE.format(name="u-1", word=word, end=end))
    given = ["--model", place.done] if model == "neural" else ["--ngram", _arpa(folder)]
    to = folder / "out"
    status, out, err = call(folder / "said", "rescore", folder / "in", "--to", to, "--json", *given)
    assert status == 0, f"{status}: {err}"
    json.loads(out, parse_constant=_no_constant)
    said = (to / "hypotheses.txt").read_text().split()
    assert said[:2] == ["u-1", word] or said[:2] == ["u-1", f"{word}2"], said


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} in the report")


def _vocabulary(place: Place, change: str, folder: Path) -> None:
    """A vocabulary that is not the model's, with all sums right."""
    words = (place.done / "vocab.txt").read_text().splitlines()
    other = {"longer": [*words, "new\t0"], "shorter": words[:-1], "turned": [*words[:-2], words[-1], words[-2]]}
    where = place.swapped(folder, "vocab.txt", ("\n".join(other[change]) + "\n").encode())
    refused(lambda: selfnorm.load(where, "cpu"), "vocab.txt is not the vocabulary the model was trained with")


def _tensors(place: Place, folder: Path) -> None:
    """A model of another size under the same config."""
    other = folder / "other"
    prepare([place.data.parent / "train.txt"], folder / "less", 50, processes=1)
    training.train(recipe(folder / "less", "ce", steps=2, save_every=2, evaluate_every=2), other)
    where = place.swapped(folder, "model.safetensors", (other / "model.safetensors").read_bytes())
    refused(lambda: selfnorm.load(where, "cpu"), "do not fit")


def _store(place: Place, folder: Path) -> None:
    """Ids made with one vocabulary, read with another."""
    prepare([place.data.parent / "train.txt"], folder / "less", 50, processes=1)
    other = Vocabulary.load(folder / "less" / "vocab.txt")
    refused(lambda: TokenStore.open(place.data / "train.ids", other), "prepared with another vocabulary")
    content = (folder / "less" / "train.ids").read_bytes()
    where = place.swapped_data(folder, "train.ids", content)
    refused(lambda: Data.open(where), "another vocabulary")


def _transcript(lines: dict[str, str], form: str) -> str:
    written = {
        "text": lambda name, words: f"{name} {words}",
        "trn": lambda name, words: f"{words} ({name})",
        "jsonl": lambda name, words: json.dumps({"utt": name, "text": words}),
    }[form]
    return "".join(written(name, words) + "\n" for name, words in lines.items())


def _twice(form: str, folder: Path) -> None:
    text = _transcript(SAID, form)
    (folder / "said").write_text(text + text.splitlines()[0] + "\n")
    refused(lambda: transcripts.read(folder / "said"), "utterance a-1 is also on line 1")


def _wer(folder: Path, said: dict[str, str], heard: dict[str, str], *more: str) -> tuple[int, str, str]:
    (folder / "said.trn").write_text(_transcript(said, "trn"))
    (folder / "heard.txt").write_text(_transcript(heard, "text"))
    return call(folder / "out", "wer", folder / "said.trn", folder / "heard.txt", "--json", *more)


def _missing(folder: Path) -> None:
    heard = {"a-1": "one two"}
    status, _, err = _wer(folder, SAID, heard)
    assert status == 2, "missing utterances were not refused"
    assert "--allow-missing" in err, err
    status, out, err = _wer(folder, SAID, heard, "--allow-missing")
    found = json.loads(out)
    assert (status, found["deletions"], found["words"]) == (0, 3, 5), f"{found}"
    assert "2 utterances are missing" in err, err


def _strangers(folder: Path) -> None:
    status, _, err = _wer(folder, SAID, SAID | {"z-9": "what"})
    assert status == 2, "a hypothesis without a reference was not refused"
    assert "z-9" in err, err


def _none_in_common(folder: Path) -> None:
    status, out, err = _wer(folder, SAID, {f"x{name}": words for name, words in SAID.items()})
    assert (status, out) == (2, ""), f"{status}: {out}"
    assert "Traceback" not in err


def _named_twice(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / f"{name}.slf").write_text(LATTICE.format(name="u-1", word="a", end="b"))
    found = list(lattices.read([folder / "one.slf", folder / "two.slf"]))
    assert [isinstance(each, lattices.Broken) for each in found] == [False, True], found


def _ids(folder: Path) -> None:
    """A words.txt that lacks an id of the lattice, and none at all."""
    (folder / "lat.txt").write_text("u \n0 1 7 1,2,\n1 0,0,\n\n")
    (folder / "words.txt").write_text("<eps> 0\na 1\n")
    for words in (folder / "words.txt", None):
        (found,) = lattices.read([folder / "lat.txt"], words=words)
        assert isinstance(found, lattices.Broken) or words is None, found


def cases(place: Place) -> dict[str, Callable[[Path], None]]:
    made: dict[str, Callable[[Path], None]] = {
        "a model of another size": partial(_tensors, place),
        "ids of another vocabulary": partial(_store, place),
        "hypotheses missing": _missing,
        "hypotheses without a reference": _strangers,
        "no utterance in common": _none_in_common,
        "two lattices of one name": _named_twice,
        "a words.txt without the ids": _ids,
    }
    for change in ("longer", "shorter", "turned"):
        made[f"a vocabulary that is {change}"] = partial(_vocabulary, place, change)
    for old, new in (("</s>", "</S>"), ("</s>", "<eos>"), ("<s>", "<bos>")):
        made[f"an ARPA file with {new}"] = partial(_mark, old, new)
    for form in ("text", "trn", "jsonl"):
        made[f"an utterance twice, {form}"] = partial(_twice, form)
    for model in ("neural", "ngram"):
        for word in ("zebra", "w0", "語"):
            for end in ("!SENT_END", "</s>", "<eos>"):
                made[f"{model}: {word} and {end} in a lattice"] = partial(_rescored, place, model, word, end)
    return made


def mismatches(folder: Path, chance: random.Random) -> Trials:
    """R12: those above, then those of the tests."""
    yield from of_cases("files", folder, cases(Place(folder / "good")))
    yield from of_tests("tests", *TESTS, chosen=CHOSEN)
