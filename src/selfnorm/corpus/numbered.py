"""Texts as one stream of numbers, as n-gram models count them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from selfnorm.corpus.numbering import Numbering, Numbers, without_blank
from selfnorm.corpus.text import BadText, bad_text, blocks, check, check_text

Show = Callable[[str, int, int], None]  # told the stage, and how much of it is done


class Numbered:
    """0 ends a sentence, the words have 1, 2, ... in order of appearance; blank lines are skipped unless kept."""

    def __init__(self, texts: Sequence[Path], keep_empty: bool = False, show: Show = lambda *_: None) -> None:
        self.texts, self.keep_empty, self.show = texts, keep_empty, show
        self.numbering = Numbering()

    @property
    def words(self) -> list[bytes]:
        return self.numbering.words[1:]

    def __iter__(self) -> Iterator[Numbers]:
        for path in self.texts:
            check_text(path)
        total, before = sum(path.stat().st_size for path in self.texts), 0
        for path in self.texts:
            for block in blocks(path):
                try:
                    check(block.data)
                except BadText as error:
                    raise bad_text(path, BadText(block.offset + error.offset, error.what)) from None
                numbers = self.numbering.number(block.data)
                yield numbers if self.keep_empty else without_blank(numbers, block.fresh)
                self.show("read", before + block.read, total)
            before += path.stat().st_size
