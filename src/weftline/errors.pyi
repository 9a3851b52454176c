# Written by scripts/generate.py from the operation registry; change the operations instead.
"""Every error that a call can end with; weftline.kernel.errors defines the base classes."""

from weftline.access.model import AgentExists, AgentNotFound, ApiKeyNotFound, InvalidParent
from weftline.access.steps import BoundToStep, StepNotFound, ToolNotInStep, UnknownToolProfile
from weftline.access.teams import TeamExists, TeamFull, TeamNotEmpty, TeamNotFound
from weftline.exchange.lineage import ItemNotFound
from weftline.exchange.missing_context import AlreadyResolved, MissingContextLimit, MissingContextNotFound
from weftline.exchange.record_log.add import SourceItemNotFound
from weftline.exchange.record_log.resolve_source import SourceElsewhere
from weftline.exchange.transfer.bundle_format import BundleDamaged
from weftline.exchange.transfer.policies import PolicyBuiltIn, PolicyForbidden, PolicyNotFound
from weftline.history.branches import BranchExists, BranchInUse, BranchNotMerged
from weftline.history.merge_operations import UnrelatedContexts
from weftline.history.model import (
    BranchLimit,
    BranchNotFound,
    LineNotFound,
    SnapshotExists,
    SnapshotNotFound,
    VersionConflict,
    VersionNotFound,
    VersionPruned,
)
from weftline.history.object_storage import ObjectBusy, ObjectDamaged, ObjectMissing, ObjectStorageUnavailable
from weftline.history.reviews import ReviewClosed, ReviewNotFound
from weftline.history.signed_lists import LayerViolation
from weftline.indexing.chunking.reader import DocumentUnreadable
from weftline.indexing.embeddings import EmbedderUnavailable, EmbeddingModelUnknown, SemanticSearchOff, TextRefused
from weftline.indexing.model_migration import ModelInUse, ModelMigrationInProgress, ModelMigrationNotFound
from weftline.indexing.pins import PinLimitExceeded, PinNotFound
from weftline.insight.alerts.model import AlertNotFound, AlertResolved
from weftline.insight.recommendations.model import RecommendationNotFound
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
from weftline.kernel.packed_text import ValueDamaged
from weftline.knowledge.document_review import DocumentHeld
from weftline.knowledge.model import (
    DocumentNotFound,
    DocumentNotQuarantined,
    DocumentNotReady,
    DocumentTooLarge,
    DocumentVersionNotFound,
    DomainExists,
    DomainNotFound,
)
from weftline.knowledge.sources import FolderRefused, HookRefused, SourceNotFound, SourcesOverlap, TooManySources
from weftline.knowledge.templates.model import MetadataMismatch, TemplateNotFound
from weftline.models.budgets import BudgetExceeded, BudgetNotFound
from weftline.models.language_models.answer_filter import AnswerTooLarge
from weftline.models.language_models.chat_model import ChatModelError
from weftline.prompts.assembly.prompt_trust import PromptBlocked
from weftline.prompts.assembly.receipts import ContextOverBudget, ReceiptNotFound, ReceiptPruned
from weftline.prompts.assembly.stored_prompts import PromptAltered
from weftline.prompts.assembly.usage_report import UsageConflict
from weftline.prompts.assembly.validate_operation import PromptOutdated
from weftline.prompts.gateway.model import (
    CommandsNotAllowed,
    GatewayServerExists,
    GatewayServerFailed,
    GatewayServerNotFound,
    GatewayToolHeld,
    GatewayToolNotFound,
    ResultWithheld,
    SecretNotSealed,
)
from weftline.prompts.tools.model import RuntimeTool, ToolNameTaken, ToolNotRegistered, UnknownTool
from weftline.records.vocabulary import IllegalTransition
from weftline.safety.approvals.model import (
    ApprovalClosed,
    ApprovalExpired,
    ApprovalInterrupted,
    ApprovalNotFound,
    ApprovalPending,
    ApprovalRejected,
    CallNotHoldable,
    TooManyApprovals,
)
from weftline.safety.guardrails.model import GuardrailApproval, GuardrailViolation, InvalidGuardrail
from weftline.safety.injection import DetectorUnavailable
from weftline.safety.trust.gate import ContentBlocked, ContentQuarantined
from weftline.search.domain_evaluation import DomainWithoutTemplate
from weftline.search.retriever import ChunkNotFound
from weftline.sessions.agent_directory import RecipientNotFound
from weftline.sessions.events.webhooks import AddressNotAllowed, TooManyWebhooks, WebhookCannotRun, WebhookNotFound
from weftline.sessions.member_operations import TooManyMembers
from weftline.sessions.messages.model import MessageNotFound, ProtectedCategory
from weftline.sessions.model import (
    BoundToSession,
    ConventionsNotFound,
    NotMember,
    SessionArchived,
    SessionExists,
    SessionInUse,
    SessionNotFound,
    SessionTerminated,
)
from weftline.sessions.recorder import RecordExists, RecordNotFound
from weftline.settings import InvalidSetting
from weftline.state.agent_context.model import ContextKeyNotFound, ContextLimitExceeded, ContextNotPulled
from weftline.state.board.model import InvalidKey, KeyNotFound, StoreFull, ValueTooLarge
from weftline.state.memory.history_backend import HistoryNotKept
from weftline.state.memory.model import KeyExists, MemoryLimitExceeded, MemoryNotFound
from weftline.windows.compaction.model import CompactionNotFound, CompactionNotHeld
from weftline.windows.conversations.operations import OutputNotFound
from weftline.windows.model import (
    EventExists,
    EventNotFound,
    WindowChanged,
    WindowExists,
    WindowInUse,
    WindowNotFound,
    WindowTooSmall,
)
from weftline.windows.shared_windows import EventsHeld

__all__ = [
    "AddressNotAllowed",
    "AgentExists",
    "AgentNotFound",
    "AlertNotFound",
    "AlertResolved",
    "AlreadyResolved",
    "AnswerTooLarge",
    "ApiKeyNotFound",
    "ApprovalClosed",
    "ApprovalExpired",
    "ApprovalInterrupted",
    "ApprovalNotFound",
    "ApprovalPending",
    "ApprovalRejected",
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
    "CommandsNotAllowed",
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
    "GatewayServerExists",
    "GatewayServerFailed",
    "GatewayServerNotFound",
    "GatewayToolHeld",
    "GatewayToolNotFound",
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
    "OutputNotFound",
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
    "ResultWithheld",
    "ReviewClosed",
    "ReviewNotFound",
    "RuntimeTool",
    "SecretNotSealed",
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
