"""What was said and what was heard: utterances and their words, in the forms that recognisers and scorers exchange.

    Kaldi text    utterance word word ...
    .trn          word word ... (utterance)
    CTM           utterance channel start duration word [confidence], words in any order of time (see `nist`)
    STM           file channel speaker begin end [<label>] word word ... (see `nist`)
    JSONL         {"utt": ..., "text" or "ref" or "hyp": "word word ..."}, or an n-best list: its first hypothesis

A file is known by its lines, an STM file by the name .stm, too, and may be packed. An utterance without words is one.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from selfnorm.files import atomic, check_file
from selfnorm.lattices import nist
from selfnorm.lattices.nbest import said, split
from selfnorm.lattices.nist import Line, Segment, Transcripts
from selfnorm.lattices.packed import lines

What = Literal["reference", "hypothesis"]

KEYS: dict[What, tuple[str, ...]] = {"reference": ("ref", "text"), "hypothesis": ("hyp", "text")}

_JSON = re.compile(rb"\s*\{\s*[\"}]")
_TRN = re.compile(rb"(?:^|.*\s)\(((?:(?!\)\()\S)+)\)\s*$")  # a name may have brackets, but (laugh)(name) is none


class Spoken(NamedTuple):
    """A word and when it was said: a line of a CTM file."""

    utterance: str
    start: float  # seconds
    duration: float
    word: str


def read(
    path: Path, what: What = "reference", like: Container[str] = (), ignored: Iterable[Segment] = ()
) -> Transcripts:
    """The words of each utterance; `what` says which of the texts in a JSONL file is meant.

    A CTM file takes names of channels from `like`, its references, and leaves out what was said in `ignored` segments.
    """
    full = _full(path)
    if _JSON.match(full[0][1]):
        return _collect(path, full, lambda line: _json(line, what))
    if timed := _timed(path, full):
        try:
            return nist.joined(timed(path, full), like, ignored)
        except ValueError as error:
            raise ValueError(str(error) if str(error).startswith(f"{path}:") else f"{path}: {error}") from None
    return _collect(path, full, _trn if _most(_TRN, full) else _text)


def ignored(path: Path) -> list[Segment]:
    """The segments that an STM file takes out of the scoring; another file has none."""
    full = _full(path)
    return [each for each in nist.stm(path, full) if not each.counts] if _timed(path, full) is nist.stm else []


def _full(path: Path) -> list[Line]:
    """The lines that say something."""
    check_file(path, "give a transcript: Kaldi text, .trn, CTM, STM or JSONL")
    full = [(number, line) for number, line in lines(path) if line.strip() and not line.startswith(b";;")]
    if not full:
        raise ValueError(f"{path}: is empty; a transcript has a line for each utterance")
    return full


def _timed(path: Path, full: list[Line]) -> "Callable[[Path, list[Line]], Iterator[Segment]] | None":
    """The reader of a file with times."""
    if nist.named_stm(path) or nist.is_stm(line for _, line in full):
        return nist.stm
    return nist.ctm if _most(nist.CTM, full) else None


def write_text(path: Path, transcripts: Mapping[str, Iterable[str]]) -> None:
    """Kaldi's form."""
    _write(path, (" ".join((utterance, *words)) for utterance, words in transcripts.items()))


def write_trn(path: Path, transcripts: Mapping[str, Iterable[str]]) -> None:
    """NIST's form, for sclite."""
    _write(path, (" ".join((*words, f"({utterance})")) for utterance, words in transcripts.items()))


def write_ctm(path: Path, rows: Iterable[Spoken]) -> None:
    """Words with their times, in the order given; the channel is 1."""
    _write(path, (f"{row.utterance} 1 {row.start:.2f} {row.duration:.2f} {row.word}" for row in rows))


def _write(path: Path, rows: Iterable[str]) -> None:
    with atomic(path) as file:
        for row in rows:
            file.write(f"{row}\n".encode())


def _most(form: re.Pattern[bytes], full: list[Line]) -> bool:
    """Whether over half the lines have a form: one that has it by chance, or has lost it, does not decide."""
    return 2 * sum(form.match(line) is not None for _, line in full) > len(full)


def _collect(path: Path, full: list[Line], parse: Callable[[bytes], tuple[str, list[bytes]]]) -> Transcripts:
    """One utterance for each line."""
    found: Transcripts = {}
    seen: dict[str, int] = {}
    for number, line in full:
        try:
            utterance, words = parse(line)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        if utterance in seen:
            raise ValueError(f"{path}:{number}: utterance {utterance} is also on line {seen[utterance]}; keep one")
        seen[utterance] = number
        found[utterance] = tuple(word.decode() for word in words)
    return found


def _text(line: bytes) -> tuple[str, list[bytes]]:
    utterance, *words = line.split()
    return utterance.decode(), words


def _trn(line: bytes) -> tuple[str, list[bytes]]:
    match = _TRN.match(line)
    if match is None:
        raise ValueError(
            "the line does not end with the name of its utterance in brackets, as others do; add it: (name)"
        )
    words = line[: match.start(1) - 1].split()
    nist.refuse_alternatives(words)
    return match[1].decode(), words


def _json(line: bytes, what: What) -> tuple[str, list[bytes]]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}); write one object on each line") from None
    if not isinstance(entry, dict) or not isinstance(entry.get("utt"), str) or not entry["utt"]:
        raise ValueError('the object has no "utt"; name the utterance there')
    utterance = entry["utt"]
    if len(utterance.split()) != 1:
        raise ValueError(f"the name {utterance!r} of an utterance has white space in it; take it out")
    text = _said(entry, what)
    words = said(text) if "hyps" in entry else split(text)  # a list is read as `nbest` reads it
    try:
        return utterance, [word.encode() for word in words]
    except UnicodeEncodeError:
        raise ValueError(f"the {what} has half a character (a lone surrogate); mend it") from None


def _said(entry: Mapping[str, Any], what: What) -> str:
    """The text that is meant: an n-best list's first hypothesis stands for the hypothesis."""
    if what == "hypothesis" and "hyps" in entry:
        hypotheses = entry["hyps"]
        if not isinstance(hypotheses, list) or not hypotheses:
            raise ValueError('"hyps" is no list of hypotheses, the best first; give at least one')
        text = hypotheses[0].get("text") if isinstance(hypotheses[0], dict) else hypotheses[0]
        if not isinstance(text, str):
            raise ValueError('the first of "hyps" has no "text"; give its words there')
        return text
    for key in KEYS[what]:
        if key in entry:
            if not isinstance(entry[key], str):
                raise ValueError(f'"{key}" is no text; give the words, parted by blanks')
            return str(entry[key])
    raise ValueError(f"the object has no {what}; give it as {' or '.join(map(json.dumps, KEYS[what]))}")


def set_of(utterance: str) -> str:
    """By its name: Kaldi's begin with the speaker, those of several test sets with the set."""
    return utterance.split("_" if "_" in utterance else "-", 1)[0]
