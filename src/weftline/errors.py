# Written by scripts/generate.py from the error tree; change the errors instead.
"""Every error that a call can end with; weftline.kernel.errors defines the base classes."""

from weftline.capabilities.access.model import AgentExists, AgentNotFound, ApiKeyNotFound, InvalidParent
from weftline.capabilities.access.steps import BoundToStep, StepNotFound, ToolNotInStep
from weftline.capabilities.access.tool_profiles import UnknownToolProfile
from weftline.capabilities.agent_context.model import ContextKeyNotFound, ContextLimitExceeded, ContextNotPulled
from weftline.capabilities.alerts.model import AlertNotFound, AlertResolved
from weftline.capabilities.approvals.model import (
    ApprovalClosed,
    ApprovalExpired,
    ApprovalInterrupted,
    ApprovalNotFound,
    ApprovalPending,
    ApprovalRefused,
    CallNotHoldable,
    TooManyApprovals,
)
from weftline.capabilities.assembly.model import ContextOverBudget
from weftline.capabilities.assembly.prompt_trust import PromptBlocked
from weftline.capabilities.assembly.receipts import ReceiptNotFound, ReceiptPruned
from weftline.capabilities.assembly.sent_prompt import PromptAltered
from weftline.capabilities.assembly.usage_report import UsageConflict
from weftline.capabilities.assembly.validate_operation import PromptOutdated
from weftline.capabilities.board.model import InvalidKey, KeyNotFound, StoreFull, ValueTooLarge
from weftline.capabilities.budgets.model import BudgetExceeded, BudgetNotFound
from weftline.capabilities.compaction.model import CompactionNotFound, CompactionNotHeld
from weftline.capabilities.events.webhooks.model import (
    AddressNotAllowed,
    TooManyWebhooks,
    WebhookCannotRun,
    WebhookNotFound,
)
from weftline.capabilities.guardrails.model import GuardrailApproval, GuardrailViolation, InvalidGuardrail
from weftline.capabilities.history.branches import BranchExists, BranchInUse, BranchNotMerged
from weftline.capabilities.history.merge import UnrelatedContexts
from weftline.capabilities.history.model import (
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
from weftline.capabilities.history.reviews import ReviewClosed, ReviewNotFound
from weftline.capabilities.indexing.chunking.reader import DocumentUnreadable
from weftline.capabilities.indexing.embeddings.model import (
    EmbedderUnavailable,
    EmbeddingModelUnknown,
    SemanticSearchOff,
    TextRefused,
)
from weftline.capabilities.indexing.model_migration.model import (
    ModelInUse,
    ModelMigrationInProgress,
    ModelMigrationNotFound,
)
from weftline.capabilities.injection.model import DetectorUnavailable
from weftline.capabilities.knowledge.document_review import DocumentHeld
from weftline.capabilities.knowledge.model import (
    DocumentNotFound,
    DocumentNotQuarantined,
    DocumentNotReady,
    DocumentTooLarge,
    DocumentVersionNotFound,
    DomainExists,
    DomainNotFound,
)
from weftline.capabilities.knowledge.sources.model import (
    FolderRefused,
    HookRefused,
    SourceNotFound,
    SourcesOverlap,
    TooManySources,
)
from weftline.capabilities.knowledge.templates.model import MetadataMismatch, TemplateNotFound
from weftline.capabilities.language_models.chat_model import ChatModelError
from weftline.capabilities.layers.model import LayerViolation
from weftline.capabilities.lineage.model import ItemNotFound
from weftline.capabilities.memory.history_backend import HistoryNotKept
from weftline.capabilities.memory.model import KeyExists, MemoryLimitExceeded, MemoryNotFound
from weftline.capabilities.messages.categories import ProtectedCategory
from weftline.capabilities.messages.model import MessageNotFound
from weftline.capabilities.missing_context.model import AlreadyResolved, MissingContextLimit, MissingContextNotFound
from weftline.capabilities.object_storage.model import (
    ObjectBusy,
    ObjectDamaged,
    ObjectMissing,
    ObjectStorageUnavailable,
)
from weftline.capabilities.pins.model import PinLimitExceeded, PinNotFound
from weftline.capabilities.recommendations.model import RecommendationNotFound
from weftline.capabilities.record_log.resolve_source import SourceElsewhere
from weftline.capabilities.record_log.source_items import SourceItemNotFound
from weftline.capabilities.records.recorder import RecordExists, RecordNotFound
from weftline.capabilities.records.vocabulary import IllegalTransition
from weftline.capabilities.search.domain_evaluation import DomainWithoutTemplate
from weftline.capabilities.search.similar import ChunkNotFound
from weftline.capabilities.sessions.agent_directory import RecipientNotFound
from weftline.capabilities.sessions.members import TooManyMembers
from weftline.capabilities.sessions.model import (
    BoundToSession,
    ConventionsNotFound,
    NotMember,
    SessionArchived,
    SessionExists,
    SessionInUse,
    SessionNotFound,
    SessionTerminated,
)
from weftline.capabilities.teams.model import TeamExists, TeamFull, TeamNotEmpty, TeamNotFound
from weftline.capabilities.tools.model import RuntimeTool, ToolNameTaken, ToolNotRegistered, UnknownTool
from weftline.capabilities.transfer.bundle_format import BundleDamaged
from weftline.capabilities.transfer.policies import PolicyBuiltIn, PolicyForbidden, PolicyNotFound
from weftline.capabilities.trust.gate import ContentBlocked, ContentQuarantined
from weftline.capabilities.windows.model import (
    EventExists,
    EventNotFound,
    WindowChanged,
    WindowExists,
    WindowInUse,
    WindowNotFound,
    WindowTooSmall,
)
from weftline.capabilities.windows.review import EventsHeld
from weftline.kernel.errors import (
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
    WeftlineError,
)
from weftline.settings import InvalidSetting

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
    "WeftlineError",
    "WindowChanged",
    "WindowExists",
    "WindowInUse",
    "WindowNotFound",
    "WindowTooSmall",
]
