"""Sync of knowledge sources: folders and addresses when due, requested or changed, and calls of their hooks."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import structs

from weftline.jobs.runner import LeaseLost
from weftline.jobs.scheduler import Work
from weftline.kernel.errors import InvalidInput, QuotaExceeded, Unavailable, WeftlineError
from weftline.kernel.fields import is_name
from weftline.kernel.guards import GuardedCall
from weftline.kernel.thread_pools import SHORT_THREADS
from weftline.knowledge.document_operations import AddDocument, add_document, document_meta
from weftline.knowledge.documents import DocumentMeta, check_size, decode_content, pack_content
from weftline.knowledge.model import MAX_DOCUMENT_BYTES, DocumentTooLarge
from weftline.knowledge.source_store import SourceStore, sources_to_look_at
from weftline.knowledge.source_sync import (
    HookResponse,
    SourceDocuments,
    SourceItem,
    SourceSync,
    SourceUnavailable,
    is_signed,
    parse_hook_body,
    plan_sync,
    verify_call,
)
from weftline.knowledge.sources import (
    SYNC_REQUESTED,
    HookRefused,
    KnowledgeSource,
    SyncCounts,
    SyncedFile,
    check_document_name,
    document_id_of_file,
    is_token_of,
    listing_fingerprint,
)
from weftline.storage.sql.database import SYSTEM, Scope
from weftline.storage.sql.unit_of_work import SystemTransactions, logged_write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from weftline.jobs.runner import Lease, LeaseRunner
    from weftline.jobs.scheduler import JobQueue
    from weftline.kernel.guards import EntryPoint, Guards
    from weftline.kernel.identity import Actor
    from weftline.kernel.transaction import Transaction
    from weftline.knowledge.document_operations import NewDocument
    from weftline.knowledge.source_sync import HookBody, SignedCall
    from weftline.knowledge.sources import SourceFile, SourceKind
    from weftline.providers.http_fetcher import HttpFetcher
    from weftline.providers.local_folders import AllowedFolders
    from weftline.storage.sql.unit_of_work import Injector

T = TypeVar("T")

SYNC = "knowledge.sync"
# Sources synced at the same time, and of one tenant, so that a slow source delays only a few others.
CONCURRENCY = 8
PER_TENANT = 2
_POLL_SECONDS = 5.0
_WATCH_SECONDS = 2.0
# Maximum files, and bytes of files, in one transaction.
_BATCH_FILES = 20
_BATCH_BYTES = 4 * 2**20
_SECOND = 1_000_000


class _SyncResult(NamedTuple):
    """The changes a sync made, and the state of the source it saw."""

    done: SyncCounts
    validator: str


class SourceStopped(Exception):
    """A source may not be synced any more, for a reason its owners are shown."""


class SourceSyncJob:
    """Keeps knowledge domains of all tenants up to date with their sources."""

    def __init__(
        self,
        runner: LeaseRunner,
        injector: Injector,
        guards: Guards,
        folders: AllowedFolders,
        private_hosts: Sequence[str],
    ) -> None:
        self._runner = runner
        self._database = runner.database
        self._folders = folders
        self._private_hosts = private_hosts
        self._known_fetcher: HttpFetcher | None = None
        self._sources = SystemTransactions(runner.database, injector, SourceSync)
        self._injector = injector
        self._guards = guards
        self.poll_seconds = _POLL_SECONDS
        # Polls now, instead of at the next interval; set by the application.
        self.wake: Callable[[], None] = lambda: None

    async def check(self, actor: Actor, kind: SourceKind, location: str) -> None:
        if kind == "folder":
            await self._folders.check(actor.tenant, location)
        elif kind == "url":
            await self._fetcher.check(location)

    async def due(self, _queue: JobQueue) -> list[Work]:
        """Return the sources that are due, requested or watched."""
        found = await self._database.read(SYSTEM, sources_to_look_at)
        self.poll_seconds = _WATCH_SECONDS if any(each.source.watch for each in found) else _POLL_SECONDS
        now = self._runner.now
        return [Work(each.tenant, (each.source.source_id,), wait=_wait_seconds(each.source, now)) for each in found]

    async def run(self, work: Work) -> None:
        """Sync one source, if it is due or a watched folder has changed."""
        (source_id,) = work.item
        source = await self._database.read(Scope(work.tenant), lambda tx: SourceStore(tx).find(source_id))
        if source is not None and (source.is_due(self._now()) or await self._has_changed(work.tenant, source)):
            await self.sync(work.tenant, source_id)

    async def sync(self, tenant: str, source_id: str) -> None:
        """Bring a domain up to date with a source, unless another process does."""
        with contextlib.suppress(SourceUnavailable):
            await self._runner.run(tenant, f"{SYNC} {source_id}", partial(self._sync, source_id=source_id))

    async def hook(self, tenant: str, source_id: str, token: str) -> KnowledgeSource:
        """Return the source of a hook; a wrong token and an unknown source get the same error."""
        if not (is_name(tenant) and is_name(source_id)):
            raise HookRefused
        source = await self._database.read(Scope(tenant), lambda tx: SourceStore(tx).find(source_id))
        if source is None or not is_token_of(source, token) or not source.enabled:
            raise HookRefused
        return source

    async def call(self, tenant: str, source: KnowledgeSource, headers: Mapping[str, str], body: bytes) -> HookResponse:
        """Handle a call of a source's hook: request a sync, or put the documents it carries."""
        call = verify_call(source, headers, body, self._now()) if is_signed(headers) else None
        if source.kind != "hook":
            await self._sources.write(tenant, partial(_request_sync, source_id=source.source_id))
            self.wake()
            return HookResponse(sync=True)
        if call is None:
            raise HookRefused
        try:
            return await self._apply_hook_call(tenant, source, call, parse_hook_body(body))
        except (InvalidInput, DocumentTooLarge, Unavailable):
            raise
        except (SourceStopped, SourceUnavailable, WeftlineError) as error:
            await self._note_refusal(tenant, source, error)
            # Details of the quota are for those who may read the domain.
            raise (QuotaExceeded() if isinstance(error, QuotaExceeded) else HookRefused()) from None

    @property
    def _fetcher(self) -> HttpFetcher:
        if self._known_fetcher is None:
            from weftline.providers.http_fetcher import HttpFetcher  # noqa: PLC0415 - few installations fetch, and the import is slow

            self._known_fetcher = HttpFetcher(self._private_hosts)
        return self._known_fetcher

    async def _has_changed(self, tenant: str, source: KnowledgeSource) -> bool:
        """Return whether a watched folder differs from the last sync. A failed source waits until it is due."""
        if not source.watch or source.error is not None:
            return False
        try:
            return listing_fingerprint(await self._folders.files(tenant, source)) != source.validator
        except Exception:  # noqa: BLE001 - the sync meets it again, and notes it
            return True

    async def _sync(self, lease: Lease, source_id: str) -> None:
        source = await lease.write(lambda tx: self._sources.within(tx).begin(source_id))
        sync = self._sync_folder if source.kind == "folder" else self._sync_url
        try:
            done, seen = await sync(lease, source)
        except (LeaseLost, SourceUnavailable, Unavailable):
            raise
        except Exception as error:
            await lease.write(self._sources.doing(partial(_fail, source_id=source_id, error=error)))
            if not isinstance(error, SourceStopped | WeftlineError | OSError):
                raise
        else:
            requested = bool(source.requested)
            await lease.write(lambda tx: self._sources.within(tx).finish(source_id, done, seen, requested=requested))

    async def _sync_folder(self, lease: Lease, source: KnowledgeSource) -> _SyncResult:
        files = await self._folders.files(lease.tenant, source)
        known = await lease.read(lambda tx: SourceStore(tx).files(source.source_id))
        plan = plan_sync(source, files, known)
        done = SyncCounts(unchanged=plan.unchanged)
        for some in _batches(plan.changed):
            items = [await self._read(lease.tenant, source, file) for file in some]
            put = await self._write_as_owner(lease, source, partial(SourceDocuments.put, source=source, items=items))
            done += put
        for start in range(0, len(plan.gone), _BATCH_FILES):
            gone = plan.gone[start : start + _BATCH_FILES]
            removed = await self._write_as_owner(
                lease, source, partial(SourceDocuments.remove, source=source, document_ids=gone)
            )
            done += SyncCounts(removed=removed)
        return _SyncResult(done, listing_fingerprint(files))

    async def _sync_url(self, lease: Lease, source: KnowledgeSource) -> _SyncResult:
        fetched = await self._fetcher.fetch(source.location, source.validator, MAX_DOCUMENT_BYTES)
        if fetched.error is not None:
            raise OSError(0, fetched.error)
        if fetched.gone:
            gone = [source.prefix]
            removed = await self._write_as_owner(lease, source, lambda supply: supply.remove(source, gone))
            return _SyncResult(SyncCounts(removed=removed), "")
        if fetched.content is None:
            return _SyncResult(SyncCounts(unchanged=1), fetched.validator)
        file = SyncedFile(source.prefix, len(fetched.content), self._now(), "")
        item = await self._admitted(
            lease.tenant, source, file, DocumentMeta(media_type=fetched.media_type), fetched.content
        )
        done = await self._write_as_owner(lease, source, lambda supply: supply.put(source, [item]))
        # A refused document is fetched again.
        return _SyncResult(done, "" if done.failed else fetched.validator)

    async def _read(self, tenant: str, source: KnowledgeSource, file: SourceFile) -> SourceItem:
        """Read a file; one that is too large or unreadable is noted and does not stop the others."""
        name = document_id_of_file(source, file.path)
        try:
            check_document_name(name)
            check_size(file.size)
            content = await self._folders.read(tenant, source, file.path, MAX_DOCUMENT_BYTES)
        except (OSError, WeftlineError) as error:
            reason = error.message if isinstance(error, WeftlineError) else "It cannot be read."
            return SourceItem(SyncedFile(name, file.size, file.changed_at, "", reason))
        known = SyncedFile(name, file.size, file.changed_at, "")
        return await self._admitted(tenant, source, known, DocumentMeta(), content)

    async def _admitted(
        self, tenant: str, source: KnowledgeSource, file: SyncedFile, about: DocumentMeta, content: bytes
    ) -> SourceItem:
        """Return a document as guards admit it; one that they refuse is noted with the reason."""
        try:
            about, content = await self._guarded(tenant, source, file.document_id, about, content, "sync")
        except WeftlineError as error:
            return SourceItem(structs.replace(file, error=error.message))
        made = await SHORT_THREADS.run(pack_content, content)
        return SourceItem(structs.replace(file, digest=made.digest), about, made)

    async def _guarded(
        self,
        tenant: str,
        source: KnowledgeSource,
        document_id: str,
        about: DocumentMeta,
        content: bytes,
        entry: EntryPoint,
    ) -> tuple[DocumentMeta, bytes]:
        if not self._guards:
            return about, content
        owner = await self._sources.read(tenant, lambda sources: sources.owner(source))
        if isinstance(owner, str):
            raise SourceStopped(owner)
        request = AddDocument(domain=source.domain, document_id=document_id, text="", **structs.asdict(about))
        admitted, content = await self._guards.admit(GuardedCall(add_document, request, owner, entry), content)
        return document_meta(admitted), content

    async def _write_as_owner(
        self, lease: Lease, source: KnowledgeSource, work: Callable[[SourceDocuments], Awaitable[T]]
    ) -> T:
        """Change documents with the current rights of the source's creator."""
        return await lease.write(lambda tx: self._as_owner(tx, source, work))

    async def _as_owner(
        self, transaction: Transaction, source: KnowledgeSource, work: Callable[[SourceDocuments], Awaitable[T]]
    ) -> T:
        owner = await self._sources.within(transaction).owner(source)
        if isinstance(owner, str):
            raise SourceStopped(owner)
        return await work(self._injector.build(SourceDocuments, owner, transaction))

    async def _note_refusal(self, tenant: str, source: KnowledgeSource, error: Exception) -> None:
        """Note in the source why a call of its hook was refused, for its owners."""
        with contextlib.suppress(SourceUnavailable):
            await self._sources.write(tenant, partial(_fail, source_id=source.source_id, error=error))

    async def _apply_hook_call(
        self, tenant: str, source: KnowledgeSource, call: SignedCall, body: HookBody
    ) -> HookResponse:
        """Put the documents of a signed call, with the rights of the source's creator."""
        items = [await self._hook_item(tenant, source, document) for document in body.documents]
        removed = [f"{source.prefix}{name}" for name in body.removed]
        work = partial(SourceDocuments.apply_call, source=source, call=call, items=items, removed=removed)
        return await logged_write(self._database, Scope(tenant), lambda tx: self._as_owner(tx, source, work))

    async def _hook_item(self, tenant: str, source: KnowledgeSource, document: NewDocument) -> SourceItem:
        name = f"{source.prefix}{document.document_id}"
        check_document_name(name)
        content = await SHORT_THREADS.run(decode_content, document.text, document.content)
        about, content = await self._guarded(tenant, source, name, document_meta(document), content, "hook")
        made = await SHORT_THREADS.run(pack_content, content)
        return SourceItem(SyncedFile(name, made.size, 0, made.digest), about, made)

    def _now(self) -> int:
        return self._runner.now


