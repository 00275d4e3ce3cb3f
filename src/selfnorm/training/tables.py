"""A recipe's table -> what it names: every key and every value is checked before anything is built."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args

from selfnorm.registry import named, pick

T = TypeVar("T")

WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word in quotes"}


def construct(
    kind: str, table: Mapping[str, Callable[..., T]], name: str, options: Mapping[str, Any], **ours: Any
) -> T:
    """`table[name]` with a recipe's `options`; what only the training can give, `ours`, is no option of a recipe."""
    build = named(kind, table, name)
    signature = inspect.signature(build)
    free = {key: each for key, each in signature.parameters.items() if key not in ours}

    def made(**options: Any) -> T:
        for key, value in options.items():
            _check(f"{name if kind == 'table' else kind}.{key}", value, free[key].annotation)
        return build(**ours, **options)

    made.__signature__ = signature.replace(parameters=list(free.values()))  # type: ignore[attr-defined]
    return pick(kind, {name: made}, name, **options)


def _check(place: str, value: Any, wanted: Any) -> None:
    """A whole number is a number, but true is not 1 and a word is no number."""
    kinds = [each for each in get_args(wanted) or (wanted,) if each in WORDS]
    if kinds and not any(type(value) is each or (each is float and type(value) is int) for each in kinds):
        raise ValueError(f"{place} = {value!r}: it must be {' or '.join(WORDS[each] for each in kinds)}")
