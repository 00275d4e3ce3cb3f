"""NIST's files with times: CTM, a word on every line, and STM, the reference for it, a segment on every line.

    CTM           file channel start duration word [confidence], in any order of time
    STM           file channel speaker begin end [<label>] word word ...

An utterance is all that was said in a file, in order of time; of a file with several channels, in a channel, and its
name is file_channel then. sclite tells the segments of an STM file apart, too: what is left out in one and put in in
the next it counts twice, we as a substitution.
"""

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Line = tuple[int, bytes]
Transcripts = dict[str, tuple[str, ...]]

CTM = re.compile(
    rb"\s*\S+\s+\S+\s+(?=\S*\.|\S+\s+\S*\.)(?=\.?\d)[\d.]+\s+(?=\.?\d)[\d.]+\s+\S+(\s+[-+.\deE]+)?(\s+\S+){0,2}\s*$"
)
STM = re.compile(rb"\s*\S+\s+\S+\s+\S+\s+(\d+\.\d*|\.\d+)\s+(\d+\.\d*|\.\d+)(\s.*)?$")
IGNORED = b"ignore_time_segment_in_scoring"  # the text of a segment that does not count, whatever is heard in it

_LABEL = re.compile(rb"<[^<>]*>")
_ALTERNATIVES = {b"{", b"}", b"<ALT_BEGIN>", b"<ALT>", b"<ALT_END>"}


class Segment(NamedTuple):
    """What was said in a stretch of a file: a line of an STM file, or a word of a CTM file."""

    file: str
    channel: str
    begin: float  # seconds
    end: float
    words: tuple[str, ...]
    counts: bool = True


def named_stm(path: Path) -> bool:
    return path.name.removesuffix(".gz").removesuffix(".bz2").lower().endswith(".stm")


def is_stm(lines: Iterable[bytes]) -> bool:
    """Whether every line is one of an STM file, with times in order; a text may have some such lines."""
    matches = [STM.match(line) for line in lines]
    return all(match is not None and float(match[1]) <= float(match[2]) for match in matches)


def ctm(path: Path, full: Iterable[Line]) -> Iterator[Segment]:
    """The words of a CTM file."""
    for number, line in full:
        try:
            fields = line.split()
            refuse_alternatives(fields[1:])
            if CTM.match(line) is None:
                raise ValueError("not a line of a CTM file, as others are: utterance channel start duration word")
            begin, length = _seconds(fields[2]), _seconds(fields[3])
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        yield Segment(fields[0].decode(), fields[1].decode(), begin, begin + length, (fields[4].decode(),))


def stm(path: Path, full: Iterable[Line]) -> Iterator[Segment]:
    """The segments of an STM file, also those that do not count."""
    for number, line in full:
        try:
            fields = line.split()
            if len(fields) < 5:
                raise ValueError("not a line of an STM file: file channel speaker begin end <label> words")
            begin, end = _seconds(fields[3]), _seconds(fields[4])
            words = fields[6:] if len(fields) > 5 and _LABEL.fullmatch(fields[5]) else fields[5:]
            refuse_alternatives(words)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        counts = [word.lower() for word in words] != [IGNORED]
        said = tuple(word.decode() for word in words)
        yield Segment(fields[0].decode(), fields[1].decode(), begin, end, said, counts)


def joined(segments: Iterable[Segment], like: Container[str] = (), ignored: Iterable[Segment] = ()) -> Transcripts:
    """The words of each file, or of each channel where a file has several, or where `like` has it by that name.

    What has its middle in an `ignored` segment is left out.
    """
    spoken: dict[tuple[str, str], list[Segment]] = {}
    for each in segments:
        spoken.setdefault((each.file, each.channel), []).append(each)
    left_out: dict[str, list[Segment]] = {}  # by either name: who writes CTM files may call the only channel 1
    for each in ignored:
        for name in (each.file, f"{each.file}_{each.channel}"):
            left_out.setdefault(name, []).append(each)
    channels = Counter(file for file, _ in spoken)
    found: Transcripts = {}
    for (file, channel), rows in spoken.items():
        name = f"{file}_{channel}"
        name = name if channels[file] > 1 or name in like else file
        if name in found:
            raise ValueError(f"a channel of one file and another file are both called {name}; rename the file")
        kept = [each for each in rows if each.counts and not _inside(each, left_out.get(name, ()))]
        if kept or name in like:
            kept.sort(key=lambda each: each.begin)
            found[name] = tuple(word for each in kept for word in each.words)
    return found


def refuse_alternatives(words: Iterable[bytes]) -> None:
    if marks := _ALTERNATIVES.intersection(words):
        raise ValueError(f"{min(marks).decode()} marks alternatives, which are not read; keep one of them")


def _inside(word: Segment, segments: Iterable[Segment]) -> bool:
    middle = (word.begin + word.end) / 2
    return any(each.begin <= middle <= each.end for each in segments)


def _seconds(field: bytes) -> float:
    try:
        seconds = float(field)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(f"{field.decode()!r} is no time; write seconds")
    return seconds
