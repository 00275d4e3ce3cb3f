"""How utterances with errors look: the reference over what was heard, in colour, and marked for who sees none."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from typing import NamedTuple

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from selfnorm.wer import Errors, Pair, align, counts_by_name

Words = Mapping[str, tuple[str, ...]]  # of each utterance

COLOURS = {"": "", "S": "yellow", "D": "red", "I": "cyan"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LETTERS = {"S": "substituted", "D": "deleted", "I": "inserted"}


def terminal() -> Console:
    """Standard output; where it is no terminal, lines are as long as they need to be."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def show_worst(console: Console, said: Words, heard: Words, number: int) -> None:
    """The utterances with the most errors; among equals, those with the fewest words."""
    errors = counts_by_name(said, heard)
    names = sorted(
        (name for name in said if errors[name].total), key=lambda name: (-errors[name].total, len(said[name]))
    )
    if not names[:number]:
        return
    _title(console, "Most errors")
    for name in names[:number]:
        console.print(_headline(name, f"{_told(errors[name])} in {_plural(len(said[name]), 'word')}"))
        _print(console, aligned(align(said[name], heard[name]), _width(console)))


def show_changed(console: Console, said: Words, heard: Words, other: Words, number: int) -> None:
    """The utterances in which two systems differ most."""
    errors, others = counts_by_name(said, heard), counts_by_name(said, other)
    change = {name: errors[name].total - others[name].total for name in said}
    better, worse = (sum(sign * each > 0 for each in change.values()) for sign in (-1, 1))
    names = sorted((name for name in said if change[name]), key=lambda name: (-abs(change[name]), len(said[name])))
    if not number:
        return
    _title(console, f"Changed most: {better:,} utterances are better, {worse:,} worse")
    for name in names[:number]:
        colour = "green" if change[name] < 0 else "red"
        console.print(
            _headline(name, f"{_told(errors[name])} against {_told(others[name])}", f"{change[name]:+d}", colour)
        )
        _print(console, aligned(align(said[name], heard[name]), _width(console)))
        _print(console, aligned(align(said[name], other[name]), _width(console), "against"))


def _title(console: Console, title: str) -> None:
    letters = ((f"  {letter} {word}", COLOURS[letter]) for letter, word in _LETTERS.items())
    console.print(Text.assemble((title, "bold"), " ", *letters))


def _headline(name: str, told: str, mark: str = "", colour: str = "") -> Text:
    return Text.assemble("\n", (_harmless(name), "bold"), "  ", (mark, colour), "  " if mark else "", told)


def _told(errors: Errors) -> str:
    parts = ((errors.substitutions, "sub"), (errors.deletions, "del"), (errors.insertions, "ins"))
    listed = ", ".join(f"{number} {name}" for number, name in parts if number)
    return _plural(errors.total, "error") + (f" ({listed})" if listed else "")


def _plural(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _width(console: Console) -> int | None:
    return console.width if console.is_terminal else None


def _print(console: Console, lines: Iterable[Text]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def aligned(pairs: Iterable[Pair], width: int | None, label: str = "hypothesis") -> Iterator[Text]:
    """Three lines for as many words as fit into `width`: reference, hypothesis, and a letter for each error.

    As sclite has it, wrong words are in upper case and asterisks stand where there is none. Words that differ only in
    case stay as they are.
    """
    head = max(cell_len(label), len("hypothesis")) + 4
    used, fitting = head, list[_Column]()
    for column in starmap(_column, pairs):
        if fitting and width is not None and used + column.width > width:
            yield from _block(fitting, ("reference", label), head)
            used, fitting = head, []
        used += column.width + 1
        fitting.append(column)
    yield from _block(fitting, ("reference", label), head)


class _Column(NamedTuple):
    cells: tuple[str, str, str]  # what stands above, what below, and the letter
    width: int


def _harmless(word: str) -> str:
    """Without what a terminal would obey."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", word)


def _column(word: str | None, heard: str | None) -> _Column:
    above, below = _harmless(word or ""), _harmless(heard or "")
    if word == heard:
        return _Column((above, below, ""), cell_len(above))
    letter = "I" if word is None else "D" if heard is None else "S"
    if above.upper() != below.upper():
        above, below = above.upper(), below.upper()
    width = max(cell_len(above), cell_len(below))
    return _Column((above or "*" * width, below or "*" * width, letter), width)


def _block(columns: list[_Column], labels: tuple[str, str], head: int) -> Iterator[Text]:
    for number, label in enumerate((*labels, "")):
        line = Text(f"  {label}".ljust(head), style="dim" if label else "")
        for cells, width in columns:
            line.append(cells[number], style=f"not dim {COLOURS[cells[2]]}".strip())
            line.append(" " * (width - cell_len(cells[number]) + 1))
        line.rstrip()
        if label or line.plain:
            yield line
