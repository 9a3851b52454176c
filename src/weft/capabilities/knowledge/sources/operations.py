"""What callers can ask of the sources of a domain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import structs

from weft.capabilities.events.webhooks.model import AddressNotAllowed, Secret, Url, check_url, secret_of
from weft.capabilities.knowledge.domains import Domains
from weft.capabilities.knowledge.model import DomainName, DomainNotFound, check_document_id
from weft.capabilities.knowledge.sources.model import (
    ASKED,
    ASKED_ANEW,
    LEAST_SECONDS,
    MOST_SOURCES,
    FolderRefused,
    Globs,
    Kind,
    Source,
    SourceId,
    SourceNotFound,
    SourcesOverlap,
    Synced,
    TooManySources,
    check_prefix,
    could_name_alike,
    document_of_url,
    new_token,
    token_digest,
)
from weft.capabilities.knowledge.sources.store import SourceDesk
from weft.capabilities.knowledge.sources.sync import SourceSync, Supply
from weft.kernel.clock import from_micros, optional_datetime
from weft.kernel.errors import InvalidInput
from weft.kernel.identity import ANYONE, Actor, Permission
from weft.kernel.ids import new_id
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

_ONE_PLACE = "With the kind folder give folder, with the kind url give url, with the kind hook neither."
Include = Annotated[
    Globs, msgspec.Meta(min_length=1, description="Files to take, such as *.md or guides/*; all if left out.")
]
Exclude = Annotated[Globs, msgspec.Meta(description="Files to leave out, such as drafts/*.")]
Every = Annotated[
    int, msgspec.Meta(ge=LEAST_SECONDS, le=31_536_000, description="Look at it again after so many seconds.")
]
Watch = Annotated[bool, msgspec.Meta(description="Of a folder: look at it every few seconds.")]
Prefix = Annotated[
    str,
    msgspec.Meta(
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f]*\Z",
        description="What the names of its documents begin with, such as handbook/. For an address, the whole name.",
    ),
]


class AddSource(Request):
    """A domain, and where documents of it come from: one of folder and url, or neither for a hook."""

    domain: DomainName
    kind: Annotated[
        Kind,
        msgspec.Meta(
            description="folder: files of a folder on the server; url: what one address gives; hook: what signed calls "
            "to the hook bring."
        ),
    ]
    folder: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=1_000, pattern=r"^[^\x00]+\Z")] | None,
        msgspec.Meta(description="A folder inside one of those that Weft may read."),
    ] = None
    url: Annotated[
        Url | None, msgspec.Meta(description="What gives the document: http or https, without credentials in it.")
    ] = None
    prefix: Prefix = ""
    include: Include = ANYONE
    exclude: Exclude = ()
    every_seconds: Every | None = None
    watch: Watch = False
    secret: Annotated[
        Secret | None, msgspec.Meta(description="What calls to the hook are signed with. One is made if left out.")
    ] = None


class ListSources(Request):
    """Whose sources to list."""

    domain: DomainName


class UpdateSource(Request):
    """A source, and what shall be different."""

    domain: DomainName
    source_id: SourceId
    enabled: Annotated[bool | None, msgspec.Meta(description="True goes on with it; false stops it.")] = None
    include: Include | None = None
    exclude: Exclude | None = None
    every_seconds: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=31_536_000)] | None,
        msgspec.Meta(description=f"Look at it again after so many seconds, at least {LEAST_SECONDS}; 0 for never."),
    ] = None
    watch: Watch | None = None


class RemoveSource(Request):
    """Which source to remove, and what becomes of its documents."""

    domain: DomainName
    source_id: SourceId
    documents: Annotated[
        bool, msgspec.Meta(description="True removes the documents that came from it as well; else they stay.")
    ] = False


class SyncSource(Request):
    """Which source to look at now."""

    domain: DomainName
    source_id: SourceId
    anew: Annotated[bool, msgspec.Meta(description="Read everything again, also what seems unchanged.")] = False


class SourceInfo(Response, omit_defaults=False):
    """A source; its secret is not told. ``last`` is what the last look at it changed, ``error`` why it failed if so."""

    source_id: str
    domain: str
    kind: Kind
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
    asked: bool
    synced_at: datetime | None
    next_at: datetime | None
    last: Synced


class SourceAdded(SourceInfo, omit_defaults=False):
    """A new source with the path of its hook and the secret that calls to it are signed with: shown this once."""

    on_record = ("source_id",)

    hook: str
    secret: str

    def __repr__(self) -> str:
        return f"SourceAdded(source_id={self.source_id!r})"


class SourceList(Response):
    """Sources, oldest first."""

    sources: list[SourceInfo]


class SourceRemoved(Response):
    """The source is gone, and with it so many documents."""

    source_id: str
    documents: int


class SourceAsked(Response):
    """The source is looked at as soon as can be; list_sources shows how that went."""

    source_id: str


class SourceRegistry(msgspec.Struct, frozen=True):
    """The sources of domains that the caller may look into."""

    sources: SourceSync
    domains: Domains

    async def find(self, domain: str, source_id: str, *, lock: bool = False) -> Source:
        """Return a source; ``lock`` its domain and then the source, for whoever changes it."""
        await (self.domains.lock(domain) if lock else self.domains.find(domain))
        store = self.sources.sources
        found = await (store.find_locked(source_id) if lock else store.find(source_id))
        if found is None or found.domain != domain:
            raise SourceNotFound(f"There is no source '{source_id}' in '{domain}'.", source_id=source_id)
        return found


async def _check_place(request: AddSource, actor: Actor, desk: SourceDesk) -> None:
    """Refuse what could not be read, before a transaction waits for it."""
    _check_terms(request)
    await desk.check(actor, request.kind, _location_of(request))


@operation(
    "knowledge.add_source",
    tool="knowledge",
    action="add_source",
    http="POST /v1/domains/{domain}/sources",
    status=201,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    off_record=("url", "secret"),
    errors=(DomainNotFound, TooManySources, SourcesOverlap, FolderRefused, AddressNotAllowed),
    prepare=_check_place,
)
async def add_source(request: AddSource, registered: SourceRegistry, desk: SourceDesk) -> SourceAdded:
    """Have a domain take its documents from a folder, an address or signed calls, and keep up with them."""
    sources = registered.sources
    domain = await registered.domains.lock(request.domain)
    if await sources.sources.count() >= MOST_SOURCES:
        raise TooManySources(f"There are {MOST_SOURCES} sources already.")
    token = new_token()
    source = _made(request, sources, token)
    if any(could_name_alike(source, each) for each in await sources.sources.of_domain(domain.domain)):
        raise SourcesOverlap("Another source of this domain could name its documents like this.", field="prefix")
    await sources.sources.add(source)
    await sources.tell("knowledge_source.added", source)
    desk.wake()
    hook = f"/v1/knowledge/hooks/{sources.actor.tenant}/{source.source_id}/{token}"
    return SourceAdded(**structs.asdict(_info(source)), hook=hook, secret=source.secret)


@operation(
    "knowledge.list_sources",
    tool="knowledge",
    action="list_sources",
    http="GET /v1/domains/{domain}/sources",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
    errors=(DomainNotFound,),
)
async def list_sources(request: ListSources, registered: SourceRegistry) -> SourceList:
    """List where a domain takes its documents from, with how the last look at each went."""
    domain = await registered.domains.find(request.domain)
    found = await registered.sources.sources.of_domain(domain.domain)
    return SourceList(sources=[_info(source) for source in found])


@operation(
    "knowledge.update_source",
    tool="knowledge",
    action="update_source",
    http="PATCH /v1/domains/{domain}/sources/{source_id}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(DomainNotFound, SourceNotFound),
)
async def update_source(request: UpdateSource, registered: SourceRegistry, desk: SourceDesk) -> SourceInfo:
    """Change when a source is looked at, which files are taken from it, or whether it is at all."""
    given = structs.asdict(request).items()
    changes = {name: value for name, value in given if value is not None and name not in {"domain", "source_id"}}
    if not changes:
        raise InvalidInput("Say what shall be different.", field="enabled")
    before = await registered.find(request.domain, request.source_id, lock=True)
    after = _changed(before, changes, registered.sources.now)
    await registered.sources.sources.update(after)
    await registered.sources.tell("knowledge_source.updated", after, enabled=after.enabled)
    desk.wake()
    return _info(after)


@operation(
    "knowledge.remove_source",
    tool="knowledge",
    action="remove_source",
    http="DELETE /v1/domains/{domain}/sources/{source_id}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(DomainNotFound, SourceNotFound),
)
async def remove_source(request: RemoveSource, registered: SourceRegistry, supply: Supply) -> SourceRemoved:
    """Stop taking documents from a source; those that came from it stay, unless you say otherwise."""
    source = await registered.find(request.domain, request.source_id, lock=True)
    removed = 0
    if request.documents:
        removed = await supply.remove_all(source)
    await registered.sources.sources.delete(source.source_id)
    await registered.sources.tell("knowledge_source.removed", source, documents=removed)
    return SourceRemoved(source_id=source.source_id, documents=removed)


@operation(
    "knowledge.sync_source",
    tool="knowledge",
    action="sync_source",
    http="POST /v1/domains/{domain}/sources/{source_id}/sync",
    status=202,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    errors=(DomainNotFound, SourceNotFound),
)
async def sync_source(request: SyncSource, registered: SourceRegistry, desk: SourceDesk) -> SourceAsked:
    """Have a source looked at now, whatever its schedule says: only what has changed is read and indexed again."""
    source = await registered.find(request.domain, request.source_id, lock=True)
    if source.kind == "hook":
        raise InvalidInput("source_id: documents of a hook come when it is called.", field="source_id")
    if not source.enabled:
        raise InvalidInput("source_id: this source is stopped; enable it first.", field="source_id")
    asked = max(source.asked, ASKED_ANEW if request.anew else ASKED)
    await registered.sources.sources.update(structs.replace(source, asked=asked))
    desk.wake()
    return SourceAsked(source_id=source.source_id)


def _check_terms(request: AddSource) -> None:
    """Refuse what does not go with the kind of source."""
    for field in ("folder", "url"):
        is_given, is_meant = getattr(request, field) is not None, request.kind == field
        if is_meant and not is_given:
            raise InvalidInput(f"{field}: give {field}: where the documents are.", hint=_ONE_PLACE, field=field)
        if is_given and not is_meant:
            raise InvalidInput(f"{field}: goes only with the kind {field}.", hint=_ONE_PLACE, field=field)
    if request.url is not None:
        check_url(request.url)
    if request.watch and request.kind != "folder":
        raise InvalidInput("watch: only a folder can be watched; give every_seconds.", field="watch")
    if request.kind == "hook" and request.every_seconds is not None:
        raise InvalidInput("every_seconds: documents of a hook come when it is called.", field="every_seconds")
    check_prefix(request.prefix)


def _made(request: AddSource, sources: SourceSync, token: str) -> Source:
    return Source(
        source_id=new_id("source"),
        domain=request.domain,
        kind=request.kind,
        location=_location_of(request),
        prefix=_prefix_of(request),
        include=request.include,
        exclude=request.exclude,
        every_seconds=request.every_seconds,
        watch=request.watch,
        secret=secret_of(request.secret),
        token_digest=token_digest(token),
        principal_id=sources.actor.principal_id,
        created_at=sources.now,
        asked=0 if request.kind == "hook" else ASKED,
    )


def _location_of(request: AddSource) -> str:
    return request.folder or request.url or ""


def _prefix_of(request: AddSource) -> str:
    """Return what names of documents begin with; of an address, what its one document is called."""
    if request.url is None:
        return request.prefix
    name = request.prefix or document_of_url(request.url)
    check_document_id(name)
    return name


def _check_changes(source: Source, changes: Mapping[str, object]) -> None:
    every = changes.get("every_seconds")
    if isinstance(every, int) and 0 < every < LEAST_SECONDS:
        raise InvalidInput(f"every_seconds: at least {LEAST_SECONDS}, or 0 for never.", field="every_seconds")
    if (changes.get("watch") and source.kind != "folder") or (every and source.kind == "hook"):
        raise InvalidInput(f"A source of the kind {source.kind} is not looked at like this.", field="watch")


def _changed(source: Source, changes: Mapping[str, object], now: int) -> Source:
    _check_changes(source, changes)
    after = structs.replace(source, **changes)
    # 0 stands for never.
    after = structs.replace(after, every_seconds=after.every_seconds or None)
    if after.enabled and not source.enabled:
        after = structs.replace(after, error=None, asked=0 if source.kind == "hook" else ASKED)
    if (after.include, after.exclude) != (source.include, source.exclude):
        after = structs.replace(after, seen="", asked=max(after.asked, ASKED))
    return structs.replace(after, due_at=after.next_due(now) if "every_seconds" in changes else after.due_at)


def _info(source: Source) -> SourceInfo:
    return SourceInfo(
        source_id=source.source_id,
        domain=source.domain,
        kind=source.kind,
        location=source.shown_location,
        prefix=source.prefix,
        include=source.include,
        exclude=source.exclude,
        every_seconds=source.every_seconds,
        watch=source.watch,
        agent_id=source.principal_id,
        created_at=from_micros(source.created_at),
        enabled=source.enabled,
        error=source.error,
        asked=bool(source.asked),
        synced_at=optional_datetime(source.synced_at),
        next_at=optional_datetime(source.due_at),
        last=source.done,
    )
