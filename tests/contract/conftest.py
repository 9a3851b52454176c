"""Stores on both databases for the contract suites."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from weftline.access.audit import AuditStore
from weftline.access.sql import AccessStore, PlanStore
from weftline.access.teams import TeamStore
from weftline.app.tenants import Tenants
from weftline.exchange.lineage_sql import LineageStore
from weftline.exchange.transfer.policies import PolicyStore
from weftline.history.line_signatures import LineSignatures
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
from weftline.storage.migrations.runner import migrate
from weftline.storage.sql.database import Scope, connect
from weftline.windows.compaction.sql import CompactionStore
from weftline.windows.sql import WindowStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from weftline.kernel.transaction import Transaction
    from weftline.storage.sql.database import Database
    from weftline.testing.clock import FrozenClock


class StorePerCall:
    """A store that runs each call in a separate transaction."""

    def __init__(self, database: Database, tenant: str | None, make: Callable[[Transaction], Any]) -> None:
        self._database = database
        self._scope = Scope(tenant)
        self._make = make

    def __getattr__(self, method: str) -> Callable[..., Any]:
        async def call(*values: Any, **named: Any) -> Any:
            return await self._database.write(
                self._scope, lambda transaction: getattr(self._make(transaction), method)(*values, **named)
            )

        return call


class SqlStores:
    """The SQL implementation of every port, for one tenant."""

    def __init__(self, database: Database, tenant: str, clock: FrozenClock) -> None:
        kinds: dict[str, Callable[[Transaction], Any]] = {
            "access": AccessStore,
            "alerts": AlertStore,
            "approvals": ApprovalStore,
            "audit": AuditStore,
            "budgets": BudgetStore,
            "compactions": CompactionStore,
            "conventions": ConventionStore,
            "critical_edits": CriticalEditStore,
            "documents": DocumentStore,
            "domains": DomainStore,
            "entries": EntryStore,
            "events": EventStore,
            "hits": HitStore,
            "jobs": JobStore,
            "layers": LayerStore,
            "lineage": LineageStore,
            "line_keys": lambda transaction: LineSignatures(transaction, b""),
            "lines": LineStore,
            "memory": MemoryStore,
            "inbox": InboxStore,
            "messages": MessageStore,
            "model_migrations": ModelMigrationStore,
            "objects": ObjectIndex,
            "outbox": lambda transaction: Outbox(transaction, clock),
            "past": lambda transaction: Outbox(transaction, clock),
            "plans": PlanStore,
            "policies": PolicyStore,
            "receipts": ReceiptStore,
            "prunings": PruningLog,
            "records": RecordStore,
            "retention": RetentionStore,
            "reviews": ReviewStore,
            "sessions": SessionStore,
            "collections": CollectionStore,
            "snapshot_index": SnapshotIndex,
            "sources": SourceStore,
            "snapshots": SnapshotStore,
            "checkouts": CheckoutStore,
            "tenant_models": TenantModelStore,
            "teams": TeamStore,
            "pins": PinStore,
            "tools": ToolStore,
            "steps": StepStore,
            "selections": SelectionStore,
            "token_factors": TokenFactorStore,
            "usage": UsageStore,
            "vectors": VectorStore,
            "webhooks": WebhookStore,
            "windows": WindowStore,
        }
        for name, make in kinds.items():
            setattr(self, name, StorePerCall(database, tenant, make))
        self.metric_history = StorePerCall(database, None, MetricHistoryStore)


@pytest.fixture
async def database(database_url: str, clock: FrozenClock) -> AsyncIterator[Database]:
    database = connect(database_url)
    await database.open()
    await migrate(database, clock)
    yield database
    await database.close()


@pytest.fixture
async def stores(database: Database, clock: FrozenClock) -> SqlStores:
    return SqlStores(database, (await Tenants(database, clock).create(f"c{secrets.token_hex(6)}")).tenant, clock)


@pytest.fixture
async def elsewhere(database: Database, clock: FrozenClock) -> SqlStores:
    return SqlStores(database, (await Tenants(database, clock).create(f"e{secrets.token_hex(6)}")).tenant, clock)
