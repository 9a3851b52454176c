"""Records in SQL: records that are stored as such, the items they refer to, and redactions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.access.model import member_patterns
from weftline.kernel.packed_text import pack, text_of
from weftline.kernel.patterns import decode_patterns, encode_patterns
from weftline.kernel.transaction import SqlStore, batches, placeholders
from weftline.records.refs import Ref
from weftline.records.schemas import ITEM_TYPE, Redaction, StoredRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Row, Transaction, Value

_RECORD = """
SELECT type, record_id, session_id, status, recorded_by, recorded_at, changed_at, seq, readable_by, body, principal_id
FROM records
"""
_ONE = f"{_RECORD} WHERE tenant = $1 AND type = $2 AND record_id = $3 "
# Stored for records without a session.
_NO_SESSION = ""
_encode = msgspec.json.Encoder().encode
_refs = msgspec.json.Decoder(tuple[Ref, ...])
_MAX_RECORDS_OF_ITEM = 1_000
_OF_ITEM = "SELECT type, record_id FROM record_items WHERE tenant = $1 AND item_id = $2 LIMIT $3"
# For a reader: its own, imported ones and those of its sessions; and, with their own limit, those that others added
# without a session, so that no number of records of others can hide its own.
# CROSS JOIN, because SQLite keeps its order: first the ids, then their records.
_OF_ITEM_WITH_RECORD = """
SELECT i.type, i.record_id FROM record_items i CROSS JOIN records r
WHERE i.tenant = $1 AND i.item_id = $2 AND r.tenant = $1 AND r.type = i.type AND r.record_id = i.record_id
"""
_OF_ITEM_FOR_READER = f"""
{_OF_ITEM_WITH_RECORD}
  AND (r.principal_id IS NULL OR r.principal_id = $3 OR EXISTS (
      SELECT 1 FROM session_members m WHERE m.tenant = $1 AND m.session_id = r.session_id
        AND m.pattern {{among_texts}}$4{{end_among_texts}}))
LIMIT $5
"""  # noqa: S608 - constants only
_OF_ITEM_SHARED = f"{_OF_ITEM_WITH_RECORD} AND r.session_id = '{_NO_SESSION}' AND r.principal_id <> $3 LIMIT $4"
_SEVERAL = f"{_RECORD} WHERE tenant = $1 AND type = $2 AND record_id IN ({placeholders(3)})"
_REDACTION = """
SELECT record_id, session_id, state, method, reason, redacted_by, redacted_at, replacement, imported_policies, type,
       salt
