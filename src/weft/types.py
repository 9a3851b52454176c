# Written by scripts/generate.py from the operation registry; change the operations instead.
"""What requests are made of and what calls answer, to name in annotations or to build."""

from weft.capabilities.access.audit import AuditEntry, AuditLog
from weft.capabilities.access.operations import (
    AgentCreated,
    AgentInfo,
    Agents,
    ApiKeyCreated,
    ApiKeyInfo,
    ApiKeys,
    Done,
    TokenIssued,
)
from weft.capabilities.board.guidance import (
    ConventionGroup,
    ConventionNames,
    ConventionsDefined,
    Guidance,
    KeyConvention,
)
from weft.capabilities.board.hygiene import Finding, Hygiene
from weft.capabilities.board.inspection import InspectedEntry, Inspection
from weft.capabilities.board.operations import (
    BoardSize,
    Comparison,
    EntriesRead,
    EntryDeleted,
    EntryRead,
    EntryWritten,
    History,
    KeyDifference,
    KeyInfo,
    Keys,
    PastEntry,
    PastVersion,
    SnapshotInfo,
    SnapshotRead,
    SnapshotRestored,
    Snapshots,
)
from weft.capabilities.chunking.model import Cutting
from weft.capabilities.context.copying import ContextCopied
from weft.capabilities.context.definitions import AgentDefined, DefinitionRead
from weft.capabilities.context.pulling import ContextChanges, ContextPulled, ContextRead, EntryDifference, PulledContext
from weft.capabilities.context.pushing import ChangedEntry, ContextPushed, Forgotten, Knowledge
from weft.capabilities.context.status import ContextStatus
from weft.capabilities.context.views import AgentDefinition, ContextEntry
from weft.capabilities.embedding.operations import TextsEmbedded
from weft.capabilities.events.operations import Events
from weft.capabilities.exchange.adding import AddedRecord, RecordAdvanced, RecordsAdded
from weft.capabilities.exchange.applying import Definition
from weft.capabilities.exchange.exporting import ContextExported
from weft.capabilities.exchange.importing import ContextImported
from weft.capabilities.exchange.listing import ListedRecord, Records
from weft.capabilities.exchange.policies import PolicyDeleted, PolicyInfo, PolicyList
from weft.capabilities.exchange.redacting import ItemRedacted
from weft.capabilities.exchange.showing import NamingRecord, RecordShown, RedactionInfo
from weft.capabilities.exchange.sources import SourceResolved
from weft.capabilities.following.reindexing import DomainLeft, ReindexingShown
from weft.capabilities.knowledge.documents import DocumentInfo
from weft.capabilities.knowledge.looking import DocumentDeleted, DocumentList, DocumentText
from weft.capabilities.knowledge.managing import DomainDeleted, DomainInfo, DomainList
from weft.capabilities.knowledge.putting import DocumentPut, DocumentsPut, NewDocument
from weft.capabilities.knowledge_sources.model import NotTaken, Synced
from weft.capabilities.knowledge_sources.operations import (
    SourceAdded,
    SourceAsked,
    SourceInfo,
    SourceList,
    SourceRemoved,
)
from weft.capabilities.memory.inspection import (
    InspectedMemory,
    MemoryByScope,
    MemoryInspected,
    MemoryOverview,
    MemoryResourceInfo,
    MemoryStatistics,
    RememberedEntry,
)
from weft.capabilities.memory.operations import MemoryDeleted, MemoryFound, MemoryInfo, MemoryListed, MemorySet
from weft.capabilities.messages.operations import MessageAdded, MessageInfo, Messages, VisibilityChanged
from weft.capabilities.messages.session_views import (
    SessionFound,
    SessionOverview,
    SessionResourceInfo,
    SessionStatistics,
)
from weft.capabilities.missing.operations import (
    MissingInfo,
    MissingListed,
    MissingReported,
    MissingResolved,
    PossibleSource,
    RequestInfo,
)
from weft.capabilities.missing.requesting import MissingRequested
from weft.capabilities.models.model import ModelComparison
from weft.capabilities.models.operations import ModelInfo, ModelList, MoveInfo
from weft.capabilities.performance.model import (
    CacheStats,
    ConnectionStats,
    DatabasePerformance,
    OperationFigures,
    PerformanceTrends,
    PoolStats,
    SystemInfo,
    SystemPerformance,
)
from weft.capabilities.performance.operations import Performance, PerformanceTargets, ResourceInfo
from weft.capabilities.records.classes import CloudEvent
from weft.capabilities.records.model import CandidateSource, ContextSourceRef
from weft.capabilities.records.operations import RecordSchema
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
from weft.capabilities.retrieval.operations import Citation, ContextGathered, EverythingFound, SimilarFound
from weft.capabilities.retrieval.showing import FoundPassage, Pending
from weft.capabilities.search.filters import MessagesBySender, MessagesByTime, TimeRange
from weft.capabilities.search.operations import SearchResults
from weft.capabilities.search.searching import SearchResult
from weft.capabilities.sessions.model import SessionConfig
from weft.capabilities.sessions.operations import (
    SessionArchivedAt,
    SessionCreated,
    SessionDeleted,
    SessionInfo,
    Sessions,
)
from weft.capabilities.timeline.branching import BranchDeleted, Branches, BranchInfo, Switched
from weft.capabilities.timeline.checking import Bisected, Verified
from weft.capabilities.timeline.comparing import Differences, KeyDiff
from weft.capabilities.timeline.looking_back import (
    Blame,
    Blamed,
    ChangeInfo,
    CommitInfo,
    CommitShown,
    LineState,
    Log,
    MergedFrom,
    StoredEntry,
)
from weft.capabilities.timeline.merging import ConflictInfo, Merged, Side
from weft.capabilities.timeline.retaining import (
    HistoryPruned,
    PruningInfo,
    Prunings,
    RetentionCleared,
    RetentionRule,
    RetentionRuleList,
)
from weft.capabilities.timeline.reviewing import Resolution, ReviewAbandoned, ReviewInfo, ReviewResolved, Reviews
from weft.capabilities.timeline.taking_back import (
    RolledBack,
    SnapshotDeleted,
    SnapshotList,
    SnapshotListed,
    SnapshotTaken,
)
from weft.capabilities.usage.operations import OfferedCall, UsageGuidance
from weft.capabilities.webhooks.operations import (
    DeliveryInfo,
    DeliveryList,
    Replayed,
    WebhookCreated,
    WebhookDeleted,
    WebhookInfo,
    Webhooks,
    WebhookTested,
)
from weft.kernel.events import Event

