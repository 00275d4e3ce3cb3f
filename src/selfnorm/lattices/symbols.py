"""The words.txt of lattices: `word id` on every line. Ids may have gaps; 0, and the word <eps>, say nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from selfnorm.lattices.lattice import SILENT
from selfnorm.lattices.packed import lines
from selfnorm.vocabulary import END

EPSILON = "<eps>"
LARGEST = (1 << 31) - 1  # Kaldi's ids are 32-bit numbers
MOST = 1 << 30  # bytes of a words.txt


@dataclass(frozen=True)
class Symbols:
    """Words by id and ids by word."""

    path: Path
    words: Mapping[int, str]
    ids: Mapping[str, int] = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> "Symbols":
        words: dict[int, str] = {}
        ids: dict[str, int] = {}
        number = 0
        for number, line in lines(path, most=MOST):
            fields = line.split()
            if len(fields) != 2:
                raise ValueError(
                    f"{path}:{number}: {len(fields)} columns where a word and its id are due; mend the line"
                )
            if not _is_id(fields[1]):
                raise ValueError(f"{path}:{number}: {shown(fields[1])} is no id; an id is a number from 0 to {LARGEST}")
            word, id = fields[0].decode(), int(fields[1])
            for old, what in ((words.get(id), f"id {id}"), (ids.get(word), f"word {word!r}")):
                if old is not None:
                    raise ValueError(f"{path}:{number}: the {what} was on an earlier line too, with {old!r}; keep one")
            words[id], ids[word] = word, id
        if not words:
            raise ValueError(
                f"{path}:{number or 1}: the file is empty; a words.txt has a word and its id on every line"
            )
        if words.get(0, EPSILON) != EPSILON:
            raise ValueError(f"{path}: id 0 is the word {words[0]!r}; in Kaldi's lattices 0 means no word, {EPSILON}")
        return cls(path, words, ids)

    def word(self, id: int) -> str:
        """The word of an id; 0 is silent."""
        if id == 0:
            return SILENT
        word = self.words.get(id)
        if word is None:
            raise ValueError(
                f"the word id {id} is not in {self.path}; give the words.txt that the lattices were made with"
            )
        return SILENT if word == EPSILON else word

    def id(self, word: str) -> int:
        """The id of a word; the end of the sentence is silent where words.txt does not have it, as Kaldi's is."""
        id = 0 if word == SILENT else self.ids.get(word, 0 if word == END else None)
        if id is None:
            raise ValueError(f"the word {word!r} is not in {self.path}; add it, or write the lattices without ids")
        return id


def words_of(fields: Iterable[bytes], symbols: Symbols | None) -> dict[bytes, str]:
    """What each word field of one lattice stands for: all are ids, or all are words as utils/int2sym.pl writes them."""
    given = dict.fromkeys(fields)  # in their order, so that the same file gives the same sentence
    if all(map(_is_id, given)):
        if symbols is not None:
            return {field: symbols.word(int(field)) for field in given}
        if given.keys() <= {b"0"}:
            return dict.fromkeys(given, SILENT)
        some = max(given, key=int)
        raise ValueError(f"its words are ids, such as {some.decode()}; give the words.txt that has them with --words")
    words = {field: _decoded(field) for field in given}
    if symbols is not None:
        missing = [field for field, word in words.items() if word != EPSILON and word not in symbols.ids]
        if missing:
            wrong = min(missing, key=_is_id)  # where ids and words are mixed, the word is the odd one
            raise ValueError(
                f"the word {shown(wrong)} is not in {symbols.path}; give the words.txt the lattices were made with"
            )
    return {field: SILENT if word == EPSILON else word for field, word in words.items()}


def _is_id(field: bytes) -> bool:
    return field.isdigit() and len(field) <= 10 and int(field) <= LARGEST


def _decoded(field: bytes) -> str:
    try:
        return field.decode()
    except UnicodeDecodeError:
        raise ValueError(f"the word {shown(field)} is not UTF-8; convert the file to UTF-8") from None


def shown(field: bytes) -> str:
    """A field as a sentence may have it: in quotes, short, and never bytes that a terminal obeys."""
    text = repr(field.decode(errors="backslashreplace"))
    return text if len(text) <= 60 else text[:56] + "…'"
