"""Domains, documents and the indexing queue in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.history.erasure import DeferredDeletions, PendingDeletion
from weftline.indexing.chunking.model import ChunkingOptions
from weftline.indexing.collections import domain_collection
from weftline.indexing.sql import in_json
from weftline.kernel.clock import DAY_MICROS
from weftline.kernel.identity import named_types
from weftline.kernel.patterns import decode_patterns, encode_patterns
from weftline.kernel.transaction import RowLease, SqlStore, placeholders
from weftline.knowledge.model import Document, Domain, Quarantine
from weftline.knowledge.source_store import erase_sources
from weftline.knowledge.templates.model import DomainEvaluation, DomainTemplate
from weftline.safety.trust.model import TrustLabel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weftline.kernel.transaction import Row, Transaction, Value
    from weftline.knowledge.model import DocumentState


class Backlog(NamedTuple):
    """Number of documents that wait for indexing, that failed, and that are held for review."""

    pending: int
    failed: int
    quarantined: int = 0


class IncompleteDocument(NamedTuple):
    """A document with chunks of an unfinished version; searches may use only those of ``found_version`` (0: none)."""

    document_id: str
    found_version: int


class StoredContent(NamedTuple):
    """Compressed content of a document, and its text if that differs."""

    content: bytes
    text: bytes | None


class QueuedDocument(NamedTuple):
    """A document that waits for indexing; ``attempts`` processes stopped while they indexed it."""

    domain: str
    document_id: str
    attempts: int = 0
    added_by: str = ""
    bytes: int = 0


class Requeued(NamedTuple):
    """Number of documents that wait for reindexing, and of their current chunks."""

    documents: int
    chunks: int


class LeasedDocument(NamedTuple):
    """A leased document, with the layout hash of the version being indexed; empty if none was written yet.

    ``attempts`` is the number of attempts that ended with their process and without progress; before this one if it
    was just claimed.
    """

    document: Document
    layout_hash: str
    attempts: int


_DOMAIN = """
SELECT domain, description, clearance, created_by, created_at, updated_at, agents, writers, chunking, importance,
       documents, bytes, reindex_after, reindex_afresh, template, evaluation
FROM domains
"""
_DOCUMENT = """
SELECT domain, document_id, version, content_version, digest, fingerprint, bytes, media_type, title, metadata, pinned,
       importance, timestamp, added_by, created_at, updated_at, state, indexed_version, indexed_content, indexed_at,
       indexed_title, indexed_type, text_bytes, chunks, chunks_done, chunks_total, error, trust, quarantine, released,
       released_by, layout_hash, attempts
FROM documents
"""
_DOCUMENT_FIELDS = Document.__struct_fields__
_encode = msgspec.json.Encoder().encode
_decode_chunking = msgspec.json.Decoder(ChunkingOptions)
_decode_template = msgspec.json.Decoder(DomainTemplate).decode
_decode_evaluation = msgspec.json.Decoder(DomainEvaluation).decode
_metadata = msgspec.json.Decoder(dict[str, Any])
_label = msgspec.json.Decoder(TrustLabel).decode
_quarantine = msgspec.json.Decoder(Quarantine).decode
_READ_BATCH = 1_000
# A document may be large.
_DELETE_BATCH = 100


_ADD = """
INSERT INTO domains (tenant, domain, description, clearance, agents, writers, chunking, importance,
                     created_by, created_at, updated_at, documents, bytes, reindex_after, reindex_afresh, template,
                     retention_days)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
ON CONFLICT DO NOTHING RETURNING 1
"""
_UPDATE = """
UPDATE domains SET description = $1, clearance = $2, agents = $3, writers = $4, chunking = $5,
                   importance = $6, updated_at = $7, reindex_after = $8, reindex_afresh = $9,
                   content_changes = content_changes + 1