__all__ = [
    "A2aMapping",
    "AddedRecord",
    "AgentCreated",
    "AgentDefined",
    "AgentDefinition",
    "AgentInfo",
    "Agents",
    "ApiKeyCreated",
    "ApiKeyInfo",
    "ApiKeys",
    "AuditEntry",
    "AuditLog",
    "Bisected",
    "Blame",
    "Blamed",
    "BoardSize",
    "BranchDeleted",
    "BranchInfo",
    "Branches",
    "ByteRange",
    "CacheStats",
    "CandidateSource",
    "ChangeInfo",
    "ChangedEntry",
    "Citation",
    "CloudEvent",
    "CloudEventsMapping",
    "CommitInfo",
    "CommitShown",
    "Comparison",
    "ConflictInfo",
    "ConnectionStats",
    "ContextChanges",
    "ContextCopied",
    "ContextEntry",
    "ContextExported",
    "ContextGathered",
    "ContextImported",
    "ContextPulled",
    "ContextPushed",
    "ContextRead",
    "ContextSourceRef",
    "ContextStatus",
    "ConventionGroup",
    "ConventionNames",
    "ConventionsDefined",
    "Css",
    "CustomSelector",
    "Cutting",
    "DatabasePerformance",
    "Definition",
    "DefinitionRead",
    "DeliveryInfo",
    "DeliveryList",
    "Differences",
    "DocumentDeleted",
    "DocumentInfo",
    "DocumentList",
    "DocumentPut",
    "DocumentText",
    "DocumentsPut",
    "DomainDeleted",
    "DomainInfo",
    "DomainLeft",
    "DomainList",
    "Done",
    "EntriesRead",
    "EntryDeleted",
    "EntryDifference",
    "EntryRead",
    "EntryWritten",
    "Event",
    "Events",
    "EverythingFound",
    "Finding",
    "Forgotten",
    "FoundPassage",
    "Guidance",
    "History",
    "HistoryPruned",
    "Hygiene",
    "InspectedEntry",
    "InspectedMemory",
    "Inspection",
    "ItemRedacted",
    "JsonPointer",
    "JsonSchemaMapping",
    "KeyConvention",
    "KeyDiff",
    "KeyDifference",
    "KeyInfo",
    "Keys",
    "Knowledge",
    "LineRange",
    "LineState",
    "Link",
    "ListedRecord",
    "Log",
    "McpMapping",
    "MediaTimeRange",
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
    "Messages",
    "MessagesBySender",
    "MessagesByTime",
    "MissingInfo",
    "MissingListed",
    "MissingReported",
    "MissingRequested",
    "MissingResolved",
    "ModelApiMapping",
    "ModelComparison",
    "ModelInfo",
    "ModelList",
    "MoveInfo",
    "NamingRecord",
    "NewDocument",
    "NotTaken",
    "OfferedCall",
    "OpenTelemetryMapping",
    "OperationFigures",
    "OtherMapping",
    "PageRegion",
    "PastEntry",
    "PastVersion",
    "Pending",
    "Performance",
    "PerformanceTargets",
    "PerformanceTrends",
    "PolicyDeleted",
    "PolicyInfo",
    "PolicyList",
    "PoolStats",
    "PossibleSource",
    "ProvMapping",
    "PruningInfo",
    "Prunings",
    "PulledContext",
    "RecordAdvanced",
    "RecordSchema",
    "RecordShown",
    "Records",
    "RecordsAdded",
    "RedactionInfo",
    "ReindexingShown",
    "RememberedEntry",
    "Replayed",
    "RequestInfo",
    "Resolution",
    "ResourceInfo",
    "RetentionCleared",
    "RetentionRule",
    "RetentionRuleList",
    "ReviewAbandoned",
    "ReviewInfo",
    "ReviewResolved",
    "Reviews",
    "RolledBack",
    "SearchResult",
    "SearchResults",
    "SessionArchivedAt",
    "SessionConfig",
    "SessionCreated",
    "SessionDeleted",
    "SessionFound",
    "SessionInfo",
    "SessionOverview",
    "SessionResourceInfo",
    "SessionStatistics",
    "Sessions",
    "Side",
    "SimilarFound",
    "SnapshotDeleted",
    "SnapshotInfo",
    "SnapshotList",
    "SnapshotListed",
    "SnapshotRead",
    "SnapshotRestored",
    "SnapshotTaken",
    "Snapshots",
    "SourceAdded",
    "SourceAsked",
    "SourceInfo",
    "SourceList",
    "SourceRemoved",
    "SourceResolved",
    "StoredEntry",
    "Switched",
    "Synced",
    "SystemInfo",
    "SystemPerformance",
    "TextPosition",
    "TextQuote",
    "TextsEmbedded",
    "TimeRange",
    "TokenIssued",
    "UsageGuidance",
    "Verified",
    "VisibilityChanged",
    "WebAnnotationMapping",
    "WebhookCreated",
    "WebhookDeleted",
    "WebhookInfo",
    "WebhookTested",
    "Webhooks",
    "XPath",
]
