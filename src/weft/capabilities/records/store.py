"""What records need of storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from weft.capabilities.records.refs import Ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.kernel.identity import Actor


# The type of what is redacted mostly.
ITEM = "context_item"


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is kept. ``body`` is its JSON; ``seq`` is the event that last told of it.

    ``status`` is an envelope's lifecycle, or that of missing context. ``recorded_by`` is a name, which several may go
    by; ``principal_id`` is who it was, and nobody of this installation for what was imported.
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
        """Tell whether this very caller recorded it."""
        return self.principal_id == actor.principal_id


class Redaction(msgspec.Struct, frozen=True):
    """What must not be shown any more of an item, a summary or an assembly, how that is done, by whom and why.

    ``replacement`` is what is said instead if that is a summary. Of an item that was imported as it is to be shown,
    ``came_with`` are the policies it names.
    """

    record_id: str
    session_id: str | None
    state: str
    method: str
    reason: str
    redacted_by: str
    redacted_at: int
    replacement: str | None = None
    came_with: tuple[Ref, ...] | None = None
    type: str = ITEM


class RecordStore(Protocol):
    """The records of the transaction's tenant that nothing else is the source of."""

    async def add(self, record: StoredRecord, items: Iterable[str]) -> bool:
        """Add a record and the items it names; False if the id is taken."""
        ...

    async def add_all(self, records: Sequence[tuple[StoredRecord, Iterable[str]]]) -> None:
        """Add many records whose ids are not taken, each with the items it names."""
        ...

    async def replace(self, record: StoredRecord, items: Iterable[str]) -> None:
        """Let a record say something else from now on."""
        ...

    async def find(self, record_type: str, record_id: str) -> StoredRecord | None: ...

    async def find_locked(self, record_type: str, record_id: str) -> StoredRecord | None:
        """Return a record, keeping others who would change it waiting."""
        ...

    async def find_several(self, ids: Sequence[tuple[str, str]]) -> Sequence[StoredRecord]:
        """Return those of the records, named by type and id, that are there."""
        ...

    async def of_session(self, session_id: str | None, after: int, limit: int) -> Sequence[StoredRecord]:
        """Return the records of a session by the number of their event, behind ``after``."""
        ...

    async def of_item(self, item_id: str) -> Sequence[StoredRecord]:
        """Return the records that name an item, oldest first; at most a thousand."""
        ...

    async def open_missing(self, session_id: str | None, limit: int) -> Sequence[StoredRecord]:
        """Return missing context that is not resolved, oldest first: of one session or of all."""
        ...

    async def open_missing_readers(self, session_id: str) -> Sequence[tuple[str, ...]]:
        """Return, for each missing context of a session that is not resolved, who may know of it."""
        ...

    async def missing_from(
        self, session_id: str | None, after: str, limit: int, *, only_open: bool
    ) -> Sequence[StoredRecord]:
        """Return missing context by its ids, behind one: of one session or of all."""
        ...

    async def put_content(self, session_id: str | None, item_id: str, content: bytes) -> None:
        """Keep what an item says beside its record."""
        ...

    async def content(self, session_id: str | None, item_id: str) -> bytes | None: ...

    async def redact(self, *redactions: Redaction) -> None:
        """Note what must not be shown any more; a later word on the same record replaces an earlier one."""
        ...

    async def redactions(self, record_ids: Sequence[str], record_type: str = ITEM) -> dict[str, Redaction]:
        """Return what was redacted of these items, or records of another type, and is not shown again."""
        ...
