# Written by scripts/generate.py from the operation registry; change the operations instead.
"""Types of the parameters and results of all operations."""

from weftline.capabilities.access.audit import AuditEntry, AuditLog
from weftline.capabilities.access.operations import (
    AgentCreated,
    AgentUpdated,
    ApiKeyCreated,
    ApiKeyInfo,
    ApiKeyList,
    TokenIssued,
)
from weftline.capabilities.agent_context.alert_settings import AlertSettings
from weftline.capabilities.agent_context.compaction_settings import CompactionSettings
from weftline.capabilities.agent_context.copy_context import ContextCopied
from weftline.capabilities.agent_context.critical import CriticalChange, CriticalUpdate
from weftline.capabilities.agent_context.definitions import AgentDefined, DefinitionRead
from weftline.capabilities.agent_context.pull import (
    ContextChanges,
    ContextPulled,
    ContextRead,
    ContextStatus,
    EntryDifference,
    LayerVersion,
    PulledContext,
    SharedMemoryVersion,
)
from weftline.capabilities.agent_context.push import ChangedEntry, ContextPushed, Knowledge, RemovedKey
from weftline.capabilities.agent_context.views import AgentDefinition, ContextEntry
from weftline.capabilities.alerts.operations import AlertInfo, AlertList
from weftline.capabilities.approvals.operations import (
    ApprovalDecided,
    ApprovalInfo,
    ApprovalList,
    ApprovalShown,
    PerformedError,
)
from weftline.capabilities.assembly.get_context import Citation, ContextResponse
from weftline.capabilities.assembly.model import Candidate, Modelled, OmittedCandidate, Shortening
from weftline.capabilities.assembly.operations import BlockSummary, PromptAssembled, SuspiciousItem
from weftline.capabilities.assembly.receipt_operations import (
    PromptReplayed,
    ReceiptList,
    ReceiptShown,
    ReceiptSummary,
    SavingsReport,
)
from weftline.capabilities.assembly.receipts import (
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
from weftline.capabilities.assembly.usage_report import MetricsEmitted
from weftline.capabilities.assembly.validate_operation import PromptValidated
from weftline.capabilities.board.admin_view import InspectedEntry, Inspection
from weftline.capabilities.board.check import BoardCheck, BoardFinding
from weftline.capabilities.board.guidance import (
    ConventionGroup,
    ConventionNames,
    ConventionsDefined,
    Guidance,
    KeyConvention,
)
from weftline.capabilities.board.operations import (
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
from weftline.capabilities.budgets.model import BudgetName
from weftline.capabilities.budgets.operations import BudgetDeleted, BudgetInfo, BudgetList, ShareInfo
from weftline.capabilities.compaction.model import ModelUsage
from weftline.capabilities.compaction.operations import (
    CompactionDropped,
    CompactionExpanded,
    CompactionList,
    CompactionShown,
    ContextCompacted,
    FactList,
)
from weftline.capabilities.compaction.views import CompactionInfo, FactView, OriginalEvent, ShortenedView, SummaryView
from weftline.capabilities.efficiency.model import Efficiency, ItemUse
from weftline.capabilities.events.operations import Events
from weftline.capabilities.events.webhooks.operations import (
    DeliveryInfo,
    DeliveryList,
    WebhookCreated,
    WebhookDeleted,
    WebhookInfo,
    WebhookList,
    WebhookReplayed,
    WebhookTested,
)
from weftline.capabilities.guardrails.model import Guardrail
from weftline.capabilities.guidance.operations import UsageGuidance
from weftline.capabilities.guidance.plan import PlanShown, QuotaInfo
from weftline.capabilities.history.bisect import Bisected
from weftline.capabilities.history.branches import BranchDeleted, Branches, BranchInfo, Switched
from weftline.capabilities.history.diff import Differences, KeyDiff
from weftline.capabilities.history.log import (
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
from weftline.capabilities.history.merge_operations import ConflictInfo, Merged, Side
from weftline.capabilities.history.merge_reviews import (
    ConflictResolution,
    ReviewDropped,
    ReviewInfo,
    ReviewResolved,
    Reviews,
)
from weftline.capabilities.history.retention import (
    HistoryPruned,
    PruneLog,
    PruningInfo,
    RetentionCleared,
    RetentionRule,
    RetentionRuleList,
)
from weftline.capabilities.history.rollback import RolledBack
from weftline.capabilities.history.snapshots import SnapshotDeleted, SnapshotList, SnapshotListed, SnapshotTaken
from weftline.capabilities.history.verify import Verified
from weftline.capabilities.indexing.chunking.model import ChunkingOptions
from weftline.capabilities.indexing.embeddings.operations import EmbeddedTexts
from weftline.capabilities.indexing.model_migration.model import ModelComparison
from weftline.capabilities.indexing.model_migration.operations import (
    CanaryStep,
    EmbeddingModelInfo,
    ModelList,
    ModelMigrationInfo,
)
from weftline.capabilities.knowledge.document_operations import DocumentPut, DocumentsPut, NewDocument
from weftline.capabilities.knowledge.document_queries import DocumentDeleted, DocumentList, DocumentText
from weftline.capabilities.knowledge.document_review import DocumentDiscarded
from weftline.capabilities.knowledge.documents import DocumentInfo, QuarantineInfo
from weftline.capabilities.knowledge.domain_operations import DomainDeleted, DomainDetails, DomainInfo, DomainList
from weftline.capabilities.knowledge.model import FlaggedPassage
from weftline.capabilities.knowledge.sources.model import RejectedDocument, SyncCounts
from weftline.capabilities.knowledge.sources.operations import (
    SourceAdded,
    SourceInfo,
    SourceList,
    SourceRemoved,
    SyncRequested,
)
from weftline.capabilities.knowledge.templates.model import (
    DomainEvaluation,
    DomainTemplate,
    ExampleQuestion,
    MetadataField,
    QuestionResult,
)
from weftline.capabilities.knowledge.templates.operations import TemplateInfo, TemplateList, TemplateSummary
from weftline.capabilities.language_models.model import ToolCall
from weftline.capabilities.layers.guardrail_operations import (
    GuardrailList,
    GuardrailsChecked,
    GuardrailsTested,
    ListedGuardrail,
    RuleResult,
    SampleCounts,
)
from weftline.capabilities.layers.operations import LayerDefined, LayerInfo, LayerList, LayerListed, LayersShown
from weftline.capabilities.lineage.operations import DerivedItem, ForgottenEntry, ItemForgotten, ItemTraced
from weftline.capabilities.memory.admin_view import (
    InspectedMemory,
    MemoryByScope,
    MemoryInspected,
    MemoryOverview,
    MemoryResourceInfo,
    MemoryStatistics,
    OverviewEntry,
)
from weftline.capabilities.memory.operations import MemoryDeleted, MemoryFound, MemoryInfo, MemoryListed, MemorySet
from weftline.capabilities.messages.inbox_operations import InboxMessage, InboxPage
from weftline.capabilities.messages.operations import MessageAdded, MessageInfo, Messages, VisibilityChanged
from weftline.capabilities.messages.search.by_sender_and_time import MessagesBySender, MessagesByTime, TimeRange
from weftline.capabilities.messages.search.operations import MessageSearchResponse
from weftline.capabilities.messages.search.searcher import MessageMatch
from weftline.capabilities.messages.session_overview import (
    SessionFound,
    SessionOverview,
    SessionResourceInfo,
    SessionStatistics,
)
from weftline.capabilities.metrics.history import HourMetrics
from weftline.capabilities.metrics.model import (
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
from weftline.capabilities.metrics.operations import Performance, PerformanceTargets, ResourceInfo
from weftline.capabilities.missing_context.answers import GapRequest
from weftline.capabilities.missing_context.operations import (
    MissingInfo,
    MissingListed,
    MissingReported,
    MissingResolved,
    PossibleSource,
)
from weftline.capabilities.missing_context.requests import MissingRequested
from weftline.capabilities.recommendations.model import Evidence, ProposedSettings, Trial, TriedCall
from weftline.capabilities.recommendations.operations import AdviceItem, AdviceList, AdviceShown, AdviceTried
from weftline.capabilities.record_log.add import AddedRecord, LifecycleSet, RecordsAdded
from weftline.capabilities.record_log.list_records import ListedRecord, Records
from weftline.capabilities.record_log.redact import ItemRedacted, ItemRevealed
from weftline.capabilities.record_log.resolve_source import SourceResolved
from weftline.capabilities.record_log.show import (
    RecordSchema,
    RecordShown,
    RedactionInfo,
    ReferencingRecord,
    StaleRecord,
)
from weftline.capabilities.records.event_classes import CloudEvent
from weftline.capabilities.records.model import CandidateSource, ContextSourceRef
from weftline.capabilities.records.refs import (
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
from weftline.capabilities.search.domain_evaluation import EvaluationInfo
from weftline.capabilities.search.entity_operations import EntityInfo, EntityListing
from weftline.capabilities.search.operations import SearchResponse, SimilarResponse
from weftline.capabilities.search.pin_operations import PinInfo, PinList, PinRemoved
from weftline.capabilities.search.results import PassageInfo, PendingItems, ResolvedReference
from weftline.capabilities.search.session_indexing.reindex import DomainReindexStatus, ReindexStatus
from weftline.capabilities.sessions.agent_directory import AgentList, ListedAgent
from weftline.capabilities.sessions.member_operations import AgentReinstated, MembersAdded, MembersRemoved
from weftline.capabilities.sessions.model import SessionConfig
from weftline.capabilities.sessions.operations import (
    SessionArchivedAt,
    SessionCreated,
    SessionDeleted,
    SessionInfo,
    SessionList,
)
from weftline.capabilities.teams.operations import MemberChanged, MemberInfo, TeamDeleted, TeamInfo, TeamList, TeamShown
from weftline.capabilities.tools.catalogue import FoundTool, ToolDescription, ToolsFound
from weftline.capabilities.tools.operations import (
    RegisteredToolInfo,
    RegisteredToolList,
    SelectedTool,
    ToolDraft,
    ToolsRegistered,
    ToolsSelected,
)
from weftline.capabilities.tools.step_operations import StepInfo, StepList
from weftline.capabilities.transfer.export import ContextExported
from weftline.capabilities.transfer.importer import ContextImported
from weftline.capabilities.transfer.policies import PolicyDeleted, PolicyInfo, PolicyList
from weftline.capabilities.transfer.policy_filter import PolicyDefinition
from weftline.capabilities.trust.policy import InjectionActions, PiiActions, SecretActions, TrustPolicy
from weftline.capabilities.trust.views import TrustInfo
from weftline.capabilities.usage.model import UsageFigures
from weftline.capabilities.usage.operations import UsageExported, UsageReported, UsageRow
from weftline.capabilities.windows.checkpoints import (
    Checkpoint,
    CheckpointBranched,
    CheckpointRestored,
    Checkpoints,
    RestoredWindow,
    WindowVersion,
)
from weftline.capabilities.windows.ingest import Ingested, IngestedEvent, NewToolCall, NewWindowEvent
from weftline.capabilities.windows.operations import WindowDeleted, WindowEventPopped, WindowEvents, WindowList
from weftline.capabilities.windows.review import EventsReleased
from weftline.capabilities.windows.shared_windows import WindowRefreshed, WindowRoutes
from weftline.capabilities.windows.views import (
    CategoryUse,
    Clamp,
    RouteView,
    WindowEventView,
    WindowSummary,
    WindowView,
)
from weftline.kernel.events import Event
from weftline.kernel.operation import Success

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