WHERE tenant = $10 AND domain = $11
"""
_COUNT = """
UPDATE domains SET documents = documents + $1, bytes = bytes + $2, content_changes = content_changes + 1
WHERE tenant = $3 AND domain = $4
"""
_SET_EVALUATION = """
UPDATE domains SET evaluation = $1, evaluated_changes = $2 WHERE tenant = $3 AND domain = $4
"""


class DomainStore(SqlStore):
    """The domains of the transaction's tenant."""

    async def add(self, domain: Domain) -> bool:
        """Insert a domain; False if the name is in use or a domain with this name is still being deleted."""
        self._tx.named_types |= named_types((*domain.agents, *domain.writers))
        row = await self._tx.one(
            _ADD,
            self._tenant,
            domain.domain,
            *_definition(domain),
            domain.created_by,
            domain.created_at,
            domain.updated_at,
            domain.documents,
            domain.bytes,
            domain.reindex_after,
            int(domain.reembed),
            None if domain.template is None else _encode(domain.template).decode(),
            None if domain.template is None else domain.template.retention_days,
        )
        # Documents left of a deleted domain would reappear with it.
        deleted = PendingDeletion(domain_collection(domain.domain))
        return row is not None and not await DeferredDeletions(self._tx).is_pending(deleted)

    async def find(self, domain: str) -> Domain | None:
        row = await self._tx.one(_DOMAIN + "WHERE tenant = $1 AND domain = $2", self._tenant, domain)
        return None if row is None else _domain(row)

    async def find_shared(self, domain: str) -> Domain | None:
        """Return a domain with a shared lock, so that it is not changed or deleted until the transaction ends."""
        row = await self._tx.one(_DOMAIN + "WHERE tenant = $1 AND domain = $2 {for_share}", self._tenant, domain)
        return None if row is None else _domain(row)

    async def find_locked(self, domain: str) -> Domain | None:
        """Return a domain with a row lock, for changes of the domain or its counts."""
        row = await self._tx.one(_DOMAIN + "WHERE tenant = $1 AND domain = $2 {for_update}", self._tenant, domain)
        return None if row is None else _domain(row)

    async def all(self) -> Sequence[Domain]:
        """Return every domain, by name."""
        rows = await self._tx.all(_DOMAIN + "WHERE tenant = $1 ORDER BY domain", self._tenant)
        return [_domain(row) for row in rows]

    async def update(self, domain: Domain) -> None:
        """Update a domain, except for its counts."""
        self._tx.named_types |= named_types((*domain.agents, *domain.writers))
        await self._tx.run(
            _UPDATE,
            *_definition(domain),
            domain.updated_at,
            domain.reindex_after,
            int(domain.reembed),
            self._tenant,
            domain.domain,
        )

    async def count(self, domain: str, *, documents: int, size: int) -> None:
        """Add to the counts of documents and bytes."""
        await self._tx.run(_COUNT, documents, size, self._tenant, domain)

    async def content_changes(self, domain: str) -> int:
        """Return how often the documents of a domain, or how they are indexed, have changed."""
        row = await self._tx.one(
            "SELECT content_changes FROM domains WHERE tenant = $1 AND domain = $2", self._tenant, domain
        )
        return 0 if row is None else int(row[0])

    async def set_evaluation(self, domain: str, evaluation: DomainEvaluation, changes: int) -> None:
        """Store what the example questions of a domain found, after this number of changes."""
        await self._tx.run(_SET_EVALUATION, _encode(evaluation).decode(), changes, self._tenant, domain)

    async def reindexing(self) -> Sequence[str]:
        """Return the domains with a running reindex."""
        rows = await self._tx.all(
            "SELECT domain FROM domains WHERE tenant = $1 AND reindex_after IS NOT NULL ORDER BY domain", self._tenant
        )
        return [row[0] for row in rows]

    async def set_reindexing(self, domain: str, after: str | None) -> None:
        """Set the cursor of a reindex; None when it is finished."""
        await self._tx.run(
            "UPDATE domains SET reindex_after = $1 WHERE tenant = $2 AND domain = $3", after, self._tenant, domain
        )

    async def delete(self, domain: str) -> None:
        """Delete a domain with its documents, but not their chunks."""
        await self._tx.run("DELETE FROM domains WHERE tenant = $1 AND domain = $2", self._tenant, domain)
        await erase_sources(self._tx, domain)
        if await self.clear(domain):
            await DeferredDeletions(self._tx).add(PendingDeletion(domain_collection(domain)))

    async def clear(self, domain: str) -> bool:
        """Delete a batch of documents of a deleted domain; True if there may be more."""
        rows = await self._tx.all(
            "SELECT document_id FROM documents WHERE tenant = $1 AND domain = $2 ORDER BY document_id LIMIT $3",
            self._tenant,
            domain,
            _DELETE_BATCH,
        )
        named = [(self._tenant, domain, row[0]) for row in rows]
        await self._tx.many(
            "DELETE FROM document_contents WHERE tenant = $1 AND domain = $2 AND document_id = $3", named
        )
        await self._tx.many("DELETE FROM documents WHERE tenant = $1 AND domain = $2 AND document_id = $3", named)
        return len(rows) == _DELETE_BATCH


