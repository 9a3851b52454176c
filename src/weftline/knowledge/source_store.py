"""Sources of knowledge, their files and hook calls in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.kernel.fields import MAX_INT
from weftline.kernel.transaction import SqlStore
from weftline.knowledge.sources import KnowledgeSource, SyncCounts, SyncedFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction, Value
    from weftline.knowledge.source_sync import SignedCall


# SQL store of knowledge sources, their files and hook calls.

_SOURCE = """
SELECT source_id, domain, kind, location, prefix, include, exclude, every_seconds, watch, secret, token_digest,
       principal_id, created_at, enabled, error, requested, due_at, synced_at, failures, validator, last_sync
FROM knowledge_sources
"""
_FIELDS = KnowledgeSource.__struct_fields__
_encode = msgspec.json.Encoder().encode
_patterns = msgspec.json.Decoder(tuple[str, ...]).decode
_decode_counts = msgspec.json.Decoder(SyncCounts).decode
# A modification time that no file has.
_NEVER = -1
_ADD = """
INSERT INTO knowledge_sources (tenant, source_id, domain, kind, location, prefix, include, exclude,
                               every_seconds, watch, secret, token_digest, principal_id, created_at,
                               enabled, error, requested, due_at, synced_at, failures, validator, last_sync)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)
"""
_UPDATE = """
UPDATE knowledge_sources SET include = $1, exclude = $2, every_seconds = $3, watch = $4, enabled = $5,
                             error = $6, requested = $7, due_at = $8, synced_at = $9, failures = $10,
                             validator = $11, last_sync = $12
WHERE tenant = $13 AND source_id = $14
"""
_FILES = """
SELECT document_id, size, changed_at, digest, error FROM knowledge_source_files
WHERE tenant = $1 AND source_id = $2 ORDER BY document_id LIMIT $3
"""
_FILE = """
SELECT document_id, size, changed_at, digest, error FROM knowledge_source_files
WHERE tenant = $1 AND source_id = $2 AND document_id = $3
"""
_PUT_FILE = """
INSERT INTO knowledge_source_files (tenant, source_id, document_id, size, changed_at, digest, error)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (tenant, source_id, document_id) DO UPDATE SET
    size = excluded.size, changed_at = excluded.changed_at, digest = excluded.digest, error = excluded.error
"""
_PUT_CALL = """
INSERT INTO knowledge_hook_calls (tenant, source_id, call_id, signed_at, answer) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, source_id, call_id) DO UPDATE SET signed_at = excluded.signed_at
WHERE excluded.signed_at > knowledge_hook_calls.signed_at
"""


class SourceStore(SqlStore):
    """Sources of the transaction's tenant, their files and hook calls."""

    async def add(self, source: KnowledgeSource) -> None:
        await self._tx.run(_ADD, self._tenant, *_values(source))

    async def find(self, source_id: str) -> KnowledgeSource | None:
        row = await self._tx.one(_SOURCE + "WHERE tenant = $1 AND source_id = $2", self._tenant, source_id)
        return None if row is None else _source(row)

    async def find_locked(self, source_id: str) -> KnowledgeSource | None:
        """Return a source with a row lock."""
        row = await self._tx.one(_SOURCE + "WHERE tenant = $1 AND source_id = $2 {for_update}", self._tenant, source_id)
        return None if row is None else _source(row)

    async def of_domain(self, domain: str) -> Sequence[KnowledgeSource]:
        """Return the sources of a domain, oldest first."""
        rows = await self._tx.all(
            _SOURCE + "WHERE tenant = $1 AND domain = $2 ORDER BY created_at, source_id", self._tenant, domain
        )
        return [_source(row) for row in rows]

    async def count(self) -> int:
        """Return the number of sources of the tenant."""
        row = await self._tx.one("SELECT COUNT(*) FROM knowledge_sources WHERE tenant = $1", self._tenant)
        return 0 if row is None else int(row[0])

    async def update(self, source: KnowledgeSource) -> None:
        """Update the changeable fields of a source."""
        values = dict(zip(_FIELDS, _values(source), strict=True))
        await self._tx.run(_UPDATE, *(values[name] for name in _MUTABLE_FIELDS), self._tenant, source.source_id)

    async def delete(self, source_id: str) -> None:
        """Delete a source with its files and calls, but not its documents."""
        await _erase(self._tx, source_id)

    async def files(self, source_id: str, limit: int = MAX_INT) -> Mapping[str, SyncedFile]:
        """Return the first files of a source, by document id."""
        rows = await self._tx.all(_FILES, self._tenant, source_id, limit)
        return {row[0]: SyncedFile(*row) for row in rows}

    async def file(self, source_id: str, document_id: str) -> SyncedFile | None:
        """Return the file of a document."""
        row = await self._tx.one(_FILE, self._tenant, source_id, document_id)
        return None if row is None else SyncedFile(*row)

    async def put_file(self, source_id: str, file: SyncedFile) -> None:
        await self._tx.run(
            _PUT_FILE, self._tenant, source_id, file.document_id, file.size, file.changed_at, file.digest, file.error
        )

    async def delete_file(self, source_id: str, document_id: str) -> None:
        await self._tx.run(
            "DELETE FROM knowledge_source_files WHERE tenant = $1 AND source_id = $2 AND document_id = $3",
            self._tenant,
            source_id,
            document_id,
        )

    async def invalidate_files(self, source_id: str) -> None:
        """Mark all files as changed, so that they are read again."""
        await self._tx.run(
            "UPDATE knowledge_source_files SET changed_at = $1 WHERE tenant = $2 AND source_id = $3",
            _NEVER,
            self._tenant,
            source_id,
        )

    async def response_to(self, source_id: str, call_id: str) -> str | None:
        """Return the stored response to a hook call, if there is one."""
        row = await self._tx.one(
            "SELECT answer FROM knowledge_hook_calls WHERE tenant = $1 AND source_id = $2 AND call_id = $3",
            self._tenant,
            source_id,
            call_id,
        )
        return None if row is None else str(row[0])

    async def put_call(self, source_id: str, call: SignedCall, answer: str) -> None:
        """Store a call and its response; if it was signed several times, with the latest time."""
        await self._tx.run(_PUT_CALL, self._tenant, source_id, call.call_id, call.at, answer)

    async def delete_calls(self, source_id: str, before: int) -> None:
        """Delete calls signed before a time."""
        await self._tx.run(
            "DELETE FROM knowledge_hook_calls WHERE tenant = $1 AND source_id = $2 AND signed_at < $3",
            self._tenant,
            source_id,
            before,
        )


