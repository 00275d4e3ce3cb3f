"""The only look-up by name: a table is a dict, an unknown name or option is a sentence."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def pick(kind: str, table: Mapping[str, Callable[..., T]], /, name: str, **options: Any) -> T:
    """Build `table[name]` with `options`."""
    build = named(kind, table, name)
    known = inspect.signature(build).parameters if options else {}  # torch.compile cannot follow it
    for option in options:
        if option not in known:
            hint = f"{_nearest(option, known)}it takes: {', '.join(known) or 'none'}"
            raise ValueError(f"{kind} {name!r} takes no option {option!r}; {hint}")
    return build(**options)


def named(kind: str, table: Mapping[str, T], name: str) -> T:
    """`table[name]`, as it stands there."""
    if not isinstance(name, str):
        raise ValueError(f"{kind} {name!r} is no name; choose one of: {', '.join(table)}")
    if name not in table:
        raise ValueError(f"there is no {kind} {name!r}; {_nearest(name, table)}choose one of: {', '.join(table)}")
    return table[name]


def _nearest(name: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {match[0]!r}? " if match else ""
