"""Syncs a domain with a source, in several transactions, so that documents are read outside of them."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import msgspec
from msgspec import structs

from weftline.access.authentication import identify_local
from weftline.access.sql import AccessStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.errors import AuthenticationError, InvalidInput
from weftline.kernel.events import EventType, NewEvent
from weftline.kernel.identity import Actor
from weftline.kernel.outbox import Outbox
from weftline.knowledge.document_operations import NewDocument
from weftline.knowledge.documents import DocumentMeta, Documents, PackedContent
from weftline.knowledge.domains import cleared_for
from weftline.knowledge.model import Document, DocumentId
from weftline.knowledge.source_store import SourceStore
from weftline.knowledge.sources import (
    ADMINS,
    FULL_SYNC_REQUESTED,
    SECOND,
    HookRefused,
    KnowledgeSource,
    RejectedDocument,
    SourceFile,
    SyncCounts,
    SyncedFile,
    document_id_of_file,
)
from weftline.knowledge.sql import DomainStore
from weftline.sessions.events.webhooks import signed_headers

# Hook calls, which trigger a sync or carry documents: signature, replay protection and body.

# Maximum difference between the time of signing and now. Ids of calls are stored for this long, to reject replays.
CLOCK_TOLERANCE = 300 * SECOND
_ID, _TIMESTAMP, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_MAX_ID_LENGTH = 256


class HookBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a signed call: documents to put and document ids to remove."""

    documents: Annotated[tuple[NewDocument, ...], msgspec.Meta(max_length=100)] = ()
    removed: Annotated[tuple[DocumentId, ...], msgspec.Meta(max_length=1000)] = ()


class SignedCall(NamedTuple):
    """A call with a valid signature; ``at`` is the time of signing, in microseconds."""

    call_id: str
    at: int


class HookResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Response to a call: a sync was requested, or documents were accepted, removed and refused."""

    success: bool = True
    sync: bool = False
    accepted: int = 0
    removed: int = 0
    refused: tuple[RejectedDocument, ...] = ()


def is_signed(headers: Mapping[str, str]) -> bool:
    return _SIGNATURE in headers


def verify_call(source: KnowledgeSource, headers: Mapping[str, str], body: bytes, now: int) -> SignedCall:
    """Verify the signature and time of a call; raise HookRefused if they are invalid."""
    call_id, stamp = headers.get(_ID, ""), headers.get(_TIMESTAMP, "")
    if not (0 < len(call_id) <= _MAX_ID_LENGTH and call_id.isascii() and call_id.isprintable()):
        raise HookRefused
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) <= len(str(now))):
        raise HookRefused
    call = SignedCall(call_id, int(stamp) * SECOND)
    expected = signed_headers(source.secret, call_id, int(stamp), body)[_SIGNATURE]
    given = headers[_SIGNATURE].split(" ")
    if not any(hmac.compare_digest(expected.encode(), each.encode()) for each in given):
        raise HookRefused
    if abs(now - call.at) > CLOCK_TOLERANCE:
        raise HookRefused
    return call


def parse_hook_body(body: bytes) -> HookBody:
    try:
        return msgspec.json.decode(body or b"{}", type=HookBody)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Invalid hook body: {error}", field="documents") from None


# Syncs a domain with a source, in several transactions. The rows of the source's files store the progress.
#
# After a crash another process compares the same files with the same rows, and continues.

_FOREIGN_DOCUMENT = "A document with this id was put by someone else. Delete it to let the source replace it."


class SourceUnavailable(Exception):
    """The source was removed or disabled during the sync."""


class SyncPlan(NamedTuple):
    """Work of a sync: files to read and documents to remove."""

    changed: Sequence[SourceFile]
    gone: Sequence[str]
    unchanged: int


class SourceItem(NamedTuple):
    """A document of a source; without content if it could not be read, with the reason in ``known``."""

    known: SyncedFile
    about: DocumentMeta = DocumentMeta()
    content: PackedContent | None = None


class SourceSync(msgspec.Struct, frozen=True):
    """State of the tenant's sources during a sync, and their events."""

    actor: Actor
    sources: SourceStore
    domains: DomainStore
    access: AccessStore
    outbox: Outbox
    clock: Clock

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())

    async def owner(self, source: KnowledgeSource) -> Actor | str:
        """Return the admin on whose behalf a source puts documents, or why it must stop."""
        try:
            owner = await identify_local(source.principal_id, self.access)
        except AuthenticationError:
            return f"'{source.principal_id}', who created it, no longer exists or is disabled"
        return owner if owner.is_admin else f"'{source.principal_id}', who created it, is no longer an admin"

    async def begin(self, source_id: str) -> KnowledgeSource:
        """Start a sync; a request from now on causes another one."""
        source = await self._locked(source_id)
        if source.requested == FULL_SYNC_REQUESTED:
            await self.sources.invalidate_files(source_id)
            source = structs.replace(source, validator="")
        # It stays due, so that another process continues after a crash.
        await self.sources.update(structs.replace(source, requested=0, due_at=self.now))
        return source

    async def finish(self, source_id: str, done: SyncCounts, validator: str, *, requested: bool) -> None:
        """Store the result of a sync and schedule the next one."""
        source = await self._locked(source_id)
        failures = source.failures + 1 if done.failed else 0
        synced = structs.replace(
            source, error=None, failures=failures, validator=validator, last_sync=done, synced_at=self.now
        )
        await self.sources.update(structs.replace(synced, due_at=synced.next_due(self.now)))
        if requested or done.changed or source.error or done.failures != source.last_sync.failures:
            await self.publish("knowledge_source.synced", synced, **done.figures)

    async def fail(self, source_id: str, reason: str, *, stop: bool = False) -> None:
        """Store that a sync failed; the documents stay unchanged."""
        source = await self._locked(source_id)
        failed = structs.replace(source, error=reason, failures=source.failures + 1, enabled=not stop)
        await self.sources.update(structs.replace(failed, due_at=failed.next_due(self.now)))
        if source.error != reason:
            await self.publish("knowledge_source.failed", failed, reason=reason)

    async def publish(self, event: EventType, source: KnowledgeSource, **data: object) -> None:
        await self.outbox.publish(
            NewEvent(
                type=event,
                session_id=None,
                subject=source.source_id,
                actor=self.actor.participant,
                participants=ADMINS,
                # Not every admin has the clearance for every domain.
                readable_by=await cleared_for(source.domain, self.domains),
                data={"domain": source.domain, "kind": source.kind, **data},
            )
        )

    async def _locked(self, source_id: str) -> KnowledgeSource:
        source = await self.sources.find_locked(source_id)
        if source is None or not source.enabled:
            raise SourceUnavailable
        return source


