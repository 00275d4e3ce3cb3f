"""The texts, prepared once: vocabulary and ids, a 4-gram model, sentences to measure on, utterances to rescore."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from selfnorm.cores import cores
from selfnorm.corpus.numbered import Numbered
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.store import Data, is_data
from selfnorm.corpus.text import read_sentences
from selfnorm.files import atomic, locked, open_packed, write_whole
from selfnorm.ngrams import cache
from selfnorm.ngrams.estimate import estimate_arpa
from selfnorm.reproduce.errors import SETS, Utterances
from selfnorm.scorers import NGram

MOST = 8  # threads that count n-grams

Sentences = list[list[str]]


@dataclass(frozen=True)
class Corpus:
    """Where a corpus comes from, and what is measured on it."""

    name: str
    size: int  # words of the vocabulary
    train: tuple[Path, ...]
    valid: tuple[Path, ...]
    test: tuple[Path, ...]
    utterances: tuple[Utterances, ...] = ()
    prune: tuple[int, ...] = ()  # of the 4-gram: the largest counts to leave out, by order
    texts: Mapping[str, Path] = field(default_factory=dict)  # further ones: an id, a tab and a sentence in each line

    def check(self) -> None:
        paths = (*self.train, *self.valid, *self.test, *self.texts.values())
        rescored = (path for each in self.utterances for path in (each.lattices, each.references))
        for path in (*paths, *rescored):
            if not path.exists():
                raise ValueError(
                    f"{path}: is missing, and {self.name} needs it; give --data the folder that holds podcasts, books, "
                    "librispeech and asr"
                )


def public(data: Path) -> dict[str, Corpus]:
    """The corpora of the scales `small` and `full`; nothing is read yet."""
    podcasts, books, spoken = data / "podcasts", data / "books", data / "librispeech"
    utterances = tuple(
        Utterances(name, data / "asr" / name / place, data / "asr" / name / "refs.txt", setting)
        for name, (place, setting) in SETS.items()
    )
    parts = tuple(books / f"train-{part}.txt.bz2" for part in range(3))
    talk = podcasts / "train.txt.bz2"
    texts = {name: spoken / f"{name}.ref.tsv" for name in ("test-clean", "test-other")}
    rare = (0, 0, 1, 1)  # 4-grams of 80 million words are many, those seen once say little
    valid, test = ({each: each / f"{part}.txt.bz2" for each in (podcasts, books)} for part in ("valid", "test"))
    talks, novels = (((valid[each],), (test[each],)) for each in (podcasts, books))
    found = (
        Corpus("podcasts", 30_000, (talk,), *talks, utterances),
        Corpus("books", 200_000, parts, *novels, utterances, rare, texts),
        Corpus(
            "books+podcasts", 250_000, (*parts, talk), tuple(valid.values()), tuple(test.values()), utterances, rare
        ),
    )
    return {corpus.name: corpus for corpus in found}


class Prepared:
    """A corpus in the folder `to`/NAME; what is there already is not made again."""

    def __init__(self, corpus: Corpus, to: Path, evaluation_words: int | None = None) -> None:
        self.corpus, self.folder, self.evaluation_words = corpus, to / corpus.name, evaluation_words
        self.ngram = to / f"{corpus.name}.4gram.arpa"  # not packed: that takes twice as long

    @property
    def about(self) -> Path:
        return self.folder.with_name(f"{self.corpus.name}.json")

    @property
    def there(self) -> bool:
        return is_data(self.folder) and self.about.exists()

    def prepare(self) -> None:
        """The vocabulary and the ids; prepared for another vocabulary or text, they are refused."""
        about = self.about
        wanted = {"size": self.corpus.size, "train": [path.name for path in self.corpus.train]}
        if self.there:
            if json.loads(about.read_text())["of"] != wanted:
                raise ValueError(f"{self.folder}: was prepared from another text; remove it, or choose another --to")
            return
        self.corpus.check()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        summary = prepare(
            list(self.corpus.train), self.folder, self.corpus.size, self.held("valid"), self.held("test")
        ).as_dict()
        train = [text for text in summary["texts"] if text["part"] == "train"]
        found: dict[str, Any] = {"vocabulary": summary["size"], "types": summary["types"]}
        found |= {name: sum(text[name] for text in train) for name in ("words", "sentences")}
        found["oov"] = next(text["oov_rate"] for text in summary["texts"] if text["part"] == "test")
        write_whole(about, (json.dumps({"of": wanted, "found": found}) + "\n").encode())

    def statistics(self) -> dict[str, Any]:
        """Of the training text; `oov` is the share of the test text's words that the vocabulary has not."""
        return json.loads(self.about.read_text())["found"]

    def count(self) -> None:
        """Make the 4-gram model of the training text, with the same vocabulary, and its index; others wait for one."""
        with locked(self.folder):
            if not self.ngram.exists():
                self.corpus.check()
                for killed in self.ngram.parent.glob(f".{self.ngram.name}.*"):  # what another left of its work
                    shutil.rmtree(killed, ignore_errors=True)
                vocabulary, text = self.data().vocabulary, Numbered(self.corpus.train)
                threads = min(MOST, cores())
                estimate_arpa(text, self.ngram, 4, self.corpus.prune, vocabulary, threads=threads)
                cache.load(self.ngram)

    @cached_property
    def counts(self) -> NGram:
        self.count()
        return NGram.load(self.ngram)

    def held(self, part: str) -> Path:
        """The development or test text; several are joined in one file."""
        paths = self.corpus.valid if part == "valid" else self.corpus.test
        if len(paths) == 1:
            return paths[0]
        joined = self.folder.with_name(f"{self.corpus.name}.{part}.txt")
        if not joined.exists():
            with atomic(joined) as file:
                for path in paths:
                    with open_packed(path) as text:
                        shutil.copyfileobj(text, file)
        return joined

    def data(self) -> Data:
        return Data.open(self.folder, verify=False)

    def sentences(self, part: str, number: int) -> Sentences:
        """The first sentences of the development or test text, as its store has them."""
        return list(islice(read_sentences(self.held(part)), number))

    def further(self) -> dict[str, Sentences]:
        return {name: _after_tabs(path, self.evaluation_words) for name, path in self.corpus.texts.items()}


def _after_tabs(path: Path, words: int | None) -> Sentences:
    found: Sentences = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if words is not None and sum(map(len, found)) >= words:
            break
        if sentence := line.partition("\t")[2].split():
            found.append(sentence)
    if not found:
        raise ValueError(f"{path}: holds no line with an id, a tab and a sentence; restore the file")
    return found
