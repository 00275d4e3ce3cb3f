"""`selfnorm score`: one score for each word of a text."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, print_json, read_text

if TYPE_CHECKING:
    from selfnorm.scorers import Neural, NGram


class Format(StrEnum):
    tsv = "tsv"
    jsonl = "jsonl"


def score(
    run: Annotated[Path, typer.Argument(help="A run directory, or an n-gram model in ARPA format.")],
    text: Annotated[Path, typer.Argument(help="Text: UTF-8, one sentence per line; plain, .gz, .bz2.")],
    normalize: Annotated[bool, typer.Option("--normalize", help="Take log Z off every score.")] = False,
    format: Annotated[
        Format, typer.Option(help="A line for each word, or a JSON object for each sentence.")
    ] = Format.tsv,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="A blank line is an empty sentence.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the score of every word, natural log: sentence, word, score, and whether the word is known."""
    from selfnorm import scorers
    from selfnorm.vocabulary import END

    scorer = scorers.load(run)
    vocabulary = scorer.vocabulary
    sentences = read_text(text, keep_empty)
    values = _values(scorer, sentences, normalize)
    if json:
        print_json({"sentences": len(sentences), "words": len(values), "score": sum(values)})
        return
    last = 0
    for number, sentence in enumerate(sentences):
        first, last = last, last + len(sentence) + 1
        here = values[first:last]
        if format == Format.jsonl:
            known = [word in vocabulary for word in sentence]
            print_json({"words": sentence, "scores": here, "known": known, "score": sum(here)})
            continue
        for word, value in zip([*sentence, END], here):
            mark = "known" if word in vocabulary else "unknown"
            sys.stdout.write(f"{number + 1}\t{word}\t{value:.6f}\t{mark}\n")


def _values(scorer: "Neural | NGram", sentences: list[list[str]], normalize: bool) -> list[float]:
    """The score of every word and `</s>`."""
    from selfnorm import scorers
    from selfnorm.corpus.store import TokenStore
    from selfnorm.scorers.text import measure

    if isinstance(scorer, scorers.NGram):
        return scorer.text(sentences).scores.tolist()
    store = TokenStore.of(map(scorer.vocabulary.encode, sentences), scorer.vocabulary)
    words = measure(scorer.model, store, histories=scorer.histories)
    return (words.log_probs if normalize else words.scores).tolist()
