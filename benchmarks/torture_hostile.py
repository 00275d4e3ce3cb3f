"""R10: files that would run a command or leave their folder. Each is refused or harmless, and nothing is ever run."""

import io
import json
import pickle
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import torch
from comparing import toy
from faults import Evil
from slow_ngram import random_model, render
from torture_trial import Trials, of_cases, of_tests, refused
from trials import call, make_data, recipe

import selfnorm
from selfnorm import lattices, manifest, run, training
from selfnorm.corpus.store import Data
from selfnorm.files import sha256
from selfnorm.lattices import drawing, transcripts
from selfnorm.recipe import load, to_toml
from selfnorm.vocabulary import END

TESTS = (
    "test_run.py",
    "test_checkpoint.py",
    "test_tensorfile.py",
    "corpus/test_store.py",
    "lattices/test_drawing.py",
    "cli/test_wer_verb.py",
    "cli/test_rescore.py",
)
CHOSEN = "hostile or links or swapped or run_nothing or whatever_they_are or brackets"
SCRIPT = "<script>alert(1)</script>"
LATTICE = "VERSION=1.0\nUTTERANCE={name}\nN=2 L=2\nI=0\nI=1\nJ=0 S=0 E=1 W={word} a=-1\nJ=1 S=0 E=1 W=b a=-2\n"


class Place:
    """A run and its data, as good as they come, and a command that must never run."""

    def __init__(self, folder: Path) -> None:
        self.data = make_data(folder / "text")
        self.recipe = recipe(self.data, "ce", steps=4, save_every=2, evaluate_every=2)
        self.done, self.sentinel = folder / "done", folder / "sentinel"
        training.train(self.recipe, self.done)
        self.pickle = pickle.dumps(Evil(self.sentinel))
        packed = io.BytesIO()
        torch.save({"weight": Evil(self.sentinel)}, packed)
        self.pt = packed.getvalue()

    def run(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.done, folder / "run"))

    def swapped(self, folder: Path, name: str, content: bytes) -> Path:
        """A run one of whose files is another, with all sums right."""
        where = self.run(folder)
        run.save_files(where, {name: content})
        return where

    def swapped_data(self, folder: Path, name: str, content: bytes) -> Path:
        where = Path(shutil.copytree(self.data, folder / "data"))
        (where / name).write_bytes(content)
        entries = {path.name: manifest.Entry(path.stat().st_size, sha256(path)) for path in where.iterdir()}
        entries.pop("manifest.json", None)
        (where / "manifest.json").write_bytes(manifest.render(entries))
        return where


