"""Agent2Agent: messages, parts, tasks and artifacts as items, with their ids.

Accepts objects of version 1.0, where the field gives the type of a part, and of 0.3, where ``kind`` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from weftline.records.mappings.natives import (
    ItemNaming,
    ItemShape,
    build_part,
    object_of,
    text_of,
    to_item,
    to_native,
)
from weftline.records.refs import A2aMapping

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

    from weftline.records.model import ContextItem

_SYSTEM = "a2a"
_EMPTY = A2aMapping()


def mapping_of_message(message: Object[str, Any], known: A2aMapping = _EMPTY) -> A2aMapping:
    """Return the ids of a message, added to the known ids."""
    return _named(known, message_id=message.get("messageId"), **_of_task(message, "taskId"))


def mapping_of_task(task: Object[str, Any], known: A2aMapping = _EMPTY) -> A2aMapping:
    return _named(known, **_of_task(task, "id"))


def mapping_of_artifact(artifact: Object[str, Any], known: A2aMapping = _EMPTY) -> A2aMapping:
    """Return the id of an artifact, added to those of its task."""
    return _named(known, artifact_id=artifact.get("artifactId"))


def item_of_message(message: Object[str, Any], naming: ItemNaming, known: A2aMapping = _EMPTY) -> ContextItem:
    shape = ItemShape(_SYSTEM, "message", "inline", title=text_of(message, "role"))
    return to_item(message, shape, naming, mapping_of_message(message, known))


def item_of_task(task: Object[str, Any], naming: ItemNaming, known: A2aMapping = _EMPTY) -> ContextItem:
    return to_item(task, ItemShape(_SYSTEM, "task", "inline"), naming, mapping_of_task(task, known))


def item_of_artifact(artifact: Object[str, Any], naming: ItemNaming, known: A2aMapping = _EMPTY) -> ContextItem:
    shape = ItemShape(_SYSTEM, "artifact", "inline", title=text_of(artifact, "name"))
    return to_item(artifact, shape, naming, mapping_of_artifact(artifact, known))


def item_of_part(part: Object[str, Any], place: int, naming: ItemNaming, known: A2aMapping = _EMPTY) -> ContextItem:
    """Convert a part of a message or artifact whose mapping is ``known``; its id is its position, from 0."""
    return to_item(part, _shape_of(part), naming, _named(known, part_id=str(place)))


def native_of(item: ContextItem) -> dict[str, Any]:
    """Convert an item back to its message, task, artifact or part."""
    return to_native(item, _SYSTEM)


def _shape_of(part: Object[str, Any]) -> ItemShape:
    if text_of(part, "text") is not None:
        return ItemShape(_SYSTEM, "part", "inline", text_field="text", mime_type=text_of(part, "mediaType"))
    file = object_of(part, "file")
    uri = text_of(part, "url") or text_of(file, "uri")
    media_type = text_of(part, "mediaType") or text_of(file, "mimeType")
    title = text_of(part, "filename") or text_of(file, "name")
    if uri is not None:
        return ItemShape(_SYSTEM, "part", "resource_link", uri=uri, mime_type=media_type, title=title)
    return ItemShape(_SYSTEM, "part", "embedded_resource", mime_type=media_type, title=title)


def _of_task(native: Object[str, Any], task_field: str) -> dict[str, Any]:
    return {"task_id": native.get(task_field) or None, "context_id": native.get("contextId") or None}


def _named(known: A2aMapping, **ids: Any) -> A2aMapping:  # noqa: ANN401 - whatever a native object holds
    mapping = build_part(A2aMapping, **ids)
    return structs.replace(known, **{name: getattr(mapping, name) for name, value in ids.items() if value is not None})
