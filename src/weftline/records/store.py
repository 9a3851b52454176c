"""Stored records and their redactions, and the port to the reader of HTML and XML sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from weftline.records.refs import Ref, content_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.identity import Actor
    from weftline.records.model import Record
    from weftline.records.refs import Css, XPath

ITEM_TYPE = "context_item"
# Larger HTML and XML sources are not parsed.
MAX_MARKUP_BYTES = 4 * 2**20


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as stored. ``body`` is its JSON; ``seq`` is the sequence number of its latest event.

    ``status`` is the lifecycle of an envelope or the status of missing context. ``recorded_by`` is a display name,
    which is not unique; ``principal_id`` identifies the author, and is None for an imported record.
    """

    type: str
    record_id: str
    session_id: str | None
    status: str | None
    recorded_by: str
    recorded_at: int
    changed_at: int
    seq: int
    readable_by: tuple[str, ...]
    body: bytes
    principal_id: str | None = None

    def is_by(self, actor: Actor) -> bool:
        """Whether this principal recorded it."""
        return self.principal_id == actor.principal_id


class Redaction(msgspec.Struct, frozen=True):
    """Redaction of an item, a summary or an assembly.

    ``replacement`` is the text shown instead, if the content was summarized, or the salted digest of an item that the
    engine derives. ``imported_policies`` are the policy refs of an item that was imported in redacted form. ``salt`` is
    of the digest that is shown instead of the content. ``original`` is what a message was; it is written, not read.
    """

    record_id: str
    session_id: str | None
    state: str
    method: str
    reason: str
    redacted_by: str
    redacted_at: int
    replacement: str | None = None
    imported_policies: tuple[Ref, ...] | None = None
    type: str = ITEM_TYPE
    salt: bytes | None = None
    original: bytes | None = None

    def reference(self, digest: str) -> str | None:
        """Return what is shown of the digest of a content, from which nobody can guess that; None: nothing.

        What was imported in redacted form has been salted elsewhere.
        """
        if self.imported_policies is not None:
            return digest
        return None if self.salt is None else content_digest(self.salt + digest.encode())


class ReceiptRecords(Protocol):
    """Records derived from the receipts of assembled prompts."""

    async def of_receipt(self, receipt_id: str, session_id: str | None) -> Mapping[str, Record]:
        """Return the records of a receipt by type; none if the caller may not read it, or it is of another session."""
        ...


class EnclosingElement(NamedTuple):
    """The innermost element that contains a text, as XPath; ``ties`` is the number of such elements."""

    path: str
    ties: int


class MarkupResult(NamedTuple):
    """Text of the first match of each selector, None without a match; and the element that encloses ``words``.

    ``problem`` is set if the document could not be read.
    """

    texts: tuple[str | None, ...] = ()
    holder: EnclosingElement | None = None
    problem: str | None = None


class MarkupReader(Protocol):
    """Evaluates selectors on untrusted HTML and XML: without network access, and within a time limit."""

    def read(
        self, document: str, media_type: str | None, selectors: Sequence[Css | XPath], words: str | None
    ) -> MarkupResult: ...
