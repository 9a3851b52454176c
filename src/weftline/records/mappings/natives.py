"""Shared by all mappings: lossless conversion of a native object to an item, and checked field access."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET

from weftline.kernel.errors import InvalidInput
from weftline.kernel.identity import ANYONE
from weftline.records.model import ContextItem
from weftline.records.vocabulary import SCHEMA_VERSION, ContentMode

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

    from weftline.records.refs import Mapping, RecordPart

T = TypeVar("T", bound="RecordPart")


class ItemNaming(NamedTuple):
    """Id and visibility of a new item."""

    item_id: str
    visibility: tuple[str, ...] = ANYONE


class ItemShape(NamedTuple):
    """How a native object becomes an item: the field of its text or its URI, if it has one."""

    system: str
    kind: str
    mode: ContentMode
    text_field: str | None = None
    uri: str | None = None
    mime_type: str | None = None
    title: str | None = None


def build_part(kind: type[T], **fields: Any) -> T:  # noqa: ANN401 - fields of a native object
    """Build a part of a record from the fields that are not None; invalid values are rejected."""
    present = {name: value for name, value in fields.items() if value is not None and value is not UNSET}
    try:
        return msgspec.convert(present, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"The object cannot be mapped to a record: {error}") from None


def to_item(native: Object[str, Any], shape: ItemShape, naming: ItemNaming, mapping: Mapping) -> ContextItem:
    """Convert a native object to an item. Fields that the item does not have are stored in ``metadata``."""
    own: dict[str, Any] = {"kind": shape.kind}
    content: Any = dict(native)
    if shape.uri is not None:
        content, own = UNSET, {**own, "native": dict(native)}
    elif shape.text_field is not None:
        content = native[shape.text_field]
        rest = {name: value for name, value in native.items() if name != shape.text_field}
        own = {**own, "text_field": shape.text_field, "native": rest}
    return build_part(
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


def to_native(item: ContextItem, system: str) -> dict[str, Any]:
    """Convert an item back to its native object."""
    own = item.metadata.get(system)
    if not isinstance(own, dict) or "kind" not in own:
        raise InvalidInput(f"The item '{item.item_id[:100]}' was not created from an object of {system}.")
    if item.content is UNSET and "native" not in own:
        raise InvalidInput(
            f"The item '{item.item_id[:100]}' has no content.",
            hint="It refers to its content: load that into the item first.",
        )
    if "native" not in own:
        return dict(item.content)
    named = own.get("text_field")
    return dict(own["native"]) if named is None else {**own["native"], named: item.content}


def text_of(native: Object[str, Any], name: str) -> str | None:
    """Return a field if it is a string."""
    value = native.get(name)
    return value if isinstance(value, str) else None


def object_of(native: Object[str, Any], name: str) -> dict[str, Any]:
    """Return a field if it is an object, otherwise an empty one."""
    value = native.get(name)
    return value if isinstance(value, dict) else {}


def number_of(native: Object[str, Any], name: str) -> int | None:
    value = native.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
