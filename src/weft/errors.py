# Written by scripts/generate.py from the error tree; change the errors instead.
"""Every error that a call can end with; weft.kernel.errors defines the base classes."""

from weft.capabilities.access.model import AgentExists, AgentNotFound, ApiKeyNotFound, InvalidParent
from weft.capabilities.access.steps import BoundToStep, StepNotFound, ToolNotInStep
from weft.capabilities.access.tool_profiles import UnknownToolProfile
from weft.capabilities.agent_context.model import ContextKeyNotFound, ContextLimitExceeded, ContextNotPulled
from weft.capabilities.alerts.model import AlertNotFound, AlertResolved
from weft.capabilities.approvals.model import (
    ApprovalClosed,
    ApprovalExpired,
    ApprovalInterrupted,
    ApprovalNotFound,
    ApprovalPending,
    ApprovalRefused,
    CallNotHoldable,
    TooManyApprovals,
)
from weft.capabilities.assembly.model import ContextOverBudget
from weft.capabilities.assembly.prompt_trust import PromptBlocked
from weft.capabilities.assembly.receipts import ReceiptNotFound, ReceiptPruned
from weft.capabilities.assembly.sent_prompt import PromptAltered
from weft.capabilities.assembly.usage_report import UsageConflict
from weft.capabilities.assembly.validate_operation import PromptOutdated
from weft.capabilities.board.model import InvalidKey, KeyNotFound, StoreFull, ValueTooLarge
from weft.capabilities.budgets.model import BudgetExceeded, BudgetNotFound
from weft.capabilities.compaction.model import CompactionNotFound, CompactionNotHeld
from weft.capabilities.events.webhooks.model import (
    AddressNotAllowed,
    TooManyWebhooks,
    WebhookCannotRun,
    WebhookNotFound,
)
from weft.capabilities.guardrails.model import GuardrailApproval, GuardrailViolation, InvalidGuardrail
from weft.capabilities.history.branches import BranchExists, BranchInUse, BranchNotMerged
from weft.capabilities.history.merge import UnrelatedContexts
from weft.capabilities.history.model import (
    BranchLimit,
    BranchNotFound,
    LineNotFound,
    SnapshotExists,
    SnapshotNotFound,
    ValueDamaged,
    VersionConflict,
    VersionNotFound,
    VersionPruned,
)
from weft.capabilities.history.reviews import ReviewClosed, ReviewNotFound
from weft.capabilities.indexing.chunking.reader import DocumentUnreadable
from weft.capabilities.indexing.embeddings.model import (
    EmbedderUnavailable,
    EmbeddingModelUnknown,
    SemanticSearchOff,
    TextRefused,
)
from weft.capabilities.indexing.model_migration.model import (
    ModelInUse,
    ModelMigrationInProgress,
    ModelMigrationNotFound,
)
from weft.capabilities.injection.model import DetectorUnavailable
from weft.capabilities.knowledge.document_review import DocumentHeld
from weft.capabilities.knowledge.model import (
    DocumentNotFound,
    DocumentNotQuarantined,
    DocumentNotReady,
    DocumentTooLarge,
    DocumentVersionNotFound,
    DomainExists,
    DomainNotFound,
)
from weft.capabilities.knowledge.sources.model import (
    FolderRefused,
    HookRefused,
    SourceNotFound,
    SourcesOverlap,
    TooManySources,
)
from weft.capabilities.knowledge.templates.model import MetadataMismatch, TemplateNotFound
from weft.capabilities.language_models.chat_model import ChatModelError
from weft.capabilities.layers.model import LayerViolation
from weft.capabilities.lineage.model import ItemNotFound
from weft.capabilities.memory.history_backend import HistoryNotKept
from weft.capabilities.memory.model import KeyExists, MemoryLimitExceeded, MemoryNotFound
from weft.capabilities.messages.categories import ProtectedCategory
from weft.capabilities.messages.model import MessageNotFound
from weft.capabilities.missing_context.model import AlreadyResolved, MissingContextLimit, MissingContextNotFound
from weft.capabilities.object_storage.model import ObjectBusy, ObjectDamaged, ObjectMissing, ObjectStorageUnavailable
from weft.capabilities.pins.model import PinLimitExceeded, PinNotFound
from weft.capabilities.recommendations.model import RecommendationNotFound
from weft.capabilities.record_log.resolve_source import SourceElsewhere
from weft.capabilities.record_log.source_items import SourceItemNotFound
from weft.capabilities.records.recorder import RecordExists, RecordNotFound
from weft.capabilities.records.vocabulary import IllegalTransition
from weft.capabilities.search.domain_evaluation import DomainWithoutTemplate
from weft.capabilities.search.similar import ChunkNotFound
from weft.capabilities.sessions.agent_directory import RecipientNotFound
from weft.capabilities.sessions.members import TooManyMembers
from weft.capabilities.sessions.model import (
    BoundToSession,
    ConventionsNotFound,
    SessionArchived,
    SessionExists,
    SessionInUse,
    SessionNotFound,
    SessionTerminated,
)
from weft.capabilities.teams.model import TeamExists, TeamFull, TeamNotEmpty, TeamNotFound
from weft.capabilities.tools.model import RuntimeTool, ToolNameTaken, ToolNotRegistered, UnknownTool
from weft.capabilities.transfer.bundle_format import BundleDamaged
from weft.capabilities.transfer.policies import PolicyBuiltIn, PolicyForbidden, PolicyNotFound
from weft.capabilities.trust.gate import ContentBlocked, ContentQuarantined
from weft.capabilities.windows.model import (
    EventExists,
    EventNotFound,
    NotMember,
    WindowChanged,
    WindowExists,
    WindowInUse,
    WindowNotFound,
    WindowTooSmall,
)
from weft.capabilities.windows.review import EventsHeld
from weft.kernel.errors import (
    AuthenticationError,
    Conflict,
    ContentTooLarge,
    DiskFull,
    Forbidden,
    HostNotAllowed,
    InternalError,
    InvalidApiKey,
    InvalidInput,
    MethodNotAllowed,
    NotFound,
    PermissionDenied,
    PoolNotInitialized,
    QuotaExceeded,
    RateLimited,
    Rejected,
    SelfModification,
    ServerBusy,
    SystemUnavailable,
    TokenExpired,
    Unavailable,
    UnknownOperation,
    WeftError,
)
from weft.settings import InvalidSetting