class SourceDocuments(msgspec.Struct, frozen=True):
    """Puts and removes documents of a source, with the permissions of its owner."""

    sources: SourceStore
    documents: Documents

    async def put(self, source: KnowledgeSource, items: Sequence[SourceItem]) -> SyncCounts:
        """Put documents and store their files, in one transaction."""
        await self._check(source)
        done = SyncCounts()
        for item in items:
            done += await self._put(source, item)
        return done

    async def remove(self, source: KnowledgeSource, document_ids: Sequence[str]) -> int:
        """Remove documents that the source no longer has; return how many existed."""
        await self._check(source)
        return await self._remove_each(source, document_ids)

    async def remove_some(self, source: KnowledgeSource, limit: int) -> tuple[int, bool]:
        """Remove some documents of a source, enabled or not; return how many existed, and whether there may be more."""
        await self._locked(source)
        files = await self.sources.files(source.source_id, limit)
        return await self._remove_each(source, list(files)), len(files) == limit

    async def apply_call(
        self, source: KnowledgeSource, call: SignedCall, items: Sequence[SourceItem], removed: Sequence[str]
    ) -> HookResponse:
        """Apply a signed call. Idempotent: a call that was applied before gets its stored response."""
        current = await self._check(source)
        before = await self.sources.response_to(source.source_id, call.call_id)
        if before is None:
            answer = await self._apply(current, items, removed)
        else:
            answer = msgspec.json.decode(before, type=HookResponse)
        await self.sources.put_call(source.source_id, call, msgspec.json.encode(answer).decode())
        await self.sources.delete_calls(source.source_id, self.documents.domains.now - CLOCK_TOLERANCE)
        return answer

    async def _apply(
        self, source: KnowledgeSource, items: Sequence[SourceItem], removed: Sequence[str]
    ) -> HookResponse:
        done = await self.put(source, items)
        gone = await self.remove(source, removed)
        noted = structs.replace(source, synced_at=self.documents.domains.now, error=None, failures=0)
        await self.sources.update(structs.replace(noted, last_sync=done + SyncCounts(removed=gone)))
        refused = (
            RejectedDocument(each.document_id.removeprefix(source.prefix), each.reason) for each in done.failures
        )
        return HookResponse(accepted=len(items) - done.failed, removed=gone, refused=tuple(refused))

    async def _check(self, source: KnowledgeSource) -> KnowledgeSource:
        """Lock a source; SourceUnavailable if it was removed or disabled."""
        found = await self._locked(source)
        if not found.enabled:
            raise SourceUnavailable
        return found

    async def _locked(self, source: KnowledgeSource) -> KnowledgeSource:
        # Lock order: the domain first, like the operations on sources.
        await self.documents.domains.lock(source.domain)
        found = await self.sources.find_locked(source.source_id)
        if found is None:
            raise SourceUnavailable
        return found

    async def _put(self, source: KnowledgeSource, item: SourceItem) -> SyncCounts:
        name = item.known.document_id
        known = await self.sources.file(source.source_id, name)
        there = await self.documents.documents.find(source.domain, name)
        if item.content is None:
            return await self._not_taken(source, item.known, known)
        if there is not None and not _is_own(there, known):
            return await self._not_taken(source, structs.replace(item.known, error=_FOREIGN_DOCUMENT), known)
        put = await self.documents.put(source.domain, name, item.about, item.content)
        await self.sources.put_file(source.source_id, item.known)
        if put.unchanged:
            return SyncCounts(unchanged=1)
        return SyncCounts(added=1) if put.document.version == 1 else SyncCounts(updated=1)

    async def _not_taken(self, source: KnowledgeSource, file: SyncedFile, known: SyncedFile | None) -> SyncCounts:
        """Store why a file was not put. A document that was put of it before remains the source's own."""
        digest = "" if known is None else known.digest
        await self.sources.put_file(source.source_id, structs.replace(file, digest=digest))
        return SyncCounts(failed=1, failures=(RejectedDocument(file.document_id, file.error or ""),))

    async def _remove_each(self, source: KnowledgeSource, document_ids: Sequence[str]) -> int:
        return sum([await self._remove(source, document_id) for document_id in document_ids])

    async def _remove(self, source: KnowledgeSource, document_id: str) -> bool:
        known = await self.sources.file(source.source_id, document_id)
        await self.sources.delete_file(source.source_id, document_id)
        there = await self.documents.documents.find(source.domain, document_id)
        if there is None or not _is_own(there, known):
            return False
        await self.documents.remove(source.domain, document_id)
        return True


def plan_sync(source: KnowledgeSource, files: Sequence[SourceFile], known: Mapping[str, SyncedFile]) -> SyncPlan:
    """Compare the files of a folder with those that were synced."""
    named = {document_id_of_file(source, file.path): file for file in files}
    changed = [file for name, file in named.items() if not _is_known(file, known.get(name))]
    gone = sorted(known.keys() - named.keys())
    return SyncPlan(changed, gone, len(named) - len(changed))


def _is_known(file: SourceFile, known: SyncedFile | None) -> bool:
    """Whether a file is unchanged; one that failed is tried again at every sync."""
    return known is not None and (known.size, known.changed_at, known.error) == (file.size, file.changed_at, None)


def _is_own(document: Document, known: SyncedFile | None) -> bool:
    """Whether a document is the one that the source put, and was not replaced by someone else."""
    return known is not None and known.digest == document.digest
