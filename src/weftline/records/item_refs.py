"""References to items, as ``derived_from`` names them, and their hashes by which prompts are found."""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from weftline.history.line_kinds import find_kind, kind_of
from weftline.history.model import LineNotFound
from weftline.records.record_ids import MessageItemId, VersionId
from weftline.safety.trust.model import data_source

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
