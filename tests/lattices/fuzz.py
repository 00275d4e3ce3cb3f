"""Damaged files for the readers' tests: `trials` of them in CI, more where SELFNORM_TRIALS says so."""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NUMBERS = [b"-1", b"0", b"99999999999999999999", b"1e999", b"nan", b"-inf", b"2147483648", b"0x10", b"1_0", b"", b"1.5"]


def trials(usual: int) -> int:
    """How many files to try: `make torture` asks for 20,000 where a test has hundreds."""
    return int(os.environ.get("SELFNORM_TRIALS", usual))


def damage(content: bytes, rng: random.Random) -> bytes:
    """The content with one to four faults: flipped bits, and pieces cut out, doubled, moved or made up."""
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(FAULTS)(content, rng)
    return content


def one_sentence(error: ValueError, path: Path) -> bool:
    """Whether an error is what a reader owes its user: one line that names the file and does not go on for ever."""
    said = str(error)
    return str(path) in said and "\n" not in said and len(said) < 600 + len(str(path))


@contextmanager
def lattice_or_sentence(path: Path) -> Iterator[None]:
    """Reading in this block may succeed, or end with a sentence about `path`, and with nothing else."""
    try:
        yield
    except ValueError as error:
        if not one_sentence(error, path):
            raise AssertionError(f"no sentence about the file: {error}") from error


def damaged(content: bytes, count: int, seed: int = 1) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        yield damage(content, rng)


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randint(1, 8) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _piece(content: bytes, rng: random.Random) -> tuple[int, int]:
    first = rng.randint(0, len(content))
    return first, min(len(content), first + int(rng.expovariate(1 / 12)))


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randint(0, len(content))]


def _remove(content: bytes, rng: random.Random) -> bytes:
    first, last = _piece(content, rng)
    return content[:first] + content[last:]


def _double(content: bytes, rng: random.Random) -> bytes:
    first, last = _piece(content, rng)
    return content[:last] + content[first:last] * rng.randint(1, 3) + content[last:]


def _make_up(content: bytes, rng: random.Random) -> bytes:
    first, last = _piece(content, rng)
    return content[:first] + rng.randbytes(last - first) + content[last:]


def _swap_lines(content: bytes, rng: random.Random) -> bytes:
    rows = content.split(b"\n")
    one, other = rng.randrange(len(rows)), rng.randrange(len(rows))
    rows[one], rows[other] = rows[other], rows[one]
    return b"\n".join(rows)


def _remove_line(content: bytes, rng: random.Random) -> bytes:
    rows = content.split(b"\n")
    del rows[rng.randrange(len(rows))]
    return b"\n".join(rows)


def _change_number(content: bytes, rng: random.Random) -> bytes:
    """A run of digits becomes another number, or none."""
    places = [place for place, value in enumerate(content) if value in b"0123456789"]
    if not places:
        return content
    first = last = rng.choice(places)
    while last < len(content) and content[last] in b"0123456789.":
        last += 1
    return content[:first] + rng.choice(NUMBERS) + content[last:]


FAULTS: list[Callable[[bytes, random.Random], bytes]] = [
    _flip,
    _flip,
    _cut,
    _remove,
    _double,
    _make_up,
    _swap_lines,
    _remove_line,
    _change_number,
    _change_number,
]
