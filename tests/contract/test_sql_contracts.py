"""The SQL stores fulfil every contract, on both databases."""

from __future__ import annotations

import pytest

from support import contracts

pytestmark = pytest.mark.both_databases


class TestSessionStore(contracts.SessionStoreContract):
    """Sessions in SQL."""


class TestLineStore(contracts.LineStoreContract):
    """History in SQL."""


class TestBranches(contracts.BranchContract):
    """Branches in SQL."""


class TestPruning(contracts.PruningContract):
    """Retention in SQL."""


class TestEntryStore(contracts.EntryStoreContract):
    """Board entries in SQL."""


class TestConventionStore(contracts.ConventionStoreContract):
    """Key conventions in SQL."""


class TestMessageStore(contracts.MessageStoreContract):
    """Messages in SQL."""


class TestInboxStore(contracts.InboxStoreContract):
    """Inboxes in SQL."""


class TestEventStore(contracts.EventStoreContract):
    """Events in SQL."""


class TestAlertStore(contracts.AlertStoreContract):
    """Alerts in SQL."""


class TestAccessStore(contracts.AccessStoreContract):
    """Principals, keys and tokens in SQL."""


class TestAuditStore(contracts.AuditStoreContract):
    """The audit log in SQL."""


class TestMemoryStore(contracts.MemoryStoreContract):
    """Agents' memories in SQL."""


class TestObjectIndex(contracts.ObjectIndexContract):
    """The index of object storage in SQL."""


class TestCheckoutStore(contracts.CheckoutStoreContract):
    """Checked-out branches in SQL."""


class TestSnapshotStore(contracts.SnapshotStoreContract):
    """Context versions that agents pulled into sessions, in SQL."""


class TestLayerStore(contracts.LayerStoreContract):
    """Layers in SQL."""


class TestSignedLines(contracts.SignedLineContract):
    """Signed layers and definitions in SQL."""


class TestCriticalEditStore(contracts.CriticalEditStoreContract):
    """Critical edits in SQL."""


class TestJobStore(contracts.JobStoreContract):
    """Jobs in SQL."""


class TestPruningLog(contracts.PruningLogContract):
    """The log of prunings in SQL."""


class TestRetentionRules(contracts.RetentionRulesContract):
    """Rules of retention in SQL."""


class TestReviewStore(contracts.ReviewStoreContract):
    """Merges under review in SQL."""


class TestSnapshotIndex(contracts.SnapshotIndexContract):
    """The index of all snapshots in SQL."""


class TestWebhookStore(contracts.WebhookStoreContract):
    """Webhooks in SQL."""


class TestRecordStore(contracts.RecordStoreContract):
    """Records in SQL."""


class TestCompactionStore(contracts.CompactionStoreContract):
    """Compactions in SQL."""


class TestUsageStore(contracts.UsageStoreContract):
    """Usage entries and roll-ups in SQL."""


class TestReceiptStore(contracts.ReceiptStoreContract):
    """Receipts in SQL."""


class TestHitStore(contracts.HitStoreContract):
    """Hit counts of guardrails."""


class TestPolicyStore(contracts.PolicyStoreContract):
    """Export policies in SQL."""


class TestVectorStore(contracts.VectorStoreContract):
    """The cache of embedding vectors in SQL."""


class TestTenantModelStore(contracts.TenantModelStoreContract):
    """Embedding models of tenants in SQL."""


class TestSourceStore(contracts.SourceStoreContract):
    """Sources of knowledge in SQL."""


class TestCollectionStore(contracts.CollectionStoreContract):
    """Collections in SQL."""


class TestDomainStore(contracts.DomainStoreContract):
    """Domains of knowledge in SQL."""


class TestDocumentStore(contracts.DocumentStoreContract):
    """Documents in SQL."""


class TestPinStore(contracts.PinStoreContract):
    """Pinned items in SQL."""


class TestTokenFactorStore(contracts.TokenFactorStoreContract):
    """Learned factors of token estimates in SQL."""


class TestModelMigrationStore(contracts.ModelMigrationStoreContract):
    """Model migrations in SQL."""


class TestWindowStore(contracts.WindowStoreContract):
    """Windows in SQL."""


class TestTeamStore(contracts.TeamStoreContract):
    """Teams in SQL."""


class TestBudgetStore(contracts.BudgetStoreContract):
    """Budgets in SQL."""


class TestMetricHistoryStore(contracts.MetricHistoryStoreContract):
    """Metric history in SQL."""


class TestApprovalStore(contracts.ApprovalStoreContract):
    """Held calls in SQL."""


class TestToolStore(contracts.ToolStoreContract):
    """Registered tools in SQL."""


class TestStepStore(contracts.StepStoreContract):
    """Steps in SQL."""


class TestSelectionStore(contracts.SelectionStoreContract):
    """Selections of tools in SQL."""


class TestLineageStore(contracts.LineageStoreContract):
    """LineageStore meets the contract."""
