"""`selfnorm bench output`: one step of the output layer, beside what else could be used."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any

import typer

from selfnorm.cli.options import Debug, Json, print_json, watched

if TYPE_CHECKING:
    from selfnorm.bench.row import Row


def output(
    shape: Annotated[
        list[str] | None,
        typer.Option(
            help="swb, libri, en, wiki103, extreme; on a CPU cpu-30k, cpu-200k. By default all of them.",
            show_default=False,
        ),
    ] = None,
    k: Annotated[
        list[int] | None, typer.Option(help="Samples; by default 8192, 1000 and 100.", show_default=False)
    ] = None,
    groups: Annotated[
        list[int] | None,
        typer.Option(help="Groups of positions, each with its own samples; by default 1.", show_default=False),
    ] = None,
    criterion: Annotated[
        list[str] | None, typer.Option(help="Sampled criteria, or all; by default mode3.", show_default=False)
    ] = None,
    compile: Annotated[
        bool, typer.Option("--compile", help="Full softmax by torch.compile, too: takes longer.")
    ] = False,
    budget: Annotated[
        float | None, typer.Option(help="Seconds after which nothing new is begun.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One small shape, few repeats: seconds on a CPU.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """One step of the output layer: ours against full softmax by everybody who is installed.

    Sampler, loss, gradients and optimizer, in milliseconds; each after its loss and gradients agreed with float64.
    """
    from selfnorm.bench import machine
    from selfnorm.bench.output import measure
    from selfnorm.bench.peers import here
    from selfnorm.bench.row import ON_CPU, ON_GPU, SAMPLED, SHAPES, times_faster
    from selfnorm.registry import named

    device = machine.default_device()
    gpu = machine.is_gpu(device)
    names = shape or (["quick"] if quick else ON_GPU if gpu else ON_CPU)
    asked = SAMPLED if criterion == ["all"] else criterion or ["mode3"]
    ks, numbers = k or ([1000, 100] if quick else [8192, 1000, 100]), groups or [1]
    if min(*ks, *numbers) < 1:
        raise ValueError(f"--k {min(ks)} --groups {min(numbers)}: both are at least 1")
    rows: list[Row] = []
    with watched() as progress:
        for row in measure(
            [named("shape", SHAPES, name) for name in names],
            ks,
            numbers,
            [named("sampled criterion", {each: each for each in SAMPLED}, name) for name in asked],
            here(gpu, compile),
            device=device,
            budget=float("inf") if budget is None else budget,
            repeats=5 if quick else machine.REPEATS,
            tell=progress,
        ):
            rows.append(row)
    if not rows:
        raise ValueError("nothing could be measured; the lines above say why")
    if json:
        print_json({"rows": dated([{**row.columns(), "times_faster": times_faster(row, rows)} for row in rows])})
    else:
        _show(rows)


def dated(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as they are kept: what was measured today."""
    return [{**row, "date": date.today().isoformat()} for row in rows]


def _show(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    from selfnorm.bench.row import times_faster

    console = Console()
    for shape in dict.fromkeys(row.shape for row in rows):
        here = [row for row in rows if row.shape == shape]
        title = f"{shape.name}: C = {shape.size:,}, H = {shape.width:,}, N = {shape.positions:,}; {here[0].machine}"
        table = Table(title=f"{title}, {here[0].dtype}", title_justify="left")
        measured = [row.peak_mib for row in here if row.peak_mib is not None]
        table.add_column(no_wrap=True)
        table.add_column("what")
        for column in ("ms", "limit", "x limit", *(("MiB",) if measured else ()), "x faster"):
            table.add_column(column, justify="right")
        for row in here:
            faster = times_faster(row, rows)
            numbers = [f"{row.ms:.3f}", f"{row.limit_ms:.3f}", f"{row.ratio:.2f}"]
            numbers += [] if row.peak_mib is None else [f"{row.peak_mib:,.0f}"]
            style = "bold" if row.part == "step" and not row.is_full else None
            table.add_row(_way(row), row.part, *numbers, f"{faster:.1f}" if faster else "-", style=style)
        console.print(table)


def _way(row: "Row") -> str:
    if row.is_full:
        return row.impl
    groups = f", G = {row.groups}" if row.groups > 1 else ""
    return f"{row.criterion}, K = {row.k:,}{groups}"