FROM redactions
"""
_REDACTIONS = f"{_REDACTION} WHERE tenant = $1 AND type = $2 AND record_id IN ({placeholders(3)})"
_OPEN = "type = 'missing_context' AND status <> 'resolved'"
_OF_TENANT = f"{_RECORD} WHERE tenant = $1 AND type = 'missing_context' AND record_id > $2"
_OF_SESSION = f"{_RECORD} WHERE tenant = $1 AND session_id = $2 AND type = 'missing_context' AND record_id > $3"
# By (of one session, open).
_MISSING = {
    (False, False): f"{_OF_TENANT} ORDER BY record_id LIMIT $3",
    (False, True): f"{_OF_TENANT} AND status <> 'resolved' ORDER BY record_id LIMIT $3",
    (True, False): f"{_OF_SESSION} ORDER BY record_id LIMIT $4",
    (True, True): f"{_OF_SESSION} AND status <> 'resolved' ORDER BY record_id LIMIT $4",
}
_ADD = """
INSERT INTO records (tenant, type, record_id, session_id, status, recorded_by, recorded_at, changed_at,
                     seq, readable_by, body, principal_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
"""
_ADD_ITEM = "INSERT INTO record_items (tenant, item_id, type, record_id) VALUES ($1, $2, $3, $4)"
_REDACT = """
INSERT INTO redactions (tenant, record_id, session_id, state, method, reason, redacted_by, redacted_at,
                        replacement, imported_policies, type, salt, original)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (tenant, type, record_id) DO UPDATE SET
    state = excluded.state, method = excluded.method, reason = excluded.reason,
    redacted_by = excluded.redacted_by, redacted_at = excluded.redacted_at,
    replacement = excluded.replacement, imported_policies = excluded.imported_policies, salt = excluded.salt,
    original = excluded.original
"""
_REPLACE = """
UPDATE records SET status = $1, changed_at = $2, seq = $3, body = $4
WHERE tenant = $5 AND type = $6 AND record_id = $7
"""
_RECORDS_AFTER = _RECORD + "WHERE tenant = $1 AND session_id = $2 AND seq > $3 ORDER BY seq, type, record_id LIMIT $4"
_PUT_CONTENT = """
INSERT INTO record_contents (tenant, session_id, item_id, content) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING
"""


class RecordStore(SqlStore):
    """Records of the transaction's tenant, except those that are derived from the board, messages and memory."""

    async def add(self, record: StoredRecord, items: Iterable[str]) -> bool:
        """Insert a record and its item references; False if the id is in use."""
        added = await self._tx.changed(f"{_ADD} ON CONFLICT DO NOTHING", *self._row_of(record))
        if added:
            await self._add_items(record, items)
        return bool(added)

    async def add_all(self, records: Sequence[tuple[StoredRecord, Iterable[str]]]) -> None:
        """Insert many records with their item references; no id may be in use."""
        await self._tx.many(_ADD, [self._row_of(record) for record, _ in records])
        named = [row for record, items in records for row in self._item_rows(record, items)]
        await self._tx.many(_ADD_ITEM, named)

    def _row_of(self, record: StoredRecord) -> tuple[Value, ...]:
        row = msgspec.structs.asdict(record) | {
            "session_id": record.session_id or _NO_SESSION,
            "readable_by": encode_patterns(record.readable_by),
            "body": pack(record.body.decode()),
        }
        return self._tenant, *row.values()

    async def replace(self, record: StoredRecord, items: Iterable[str]) -> None:
        """Replace a record and its item references."""
        await self._tx.run(
            _REPLACE,
            record.status,
            record.changed_at,
            record.seq,
            pack(record.body.decode()),
            self._tenant,
            record.type,
            record.record_id,
        )
        await self._tx.run(
            "DELETE FROM record_items WHERE tenant = $1 AND type = $2 AND record_id = $3",
            self._tenant,
            record.type,
            record.record_id,
        )
        await self._add_items(record, items)

    async def find(self, record_type: str, record_id: str) -> StoredRecord | None:
        row = await self._tx.one(_ONE, self._tenant, record_type, record_id)
        return None if row is None else _stored_record(row)

    async def find_locked(self, record_type: str, record_id: str) -> StoredRecord | None:
        """Return a record with a row lock."""
        row = await self._tx.one(_ONE + "{for_update}", self._tenant, record_type, record_id)
        return None if row is None else _stored_record(row)

    async def find_several(self, ids: Sequence[tuple[str, str]]) -> Sequence[StoredRecord]:
        """Return those of the records, given by type and id, that exist."""
        found: list[StoredRecord] = []
        for record_type in sorted({kind for kind, _ in ids}):
            named = [record_id for kind, record_id in ids if kind == record_type]
            for batch in batches(named):
                found += map(_stored_record, await self._tx.all(_SEVERAL, self._tenant, record_type, *batch))
        return found

    async def of_session(self, session_id: str | None, after: int, limit: int) -> Sequence[StoredRecord]:
        """Return the records of a session with ``seq`` greater than ``after``, in order of ``seq``."""
        rows = await self._tx.all(_RECORDS_AFTER, self._tenant, session_id or _NO_SESSION, after, limit)
        return [_stored_record(row) for row in rows]

    async def of_item(self, item_id: str, reader: Actor) -> Sequence[StoredRecord]:
        """Return the records that refer to an item, oldest first; at most a thousand.

        Without those of sessions that the reader is no member of; at most as many more that others added without a
        session.
        """
        found = self._tenant, item_id
        if reader.is_admin:
            rows = await self._tx.all(_OF_ITEM, *found, _MAX_RECORDS_OF_ITEM)
        else:
            own = *found, reader.principal_id
            patterns = _encode(sorted(member_patterns(reader))).decode()
            rows = [
                *await self._tx.all(_OF_ITEM_FOR_READER, *own, patterns, _MAX_RECORDS_OF_ITEM),
                *await self._tx.all(_OF_ITEM_SHARED, *own, _MAX_RECORDS_OF_ITEM),
            ]
        return sorted(await self.find_several([(row[0], row[1]) for row in rows]), key=lambda record: record.seq)

    async def open_missing(self, session_id: str | None, limit: int) -> Sequence[StoredRecord]:
        """Return unresolved missing context of one session or of all, oldest first."""
        if session_id is None:
            rows = await self._tx.all(
                f"{_RECORD} WHERE tenant = $1 AND {_OPEN} ORDER BY recorded_at, record_id LIMIT $2", self._tenant, limit
            )
        else:
            rows = await self._tx.all(
                f"{_RECORD} WHERE tenant = $1 AND session_id = $2 AND {_OPEN} ORDER BY recorded_at, record_id LIMIT $3",
                self._tenant,
                session_id,
                limit,
            )
        return [_stored_record(row) for row in rows]

    async def open_missing_readers(self, session_id: str) -> Sequence[tuple[str, ...]]:
        """Return the read ACL of each unresolved missing context of a session."""
        rows = await self._tx.all(
            f"SELECT readable_by FROM records WHERE tenant = $1 AND session_id = $2 AND {_OPEN}",  # noqa: S608 - our own words
            self._tenant,
            session_id,
        )
        return [decode_patterns(row[0]) for row in rows]

    async def missing_after(
        self, session_id: str | None, after: str, limit: int, *, only_open: bool
    ) -> Sequence[StoredRecord]:
        """Return missing context with an id greater than ``after``, by id: of one session or of all."""
        where = () if session_id is None else (session_id,)
        rows = await self._tx.all(_MISSING[bool(where), only_open], self._tenant, *where, after, limit)
        return [_stored_record(row) for row in rows]

    async def put_content(self, session_id: str | None, item_id: str, content: bytes) -> None:
        """Store the content of an item separately from its record."""
        await self._tx.run(_PUT_CONTENT, self._tenant, session_id or _NO_SESSION, item_id, content)

    async def content(self, session_id: str | None, item_id: str) -> bytes | None:
        row = await self._tx.one(
            "SELECT content FROM record_contents WHERE tenant = $1 AND session_id = $2 AND item_id = $3",
            self._tenant,
            session_id or _NO_SESSION,
            item_id,
        )
        return None if row is None else bytes(row[0])

    async def redact(self, *redactions: Redaction) -> None:
        """Store redactions; a later one of the same record replaces the earlier one."""
        await self._tx.many(_REDACT, [self._row_of_redaction(redaction) for redaction in redactions])

    def _row_of_redaction(self, redaction: Redaction) -> tuple[Value, ...]:
        return (
            self._tenant,
            redaction.record_id,
            redaction.session_id or _NO_SESSION,
            redaction.state,
            redaction.method,
            redaction.reason,
            redaction.redacted_by,
            redaction.redacted_at,
            None if redaction.replacement is None else redaction.replacement.encode(),
            None if redaction.imported_policies is None else _encode(redaction.imported_policies).decode(),
            redaction.type,
            redaction.salt,
            redaction.original,
        )

    async def redactions(self, record_ids: Sequence[str], record_type: str = ITEM_TYPE) -> dict[str, Redaction]:
        """Return the redactions in effect of these items, or of records of another type."""
        found: dict[str, Redaction] = {}
        for batch in batches(record_ids):
            rows = await self._tx.all(_REDACTIONS, self._tenant, record_type, *batch)
            found |= {row[0]: _redaction(row) for row in rows}
        return {record_id: redaction for record_id, redaction in found.items() if redaction.state != "none"}

    async def original(self, item_id: str) -> bytes | None:
        """Return what a redacted message, or the metadata of a redacted memory entry, was."""
        row = await self._tx.one(
            "SELECT original FROM redactions WHERE tenant = $1 AND type = $2 AND record_id = $3",
            self._tenant,
            ITEM_TYPE,
            item_id,
        )
        return None if row is None or row[0] is None else bytes(row[0])

    async def redactions_in(self, session_id: str) -> dict[str, Redaction]:
        """Return the redactions in effect of all items of a session."""
        rows = await self._tx.all(
            _REDACTION + "WHERE tenant = $1 AND session_id = $2 AND type = $3 AND state <> 'none'",
            self._tenant,
            session_id,
            ITEM_TYPE,
        )
        return {row[0]: _redaction(row) for row in rows}

    async def _add_items(self, record: StoredRecord, items: Iterable[str]) -> None:
        await self._tx.many(_ADD_ITEM, self._item_rows(record, items))

    def _item_rows(self, record: StoredRecord, items: Iterable[str]) -> list[tuple[Value, ...]]:
        return [(self._tenant, item_id, record.type, record.record_id) for item_id in sorted(set(items))]


_ERASE_RECORD_ITEMS = """
DELETE FROM record_items WHERE tenant = $1 AND (type, record_id) IN (
    SELECT r.type, r.record_id FROM records r WHERE r.tenant = $1 AND r.session_id = $2)
"""


async def erase_record_items(transaction: Transaction, session_id: str) -> None:
    """Delete the item references of a session's records, before the records themselves."""
    await transaction.run(_ERASE_RECORD_ITEMS, transaction.tenant, session_id)


def _redaction(row: Row) -> Redaction:
    record_id, session_id, state, method, reason, by, at, replacement, imported_policies, record_type, salt = row
    words = None if replacement is None else bytes(replacement).decode()
    refs = None if imported_policies is None else _refs.decode(imported_policies)
    salted = None if salt is None else bytes(salt)
    return Redaction(record_id, session_id or None, state, method, reason, by, at, words, refs, record_type, salted)


def _stored_record(row: Row) -> StoredRecord:
    record_type, record_id, session_id, status, by, at, changed_at, seq, readable_by, body, principal_id = row
    return StoredRecord(
        type=record_type,
        record_id=record_id,
        session_id=session_id or None,
        status=status,
        recorded_by=by,
        recorded_at=at,
        changed_at=changed_at,
        seq=seq,
        readable_by=decode_patterns(readable_by),
        body=text_of(body).encode(),
        principal_id=principal_id,
    )
