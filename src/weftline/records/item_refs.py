"""Hashes of items, by which prompts are found, and ids of other systems by which records are."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from weftline.records.model import ContextInjection, ContextItem, ContextSourceRef
from weftline.records.refs import (
    A2aMapping,
    CloudEventsMapping,
    JsonSchemaMapping,
    McpMapping,
    ModelApiMapping,
    OpenTelemetryMapping,
    OtherMapping,
    ProvMapping,
    WebAnnotationMapping,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.records.model import Record
    from weftline.records.refs import Mapping


HASH_BYTES = 8


def item_hash(item: str) -> bytes:
    """Return a short hash of an item without version: a few in a million tenants' items are equal by chance."""
    return hashlib.blake2b(item.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()


# Ids of other systems in the external mappings of a record, by which it is found again.

# Fields that identify something, not those that describe it.
_ID_FIELDS: dict[type[Mapping], tuple[str, ...]] = {
    McpMapping: ("server_id", "mcp_session_id", "resource_uri", "prompt_name", "root_uri", "jsonrpc_request_id"),
    A2aMapping: ("agent_card_url", "task_id", "context_id", "message_id", "part_id", "artifact_id", "skill_id"),
    OpenTelemetryMapping: ("trace_id", "span_id", "conversation_id"),
    ModelApiMapping: ("response_id", "message_id", "prompt_cache_key", "tool_call_id"),
    WebAnnotationMapping: ("target",),
    ProvMapping: ("entity", "activity", "agent"),
    CloudEventsMapping: ("id", "subject"),
    JsonSchemaMapping: ("schema_id", "ref"),
}
# Native ids share an index with the ids of items.
_PREFIX = "native:"
_MAX_LENGTH = 400
_MAX_IDS = 100


def native_ids_of(record: Record) -> tuple[str, ...]:
    """Return the ids of other systems under which a record is found, without repetitions."""
    found = (identity for mapping in _mappings(record) for identity in _ids(mapping))
    own = [record.native_id] if isinstance(record, ContextInjection) else []
    ids = dict.fromkeys(each for each in (*own, *found) if isinstance(each, str) and 0 < len(each) <= _MAX_LENGTH)
    return tuple(ids)[:_MAX_IDS]


def native_key(native_id: str) -> str:
    """Return the key of a native id in the index of items."""
    return f"{_PREFIX}{native_id}"


def _mappings(record: Record) -> Iterator[Mapping]:
    yield from record.external_mappings
    if isinstance(record, ContextItem):
        for source in record.source_refs:
            if isinstance(source, ContextSourceRef):
                yield from source.external_mappings


def _ids(mapping: Mapping) -> Iterable[Any]:
    if isinstance(mapping, OtherMapping):
        return mapping.ids.values()
    return [getattr(mapping, name) for name in _ID_FIELDS[type(mapping)]]