async def _request_sync(sources: SourceSync, source_id: str) -> None:
    """Request a sync, unless that was done already."""
    source = await sources.sources.find_locked(source_id)
    if source is not None and not source.requested:
        await sources.sources.update(structs.replace(source, requested=SYNC_REQUESTED))


async def _fail(sources: SourceSync, source_id: str, error: Exception) -> None:
    await sources.fail(source_id, _reason_of(error), stop=isinstance(error, SourceStopped))


def _reason_of(error: Exception) -> str:
    """Return the error that the owners of a source are shown."""
    if isinstance(error, WeftlineError):
        return error.message
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or type(error).__name__}"
    return (
        str(error)
        if isinstance(error, SourceStopped)
        else f"something went wrong inside Weftline: {type(error).__name__}"
    )


def _wait_seconds(source: KnowledgeSource, now: int) -> float:
    if source.watch or source.is_due(now) or source.due_at is None:
        return 0.0
    return (source.due_at - now) / _SECOND


def _batches(files: Sequence[SourceFile]) -> list[list[SourceFile]]:
    """Return files in batches, each for one transaction."""
    groups: list[list[SourceFile]] = []
    room = 0
    for file in files:
        if not groups or len(groups[-1]) == _BATCH_FILES or file.size > room:
            groups.append([])
            room = _BATCH_BYTES
        groups[-1].append(file)
        room -= file.size
    return groups
