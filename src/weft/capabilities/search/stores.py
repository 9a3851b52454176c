"""Everything that can be searched, opened for one caller in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from weft.capabilities.board.store import EntryStore
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.indexing.embeddings.store import TenantModelStore
from weft.capabilities.knowledge.domains import Domains
from weft.capabilities.knowledge.store import DocumentStore
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.messages.store import MessageStore
from weft.capabilities.records.recorder import Recorder
from weft.capabilities.records.store import RecordStore
from weft.capabilities.sessions.store import SessionStore
from weft.kernel.clock import Clock, to_micros
from weft.kernel.events import Outbox
from weft.kernel.identity import Actor

if TYPE_CHECKING:
    from weft.capabilities.search.scope import RequestedScope

T = TypeVar("T")


class Lag(Protocol):
    """How far what is searched is behind what was said."""

    async def events(self, actor: Actor, part: RequestedScope) -> int:
        """Return how many events were not looked at yet that a caller may be told of and this part has to do with.

        What they tell of may not be found. Of very many only the first are counted.
        """
        ...


class KnownSessions(Protocol):
    """Who may look into which session, known without reading all of them for every search."""

    async def admitting(self, actor: Actor) -> frozenset[str]:
        """Return the sessions that a caller takes part in."""
        ...


class SearchStores(msgspec.Struct, frozen=True):
    """What searching reads, gathered for the caller of one operation."""

    actor: Actor
    clock: Clock
    collections: CollectionStore
    domains: Domains
    documents: DocumentStore
    sessions: SessionStore
    messages: MessageStore
    entries: EntryStore
    memories: MemoryStore
    records: RecordStore
    recorder: Recorder
    models: TenantModelStore
    lag: Lag
    known_sessions: KnownSessions
    outbox: Outbox

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())
