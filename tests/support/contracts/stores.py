"""The stores that a contract suite needs from the backend under test."""

from __future__ import annotations

from typing import Protocol

from weftline.access.audit import AuditStore
from weftline.access.model import LineKeys
from weftline.access.sql import AccessStore, PlanStore
from weftline.access.teams import TeamStore
from weftline.exchange.lineage_sql import LineageStore
from weftline.exchange.transfer.policies import PolicyStore
from weftline.history.lines import LineStore
from weftline.history.object_storage import ObjectIndex
from weftline.history.sql import CheckoutStore, PruningLog, RetentionStore, ReviewStore, SnapshotIndex
from weftline.indexing.embeddings import TenantModelStore, VectorStore
from weftline.indexing.model_migration import ModelMigrationStore
from weftline.indexing.pins import PinStore
from weftline.indexing.sql import CollectionStore
from weftline.insight.alerts.sql import AlertStore
from weftline.insight.metrics import MetricHistoryStore
from weftline.kernel.job_store import JobStore
from weftline.kernel.outbox import Outbox
from weftline.knowledge.source_store import SourceStore
from weftline.knowledge.sql import DocumentStore, DomainStore
from weftline.models.sql import BudgetStore, TokenFactorStore, UsageStore
from weftline.prompts.assembly.sql import ReceiptStore
from weftline.prompts.tools.sql import SelectionStore, StepStore, ToolStore
from weftline.records.sql import RecordStore
from weftline.safety.approvals.sql import ApprovalStore
from weftline.safety.guardrails.model import HitStore
from weftline.sessions.events.sql import EventStore
from weftline.sessions.events.webhooks import WebhookStore
from weftline.sessions.messages.sql import InboxStore
from weftline.sessions.messages.store import MessageStore
from weftline.sessions.sql import ConventionStore, SessionStore
from weftline.state.agent_context.sql import CriticalEditStore, SnapshotStore
from weftline.state.board.sql import EntryStore
from weftline.state.layers.sql import LayerStore
from weftline.state.memory.sql import MemoryStore
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.sql import WindowStore


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
    past: Outbox
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
