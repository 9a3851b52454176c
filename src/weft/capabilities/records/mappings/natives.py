"""What all mappings share: a native object as an item that gives the same object back, and refusing what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from weft.capabilities.records.model import ContextItem
from weft.capabilities.records.vocabulary import SCHEMA_VERSION, ContentMode
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

    from weft.capabilities.records.refs import Mapping, RecordPart

T = TypeVar("T", bound="RecordPart")


class Naming(NamedTuple):
    """What an item is called here, and who may see it."""

    item_id: str
    visibility: tuple[str, ...] = ANYONE


class Shape(NamedTuple):
    """How a native object is told as an item: what is its text, or where it is to be found, if it has either."""

    system: str
    kind: str
    mode: ContentMode
    text_field: str | None = None
    uri: str | None = None
    mime_type: str | None = None
    title: str | None = None


def fitting(kind: type[T], **told: Any) -> T:  # noqa: ANN401 - whatever a native object holds
    """Return a part of a record that says what is told, without what is not; refuse what no such part can say."""
    said = {name: value for name, value in told.items() if value is not None and value is not UNSET}
    try:
        return msgspec.convert(said, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{kind.__name__}: {error}") from None


def item_from(native: Object[str, Any], shape: Shape, naming: Naming, mapping: Mapping) -> ContextItem:
    """Return a native object as an item. What the item has no field for is kept under ``metadata``."""
    own: dict[str, Any] = {"kind": shape.kind}
    content: Any = dict(native)
    if shape.uri is not None:
        content, own = UNSET, {**own, "native": dict(native)}
    elif shape.text_field is not None:
        content = native[shape.text_field]
        rest = {name: value for name, value in native.items() if name != shape.text_field}
        own = {**own, "text_field": shape.text_field, "native": rest}
    return fitting(
        ContextItem,
        schema_version=SCHEMA_VERSION,
        item_id=naming.item_id,
        context_kind=shape.kind,
        content_mode=shape.mode,
        visibility=naming.visibility,
        title=shape.title,
        content=content,
        content_ref=None if shape.uri is None else {"kind": shape.system, "uri": shape.uri},
        mime_type=shape.mime_type or ("text/plain" if isinstance(content, str) else "application/json"),
        external_mappings=(msgspec.to_builtins(mapping),),
        metadata={shape.system: own},
    )


def native_from(item: ContextItem, system: str) -> dict[str, Any]:
    """Return the native object that an item was made from."""
    own = item.metadata.get(system)
    if not isinstance(own, dict) or "kind" not in own:
        raise InvalidInput(f"The item '{item.item_id[:100]}' was not made from an object of {system}.")
    if item.content is UNSET and "native" not in own:
        raise InvalidInput(
            f"The item '{item.item_id[:100]}' does not say what it says.",
            hint="It names its content: put that back into the item first.",
        )
    if "native" not in own:
        return dict(item.content)
    named = own.get("text_field")
    return dict(own["native"]) if named is None else {**own["native"], named: item.content}


def text_of(native: Object[str, Any], name: str) -> str | None:
    """Return a field that holds text, if it does."""
    value = native.get(name)
    return value if isinstance(value, str) else None


def object_of(native: Object[str, Any], name: str) -> dict[str, Any]:
    """Return a field that holds an object; an empty one if it does not."""
    value = native.get(name)
    return value if isinstance(value, dict) else {}


def number_of(native: Object[str, Any], name: str) -> int | None:
    value = native.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
