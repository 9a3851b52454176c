"""Finding what an operation asked for, by type.

This is the one untyped spot of the wiring; a test resolves every need of every operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from weft.app.search.service import FollowedEvents
from weft.app.session_acl_cache import SessionsOfCall, SessionsOfTenants
from weft.capabilities.access.audit import AuditFilter, AuditStore
from weft.capabilities.access.operations import TokenLifetimes
from weft.capabilities.access.store import AccessStore, TokenCodec
from weft.capabilities.agent_context.model import ContextLimits
from weft.capabilities.agent_context.store import ContextReads, SnapshotStore
from weft.capabilities.board.store import ConventionStore, EntryObserver, EntryStore, ReadTally, TokenCounters
from weft.capabilities.events.model import EventStore, Feed, PastEvents
from weft.capabilities.events.webhooks.store import WebhookSender, WebhookStore
from weft.capabilities.guidance.operations import Offers
from weft.capabilities.history.operation_ports import (
    HistoryTransactions,
    Pruner,
    PruningLog,
    RetentionRules,
    ReviewStore,
    SnapshotIndex,
)
from weft.capabilities.history.store import LineStore, RetentionStore, SwitchStore
from weft.capabilities.indexing.collections.store import ShelfStore
from weft.capabilities.indexing.embeddings.model import Embeddings
from weft.capabilities.indexing.embeddings.store import TenantModelStore
from weft.capabilities.indexing.model_migration.store import MoveStore
from weft.capabilities.knowledge.audit_filter import DomainAuditFilter
from weft.capabilities.knowledge.quotas import KnowledgeLimits
from weft.capabilities.knowledge.sources.store import SourceDesk, SourceStore
from weft.capabilities.knowledge.store import Desk, DocumentStore, DomainStore, PlanStore
from weft.capabilities.memory.model import MemoryLimits
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.messages.search.searcher import Searcher
from weft.capabilities.messages.search.selection_records import ChoiceDesk
from weft.capabilities.messages.store import MessagePages, MessageStore, ReplyObserver
from weft.capabilities.metrics.model import Measurements
from weft.capabilities.missing_context.answers import GapAnswers
from weft.capabilities.missing_context.store import GapErrands
from weft.capabilities.object_storage.staging import Staging
from weft.capabilities.object_storage.store import ObjectIndex
from weft.capabilities.record_log.resolve_source import Lookups
from weft.capabilities.records.markup_port import MarkupReader
from weft.capabilities.records.store import RecordStore
from weft.capabilities.search.retriever import Retriever
from weft.capabilities.search.stores import KnownSessions, Lag
from weft.capabilities.sessions.store import SessionStore
from weft.capabilities.transfer.export import ExportDesk
from weft.capabilities.transfer.importer import ImportDesk
from weft.capabilities.transfer.policies import PolicyStore, TenantPolicies
from weft.capabilities.transfer.ports import Policies
from weft.kernel.clock import Clock
from weft.kernel.cooperative import Cooperative
from weft.kernel.correlation import UNRELATED, Correlation
from weft.kernel.events import Outbox
from weft.kernel.identity import Actor
from weft.kernel.jobs import JobStore
from weft.storage.sql.access import SqlAccessStore, SqlAuditStore
from weft.storage.sql.agent_context import SqlSnapshotStore
from weft.storage.sql.board import SqlConventionStore, SqlEntryStore
from weft.storage.sql.checkouts import SqlSwitchStore
from weft.storage.sql.collections import SqlShelfStore
from weft.storage.sql.embeddings import SqlTenantModelStore
from weft.storage.sql.events import SqlEventStore, SqlOutbox
from weft.storage.sql.history import SqlLineStore
from weft.storage.sql.jobs import SqlJobStore
from weft.storage.sql.knowledge import SqlDocumentStore, SqlDomainStore, SqlPlanStore
from weft.storage.sql.knowledge_sources import SqlSourceStore
from weft.storage.sql.memory import SqlMemoryStore
from weft.storage.sql.messages import SqlMessageStore
from weft.storage.sql.model_migrations import SqlMoveStore
from weft.storage.sql.object_storage import SqlObjectIndex
from weft.storage.sql.policies import SqlPolicyStore
from weft.storage.sql.records import SqlRecordStore
from weft.storage.sql.retention import SqlPruningLog, SqlRetentionRules
from weft.storage.sql.reviews import SqlReviewStore, SqlSnapshotIndex
from weft.storage.sql.sessions import SqlSessionStore
from weft.storage.sql.webhooks import SqlWebhookStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weft.storage.sql.database import Transaction

    Source = Callable[["CallScope"], Any]


@dataclass(slots=True)
class CallScope:
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
class Singletons:
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
    errands: HistoryTransactions
    gap_errands: GapErrands
    choice_desk: ChoiceDesk
    lookups: Lookups
    markup: MarkupReader
    pruner: Pruner
    staging: Staging
    export_desk: ExportDesk
    import_desk: ImportDesk
    courier: WebhookSender
    source_desk: SourceDesk
    embeddings: Embeddings
    retriever: Retriever
    known_sessions: SessionsOfTenants


# What is opened anew in the transaction of each call.
_STORES: Mapping[type, Callable[[Transaction], Any]] = {
    AccessStore: SqlAccessStore,
    AuditStore: SqlAuditStore,
    ConventionStore: SqlConventionStore,
    DocumentStore: SqlDocumentStore,
    DomainStore: SqlDomainStore,
    EntryStore: SqlEntryStore,
    EventStore: SqlEventStore,
    JobStore: SqlJobStore,
    Lag: FollowedEvents,
    LineStore: SqlLineStore,
    MemoryStore: SqlMemoryStore,
    MessageStore: SqlMessageStore,
    MoveStore: SqlMoveStore,
    ObjectIndex: SqlObjectIndex,
    PlanStore: SqlPlanStore,
    PolicyStore: SqlPolicyStore,
    PruningLog: SqlPruningLog,
    RecordStore: SqlRecordStore,
    RetentionRules: SqlRetentionRules,
    RetentionStore: SqlRetentionRules,
    ReviewStore: SqlReviewStore,
    SessionStore: SqlSessionStore,
    ShelfStore: SqlShelfStore,
    SnapshotIndex: SqlSnapshotIndex,
    SnapshotStore: SqlSnapshotStore,
    SourceStore: SqlSourceStore,
    SwitchStore: SqlSwitchStore,
    TenantModelStore: SqlTenantModelStore,
    WebhookStore: SqlWebhookStore,
}


class Resolver:
    """Prepares, once for each operation, how its needs are met."""

    def __init__(self, services: Singletons) -> None:
        self._sources: dict[type, Source] = {
            Actor: lambda call: call.actor,
            Cooperative: lambda call: call.transaction,
            Outbox: lambda call: SqlOutbox(call.transaction, services.clock, call.during),
            PastEvents: lambda call: SqlOutbox(call.transaction, services.clock),
            Policies: lambda call: TenantPolicies(SqlPolicyStore(call.transaction)),
            KnownSessions: lambda call: SessionsOfCall(services.known_sessions, call.transaction),
        }
        self._sources |= {need: _opened(store) for need, store in _STORES.items()}
        self._sources |= {need: _always(getattr(services, name)) for name, need in _hints_of(Singletons).items()}
        self._sources[AuditFilter] = self.source(DomainAuditFilter)
        self._sources[EntryObserver] = self._sources[ReplyObserver] = self.source(GapAnswers)

    def prepare(self, needs: Iterable[type]) -> Callable[[CallScope], list[Any]]:
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
        hints = _hints_of(need)
        parts = [self.source(hints[name]) for name in need.__struct_fields__]
        return lambda call: need(*[part(call) for part in parts])


@cache
def _hints_of(kind: type) -> dict[str, type]:
    """Return what the fields of a type are. Many needs share parts, and reading annotations takes long."""
    return get_type_hints(kind)


def _opened(store: Callable[[Transaction], Any]) -> Source:
    return lambda call: store(call.transaction)


def _always(service: object) -> Source:
    return lambda _: service
