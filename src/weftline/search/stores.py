"""Stores that a search reads, for one caller in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from weftline.indexing.collections.sql import CollectionStore
from weftline.indexing.embeddings.sql import TenantModelStore
from weftline.kernel.clock import Clock, to_micros
from weftline.kernel.events import Outbox
from weftline.kernel.identity import Actor
from weftline.knowledge.domains import Domains
from weftline.knowledge.sql import DocumentStore
from weftline.records.sql import RecordStore
from weftline.safety.trust.policy import TrustPolicies
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.recorder import Recorder
from weftline.sessions.store import SessionStore
from weftline.state.agent_context.service import Contexts
from weftline.state.board.store import EntryStore
from weftline.state.memory.sql import MemoryStore
from weftline.windows.service import Windows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from weftline.search.scope import RequestedScope

T = TypeVar("T")


class PendingEvents(NamedTuple):
    """Number of unindexed events in scope that the caller may see; ``own`` are those that it caused, in order.

    ``memories``: of each root of persistent memory with changes that are not indexed, the version before them.
    ``by_words``: the caller's last chunk that is found by words only so far, of each collection with one.
    """

    total: int
    own: tuple[int, ...] = ()
    memories: Mapping[str, int] = {}
    by_words: Mapping[str, int] = {}


class Lag(Protocol):
    """Lag of the index."""

    async def pending(self, actor: Actor, filters: RequestedScope, readable: Collection[str]) -> PendingEvents:
        """Return the unindexed events in scope that the caller may see; very many are not all counted.

        ``readable`` are the places of persistent memory that it may read.
        """
        ...


class IndexWait(Protocol):
    """Waits for the index, so that a search finds what its caller has just written."""

    async def until_indexed(self, actor: Actor, own: Sequence[int]) -> bool:
        """Wait for a short time until these events of the caller are indexed; False if they are not."""
        ...

    async def until_embedded(self, actor: Actor, chunks: Mapping[str, int], since: float) -> bool:
        """Wait for a short time since then until these chunks of the caller are found by meaning; False if not."""
        ...


class KnownSessions(Protocol):
    """Cached session ACLs, so that a search does not read every session."""

    async def admitting(self, actor: Actor) -> frozenset[str]:
        """Return the sessions that a caller may read."""
        ...


class SearchStores(msgspec.Struct, frozen=True):
    """Stores of a search by one caller."""

    actor: Actor
    clock: Clock
    collections: CollectionStore
    domains: Domains
    documents: DocumentStore
    sessions: SessionStore
    windows: Windows
    messages: MessageStore
    entries: EntryStore
    memories: MemoryStore
    contexts: Contexts
    records: RecordStore
    recorder: Recorder
    models: TenantModelStore
    lag: Lag
    known_sessions: KnownSessions
    outbox: Outbox
    policies: TrustPolicies

    @property
    def now(self) -> int:
        return to_micros(self.clock.now())