# Fields that may change.
_MUTABLE_FIELDS = (
    *("include", "exclude", "every_seconds", "watch", "enabled", "error", "requested", "due_at", "synced_at"),
    *("failures", "validator", "last_sync"),
)


class DueSource(NamedTuple):
    """A source with a schedule or a requested sync."""

    tenant: str
    source: KnowledgeSource


async def sources_to_look_at(transaction: Transaction) -> list[DueSource]:
    """Return the sources of all tenants that have a schedule, are watched, or have a requested sync."""
    rows = await transaction.all(
        f"""
        SELECT tenant, {_SOURCE.strip().removeprefix("SELECT")}
        WHERE enabled = 1 AND kind <> 'hook' AND (watch = 1 OR requested > 0 OR due_at IS NOT NULL)
        ORDER BY tenant, source_id
        """
    )
    return [DueSource(row[0], _source(row[1:])) for row in rows]


async def erase_sources(transaction: Transaction, domain: str) -> None:
    """Delete all sources of a deleted domain."""
    for source in await SourceStore(transaction).of_domain(domain):
        await _erase(transaction, source.source_id)


async def _erase(transaction: Transaction, source_id: str) -> None:
    tenant = transaction.tenant
    await transaction.run("DELETE FROM knowledge_sources WHERE tenant = $1 AND source_id = $2", tenant, source_id)
    await transaction.run("DELETE FROM knowledge_source_files WHERE tenant = $1 AND source_id = $2", tenant, source_id)
    await transaction.run("DELETE FROM knowledge_hook_calls WHERE tenant = $1 AND source_id = $2", tenant, source_id)


def _values(source: KnowledgeSource) -> tuple[Value, ...]:
    values = {name: getattr(source, name) for name in _FIELDS}
    for name in ("include", "exclude", "last_sync"):
        values[name] = _encode(values[name]).decode()
    for name in ("watch", "enabled"):
        values[name] = int(values[name])
    return tuple(values.values())


def _source(row: Row) -> KnowledgeSource:
    values = dict(zip(_FIELDS, row, strict=True))
    values["include"], values["exclude"] = _patterns(values["include"]), _patterns(values["exclude"])
    values["watch"], values["enabled"] = bool(values["watch"]), bool(values["enabled"])
    values["last_sync"] = _decode_counts(values["last_sync"])
    return KnowledgeSource(**values)
