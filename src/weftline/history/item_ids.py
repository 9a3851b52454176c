"""Ids of items: keys of lines and their versions, messages, documents, and what ``derived_from`` may name."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from weftline.history.line_kinds import find_kind, kind_of
from weftline.history.model import LineNotFound
from weftline.kernel.fields import MAX_INT
from weftline.safety.trust.model import data_source

_DIGITS = len(str(MAX_INT))
# Integers in canonical form, see is_number.
_NUMBER = rf"(0|[1-9][0-9]{{0,{_DIGITS - 1}}})"
_VERSION_ID = re.compile(rf"([^/]*)/(.+)/{_NUMBER}\.{_NUMBER}(/removed)?\Z", re.DOTALL)
_DOCUMENT = re.compile(r"(knowledge://([^/?#]+)/([^?#]+))(?:\?version=([0-9]+))?\Z")


class VersionId(NamedTuple):
    """Item id of one version of a key."""

    line_id: str
    key: str
    incarnation: int
    version: int
    removed: bool = False

    def __str__(self) -> str:
        return f"{self.line_id}/{self.key}/{self.incarnation}.{self.version}{'/removed' if self.removed else ''}"

    @classmethod
    def parse(cls, item_id: str) -> VersionId | None:
        """Parse an item id; None if it is not the id of a version."""
        found = _VERSION_ID.match(item_id)
        if found is None:
            return None
        line_id, key, incarnation, version, removed = found.groups()
        kind = find_kind(line_id)
        if kind is None or kind.item_kind is None:
            return None
        return cls(line_id, key, int(incarnation), int(version), removed is not None)


class MessageItemId(NamedTuple):
    """Item id of a message."""

    session_id: str
    message_id: int

    def __str__(self) -> str:
        return f"message:{self.session_id}/{self.message_id}"

    @classmethod
    def parse(cls, item_id: str) -> MessageItemId | None:
        session_id, _, number = item_id.removeprefix("message:").partition("/")
        if not item_id.startswith("message:") or not session_id or not is_number(number):
            return None
        return cls(session_id, int(number))


def is_number(text: str) -> bool:
    """Whether a text is an integer in canonical form.

    An item must not have two ids: after a redaction of one it would still be shown under the other.
    """
    plain = text.isascii() and text.isdigit() and len(text) <= _DIGITS
    return plain and (text == "0" or not text.startswith("0"))


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
