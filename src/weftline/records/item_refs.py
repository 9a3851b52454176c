"""References to items, as ``derived_from`` names them, and their hashes by which prompts are found."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from weftline.history.line_kinds import find_kind, kind_of
from weftline.history.model import LineNotFound
from weftline.records.model import ContextInjection, ContextItem, ContextSourceRef
from weftline.records.record_ids import MessageItemId, VersionId
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
from weftline.safety.trust.model import data_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weftline.records.model import Record
    from weftline.records.refs import Mapping


HASH_BYTES = 8
_DOCUMENT = re.compile(r"(knowledge://([^/?#]+)/([^?#]+))(?:\?version=([0-9]+))?\Z")


class DocumentName(NamedTuple):
    """A document of a domain."""

    domain: str
    document_id: str

    def __str__(self) -> str:
        return f"knowledge://{self.domain}/{quote(self.document_id)}"

    @classmethod
    def parse(cls, item: str) -> DocumentName | None:
        found = _DOCUMENT.match(item)
        return None if found is None else cls(found[2], unquote(found[3]))


class LineKey(NamedTuple):
    """A key of a line, such as a board's; a window's keys are its events."""

    line_id: str
    key: str

    def __str__(self) -> str:
        return f"{self.line_id}/{self.key}"

    @classmethod
    def parse(cls, item: str) -> LineKey | None:
        line_id, _, key = item.partition("/")
        kind = find_kind(line_id)
        if not key or kind is None or kind.item_kind is None:
            return None
        try:
            kind_of(line_id)
        except LineNotFound:
            return None
        return cls(line_id, key)


class ItemRef(NamedTuple):
    """An item and, if the reference names one, a version of it: INCARNATION.VERSION of a key, a document's version.

    ``item`` is KEY of a line, message:SESSION/NUMBER, knowledge://DOMAIN/DOCUMENT, tool:NAME or url:ADDRESS.
    """

    item: str
    version: str = ""

    @classmethod
    def parse(cls, reference: str) -> ItemRef | None:
        """Parse a reference; None if it is not one."""
        document = _DOCUMENT.match(reference)
        if document is not None:
            return cls(document[1], document[4] or "")
        if MessageItemId.parse(reference) is not None or data_source([reference]) is not None:
            return cls(reference)
        version = VersionId.parse(reference)
        if version is not None:
            return cls(f"{version.line_id}/{version.key}", f"{version.incarnation}.{version.version}")
        return None if LineKey.parse(reference) is None else cls(reference)

    @property
    def is_external(self) -> bool:
        """Whether it names a tool or a page, which Weftline does not store."""
        return data_source([self.item]) is not None


def document_uri(domain: str, document_id: str, version: int) -> str:
    """Return the URI of a document in a version."""
    return f"{DocumentName(domain, document_id)}?version={version}"


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
