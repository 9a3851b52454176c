"""The stores that a contract suite needs from the backend under test."""

from __future__ import annotations

from typing import Protocol

from weftline.capabilities.access.audit import AuditStore
from weftline.capabilities.access.store import AccessStore, LineKeys
from weftline.capabilities.agent_context.critical import CriticalEditStore
from weftline.capabilities.agent_context.store import SnapshotStore
from weftline.capabilities.alerts.store import AlertStore
from weftline.capabilities.approvals.store import ApprovalStore
from weftline.capabilities.assembly.receipts import ReceiptStore
from weftline.capabilities.board.store import EntryStore
from weftline.capabilities.budgets.store import BudgetStore
from weftline.capabilities.compaction.store import CompactionStore
from weftline.capabilities.events.model import EventImport, EventStore
from weftline.capabilities.events.webhooks.store import WebhookStore
from weftline.capabilities.guardrails.store import HitStore
from weftline.capabilities.history.store import (
    CheckoutStore,
    LineStore,
    PruningLog,
    RetentionRules,
    ReviewStore,
    SnapshotIndex,
)
from weftline.capabilities.indexing.collections.store import CollectionStore
from weftline.capabilities.indexing.embeddings.store import TenantModelStore, VectorStore
from weftline.capabilities.indexing.model_migration.model import ModelMigrationStore
from weftline.capabilities.knowledge.sources.store import SourceStore
from weftline.capabilities.knowledge.store import DocumentStore, DomainStore
from weftline.capabilities.language_models.factors import TokenFactorStore
from weftline.capabilities.layers.store import LayerStore
from weftline.capabilities.lineage.store import LineageStore
from weftline.capabilities.memory.store import MemoryStore
from weftline.capabilities.messages.store import InboxStore, MessageStore
from weftline.capabilities.metering.store import UsageStore
from weftline.capabilities.metrics.history import MetricHistoryStore
from weftline.capabilities.object_storage.store import ObjectIndex
from weftline.capabilities.pins.store import PinStore
from weftline.capabilities.plans.store import PlanStore
from weftline.capabilities.records.store import RecordStore
from weftline.capabilities.sessions.store import ConventionStore, SessionStore
from weftline.capabilities.teams.store import TeamStore
from weftline.capabilities.tools.store import SelectionStore, StepStore, ToolStore
from weftline.capabilities.transfer.policies import PolicyStore
from weftline.capabilities.windows.store import WindowStore
from weftline.kernel.events import Outbox
from weftline.kernel.ports import JobStore


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
