import json
import random
from dataclasses import replace

import pytest
import torch

from selfnorm.reproduce.corpora import Corpus
from selfnorm.reproduce.errors import Utterances
from selfnorm.reproduce.plan import SCALES
from selfnorm.rescoring import Setting

torch.set_num_threads(1)
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnpt" for b in "aeiou" for c in "lmnrst"]


def sentence(chance):
    """A word is mostly followed by one of its two neighbours."""
    number = chance.randrange(len(WORDS))
    said = []
    for _ in range(chance.randint(4, 9)):
        said.append(WORDS[number])
        number = (number + chance.choice([1, 1, 2])) % len(WORDS)
    return said


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A text of 300 words, and lists of what might have been heard in some sentences of it."""
    folder, chance = tmp_path_factory.mktemp("material"), random.Random(1)
    paths = {}
    for part, number in (("train", 400), ("valid", 30), ("test", 30)):
        paths[part] = folder / f"{part}.txt"
        paths[part].write_text("".join(" ".join(sentence(chance)) + "\n" for _ in range(number)))
    (folder / "further.tsv").write_text("a-1\tbal bam ban\na-2\tbar bas\n")
    with (folder / "nbest.jsonl").open("w") as lists, (folder / "refs.txt").open("w") as refs:
        for number in range(12):
            name, said = f"{'north' if number % 3 else 'south'}_{number}", sentence(chance)
            wrong = [*said[:-1], chance.choice(WORDS)]
            order = [wrong, said] if number % 2 else [said, wrong]
            hypotheses = [{"text": " ".join(each), "am": -10.0 - place} for place, each in enumerate(order)]
            lists.write(json.dumps({"utt": name, "hyps": hypotheses}) + "\n")
            refs.write(" ".join([name, *said]) + "\n")
    utterances = Utterances("lists", folder / "nbest.jsonl", folder / "refs.txt", Setting(ngram_weight=0.3))
    texts = {"further": folder / "further.tsv"}
    return Corpus("built-in", 302, (paths["train"],), (paths["valid"],), (paths["test"],), (utterances,), texts=texts)


@pytest.fixture(scope="session")
def scale():
    """`tiny`, tinier."""
    tiny = SCALES["tiny"]
    tasks = {name: replace(task, training={"steps": 6}, warmup=2) for name, task in tiny.tasks.items()}
    extra = {"save_every": 1000, "log_every": 2, "evaluation_words": 200}
    return replace(tiny, tasks=tasks, shrink=40, large=256, repeats=1, folds=2, extra=extra)
