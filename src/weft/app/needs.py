"""Finding what an operation asked for, by type.

This is the one untyped spot of the wiring; a test resolves every need of every operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from weft.app.known_sessions import SessionsOfCall, SessionsOfTenants
from weft.app.retrieval import FollowedEvents
from weft.capabilities.access.audit import AuditStore, Discretion
from weft.capabilities.access.operations import TokenLifetimes
from weft.capabilities.access.store import AccessStore, TokenCodec
from weft.capabilities.board.store import ConventionStore, EntryStore, ReadTally, TokenCounters
from weft.capabilities.context.model import ContextLimits
from weft.capabilities.context.store import ContextReads, SnapshotStore
from weft.capabilities.embedding.model import Embeddings
from weft.capabilities.embedding.store import TenantModelStore
from weft.capabilities.events.model import EventStore, Feed, PastEvents
from weft.capabilities.exchange.exporting import ExportDesk
from weft.capabilities.exchange.importing import ImportDesk
from weft.capabilities.exchange.policies import PolicyStore, TenantPolicies
from weft.capabilities.exchange.policy_port import Policies
from weft.capabilities.exchange.sources import Lookups
from weft.capabilities.history.store import LineStore, RetentionStore, SwitchStore
from weft.capabilities.knowledge.discretion import DomainDiscretion
from weft.capabilities.knowledge.plans import KnowledgeLimits
from weft.capabilities.knowledge.store import Desk, DocumentStore, DomainStore, PlanStore
from weft.capabilities.knowledge_sources.store import SourceDesk, SourceStore
from weft.capabilities.memory.model import MemoryLimits
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.messages.store import MessagePages, MessageStore
from weft.capabilities.missing.store import GapErrands
from weft.capabilities.models.store import MoveStore
from weft.capabilities.objects.staging import Staging
from weft.capabilities.objects.store import ObjectIndex
from weft.capabilities.performance.model import Measurements
from weft.capabilities.records.markup import MarkupReader
from weft.capabilities.records.store import RecordStore
from weft.capabilities.retrieval.library import KnownSessions, Lag
from weft.capabilities.retrieval.searching import Retriever
from weft.capabilities.search.choices import ChoiceDesk
from weft.capabilities.search.searching import Searcher
from weft.capabilities.sessions.store import SessionStore
from weft.capabilities.shelves.store import ShelfStore
from weft.capabilities.timeline.store import (
    Errands,
    Pruner,
    PruningLog,
    RetentionRules,
    ReviewStore,
    SnapshotIndex,
)
from weft.capabilities.usage.operations import Offers
from weft.capabilities.webhooks.store import Courier, WebhookStore
from weft.kernel.clock import Clock
from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.events import Outbox
from weft.kernel.identity import Actor
from weft.kernel.jobs import JobStore
from weft.kernel.turns import Turns
from weft.storage.sql.access import SqlAccessStore, SqlAuditStore
from weft.storage.sql.board import SqlConventionStore, SqlEntryStore
from weft.storage.sql.context import SqlSnapshotStore
from weft.storage.sql.embeddings import SqlTenantModelStore
from weft.storage.sql.events import SqlEventStore, SqlOutbox
from weft.storage.sql.history import SqlLineStore
from weft.storage.sql.jobs import SqlJobStore
from weft.storage.sql.knowledge import SqlDocumentStore, SqlDomainStore, SqlPlanStore
from weft.storage.sql.knowledge_sources import SqlSourceStore
from weft.storage.sql.memory import SqlMemoryStore
from weft.storage.sql.messages import SqlMessageStore
from weft.storage.sql.moves import SqlMoveStore
from weft.storage.sql.objects import SqlObjectIndex
from weft.storage.sql.policies import SqlPolicyStore
from weft.storage.sql.records import SqlRecordStore
from weft.storage.sql.retention import SqlPruningLog, SqlRetentionRules
from weft.storage.sql.reviews import SqlReviewStore, SqlSnapshotIndex
from weft.storage.sql.sessions import SqlSessionStore
from weft.storage.sql.shelves import SqlShelfStore
from weft.storage.sql.switches import SqlSwitchStore
from weft.storage.sql.webhooks import SqlWebhookStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.storage.sql.database import Transaction

    Source = Callable[["Call"], Any]


@dataclass(slots=True)
class Call:
    """What one call brings: who makes it, and the transaction it runs in.

    An operation that only waits has no transaction, and names no store among its needs.
    """

    actor: Actor | None
    _transaction: Transaction | None

    @property
    def during(self) -> Correlation:
        return UNRELATED if self.actor is None else self.actor.during

    @property
    def transaction(self) -> Transaction:
        if self._transaction is None:
            raise LookupError("an operation that waits asked for a store")
        return self._transaction


@dataclass(frozen=True, slots=True)
class Services:
    """What lives as long as the process does."""

    clock: Clock
    codec: TokenCodec
    lifetimes: TokenLifetimes
    counters: TokenCounters
    tally: ReadTally
    feed: Feed
    measurements: Measurements
    memory_limits: MemoryLimits
    knowledge_limits: KnowledgeLimits
    knowledge_desk: Desk
    context_limits: ContextLimits
    context_reads: ContextReads
    pages: MessagePages
    searcher: Searcher
    offers: Offers
    errands: Errands
    gap_errands: GapErrands
    choice_desk: ChoiceDesk
    lookups: Lookups
    markup: MarkupReader
    pruner: Pruner
    staging: Staging
    export_desk: ExportDesk
    import_desk: ImportDesk
    courier: Courier
    source_desk: SourceDesk
    embeddings: Embeddings
    retriever: Retriever
    known_sessions: SessionsOfTenants


class Resolver:
    """Prepares, once for each operation, how its needs are met."""

    def __init__(self, services: Services) -> None:
        self._sources: dict[type, Source] = {
            Actor: lambda call: call.actor,
            Clock: lambda _: services.clock,
            TokenCodec: lambda _: services.codec,
            TokenLifetimes: lambda _: services.lifetimes,
            TokenCounters: lambda _: services.counters,
            ReadTally: lambda _: services.tally,
            Feed: lambda _: services.feed,
            Measurements: lambda _: services.measurements,
            Outbox: lambda call: SqlOutbox(call.transaction, services.clock, call.during),
            AccessStore: lambda call: SqlAccessStore(call.transaction),
            AuditStore: lambda call: SqlAuditStore(call.transaction),
            SessionStore: lambda call: SqlSessionStore(call.transaction),
            LineStore: lambda call: SqlLineStore(call.transaction),
            SwitchStore: lambda call: SqlSwitchStore(call.transaction),
            EntryStore: lambda call: SqlEntryStore(call.transaction),
            ConventionStore: lambda call: SqlConventionStore(call.transaction),
            MemoryStore: lambda call: SqlMemoryStore(call.transaction),
            MemoryLimits: lambda _: services.memory_limits,
            DomainStore: lambda call: SqlDomainStore(call.transaction),
            DocumentStore: lambda call: SqlDocumentStore(call.transaction),
            PlanStore: lambda call: SqlPlanStore(call.transaction),
            KnowledgeLimits: lambda _: services.knowledge_limits,
            Desk: lambda _: services.knowledge_desk,
            SnapshotStore: lambda call: SqlSnapshotStore(call.transaction),
            ContextLimits: lambda _: services.context_limits,
            ContextReads: lambda _: services.context_reads,
            MessageStore: lambda call: SqlMessageStore(call.transaction),
            MessagePages: lambda _: services.pages,
            Searcher: lambda _: services.searcher,
            Retriever: lambda _: services.retriever,
            Lag: lambda call: FollowedEvents(call.transaction),
            KnownSessions: lambda call: SessionsOfCall(services.known_sessions, call.transaction),
            Offers: lambda _: services.offers,
            Errands: lambda _: services.errands,
            GapErrands: lambda _: services.gap_errands,
            ChoiceDesk: lambda _: services.choice_desk,
            Lookups: lambda _: services.lookups,
            MarkupReader: lambda _: services.markup,
            Pruner: lambda _: services.pruner,
            ReviewStore: lambda call: SqlReviewStore(call.transaction),
            SnapshotIndex: lambda call: SqlSnapshotIndex(call.transaction),
            RetentionStore: lambda call: SqlRetentionRules(call.transaction),
            RetentionRules: lambda call: SqlRetentionRules(call.transaction),
            PruningLog: lambda call: SqlPruningLog(call.transaction),
            EventStore: lambda call: SqlEventStore(call.transaction),
            Turns: lambda call: call.transaction,
            PastEvents: lambda call: SqlOutbox(call.transaction, services.clock),
            RecordStore: lambda call: SqlRecordStore(call.transaction),
            ObjectIndex: lambda call: SqlObjectIndex(call.transaction),
            Staging: lambda _: services.staging,
            ExportDesk: lambda _: services.export_desk,
            ImportDesk: lambda _: services.import_desk,
            Policies: lambda call: TenantPolicies(SqlPolicyStore(call.transaction)),
            PolicyStore: lambda call: SqlPolicyStore(call.transaction),
            ShelfStore: lambda call: SqlShelfStore(call.transaction),
            SourceStore: lambda call: SqlSourceStore(call.transaction),
            SourceDesk: lambda _: services.source_desk,
            WebhookStore: lambda call: SqlWebhookStore(call.transaction),
            Courier: lambda _: services.courier,
            Embeddings: lambda _: services.embeddings,
            TenantModelStore: lambda call: SqlTenantModelStore(call.transaction),
            JobStore: lambda call: SqlJobStore(call.transaction),
            MoveStore: lambda call: SqlMoveStore(call.transaction),
        }

        self._sources[Discretion] = self.source(DomainDiscretion)

    def prepare(self, needs: Iterable[type]) -> Callable[[Call], list[Any]]:
        """Return a function from a call to the arguments behind the request."""
        sources = [self.source(need) for need in needs]
        return lambda call: [source(call) for source in sources]

    def source(self, need: type) -> Source:
        """Return how a need is met."""
        found = self._sources.get(need)
        if found is not None:
            return found
        if not issubclass(need, msgspec.Struct):
            raise TypeError(f"nothing provides {need!r}")
        # A struct of needs is itself a need: it is built from its fields.
        parts = [self.source(part) for part in _parts_of(need)]
        return lambda call: need(*[part(call) for part in parts])


@cache
def _parts_of(need: type[msgspec.Struct]) -> tuple[type, ...]:
    """Return the types of a struct's fields, in order. Many needs share parts, and reading annotations takes long."""
    hints = get_type_hints(need)
    return tuple(hints[name] for name in need.__struct_fields__)
