"""Saying what is wrong with a request, so that whoever sent it can put it right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A problem may quote what was sent, which may be megabytes.
_QUOTED_AT_MOST = 300
_NAMED = re.compile(r"(?:missing required|unknown) field `([^`]*)`")
_STEPS = re.compile(r"(?:^|\.)(\w+)")
_PATTERN = re.compile(r" matching regex .*", re.DOTALL)


def invalid_input(request: type, tool: str, problem: str, raw: Mapping[str, Any]) -> InvalidInput:
    """Return the error for a request that does not fit its type: which field, why, and what it should be."""
    what, _, where = problem.partition(" - at ")
    path = where.strip("`").removeprefix("$").removeprefix(".")
    named = _NAMED.search(what)
    name = path or (named[1][:100] if named else "")
    hint = _hint_of(request, name)
    context: dict[str, Any] = {"operation": tool, "field": name or None}
    what = _PATTERN.sub(" of another form", what[:_QUOTED_AT_MOST])
    choices = list(_choices(hint))
    if "enum value" in what and choices:
        what += f"; use one of {', '.join(choices)}"
        context["accepted_values"] = choices
    if "unknown field" in what:
        context["accepted_fields"] = list(request.__struct_fields__)  # type: ignore[attr-defined]
        if "written_by" in raw:
            what += ". Weft sets written_by from your credential; a request cannot"
    described = next(_descriptions(hint), None)
    return InvalidInput(
        f"{path}: {what}" if path else what, hint=f"{name}: {described}" if described else None, **context
    )


def _hint_of(request: type, path: str) -> Any:  # noqa: ANN401 - any annotation
    """Return how the field at a path is annotated, or else the one that leads there."""
    hint: Any = request
    for name in _STEPS.findall(path):
        inner = next((hints[name] for hints in map(_fields, _structs(hint)) if name in hints), None)
        if inner is None:
            break
        hint = inner
    return None if hint is request else hint


def _fields(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _structs(hint: Any) -> Iterator[type[msgspec.Struct]]:  # noqa: ANN401 - any annotation
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        yield hint
    for inner in get_args(hint):
        yield from _structs(inner)


def _descriptions(hint: Any) -> Iterator[str]:  # noqa: ANN401 - any annotation
    """Yield what a field says of itself, the nearest first."""
    for part in reversed(getattr(hint, "__metadata__", ())):
        if isinstance(part, msgspec.Meta) and part.description:
            yield part.description
    for inner in get_args(hint):
        yield from _descriptions(inner)


def _choices(hint: Any) -> Iterator[str]:  # noqa: ANN401 - any annotation
    if get_origin(hint) is Literal:
        yield from map(str, get_args(hint))
        return
    for inner in get_args(hint):
        yield from _choices(inner)