_PUT_DOCUMENT = """
INSERT INTO documents (tenant, domain, document_id, version, content_version, digest, fingerprint, bytes,
                       media_type, title, metadata, pinned, importance, timestamp, added_by, created_at,
                       updated_at, queued_at, state, indexed_version, indexed_content, chunks, chunks_done,
                       layout_hash, lease_until)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, 'pending', 0, 0, 0,
        0, '', 0)
ON CONFLICT (tenant, domain, document_id) DO UPDATE SET
    version = excluded.version, content_version = excluded.content_version, digest = excluded.digest,
    fingerprint = excluded.fingerprint, bytes = excluded.bytes, media_type = excluded.media_type,
    title = excluded.title, metadata = excluded.metadata, pinned = excluded.pinned,
    importance = excluded.importance, timestamp = excluded.timestamp, added_by = excluded.added_by,
    updated_at = excluded.updated_at, queued_at = excluded.queued_at, state = 'pending', chunks_done = 0,
    chunks_total = NULL, error = NULL, layout_hash = '', holder = NULL, lease_until = 0, attempts = 0,
    quarantine = NULL
"""
_PUT_CONTENT = """
INSERT INTO document_contents (tenant, domain, document_id, version, content) VALUES ($1, $2, $3, $4, $5)
"""
_DELETE_OLD_CONTENTS = """
DELETE FROM document_contents
WHERE tenant = $1 AND domain = $2 AND document_id = $3 AND version < $4 AND version <> $5
"""
_PAGE = _DOCUMENT + "WHERE tenant = $1 AND domain = $2 AND document_id > $3 ORDER BY document_id LIMIT $4"
_PAGE_BY_STATE = f"""
{_DOCUMENT}
WHERE tenant = $1 AND domain = $2 AND state = $3 AND document_id > $4 ORDER BY document_id LIMIT $5
"""
_MATCHING = """
SELECT document_id, indexed_metadata, indexed_type FROM documents
WHERE tenant = $1 AND domain = $2 AND document_id > $3 AND indexed_version > 0
ORDER BY document_id LIMIT $4
"""
_CONTENT = """
SELECT content, text FROM document_contents
WHERE tenant = $1 AND domain = $2 AND document_id = $3 AND version = $4
"""
# A document whose indexing was interrupted four times or more rests before the next attempt: 15 seconds, then longer
# each time, up to an hour. It passed its trials, but may be the cause all the same, and must neither stop one process
# after the other nor delay other documents for ever.
_LEFT_OUT, _NOBODY = 8, " "
_QUEUED = f"""
SELECT domain, document_id, attempts, added_by, bytes FROM documents
WHERE tenant = $1 AND state = 'pending' AND queued_at > 0
  AND lease_until + CASE WHEN attempts < 4 THEN 0
                         WHEN attempts < 18 THEN (attempts - 3) * (attempts - 3) * 15000000
                         ELSE 3600000000 END <= $2
  AND bytes >= $3 AND bytes < $4
  AND added_by NOT IN ({placeholders(5, _LEFT_OUT)})
ORDER BY queued_at LIMIT ${5 + _LEFT_OUT}
"""  # noqa: S608 - constants only
_CLAIM = f"""
{_DOCUMENT}
WHERE tenant = $1 AND domain = $2 AND document_id = $3 AND state = 'pending' AND lease_until <= $4
{{for_update_unless_locked}}
"""
_ADVANCE = """
UPDATE documents SET chunks_done = $1, chunks_total = $2, layout_hash = $3, attempts = 0, incomplete = 1
WHERE tenant = $4 AND domain = $5 AND document_id = $6
"""
_FINISH = """
UPDATE documents SET state = 'indexed', indexed_version = $1, indexed_content = $2, indexed_at = $3,
                     chunks = $4, chunks_done = $4, chunks_total = $4, media_type = $5, title = $6,
                     indexed_type = $5, indexed_title = $6, indexed_metadata = metadata, text_bytes = $7,
                     trust = $8, quarantine = NULL, error = NULL, holder = NULL, lease_until = 0, attempts = 0,
                     incomplete = 0
WHERE tenant = $9 AND domain = $10 AND document_id = $11
"""
_PUT_TEXT = """
UPDATE document_contents SET text = $1
WHERE tenant = $2 AND domain = $3 AND document_id = $4 AND version = $5
"""
_FAIL = """
UPDATE documents SET state = 'failed', error = $1, holder = NULL, lease_until = 0, attempts = 0,
                     incomplete = 0
WHERE tenant = $2 AND domain = $3 AND document_id = $4
"""
_QUARANTINE = """
UPDATE documents SET state = 'quarantined', quarantine = $1, error = NULL, holder = NULL, lease_until = 0,
                     attempts = 0, incomplete = 0
WHERE tenant = $2 AND domain = $3 AND document_id = $4
"""
_UNINDEX = """
UPDATE documents SET indexed_version = 0, indexed_content = 0, indexed_at = NULL, indexed_title = '',
                     indexed_type = '', indexed_metadata = NULL, chunks = 0, trust = NULL
WHERE tenant = $1 AND domain = $2 AND document_id = $3
"""
_RELEASE = """
UPDATE documents SET state = 'pending', queued_at = $1, released = fingerprint, released_by = $2, quarantine = NULL,
                     chunks_done = 0, chunks_total = NULL, layout_hash = '', holder = NULL, lease_until = 0,
                     attempts = 0
WHERE tenant = $3 AND domain = $4 AND document_id = $5
"""
_LOCK_NEXT = """
SELECT document_id FROM documents
WHERE tenant = $1 AND domain = $2 AND document_id > $3 ORDER BY document_id LIMIT $4 {for_update}
"""
_REQUEUE = """
UPDATE documents SET version = version + 1, state = 'pending', queued_at = $1, chunks_done = 0,
                     chunks_total = NULL, error = NULL, layout_hash = '', holder = NULL, lease_until = 0,
                     attempts = 0, quarantine = NULL
WHERE tenant = $2 AND domain = $3 AND document_id = $4
"""
_REQUEUED = """
SELECT COUNT(*), COALESCE(SUM(chunks), 0) FROM documents
WHERE tenant = $1 AND domain = $2 AND state = 'pending' AND version > content_version
"""
_FORGET_CONTENTS = """
DELETE FROM document_contents
WHERE tenant = $1 AND domain = $2 AND document_id = $3 AND version < $4
"""


