# Written by scripts/generate.py from the operation registry; change the operations instead.
"""Types of the parameters and results of all operations."""

from weft.capabilities.access.audit import AuditEntry, AuditLog
from weft.capabilities.access.operations import (
    AgentCreated,
    AgentUpdated,
    ApiKeyCreated,
    ApiKeyInfo,
    ApiKeyList,
    TokenIssued,
)
from weft.capabilities.agent_context.alert_settings import AlertSettings
from weft.capabilities.agent_context.compaction_settings import CompactionSettings
from weft.capabilities.agent_context.copy_context import ContextCopied
from weft.capabilities.agent_context.critical import CriticalChange, CriticalUpdate
from weft.capabilities.agent_context.definitions import AgentDefined, DefinitionRead
from weft.capabilities.agent_context.pull import (
    ContextChanges,
    ContextPulled,
    ContextRead,
    ContextStatus,
    EntryDifference,
    LayerVersion,
    PulledContext,
    SharedMemoryVersion,
)
from weft.capabilities.agent_context.push import ChangedEntry, ContextPushed, Knowledge, RemovedKey
from weft.capabilities.agent_context.views import AgentDefinition, ContextEntry
from weft.capabilities.alerts.operations import AlertInfo, AlertList
from weft.capabilities.approvals.operations import (
    ApprovalDecided,
    ApprovalInfo,
    ApprovalList,
    ApprovalShown,
    PerformedError,
)
from weft.capabilities.assembly.get_context import Citation, ContextResponse
from weft.capabilities.assembly.model import Candidate, Modelled, OmittedCandidate, Shortening
from weft.capabilities.assembly.operations import BlockSummary, PromptAssembled, SuspiciousItem
from weft.capabilities.assembly.receipt_operations import (
    PromptReplayed,
    ReceiptList,
    ReceiptShown,
    ReceiptSummary,
    SavingsReport,
)
from weft.capabilities.assembly.receipts import (
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
from weft.capabilities.assembly.usage_report import MetricsEmitted
from weft.capabilities.assembly.validate_operation import PromptValidated
from weft.capabilities.board.admin_view import InspectedEntry, Inspection
from weft.capabilities.board.check import BoardCheck, BoardFinding
from weft.capabilities.board.guidance import (
    ConventionGroup,
    ConventionNames,
    ConventionsDefined,
    Guidance,
    KeyConvention,
)
from weft.capabilities.board.operations import (
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
from weft.capabilities.budgets.model import BudgetName
from weft.capabilities.budgets.operations import BudgetDeleted, BudgetInfo, BudgetList, ShareInfo
from weft.capabilities.compaction.model import ModelUsage
from weft.capabilities.compaction.operations import (
    CompactionDropped,
    CompactionExpanded,
    CompactionList,
    CompactionShown,
    ContextCompacted,
    FactList,
)
from weft.capabilities.compaction.views import CompactionInfo, FactView, OriginalEvent, ShortenedView, SummaryView
from weft.capabilities.efficiency.model import Efficiency, ItemUse
from weft.capabilities.events.operations import Events
from weft.capabilities.events.webhooks.operations import (
    DeliveryInfo,
    DeliveryList,
    WebhookCreated,
    WebhookDeleted,
    WebhookInfo,
    WebhookList,
    WebhookReplayed,
    WebhookTested,
)
from weft.capabilities.guardrails.model import Guardrail
from weft.capabilities.guidance.operations import UsageGuidance
from weft.capabilities.guidance.plan import PlanShown, QuotaInfo
from weft.capabilities.history.bisect import Bisected
from weft.capabilities.history.branches import BranchDeleted, Branches, BranchInfo, Switched
from weft.capabilities.history.diff import Differences, KeyDiff
from weft.capabilities.history.log import (
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
from weft.capabilities.history.merge_operations import ConflictInfo, Merged, Side
from weft.capabilities.history.merge_reviews import (
    ConflictResolution,
    ReviewDropped,
    ReviewInfo,
    ReviewResolved,
    Reviews,
)
from weft.capabilities.history.retention import (
    HistoryPruned,
    PruneLog,
    PruningInfo,
    RetentionCleared,
    RetentionRule,
    RetentionRuleList,
)
from weft.capabilities.history.rollback import RolledBack
from weft.capabilities.history.snapshots import SnapshotDeleted, SnapshotList, SnapshotListed, SnapshotTaken
from weft.capabilities.history.verify import Verified
from weft.capabilities.indexing.chunking.model import ChunkingOptions
from weft.capabilities.indexing.embeddings.operations import EmbeddedTexts
from weft.capabilities.indexing.model_migration.model import ModelComparison
from weft.capabilities.indexing.model_migration.operations import (
    CanaryStep,
    EmbeddingModelInfo,
    ModelList,
    ModelMigrationInfo,
)
from weft.capabilities.knowledge.document_operations import DocumentPut, DocumentsPut, NewDocument
from weft.capabilities.knowledge.document_queries import DocumentDeleted, DocumentList, DocumentText
from weft.capabilities.knowledge.document_review import DocumentDiscarded
from weft.capabilities.knowledge.documents import DocumentInfo, QuarantineInfo
from weft.capabilities.knowledge.domain_operations import DomainDeleted, DomainDetails, DomainInfo, DomainList
from weft.capabilities.knowledge.model import FlaggedPassage
from weft.capabilities.knowledge.sources.model import RejectedDocument, SyncCounts
from weft.capabilities.knowledge.sources.operations import (
    SourceAdded,
    SourceInfo,
    SourceList,
    SourceRemoved,
    SyncRequested,
)
from weft.capabilities.knowledge.templates.model import (
    DomainEvaluation,
    DomainTemplate,
    ExampleQuestion,
    MetadataField,
    QuestionResult,
)
from weft.capabilities.knowledge.templates.operations import TemplateInfo, TemplateList, TemplateSummary
from weft.capabilities.language_models.model import ToolCall
from weft.capabilities.layers.guardrail_operations import (
    GuardrailList,
    GuardrailsChecked,
    GuardrailsTested,
    ListedGuardrail,
    RuleResult,
    SampleCounts,
)
from weft.capabilities.layers.operations import LayerDefined, LayerInfo, LayerList, LayerListed, LayersShown
from weft.capabilities.lineage.operations import DerivedItem, ForgottenEntry, ItemForgotten, ItemTraced
from weft.capabilities.memory.admin_view import (
    InspectedMemory,
    MemoryByScope,
    MemoryInspected,
    MemoryOverview,
    MemoryResourceInfo,
    MemoryStatistics,
    OverviewEntry,
)
from weft.capabilities.memory.operations import MemoryDeleted, MemoryFound, MemoryInfo, MemoryListed, MemorySet
from weft.capabilities.messages.inbox_operations import InboxMessage, InboxPage
from weft.capabilities.messages.operations import MessageAdded, MessageInfo, Messages, VisibilityChanged
from weft.capabilities.messages.search.by_sender_and_time import MessagesBySender, MessagesByTime, TimeRange
from weft.capabilities.messages.search.operations import MessageSearchResponse
from weft.capabilities.messages.search.searcher import MessageMatch
from weft.capabilities.messages.session_overview import (
    SessionFound,
    SessionOverview,
    SessionResourceInfo,
    SessionStatistics,
)
from weft.capabilities.metrics.history import HourMetrics
from weft.capabilities.metrics.model import (
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
from weft.capabilities.metrics.operations import Performance, PerformanceTargets, ResourceInfo
from weft.capabilities.missing_context.answers import GapRequest
from weft.capabilities.missing_context.operations import (
    MissingInfo,
    MissingListed,
    MissingReported,
    MissingResolved,
    PossibleSource,
)
from weft.capabilities.missing_context.requests import MissingRequested
from weft.capabilities.recommendations.model import Evidence, ProposedSettings, Trial, TriedCall
from weft.capabilities.recommendations.operations import AdviceItem, AdviceList, AdviceShown, AdviceTried
from weft.capabilities.record_log.add import AddedRecord, LifecycleSet, RecordsAdded
from weft.capabilities.record_log.list_records import ListedRecord, Records
from weft.capabilities.record_log.redact import ItemRedacted, ItemRevealed
from weft.capabilities.record_log.resolve_source import SourceResolved
from weft.capabilities.record_log.show import RecordSchema, RecordShown, RedactionInfo, ReferencingRecord, StaleRecord
from weft.capabilities.records.event_classes import CloudEvent
from weft.capabilities.records.model import CandidateSource, ContextSourceRef
from weft.capabilities.records.refs import (
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
from weft.capabilities.search.domain_evaluation import EvaluationInfo
from weft.capabilities.search.entity_operations import EntityInfo, EntityListing
from weft.capabilities.search.operations import SearchResponse, SimilarResponse
from weft.capabilities.search.pin_operations import PinInfo, PinList, PinRemoved
from weft.capabilities.search.results import PassageInfo, PendingItems, ResolvedReference
from weft.capabilities.search.session_indexing.reindex import DomainReindexStatus, ReindexStatus
from weft.capabilities.sessions.agent_directory import AgentList, ListedAgent
from weft.capabilities.sessions.member_operations import AgentReinstated, MembersAdded, MembersRemoved
from weft.capabilities.sessions.model import SessionConfig
from weft.capabilities.sessions.operations import (
    SessionArchivedAt,
    SessionCreated,
    SessionDeleted,
    SessionInfo,
    SessionList,
)
from weft.capabilities.teams.operations import MemberChanged, MemberInfo, TeamDeleted, TeamInfo, TeamList, TeamShown
from weft.capabilities.tools.catalogue import FoundTool, ToolDescription, ToolsFound
from weft.capabilities.tools.operations import (
    RegisteredToolInfo,
    RegisteredToolList,
    SelectedTool,
    ToolDraft,
    ToolsRegistered,
    ToolsSelected,
)
from weft.capabilities.tools.step_operations import StepInfo, StepList
from weft.capabilities.transfer.export import ContextExported
from weft.capabilities.transfer.importer import ContextImported
from weft.capabilities.transfer.policies import PolicyDeleted, PolicyInfo, PolicyList
from weft.capabilities.transfer.policy_filter import PolicyDefinition
from weft.capabilities.trust.policy import InjectionActions, PiiActions, SecretActions, TrustPolicy
from weft.capabilities.trust.views import TrustInfo
from weft.capabilities.usage.model import UsageFigures
from weft.capabilities.usage.operations import UsageExported, UsageReported, UsageRow
from weft.capabilities.windows.checkpoints import (
    Checkpoint,
    CheckpointBranched,
    CheckpointRestored,
    Checkpoints,
    RestoredWindow,
    WindowVersion,
)
from weft.capabilities.windows.ingest import Ingested, IngestedEvent, NewToolCall, NewWindowEvent
from weft.capabilities.windows.operations import WindowDeleted, WindowEvents, WindowList
from weft.capabilities.windows.review import EventsReleased
from weft.capabilities.windows.shared_windows import WindowRefreshed, WindowRoutes
from weft.capabilities.windows.views import CategoryUse, Clamp, RouteView, WindowEventView, WindowSummary, WindowView
from weft.kernel.events import Event
from weft.kernel.operation import Success

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
