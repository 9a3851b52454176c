"""Dependency injection by type.

The one untyped part of the wiring; a test resolves every need of every operation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

import weft.app.line_kinds  # noqa: F401 - registers them
from weft.app.audit_writer import CallAuditTrail
from weft.app.search.service import IndexLag
from weft.app.session_acl_cache import CallSessionAcl, SessionAclCache
from weft.capabilities.access.agent_tree import AgentLimit
from weft.capabilities.access.audit import AuditFilter, AuditStore, AuditTrail
from weft.capabilities.access.operations import TokenLifetimes
from weft.capabilities.access.store import AccessStore, LineKeys, TokenCodec
from weft.capabilities.agent_context.critical import CriticalEditStore, SessionLayers
from weft.capabilities.agent_context.model import ContextLimits
from weft.capabilities.agent_context.store import SnapshotStore
from weft.capabilities.alerts.evaluation import AlertSettingsCache
from weft.capabilities.alerts.service import Alerts
from weft.capabilities.alerts.store import AgentCalls, AlertStore
from weft.capabilities.approvals.store import ApprovalStore, CallPerformer, HeldCallObserver
from weft.capabilities.assembly.conversation import PreparedEventCache
from weft.capabilities.assembly.costs import DoubtLimit
from weft.capabilities.assembly.gather import PromptCache
from weft.capabilities.assembly.receipts import ReceiptStore
from weft.capabilities.assembly.records import ReceiptRecordReader
from weft.capabilities.board.store import EntryObserver, EntryStore, ReadTally
from weft.capabilities.budgets.store import BudgetStore
from weft.capabilities.compaction.review import HeldCompactions
from weft.capabilities.compaction.runner import CompactionRunner
from weft.capabilities.compaction.store import CompactionStore, FactCache, ViewCache
from weft.capabilities.compaction.trigger import CompactionWaker, ThresholdTrigger
from weft.capabilities.events.model import EventImport, EventStore, Feed
from weft.capabilities.events.webhooks.store import WebhookSender, WebhookStore
from weft.capabilities.guardrails.actions import KnownActions
from weft.capabilities.guardrails.service import Guardrails
from weft.capabilities.guardrails.store import CallerGuardrails, HitStore
from weft.capabilities.guidance.operations import AllowedOperations
from weft.capabilities.history.line_backend import LineBackends
from weft.capabilities.history.line_kinds import line_kinds
from weft.capabilities.history.store import (
    CheckoutStore,
    LineStore,
    Pruner,
    PruningLog,
    RetentionRules,
    RetentionStore,
    ReviewStore,
    SnapshotIndex,
)
from weft.capabilities.indexing.chunking.reader import DocumentReader
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.indexing.embeddings.model import Embeddings
from weft.capabilities.indexing.embeddings.store import TenantModelStore, VectorStore
from weft.capabilities.indexing.model_migration.model import ModelMigrationStore
from weft.capabilities.injection.model import InjectionDetector
from weft.capabilities.knowledge.domains import DomainAuditFilter
from weft.capabilities.knowledge.sources.store import SourceControl, SourceStore
from weft.capabilities.knowledge.store import DocumentStore, DomainStore
from weft.capabilities.language_models.catalog import Catalog
from weft.capabilities.language_models.factors import TokenFactorStore
from weft.capabilities.language_models.prices import Prices
from weft.capabilities.language_models.token_counts import CountCache
from weft.capabilities.layers.rules import RuleLoader, TenantRules
from weft.capabilities.layers.service import Layers
from weft.capabilities.layers.store import LayerStore, LayerTexts
from weft.capabilities.layers.team_contents import LayersAndMemoryOfTeams
from weft.capabilities.lineage.item_labels import StoredItemLabels
from weft.capabilities.lineage.store import LineageStore
from weft.capabilities.memory.model import MemoryLimits
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.messages.search.searcher import Searcher
from weft.capabilities.messages.store import InboxStore, MessagePages, MessageStore, ReplyObserver
from weft.capabilities.metering.store import UsageStore
from weft.capabilities.metrics.model import MetricsSource
from weft.capabilities.missing_context.answers import GapAnswers
from weft.capabilities.object_storage.store import ObjectIndex, Staging
from weft.capabilities.pins.model import PinLimits
from weft.capabilities.pins.store import PinStore
from weft.capabilities.plans.model import DefaultPlan
from weft.capabilities.plans.store import PlanStore
from weft.capabilities.records.store import MarkupReader, ReceiptRecords, RecordStore
from weft.capabilities.search.retriever import Retriever
from weft.capabilities.search.stores import KnownSessions, Lag
from weft.capabilities.sessions.store import ConventionStore, SessionStore
from weft.capabilities.teams.store import TeamContents, TeamStore
from weft.capabilities.tools.catalogue import ToolCatalogue
from weft.capabilities.tools.selection import SelectionMetrics
from weft.capabilities.tools.store import SelectionStore, StepStore, ToolStore
from weft.capabilities.transfer.export import Exporter
from weft.capabilities.transfer.importer import Importer
from weft.capabilities.transfer.policies import PolicyStore
from weft.capabilities.trust.gate import CallVerdicts, ItemLabels
from weft.capabilities.trust.policy import TrustPolicies
from weft.capabilities.trust.scanner import ContentScanner, Verdicts
from weft.capabilities.windows.agent_settings import SettingsCache
from weft.capabilities.windows.store import CompactionQueue, EventCache, WindowStore
from weft.kernel.alerts import AlertPort
from weft.kernel.approval import Approval
from weft.kernel.clock import Clock
from weft.kernel.correlation import NO_CORRELATION, Correlation
from weft.kernel.events import Outbox
from weft.kernel.fair_queue import FairSlots
from weft.kernel.guards import ImpliedCalls
from weft.kernel.identity import Actor
from weft.kernel.ports import Cooperative, JobStore, Termination, Transactions
from weft.kernel.tokens import TokenCounters
from weft.storage.sql.access import SqlAccessStore, SqlAuditStore
from weft.storage.sql.agent_calls import SqlAgentCalls
from weft.storage.sql.agent_context import SqlSnapshotStore
from weft.storage.sql.alerts import SqlAlertStore
from weft.storage.sql.approvals import SqlApprovalStore
from weft.storage.sql.board import SqlConventionStore, SqlEntryStore
from weft.storage.sql.budgets import SqlBudgetStore
from weft.storage.sql.checkouts import SqlCheckoutStore
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.compactions import SqlCompactionStore
from weft.storage.sql.embeddings import SqlTenantModelStore, SqlVectorStore
from weft.storage.sql.events import SqlEventStore, SqlOutbox
from weft.storage.sql.guardrails import SqlHitStore
from weft.storage.sql.history import SqlLineStore
from weft.storage.sql.inbox import SqlInboxStore
from weft.storage.sql.jobs import SqlJobStore
from weft.storage.sql.knowledge import SqlDocumentStore, SqlDomainStore
from weft.storage.sql.knowledge_sources import SqlSourceStore
from weft.storage.sql.layers import SqlCriticalEditStore, SqlLayerStore
from weft.storage.sql.line_signatures import LineSignatures
from weft.storage.sql.lineage import SqlLineageStore
from weft.storage.sql.memory import SqlMemoryStore
from weft.storage.sql.messages import SqlMessageStore
from weft.storage.sql.metering import SqlUsageStore
from weft.storage.sql.model_migrations import SqlModelMigrationStore
from weft.storage.sql.object_storage import SqlObjectIndex
from weft.storage.sql.pins import SqlPinStore
from weft.storage.sql.plans import SqlPlanStore
from weft.storage.sql.policies import SqlPolicyStore
from weft.storage.sql.receipts import SqlReceiptStore
from weft.storage.sql.records import SqlRecordStore
from weft.storage.sql.retention import SqlPruningLog, SqlRetentionRules
from weft.storage.sql.reviews import SqlReviewStore, SqlSnapshotIndex
from weft.storage.sql.sessions import SqlSessionStore
from weft.storage.sql.teams import SqlTeamStore
from weft.storage.sql.token_factors import SqlTokenFactorStore
from weft.storage.sql.tools import SqlSelectionStore, SqlStepStore, SqlToolStore
from weft.storage.sql.unit_of_work import CallerTransactions
from weft.storage.sql.webhooks import SqlWebhookStore
from weft.storage.sql.windows import SqlWindowStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.capabilities.approvals.model import HeldCall
    from weft.capabilities.trust.model import TrustLabel
    from weft.capabilities.trust.policy import TrustPolicy
    from weft.storage.sql.database import Database, Transaction

    Source = Callable[["CallScope"], Any]

N = TypeVar("N")


@dataclass(slots=True)
class CallScope:
    """The actor and the transaction of one call.

    An operation that opens its own transactions has none here and declares no store among its needs.
    """

    actor: Actor | None
    _transaction: Transaction | None
    # Of the texts that were scanned before the transaction.
    verdicts: Verdicts = field(default_factory=dict)

    @property
    def correlation(self) -> Correlation:
        return NO_CORRELATION if self.actor is None else self.actor.correlation

    @property
    def principal_id(self) -> str | None:
        return None if self.actor is None else self.actor.principal_id

    @property
    def approval(self) -> Approval | None:
        """Return the approval under which a held call is performed."""
        return None if self.actor is None else self.actor.approval

    @property
    def known_actor(self) -> Actor:
        if self.actor is None:
            raise LookupError("an operation without a caller asked for one")
        return self.actor

    @property
    def transaction(self) -> Transaction:
        if self._transaction is None:
            raise LookupError("an operation that opens its own transactions declares a store")
        return self._transaction


@dataclass(frozen=True, slots=True)
class Singletons:
    """Services that live as long as the application."""

    clock: Clock
    codec: TokenCodec
    lifetimes: TokenLifetimes
    counters: TokenCounters
    catalog: Catalog
    prices: Prices
    injection_detector: InjectionDetector
    token_counts: CountCache
    read_counts: ReadTally
    feed: Feed
    metrics_source: MetricsSource
    selection_metrics: SelectionMetrics
    agent_limit: AgentLimit
    memory_limits: MemoryLimits
    pin_limits: PinLimits
    default_plan: DefaultPlan
    context_limits: ContextLimits
    pages: MessagePages
    layer_texts: LayerTexts
    tenant_rules: TenantRules
    known_actions: KnownActions
    caller_guardrails: CallerGuardrails
    guardrails: Guardrails
    implied_calls: ImpliedCalls
    searcher: Searcher
    allowed_operations: AllowedOperations
    tool_catalogue: ToolCatalogue
    markup: MarkupReader
    pruner: Pruner
    staging: Staging
    exporter: Exporter
    importer: Importer
    webhook_sender: WebhookSender
    source_control: SourceControl
    embeddings: Embeddings
    retriever: Retriever
    known_sessions: SessionAclCache
    window_events: EventCache
    compaction_settings: SettingsCache
    alert_settings: AlertSettingsCache
    compaction_waker: CompactionWaker
    compaction_runner: CompactionRunner
    prepared_events: PreparedEventCache
    compacted_views: ViewCache
    key_facts: FactCache
    prompts: PromptCache
    assembly_slots: FairSlots
    doubt_limit: DoubtLimit
    content_scanner: ContentScanner
    document_reader: DocumentReader
    termination: Termination
    call_performer: CallPerformer


# Stores, created for the transaction of each call.
_STORES: Mapping[type, Callable[[Transaction], Any]] = {
    AccessStore: SqlAccessStore,
    AgentCalls: SqlAgentCalls,
    AlertStore: SqlAlertStore,
    ApprovalStore: SqlApprovalStore,
    SelectionStore: SqlSelectionStore,
    StepStore: SqlStepStore,
    ToolStore: SqlToolStore,
    AuditStore: SqlAuditStore,
    ConventionStore: SqlConventionStore,
    CriticalEditStore: SqlCriticalEditStore,
    BudgetStore: SqlBudgetStore,
    DocumentStore: SqlDocumentStore,
    DomainStore: SqlDomainStore,
    EntryStore: SqlEntryStore,
    EventStore: SqlEventStore,
    HitStore: SqlHitStore,
    InboxStore: SqlInboxStore,
    JobStore: SqlJobStore,
    Lag: IndexLag,
    LayerStore: SqlLayerStore,
    LineageStore: SqlLineageStore,
    MemoryStore: SqlMemoryStore,
    MessageStore: SqlMessageStore,
    ModelMigrationStore: SqlModelMigrationStore,
    ObjectIndex: SqlObjectIndex,
    PinStore: SqlPinStore,
    PlanStore: SqlPlanStore,
    PolicyStore: SqlPolicyStore,
    PruningLog: SqlPruningLog,
    ReceiptStore: SqlReceiptStore,
    RecordStore: SqlRecordStore,
    RetentionRules: SqlRetentionRules,
    RetentionStore: SqlRetentionRules,
    ReviewStore: SqlReviewStore,
    SessionStore: SqlSessionStore,
    CollectionStore: SqlCollectionStore,
    SnapshotIndex: SqlSnapshotIndex,
    SnapshotStore: SqlSnapshotStore,
    SourceStore: SqlSourceStore,
    CheckoutStore: SqlCheckoutStore,
    TeamStore: SqlTeamStore,
    TenantModelStore: SqlTenantModelStore,
    VectorStore: SqlVectorStore,
    TokenFactorStore: SqlTokenFactorStore,
    UsageStore: SqlUsageStore,
    WebhookStore: SqlWebhookStore,
    WindowStore: SqlWindowStore,
    CompactionStore: SqlCompactionStore,
}

# Ports that a service of a higher slice implements.
_IMPLEMENTATIONS: Mapping[type, type] = {
    AlertPort: Alerts,
    AuditFilter: DomainAuditFilter,
    CompactionQueue: ThresholdTrigger,
    EntryObserver: GapAnswers,
    ReceiptRecords: ReceiptRecordReader,
    ReplyObserver: GapAnswers,
    SessionLayers: Layers,
    TeamContents: LayersAndMemoryOfTeams,
}


def _line_backends(container: Container) -> Source:
    def build(call: CallScope) -> LineBackends:
        return LineBackends(
            {kind.prefix: partial(container.source(kind.backend), call) for kind in line_kinds().values()}
        )

    return build


class _CallItemLabels:
    """Builds the lookup of labels when a call names what its text was derived from: few do."""

    __slots__ = ("_call", "_container")

    def __init__(self, container: Container, call: CallScope) -> None:
        self._container = container
        self._call = call

    async def of(self, references: Sequence[str]) -> Mapping[str, TrustLabel]:
        labels: StoredItemLabels = self._container.source(StoredItemLabels)(self._call)
        return await labels.of(references)


def _item_labels(container: Container) -> Source:
    return lambda call: _CallItemLabels(container, call)


class _CallPolicies:
    """Builds the loader of rules when a call stores content: reads have a gate too, and do not use it."""

    __slots__ = ("_call", "_container")

    def __init__(self, container: Container, call: CallScope) -> None:
        self._container = container
        self._call = call

    async def current(self) -> TrustPolicy:
        rules: TenantRules = self._container.source(TenantRules)(self._call)
        known = rules.cached(self._call.known_actor)
        if known is not None:
            return known.policy
        loader: RuleLoader = self._container.source(RuleLoader)(self._call)
        return await loader.current()


def _policies(container: Container) -> Source:
    return lambda call: _CallPolicies(container, call)


class _CallObserver:
    """Builds the observer of held calls when one is shown or ends: few calls have to do with one."""

    __slots__ = ("_call", "_container")

    def __init__(self, container: Container, call: CallScope) -> None:
        self._container = container
        self._call = call

    async def details(self, held: HeldCall) -> dict[str, Any]:
        return await self._observer.details(held)

    async def closed(self, held: HeldCall, decision: Literal["refused", "expired"]) -> None:
        await self._observer.closed(held, decision)

    @property
    def _observer(self) -> HeldCompactions:
        observer: HeldCompactions = self._container.source(HeldCompactions)(self._call)
        return observer


def _observer(container: Container) -> Source:
    return lambda call: _CallObserver(container, call)


class Container:
    """Builds what operations need, by type. How to build a type is resolved on its first use and cached."""

    def __init__(self, database: Database, clock: Clock, signing_secret: bytes = b"") -> None:
        self._database = database
        self._needs: dict[tuple[type, ...], list[Source]] = {}
        self._sources: dict[Any, Source] = {
            Actor: lambda call: call.actor,
            AuditTrail: lambda call: CallAuditTrail(call.transaction, call.known_actor, clock),
            Cooperative: lambda call: call.transaction,
            Outbox: lambda call: SqlOutbox(call.transaction, clock, call.correlation, call.principal_id),
            EventImport: lambda call: SqlOutbox(call.transaction, clock),
            CallVerdicts: lambda call: call.verdicts,
        }
        self._sources |= {need: _opened(store) for need, store in _STORES.items()}
        self._sources[LineBackends] = _line_backends(self)
        self._sources[LineKeys] = lambda call: LineSignatures(call.transaction, signing_secret)
        self._sources[LineStore] = lambda call: SqlLineStore(call.transaction, signing_secret)
        self._sources[ItemLabels] = _item_labels(self)
        self._sources[TrustPolicies] = _policies(self)
        self._sources[HeldCallObserver] = _observer(self)

    def provide(self, singletons: Singletons) -> None:
        """Register the application's singletons."""
        self._sources |= {need: _always(getattr(singletons, name)) for name, need in _hints_of(Singletons).items()}
        known = singletons.known_sessions
        self._sources[KnownSessions] = lambda call: CallSessionAcl(known, call.transaction)

    def build(self, need: type[N], actor: Actor, transaction: Transaction) -> N:
        built: N = self.source(need)(CallScope(actor, transaction))
        return built

    def arguments(self, needs: tuple[type, ...], call: CallScope) -> list[Any]:
        """Return the arguments of an operation after its request."""
        sources = self._needs.get(needs)
        if sources is None:
            sources = self._needs[needs] = [self.source(need) for need in needs]
        return [source(call) for source in sources]

    def source(self, need: Any) -> Source:  # noqa: ANN401 - a type, or a generic alias
        """Return the function that builds a need for a call."""
        found = self._sources.get(need)
        if found is None:
            found = self._sources[need] = self._new_source(need)
        return found

    def _new_source(self, need: Any) -> Source:  # noqa: ANN401 - likewise
        if get_origin(need) is Transactions:
            (inner,) = get_args(need)
            return _always(CallerTransactions(self._database, self, inner))
        if need in _IMPLEMENTATIONS:
            return self.source(_IMPLEMENTATIONS[need])
        if not (isinstance(need, type) and issubclass(need, msgspec.Struct)):
            raise TypeError(f"nothing provides {need!r}")
        # A struct is built from its fields.
        hints = _hints_of(need)
        parts = [self.source(hints[name]) for name in need.__struct_fields__]
        return lambda call: need(*[part(call) for part in parts])


@cache
def _hints_of(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _opened(store: Callable[[Transaction], Any]) -> Source:
    return lambda call: store(call.transaction)


def _always(service: object) -> Source:
    return lambda _: service