class DocumentStore(SqlStore):
    """Documents of the transaction's tenant, their content, and the indexing queue."""

    async def put(self, document: Document, content: bytes, now: int) -> None:
        """Store a document and its content, and queue it; a lease on the previous version ends."""
        await self._tx.run(
            _PUT_DOCUMENT,
            self._tenant,
            *(_value(getattr(document, name)) for name in _DOCUMENT_FIELDS[:_PUT_FIELDS]),
            now,
        )
        await self._tx.run(
            _PUT_CONTENT, self._tenant, document.domain, document.document_id, document.content_version, content
        )
        # Contents that will never be indexed.
        await self._tx.run(
            _DELETE_OLD_CONTENTS,
            self._tenant,
            document.domain,
            document.document_id,
            document.content_version,
            document.indexed_content,
        )

    async def find(self, domain: str, document_id: str) -> Document | None:
        row = await self._tx.one(
            _DOCUMENT + "WHERE tenant = $1 AND domain = $2 AND document_id = $3", self._tenant, domain, document_id
        )
        return None if row is None else _document(row)

    async def find_all(self, domain: str, document_ids: Iterable[str]) -> Mapping[str, Document]:
        """Return those of the documents that exist, by id."""
        rows = await self._tx.all(
            _DOCUMENT + "WHERE tenant = $1 AND domain = $2 AND document_id {among_texts}$3{end_among_texts}",
            self._tenant,
            domain,
            in_json(document_ids),
        )
        return {document.document_id: document for document in map(_document, rows)}

    async def find_locked(self, domain: str, document_id: str) -> Document | None:
        """Return a document with a row lock."""
        row = await self._tx.one(
            _DOCUMENT + "WHERE tenant = $1 AND domain = $2 AND document_id = $3 {for_update}",
            self._tenant,
            domain,
            document_id,
        )
        return None if row is None else _document(row)

    async def page(self, domain: str, state: DocumentState | None, after: str, limit: int) -> Sequence[Document]:
        """Return documents with an id greater than ``after``, by id."""
        if state is None:
            rows = await self._tx.all(_PAGE, self._tenant, domain, after, limit)
        else:
            rows = await self._tx.all(_PAGE_BY_STATE, self._tenant, domain, state, after, limit)
        return [_document(row) for row in rows]

    async def matching(self, domain: str, metadata: Mapping[str, object], media_types: Sequence[str]) -> Sequence[str]:
        """Return the ids of documents whose indexed version has this metadata and, if given, one of these types."""
        found: list[str] = []
        after = ""
        while True:
            rows = await self._tx.all(_MATCHING, self._tenant, domain, after, _READ_BATCH)
            found += [row[0] for row in rows if _says(row[1], metadata) and (not media_types or row[2] in media_types)]
            if len(rows) < _READ_BATCH:
                return found
            after = rows[-1][0]
            await self._tx.yield_to_loop()

    async def pinned_bytes(self, domain: str, except_document: str) -> int:
        """Return the bytes of the pinned documents of a domain other than this one."""
        row = await self._tx.one(
            "SELECT COALESCE(SUM(bytes), 0) FROM documents "
            "WHERE tenant = $1 AND domain = $2 AND pinned = 1 AND document_id <> $3",
            self._tenant,
            domain,
            except_document,
        )
        return 0 if row is None else int(row[0])

    async def backlog(self, domain: str) -> Backlog:
        states: tuple[DocumentState, ...] = ("pending", "failed", "quarantined")
        return Backlog(*[await self._count(domain, state) for state in states])

    async def incomplete(self, domain: str) -> Sequence[IncompleteDocument]:
        """Return the documents with chunks of an unfinished version."""
        rows = await self._tx.all(
            "SELECT document_id, indexed_version FROM documents WHERE tenant = $1 AND domain = $2 AND incomplete = 1",
            self._tenant,
            domain,
        )
        return [IncompleteDocument(*row) for row in rows]

    async def content(self, domain: str, document_id: str, version: int) -> StoredContent | None:
        """Return the content of a version."""
        row = await self._tx.one(_CONTENT, self._tenant, domain, document_id, version)
        return None if row is None else StoredContent(*row)

    async def delete(self, domain: str, document_id: str) -> None:
        """Delete a document and its content, but not its chunks."""
        await self._tx.run(
            "DELETE FROM documents WHERE tenant = $1 AND domain = $2 AND document_id = $3",
            self._tenant,
            domain,
            document_id,
        )
        await self._forget_contents(domain, document_id, before=2**62)

    async def delete_content(self, domain: str, document_id: str, version: int) -> None:
        """Delete the content of one version."""
        await self._tx.run(
            "DELETE FROM document_contents WHERE tenant = $1 AND domain = $2 AND document_id = $3 AND version = $4",
            self._tenant,
            domain,
            document_id,
            version,
        )

    async def queued(self, now: int, limit: int, sizes: range, not_of: Sequence[str] = ()) -> Sequence[QueuedDocument]:
        """Return queued documents of these sizes without a lease, oldest first; none that these participants added.

        After four attempts that ended with their process, a document rests before each further one.
        """
        left_out = [*not_of, *[_NOBODY] * _LEFT_OUT][:_LEFT_OUT]
        rows = await self._tx.all(_QUEUED, self._tenant, now, sizes.start, sizes.stop, *left_out, limit)
        return [QueuedDocument(*row) for row in rows]

    async def claim(self, domain: str, document_id: str, holder: str, now: int, until: int) -> LeasedDocument | None:
        """Lease a document; None if it is leased or not queued.

        Counts as an attempt, unless the same holder had the last lease: then that process did not crash.
        """
        row = await self._tx.one(_CLAIM, self._tenant, domain, document_id, now)
        if row is None:
            return None
        lease = RowLease(self._tx, "documents", domain=domain, document_id=document_id)
        await lease.take(holder, until, also=", attempts = attempts + CASE WHEN holder = $1 THEN 0 ELSE 1 END")
        return _held(row)

    async def renew_lease(
        self, domain: str, document_id: str, version: int, holder: str, until: int
    ) -> LeasedDocument | None:
        """Extend a lease and return the document with a row lock; None if the lease is lost or it has changed."""
        lease = RowLease(self._tx, "documents", domain=domain, document_id=document_id, version=version)
        if not await lease.renew(holder, until, only_if=" AND state = 'pending'"):
            return None
        row = await self._tx.one(
            _DOCUMENT + "WHERE tenant = $1 AND domain = $2 AND document_id = $3", self._tenant, domain, document_id
        )
        return None if row is None else _held(row)

    async def end_lease(
        self, domain: str, document_id: str, holder: str, rests_until: int, *, interrupted: bool = False
    ) -> None:
        """End a lease; the document is not leased again before ``rests_until``.

        Its attempts are forgotten, unless this one was ``interrupted``.
        """
        lease = RowLease(self._tx, "documents", domain=domain, document_id=document_id)
        await lease.release(holder, rests_until, also="" if interrupted else ", attempts = 0")

    async def advance(self, domain: str, document_id: str, *, done: int, total: int, layout_hash: str) -> None:
        """Store the indexing progress of a version."""
        await self._tx.run(_ADVANCE, done, total, layout_hash, self._tenant, domain, document_id)

    async def finish(self, document: Document, text: bytes | None) -> None:
        """Make a version the indexed one, and delete the content of earlier versions."""
        await self._tx.run(
            _FINISH,
            document.version,
            document.content_version,
            document.indexed_at,
            document.chunks,
            document.media_type,
            document.title,
            document.text_bytes,
            _label_text(document.trust),
            self._tenant,
            document.domain,
            document.document_id,
        )
        await self._tx.run(
            _PUT_TEXT, text, self._tenant, document.domain, document.document_id, document.content_version
        )
        await self._forget_contents(document.domain, document.document_id, before=document.content_version)

    async def fail(self, domain: str, document_id: str, reason: str) -> None:
        """Store that indexing a version failed."""
        await self._tx.run(_FAIL, reason, self._tenant, domain, document_id)

    async def quarantine(self, document: Document, quarantine: Quarantine) -> None:
        """Store that a version is held for review, and why."""
        text = _encode(quarantine).decode()
        await self._tx.run(_QUARANTINE, text, self._tenant, document.domain, document.document_id)

    async def unindex(self, domain: str, document_id: str) -> None:
        """Store that no version is indexed, but keep the content of the latest one."""
        await self._tx.run(_UNINDEX, self._tenant, domain, document_id)

    async def release(self, document: Document, released_by: str, now: int) -> None:
        """Queue a version that was held, and note that exactly this content with these attributes may be indexed."""
        await self._tx.run(_RELEASE, now, released_by, self._tenant, document.domain, document.document_id)

    async def set_trust(self, domain: str, document_id: str, label: TrustLabel | None) -> None:
        """Set the label of a document."""
        await self._tx.run(
            "UPDATE documents SET trust = $1 WHERE tenant = $2 AND domain = $3 AND document_id = $4",
            _label_text(label),
            self._tenant,
            domain,
            document_id,
        )

    async def requeue(self, domain: str, after: str, limit: int, now: int) -> str | None:
        """Queue the next documents after an id for reindexing, each as a new version; return the last id."""
        rows = await self._tx.all(_LOCK_NEXT, self._tenant, domain, after, limit)
        await self._tx.many(_REQUEUE, [(now, self._tenant, domain, row[0]) for row in rows])
        return rows[-1][0] if rows else None

    async def requeued(self, domain: str) -> Requeued:
        """Return what waits for reindexing, without documents that have new content."""
        row = await self._tx.one(_REQUEUED, self._tenant, domain)
        assert row is not None  # noqa: S101 - a count always has its row
        return Requeued(int(row[0]), int(row[1]))

    async def count_after(self, domain: str, after: str) -> int:
        """Return the number of documents with an id greater than ``after``."""
        row = await self._tx.one(
            "SELECT COUNT(*) FROM documents WHERE tenant = $1 AND domain = $2 AND document_id > $3",
            self._tenant,
            domain,
            after,
        )
        return 0 if row is None else int(row[0])

    async def _count(self, domain: str, state: DocumentState) -> int:
        row = await self._tx.one(
            "SELECT COUNT(*) FROM documents WHERE tenant = $1 AND domain = $2 AND state = $3",
            self._tenant,
            domain,
            state,
        )
        return 0 if row is None else int(row[0])

    async def _forget_contents(self, domain: str, document_id: str, *, before: int) -> None:
        await self._tx.run(_FORGET_CONTENTS, self._tenant, domain, document_id, before)


