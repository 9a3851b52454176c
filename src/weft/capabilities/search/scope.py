"""Search scope: which collections and items a caller may search, resolved before the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.capabilities.indexing.collections.model import MEMORY, SESSIONS, SOURCES, Source, domain_collection
from weft.capabilities.knowledge.model import can_see
from weft.capabilities.memory.model import KeyRange, MemoryScope
from weft.capabilities.search.index_view import CollectionQuery, IncompleteItem
from weft.capabilities.search.items import MemoryKey
from weft.capabilities.sessions.model import find_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.knowledge.model import Domain
    from weft.capabilities.search.stores import SearchStores

_ALL_SOURCES: frozenset[Source] = frozenset(SOURCES)
_DOCUMENTS: frozenset[Source] = frozenset(name for name, kind in SOURCES.items() if kind.collection is None)
_IN_SESSIONS: frozenset[Source] = frozenset(name for name, kind in SOURCES.items() if kind.collection == SESSIONS)
_PAGE_SIZE = 500


class RequestedScope(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a search; without filters, everything readable.

    ``domains``, ``metadata`` or ``types`` without ``sources`` restrict the search to documents. ``session_id`` excludes
    other sessions but neither documents nor global memory. Times are in microseconds, ``until`` exclusive.
    """

    domains: tuple[str, ...] = ()
    session_id: str | None = None
    sources: frozenset[Source] | None = None
    metadata: dict[str, Any] = {}
    types: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None

    @property
    def wanted(self) -> frozenset[Source]:
        """Return the sources to search. Only documents have metadata and types."""
        if self.metadata or self.types:
            return _DOCUMENTS if self.sources is None else self.sources & _DOCUMENTS
        if self.sources is None:
            return _DOCUMENTS if self.domains else _ALL_SOURCES
        return self.sources

    @property
    def in_sessions(self) -> frozenset[Source]:
        """Return the sources to search within sessions."""
        return self.wanted & _IN_SESSIONS

    def reaches(self, session_id: str | None) -> bool:
        """Tell whether items of this session (None: of no session) are in scope."""
        return self.session_id is None or session_id in {None, self.session_id}


class VisibleScope(NamedTuple):
    """Queries of the collections a caller may read, and how many of their documents are not indexed yet."""

    wishes: list[CollectionQuery]
    pending_documents: int


async def resolve_scope(part: RequestedScope, library: SearchStores) -> VisibleScope:
    """Resolve filters to the collections and items that the caller may read.

    Domains and sessions without access are reported as not found.
    """
    wanted, pending = part.wanted, 0
    domains = await _domains(part, library)
    if part.session_id is not None:
        await find_session(part.session_id, library.actor, library.sessions)
    wishes = []
    if "document" in wanted:
        wishes += [await _of_domain(domain, part, library) for domain in domains]
        pending = sum([(await library.documents.backlog(domain.domain)).pending for domain in domains])
    if part.in_sessions:
        wishes.append(await _of_sessions(part, library))
    if "memory" in wanted:
        wishes.append(await _of_memory(part, library))
    return VisibleScope(wishes, pending)


async def visible_domain(name: str, library: SearchStores) -> Domain | None:
    domain = await library.domains.domains.find(name)
    return domain if domain is not None and can_see(domain, library.actor) else None


async def _domains(part: RequestedScope, library: SearchStores) -> Sequence[Domain]:
    if part.domains:
        return [await library.domains.find(name) for name in dict.fromkeys(part.domains)]
    return await library.domains.visible()


async def _of_domain(domain: Domain, part: RequestedScope, library: SearchStores) -> CollectionQuery:
    items = None
    if part.metadata or part.types:
        items = frozenset(await library.documents.matching(domain.domain, part.metadata, part.types))
    unfinished = frozenset(
        IncompleteItem(domain.domain, *each) for each in await library.documents.incomplete(domain.domain)
    )
    collection = domain_collection(domain.domain)
    return CollectionQuery(collection, items=items, since=part.since, until=part.until, unfinished=unfinished)


async def _of_sessions(part: RequestedScope, library: SearchStores) -> CollectionQuery:
    return CollectionQuery(
        SESSIONS,
        places=await _sessions(part, library),
        sources=frozenset(part.in_sessions),
        since=part.since,
        until=part.until,
        # Pins of other sessions must not appear: any sender can pin its messages.
        pins=part.session_id is not None,
    )


async def _sessions(part: RequestedScope, library: SearchStores) -> frozenset[str] | None:
    if part.session_id is not None:
        return frozenset({part.session_id})
    if library.actor.is_admin:
        return None
    return await library.known_sessions.admitting(library.actor)


async def _of_memory(part: RequestedScope, library: SearchStores) -> CollectionQuery:
    own = frozenset({library.actor.principal_id})
    items = None if part.session_id is None else await _memories_within(part, library)
    return CollectionQuery(MEMORY, places=own, items=items, since=part.since, until=part.until)


async def _memories_within(part: RequestedScope, library: SearchStores) -> frozenset[str] | None:
    """Return the caller's memory keys of the session and the global ones; None if there are no others."""
    owner, now = library.actor.principal_id, library.now
    scopes = [size.session_id for size in await library.memories.sizes(owner, now)]
    if all(part.reaches(session_id) for session_id in scopes):
        return None
    found = []
    for session_id in filter(part.reaches, scopes):
        keys = await _keys(MemoryScope(owner, session_id), now, library)
        found += [str(MemoryKey(session_id, key)) for key in keys]
    return frozenset(found)


async def _keys(scope: MemoryScope, now: int, library: SearchStores) -> list[str]:
    found: list[str] = []
    while True:
        page = await library.memories.page(scope, KeyRange.of("", after=found[-1] if found else ""), now, _PAGE_SIZE)
        found += [entry.key for entry in page]
        if len(page) < _PAGE_SIZE:
            return found
