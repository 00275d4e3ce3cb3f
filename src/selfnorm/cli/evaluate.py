"""`selfnorm evaluate`: perplexity of a text, and how well the scores normalize themselves."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from selfnorm.cli.options import Debug, Json, counting, print_json

if TYPE_CHECKING:
    from selfnorm.evaluation import Evaluation


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    text: Annotated[Path, typer.Argument(help="Text: UTF-8, one sentence per line; plain, .gz, .bz2.")],
    plot: Annotated[
        Path | None, typer.Option(help="Folder for the log Z histogram and the calibration plot.", show_default=False)
    ] = None,
    keep_empty: Annotated[bool, typer.Option("--keep-empty", help="A blank line is an empty sentence.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure a model on a text: normalized perplexity, scores as they are, log Z."""
    from selfnorm import evaluation, scorers
    from selfnorm.corpus.store import TokenStore
    from selfnorm.corpus.text import read_sentences
    from selfnorm.scorers.text import measure

    scorer = scorers.load(run)
    vocabulary = scorer.vocabulary
    store = TokenStore.of((vocabulary.encode(words) for words in read_sentences(text, keep_empty)), vocabulary)
    if not len(store):
        raise ValueError(f"{text}: holds no sentence; give a text with one sentence per line")
    with counting("evaluating") as progress:
        words = measure(scorer.model, store, histories=scorer.histories, progress=progress)
    result = evaluation.summarize(words, store, vocabulary.unknown)
    written: list[Path] = []
    if plot is not None:
        from selfnorm import report

        plot.mkdir(parents=True, exist_ok=True)
        name = f"{run.name}, {scorer.config['criterion']}"
        calibration = evaluation.calibrate(scorer.model, store, scorer.histories)
        written = report.plot_log_z(plot / "log_z", {name: words.log_z}) + report.plot_calibration(
            plot / "calibration", {name: calibration}
        )
    if json:
        print_json({**asdict(result), "plots": [str(path) for path in written]})
    else:
        _show(result, run, text, written)


def _show(result: "Evaluation", run: Path, text: Path, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"{run} on {text}", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    quantiles = result.log_z_quantiles
    for name, value in (
        ("words, with </s>", f"{result.words:,}"),
        ("sentences", f"{result.sentences:,}"),
        ("unknown words", f"{result.oov:,} ({100 * result.oov_rate:.2f} %)"),
        ("[bold]perplexity, normalized", f"[bold]{result.perplexity:.2f}"),
        ("perplexity without unknown words", f"{result.perplexity_without_unk:.2f}"),
        ("perplexity of the scores as they are", f"{result.perplexity_as_is:.2f}"),
        ("log Z, mean and standard deviation", f"{result.log_z_mean:+.3f}  {result.log_z_std:.3f}"),
        ("log Z, 1 %, 50 %, 99 % quantile", "  ".join(f"{quantiles[share]:+.3f}" for share in ("0.01", "0.5", "0.99"))),
        ("words/s", f"{result.words_per_second:,.0f}"),
    ):
        table.add_row(name, value)
    console.print(table)
    bands = Table(title="by rank of the word in the vocabulary", title_justify="left")
    bands.add_column("ranks")
    for column in ("words", "perplexity", "log Z mean", "log Z std"):
        bands.add_column(column, justify="right")
    for band in result.bands:
        bands.add_row(
            band.ranks, f"{band.words:,}", f"{band.perplexity:,.1f}", f"{band.log_z_mean:+.3f}", f"{band.log_z_std:.3f}"
        )
    console.print(bands)
    for path in written:
        print(path)
