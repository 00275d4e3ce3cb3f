"""`selfnorm bench`: how fast this package is on this machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.bench_output import dated, output
from selfnorm.cli.options import Debug, Json, print_json, watched
from selfnorm.cli.usage import named

if TYPE_CHECKING:
    from selfnorm.bench.text import Stage
    from selfnorm.training.parts import Parts
    from selfnorm.training.speed import Speed

Texts = Annotated[list[Path], typer.Argument(help="Text: UTF-8, one sentence per line; plain, .gz, .bz2.")]
Repeat = Annotated[int, typer.Option(help="Times that all is done; the median is told.", min=1)]
ENOUGH = 60.0  # seconds of steps of one recipe, where the steps asked for take longer

bench = typer.Typer(rich_markup_mode="rich")


@bench.callback()
def _group() -> None:
    """Measure speed on this machine."""


def training(
    recipe: Annotated[list[Path], typer.Argument(help="Recipes, TOML files; their data must be prepared.")],
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override the recipes: sampler.k=100", metavar="KEY=VALUE", show_default=False),
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Steps of a run, fewer if they take minutes; the median of five runs is told.", min=1)
    ] = 20,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Training steps of recipes, with their own batches: nothing is saved.

    selfnorm bench training mode3.toml ce.toml --set data=data/books
    """
    from selfnorm import recipe as recipes

    chosen = {path: recipes.load(path, set_ or []) for path in recipe}  # before PyTorch: mistakes are told at once
    from selfnorm.training.parts import build
    from selfnorm.training.speed import TIMED, own_batches
    from selfnorm.training.trainer import Trainer

    found = []
    with watched() as tell:
        for path, each in chosen.items():
            tell(f"{path}: {steps} steps, after those that warm up")
            parts = build(each, Path())
            trainer = Trainer(parts, Path())
            parts.model.train()
            with trainer.own_chance():
                speed = own_batches(trainer, 1)
                few = min(steps, max(1, int(ENOUGH / TIMED / speed.seconds_per_batch)))
                if few < steps:
                    tell(f"{path}: a step takes {speed.seconds_per_batch:.2g} s: {few} of them instead of {steps}")
                if few > 1:
                    speed = own_batches(trainer, few)
            made, strange = (int(trainer.counts[n]) for n in (0, 3))
            if strange:
                what = "had a loss or gradient that is not finite, and changed nothing"
                tell(f"{path}: {strange} of {made} steps {what}: others may take longer; lower optimizer.lr")
            found.append(_trained(str(path), parts, speed))
    columns = {"recipe": "recipe", "criterion": "criterion", "k": "K", "C": "C", "ms": "ms/batch"}
    _show(found, json, columns | {"words_per_second": "words/s", "minutes": "minutes in all"})


def _trained(recipe: str, parts: "Parts", speed: "Speed") -> dict[str, Any]:
    from selfnorm.bench.machine import name_of

    return {
        "recipe": recipe,
        "criterion": parts.recipe.criterion.name or "mode3",
        "k": parts.sampler.k if parts.sampler is not None else None,
        "C": parts.model.size,
        "ms": 1000 * speed.seconds_per_batch,
        "words_per_second": speed.words_per_second,
        "minutes": parts.total * speed.seconds_per_batch / 60,
        "machine": name_of(parts.device),
    }