def cases(place: Place) -> dict[str, Callable[[Path], None]]:
    evil, pt = place.pickle, place.pt
    code = f"__import__('os').system('touch {place.sentinel}')"
    shell = f"$(touch {place.sentinel}); `touch {place.sentinel}`"
    made: dict[str, Callable[[Path], None]] = {}
    for kind, content in (("a pickle", evil), ("a .pt file", pt)):
        for name in ("model.safetensors", "config.json", "vocab.txt"):
            made[f"{kind} as {name} of a run"] = partial(_run, place, name, content)
        for name in ("train.ids", "valid.ids", "vocab.txt"):
            made[f"{kind} as {name} of the data"] = partial(_data, place, name, content)
        for name in ("tensors.safetensors", "state.json", "manifest.json"):
            made[f"{kind} as {name} of a checkpoint"] = partial(_checkpoint, place, name, content)
        made[f"{kind} as a recipe"] = partial(_recipe, content)
        made[f"{kind} as an ARPA file"] = partial(_verb, place, "lm.arpa", content)
        made[f"{kind} as a run"] = partial(_verb, place, "model.pt", content)
        made[f"{kind} as an index beside an ARPA file"] = partial(_index, content)
        made[f"{kind} as a lattice"] = partial(_lattice, "one.slf", content)
        made[f"{kind} as an n-best list"] = partial(_lattice, "list.jsonl", content)
        made[f"{kind} as a transcript"] = partial(_transcript, content)
    for key in ("criterion", "sampler", "model", "optimizer", "schedule", "batches"):
        made[f"code as the name of {key}"] = partial(_named, place, key, code)
    made["a shell command as the data of a recipe"] = partial(_shell, place, shell)
    for name in ("../secret", "/etc/hostname", "..", "a/../../b"):
        made[f"{name} in the manifest of a run"] = partial(_listed, place.done, run.verify, name)
        made[f"{name} in the manifest of the data"] = partial(_listed, place.data, Data.open, name)
        made[f"{name} as the name of an utterance"] = partial(_utterance, name)
    for key in ("model", "options", "histories"):
        made[f"code as {key} of config.json"] = partial(_config, place, key, code)
    for name in ("model.safetensors", "vocab.txt", "config.json", "manifest.json"):
        made[f"a link as {name} of a run"] = partial(_link, place.done, name, lambda path: selfnorm.load(path, "cpu"))
    for name in ("train.ids", "vocab.txt", "manifest.json"):
        made[f"a link as {name} of the data"] = partial(_link, place.data, name, Data.open)
    made["a folder of torch.distributed.checkpoint as a run"] = partial(_folder, evil)
    made["a script in a word of a drawing"] = _drawn
    for word in (SCRIPT, "[red]x[/red]", "[link=file:///etc/passwd]x[/link]", "\x1b]0;x\x07\x1b[2J"):
        made[f"{word!r} in a table of errors"] = partial(_table, word)
    return {name: _watched(case, place.sentinel) for name, case in made.items()}


def _watched(case: Callable[[Path], None], sentinel: Path) -> Callable[[Path], None]:
    def watched(folder: Path) -> None:
        try:
            case(folder)
        finally:
            ran = sentinel.exists()
            sentinel.unlink(missing_ok=True)
        assert not ran, "the command was run"

    return watched


def _run(place: Place, name: str, content: bytes, folder: Path) -> None:
    where = place.swapped(folder, name, content)
    refused(lambda: selfnorm.load(where, "cpu"), name)


def _data(place: Place, name: str, content: bytes, folder: Path) -> None:
    where = place.swapped_data(folder, name, content)
    refused(lambda: training.train(recipe(where, "ce", steps=2), folder / "new"), name)


def _checkpoint(place: Place, name: str, content: bytes, folder: Path) -> None:
    """The newest is refused aloud, and the one before it goes on."""
    where, told = place.run(folder), []
    newest = max((where / "checkpoints").glob("step-*"))
    contents = {each.name: each.read_bytes() for each in newest.iterdir()} | {name: content}
    listed = {each: data for each, data in contents.items() if each != "manifest.json"}
    for each, data in contents.items():
        (newest / each).write_bytes(data)
    if name != "manifest.json":
        entries = {each: manifest.Entry(len(data), sha256(newest / each)) for each, data in listed.items()}
        (newest / "manifest.json").write_bytes(manifest.render(entries))
    training.train(place.recipe, where, watcher=training.Watcher(say=told.append))
    assert any(newest.name in each for each in told), f"nobody told of {newest.name}: {told}"


def _recipe(content: bytes, folder: Path) -> None:
    (folder / "recipe.toml").write_bytes(content)
    refused(lambda: load(folder / "recipe.toml"), "recipe.toml")


