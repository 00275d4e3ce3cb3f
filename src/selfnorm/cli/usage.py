"""How verbs are called: what their options and arguments are named in the help, and what is said of a wrong call."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo

WrongCall: type[Exception] = typer.BadParameter.__base__  # type: ignore[assignment]  # of all that is wrong with a call
TAKES = {bool: "", Path: "PATH", int: "N", float: "NUMBER", str: "TEXT"}  # what an option of this type takes


def named(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb; its help says one word for what an option takes, and what an argument is in capitals."""
    for name, hint in get_type_hints(verb, include_extras=True).items():
        if get_origin(hint) is Annotated:
            kind, info = get_args(hint)
            if info.metavar is None:
                info.metavar = name.upper() if isinstance(info, ArgumentInfo) else _takes(kind)
    return verb


def _takes(kind: Any) -> str:
    parts = [each for each in get_args(kind) if each is not NoneType]
    if parts:  # of a list, or of what may be missing
        return _takes(parts[0])
    return "|".join(kind) if issubclass(kind, StrEnum) else TAKES[kind]


def sentence(error: Any) -> str:
    """What is wrong with a call, and where to look."""
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    command = error.ctx.command_path if error.ctx else "selfnorm"
    more = "" if message.endswith("?") else f"; see {command} --help"
    return f"{command}: {message[:1].lower()}{message[1:]}{more}"