# Fields written when a document is put: all up to the time of the last change.
_PUT_FIELDS = _DOCUMENT_FIELDS.index("updated_at") + 1
_TENANTS_WITH_PENDING = """
SELECT tenant FROM documents WHERE state = 'pending' AND tenant > $1 AND queued_at > 0
ORDER BY tenant LIMIT 1
"""


async def tenants_with_pending(transaction: Transaction) -> list[str]:
    """Return the tenants with documents to index: one index lookup per tenant, however many documents there are."""
    found: list[str] = []
    while True:
        row = await transaction.one(_TENANTS_WITH_PENDING, found[-1] if found else "")
        if row is None:
            return found
        found.append(row[0])


async def tenants_reindexing(transaction: Transaction) -> list[str]:
    """Return the tenants with domains that are reindexed."""
    rows = await transaction.all("SELECT DISTINCT tenant FROM domains WHERE reindex_after IS NOT NULL ORDER BY tenant")
    return [row[0] for row in rows]


_TO_EVALUATE = """
SELECT tenant, domain FROM domains
WHERE template IS NOT NULL AND content_changes <> evaluated_changes AND reindex_after IS NULL
  AND NOT EXISTS (SELECT 1 FROM documents
                  WHERE documents.tenant = domains.tenant AND documents.domain = domains.domain
                    AND documents.state = 'pending')
ORDER BY tenant, domain
"""
# SQLite keeps the order of a cross join: domains first, of which there are few.
_EXPIRED_DOCUMENTS = f"""
FROM domains CROSS JOIN documents
WHERE domains.template IS NOT NULL AND domains.retention_days IS NOT NULL
  AND documents.tenant = domains.tenant AND documents.domain = domains.domain
  AND documents.timestamp < $1 - domains.retention_days * {DAY_MICROS}
"""


