"""Where a caller may look, and which part of that it asked for: decided before anything is searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.capabilities.indexing.collections.model import MEMORY, SESSIONS, Source, domain_collection
from weft.capabilities.knowledge.model import may_look_into
from weft.capabilities.memory.model import KeyRange, MemoryScope
from weft.capabilities.search.index_view import CollectionQuery, IncompleteItem
from weft.capabilities.search.items import MemoryKey
from weft.capabilities.sessions.model import find_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.capabilities.knowledge.model import Domain
    from weft.capabilities.search.stores import SearchStores

_EVERY_SOURCE: frozenset[Source] = frozenset({"document", "message", "board", "memory"})
_DOCUMENTS: frozenset[Source] = frozenset({"document"})
_IN_SESSIONS: frozenset[Source] = frozenset({"message", "board"})
_AT_ONCE = 500


class RequestedScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of everything is looked at: all of it, as far as nothing is said.

    Who names domains, metadata or types means documents, unless sources say otherwise. Who names a session means no
    other one; documents and what is remembered of no session stay. Moments are in microseconds, ``until`` not in.
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
        """Return the sources that are meant. Metadata and types only documents have."""
        if self.metadata or self.types:
            return _DOCUMENTS if self.sources is None else self.sources & _DOCUMENTS
        if self.sources is None:
            return _DOCUMENTS if self.domains else _EVERY_SOURCE
        return self.sources

    @property
    def in_sessions(self) -> frozenset[Source]:
        """Return the sources that are meant and that sessions have."""
        return self.wanted & _IN_SESSIONS

    def reaches(self, session_id: str | None) -> bool:
        """Tell whether what belongs to a session, or to none, is looked at."""
        return self.session_id is None or session_id in {None, self.session_id}


class VisibleScope(NamedTuple):
    """Queries of the collections a caller may read, and how many of their documents are not indexed yet."""

    wishes: list[CollectionQuery]
    pending_documents: int


async def resolve_scope(part: RequestedScope, library: SearchStores) -> VisibleScope:
    """Return what to look at: nothing that the caller may not look into.

    To whoever may not look into a domain or a session it does not exist.
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
    return domain if domain is not None and may_look_into(domain, library.actor) else None


async def _domains(part: RequestedScope, library: SearchStores) -> Sequence[Domain]:
    if part.domains:
        return [await library.domains.find(name) for name in dict.fromkeys(part.domains)]
    return await library.domains.admitting()


async def _of_domain(domain: Domain, part: RequestedScope, library: SearchStores) -> CollectionQuery:
    items = None
    if part.metadata or part.types:
        items = frozenset(await library.documents.matching(domain.domain, part.metadata, part.types))
    unfinished = frozenset(
        IncompleteItem(domain.domain, *each) for each in await library.documents.unfinished(domain.domain)
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
        # Anyone may pin what it says, which must not come with the searches of those who work on something else.
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
    """Return what the caller remembers of the session that is meant and of none; None if that is all there is."""
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
        page = await library.memories.page(scope, KeyRange.of("", after=found[-1] if found else ""), now, _AT_ONCE)
        found += [entry.key for entry in page]
        if len(page) < _AT_ONCE:
            return found
