"""One suite for each storage port.

A backend joins by subclassing each of these in a test module and providing two fixtures, ``stores`` and ``elsewhere``:
every store of two fresh tenants, where each method call is one transaction.
"""

from weft.testing.contracts.access import AccessStoreContract, AuditStoreContract
from weft.testing.contracts.agent_context import SnapshotStoreContract
from weft.testing.contracts.alerts import AlertStoreContract
from weft.testing.contracts.approvals import ApprovalStoreContract
from weft.testing.contracts.board import ConventionStoreContract, EntryStoreContract
from weft.testing.contracts.budgets import BudgetStoreContract
from weft.testing.contracts.collections import CollectionStoreContract
from weft.testing.contracts.compactions import CompactionStoreContract
from weft.testing.contracts.embeddings import EmbedderContract, TenantModelStoreContract, VectorStoreContract
from weft.testing.contracts.events import EventStoreContract
from weft.testing.contracts.guardrails import HitStoreContract
from weft.testing.contracts.history import LineStoreContract
from weft.testing.contracts.history_branches import BranchContract, CheckoutStoreContract
from weft.testing.contracts.history_operations import (
    JobStoreContract,
    PruningLogContract,
    RetentionRulesContract,
    ReviewStoreContract,
    SnapshotIndexContract,
)
from weft.testing.contracts.history_pruning import PruningContract
from weft.testing.contracts.inbox import InboxStoreContract
from weft.testing.contracts.knowledge import DocumentStoreContract, DomainStoreContract
from weft.testing.contracts.knowledge_sources import SourceStoreContract
from weft.testing.contracts.layers import CriticalEditStoreContract, LayerStoreContract, SignedLineContract
from weft.testing.contracts.lineage import LineageStoreContract
from weft.testing.contracts.memory import MemoryStoreContract
from weft.testing.contracts.messages import MessageStoreContract
from weft.testing.contracts.metering import UsageStoreContract
from weft.testing.contracts.metric_history import MetricHistoryStoreContract
from weft.testing.contracts.model_migration import ModelMigrationStoreContract
from weft.testing.contracts.object_storage import ObjectIndexContract
from weft.testing.contracts.pins import PinStoreContract
from weft.testing.contracts.policies import PolicyStoreContract
from weft.testing.contracts.receipts import ReceiptStoreContract
from weft.testing.contracts.records import RecordStoreContract
from weft.testing.contracts.sessions import SessionStoreContract
from weft.testing.contracts.stores import ContractStores
from weft.testing.contracts.teams import TeamStoreContract
from weft.testing.contracts.token_factors import TokenFactorStoreContract
from weft.testing.contracts.tools import SelectionStoreContract, StepStoreContract, ToolStoreContract
from weft.testing.contracts.webhooks import WebhookStoreContract
from weft.testing.contracts.windows import WindowStoreContract

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
