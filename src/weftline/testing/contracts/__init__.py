"""One suite for each storage port.

A backend joins by subclassing each of these in a test module and providing two fixtures, ``stores`` and ``elsewhere``:
every store of two fresh tenants, where each method call is one transaction.
"""

from weftline.testing.contracts.access import AccessStoreContract, AuditStoreContract
from weftline.testing.contracts.agent_context import SnapshotStoreContract
from weftline.testing.contracts.alerts import AlertStoreContract
from weftline.testing.contracts.approvals import ApprovalStoreContract
from weftline.testing.contracts.board import ConventionStoreContract, EntryStoreContract
from weftline.testing.contracts.budgets import BudgetStoreContract
from weftline.testing.contracts.collections import CollectionStoreContract
from weftline.testing.contracts.compactions import CompactionStoreContract
from weftline.testing.contracts.embeddings import EmbedderContract, TenantModelStoreContract, VectorStoreContract
from weftline.testing.contracts.events import EventStoreContract
from weftline.testing.contracts.guardrails import HitStoreContract
from weftline.testing.contracts.history import LineStoreContract
from weftline.testing.contracts.history_branches import BranchContract, CheckoutStoreContract
from weftline.testing.contracts.history_operations import (
    JobStoreContract,
    PruningLogContract,
    RetentionRulesContract,
    ReviewStoreContract,
    SnapshotIndexContract,
)
from weftline.testing.contracts.history_pruning import PruningContract
from weftline.testing.contracts.inbox import InboxStoreContract
from weftline.testing.contracts.knowledge import DocumentStoreContract, DomainStoreContract
from weftline.testing.contracts.knowledge_sources import SourceStoreContract
from weftline.testing.contracts.layers import CriticalEditStoreContract, LayerStoreContract, SignedLineContract
from weftline.testing.contracts.lineage import LineageStoreContract
from weftline.testing.contracts.memory import MemoryStoreContract
from weftline.testing.contracts.messages import MessageStoreContract
from weftline.testing.contracts.metering import UsageStoreContract
from weftline.testing.contracts.metric_history import MetricHistoryStoreContract
from weftline.testing.contracts.model_migration import ModelMigrationStoreContract
from weftline.testing.contracts.object_storage import ObjectIndexContract
from weftline.testing.contracts.pins import PinStoreContract
from weftline.testing.contracts.policies import PolicyStoreContract
from weftline.testing.contracts.receipts import ReceiptStoreContract
from weftline.testing.contracts.records import RecordStoreContract
from weftline.testing.contracts.sessions import SessionStoreContract
from weftline.testing.contracts.stores import ContractStores
from weftline.testing.contracts.teams import TeamStoreContract
from weftline.testing.contracts.token_factors import TokenFactorStoreContract
from weftline.testing.contracts.tools import SelectionStoreContract, StepStoreContract, ToolStoreContract
from weftline.testing.contracts.webhooks import WebhookStoreContract
from weftline.testing.contracts.windows import WindowStoreContract

__all__ = [
    "AccessStoreContract",
    "AlertStoreContract",
    "ApprovalStoreContract",
    "AuditStoreContract",
    "BranchContract",
    "BudgetStoreContract",
    "CheckoutStoreContract",
    "CollectionStoreContract",
    "CompactionStoreContract",
    "ContractStores",
    "ConventionStoreContract",
    "CriticalEditStoreContract",
    "DocumentStoreContract",
    "DomainStoreContract",
    "EmbedderContract",
    "EntryStoreContract",
    "EventStoreContract",
    "HitStoreContract",
    "InboxStoreContract",
    "JobStoreContract",
    "LayerStoreContract",
    "LineStoreContract",
    "LineageStoreContract",
    "MemoryStoreContract",
    "MessageStoreContract",
    "MetricHistoryStoreContract",
    "ModelMigrationStoreContract",
    "ObjectIndexContract",
    "PinStoreContract",
    "PolicyStoreContract",
    "PruningContract",
    "PruningLogContract",
    "ReceiptStoreContract",
    "RecordStoreContract",
    "RetentionRulesContract",
    "ReviewStoreContract",
    "SelectionStoreContract",
    "SessionStoreContract",
    "SignedLineContract",
    "SnapshotIndexContract",
    "SnapshotStoreContract",
    "SourceStoreContract",
    "StepStoreContract",
    "TeamStoreContract",
    "TenantModelStoreContract",
    "TokenFactorStoreContract",
    "ToolStoreContract",
    "UsageStoreContract",
    "VectorStoreContract",
    "WebhookStoreContract",
    "WindowStoreContract",
]
