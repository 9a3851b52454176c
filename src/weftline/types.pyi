# Written by scripts/generate.py from the operation registry; change the operations instead.
"""Types of the parameters and results of all operations."""

from weftline.access.audit import AuditEntry, AuditLog
from weftline.access.operations import AgentCreated, AgentUpdated, ApiKeyCreated, ApiKeyInfo, ApiKeyList, TokenIssued
from weftline.exchange.lineage.operations import DerivedItem, ForgottenEntry, ItemForgotten, ItemTraced
from weftline.exchange.missing_context.answers import GapRequest
from weftline.exchange.missing_context.operations import (
    MissingInfo,
    MissingListed,
    MissingReported,
    MissingResolved,
    PossibleSource,
)
from weftline.exchange.missing_context.requests import MissingRequested
from weftline.exchange.record_log.add import AddedRecord, LifecycleSet, RecordsAdded
from weftline.exchange.record_log.list_records import ListedRecord, Records
from weftline.exchange.record_log.redact import ItemRedacted, ItemRevealed
from weftline.exchange.record_log.resolve_source import SourceResolved
from weftline.exchange.record_log.show import RecordSchema, RecordShown, RedactionInfo, ReferencingRecord, StaleRecord
from weftline.exchange.transfer.export import ContextExported
from weftline.exchange.transfer.importer import ContextImported
from weftline.exchange.transfer.policies import PolicyDeleted, PolicyInfo, PolicyList
from weftline.exchange.transfer.policy_filter import PolicyDefinition
from weftline.history.bisect import Bisected
from weftline.history.branches import BranchDeleted, Branches, BranchInfo, Switched
from weftline.history.diff import Differences, KeyDiff
from weftline.history.log import (
    Blame,
    Blamed,
    ChangeInfo,
    CommitInfo,
    CommitShown,
    ContextState,
    Log,
    MergedFrom,
    StoredEntry,
)
from weftline.history.merge_operations import ConflictInfo, Merged, Side
from weftline.history.merge_reviews import ConflictResolution, ReviewDropped, ReviewInfo, ReviewResolved, Reviews
from weftline.history.retention import (
    HistoryPruned,
    PruneLog,
    PruningInfo,
    RetentionCleared,
    RetentionRule,
    RetentionRuleList,
)
from weftline.history.rollback import RolledBack
from weftline.history.snapshots import SnapshotDeleted, SnapshotList, SnapshotListed, SnapshotTaken
from weftline.history.verify import Verified
from weftline.indexing.chunking.model import ChunkingOptions
from weftline.indexing.embeddings.operations import EmbeddedTexts
from weftline.indexing.model_migration.model import ModelComparison
from weftline.indexing.model_migration.operations import CanaryStep, EmbeddingModelInfo, ModelList, ModelMigrationInfo
from weftline.insight.alerts.operations import AlertInfo, AlertList
from weftline.insight.guidance.operations import UsageGuidance
from weftline.insight.guidance.plan import PlanShown, QuotaInfo
from weftline.insight.metrics.history import HourMetrics
from weftline.insight.metrics.model import (
    BackgroundWork,
    CacheStats,
    ChatModelMetrics,
    ConnectionStats,
    DatabasePerformance,
    JobFigures,
    OperationMetrics,
    PerformanceTrends,
    PoolStats,
    SystemInfo,
    SystemPerformance,
)
from weftline.insight.metrics.operations import Performance, PerformanceTargets, ResourceInfo
from weftline.insight.recommendations.model import Evidence, ProposedSettings, Trial, TriedCall
from weftline.insight.recommendations.operations import AdviceItem, AdviceList, AdviceShown, AdviceTried
from weftline.insight.usage.model import UsageFigures
from weftline.insight.usage.operations import UsageExported, UsageReported, UsageRow
from weftline.kernel.events import Event
from weftline.kernel.operation import Success
from weftline.knowledge.document_operations import DocumentPut, DocumentsPut, NewDocument
from weftline.knowledge.document_queries import DocumentDeleted, DocumentList, DocumentText
from weftline.knowledge.document_review import DocumentDiscarded
from weftline.knowledge.documents import DocumentInfo, QuarantineInfo
from weftline.knowledge.domain_operations import DomainDeleted, DomainDetails, DomainInfo, DomainList
from weftline.knowledge.model import FlaggedPassage
from weftline.knowledge.sources.model import RejectedDocument, SyncCounts
from weftline.knowledge.sources.operations import SourceAdded, SourceInfo, SourceList, SourceRemoved, SyncRequested
from weftline.knowledge.templates.model import (
    DomainEvaluation,
    DomainTemplate,
    ExampleQuestion,
    MetadataField,
    QuestionResult,
)
from weftline.knowledge.templates.operations import TemplateInfo, TemplateList, TemplateSummary
from weftline.models.budgets.model import BudgetName
from weftline.models.budgets.operations import BudgetDeleted, BudgetInfo, BudgetList, ShareInfo
from weftline.models.language_models.model import ToolCall
from weftline.prompts.assembly.get_context import Citation, ContextResponse
from weftline.prompts.assembly.model import Candidate, Modelled, OmittedCandidate, Shortening
from weftline.prompts.assembly.operations import BlockSummary, PromptAssembled, SuspiciousItem
from weftline.prompts.assembly.receipt_operations import (
    PromptReplayed,
    ReceiptList,
    ReceiptShown,
    ReceiptSummary,
    SavingsReport,
)
from weftline.prompts.assembly.receipts import (
    CompactionUse,
    Confidence,
    CountingMethod,
    ReceiptBlock,
    ReportedUsage,
    Savings,
    SavingsTotal,
    TokenLimits,
    ToolSavings,
)
from weftline.prompts.assembly.usage_report import MetricsEmitted
from weftline.prompts.assembly.validate_operation import PromptValidated
from weftline.prompts.efficiency.model import Efficiency, ItemUse
from weftline.prompts.gateway.operations import ServerInfo, ServerList, ServerSummary, ServerTool, ToolCalled
from weftline.prompts.tools.catalogue import FoundTool, ToolDescription, ToolsFound
from weftline.prompts.tools.operations import (
    RegisteredToolInfo,
    RegisteredToolList,
    SelectedTool,
    ToolDraft,
    ToolsRegistered,
    ToolsSelected,
)
from weftline.prompts.tools.step_operations import StepInfo, StepList
from weftline.records.event_classes import CloudEvent
from weftline.records.model import CandidateSource, ContextSourceRef
from weftline.records.refs import (
    A2aMapping,
    ByteRange,
    CloudEventsMapping,
    Css,
    CustomSelector,
    JsonPointer,
    JsonSchemaMapping,
    LineRange,
    Link,
    McpMapping,
    MediaTimeRange,
    ModelApiMapping,
    OpenTelemetryMapping,
    OtherMapping,
    PageRegion,
    ProvMapping,
    TextPosition,
    TextQuote,
    WebAnnotationMapping,
    XPath,
)
from weftline.safety.approvals.operations import (
    ApprovalDecided,
    ApprovalInfo,
    ApprovalList,
    ApprovalShown,
    PerformedError,
)
from weftline.safety.guardrails.model import Guardrail
from weftline.safety.trust.policy import InjectionActions, PiiActions, SecretActions, TrustPolicy
from weftline.safety.trust.views import TrustInfo
from weftline.search.domain_evaluation import EvaluationInfo
from weftline.search.entity_operations import EntityInfo, EntityListing
from weftline.search.operations import SearchResponse, SimilarResponse
from weftline.search.pin_operations import PinInfo, PinList, PinRemoved
from weftline.search.results import PassageInfo, PendingItems, ResolvedReference
from weftline.search.session_indexing.reindex import DomainReindexStatus, ReindexStatus
from weftline.sessions.agent_directory import AgentList, ListedAgent
from weftline.sessions.events.operations import Events
from weftline.sessions.events.webhooks.operations import (
    DeliveryInfo,
    DeliveryList,
    WebhookCreated,
    WebhookDeleted,
    WebhookInfo,
    WebhookList,
    WebhookReplayed,
    WebhookTested,
)
from weftline.sessions.member_operations import AgentReinstated, MembersAdded, MembersRemoved
from weftline.sessions.messages.inbox_operations import InboxMessage, InboxPage
from weftline.sessions.messages.operations import MessageAdded, MessageInfo, Messages, VisibilityChanged
from weftline.sessions.messages.search.by_sender_and_time import MessagesBySender, MessagesByTime, TimeRange
from weftline.sessions.messages.search.operations import MessageSearchResponse
from weftline.sessions.messages.search.searcher import MessageMatch
from weftline.sessions.messages.session_overview import (
    SessionFound,
    SessionOverview,
    SessionResourceInfo,
    SessionStatistics,
)
from weftline.sessions.model import SessionConfig
from weftline.sessions.operations import SessionArchivedAt, SessionCreated, SessionDeleted, SessionInfo, SessionList
from weftline.sessions.teams.operations import MemberChanged, MemberInfo, TeamDeleted, TeamInfo, TeamList, TeamShown
from weftline.state.agent_context.alert_settings import AlertSettings
from weftline.state.agent_context.compaction_settings import CompactionSettings
from weftline.state.agent_context.copy_context import ContextCopied
from weftline.state.agent_context.critical import CriticalChange, CriticalUpdate
from weftline.state.agent_context.definitions import AgentDefined, DefinitionRead
from weftline.state.agent_context.proxy_settings import ProxySettings
from weftline.state.agent_context.pull import (
    ContextChanges,
    ContextPulled,
    ContextRead,
    ContextStatus,
    EntryDifference,
    LayerVersion,
    PulledContext,
    SharedMemoryVersion,
)
from weftline.state.agent_context.push import ChangedEntry, ContextPushed, Knowledge, RemovedKey
from weftline.state.agent_context.views import AgentDefinition, ContextEntry
from weftline.state.board.admin_view import InspectedEntry, Inspection
from weftline.state.board.check import BoardCheck, BoardFinding
from weftline.state.board.guidance import ConventionGroup, ConventionNames, ConventionsDefined, Guidance, KeyConvention
from weftline.state.board.operations import (
    BoardSize,
    Comparison,
    EntriesRead,
    EntryDeleted,
    EntryRead,
    EntryWritten,
    KeyDifference,
    KeyHistory,
    KeyInfo,
    Keys,
    PastEntry,
    PastVersion,
    SnapshotInfo,
    SnapshotRead,
    SnapshotRestored,
    Snapshots,
)
from weftline.state.layers.guardrail_operations import (
    GuardrailList,
    GuardrailsChecked,
    GuardrailsTested,
    ListedGuardrail,
    RuleResult,
    SampleCounts,
)
from weftline.state.layers.operations import LayerDefined, LayerInfo, LayerList, LayerListed, LayersShown
from weftline.state.memory.admin_view import (
    InspectedMemory,
    MemoryByScope,
    MemoryInspected,
    MemoryOverview,
    MemoryResourceInfo,
    MemoryStatistics,
    OverviewEntry,
)
from weftline.state.memory.operations import MemoryDeleted, MemoryFound, MemoryInfo, MemoryListed, MemorySet
from weftline.windows.checkpoints import (
    Checkpoint,
    CheckpointBranched,
    CheckpointRestored,
    Checkpoints,
    RestoredWindow,
    WindowVersion,
)
from weftline.windows.compaction.model import ModelUsage
from weftline.windows.compaction.operations import (
    CompactionDropped,
    CompactionExpanded,
    CompactionList,
    CompactionShown,
    ContextCompacted,
    FactList,
)
from weftline.windows.compaction.views import CompactionInfo, FactView, OriginalEvent, ShortenedView, SummaryView
from weftline.windows.conversations.operations import OutputOpened, ProxiedCallInfo, ProxiedCallList, ProxySettingsShown
from weftline.windows.ingest import Ingested, IngestedEvent, NewToolCall, NewWindowEvent
from weftline.windows.operations import WindowDeleted, WindowEventPopped, WindowEvents, WindowList
from weftline.windows.review import EventsReleased
from weftline.windows.shared_windows import WindowRefreshed, WindowRoutes
from weftline.windows.views import CategoryUse, Clamp, RouteView, WindowEventView, WindowSummary, WindowView

