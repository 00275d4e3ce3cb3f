"""N-best lists as folders: ESPnet's `1best_recog`, `2best_recog`, ..., and Kaldi's archives of linear lattices.

ESPnet: each `Nbest_recog` has `text` and `score`, a line for each utterance. Kaldi (lattice-to-nbest, nbest-to-linear):
`words_text`, `text` or `words` with a line for each hypothesis, named utterance-1, utterance-2, ...; `acwt` or
`ac_cost` with its acoustic cost; `lmwt.withlm`, `lmwt` or `lm_cost` with its graph cost. What a graph costs without
the language model (`lmwt.nolm`) is kept beside. Each file may be packed as .gz.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from selfnorm.lattices.broken import Broken
from selfnorm.lattices.nbest import Hypothesis, NBest, said
from selfnorm.lattices.packed import lines
from selfnorm.lattices.symbols import Symbols, shown, words_of

WORDS = ("words_text", "text", "words")
ACOUSTIC = ("acwt", "ac_cost")
GRAPH = ("lmwt.withlm", "lmwt", "lm_cost")
NO_LM = ("lmwt.nolm",)

_ESPNET = re.compile(r"([1-9][0-9]{0,5})best_recog")
_NUMBER = re.compile(rb"(?:tensor\(\[?)?\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(?:[\],].*)?\)?")
_NAME = re.compile(rb"(\S+)-([1-9][0-9]{0,8})")


def is_folder(path: Path) -> bool:
    """Whether `path` is such a folder."""
    return path.is_dir() and bool(_espnet(path) or (_first(path, WORDS) and _first(path, ACOUSTIC)))


def read(folder: Path, *, words: Path | None = None) -> Iterator[NBest | Broken]:
    """Each utterance; one that lacks a hypothesis or a score is a Broken. `words`: words.txt, where Kaldi wrote ids."""
    symbols = None if words is None else Symbols.load(words)
    try:
        if places := _espnet(folder):
            yield from _read_espnet(folder, places)
        else:
            yield from _read_kaldi(folder, symbols)
    except ValueError as error:  # a file as a whole
        yield Broken(folder.name, str(error))


def _espnet(folder: Path) -> list[Path]:
    """The folders of the first, second, ... hypotheses."""
    found = {int(match[1]): each for each in folder.iterdir() if (match := _ESPNET.fullmatch(each.name))}
    return [found[place] for place in sorted(found)]


def _first(folder: Path, names: tuple[str, ...]) -> Path | None:
    """The first of these files that there is, plain or packed."""
    each = (folder / (name + packing) for name in names for packing in ("", ".gz"))
    return next((path for path in each if path.is_file()), None)


def _needed(folder: Path, names: tuple[str, ...]) -> Path:
    path = _first(folder, names)
    if path is None:
        raise ValueError(f"{folder}: there is no {' or '.join(names)}, plain or .gz; an n-best folder has one")
    return path


class _Table:
    """A file of `name value...`: the value of each name, and the line it stands on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[bytes, tuple[int, bytes]] = {}
        for number, line in lines(path):
            name, value = (*line.split(None, 1), b"", b"")[:2]
            if not name:
                continue
            if name in self.rows:
                raise ValueError(f"{path}:{number}: {shown(name)} is on line {self.rows[name][0]} too; keep one")
            self.rows[name] = number, value.strip()

    def number(self, name: bytes) -> float:
        """The number of a name, also as PyTorch prints it: tensor(-3.2, device='cuda:0')."""
        if name not in self.rows:
            raise ValueError(f"{self.path}: {shown(name)} has no line here; write the folder again")
        line, value = self.rows[name]
        match = _NUMBER.fullmatch(value)
        try:
            number = float(match[1]) if match else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{self.path}:{line}: {shown(value)} is no finite number; mend the score of {shown(name)}")
        return number


def _read_espnet(folder: Path, places: list[Path]) -> Iterator[NBest | Broken]:
    for place, each in enumerate(places, start=1):
        if each.name != f"{place}best_recog":
            raise ValueError(f"{folder}: has {each.name}, but no {place}best_recog; write the folder again")
    texts = [_Table(_needed(place, ("text",))) for place in places]
    scores = [_Table(_needed(place, ("score",))) for place in places]
    names = dict.fromkeys(name for table in texts + scores for name in table.rows)  # in the order of the best
    for name in names:
        try:
            hypotheses = []
            for text, score in zip(texts, scores):
                if name not in text.rows and name not in score.rows:
                    break
                if name not in text.rows:
                    raise ValueError(f"{text.path}: {shown(name)} has a score but no text; write the folder again")
                hypotheses.append(Hypothesis(said(text.rows[name][1].decode()), score.number(name)))
            later = [text.path for text in texts[len(hypotheses) :] if name in text.rows]
            if later:
                lost = texts[len(hypotheses)].path
                raise ValueError(f"{later[0]}: {shown(name)} is here, but not in {lost}; write the folder again")
            if not hypotheses:
                raise ValueError(f"{texts[0].path}: {shown(name)} has no line here; write the folder again")
            yield NBest(name.decode(), tuple(hypotheses))
        except ValueError as error:
            yield Broken(name.decode(), str(error))


def _read_kaldi(folder: Path, symbols: Symbols | None) -> Iterator[NBest | Broken]:
    texts = _Table(_needed(folder, WORDS))
    acoustic = _Table(_needed(folder, ACOUSTIC))
    graph, no_lm = (_Table(path) if (path := _first(folder, names)) else None for names in (GRAPH, NO_LM))
    words = _kaldi_words(texts, symbols)
    for utterance, places in _utterances(folder, texts, acoustic).items():
        try:
            hypotheses = []
            for place, expected in zip(sorted(places), range(1, len(places) + 1)):
                name = b"%s-%d" % (utterance, expected)
                if place != expected or name not in texts.rows:
                    raise ValueError(f"{texts.path}: {shown(name)} has no line here; write the folder again")
                hypotheses.append(
                    Hypothesis(
                        said(" ".join(words[field] for field in texts.rows[name][1].split())),
                        0.0 - acoustic.number(name),
                        None if graph is None else 0.0 - graph.number(name),
                        {} if no_lm is None else {"no_lm": 0.0 - no_lm.number(name)},
                    )
                )
            yield NBest(utterance.decode(), tuple(hypotheses))
        except ValueError as error:
            yield Broken(utterance.decode(), str(error))


def _kaldi_words(texts: _Table, symbols: Symbols | None) -> Mapping[bytes, str]:
    fields = (field for _, value in texts.rows.values() for field in value.split())
    try:
        return words_of(fields, symbols)
    except ValueError as error:
        raise ValueError(f"{texts.path}: {error}") from None


def _utterances(folder: Path, *tables: _Table) -> dict[bytes, set[int]]:
    """Which hypotheses each utterance has, in any of the files."""
    found: dict[bytes, set[int]] = {}
    for table in tables:
        for name, (line, _) in table.rows.items():
            match = _NAME.fullmatch(name)
            if match is None:
                raise ValueError(
                    f"{table.path}:{line}: {shown(name)} is no utterance-1, utterance-2, ...; "
                    f"{folder} is no n-best folder of Kaldi"
                )
            found.setdefault(match[1], set()).add(int(match[2]))
    return found
