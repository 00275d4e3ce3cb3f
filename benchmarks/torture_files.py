"""R6 and R7: files without a checksum, damaged or made up, before every parser of them.

A file must be read, or refused by one sentence that names it: no other exception, no score that is NaN, at most five
seconds of processor time and twice the memory that the whole file takes.
"""

import json
import math
import random
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from faults import cut, flip_a_bit, zero_a_page
from fuzz import damage, one_sentence
from kaldi_cases import random_lattice, words_file
from slow_ngram import random_model, render
from small import drawn
from torture_trial import Trial, Trials, memory, of_tests

from selfnorm import lattices, manifest, recipe
from selfnorm.corpus.prepare import prepare
from selfnorm.corpus.text import read_sentences
from selfnorm.lattices import htk, kaldi, paths, transcripts
from selfnorm.lattices.symbols import Symbols
from selfnorm.ngrams import query
from selfnorm.ngrams.build import build
from selfnorm.vocabulary import Vocabulary

SECONDS, SLACK = 5.0, 64 << 20  # of processor time; bytes beyond twice those of the whole file
FILES = 20_000  # of each parser in R7
DAMAGES = (flip_a_bit, flip_a_bit, cut, zero_a_page)


@dataclass(frozen=True)
class Parser:
    """A whole file, and the reading of it, which gives the scores that were found."""

    path: Path
    whole: bytes
    read: Callable[[Path], Iterable[float]]


