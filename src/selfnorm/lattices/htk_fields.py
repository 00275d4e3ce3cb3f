"""The fields of HTK's lattice files: `name=value`, long and short names, quotes and escapes, and which words are none.

A value may stand in quotes, and `\\` makes the next character an ordinary one, or three octal digits a byte. A quote
that is not closed is part of the word, as other tools write `'em`.
"""

import re

from selfnorm.lattices.lattice import SILENT
from selfnorm.vocabulary import END

NO_WORDS = {
    **dict.fromkeys(("!NULL", "!SENT_START", "!ENTER", "!SIL", "SENT-START", "<s>", "<sil>", "<silence>", ""), SILENT),
    **dict.fromkeys(("<eps>", "<SIL>", "-pau-", "*NULL*", "*DELETE*"), SILENT),
    **dict.fromkeys(("!SENT_END", "!EXIT", "SENT-END", "</s>"), END),
}
LABELS = {SILENT: "!NULL", END: "!SENT_END"}  # how we write them

# Short names are those of the format's description; what begins a line says what the line is about.
SHORT = {
    "header": {"V": "VERSION", "U": "UTTERANCE", "S": "SUBLAT", "NODES": "N", "LINKS": "L"},
    "node": {"time": "t", "WORD": "W", "var": "v"},
    "arc": {
        "START": "S",
        "END": "E",
        "WORD": "W",
        "var": "v",
        "div": "d",
        "acoustic": "a",
        "language": "l",
        "pronunciation": "r",
        "posterior": "p",
    },
}
HEADER = {
    *("VERSION", "V", "UTTERANCE", "U", "SUBLAT", "lmname", "lmscale", "wdpenalty", "acscale", "prscale", "tscale"),
    *("base", "start", "end", "N", "L", "NODES", "LINKS", "hmms", "vocab", "lmlog", "ngname", "dctname", "amscale"),
}

KEPT = {"VERSION", "lmname", "hmms", "vocab", "lmlog", "ngname", "dctname", "amscale"}  # in the header of a lattice

_FIELD = re.compile(
    rb"""(?<!\S)([^\s=]++)=("(?:\\.|[^"\\])*+"(?!\S)|'(?:\\.|[^'\\])*+'(?!\S)|\S*+)"""  # possessive: one pass, always
)
_ESCAPE = re.compile(rb"\\(?:([0-3][0-7]{2})|(.))", re.DOTALL)
_SPECIAL = re.compile(r"[\\\x00-\x20\x7f]|^['\"]")
_SUFFIX = re.compile(r"\.(mfcc?|plp|fea|feat|fbank|htk|wav|sph|flac|mp3|raw|pcm|lat|slf|rec|lab)$", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


def split(line: bytes) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The names and the values of a line, of which there must be one."""
    if b"='" in line or b'="' in line:
        pairs = _FIELD.findall(line)
        rest = _FIELD.sub(b"", line).split()
    else:
        pairs = [field.split(b"=", 1) for field in line.split()]
        rest = [pair[0] for pair in pairs if len(pair) < 2]
    if rest:
        raise ValueError(f"{shown(rest[0])} is no field name=value; this is no HTK lattice, or the line is damaged")
    names, values = zip(*pairs)
    return names, values


def canonical(kind: str, names: tuple[bytes, ...]) -> list[str]:
    """The short names of the fields of a line; a field that comes twice is an error."""
    texts = [name.decode() for name in names]
    short = [SHORT[kind].get(name, name) for name in texts]
    seen: set[str] = set()
    for place, name in enumerate(short):
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shown(names[place])} is no name of a field; the line is damaged")
        if name in seen:
            raise ValueError(f"the field {texts[place]}= comes twice in the line; keep one")
        seen.add(name)
    return short


def label(value: bytes) -> str:
    """A value without its quotes and escapes."""
    if value[:1] in (b'"', b"'") and len(value) > 1 and value[-1:] == value[:1]:
        value = value[1:-1]
    if b"\\" in value:
        value = _ESCAPE.sub(_escaped, value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{shown(value)} is not UTF-8 behind its escapes; convert the file to UTF-8") from None


def utterance(value: bytes) -> str:
    """The name of an utterance: where HTK gives the path of its speech, the file's name without the suffix.

    A slash that is part of the name has an escape, as `value_of_utterance` writes it.
    """
    text = label(value)
    return _SUFFIX.sub("", text.rsplit("/", 1)[-1]) if b"/" in value else text


def value_of_utterance(name: str) -> str:
    return value(name).replace("/", _escape("/"))


def word(value: bytes) -> str:
    """The word of a label as it stands in the file. An escape at its start makes a word of what else is none."""
    text = label(value)
    return text if value.startswith(b"\\") else NO_WORDS.get(text, text)


def value(label: str) -> str:
    """A label as it stands in a file."""
    return _SPECIAL.sub(lambda match: _escape(match[0]), label)


def value_of_word(word: str, kept: str | None = None) -> str:
    """A word as it stands in a file; `kept` is the label that it was read from, for those that are no words."""
    if word in LABELS:
        return value(kept if kept is not None and NO_WORDS.get(kept) == word else LABELS[word])
    text = value(word)
    return f"\\{text}" if word in NO_WORDS else text


def check_name(name: str, kind: str) -> None:
    """Whether a field of the header or of an arc can have this name, and no other of ours has it."""
    ours = HEADER - KEPT if kind == "header" else {"I", "J", *"SEalr"}
    if not _NAME.fullmatch(name) or name in ours or name in SHORT[kind]:
        raise ValueError(f"{name!r} cannot be the name of a field in an HTK lattice; rename it")


def shown(text: bytes) -> str:
    """What a file says, for a sentence: in quotes, and not longer than a sentence bears."""
    said = text[:40].decode(errors="backslashreplace")
    return repr(said + "…" if len(text) > 40 else said)


def _escaped(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)]) if match[1] else match[2]


def _escape(character: str) -> str:
    return f"\\{character}" if character in "\\'\"" else f"\\{ord(character):03o}"
