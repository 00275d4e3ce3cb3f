"""`selfnorm lattice`: what is in a lattice: size, density, best path, the path nearest to a reference, a picture."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json, tell

if TYPE_CHECKING:
    from selfnorm.lattices import Broken, Lattice
    from selfnorm.lattices.summary import Heard, Summary
    from selfnorm.wer import Errors

Reference = Callable[[str], "tuple[str, ...] | None"]  # of an utterance


def lattice(
    file: Annotated[Path, typer.Argument(help="HTK lattice, Kaldi archive, or a folder of them; plain, .gz, .bz2.")],
    reference: Annotated[
        str | None,
        typer.Option(help="The true words, or a file of references: Kaldi text, .trn, JSONL.", show_default=False),
    ] = None,
    utterance: Annotated[str | None, typer.Option(help="Only this utterance.", show_default=False)] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the best paths into this file.", show_default=False)] = None,
    paths: Annotated[int, typer.Option(help="How many paths the picture has.", min=1, max=100)] = 8,
    words: Annotated[
        Path | None, typer.Option(help="words.txt with the words of Kaldi's ids.", show_default=False)
    ] = None,
    max_arcs: Annotated[int, typer.Option(help="Refuse larger lattices.", min=1)] = 2_000_000,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show a lattice: nodes, arcs, density, best path, the path nearest to a reference; of many lattices a table."""
    from selfnorm.lattices import Lattice
    from selfnorm.lattices.summary import summarize

    read = _Reading(file, words, max_arcs, utterance)
    known = _references(reference)
    found: list[Summary] = []
    last: Lattice | None = None
    for each in read.lattices():
        if last is not None and (svg or known is None):
            needs = "--svg draws one" if svg else "--reference with words is of one"
            raise ValueError(f"{file}: holds several lattices, and {needs}; choose it with --utterance")
        last = each
        found.append(summarize(each, None if reference is None else _reference(each, reference, known)))
    if last is None:
        raise ValueError(read.failure())
    if svg is not None:
        from selfnorm.files import atomic
        from selfnorm.lattices import drawing

        picture = drawing.svg(last, None if reference is None else _reference(last, reference, known), paths)
        with atomic(svg) as out:
            out.write(picture.encode())
