"""Rules between the fields of a record, said once: checked when one is made, and shown in its JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec


class Needs(NamedTuple):
    """A record whose ``field`` has one of these values says at least one of ``any_of``; without a field, every one."""

    any_of: tuple[str, ...]
    field: str | None = None
    values: tuple[str, ...] = ()

    def check(self, record: msgspec.Struct) -> None:
        if self.field is not None and getattr(record, self.field) not in self.values:
            return
        if not any(_is_said(getattr(record, name)) for name in self.any_of):
            raise ValueError(f"`{'` or `'.join(self.any_of)}` is required{self._when(record)}")

    def schema(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        needed: dict[str, Any] = {"anyOf": [_said_in(name, fields[name]) for name in self.any_of]}
        if self.field is None:
            return needed
        when = {"properties": {self.field: {"enum": list(self.values)}}, "required": [self.field]}
        return {"if": when, "then": needed}

    def _when(self, record: msgspec.Struct) -> str:
        return "" if self.field is None else f" where `{self.field}` is `{getattr(record, self.field)}`"


class InOrder(NamedTuple):
    """Of two numbers, the second is not below the first. JSON Schema has no way to say so but a remark."""

    first: str
    second: str

    def check(self, record: msgspec.Struct) -> None:
        first, second = getattr(record, self.first), getattr(record, self.second)
        if first is not UNSET and second is not UNSET and second < first:
            raise ValueError(f"`{self.second}` is below `{self.first}`")

    def schema(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"$comment": f"`{self.second}` is not below `{self.first}`."}


Rule = Needs | InOrder


def _is_said(value: object) -> bool:
    return value is not UNSET and value != ()


def _said_in(name: str, field: Mapping[str, Any]) -> dict[str, Any]:
    """Return what JSON Schema calls saying something in a field: an empty list says nothing."""
    if field.get("type") != "array":
        return {"required": [name]}
    return {"required": [name], "properties": {name: {"minItems": 1}}}
