"""Search scope: which collections and items a caller may search, resolved before the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weftline.indexing.collections import (
    MEMORY,
    SESSIONS,
    SOURCES,
    WINDOWS,
    MemoryKey,
    Source,
    domain_collection,
    item_of_key,
)
from weftline.indexing.entities import filter_term
from weftline.kernel.errors import PermissionDenied
from weftline.knowledge.model import can_see
from weftline.search.items import own_places
from weftline.search.model import CollectionQuery, IncompleteItem
from weftline.search.persistent_memory import item_of_entry, readable_places
from weftline.sessions.model import find_session
from weftline.state.agent_context.memory_version import MemoryVersion
from weftline.state.agent_context.model import ContextLine, unknown_owner
from weftline.state.agent_context.sql import PinnedContext
from weftline.state.memory.model import KeyRange, MemoryScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.identity import Actor
    from weftline.knowledge.model import Domain
    from weftline.search.persistent_memory import SearchStores
    from weftline.search.pulled_memory import PulledMemory

_ALL_SOURCES: frozenset[Source] = frozenset(SOURCES)
_DOCUMENTS: frozenset[Source] = frozenset(name for name, kind in SOURCES.items() if kind.collection is None)
_IN_SESSIONS: frozenset[Source] = frozenset(name for name, kind in SOURCES.items() if kind.collection == SESSIONS)
_PAGE_SIZE = 500


class RequestedScope(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of a search; without filters, everything readable.

    ``domains``, ``metadata`` or ``types`` without ``sources`` restrict the search to documents. ``session_id`` excludes
    other sessions but neither documents nor global memory. ``window`` is the place of the window to search, by default
    the caller's own windows; it must be one that the caller may open. ``entities``: only chunks that mention all of
    them, each given by its value or as TYPE:VALUE. Times are in microseconds, ``until`` exclusive. ``waits_for`` are
    the sources whose newest items of the caller should be found. ``asked``: numbers of events of the window that ask
    the query, so that they are not searched for its answer. ``held`` is the snapshot of the session, if the caller has
    read it. ``prefix`` restricts the search to keys of memory and of the session's board, ``owner`` to memory.
    """

    domains: tuple[str, ...] = ()
    session_id: str | None = None
    window: str | None = None
    asked: frozenset[int] = frozenset()
    sources: frozenset[Source] | None = None
    metadata: dict[str, Any] = {}
    types: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    prefix: str = ""
    owner: str | None = None
    since: int | None = None
    until: int | None = None
    waits_for: frozenset[Source] = _ALL_SOURCES
    held: PinnedContext | None = None

    @property
    def searched_sources(self) -> frozenset[Source]:
        """Return the sources to search. Only documents have metadata and types, only memory and boards keys."""
        chosen = _ALL_SOURCES if self.sources is None else self.sources
        if self.metadata or self.types or (self.domains and self.sources is None):
            chosen &= _DOCUMENTS
        if self.owner is not None:
            chosen &= {"memory"}
        if self.prefix:
            chosen &= {"memory"} if self.session_id is None else {"memory", "board"}
        return chosen

    @property
    def in_sessions(self) -> frozenset[Source]:
        """Return the sources to search within sessions."""
        return self.searched_sources & _IN_SESSIONS

    def includes_key(self, place: str, key: str) -> bool:
        """Tell whether an entry of a persistent memory is in scope."""
        is_owner = self.owner is None or place == ContextLine(self.owner, None, None).line_id
        return is_owner and key.startswith(self.prefix)

    def includes_session(self, session_id: str | None) -> bool:
        """Tell whether items of this session (None: of no session) are in scope."""
        return self.session_id is None or session_id in {None, self.session_id}


class VisibleScope(NamedTuple):
    """Queries of the collections a caller may read, and how many of their documents are not indexed yet."""

    queries: list[CollectionQuery]
    pending_documents: int


async def resolve_scope(
    filters: RequestedScope, stores: SearchStores, pulled: PulledMemory | None = None
) -> VisibleScope:
    """Resolve filters to the collections and items that the caller may read, with the memory that a session has.

    Domains and sessions without access are reported as not found.
    """
    sources, pending = filters.searched_sources, 0
    domains = await _domains(filters, stores)
    if filters.session_id is not None:
        await find_session(filters.session_id, stores.actor, stores.sessions)
    queries = []
    if "document" in sources:
        queries += [await _domain_query(domain, filters, stores) for domain in domains]
        pending = sum([(await stores.documents.backlog(domain.domain)).pending for domain in domains])
    if filters.in_sessions and _has_sessions(filters, stores.actor):
        queries.append(await _sessions_query(filters, stores))
    if "memory" in sources:
        queries += await _memory_queries(filters, stores, pulled)
    if "event" in sources:
        queries += await _window_queries(filters, stores)
    entities = frozenset(map(filter_term, filters.entities))
    return VisibleScope([query._replace(entities=entities) for query in queries], pending)


async def visible_domain(name: str, stores: SearchStores) -> Domain | None:
    domain = await stores.domains.domains.find(name)
    return domain if domain is not None and can_see(domain, stores.actor) else None


async def _domains(filters: RequestedScope, stores: SearchStores) -> Sequence[Domain]:
    if filters.domains:
        return [await stores.domains.find(name) for name in dict.fromkeys(filters.domains)]
    return await stores.domains.visible()