async def domains_to_evaluate(transaction: Transaction) -> list[tuple[str, str]]:
    """Return tenant and name of domains whose documents are all indexed and have changed since the last evaluation."""
    return [(row[0], row[1]) for row in await transaction.all(_TO_EVALUATE)]


async def tenants_with_expired_documents(transaction: Transaction, now: int) -> list[str]:
    """Return the tenants with documents that are past the retention of their domain."""
    rows = await transaction.all(f"SELECT DISTINCT domains.tenant {_EXPIRED_DOCUMENTS}", now)
    return [row[0] for row in rows]


async def expired_documents(transaction: Transaction, now: int, limit: int) -> list[tuple[str, str]]:
    """Return domain and id of documents of a tenant that are past the retention of their domain."""
    rows = await transaction.all(
        f"SELECT documents.domain, documents.document_id {_EXPIRED_DOCUMENTS} AND domains.tenant = $2 LIMIT $3",
        now,
        transaction.tenant,
        limit,
    )
    return [(row[0], row[1]) for row in rows]


async def documents_pending(transaction: Transaction) -> int:
    """Return the number of documents to index, of all tenants."""
    row = await transaction.one("SELECT COUNT(*) FROM documents WHERE state = 'pending'")
    return 0 if row is None else int(row[0])


_RELEASE_ALL = """
UPDATE documents SET holder = NULL, lease_until = 0, attempts = 0
WHERE tenant = $1 AND state = 'pending' AND queued_at > 0 AND holder = $2
"""