def sampler(
    size: Annotated[int, typer.Option(help="Ids to draw from, C.", min=2)] = 200_000,
    k: Annotated[int, typer.Option(help="Samples, K.", min=1)] = 8000,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """One draw by every sampler, with the expected counts of 1,024 targets."""
    from selfnorm.bench import machine
    from selfnorm.bench.sampler import draws

    if k >= size:
        raise ValueError(f"--k {k} of --size {size} ids are all of them or more; draw fewer")
    with watched() as tell:
        tell("every sampler, from both noises")
        place = machine.default_device()
        found = [{**vars(each), "C": size, "machine": machine.name_of(place)} for each in draws(size, k, place)]
    _show(found, json, {"noise": "noise", "sampler": "sampler", "C": "C", "k": "K", "ms": "ms"})


def rescoring(
    lattices: Annotated[list[Path], typer.Argument(help="HTK or Kaldi lattices, n-best lists: files or folders.")],
    model: Annotated[Path | None, typer.Option(help="The neural language model.", metavar="RUN")] = None,
    ngram: Annotated[Path | None, typer.Option(help="An n-gram model (ARPA).")] = None,
    words: Annotated[Path | None, typer.Option(help="Kaldi's words.txt.")] = None,
    lm_scale: Annotated[float | None, typer.Option(help="Else the header's, else 1; for Kaldi 1/acwt.")] = None,
    most: Annotated[int, typer.Option(help="Utterances at most: all are held in memory.", min=1)] = 100,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; else a GPU if there is one.")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """A second pass over utterances, with scores as they are and normalized; reading and writing not counted.

    selfnorm bench rescoring lattices --model runs/books
    """
    from itertools import islice

    from selfnorm import lattices as formats
    from selfnorm.bench.machine import name_of
    from selfnorm.bench.rescoring import WEIGHT, passes
    from selfnorm.cli.rescore_inputs import Headers, load_scorers
    from selfnorm.rescoring import NEURAL, Setting
    from selfnorm.rescoring.second_pass import Tally

    scorers = load_scorers(model, ngram, None, False, device)
    if not scorers:
        raise ValueError("there is no model to rescore with; give --model or --ngram")
    with watched() as tell:
        tell("reading")
        tally, setting = Tally(report=tell), Setting(lm_scale, WEIGHT)
        read = Headers(setting, tuning=False, tuned_on=False).of(tally.good(formats.read(lattices, words=words)))
        given = list(islice(read, most))
        if not given:
            raise ValueError("no utterance could be read; the lines above say why")
        tell(f"{len(given)} utterances" + (f", {tally.failed} could not be read" if tally.failed else ""))
        rows = list(passes(scorers, given, setting))
    import torch

    place = scorers[NEURAL].device if NEURAL in scorers else torch.device("cpu")
    slowest = max(each.seconds for each in rows)
    found = [
        {**vars(each), "arcs_per_second": each.arcs_per_second, "faster": slowest / each.seconds}
        | {"machine": name_of(place)}
        for each in rows
    ]
    columns = {"scores": "scores", "utterances": "utterances", "arcs": "arcs", "seconds": "seconds"}
    _show(found, json, columns | {"arcs_per_second": "arcs/s", "faster": "x faster"})
    if tally.failed:
        raise typer.Exit(1)


def prepare(
    text: Texts,
    size: Annotated[int, typer.Option(help="Words to keep.", min=3)] = 200_000,
    repeat: Repeat = 3,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """The two passes of `selfnorm prepare` over a text; nothing is kept."""
    from selfnorm.bench.text import preparing

    _show_stages(preparing(text, size, repeat), json)


def ngram(
    text: Texts,
    order: Annotated[int, typer.Option(help="Length of the longest n-grams.", min=1)] = 4,
    repeat: Repeat = 3,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """An n-gram model estimated, loaded and asked for the words of its text; nothing is kept.

    Beside it KenLM, if it is there: `lmplz` among the commands, `kenlm` among the packages.
    """
    from selfnorm.bench.text import counting

    _show_stages(counting(text, order, repeat), json)


def _show_stages(stages: "Iterator[Stage]", json: bool) -> None:
    import torch

    from selfnorm.bench.machine import name_of

    machine, found = name_of(torch.device("cpu")), []
    with watched() as tell:
        for each in stages:
            tell(f"{each.stage}, {each.by}: {each.seconds:.3g} s")
            found.append({**vars(each), "words_per_second": each.words_per_second, "machine": machine})
    columns = {"stage": "stage", "by": "by", "words": "words", "seconds": "seconds"}
    _show(found, json, columns | {"words_per_second": "words/s"})


for verb in (output, training, sampler, rescoring, prepare, ngram):
    bench.command()(named(verb))


def _show(rows: Sequence[dict[str, Any]], json: bool, columns: dict[str, str]) -> None:
    if json:
        print_json({"rows": dated(rows)})
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=rows[0]["machine"], title_justify="left")
    for key, title in columns.items():
        table.add_column(title, overflow="fold", justify="left" if isinstance(rows[0][key], str) else "right")
    for row in rows:
        table.add_row(*(_cell(row[key]) for key in columns))
    Console(markup=False).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else value
