"""What the verbs share that share their work: two options, and the end of one who does not wait."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from selfnorm.cli.options import tell

SHARING = "Sharing"
Shared = Annotated[
    bool,
    typer.Option("--shared", help="Share the work with all who run this same command.", rich_help_panel=SHARING),
]
NoWait = Annotated[
    bool,
    typer.Option("--no-wait", help="End when others hold all that is left.", rich_help_panel=SHARING),
]


@contextmanager
def not_waiting() -> Iterator[None]:
    """One who does not wait for others ends well, with a sentence."""
    from selfnorm.corpus.sharing import Busy

    try:
        yield
    except Busy as busy:
        tell(str(busy))
        raise typer.Exit(0) from None


def given_alike(options: Mapping[str, Any], apart: set[str]) -> dict[str, Any]:
    """What a command was given, for others to compare with what they were: all options but those `apart`."""
    from selfnorm import __version__
    from selfnorm.corpus.sharing import alike

    apart = apart | {"shared", "no_wait", "json", "debug"}
    return {"version": __version__} | {name: alike(value) for name, value in options.items() if name not in apart}


def check(shared: bool, no_wait: bool) -> None:
    if no_wait and not shared:
        raise ValueError("--no-wait says not to wait for others who share the work; give --shared too")
