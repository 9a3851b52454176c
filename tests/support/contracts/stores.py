"""The stores that a contract suite needs from the backend under test."""

from __future__ import annotations

from typing import Protocol

from weftline.access.audit_log import AuditStore
from weftline.access.sql import AccessStore, PlanStore
from weftline.access.store import LineKeys
from weftline.access.teams.sql import TeamStore
from weftline.exchange.lineage.store import LineageStore
from weftline.exchange.transfer.sql import PolicyStore
from weftline.history.object_storage.sql import ObjectIndex
from weftline.history.sql import CheckoutStore, PruningLog, RetentionStore, ReviewStore, SnapshotIndex
from weftline.history.store import LineStore
from weftline.indexing.collections.sql import CollectionStore
from weftline.indexing.embeddings.sql import TenantModelStore, VectorStore
from weftline.indexing.model_migration.sql import ModelMigrationStore
from weftline.indexing.pins.sql import PinStore
from weftline.insight.alerts.sql import AlertStore
from weftline.insight.metrics.sql import MetricHistoryStore
from weftline.kernel.events import Outbox
from weftline.kernel.ports import JobStore
from weftline.knowledge.sources.sql import SourceStore
from weftline.knowledge.sql import DocumentStore, DomainStore
from weftline.models.budgets.sql import BudgetStore
from weftline.models.language_models.factors import TokenFactorStore
from weftline.models.metering.sql import UsageStore
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.tools.sql import SelectionStore, StepStore, ToolStore
from weftline.records.sql import RecordStore
from weftline.safety.approvals.sql import ApprovalStore
from weftline.safety.guardrails.sql import HitStore
from weftline.sessions.events.model import EventImport, EventStore
from weftline.sessions.events.webhooks.sql import WebhookStore
from weftline.sessions.messages.sql import InboxStore
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.store import ConventionStore, SessionStore
from weftline.state.agent_context.critical import CriticalEditStore
from weftline.state.agent_context.store import SnapshotStore
from weftline.state.board.store import EntryStore
from weftline.state.layers.store import LayerStore
from weftline.state.memory.sql import MemoryStore
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.store import WindowStore


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
    retention: RetentionStore
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
