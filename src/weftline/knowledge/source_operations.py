"""Operations on the sources of a domain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import structs

from weftline.kernel.clock import from_micros, optional_datetime
from weftline.kernel.errors import InvalidInput
from weftline.kernel.fields import new_id
from weftline.kernel.identity import ANYONE, Actor
from weftline.kernel.operation import Effect, Request, Response, shared_fields
from weftline.kernel.ports import Transactions
from weftline.knowledge.domains import Domains
from weftline.knowledge.model import DomainName, DomainNotFound, admin_operation, check_document_id
from weftline.knowledge.source_sync import SourceDocuments, SourceSync
from weftline.knowledge.sources import (
    FULL_SYNC_REQUESTED,
    MAX_SOURCES,
    MIN_INTERVAL_SECONDS,
    SYNC_REQUESTED,
    FolderRefused,
    Globs,
    KnowledgeSource,
    SourceControl,
    SourceId,
    SourceKind,
    SourceNotFound,
    SourcesOverlap,
    SyncCounts,
    TooManySources,
    check_prefix,
    document_id_of_url,
    names_overlap,
    new_token,
    token_digest,
)
from weftline.sessions.events.webhooks import AddressNotAllowed, Secret, Url, check_url, secret_of

# Operations on the sources of a domain.

# Documents of a removed source that are removed in one transaction.
_REMOVAL_BATCH = 25
_ONE_PLACE = "With the kind folder give folder, with the kind url give url, with the kind hook neither."
Include = Annotated[
    Globs, msgspec.Meta(min_length=1, description="Files to include, such as *.md or guides/*; default: all.")
]
Exclude = Annotated[Globs, msgspec.Meta(description="Files to exclude, such as drafts/*.")]
Every = Annotated[
    int, msgspec.Meta(ge=MIN_INTERVAL_SECONDS, le=31_536_000, description="Interval between syncs, in seconds.")
]
Watch = Annotated[bool, msgspec.Meta(description="Watch a folder for changes.")]
Prefix = Annotated[
    str,
    msgspec.Meta(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*\Z",
        description="Prefix of its document ids, such as handbook/. For a URL, the whole id.",
    ),
]


class AddSource(Request):
    """A new source of a domain: give folder, url, or neither for a hook."""

    domain: DomainName
    kind: Annotated[
        SourceKind,
        msgspec.Meta(
            description="folder: files of a folder on the server; url: the document at a URL; hook: documents in "
            "signed calls to the hook."
        ),
    ]
    folder: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=r"^[^\x00]+\Z")] | None,
        msgspec.Meta(description="Folder on the server, inside an allowed one."),
    ] = None
    url: Annotated[Url | None, msgspec.Meta(description="URL of the document: http or https, without credentials.")] = (
        None
    )
    prefix: Prefix = ""
    include: Include = ANYONE
    exclude: Exclude = ()
    every_seconds: Every | None = None
    watch: Watch = False
    secret: Annotated[Secret | None, msgspec.Meta(description="Secret that signs hook calls; default: generated.")] = (
        None
    )


class ListSources(Request):
    """A domain."""

    domain: DomainName


class UpdateSource(Request):
    """A source and the fields to change."""

    domain: DomainName
    source_id: SourceId
    enabled: Annotated[bool | None, msgspec.Meta(description="False disables it.")] = None
    include: Include | None = None
    exclude: Exclude | None = None
    every_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=31_536_000)] | None,
        msgspec.Meta(description=f"Interval between syncs, at least {MIN_INTERVAL_SECONDS} seconds; 0: none."),
    ] = None
    watch: Watch | None = None


class RemoveSource(Request):
    """A source to remove, with or without its documents."""

    domain: DomainName
    source_id: SourceId
    documents: Annotated[bool, msgspec.Meta(description="Also remove its documents.")] = False


class SyncSource(Request):
    """A source to sync."""

    domain: DomainName
    source_id: SourceId
    full: Annotated[bool, msgspec.Meta(description="Read unchanged files again.")] = False


class SourceInfo(Response, omit_defaults=False):
    """A source, without its secret. ``last_sync`` is the result of the last sync, ``error`` why it failed."""

    source_id: str
    domain: str
    kind: SourceKind
    location: str
    prefix: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    every_seconds: int | None
    watch: bool
    agent_id: str
    created_at: datetime
    enabled: bool
    error: str | None
    sync_requested: bool
    synced_at: datetime | None
    next_sync_at: datetime | None
    last_sync: SyncCounts


class SourceAdded(SourceInfo, omit_defaults=False):
    """A new source with the path of its hook and the secret for signing calls, which is only shown once."""

    on_record = ("source_id",)

    hook: str
    secret: str

    def __repr__(self) -> str:
        return f"SourceAdded(source_id={self.source_id!r})"


class SourceList(Response):
    """Sources, oldest first."""

    sources: list[SourceInfo]


class SourceRemoved(Response):
    """The removed source and the number of removed documents."""

    source_id: str
    documents: int


class SyncRequested(Response):
    """The sync is requested; list_sources shows its result."""

    source_id: str


class SourceRegistry(msgspec.Struct, frozen=True):
    """Sources of the domains that the caller can see."""

    sources: SourceSync
    domains: Domains

    async def find(self, domain: str, source_id: str, *, lock: bool = False) -> KnowledgeSource:
        """Return a source; ``lock`` locks its domain and then the source."""
        await (self.domains.lock(domain) if lock else self.domains.find(domain))
        store = self.sources.sources
        found = await (store.find_locked(source_id) if lock else store.find(source_id))
        if found is None or found.domain != domain:
            raise SourceNotFound(f"There is no source '{source_id}' in '{domain}'.", source_id=source_id)
        return found


async def _check_place(request: AddSource, actor: Actor, control: SourceControl) -> None:
    """Check the location before the transaction."""
    _check_kind(request)
    await control.check(actor, request.kind, _location_of(request))


@admin_operation(
    "knowledge.add_source",
    action="add_source",
    http="POST /v1/domains/{domain}/sources",
    status=201,
    off_record=("url", "secret"),
    errors=(DomainNotFound, TooManySources, SourcesOverlap, FolderRefused, AddressNotAllowed),
    prepare=_check_place,
)
async def add_source(request: AddSource, registry: SourceRegistry, control: SourceControl) -> SourceAdded:
    """Add a source to a domain: a folder, a URL or a hook, whose documents are kept in sync."""
    sources = registry.sources
    domain = await registry.domains.lock(request.domain)
    if await sources.sources.count() >= MAX_SOURCES:
        raise TooManySources(f"There are already {MAX_SOURCES} sources.")
    token = new_token()
    source = _made(request, sources, token)
    if any(names_overlap(source, each) for each in await sources.sources.of_domain(domain.domain)):
        raise SourcesOverlap("Another source of this domain could create the same document ids.", field="prefix")
    await sources.sources.add(source)
    await sources.publish("knowledge_source.added", source)
    control.wake()
    hook = f"/v1/knowledge/hooks/{sources.actor.tenant}/{source.source_id}/{token}"
    return SourceAdded(**structs.asdict(_info(source)), hook=hook, secret=source.secret)


@admin_operation(
    "knowledge.list_sources",
    action="list_sources",
    http="GET /v1/domains/{domain}/sources",
    effect=Effect.READ,
    audited=False,
    errors=(DomainNotFound,),
)
async def list_sources(request: ListSources, registry: SourceRegistry) -> SourceList:
    """List the sources of a domain, with the result of the last sync."""
    domain = await registry.domains.find(request.domain)
    found = await registry.sources.sources.of_domain(domain.domain)
    return SourceList(sources=[_info(source) for source in found])


@admin_operation(
    "knowledge.update_source",
    action="update_source",
    http="PATCH /v1/domains/{domain}/sources/{source_id}",
    errors=(DomainNotFound, SourceNotFound),
)
async def update_source(request: UpdateSource, registry: SourceRegistry, control: SourceControl) -> SourceInfo:
    """Change the schedule or the files of a source, or enable or disable it."""
    given = structs.asdict(request).items()
    changes = {name: value for name, value in given if value is not None and name not in {"domain", "source_id"}}
    if not changes:
        raise InvalidInput("Give at least one field to change.", field="enabled")
    before = await registry.find(request.domain, request.source_id, lock=True)
    after = _changed(before, changes, registry.sources.now)
    await registry.sources.sources.update(after)
    await registry.sources.publish("knowledge_source.updated", after, enabled=after.enabled)
    control.wake()
    return _info(after)


class DocumentRemoval(msgspec.Struct, frozen=True):
    """Removes the documents of a source in batches."""

    registry: SourceRegistry
    supply: SourceDocuments

    async def remove_batch(self, request: RemoveSource) -> tuple[int, bool]:
        """Remove some documents; return how many, and whether there may be more. No sync adds them again."""
        source = await self.registry.find(request.domain, request.source_id, lock=True)
        if source.enabled:
            await self.registry.sources.sources.update(structs.replace(source, enabled=False))
        return await self.supply.remove_some(source, _REMOVAL_BATCH)


async def remove_documents(request: RemoveSource, actor: Actor, transactions: Transactions[DocumentRemoval]) -> int:
    """Remove the documents of the source in bounded transactions, and count them.

    Repeating the call continues after a crash.
    """
    total, has_more = 0, request.documents
    while has_more:
        removed, has_more = await transactions.write(actor, lambda removal: removal.remove_batch(request))
        total += removed
    return total


@admin_operation(
    "knowledge.remove_source",
    action="remove_source",
    http="DELETE /v1/domains/{domain}/sources/{source_id}",
    destructive=True,
    prepare=remove_documents,
    errors=(DomainNotFound, SourceNotFound),
)
async def remove_source(request: RemoveSource, registry: SourceRegistry, *, removed: int) -> SourceRemoved:
    """Remove a source. Its documents stay, unless ``documents`` is set."""
    source = await registry.find(request.domain, request.source_id, lock=True)
    await registry.sources.sources.delete(source.source_id)
    await registry.sources.publish("knowledge_source.removed", source, documents=removed)
    return SourceRemoved(source_id=source.source_id, documents=removed)


@admin_operation(
    "knowledge.sync_source",
    action="sync_source",
    http="POST /v1/domains/{domain}/sources/{source_id}/sync",
    status=202,
    errors=(DomainNotFound, SourceNotFound),
    audited=False,
)
async def sync_source(request: SyncSource, registry: SourceRegistry, control: SourceControl) -> SyncRequested:
    """Sync a source now. Only changed files are read and indexed, unless ``full`` is set."""
    source = await registry.find(request.domain, request.source_id, lock=True)
    if source.kind == "hook":
        raise InvalidInput("source_id: a hook cannot be synced; it receives documents in calls.", field="source_id")
    if not source.enabled:
        raise InvalidInput("source_id: this source is disabled; enable it first.", field="source_id")
    requested = max(source.requested, FULL_SYNC_REQUESTED if request.full else SYNC_REQUESTED)
    await registry.sources.sources.update(structs.replace(source, requested=requested))
    control.wake()
    return SyncRequested(source_id=source.source_id)


def _check_kind(request: AddSource) -> None:
    """Reject parameters that do not fit the kind of source."""
    for field in ("folder", "url"):
        is_given, is_meant = getattr(request, field) is not None, request.kind == field
        if is_meant and not is_given:
            raise InvalidInput(f"{field}: required for the kind {field}.", hint=_ONE_PLACE, field=field)
        if is_given and not is_meant:
            raise InvalidInput(f"{field}: only allowed for the kind {field}.", hint=_ONE_PLACE, field=field)
    if request.url is not None:
        check_url(request.url)
    if request.watch and request.kind != "folder":
        raise InvalidInput("watch: only a folder can be watched; give every_seconds.", field="watch")
    if request.kind == "hook" and request.every_seconds is not None:
        raise InvalidInput("every_seconds: a hook has no schedule.", field="every_seconds")
    check_prefix(request.prefix)


def _made(request: AddSource, sources: SourceSync, token: str) -> KnowledgeSource:
    return KnowledgeSource(
        source_id=new_id("source"),
        **shared_fields(request, KnowledgeSource)
        | {"prefix": _prefix_of(request), "secret": secret_of(request.secret)},
        location=_location_of(request),
        token_digest=token_digest(token),
        principal_id=sources.actor.principal_id,
        created_at=sources.now,
        requested=0 if request.kind == "hook" else SYNC_REQUESTED,
    )


def _location_of(request: AddSource) -> str:
    return request.folder or request.url or ""


def _prefix_of(request: AddSource) -> str:
    """Return the prefix of document ids; for a URL, the id of its document."""
    if request.url is None:
        return request.prefix
    name = request.prefix or document_id_of_url(request.url)
    check_document_id(name)
    return name


def _check_changes(source: KnowledgeSource, changes: Mapping[str, object]) -> None:
    every = changes.get("every_seconds")
    if isinstance(every, int) and 0 < every < MIN_INTERVAL_SECONDS:
        raise InvalidInput(f"every_seconds: at least {MIN_INTERVAL_SECONDS}, or 0 for never.", field="every_seconds")
    if (changes.get("watch") and source.kind != "folder") or (every and source.kind == "hook"):
        raise InvalidInput(f"Not allowed for a source of the kind {source.kind}.", field="watch")


def _changed(source: KnowledgeSource, changes: Mapping[str, object], now: int) -> KnowledgeSource:
    _check_changes(source, changes)
    after = structs.replace(source, **changes)
    # 0 means never.
    after = structs.replace(after, every_seconds=after.every_seconds or None)
    if after.enabled and not source.enabled:
        after = structs.replace(after, error=None, requested=0 if source.kind == "hook" else SYNC_REQUESTED)
    if (after.include, after.exclude) != (source.include, source.exclude):
        after = structs.replace(after, validator="", requested=max(after.requested, SYNC_REQUESTED))
    return structs.replace(after, due_at=after.next_due(now) if "every_seconds" in changes else after.due_at)


def _info(source: KnowledgeSource) -> SourceInfo:
    shown = {
        "location": source.shown_location,
        "created_at": from_micros(source.created_at),
        "synced_at": optional_datetime(source.synced_at),
    }
    return SourceInfo(
        **shared_fields(source, SourceInfo) | shown,
        agent_id=source.principal_id,
        sync_requested=bool(source.requested),
        next_sync_at=optional_datetime(source.due_at),
    )
