"""N-best lists: one utterance's hypotheses, best first, each with its words and scores.

As JSON lines: `{"utt", "ref", "hyps": [{"text", "am", "lm"}]}`, `ref` and `lm` optional; other keys are kept. Some
recognisers write the limits of the sentence, `<s>` and `</s>`, into their texts; they are no words and are not read.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, NoReturn

from selfnorm.lattices.archive import archive
from selfnorm.lattices.broken import Broken
from selfnorm.lattices.packed import content
from selfnorm.vocabulary import BOM, END, START

LONGEST = 1 << 24  # bytes of a line: a list of a thousand long hypotheses has one

Write = Callable[["NBest"], None]

_SPACE = re.compile(r"[ \t\r\n\v\f]+")  # ASCII's, as in every text


@dataclass(frozen=True)
class Hypothesis:
    words: tuple[str, ...]
    acoustic: float  # natural logs, larger is better; an end-to-end recogniser's only score
    lm: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # what the file says besides, kept for the output


@dataclass(frozen=True)
class NBest:
    utterance: str
    hypotheses: tuple[Hypothesis, ...]
    reference: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def arcs(self) -> int:
        """Of a lattice of these hypotheses side by side, `</s>` included."""
        return sum(len(each.words) + 1 for each in self.hypotheses)


def split(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(word for word in _SPACE.split(text) if word)


def said(text: str) -> tuple[str, ...]:
    """The words of a text without the limits of the sentence."""
    return tuple(word for word in split(text) if word not in (START, END))


def read(path: Path) -> Iterator[NBest | Broken]:
    """Each line of a file, plain or packed; a bad line is a Broken, and reading goes on with the next."""
    try:
        with content(path) as file:
            number = 0
            for number, line in _lines(file):
                if line.strip():
                    yield _parsed(path, number, line)
            if not number:
                yield Broken(path.name, f"{path}:1: the file is empty; an n-best file has one utterance on every line")
    except ValueError as error:  # of unpacking
        yield Broken(path.name, str(error))


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines with their numbers; of an overlong one only the beginning."""
    for number, line in enumerate(iter(partial(file.readline, LONGEST + 1), b""), start=1):
        yield number, line.removeprefix(BOM) if number == 1 else line
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST + 1)


def _parsed(path: Path, number: int, line: bytes) -> NBest | Broken:
    utterance = path.name
    try:
        if len(line) > LONGEST:
            raise ValueError(f"the line is longer than {LONGEST:,} bytes; write one utterance on every line")
        value = _json(line)
        if not isinstance(value, dict):
            raise ValueError('the line is no JSON object; write {"utt": ..., "hyps": [...]}')
        utterance = _utterance(value)
        return _nbest(utterance, value)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RecursionError):
            error = ValueError("the JSON is nested too deeply; this is no n-best list")
        named = "" if utterance == path.name else f"utterance {utterance}: "
        return Broken(utterance, f"{path}:{number}: {named}{error}")


def _json(line: bytes) -> Any:
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} of the line is not UTF-8; convert the file to UTF-8") from None
    try:
        value = json.loads(
            text, object_pairs_hook=_once, parse_constant=_not_finite, parse_float=_finite, parse_int=_whole
        )
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at column {error.colno} ({error.msg}); mend or drop the line") from None
    except UnicodeEncodeError:
        raise ValueError("an escape such as \\ud800 is half a character; write the text as UTF-8") from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {_shown(twice)} is there twice; keep one")
    return value


def _not_finite(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no finite number; drop the hypothesis or mend its score")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        _not_finite(text[:20])
    return number


def _whole(text: str) -> int:
    if len(text) > 400:  # no float holds it, and Python itself refuses at some length
        _not_finite(text[:20] + "...")
    return int(text)


def _utterance(value: dict[str, Any]) -> str:
    name = value.get("utt")
    if not isinstance(name, str) or split(name) != (name,):
        raise ValueError(f'"utt" is {_shown(name)}; give the utterance a name without blanks')
    return name


def _nbest(utterance: str, value: dict[str, Any]) -> NBest:
    hypotheses = value.get("hyps")
    if not isinstance(hypotheses, list) or not hypotheses:
        raise ValueError('"hyps" is no list with hypotheses; give at least one')
    reference = None if value.get("ref") is None else _words("ref", value["ref"])
    notes: tuple[str, ...] = ()
    for place, each in enumerate(hypotheses, start=1):
        if not isinstance(each, dict):
            raise ValueError(f'hypothesis {place} is {_shown(each)}, no object; write {{"text": ..., "am": ...}}')
    for key in ("am", "lm"):
        have = [each.get(key) is not None for each in hypotheses]
        if any(have) and not all(have):
            raise ValueError(
                f'hypothesis {have.index(False) + 1} has no "{key}" where others have one; give all or none'
            )
        if key == "am" and not any(have):
            notes = ('no hypothesis has an "am" score; all count as 0',)
    return NBest(
        utterance,
        tuple(_hypothesis(place, each) for place, each in enumerate(hypotheses, start=1)),
        reference,
        {key: each for key, each in value.items() if key not in ("utt", "ref", "hyps")},
        notes,
    )


def _hypothesis(place: int, value: dict[str, Any]) -> Hypothesis:
    if "text" not in value:
        raise ValueError(f'hypothesis {place} has no "text"; give its words')
    return Hypothesis(
        _words(f"text of hypothesis {place}", value["text"]),
        0.0 if value.get("am") is None else _score(f'"am" of hypothesis {place}', value["am"]),
        None if value.get("lm") is None else _score(f'"lm" of hypothesis {place}', value["lm"]),
        {key: each for key, each in value.items() if key not in ("text", "am", "lm")},
    )


def _words(what: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        return said(" ".join(value))
    if not isinstance(value, str):
        raise ValueError(f"the {what} is {_shown(value)}; give a string or a list of words")
    return said(value)


def _score(what: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is {_shown(value)}, no number; give the natural log of a probability")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{what} is too large for a number; drop the hypothesis or mend its score") from None


def _shown(value: Any) -> str:
    text = "missing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


@contextmanager
def writer(path: Path) -> Iterator[Write]:
    """A function that writes one list after another, a line for each; the file appears whole, when the block ends."""
    with archive(path) as file:

        def write(nbest: NBest) -> None:
            value: dict[str, Any] = {"utt": nbest.utterance}
            if nbest.reference is not None:
                value["ref"] = _text(nbest.reference)
            value["hyps"] = [_object(each) for each in nbest.hypotheses]
            try:
                text = json.dumps({**value, **_besides(nbest.extra, value)}, ensure_ascii=False, allow_nan=False)
            except ValueError:
                raise ValueError(f"{path}: utterance {nbest.utterance}: a score is no finite number") from None
            file.write(text.encode() + b"\n")

        yield write


def _object(hypothesis: Hypothesis) -> dict[str, Any]:
    value: dict[str, Any] = {"text": _text(hypothesis.words), "am": hypothesis.acoustic}
    if hypothesis.lm is not None:
        value["lm"] = hypothesis.lm
    return value | _besides(hypothesis.extra, value)


def _besides(extra: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in extra.items() if key not in value}


def _text(words: tuple[str, ...]) -> str:
    text = " ".join(words)
    if split(text) != tuple(words):
        raise ValueError(f"the words {_shown(list(words))} hold an empty one or one with blanks; a text has neither")
    return text
