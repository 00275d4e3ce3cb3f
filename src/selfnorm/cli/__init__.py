"""The command line: one file per verb, each parses, calls and prints."""

import sys

import typer

import selfnorm.cli.demo as demo

app = typer.Typer(
    name="selfnorm",
    help="Train large-vocabulary language models on samples; use their raw outputs as probabilities.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command()(demo.demo)


@app.callback()
def selfnorm() -> None:
    pass


def main() -> None:
    """Wrong input is one sentence and exit status 2; `--debug` shows where it came from."""
    try:
        app()
    except (ValueError, OSError) as error:
        if "--debug" in sys.argv:
            raise
        print(f"selfnorm: {error}", file=sys.stderr)
        sys.exit(2)
