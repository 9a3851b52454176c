"""Agent2Agent: messages, their parts, tasks and artifacts as items, with the ids they have there.

Objects of version 1.0 (a part is told by its field) and of 0.3 (by its ``kind``) are taken alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from weft.capabilities.records.mappings.natives import (
    Naming,
    Shape,
    fitting,
    item_from,
    native_from,
    object_of,
    text_of,
)
from weft.capabilities.records.refs import A2aMapping

if TYPE_CHECKING:
    from collections.abc import Mapping as Object

    from weft.capabilities.records.model import ContextItem

_SYSTEM = "a2a"
_NOWHERE = A2aMapping()


def mapping_of_message(message: Object[str, Any], known: A2aMapping = _NOWHERE) -> A2aMapping:
    """Return the ids of a message, beside what is known of where it comes from."""
    return _named(known, message_id=message.get("messageId"), **_of_task(message, "taskId"))


def mapping_of_task(task: Object[str, Any], known: A2aMapping = _NOWHERE) -> A2aMapping:
    return _named(known, **_of_task(task, "id"))


def mapping_of_artifact(artifact: Object[str, Any], known: A2aMapping = _NOWHERE) -> A2aMapping:
    """Return the id of an artifact, beside those of the task that made it."""
    return _named(known, artifact_id=artifact.get("artifactId"))


def item_of_message(message: Object[str, Any], naming: Naming, known: A2aMapping = _NOWHERE) -> ContextItem:
    shape = Shape(_SYSTEM, "message", "inline", title=text_of(message, "role"))
    return item_from(message, shape, naming, mapping_of_message(message, known))


def item_of_task(task: Object[str, Any], naming: Naming, known: A2aMapping = _NOWHERE) -> ContextItem:
    return item_from(task, Shape(_SYSTEM, "task", "inline"), naming, mapping_of_task(task, known))


def item_of_artifact(artifact: Object[str, Any], naming: Naming, known: A2aMapping = _NOWHERE) -> ContextItem:
    shape = Shape(_SYSTEM, "artifact", "inline", title=text_of(artifact, "name"))
    return item_from(artifact, shape, naming, mapping_of_artifact(artifact, known))


def item_of_part(part: Object[str, Any], place: int, naming: Naming, known: A2aMapping = _NOWHERE) -> ContextItem:
    """Return a part of a message or an artifact, whose mapping is ``known``; parts go by their place, from 0."""
    return item_from(part, _shape_of(part), naming, _named(known, part_id=str(place)))


def native_of(item: ContextItem) -> dict[str, Any]:
    """Return the message, task, artifact or part that an item was made from."""
    return native_from(item, _SYSTEM)


def _shape_of(part: Object[str, Any]) -> Shape:
    if text_of(part, "text") is not None:
        return Shape(_SYSTEM, "part", "inline", text_field="text", mime_type=text_of(part, "mediaType"))
    file = object_of(part, "file")
    uri = text_of(part, "url") or text_of(file, "uri")
    media_type = text_of(part, "mediaType") or text_of(file, "mimeType")
    title = text_of(part, "filename") or text_of(file, "name")
    if uri is not None:
        return Shape(_SYSTEM, "part", "resource_link", uri=uri, mime_type=media_type, title=title)
    return Shape(_SYSTEM, "part", "embedded_resource", mime_type=media_type, title=title)


def _of_task(native: Object[str, Any], task_field: str) -> dict[str, Any]:
    return {"task_id": native.get(task_field) or None, "context_id": native.get("contextId") or None}


def _named(known: A2aMapping, **ids: Any) -> A2aMapping:  # noqa: ANN401 - whatever a native object holds
    said = fitting(A2aMapping, **ids)
    told = {name: getattr(said, name) for name, value in ids.items() if value is not None}
    return structs.replace(known, **told)