async def release_all(transaction: Transaction, holder: str) -> None:
    """Release every document that a process has claimed."""
    for tenant in await tenants_with_pending(transaction):
        await transaction.run(_RELEASE_ALL, tenant, holder)


def _definition(domain: Domain) -> tuple[Value, ...]:
    return (
        domain.description,
        domain.clearance,
        encode_patterns(domain.agents),
        encode_patterns(domain.writers),
        _encode(domain.chunking).decode(),
        domain.importance,
    )


def _domain(row: Row) -> Domain:
    values = dict(zip(Domain.__struct_fields__, row, strict=True))
    return Domain(
        **values
        | {
            "agents": decode_patterns(values["agents"]),
            "writers": decode_patterns(values["writers"]),
            "chunking": _decode_chunking.decode(values["chunking"]),
            "reembed": bool(values["reembed"]),
            "template": values["template"] and _decode_template(values["template"]),
            "evaluation": values["evaluation"] and _decode_evaluation(values["evaluation"]),
        }
    )


def _document(row: Row) -> Document:
    values = dict(zip(_DOCUMENT_FIELDS, row, strict=False))
    values["pinned"] = bool(values["pinned"])
    for name, decode in (("trust", _label), ("quarantine", _quarantine)):
        if values[name] is not None:
            values[name] = decode(values[name])
    return Document(**values)


def _label_text(label: TrustLabel | None) -> str | None:
    return None if label is None else _encode(label).decode()


def _held(row: Row) -> LeasedDocument:
    return LeasedDocument(_document(row), *row[-2:])


def _value(value: Value) -> Value:
    return int(value) if isinstance(value, bool) else value


def _says(text: str, wanted: Mapping[str, object]) -> bool:
    if not wanted:
        return True
    metadata = _metadata.decode(text)
    return all(name in metadata and metadata[name] == value for name, value in wanted.items())