def _verb(place: Place, name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    status, out, err = call(folder / "said", "evaluate", folder / name, place.data.parent / "valid.txt")
    assert (status, out, err.count("\n")) == (2, "", 1), f"{status}: {out}{err}"
    assert name in err, err


def _index(content: bytes, folder: Path) -> None:
    path = folder / "lm.arpa"
    path.write_text(render(random_model(random.Random(1), 2, 5, 0.5)))
    wanted = selfnorm.load(path).score("w0 w1")
    (folder / "lm.arpa.index").write_bytes(content)
    assert selfnorm.load(path).score("w0 w1") == wanted


def _lattice(name: str, content: bytes, folder: Path) -> None:
    (folder / name).write_bytes(content)
    found = list(lattices.read([folder / name]))
    assert all(isinstance(each, lattices.Broken) and name in each.sentence for each in found), found
    assert found, "nothing was said"


def _transcript(content: bytes, folder: Path) -> None:
    (folder / "heard.trn").write_bytes(content)
    refused(lambda: transcripts.read(folder / "heard.trn"), "heard.trn")


def _named(place: Place, key: str, code: str, folder: Path) -> None:
    text = to_toml(recipe(place.data, "mode3", steps=4)) + f'\n[{key}]\nname = "{code}"\n'
    text = "\n".join(line for line in text.splitlines() if not line.startswith(f"{key} ="))
    (folder / "recipe.toml").write_text(text)
    refused(lambda: training.train(load(folder / "recipe.toml"), folder / "run"), "there is no")


def _shell(place: Place, shell: str, folder: Path) -> None:
    (folder / "recipe.toml").write_text(to_toml(place.recipe))
    made = load(folder / "recipe.toml", [f"data={shell}"])
    refused(lambda: training.train(made, folder / "run"), "there is no such folder")


def _listed(good: Path, read: Callable[[Path], object], name: str, folder: Path) -> None:
    where = Path(shutil.copytree(good, folder / "copy"))
    (folder / "secret").write_text("x")
    entries = manifest.read(where) | {name: manifest.Entry(1, "0" * 64)}
    (where / "manifest.json").write_bytes(manifest.render(entries))
    refused(lambda: read(where), "manifest.json")


def _utterance(name: str, folder: Path) -> None:
    """Whatever is refused or written, nothing appears outside the folder that was named."""
    (folder / "in").mkdir()
    (folder / "in" / "one.slf").write_text(LATTICE.format(name=name, word="a"))
    before = set(folder.rglob("*"))
    status, _, err = call(folder / "said", "rescore", folder / "in", "--to", folder / "out", "--output", "replaced")
    appeared = set(folder.rglob("*")) - before
    outside = [path for path in appeared if path.relative_to(folder).parts[0] not in ("out", "said")]
    assert not outside, f"wrote {outside}"
    assert "Traceback" not in err, f"{status}: {err}"


def _config(place: Place, key: str, code: str, folder: Path) -> None:
    config = json.loads((place.done / "config.json").read_text()) | {key: code}
    where = place.swapped(folder, "config.json", json.dumps(config).encode())
    refused(lambda: selfnorm.load(where, "cpu"))


def _link(good: Path, name: str, read: Callable[[Path], object], folder: Path) -> None:
    where = Path(shutil.copytree(good, folder / "copy"))
    (where / name).rename(folder / "elsewhere")
    (where / name).symlink_to(folder / "elsewhere")
    refused(lambda: read(where), name)


def _folder(evil: bytes, folder: Path) -> None:
    (folder / ".metadata").write_bytes(evil)
    (folder / "__0_0.distcp").write_bytes(evil)
    refused(lambda: selfnorm.load(folder, "cpu"), "is not a run")


def _drawn(folder: Path) -> None:
    picture = drawing.svg(toy(words=["", SCRIPT, "b", "d", "c", END]), [SCRIPT])
    assert "script" not in {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(picture).iter()}


def _table(word: str, folder: Path) -> None:
    """Shown as it is, or not at all: no markup, no escape sequence of a terminal."""
    (folder / "said.jsonl").write_text(json.dumps({"utt": "u-1", "ref": f"a {word}"}) + "\n")
    (folder / "heard.jsonl").write_text(json.dumps({"utt": "u-1", "hyp": f"{word} b"}) + "\n")
    status, out, err = call(folder / "said", "wer", folder / "said.jsonl", folder / "heard.jsonl", "--worst", 1)
    assert status == 0, err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", out), "control characters reach the terminal"
    if "\x1b" not in word:
        assert word in out, "the word is not shown as it is"


def hostile(folder: Path, chance: random.Random) -> Trials:
    """R10: those above, then those of the tests."""
    yield from of_cases("files", folder, cases(Place(folder / "good")))
    yield from of_tests("tests", *TESTS, chosen=CHOSEN)
