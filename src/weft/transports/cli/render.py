"""Human-readable output: ``name: value`` blocks, tables for lists, and text unchanged."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeGuard

import click
import msgspec

from weft.kernel.identity import principal_of
from weft.kernel.operation import Response

_GAP = "  "
_MIN_COLUMN_WIDTH = 8
# Columns hidden when they repeat another column, or the end of a participant name in it.
_DUPLICATE_COLUMNS = {"agent_id": ("sender", "author", "actor"), "match_preview": ("content",)}
# Text of agents may hold control characters, which a terminal would execute.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def show(response: msgspec.Struct, *, as_json: bool, formatter: Callable[[Any], str] | None = None) -> None:
    """Print an answer as JSON, or as text with its own formatter or the generic one."""
    click.echo(_json(response) if as_json else (formatter or render)(response))


def render(response: msgspec.Struct) -> str:
    text = getattr(response, "text", None)
    if isinstance(text, str):
        return escape_controls(text)
    return "\n\n".join(filter(None, _parts(response))) or "Done."


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Format rows as columns; empty columns are left out, the widest are truncated to fit the terminal."""
    columns = {name: [row.get(name, "") for row in rows] for row in rows for name in row}
    names = [name for name in columns if any(columns[name]) and not _is_duplicate(name, columns)]
    cells = [[" ".join(row.get(name, "").split()) for name in names] for row in rows]
    widths = _fit([max(len(name), *(len(line[place]) for line in cells)) for place, name in enumerate(names)])
    head, *body = (
        _GAP.join(f"{_short(text, width):<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (names, *cells)
    )
    return "\n".join([click.style(head, bold=True), *body])


def _is_duplicate(name: str, columns: Mapping[str, Sequence[str]]) -> bool:
    others = (columns[other] for other in _DUPLICATE_COLUMNS.get(name, ()) if other in columns)
    return any(columns[name] in (list(other), [principal_of(cell) for cell in other]) for other in others)


def block(pairs: Mapping[str, str]) -> str:
    """Format pairs one per line; multi-line values go below their name."""
    width = max(map(len, pairs), default=0) + 1
    return "\n".join(_pair(name, value, width) for name, value in pairs.items())


def counted(number: int, thing: str) -> str:
    """Return a number with its noun in singular or plural."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _parts(response: msgspec.Struct) -> Iterable[str]:
    """Yield the scalar fields as one block, then each nested struct or list under a heading."""
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
    """Yield fields by their wire names; values of type Any are shown as JSON."""
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
    """Return one table row: nested responses are flattened into it, other structs only appear in ``--json``.

    A nested cell whose name occurs twice is prefixed with the name of its field.
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


def cell(value: Any) -> str:  # noqa: ANN401 - any field value
    if isinstance(value, msgspec.Struct):
        # The first field of a struct is its name.
        value = getattr(value, value.__struct_fields__[0])
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return _timestamp(value)
        case dict():
            return _object(value)
        case list() | tuple():
            return ", ".join(map(cell, value))
        case _:
            return escape_controls(str(value))


def _timestamp(at: datetime) -> str:
    try:
        return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
    except OverflowError:
        # In the first and last hours of the datetime range, UTC is out of range.
        return at.isoformat()


def _object(value: dict[Any, Any]) -> str:
    if any(isinstance(part, dict | list | msgspec.Struct) for part in value.values()):
        return _as_json(value)
    return " ".join(f"{cell(name)}={cell(part)}" for name, part in value.items())


def _are_rows(value: Any) -> TypeGuard[Sequence[msgspec.Struct]]:  # noqa: ANN401 - any field value
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], msgspec.Struct)


def _pair(name: str, value: str, width: int) -> str:
    if "\n" in value:
        return click.style(f"{name}:", fg="cyan") + f"\n{indent(value)}"
    return click.style(f"{name + ':':<{width}}", fg="cyan") + f" {value}"


def indent(text: str) -> str:
    """Indent all lines but empty ones."""
    return "\n".join(f"  {line}" if line else "" for line in text.split("\n"))


def _fit(widths: list[int]) -> list[int]:
    """Narrow the widest columns until all fit the terminal; a pipe gets full width."""
    if not sys.stdout.isatty():
        return widths
    # A table below a heading is indented by the width of a gap.
    room = shutil.get_terminal_size().columns - len(_GAP) * len(widths)
    while sum(widths) > room and max(widths) > _MIN_COLUMN_WIDTH:
        widest = widths.index(max(widths))
        widths[widest] -= 1
    return widths


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _as_json(value: object) -> str:
    return escape_controls(msgspec.json.encode(value).decode())


def escape_controls(text: str) -> str:
    """Escape control characters."""
    return text.translate(_CONTROLS)


def _json(response: msgspec.Struct) -> bytes:
    encoded = msgspec.json.encode(response)
    return msgspec.json.format(encoded, indent=2) if sys.stdout.isatty() else encoded
