"""Recipes: one TOML file -> frozen dataclasses; a table is the keywords of one constructor, which checks them."""

import difflib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
MOST = 1 << 14  # bytes of a recipe; a key of so many parts takes the parser a second, and ten times as many a minute
SYNTAX_ERROR = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column \d+\)", re.DOTALL)


@dataclass(frozen=True)
class Table:
    """`name` picks a constructor, `options` are its keywords; no name means the default one."""

    name: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """What to train on what: `data` is a folder made by `selfnorm prepare`."""

    data: str
    criterion: Table = Table()
    sampler: Table = Table()
    model: Table = Table()
    batches: Table = Table()
    optimizer: Table = Table()
    schedule: Table = Table()
    training: Table = Table()


KEYS = tuple(each.name for each in fields(Recipe))


def load(path: Path, sets: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply overrides such as `sampler.k=100`."""
    text = _read(path)
    values = _parse(path, text)
    for key in values:
        if key not in KEYS:
            raise ValueError(f"{_place(path, text, key)}: unknown key {key!r}; {_nearest(key)}")
    for override in sets:
        _apply(values, override)
    return _build(path, text, values)


def to_toml(recipe: Recipe) -> str:
    """The recipe as run; `load` reads the same recipe back."""
    lines = [f"data = {_render(recipe.data)}"]
    for key in KEYS[1:]:
        table: Table = getattr(recipe, key)
        values = ({} if table.name is None else {"name": table.name}) | dict(table.options)
        if values:
            lines.append(f"{key} = {_render(values)}")
    return "\n".join(lines) + "\n"


def _read(path: Path) -> str:
    if not path.is_file():
        what = "is not a file" if path.exists() else "there is no such recipe file"
        raise ValueError(f"{path}: {what}; give the path of a .toml file")
    if path.stat().st_size > MOST:
        raise ValueError(f"{path}: has over {MOST:,} bytes; give a recipe, which has far fewer")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start} is not UTF-8; save the recipe as UTF-8 text") from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = SYNTAX_ERROR.fullmatch(str(error))
        line = match["line"] if match else len(text.splitlines())
        raise ValueError(f"{path}:{line}: not valid TOML: {match['what'] if match else error}") from error
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply for a recipe; write plain tables") from error
    except ValueError as error:  # a number of thousands of digits
        raise ValueError(f"{path}: a value cannot be read ({error})") from error


def _apply(values: dict[str, Any], override: str) -> None:
    """Put one `key=value` or `table.key=value` into the values of the file."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or len(parts) > 2 or not all(BARE_KEY.fullmatch(part) for part in parts):
        raise ValueError(f"--set {override}: is not of the form key=value or table.key=value, such as sampler.k=100")
    if parts[0] not in KEYS:
        raise ValueError(f"--set {override}: unknown key {parts[0]!r}; {_nearest(parts[0])}")
    value = _value(override, text.strip())
    if len(parts) == 1:
        if parts[0] != "data" and not isinstance(value, dict):
            raise ValueError(
                f"--set {override}: {parts[0]!r} is a table; set an option of it, such as criterion.name=mode3"
            )
        values[parts[0]] = value
        return
    table = values.setdefault(parts[0], {})
    if not isinstance(table, dict):
        raise ValueError(f"--set {override}: {parts[0]!r} is no table in this recipe, so it has no {parts[1]!r}")
    table[parts[1]] = value


def _value(override: str, text: str) -> Any:
    """A TOML value; what is none is a string, so that `data=DIR` needs no quotes inside the shell's."""
    try:
        parsed = tomllib.loads(f"value = {text}")
        if parsed.keys() == {"value"} and _is_plain(parsed["value"]):
            return parsed["value"]
    except (ValueError, RecursionError):
        pass
    if not text or text[0] in "[{\"'" or text in ("True", "False", "None") or not _is_text(text):
        raise ValueError(f"--set {override}: {text!r} is not a TOML value; write 100, 0.5, true, [1, 2] or a word")
    return text


def _build(path: Path, text: str, values: Mapping[str, Any]) -> Recipe:
    if "data" not in values:
        raise ValueError(f'{path}: `data` is missing; name the folder that `selfnorm prepare` wrote: data = "DATA"')
    if not isinstance(values["data"], str):
        raise ValueError(f"{_place(path, text, 'data')}: `data` must be the name of a folder, in quotes")
    tables = {key: _table(_place(path, text, key), key, values[key]) for key in values if key != "data"}
    return Recipe(values["data"], **tables)


def _table(place: str, key: str, value: Any) -> Table:
    if not isinstance(value, dict):
        raise ValueError(f'{place}: `{key}` must be a table, such as {key} = {{ name = "…" }}, not {value!r}')
    options = {option: each for option, each in value.items() if option != "name"}
    name = value.get("name")
    if not (name is None or isinstance(name, str)):
        raise ValueError(f"{place}: the name of `{key}` must be a word in quotes, not {name!r}")
    for option, each in options.items():
        if not _is_plain(each):
            raise ValueError(f"{place}: `{key}.{option}` is a date or time, which no option takes; put it in quotes")
    return Table(name, options)


def _is_plain(value: Any) -> bool:
    """True for what JSON also has: dates and times are TOML's own."""
    if isinstance(value, dict):
        return all(_is_plain(each) for each in value.values())
    if isinstance(value, list):
        return all(_is_plain(each) for each in value)
    return isinstance(value, str | int | float | bool)


def _is_text(text: str) -> bool:
    """False for a command line's bytes that are not UTF-8: they could not be written to recipe.toml."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _place(path: Path, text: str, key: str) -> str:
    """The file and the line that sets a key or opens its table; no line if the key came from the command line."""
    opening = re.compile(rf"""\s*\[{{0,2}}\s*["']?{re.escape(key)}["']?\s*[=.\]]""")
    line = next((number for number, line in enumerate(text.splitlines(), 1) if opening.match(line)), None)
    return f"{path}:{line}" if line else f"{path}"


def _nearest(key: str) -> str:
    match = difflib.get_close_matches(key, KEYS, n=1)
    return (f"did you mean {match[0]!r}? " if match else "") + f"a recipe has: {', '.join(KEYS)}"


def _render(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_render_key(key)} = {_render(each)}" for key, each in value.items())
        return f"{{ {pairs} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_render, value)) + "]"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)  # int and float: the shortest text that reads back the same; inf and nan are TOML's words too


def _render_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else _render(key)