__all__ = [
    "AddressNotAllowed",
    "AgentExists",
    "AgentNotFound",
    "AlertNotFound",
    "AlertResolved",
    "AlreadyResolved",
    "ApiKeyNotFound",
    "ApprovalClosed",
    "ApprovalExpired",
    "ApprovalInterrupted",
    "ApprovalNotFound",
    "ApprovalPending",
    "ApprovalRefused",
    "AuthenticationError",
    "BoundToSession",
    "BoundToStep",
    "BranchExists",
    "BranchInUse",
    "BranchLimit",
    "BranchNotFound",
    "BranchNotMerged",
    "BudgetExceeded",
    "BudgetNotFound",
    "BundleDamaged",
    "CallNotHoldable",
    "ChatModelError",
    "ChunkNotFound",
    "CompactionNotFound",
    "CompactionNotHeld",
    "Conflict",
    "ContentBlocked",
    "ContentQuarantined",
    "ContentTooLarge",
    "ContextKeyNotFound",
    "ContextLimitExceeded",
    "ContextNotPulled",
    "ContextOverBudget",
    "ConventionsNotFound",
    "DetectorUnavailable",
    "DiskFull",
    "DocumentHeld",
    "DocumentNotFound",
    "DocumentNotQuarantined",
    "DocumentNotReady",
    "DocumentTooLarge",
    "DocumentUnreadable",
    "DocumentVersionNotFound",
    "DomainExists",
    "DomainNotFound",
    "DomainWithoutTemplate",
    "EmbedderUnavailable",
    "EmbeddingModelUnknown",
    "EventExists",
    "EventNotFound",
    "EventsHeld",
    "FolderRefused",
    "Forbidden",
    "GuardrailApproval",
    "GuardrailViolation",
    "HistoryNotKept",
    "HookRefused",
    "HostNotAllowed",
    "IllegalTransition",
    "InternalError",
    "InvalidApiKey",
    "InvalidGuardrail",
    "InvalidInput",
    "InvalidKey",
    "InvalidParent",
    "InvalidSetting",
    "ItemNotFound",
    "KeyExists",
    "KeyNotFound",
    "LayerViolation",
    "LineNotFound",
    "MemoryLimitExceeded",
    "MemoryNotFound",
    "MessageNotFound",
    "MetadataMismatch",
    "MethodNotAllowed",
    "MissingContextLimit",
    "MissingContextNotFound",
    "ModelInUse",
    "ModelMigrationInProgress",
    "ModelMigrationNotFound",
    "NotFound",
    "NotMember",
    "ObjectBusy",
    "ObjectDamaged",
    "ObjectMissing",
    "ObjectStorageUnavailable",
    "PermissionDenied",
    "PinLimitExceeded",
    "PinNotFound",
    "PolicyBuiltIn",
    "PolicyForbidden",
    "PolicyNotFound",
    "PoolNotInitialized",
    "PromptAltered",
    "PromptBlocked",
    "PromptOutdated",
    "ProtectedCategory",
    "QuotaExceeded",
    "RateLimited",
    "ReceiptNotFound",
    "ReceiptPruned",
    "RecipientNotFound",
    "RecommendationNotFound",
    "RecordExists",
    "RecordNotFound",
    "Rejected",
    "ReviewClosed",
    "ReviewNotFound",
    "RuntimeTool",
    "SelfModification",
    "SemanticSearchOff",
    "ServerBusy",
    "SessionArchived",
    "SessionExists",
    "SessionInUse",
    "SessionNotFound",
    "SessionTerminated",
    "SnapshotExists",
    "SnapshotNotFound",
    "SourceElsewhere",
    "SourceItemNotFound",
    "SourceNotFound",
    "SourcesOverlap",
    "StepNotFound",
    "StoreFull",
    "SystemUnavailable",
    "TeamExists",
    "TeamFull",
    "TeamNotEmpty",
    "TeamNotFound",
    "TemplateNotFound",
    "TextRefused",
    "TokenExpired",
    "TooManyApprovals",
    "TooManyMembers",
    "TooManySources",
    "TooManyWebhooks",
    "ToolNameTaken",
    "ToolNotInStep",
    "ToolNotRegistered",
    "Unavailable",
    "UnknownOperation",
    "UnknownTool",
    "UnknownToolProfile",
    "UnrelatedContexts",
    "UsageConflict",
    "ValueDamaged",
    "ValueTooLarge",
    "VersionConflict",
    "VersionNotFound",
    "VersionPruned",
    "WebhookCannotRun",
    "WebhookNotFound",
    "WeftError",
    "WindowChanged",
    "WindowExists",
    "WindowInUse",
    "WindowNotFound",
    "WindowTooSmall",
]
