"""One suite for each storage port.

A backend joins by subclassing each of these in a test module and providing two fixtures, ``stores`` and ``elsewhere``:
every store of two fresh tenants, where each method call is one transaction.
"""

from support.contracts.access import AccessStoreContract, AuditStoreContract
from support.contracts.agent_context import SnapshotStoreContract
from support.contracts.alerts import AlertStoreContract
from support.contracts.approvals import ApprovalStoreContract
from support.contracts.board import ConventionStoreContract, EntryStoreContract
from support.contracts.budgets import BudgetStoreContract
from support.contracts.collections import CollectionStoreContract
from support.contracts.compactions import CompactionStoreContract
from support.contracts.embeddings import EmbedderContract, TenantModelStoreContract, VectorStoreContract
from support.contracts.events import EventStoreContract
from support.contracts.guardrails import HitStoreContract
from support.contracts.history import LineStoreContract
from support.contracts.history_branches import BranchContract, CheckoutStoreContract
from support.contracts.history_operations import (
    JobStoreContract,
    PruningLogContract,
    RetentionRulesContract,
    ReviewStoreContract,
    SnapshotIndexContract,
)
from support.contracts.history_pruning import PruningContract
from support.contracts.inbox import InboxStoreContract
from support.contracts.knowledge import DocumentStoreContract, DomainStoreContract
from support.contracts.knowledge_sources import SourceStoreContract
from support.contracts.layers import CriticalEditStoreContract, LayerStoreContract, SignedLineContract
from support.contracts.lineage import LineageStoreContract
from support.contracts.memory import MemoryStoreContract
from support.contracts.messages import MessageStoreContract
from support.contracts.metering import UsageStoreContract
from support.contracts.metric_history import MetricHistoryStoreContract
from support.contracts.model_migration import ModelMigrationStoreContract
from support.contracts.object_storage import ObjectIndexContract
from support.contracts.pins import PinStoreContract
from support.contracts.policies import PolicyStoreContract
from support.contracts.receipts import ReceiptStoreContract
from support.contracts.records import RecordStoreContract
from support.contracts.sessions import SessionStoreContract
from support.contracts.stores import ContractStores
from support.contracts.teams import TeamStoreContract
from support.contracts.token_factors import TokenFactorStoreContract
from support.contracts.tools import SelectionStoreContract, StepStoreContract, ToolStoreContract
from support.contracts.webhooks import WebhookStoreContract
from support.contracts.windows import WindowStoreContract

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