async def _domain_query(domain: Domain, filters: RequestedScope, stores: SearchStores) -> CollectionQuery:
    items = None
    if filters.metadata or filters.types:
        items = frozenset(await stores.documents.matching(domain.domain, filters.metadata, filters.types))
    unfinished = frozenset(
        IncompleteItem(domain.domain, *each) for each in await stores.documents.incomplete(domain.domain)
    )
    collection = domain_collection(domain.domain)
    return CollectionQuery(collection, items=items, since=filters.since, until=filters.until, unfinished=unfinished)


async def _sessions_query(filters: RequestedScope, stores: SearchStores) -> CollectionQuery:
    return CollectionQuery(
        SESSIONS,
        places=await _sessions(filters, stores),
        items=await _board_items(filters, stores),
        sources=frozenset(filters.in_sessions),
        since=filters.since,
        until=filters.until,
        # Pins of other sessions must not appear: any sender can pin its messages.
        pins=filters.session_id is not None,
    )


async def _board_items(filters: RequestedScope, stores: SearchStores) -> frozenset[str] | None:
    if not filters.prefix or filters.session_id is None:
        return None
    keys = (entry.key for entry in await stores.entries.list(filters.session_id))
    return frozenset(item_of_key(key) for key in keys if key.startswith(filters.prefix))


def _has_sessions(filters: RequestedScope, actor: Actor) -> bool:
    """Tell whether sessions are searched: a sub-agent is a member of all of its orchestrator, and names the one.

    Raises PermissionDenied if nothing else would be searched.
    """
    if filters.session_id is not None or actor.bound_session is not None or not actor.is_subagent:
        return True
    if filters.sources is not None and filters.sources <= _IN_SESSIONS:
        raise PermissionDenied(
            "A sub-agent can search only the session it works in.", hint="Pass the session_id you were given."
        )
    return False


async def _sessions(filters: RequestedScope, stores: SearchStores) -> frozenset[str] | None:
    if filters.session_id is not None:
        return frozenset({filters.session_id})
    if stores.actor.bound_session is not None:
        return frozenset({stores.actor.bound_session})
    if stores.actor.is_admin:
        return None
    return await stores.known_sessions.admitting(stores.actor)


async def _window_queries(filters: RequestedScope, stores: SearchStores) -> list[CollectionQuery]:
    """Return the query of the caller's windows; none if there are no windows."""
    places = await own_places(filters.session_id, stores) if filters.window is None else frozenset({filters.window})
    if not places:
        return []
    # As with messages, pins count in searches of one session.
    pins = filters.session_id is not None
    query = CollectionQuery(WINDOWS, places=places, since=filters.since, until=filters.until, pins=pins)
    return [query._replace(without=await _asked(filters, stores))]


async def _asked(filters: RequestedScope, stores: SearchStores) -> frozenset[int]:
    """Return the chunks of the events that ask the query."""
    if filters.window is None or not filters.asked:
        return frozenset()
    chunks = [await stores.collections.of_item(WINDOWS, filters.window, str(number)) for number in filters.asked]
    return frozenset(chunk.number for found in chunks for chunk in found)


async def _memory_queries(
    filters: RequestedScope, stores: SearchStores, pulled: PulledMemory | None
) -> list[CollectionQuery]:
    """Return the queries of the caller's private memory and of the persistent memory that it may read."""
    own, persistent = frozenset({stores.actor.principal_id}), readable_places(stores.actor)
    if filters.owner is not None:
        own = own & {filters.owner}
        persistent = persistent & {ContextLine(filters.owner, None, None).line_id}
        if not persistent:
            raise unknown_owner(filters.owner, stores.actor)
    items = None if filters.session_id is None and not filters.prefix else await _memory_items(filters, stores)
    replaced = frozenset[int]()
    if pulled is not None:
        persistent, replaced = persistent - pulled.missing, pulled.replaced
    query = CollectionQuery(MEMORY, places=own | persistent, since=filters.since, until=filters.until, without=replaced)
    if items is None:
        return [query]
    # Persistent memory belongs to no session.
    entries = await _persistent_items(persistent, filters.prefix, stores) if filters.prefix else None
    return [query._replace(places=own, items=items), query._replace(places=persistent, items=entries)]


async def _memory_items(filters: RequestedScope, stores: SearchStores) -> frozenset[str] | None:
    """Return the keys of the caller's memory that are in scope; None if there are no others."""
    owner, now = stores.actor.principal_id, stores.now
    scopes = [size.session_id for size in await stores.memories.sizes(owner, now)]
    if not filters.prefix and all(filters.includes_session(session_id) for session_id in scopes):
        return None
    items = []
    for session_id in filter(filters.includes_session, scopes):
        keys = await _keys(MemoryScope(owner, session_id), filters.prefix, now, stores)
        items += [str(MemoryKey(session_id, key)) for key in keys]
    return frozenset(items)


async def _persistent_items(places: frozenset[str], prefix: str, stores: SearchStores) -> frozenset[str]:
    """Return the entries of persistent memories whose keys have a prefix."""
    items: list[str] = []
    for place in sorted(places):
        memory = await MemoryVersion.find(stores.contexts, place, stores.actor.principal_id)
        entries = [] if memory is None else await memory.all_entries()
        items += [item_of_entry(entry.place) for entry in entries if entry.place.key.startswith(prefix)]
    return frozenset(items)


async def _keys(scope: MemoryScope, prefix: str, now: int, stores: SearchStores) -> list[str]:
    items: list[str] = []
    while True:
        page = await stores.memories.page(scope, KeyRange.of(prefix, after=items[-1] if items else ""), now, _PAGE_SIZE)
        items += [entry.key for entry in page]
        if len(page) < _PAGE_SIZE:
            return items
