"""`selfnorm evaluate`: perplexity of a text, and how well the scores normalize themselves."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, counting, print_json, read_text, tell

if TYPE_CHECKING:
    from selfnorm.corpus.store import TokenStore
    from selfnorm.evaluation import Evaluation, Mixture
    from selfnorm.scorers import Neural, NGram
    from selfnorm.scorers.text import Words


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory, or an n-gram model in ARPA format.")],
    text: Annotated[Path, typer.Argument(help="Text: UTF-8, one sentence per line; plain, .gz, .bz2.")],
    ngram: Annotated[
        Path | None, typer.Option(help="An n-gram model to interpolate with, in ARPA format.", show_default=False)
    ] = None,
    tune: Annotated[
        Path | None, typer.Option(help="Development text that the weight is fitted to.", show_default=False)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Folder for the log Z histogram and the calibration plot.", show_default=False)
    ] = None,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="A blank line is an empty sentence.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a model on a text: normalized perplexity, scores as they are, log Z; alone or with an n-gram model."""
    from selfnorm import evaluation, scorers

    if (ngram is None) != (tune is None):
        raise ValueError("--ngram and --tune go together; give a model in ARPA format and a development text")
    if tune is not None and tune.exists() and text.exists() and tune.samefile(text):
        raise ValueError(f"{tune}: is the text to be measured; fit the weight to another one")
    if plot is not None and plot.exists() and not plot.is_dir():
        raise ValueError(f"{plot}: is a file; give a folder for the plots")
    scorer = scorers.load(run)
    sentences = read_text(text, keep_empty)
    mixture: Mixture | None = None
    normalized = True
    written: list[Path] = []
    if isinstance(scorer, scorers.NGram):
        if ngram is not None or plot is not None:
            raise ValueError(f"{run}: is an n-gram model; --ngram and --plot need a run")
        result = evaluation.evaluate_ngram(scorer, sentences)
    else:
        words, store = _measure(scorer, sentences)
        unknown = scorer.vocabulary.unknown
        result = evaluation.summarize(words, store, unknown)
        if ngram is not None and tune is not None:
            from selfnorm.scorers.interpolated import fit

            other, development = scorers.NGram.load(ngram), read_text(tune, keep_empty)
            weight = fit([_measure(scorer, development)[0].log_probs, other.text(development).scores])[1]
            mixture = evaluation.evaluate_mixture(words, unknown, other.text(sentences), weight)
            normalized = _tell_apart(run, scorer, ngram, other)
        if plot is not None:
            written = _plot(plot, f"{run.name}, {scorer.config['criterion']}", scorer, store, words)
    if json:
        mixed = {**asdict(mixture), "mixture_normalized": normalized} if mixture else {}
        print_json({**asdict(result), **mixed, "plots": [str(path) for path in written]})
    else:
        _show(result, _mixture_rows(mixture, normalized) if mixture else (), f"{run} on {text}", written)


def _tell_apart(run: Path, scorer: "Neural", ngram: Path, other: "NGram") -> bool:
    """Whether both models know the same words, and a sentence where they do not."""
    from selfnorm.evaluation import apart
    from selfnorm.vocabulary import Vocabulary

    assert isinstance(other.vocabulary, Vocabulary)  # it was loaded by our own tables
    ours, theirs = apart(scorer.vocabulary, other.vocabulary)
    if ours or theirs:
        tell(
            f"{ngram}: has {theirs:,} words that {run} does not know, and lacks {ours:,} that it does: each gets all "
            "of the other's <unk>, and the perplexity of the mixture is not normalized; make the n-gram of "
            "the same text with `selfnorm ngram --vocab DATA/vocab.txt`"
        )
    return not (ours or theirs)


def _measure(scorer: "Neural", sentences: list[list[str]]) -> "tuple[Words, TokenStore]":
    from selfnorm.corpus.store import TokenStore
    from selfnorm.scorers.text import measure

    store = TokenStore.of(map(scorer.vocabulary.encode, sentences), scorer.vocabulary)
    with counting("evaluating") as progress:
        return measure(scorer.model, store, histories=scorer.histories, progress=progress), store


def _plot(folder: Path, name: str, scorer: "Neural", store: "TokenStore", words: "Words") -> list[Path]:
    from selfnorm import evaluation, report

    folder.mkdir(parents=True, exist_ok=True)
    calibration = evaluation.calibrate(scorer.model, store, scorer.histories)
    return report.plot_log_z(folder / "log_z", {name: words.log_z}) + report.plot_calibration(
        folder / "calibration", {name: calibration}
    )


def _show(result: "Evaluation", mixed: Iterable[tuple[str, str]], title: str, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title=Text(title), title_justify="left", show_header=False)  # a path is no markup
    table.add_column()
    table.add_column(justify="right")
    for name, value in (*_rows(result), *mixed):
        table.add_row(name, value)
    console.print(table)
    if result.bands:
        bands = Table(title="by rank of the word in the vocabulary", title_justify="left")
        bands.add_column("ranks")
        for column in ("words", "perplexity", "log Z mean", "log Z std"):
            bands.add_column(column, justify="right")
        for band in result.bands:
            numbers = (f"{band.words:,}", f"{band.perplexity:,.1f}", f"{band.log_z_mean:+.3f}", f"{band.log_z_std:.3f}")
            bands.add_row(band.ranks, *numbers)
        console.print(bands)
    for path in written:
        print(path)


def _rows(result: "Evaluation") -> Iterator[tuple[str, str]]:
    yield "words, with </s>", f"{result.words:,}"
    yield "sentences", f"{result.sentences:,}"
    yield "unknown words", f"{result.oov:,} ({100 * result.oov_rate:.2f} %)"
    yield "[bold]perplexity, normalized", f"[bold]{result.perplexity:.2f}"
    yield "perplexity without unknown words", f"{result.perplexity_without_unk:.2f}"
    if quantiles := result.log_z_quantiles:  # an n-gram model has none
        yield "perplexity of the scores as they are", f"{result.perplexity_as_is:.2f}"
        yield "log Z, mean and standard deviation", f"{result.log_z_mean:+.3f}  {result.log_z_std:.3f}"
        shown = "  ".join(f"{quantiles[share]:+.3f}" for share in ("0.01", "0.5", "0.99"))
        yield "log Z, 1 %, 50 %, 99 % quantile", shown
    yield "words/s", f"{result.words_per_second:,.0f}"


def _mixture_rows(mixture: "Mixture", normalized: bool) -> Iterator[tuple[str, str]]:
    yield "words unknown to the n-gram", f"{mixture.ngram_oov:,}"
    yield "perplexity of the n-gram", f"{mixture.ngram_perplexity:.2f}"
    yield "perplexity of the n-gram without unknown words", f"{mixture.ngram_perplexity_without_unk:.2f}"
    yield "weight of the n-gram in the mixture", f"{mixture.ngram_weight:.4f}"
    how = "" if normalized else ", not normalized"
    yield f"[bold]perplexity of the mixture{how}", f"[bold]{mixture.mixture_perplexity:.2f}"
    yield "perplexity of the mixture, words both know", f"{mixture.mixture_perplexity_without_unk:.2f}"
