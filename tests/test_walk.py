"""The whole way, verb by verb: from text to a trained and evaluated model, and from lattices to fewer word errors.

In the text, a sentence's first word decides between words that sound alike ("sailors ... the sea", "readers ... the
see") much later: a bigram cannot tell them apart, a model with a longer memory can.
"""

import json
import random

import pytest
from typer.testing import CliRunner

from selfnorm.cli import app
from selfnorm.demo.channel import Channel, Noise
from selfnorm.demo.confusions import Confusions
from selfnorm.lattices import htk, transcripts
from selfnorm.scorers import NGram

TWINS = {
    "sailors": ["sea", "sail", "tide", "son", "weight", "meat", "knight", "right"],
    "readers": ["see", "sale", "tied", "sun", "wait", "meet", "night", "write"],
}
BETWEEN = ["and the", "but no", "with a", "or any"]
RECIPE = """
data = "data"
criterion = { name = "mode3" }
sampler = { noise = "log_uniform", k = 20 }
model = { name = "lstm", layers = 1, hidden = 32, embedding = 32 }
batches = { name = "sentences", positions = 256 }
optimizer = { name = "adam", lr = 0.01 }
training = { steps = 400, log_every = 50 }
"""


def sentence(chance):
    who = chance.choice(list(TWINS))
    said = [who]
    for _ in range(chance.randint(2, 4)):
        said += [chance.choice(BETWEEN), chance.choice(TWINS[who])]
    return " ".join(said)


@pytest.fixture
def verb(tmp_path, monkeypatch):
    """`selfnorm ARGUMENTS --json` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
        assert result.exit_code == 0, result.output + str(result.exception)
        return json.loads(result.stdout)

    return call


def write_text(path, number, chance):
    lines = [sentence(chance) for _ in range(number)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return lines


def hear(channel, folder, lines):
    """Lattices in a folder, and what was said beside it."""
    said = {f"{folder.name}-{n:02d}": tuple(line.split()) for n, line in enumerate(lines)}
    with htk.writer(folder) as write:
        for name, words in said.items():
            write(channel.lattice(name, words))
    transcripts.write_text(folder.with_suffix(".txt"), said)


def test_from_text_to_fewer_errors(verb, tmp_path):
    chance = random.Random(5)
    write_text(tmp_path / "train.txt", 4000, chance)
    held_out = {part: write_text(tmp_path / f"{part}.text", 40, chance) for part in ("dev", "test")}

    verb("prepare", "train.txt", "--size", 1000, "--valid", "dev.text", "--to", "data")
    verb("ngram", "train.txt", "--order", 2, "--to", "bigram.arpa")
    (tmp_path / "recipe.toml").write_text(RECIPE)
    verb("train", "recipe.toml", "run")
    neural, bigram = (verb("evaluate", model, "test.text") for model in ("run", "bigram.arpa"))
    assert neural["perplexity"] < 0.85 * bigram["perplexity"]
    assert abs(neural["log_z_mean"]) < 0.1

    words = set((tmp_path / "train.txt").read_text().split())
    channel = Channel(Confusions(words), NGram.load(tmp_path / "bigram.arpa"), Noise(noise=9))
    for part, lines in held_out.items():
        hear(channel, tmp_path / part, lines)
    tuning = ["--tune-on", "dev", "--tune-references", "dev.txt"]
    after = verb("rescore", "test", "--model", "run", "--references", "test.txt", *tuning, "--to", "after")["wer"]
    before = verb("rescore", "test", "--weight", 0, "--references", "test.txt", "--to", "before")["wer"]
    assert before["wer"] > 5
    assert after["wer"] < 0.5 * before["wer"]

    counted = verb("wer", "test.txt", "after/hypotheses.trn", "--against", "before/hypotheses.txt", "--oracle", "test")
    assert counted["wer"] == after["wer"]
    assert counted["against"]["wer"] == before["wer"]
    assert counted["oracle"]["wer"] <= after["wer"]
    assert counted["p"] < 0.001