def parsers(folder: Path, chance: random.Random) -> dict[str, Parser]:
    """Files of a few pages each, with words of more than ASCII."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["für", "naïve", "語", *(f"w{n}" for n in range(600))]
    texts = [[chance.choice(words) for _ in range(chance.randint(1, 12))] for _ in range(150)]
    known, symbols = ["</s>", "<unk>", *words], words_file(folder)
    lists = [
        {"utt": f"u-{n}", "ref": " ".join(text), "hyps": _hypotheses(text, chance)} for n, text in enumerate(texts[:40])
    ]
    spoken = [f"u-{n} 1 {0.3 * m:.2f} 0.25 {word} 0.9" for n, text in enumerate(texts) for m, word in enumerate(text)]
    with kaldi.writer(folder / "whole.txt", symbols, binary=False) as write:
        for seed in range(12):
            write(random_lattice(seed))
    htk.write(drawn(chance.randrange(10**6), most_nodes=60, most_arcs=200), folder / "whole.slf")
    made = {
        "ARPA": ("lm.arpa", render(random_model(chance, 3, 14, 0.25)), _arpa),
        "HTK": ("one.slf", (folder / "whole.slf").read_bytes(), _lattices),
        "Kaldi": ("lat.txt", (folder / "whole.txt").read_bytes(), lambda path: _lattices(path, symbols)),
        "n-best": ("nbest.jsonl", _rows(map(json.dumps, lists)), _lattices),
        "text": ("text.txt", _rows(map(" ".join, texts)), _text),
        "prepare": ("train.txt", _rows(map(" ".join, texts)), _prepared),
        "vocab.txt": ("vocab.txt", _rows(f"{word}\t{900 - n}" for n, word in enumerate(known)), _vocabulary),
        "words.txt": ("words.txt", _rows(f"{word} {n}" for n, word in enumerate(["<eps>", *words])), _symbols),
        "trn": ("heard.trn", _rows(f"{' '.join(text)} (u-{n})" for n, text in enumerate(texts)), _transcript),
        "CTM": ("heard.ctm", _rows(spoken), _transcript),
        "Kaldi text": ("text", _rows(f"u-{n} {' '.join(text)}" for n, text in enumerate(texts)), _transcript),
        "JSONL": ("heard.jsonl", _rows(map(json.dumps, lists)), _transcript),
        "recipe": ("recipe.toml", _recipe(), _loaded_recipe),
        "manifest": ("manifest.json", _manifest(), _listed),
    }  # fmt: skip
    return {
        name: Parser(folder / f"{number}" / file, whole if isinstance(whole, bytes) else whole.encode(), read)
        for number, (name, (file, whole, read)) in enumerate(made.items())
    }


def _rows(rows: Iterable[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def _hypotheses(text: list[str], chance: random.Random) -> list[dict]:
    return [{"text": " ".join(text[n:]), "am": -chance.uniform(1, 99), "lm": -chance.random()} for n in range(3)]


def _recipe() -> str:
    tables = "".join(f'[{key}]\nname = "x{key}"\nk = 8000\nrate = 1e-3\nlist = [1, 2]\n' for key in recipe.KEYS[1:])
    return 'data = "DATA"  # für\n' + tables + "# " + "comment " * 500 + "\n"


def _manifest() -> bytes:
    return manifest.render({f"file-{n}": manifest.Entry(n, f"{n:064x}") for n in range(60)})


def _arpa(path: Path) -> Iterable[float]:
    index = build(path)
    ids = np.array([*range(index.vocabulary.start), index.vocabulary.end], np.int64)
    yield from query.score(index, ids, np.array([0]))
    for level in index.levels:
        yield from level.log_probs
        yield from level.backoffs[: len(level)]


def _lattices(path: Path, words: Path | None = None) -> Iterable[float]:
    for each in lattices.read([path], words=words):
        if isinstance(each, lattices.Broken):
            if not one_sentence(ValueError(each.sentence), path):
                raise AssertionError(f"no sentence about the file: {each.sentence}")
        elif isinstance(each, lattices.NBest):
            yield from (score for one in each.hypotheses for score in (one.acoustic, one.lm or 0.0))
        else:
            yield from (*each.acoustic, *each.lm, paths.best(each).score)


def _text(path: Path) -> Iterable[float]:
    return [float(len(words)) for words in read_sentences(path)]


def _prepared(path: Path) -> Iterable[float]:
    to = path.with_name("data")
    summary = prepare([path], to, processes=1)
    for each in to.iterdir():
        each.unlink()
    to.rmdir()
    return [float(summary.words)]


def _vocabulary(path: Path) -> Iterable[float]:
    return [float(len(Vocabulary.load(path)))]


def _symbols(path: Path) -> Iterable[float]:
    return [float(Symbols.load(path).id("w1") if "w1" in path.read_text(errors="replace") else 0)]


def _transcript(path: Path) -> Iterable[float]:
    return [float(len(transcripts.read(path, "hypothesis")))]


def _loaded_recipe(path: Path) -> Iterable[float]:
    return [float(len(recipe.to_toml(recipe.load(path))))]


def _listed(path: Path) -> Iterable[float]:
    return [float(entry.bytes) for entry in manifest.read(path.parent).values()]


class TooSlow(Exception):  # noqa: N818  it is caught here
    pass


@contextmanager
def _limited() -> Iterator[None]:
    """So much processor time and no more: a busy machine is no failure; asleep, a minute."""

    def stop(_number: int, _frame: object) -> None:
        raise TooSlow

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, 60)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before):
            signal.signal(number, handler)


def growth(parser: Parser, content: bytes) -> int:
    """Bytes of memory that reading takes at its height."""
    parser.path.parent.mkdir(parents=True, exist_ok=True)
    parser.path.write_bytes(content)
    Path("/proc/self/clear_refs").write_text("5")  # the height is measured anew
    before = memory("VmRSS")
    for score in parser.read(parser.path):
        if math.isnan(score):
            raise ArithmeticError("a score is NaN")
    return memory("VmHWM") - before


def faults_of(parser: Parser, content: bytes, most: int) -> list[str]:
    """What a reader did with these bytes that it must not do."""
    try:
        with _limited():
            taken = growth(parser, content)
        return [] if taken <= most else [f"took {taken >> 20} MiB"]
    except (ValueError, OSError) as error:
        said = one_sentence(error, parser.path)  # type: ignore[arg-type]
        return [] if said else [f"no sentence about the file: {type(error).__name__}: {error}"]
    except TooSlow:
        return [f"took over {SECONDS:.0f} s"]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return [f"{type(error).__name__}: {error}"]


def flipped(folder: Path, chance: random.Random) -> Trials:
    """R6: a bit flipped, the file cut, a page of zeros; one parser after the other."""
    made = parsers(folder, chance)
    most = {name: 2 * growth(parser, parser.whole) + SLACK for name, parser in made.items()}
    while True:
        for name, parser in made.items():
            content = chance.choice(DAMAGES)(parser.whole, chance)
            yield Trial(name, faults_of(parser, content, most[name]), content=content)


def made_up(folder: Path, chance: random.Random) -> Trials:
    """R7: pieces cut out, doubled, moved, made up, numbers changed: FILES for each parser that is not of lattices."""
    made = parsers(folder, chance)
    for name in chance.sample(sorted(made.keys() - {"HTK", "Kaldi", "n-best", "prepare"}), len(made) - 4):
        parser, found = made[name], Trial(name)
        most = 2 * growth(parser, parser.whole) + SLACK
        for _ in range(FILES):
            content = damage(parser.whole, chance)
            if faults := faults_of(parser, content, most):
                found = Trial(name, faults, content=content)
                break
        yield found


def fuzzed(folder: Path, chance: random.Random) -> Trials:
    """R7: the tests of the parsers of lattices and lists, with FILES for each."""
    names = [f"lattices/test_{name}.py" for name in ("htk", "kaldi_fuzz", "nbest")]
    for name in chance.sample(names, len(names)):
        yield from of_tests(Path(name).stem, name, chosen="damaged or made_up", SELFNORM_TRIALS=str(FILES))
