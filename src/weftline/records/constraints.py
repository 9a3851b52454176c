"""Constraints between fields of a record, enforced when it is created and exported to its JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec


class RequiresAny(NamedTuple):
    """At least one of ``any_of`` is required: always, or only if ``field`` has one of ``values``."""

    any_of: tuple[str, ...]
    field: str | None = None
    values: tuple[str, ...] = ()

    def check(self, record: msgspec.Struct) -> None:
        if self.field is not None and getattr(record, self.field) not in self.values:
            return
        if not any(_is_set(getattr(record, name)) for name in self.any_of):
            raise ValueError(f"`{'` or `'.join(self.any_of)}` is required{self._when(record)}")

    def schema(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        needed: dict[str, Any] = {"anyOf": [_presence_schema(name, fields[name]) for name in self.any_of]}
        if self.field is None:
            return needed
        when = {"properties": {self.field: {"enum": list(self.values)}}, "required": [self.field]}
        return {"if": when, "then": needed}

    def _when(self, record: msgspec.Struct) -> str:
        return "" if self.field is None else f" where `{self.field}` is `{getattr(record, self.field)}`"


class Ordered(NamedTuple):
    """The second number is at least the first. JSON Schema cannot express this, so it gets a comment."""

    first: str
    second: str

    def check(self, record: msgspec.Struct) -> None:
        first, second = getattr(record, self.first), getattr(record, self.second)
        if first is not UNSET and second is not UNSET and second < first:
            raise ValueError(f"`{self.second}` is below `{self.first}`")

    def schema(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"$comment": f"`{self.second}` is not below `{self.first}`."}


Constraint = RequiresAny | Ordered


def _is_set(value: object) -> bool:
    return value is not UNSET and value != ()


def _presence_schema(name: str, field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema that requires a field; a list must not be empty."""
    if field.get("type") != "array":
        return {"required": [name]}
    return {"required": [name], "properties": {name: {"minItems": 1}}}
