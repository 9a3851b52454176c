"""The stores that a contract suite needs from the backend under test."""

from __future__ import annotations

from typing import Protocol

from weft.capabilities.access.audit import AuditStore
from weft.capabilities.access.store import AccessStore, LineKeys
from weft.capabilities.agent_context.critical import CriticalEditStore
from weft.capabilities.agent_context.store import SnapshotStore
from weft.capabilities.alerts.store import AlertStore
from weft.capabilities.approvals.store import ApprovalStore
from weft.capabilities.assembly.receipts import ReceiptStore
from weft.capabilities.board.store import EntryStore
from weft.capabilities.budgets.store import BudgetStore
from weft.capabilities.compaction.store import CompactionStore
from weft.capabilities.events.model import EventImport, EventStore
from weft.capabilities.events.webhooks.store import WebhookStore
from weft.capabilities.guardrails.store import HitStore
from weft.capabilities.history.store import (
    CheckoutStore,
    LineStore,
    PruningLog,
    RetentionRules,
    ReviewStore,
    SnapshotIndex,
)
from weft.capabilities.indexing.collections.store import CollectionStore
from weft.capabilities.indexing.embeddings.store import TenantModelStore, VectorStore
from weft.capabilities.indexing.model_migration.model import ModelMigrationStore
from weft.capabilities.knowledge.sources.store import SourceStore
from weft.capabilities.knowledge.store import DocumentStore, DomainStore
from weft.capabilities.language_models.factors import TokenFactorStore
from weft.capabilities.layers.store import LayerStore
from weft.capabilities.lineage.store import LineageStore
from weft.capabilities.memory.store import MemoryStore
from weft.capabilities.messages.store import InboxStore, MessageStore
from weft.capabilities.metering.store import UsageStore
from weft.capabilities.metrics.history import MetricHistoryStore
from weft.capabilities.object_storage.store import ObjectIndex
from weft.capabilities.pins.store import PinStore
from weft.capabilities.plans.store import PlanStore
from weft.capabilities.records.store import RecordStore
from weft.capabilities.sessions.store import ConventionStore, SessionStore
from weft.capabilities.teams.store import TeamStore
from weft.capabilities.tools.store import SelectionStore, StepStore, ToolStore
from weft.capabilities.transfer.policies import PolicyStore
from weft.capabilities.windows.store import WindowStore
from weft.kernel.events import Outbox
from weft.kernel.ports import JobStore


class ContractStores(Protocol):
    """Every store of one tenant; each method call is one transaction."""

    access: AccessStore
    alerts: AlertStore
    approvals: ApprovalStore
    audit: AuditStore
    compactions: CompactionStore
    conventions: ConventionStore
    critical_edits: CriticalEditStore
    documents: DocumentStore
    domains: DomainStore
    entries: EntryStore
    events: EventStore
    hits: HitStore
    jobs: JobStore
    layers: LayerStore
    lineage: LineageStore
    line_keys: LineKeys
    lines: LineStore
    memory: MemoryStore
    inbox: InboxStore
    messages: MessageStore
    metric_history: MetricHistoryStore
    model_migrations: ModelMigrationStore
    objects: ObjectIndex
    outbox: Outbox
    past: EventImport
    plans: PlanStore
    budgets: BudgetStore
    policies: PolicyStore
    receipts: ReceiptStore
    prunings: PruningLog
    records: RecordStore
    retention: RetentionRules
    reviews: ReviewStore
    sessions: SessionStore
    collections: CollectionStore
    snapshot_index: SnapshotIndex
    sources: SourceStore
    snapshots: SnapshotStore
    checkouts: CheckoutStore
    teams: TeamStore
    tools: ToolStore
    steps: StepStore
    selections: SelectionStore
    tenant_models: TenantModelStore
    token_factors: TokenFactorStore
    pins: PinStore
    usage: UsageStore
    vectors: VectorStore
    webhooks: WebhookStore
    windows: WindowStore
