"""Answers for people: blocks of ``name: value``, tables for lists, and plain text as it is."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

import click
import msgspec

from weft.kernel.operation import Response

_GAP = "  "
_NARROWEST = 8
# Columns that people need not see where they say the same as another.
_REPEATS = {"agent_id": "sender", "match_preview": "content"}
# What agents write is shown, never obeyed: a terminal acts on control characters.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def show(response: msgspec.Struct, *, as_json: bool, form: Callable[[Any], str] | None = None) -> None:
    """Print an answer: exactly as JSON, or for people, in a form of its own if it has one."""
    click.echo(_json(response) if as_json else (form or render)(response))


def render(response: msgspec.Struct) -> str:
    text = getattr(response, "text", None)
    if isinstance(text, str):
        return harmless(text)
    return "\n\n".join(filter(None, _parts(response))) or "Done."


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Lay rows out in columns, leaving out empty ones and shortening the widest to fit the terminal."""
    columns = {name: [row.get(name, "") for row in rows] for row in rows for name in row}
    names = [name for name in columns if any(columns[name]) and columns[name] != columns.get(_REPEATS.get(name, ""))]
    cells = [[" ".join(row.get(name, "").split()) for name in names] for row in rows]
    widths = _fit([max(len(name), *(len(line[place]) for line in cells)) for place, name in enumerate(names)])
    head, *body = (
        _GAP.join(f"{_short(text, width):<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (names, *cells)
    )
    return "\n".join([click.style(head, bold=True), *body])


def block(pairs: Mapping[str, str]) -> str:
    """Lay pairs out one to a line; what has several lines goes below its name."""
    width = max(map(len, pairs), default=0) + 1
    return "\n".join(_pair(name, value, width) for name, value in pairs.items())


def counted(number: int, thing: str) -> str:
    """Say how many there are of something."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _parts(response: msgspec.Struct) -> Iterable[str]:
    """Yield the plain fields as one block, then each nested thing under its own heading."""
    values = {name: value for name, value in _fields(response) if name != "success"}
    nested = {name: value for name, value in values.items() if isinstance(value, msgspec.Struct) or _are_rows(value)}
    plain = {
        name: "none" if value in ([], (), {}) else cell(value)
        for name, value in values.items()
        if name not in nested and value is not None
    }
    if plain:
        yield block(plain)
    for name, value in nested.items():
        heading = "" if len(values) == 1 else click.style(f"{name}:", bold=True) + "\n"
        yield heading + indent(render(value) if isinstance(value, msgspec.Struct) else table([row(v) for v in value]))


def _fields(response: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Yield an answer's fields by the names they have on the wire; what may be any JSON is shown as JSON."""
    for field in msgspec.structs.fields(response):
        value = getattr(response, field.name)
        if value is msgspec.UNSET:
            continue
        if field.type is Any:
            value = _as_json(value)
        elif isinstance(value, float) and field.name.endswith("_at"):
            value = datetime.fromtimestamp(value, UTC)
        yield field.encode_name, value


def row(item: msgspec.Struct) -> dict[str, str]:
    """Return one line of a table: nested answers are part of it, settings are left to ``--json``.

    Where two parts have a cell of the same name, each nested one goes by the name of its part as well.
    """
    parts = [
        (field, row(value) if isinstance(value, Response) else {field: cell(value)})
        for field, value in _fields(item)
        if isinstance(value, Response) or not isinstance(value, msgspec.Struct)
    ]
    uses = Counter(name for _, cells in parts for name in cells)
    return {
        name if name == field or uses[name] == 1 else f"{field}_{name}": text
        for field, cells in parts
        for name, text in cells.items()
    }


def cell(value: Any) -> str:  # noqa: ANN401 - whatever an answer holds
    if isinstance(value, msgspec.Struct):
        # In a cell there is room for what a thing is called, which is what its first field says.
        value = getattr(value, value.__struct_fields__[0])
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return _moment(value)
        case dict():
            return _object(value)
        case list() | tuple():
            return ", ".join(map(cell, value))
        case _:
            return harmless(str(value))


def _moment(moment: datetime) -> str:
    try:
        return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    except OverflowError:
        # In the first and the last hours of all it is another year elsewhere, which no calendar has.
        return moment.isoformat()


def _object(value: dict[Any, Any]) -> str:
    if any(isinstance(part, dict | list | msgspec.Struct) for part in value.values()):
        return _as_json(value)
    return " ".join(f"{cell(name)}={cell(part)}" for name, part in value.items())


def _are_rows(value: Any) -> TypeGuard[Sequence[msgspec.Struct]]:  # noqa: ANN401 - whatever an answer holds
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], msgspec.Struct)


def _pair(name: str, value: str, width: int) -> str:
    if "\n" in value:
        return click.style(f"{name}:", fg="cyan") + f"\n{indent(value)}"
    return click.style(f"{name + ':':<{width}}", fg="cyan") + f" {value}"


def indent(text: str) -> str:
    """Move text to the right, but for empty lines."""
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


def _fit(widths: list[int]) -> list[int]:
    """Take from the widest columns until all fit; a pipe gets everything."""
    if not sys.stdout.isatty():
        return widths
    # A table below a heading is indented by one gap.
    room = shutil.get_terminal_size().columns - len(_GAP) * len(widths)
    while sum(widths) > room and max(widths) > _NARROWEST:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    return widths


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _as_json(value: object) -> str:
    return harmless(msgspec.json.encode(value).decode())


def harmless(text: str) -> str:
    """Make control characters visible."""
    return text.translate(_CONTROLS)


def _json(response: msgspec.Struct) -> bytes:
    encoded = msgspec.json.encode(response)
    return msgspec.json.format(encoded, indent=2) if sys.stdout.isatty() else encoded
