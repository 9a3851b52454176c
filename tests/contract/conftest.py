"""Stores on both databases for the contract suites."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from weft.app.tenants import Tenants
from weft.storage.migrations.runner import migrate
from weft.storage.sql.access import SqlAccessStore, SqlAuditStore
from weft.storage.sql.agent_context import SqlSnapshotStore
from weft.storage.sql.alerts import SqlAlertStore
from weft.storage.sql.approvals import SqlApprovalStore
from weft.storage.sql.board import SqlConventionStore, SqlEntryStore
from weft.storage.sql.budgets import SqlBudgetStore
from weft.storage.sql.checkouts import SqlCheckoutStore
from weft.storage.sql.collections import SqlCollectionStore
from weft.storage.sql.compactions import SqlCompactionStore
from weft.storage.sql.database import Scope, connect
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
from weft.storage.sql.metric_history import SqlMetricHistory
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
from weft.storage.sql.webhooks import SqlWebhookStore
from weft.storage.sql.windows import SqlWindowStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from weft.storage.sql.database import Database, Transaction
    from weft.testing.clock import FrozenClock


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
            "access": SqlAccessStore,
            "alerts": SqlAlertStore,
            "approvals": SqlApprovalStore,
            "audit": SqlAuditStore,
            "budgets": SqlBudgetStore,
            "compactions": SqlCompactionStore,
            "conventions": SqlConventionStore,
            "critical_edits": SqlCriticalEditStore,
            "documents": SqlDocumentStore,
            "domains": SqlDomainStore,
            "entries": SqlEntryStore,
            "events": SqlEventStore,
            "hits": SqlHitStore,
            "jobs": SqlJobStore,
            "layers": SqlLayerStore,
            "lineage": SqlLineageStore,
            "line_keys": lambda transaction: LineSignatures(transaction, b""),
            "lines": SqlLineStore,
            "memory": SqlMemoryStore,
            "inbox": SqlInboxStore,
            "messages": SqlMessageStore,
            "model_migrations": SqlModelMigrationStore,
            "objects": SqlObjectIndex,
            "outbox": lambda transaction: SqlOutbox(transaction, clock),
            "past": lambda transaction: SqlOutbox(transaction, clock),
            "plans": SqlPlanStore,
            "policies": SqlPolicyStore,
            "receipts": SqlReceiptStore,
            "prunings": SqlPruningLog,
            "records": SqlRecordStore,
            "retention": SqlRetentionRules,
            "reviews": SqlReviewStore,
            "sessions": SqlSessionStore,
            "collections": SqlCollectionStore,
            "snapshot_index": SqlSnapshotIndex,
            "sources": SqlSourceStore,
            "snapshots": SqlSnapshotStore,
            "checkouts": SqlCheckoutStore,
            "tenant_models": SqlTenantModelStore,
            "teams": SqlTeamStore,
            "pins": SqlPinStore,
            "tools": SqlToolStore,
            "steps": SqlStepStore,
            "selections": SqlSelectionStore,
            "token_factors": SqlTokenFactorStore,
            "usage": SqlUsageStore,
            "vectors": SqlVectorStore,
            "webhooks": SqlWebhookStore,
            "windows": SqlWindowStore,
        }
        for name, make in kinds.items():
            setattr(self, name, StorePerCall(database, tenant, make))
        self.metric_history = StorePerCall(database, None, SqlMetricHistory)


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