__all__ = [
    "A2aMapping",
    "AddedRecord",
    "AdviceItem",
    "AdviceList",
    "AdviceShown",
    "AdviceTried",
    "AgentCreated",
    "AgentDefined",
    "AgentDefinition",
    "AgentList",
    "AgentReinstated",
    "AgentUpdated",
    "AlertInfo",
    "AlertList",
    "AlertSettings",
    "ApiKeyCreated",
    "ApiKeyInfo",
    "ApiKeyList",
    "ApprovalDecided",
    "ApprovalInfo",
    "ApprovalList",
    "ApprovalShown",
    "AuditEntry",
    "AuditLog",
    "BackgroundWork",
    "Bisected",
    "Blame",
    "Blamed",
    "BlockSummary",
    "BoardCheck",
    "BoardFinding",
    "BoardSize",
    "BranchDeleted",
    "BranchInfo",
    "Branches",
    "BudgetDeleted",
    "BudgetInfo",
    "BudgetList",
    "BudgetName",
    "ByteRange",
    "CacheStats",
    "CanaryStep",
    "Candidate",
    "CandidateSource",
    "CategoryUse",
    "ChangeInfo",
    "ChangedEntry",
    "ChatModelMetrics",
    "Checkpoint",
    "CheckpointBranched",
    "CheckpointRestored",
    "Checkpoints",
    "ChunkingOptions",
    "Citation",
    "Clamp",
    "CloudEvent",
    "CloudEventsMapping",
    "CommitInfo",
    "CommitShown",
    "CompactionDropped",
    "CompactionExpanded",
    "CompactionInfo",
    "CompactionList",
    "CompactionSettings",
    "CompactionShown",
    "CompactionUse",
    "Comparison",
    "Confidence",
    "ConflictInfo",
    "ConflictResolution",
    "ConnectionStats",
    "ContextChanges",
    "ContextCompacted",
    "ContextCopied",
    "ContextEntry",
    "ContextExported",
    "ContextImported",
    "ContextPulled",
    "ContextPushed",
    "ContextRead",
    "ContextResponse",
    "ContextSourceRef",
    "ContextState",
    "ContextStatus",
    "ConventionGroup",
    "ConventionNames",
    "ConventionsDefined",
    "CountingMethod",
    "CriticalChange",
    "CriticalUpdate",
    "Css",
    "CustomSelector",
    "DatabasePerformance",
    "DefinitionRead",
    "DeliveryInfo",
    "DeliveryList",
    "DerivedItem",
    "Differences",
    "DocumentDeleted",
    "DocumentDiscarded",
    "DocumentInfo",
    "DocumentList",
    "DocumentPut",
    "DocumentText",
    "DocumentsPut",
    "DomainDeleted",
    "DomainDetails",
    "DomainEvaluation",
    "DomainInfo",
    "DomainList",
    "DomainReindexStatus",
    "DomainTemplate",
    "Efficiency",
    "EmbeddedTexts",
    "EmbeddingModelInfo",
    "EntityInfo",
    "EntityListing",
    "EntriesRead",
    "EntryDeleted",
    "EntryDifference",
    "EntryRead",
    "EntryWritten",
    "EvaluationInfo",
    "Event",
    "Events",
    "EventsReleased",
    "Evidence",
    "ExampleQuestion",
    "FactList",
    "FactView",
    "FlaggedPassage",
    "ForgottenEntry",
    "FoundTool",
    "GapRequest",
    "Guardrail",
    "GuardrailList",
    "GuardrailsChecked",
    "GuardrailsTested",
    "Guidance",
    "HistoryPruned",
    "HourMetrics",
    "InboxMessage",
    "InboxPage",
    "Ingested",
    "IngestedEvent",
    "InjectionActions",
    "InspectedEntry",
    "InspectedMemory",
    "Inspection",
    "ItemForgotten",
    "ItemRedacted",
    "ItemRevealed",
    "ItemTraced",
    "ItemUse",
    "JobFigures",
    "JsonPointer",
    "JsonSchemaMapping",
    "KeyConvention",
    "KeyDiff",
    "KeyDifference",
    "KeyHistory",
    "KeyInfo",
    "Keys",
    "Knowledge",
    "LayerDefined",
    "LayerInfo",
    "LayerList",
    "LayerListed",
    "LayerVersion",
    "LayersShown",
    "LifecycleSet",
    "LineRange",
    "Link",
    "ListedAgent",
    "ListedGuardrail",
    "ListedRecord",
    "Log",
    "McpMapping",
    "MediaTimeRange",
    "MemberChanged",
    "MemberInfo",
    "MembersAdded",
    "MembersRemoved",
    "MemoryByScope",
    "MemoryDeleted",
    "MemoryFound",
    "MemoryInfo",
    "MemoryInspected",
    "MemoryListed",
    "MemoryOverview",
    "MemoryResourceInfo",
    "MemorySet",
    "MemoryStatistics",
    "Merged",
    "MergedFrom",
    "MessageAdded",
    "MessageInfo",
    "MessageMatch",
    "MessageSearchResponse",
    "Messages",
    "MessagesBySender",
    "MessagesByTime",
    "MetadataField",
    "MetricsEmitted",
    "MissingInfo",
    "MissingListed",
    "MissingReported",
    "MissingRequested",
    "MissingResolved",
    "ModelApiMapping",
    "ModelComparison",
    "ModelList",
    "ModelMigrationInfo",
    "ModelUsage",
    "Modelled",
    "NewDocument",
    "NewToolCall",
    "NewWindowEvent",
    "OmittedCandidate",
    "OpenTelemetryMapping",
    "OperationMetrics",
    "OriginalEvent",
    "OtherMapping",
    "OutputOpened",
    "OverviewEntry",
    "PageRegion",
    "PassageInfo",
    "PastEntry",
    "PastVersion",
    "PendingItems",
    "Performance",
    "PerformanceTargets",
    "PerformanceTrends",
    "PerformedError",
    "PiiActions",
    "PinInfo",
    "PinList",
    "PinRemoved",
    "PlanShown",
    "PolicyDefinition",
    "PolicyDeleted",
    "PolicyInfo",
    "PolicyList",
    "PoolStats",
    "PossibleSource",
    "PromptAssembled",
    "PromptReplayed",
    "PromptValidated",
    "ProposedSettings",
    "ProvMapping",
    "ProxiedCallInfo",
    "ProxiedCallList",
    "ProxySettings",
    "ProxySettingsShown",
    "PruneLog",
    "PruningInfo",
    "PulledContext",
    "QuarantineInfo",
    "QuestionResult",
    "QuotaInfo",
    "ReceiptBlock",
    "ReceiptList",
    "ReceiptShown",
    "ReceiptSummary",
    "RecordSchema",
    "RecordShown",
    "Records",
    "RecordsAdded",
    "RedactionInfo",
    "ReferencingRecord",
    "RegisteredToolInfo",
    "RegisteredToolList",
    "ReindexStatus",
    "RejectedDocument",
    "RemovedKey",
    "ReportedUsage",
    "ResolvedReference",
    "ResourceInfo",
    "RestoredWindow",
    "RetentionCleared",
    "RetentionRule",
    "RetentionRuleList",
    "ReviewDropped",
    "ReviewInfo",
    "ReviewResolved",
    "Reviews",
    "RolledBack",
    "RouteView",
    "RuleResult",
    "SampleCounts",
    "Savings",
    "SavingsReport",
    "SavingsTotal",
    "SearchResponse",
    "SecretActions",
    "SelectedTool",
    "ServerInfo",
    "ServerList",
    "ServerSummary",
    "ServerTool",
    "SessionArchivedAt",
    "SessionConfig",
    "SessionCreated",
    "SessionDeleted",
    "SessionFound",
    "SessionInfo",
    "SessionList",
    "SessionOverview",
    "SessionResourceInfo",
    "SessionStatistics",
    "ShareInfo",
    "SharedMemoryVersion",
    "ShortenedView",
    "Shortening",
    "Side",
    "SimilarResponse",
    "SnapshotDeleted",
    "SnapshotInfo",
    "SnapshotList",
    "SnapshotListed",
    "SnapshotRead",
    "SnapshotRestored",
    "SnapshotTaken",
    "Snapshots",
    "SourceAdded",
    "SourceInfo",
    "SourceList",
    "SourceRemoved",
    "SourceResolved",
    "StaleRecord",
    "StepInfo",
    "StepList",
    "StoredEntry",
    "Success",
    "SummaryView",
    "SuspiciousItem",
    "Switched",
    "SyncCounts",
    "SyncRequested",
    "SystemInfo",
    "SystemPerformance",
    "TeamDeleted",
    "TeamInfo",
    "TeamList",
    "TeamShown",
    "TemplateInfo",
    "TemplateList",
    "TemplateSummary",
    "TextPosition",
    "TextQuote",
    "TimeRange",
    "TokenIssued",
    "TokenLimits",
    "ToolCall",
    "ToolCalled",
    "ToolDescription",
    "ToolDraft",
    "ToolSavings",
    "ToolsFound",
    "ToolsRegistered",
    "ToolsSelected",
    "Trial",
    "TriedCall",
    "TrustInfo",
    "TrustPolicy",
    "UsageExported",
    "UsageFigures",
    "UsageGuidance",
    "UsageReported",
    "UsageRow",
    "Verified",
    "VisibilityChanged",
    "WebAnnotationMapping",
    "WebhookCreated",
    "WebhookDeleted",
    "WebhookInfo",
    "WebhookList",
    "WebhookReplayed",
    "WebhookTested",
    "WindowDeleted",
    "WindowEventPopped",
    "WindowEventView",
    "WindowEvents",
    "WindowList",
    "WindowRefreshed",
    "WindowRoutes",
    "WindowSummary",
    "WindowVersion",
    "WindowView",
    "XPath",
]
