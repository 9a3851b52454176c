"""Limits that an operator sets for one tenant: their names, as values and as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from weftline.access.plans.model import ALLOWANCES, PLANS, SIZE_UNITS, UNLIMITED, Allowance
from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import MAX_INT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LIMITS = tuple(name for name in Allowance.__struct_fields__ if name != "plan")
_TYPES = {field.name: field.type for field in msgspec.structs.fields(Allowance)}
_SIZE = re.compile(r"^([0-9]+)(KiB|MiB|GiB|TiB)\Z")
_SWITCHES = {"yes": True, "no": False}
_LARGEST = ALLOWANCES[PLANS[-1]]
# With none of these, a tenant could keep and find nothing.
_AT_LEAST_ONE = frozenset(
    {
        "results",
        "versions",
        "session_keys",
        "session_tokens",
        "value_tokens",
        "session_versions",
        "memory_entries",
        "window_events",
        "window_bytes",
        "report_days",
    }
)
# A century: times before it are of no use.
_MAX_DAYS = 36_500


def checked_limits(limits: Mapping[str, Any]) -> dict[str, Any]:
    """Return limits as they are stored; raises InvalidInput for unknown names and wrong values."""
    return {name: msgspec.to_builtins(_checked(name, value)) for name, value in limits.items()}


def parse_limits(texts: Iterable[str]) -> dict[str, Any]:
    """Return limits given as NAME=VALUE, such as domains=20, bytes=100GiB, rollback=yes or results=unlimited."""
    return checked_limits(dict(map(_parsed, texts)))


def _parsed(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInput(f"{text[:100]}: write NAME=VALUE, such as domains=20", field="set")
    if value == UNLIMITED:
        return name, None
    if isinstance(getattr(_LARGEST, name, None), tuple):
        return name, [each for each in value.split(",") if each not in {"", "none"}]
    size = _SIZE.match(value)
    if size is not None:
        return name, int(size[1]) * SIZE_UNITS[size[2]]
    return name, _SWITCHES.get(value, value)


def _checked(name: str, value: Any) -> Any:  # noqa: ANN401 - likewise
    if name not in LIMITS:
        raise InvalidInput(f"{name[:100]}: there is no such limit; use one of {', '.join(LIMITS)}", field="set")
    try:
        found = msgspec.convert(value, _TYPES[name], strict=False)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name}: {str(error)[:200]}", field="set") from error
    if isinstance(found, tuple):
        return _checked_names(name, found)
    if isinstance(found, int) and not isinstance(found, bool):
        _check_number(name, found)
    return found


def _check_number(name: str, number: int) -> None:
    least, most = int(name in _AT_LEAST_ONE), _MAX_DAYS if name.endswith("_days") else MAX_INT
    if not least <= number <= most:
        raise InvalidInput(f"{name}: must be from {least} to {most}", field="set")


def _checked_names(name: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a plan has, each once; the largest plan has all there is."""
    known = getattr(_LARGEST, name)
    unknown = [each for each in given if each not in known]
    if unknown:
        has = ", ".join(map(str, known))
        raise InvalidInput(f"{name}: {str(unknown[0])[:100]} is none of {has}", field="set")
    return tuple(each for each in known if each in given)
