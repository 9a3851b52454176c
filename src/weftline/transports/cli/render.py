"""Human-readable output: ``name: value`` blocks, tables for lists, and text unchanged."""

from __future__ import annotations

import re
import shutil
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from textwrap import wrap
from typing import Any, TypeGuard
from unicodedata import combining, east_asian_width

import click
import msgspec

from weftline.kernel.identity import principal_of
from weftline.kernel.json_input import StoredValue
from weftline.kernel.operation import Response
from weftline.transports.unseen_characters import UNSEEN

_GAP = "  "
_MIN_COLUMN_WIDTH = 8
_MIN_NAME_WIDTH = 4
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ")
# Columns that a reader copies into the next command, beside those that end in _id.
_IDS = frozenset({"id", "key", "ref", "label", "name", "domain", "team", "check", "state"})
# Columns hidden when they repeat another column, or the end of a participant name in it.
_DUPLICATE_COLUMNS = {"agent_id": ("sender", "author", "actor"), "match_preview": ("content",)}
# Text of agents may hold characters that a terminal would execute, and that make a text look like another one.
_ESCAPED = re.compile(rf"[{UNSEEN}\r]")
_ONE_BYTE = 0x100


def show(response: msgspec.Struct, *, as_json: bool, formatter: Callable[[Any], str] | None = None) -> None:
    """Print an answer as JSON, or as text with its own formatter or the generic one."""
    click.echo(_json(response) if as_json else (formatter or render)(response))


def render(response: msgspec.Struct) -> str:
    text = getattr(response, "text", None)
    if isinstance(text, str):
        return escape_controls(text)
    return "\n\n".join(filter(None, _parts(response))) or "Done."


def render_rest(response: msgspec.Struct, without: Collection[str]) -> str:
    """Format the fields of an answer that a command has not printed already."""
    hidden = {"success", *without}
    shown = {name: cell(value) for name, value in _fields(response) if name not in hidden and value is not None}
    return block({name: value for name, value in shown.items() if value})


def table(rows: Sequence[Mapping[str, str]], *, wrapped: str | None = None) -> str:
    """Format rows as columns; empty columns are left out.

    In a terminal the widest columns are shortened until they fit, but ids never; the column ``wrapped`` is wrapped
    instead. Rows of too many columns become blocks of one line per column. A pipe gets everything.
    """
    columns = {name: [row.get(name, "") for row in rows] for row in rows for name in row}
    names = [name for name in columns if any(columns[name]) and not _is_duplicate(name, columns)]
    cells = [[" ".join(row.get(name, "").split()) for name in names] for row in rows]
    widths = _fit(names, list(zip(*cells, strict=True)))
    if widths is None:
        return "\n\n".join(block(dict(zip(names, line, strict=True))) for line in cells)
    lines = [part for line in cells for part in _wrapped(line, names, widths, wrapped)]
    head, *body = (
        _GAP.join(_padded(text, width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in (names, *lines)
    )
    return "\n".join([click.style(head, bold=True), *body])


def _is_duplicate(name: str, columns: Mapping[str, Sequence[str]]) -> bool:
    others = (columns[other] for other in _DUPLICATE_COLUMNS.get(name, ()) if other in columns)
    return any(columns[name] in (list(other), [principal_of(cell) for cell in other]) for other in others)


def _wrapped(line: list[str], names: list[str], widths: list[int], wrapped: str | None) -> list[list[str]]:
    """Return the lines of a row: one, or more if the wrapped column needs them."""
    if wrapped not in names:
        return [line]
    place = names.index(wrapped)
    texts = wrap(line[place], widths[place]) or [""]
    return [
        [text if at == place else "" if number else line[at] for at in range(len(line))]
        for number, text in enumerate(texts)
    ]


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


# Parts of a limit, not times.
_PARTS = frozenset({"warn_at"})


def _fields(response: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    """Yield fields by their wire names; values of type Any are shown as JSON, stored ones only unless they are text."""
    for field in msgspec.structs.fields(response):
        value = getattr(response, field.name)
        if value is msgspec.UNSET:
            continue
        if field.type is Any or (field.type == StoredValue and not isinstance(value, str)):
            value = _as_json(value)
        elif isinstance(value, float) and field.name.endswith("_at") and field.name not in _PARTS:
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


def _fit(names: Sequence[str], columns: Sequence[Sequence[str]]) -> list[int] | None:
    """Return widths with which the columns fit the terminal; None if they cannot. A pipe gets full width.

    Names wider than their values are narrowed first, then the widest texts; ids and times never.
    """
    needed = [max(map(text_width, column)) for column in columns]
    widths = [max(text_width(name), width) for name, width in zip(names, needed, strict=True)]
    if not sys.stdout.isatty():
        return widths
    # A table below a heading is indented by the width of a gap.
    excess = sum(widths) + len(_GAP) * len(widths) - shutil.get_terminal_size().columns
    excess = _narrow(widths, [max(width, _MIN_NAME_WIDTH) for width in needed], excess)
    excess = _narrow(widths, [_least_width(*column) for column in zip(names, columns, needed, strict=True)], excess)
    return widths if excess <= 0 else None


def _narrow(widths: list[int], least: Sequence[int], excess: int) -> int:
    """Narrow the widest columns, none below its least width, and return how much is still too much."""
    while excess > 0:
        spare = [place for place, width in enumerate(widths) if width > least[place]]
        if not spare:
            break
        widths[max(spare, key=widths.__getitem__)] -= 1
        excess -= 1
    return excess


def _least_width(name: str, column: Sequence[str], needed: int) -> int:
    """Return the least width of a column: that of its values for ids and times, less for texts."""
    is_fixed = name in _IDS or name.endswith("_id") or all(not text or _TIME.fullmatch(text) for text in column)
    return max(needed, _MIN_NAME_WIDTH) if is_fixed else _MIN_COLUMN_WIDTH


def _padded(text: str, width: int) -> str:
    """Return a cell of a table: shortened with an ellipsis, or padded."""
    if text_width(text) > width:
        kept = list(accumulate(map(text_width, text)))
        text = text[: bisect_right(kept, width - 1)] + "…"
    return text + " " * (width - text_width(text))


def text_width(text: str) -> int:
    """Return the number of columns of a text in a terminal: two for wide characters, none for combining ones."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def _as_json(value: object) -> str:
    return escape_controls(msgspec.json.encode(value).decode())


def escape_controls(text: str) -> str:
    """Escape control characters, and those that make a text look like another one."""
    return _ESCAPED.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < _ONE_BYTE else f"\\u{code:04x}"


def _json(response: msgspec.Struct) -> bytes:
    encoded = msgspec.json.encode(response)
    return msgspec.json.format(encoded, indent=2) if sys.stdout.isatty() else encoded
