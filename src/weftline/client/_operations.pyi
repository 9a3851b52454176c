# Written by scripts/generate.py from the operation registry; change the operations instead.
"""Every operation as a method: async, and blocking."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from weftline.access.audit import AuditLog
from weftline.access.operations import AgentCreated, AgentUpdated, ApiKeyCreated, ApiKeyList, TokenIssued
from weftline.client._calling import Caller, SyncCaller
from weftline.exchange.lineage_operations import ItemForgotten, ItemTraced
from weftline.exchange.missing_context_operations import (
    MissingListed,
    MissingReported,
    MissingRequested,
    MissingResolved,
    PossibleSource,
)
from weftline.exchange.record_log.add import LifecycleSet, RecordsAdded
from weftline.exchange.record_log.list_records import Records
from weftline.exchange.record_log.redact import ItemRedacted, ItemRevealed
from weftline.exchange.record_log.resolve_source import SourceResolved
from weftline.exchange.record_log.show import RecordSchema, RecordShown
from weftline.exchange.transfer.export import ContextExported
from weftline.exchange.transfer.importer import ContextImported
from weftline.exchange.transfer.policies import PolicyDeleted, PolicyInfo, PolicyList
from weftline.exchange.transfer.policy_filter import PolicyDefinition
from weftline.history.branches import BranchDeleted, Branches, BranchInfo, Switched
from weftline.history.diff import Differences
from weftline.history.log import Blamed, CommitShown, ContextState, Log
from weftline.history.merge_operations import Merged
from weftline.history.merge_reviews import ConflictResolution, ReviewDropped, ReviewInfo, ReviewResolved, Reviews
from weftline.history.retention import HistoryPruned, PruneLog, RetentionCleared, RetentionRule, RetentionRuleList
from weftline.history.rollback import RolledBack
from weftline.history.snapshots import SnapshotDeleted, SnapshotList, SnapshotTaken
from weftline.history.verify import Bisected, Verified
from weftline.indexing.chunking.model import ChunkingOptions
from weftline.indexing.embeddings import EmbeddedTexts
from weftline.indexing.operations import ModelList, ModelMigrationInfo
from weftline.insight.alerts.operations import AlertInfo, AlertList
from weftline.insight.guidance import PlanShown, UsageGuidance
from weftline.insight.metrics import Performance
from weftline.insight.recommendations.model import ProposedSettings
from weftline.insight.recommendations.operations import AdviceList, AdviceShown, AdviceTried
from weftline.insight.usage import UsageExported, UsageReported
from weftline.kernel.operation import Success
from weftline.knowledge.document_operations import DocumentPut, DocumentsPut, NewDocument
from weftline.knowledge.document_queries import DocumentDeleted, DocumentList, DocumentText
from weftline.knowledge.document_review import DocumentDiscarded
from weftline.knowledge.documents import DocumentInfo
from weftline.knowledge.domain_operations import DomainDeleted, DomainDetails, DomainInfo, DomainList
from weftline.knowledge.source_operations import SourceAdded, SourceInfo, SourceList, SourceRemoved, SyncRequested
from weftline.knowledge.templates.model import DomainTemplate
from weftline.knowledge.templates.operations import TemplateInfo, TemplateList
from weftline.models.operations import BudgetDeleted, BudgetInfo, BudgetList
from weftline.prompts.assembly.get_context import ContextResponse
from weftline.prompts.assembly.operations import PromptAssembled
from weftline.prompts.assembly.receipt_operations import PromptReplayed, ReceiptList, ReceiptShown, SavingsReport
from weftline.prompts.assembly.usage_report import MetricsEmitted
from weftline.prompts.assembly.validate_operation import PromptValidated
from weftline.prompts.gateway.operations import ServerInfo, ServerList, ToolCalled
from weftline.prompts.tools.catalogue import ToolDescription, ToolsFound
from weftline.prompts.tools.operations import (
    RegisteredToolList,
    StepInfo,
    StepList,
    ToolDraft,
    ToolsRegistered,
    ToolsSelected,
)
from weftline.safety.approvals.operations import ApprovalDecided, ApprovalList, ApprovalShown
from weftline.safety.guardrails.model import Guardrail
from weftline.safety.trust.model import TrustPolicy
from weftline.search.domain_evaluation import EvaluationInfo
from weftline.search.entity_operations import EntityListing
from weftline.search.operations import SearchResponse, SimilarResponse
from weftline.search.pin_operations import PinInfo, PinList, PinRemoved
from weftline.search.reindex import ReindexStatus
from weftline.sessions.agent_directory import AgentList
from weftline.sessions.events.operations import (
    DeliveryList,
    Events,
    WebhookCreated,
    WebhookDeleted,
    WebhookInfo,
    WebhookList,
    WebhookReplayed,
    WebhookTested,
)
from weftline.sessions.member_operations import AgentReinstated, MembersAdded, MembersRemoved
from weftline.sessions.messages.inbox_operations import InboxPage
from weftline.sessions.messages.operations import MessageAdded, Messages, VisibilityChanged
from weftline.sessions.messages.search_operations import MessagesBySender, MessagesByTime, MessageSearchResponse
from weftline.sessions.messages.session_overview import SessionFound, SessionOverview
from weftline.sessions.model import SessionConfig
from weftline.sessions.operations import SessionArchivedAt, SessionCreated, SessionDeleted, SessionList
from weftline.sessions.team_operations import MemberChanged, TeamDeleted, TeamInfo, TeamList, TeamShown
from weftline.state.agent_context.copy_context import ContextCopied
from weftline.state.agent_context.definitions import AgentDefined, DefinitionRead
from weftline.state.agent_context.pull import ContextPulled, ContextRead, ContextStatus
from weftline.state.agent_context.push import ContextPushed, Knowledge, RemovedKey
from weftline.state.agent_context.settings import AlertSettings, CompactionSettings, ProxySettings
from weftline.state.board.admin_view import Inspection
from weftline.state.board.check import BoardCheck
from weftline.state.board.guidance import ConventionGroup, ConventionNames, ConventionsDefined, Guidance
from weftline.state.board.operations import (
    Comparison,
    EntriesRead,
    EntryDeleted,
    EntryRead,
    EntryWritten,
    KeyHistory,
    Keys,
    SnapshotInfo,
    SnapshotRead,
    SnapshotRestored,
    Snapshots,
)
from weftline.state.layers.guardrail_operations import GuardrailList, GuardrailsChecked, GuardrailsTested, SampleCounts
from weftline.state.layers.operations import LayerDefined, LayerList, LayersShown
from weftline.state.memory.operations import (
    MemoryDeleted,
    MemoryFound,
    MemoryInspected,
    MemoryListed,
    MemoryOverview,
    MemorySet,
)
from weftline.windows.checkpoints import Checkpoint, CheckpointBranched, CheckpointRestored, Checkpoints
from weftline.windows.compaction.operations import (
    CompactionDropped,
    CompactionExpanded,
    CompactionList,
    CompactionShown,
    ContextCompacted,
    FactList,
)
from weftline.windows.compaction.views import CompactionInfo
from weftline.windows.conversations.operations import OutputOpened, ProxiedCallList, ProxySettingsShown
from weftline.windows.ingest import Ingested, NewWindowEvent
from weftline.windows.operations import WindowDeleted, WindowEventPopped, WindowEvents, WindowList
from weftline.windows.shared_windows import EventsReleased, WindowRefreshed, WindowRoutes
from weftline.windows.views import WindowView

class AdviseOperations:
    """The advise operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(self, *, agent_id: str | None = None, calls: int = 50) -> AdviceList:
        """List what would make prompts smaller or cheaper, with what the last calls would have saved.

        Each recommendation was tried by planning these calls again: compaction, shares of the window, models, tools
        never called, documents, pins and board keys that no answer uses, copies, outdated context.
        """
    async def show(self, recommendation_id: str, *, calls: int = 50) -> AdviceShown:
        """Show a recommendation: its evidence, what it would have saved, and the command that makes the change."""
    async def try_(
        self,
        *,
        recommendation_id: str | None = None,
        agent_id: str | None = None,
        settings: ProposedSettings | Mapping[str, Any] | None = None,
        calls: int = 50,
        receipt_id: str | None = None,
    ) -> AdviceTried:
        """Try a recommendation, or settings of your own, on the last calls before anything is switched.

        The calls are planned again by the planner that made them, from their receipts: tokens, money, cache, and which
        items that the answers used are kept or lost. The assumptions of the trial say what is not replayed.
        """

class AgentOperations:
    """The agent operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def define(
        self,
        agent_id: str,
        *,
        role: str | None = None,
        system_prompt: str | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
        config: Mapping[str, Any] | None = None,
        if_version: int | None = None,
        critical: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> AgentDefined:
        """Set the definition of an agent: role, system prompt, guardrails and configuration.

        For its parent agents, and for humans with clearance 3 or higher and at least that of the agent; never for
        itself. A running session keeps the definition it pulled until it pulls again; guardrails hold from the next
        call.
        """
    async def read_definition(self, agent_id: str, *, version: str | int = "head") -> DefinitionRead:
        """Read a version of the definition of an agent: your own, or that of an agent you may edit."""
    async def create(
        self,
        agent_id: str,
        *,
        agent_type: str | None = None,
        kind: Literal["agent", "human"] = "agent",
        parent_id: str | None = None,
        clearance: int = 1,
        permissions: Sequence[Literal["read", "write", "admin", "audit"]] = ("read", "write"),
        min_score: float | None = None,
        instructions: str | None = None,
        exist_ok: bool = False,
    ) -> AgentCreated:
        """Create an agent or a human, with an API key that is shown only once. For admins and orchestrators.

        An agent whose parent is an agent is a sub-agent and writes as ``subagent:{type}`` (or ``subagent:{type}:{id}``
        if its id differs from its type); any other agent is an orchestrator and writes as ``orchestrator:{id}``. You
        cannot grant more than you have, and an agent can create only its own descendants: below itself, or below an
        agent that is below it. If you are in a step of a task, its key is bound to the same step.
        """
    async def update(
        self,
        agent_id: str,
        *,
        permissions: Sequence[Literal["read", "write", "admin", "audit"]] | None = None,
        clearance: int | None = None,
        disabled: bool | None = None,
        min_score: float | None = None,
        parent_id: str | None = None,
    ) -> AgentUpdated:
        """Change a principal's permissions or clearance, disable or move it. Takes effect on its next call.

        Disabling it disables everything below it; enabling it enables exactly that again. Human admins may change
        principals up to their own clearance, orchestrators only their descendants. Nobody can change itself or grant
        more than it has.
        """
    async def list(self, *, session_id: str | None = None, after: str | None = None, limit: int = 100) -> AgentList:
        """List the agents and humans you may address: the members of a session, or your tree and your teams.

        Your tree: those above and below you, and those with the same parent. Admins see the whole tenant.
        """
    async def capabilities(
        self,
        *,
        guidance_type: Literal[
            "operations",
            "coordination",
            "security",
            "troubleshooting",
            "sessions",
            "board",
            "messages",
            "memory",
            "search",
            "assembly",
            "windows",
            "compaction",
            "knowledge",
            "indexing",
            "history",
            "branches",
            "retention",
            "records",
            "missing",
            "agents",
            "approvals",
            "guardrails",
            "trust",
            "insight",
            "admin",
        ] = "operations",
    ) -> UsageGuidance:
        """Get your role, what to do first and the topics of guidance, or one topic: its operations and advice."""

class AlertsOperations:
    """The alerts operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(
        self,
        *,
        state: Literal["active", "open", "acknowledged", "resolved", "all"] = "active",
        condition: Literal[
            "context.overload",
            "efficiency.low",
            "budget.near",
            "budget.exceeded",
            "quota.near",
            "index.damaged",
            "quality.dropped",
        ]
        | None = None,
        agent_id: str | None = None,
        digest_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AlertList:
        """List alerts: about you and the agents below you; for admins all. Those of many agents are one, a digest."""
    async def acknowledge(self, alert_id: str) -> AlertInfo:
        """Acknowledge an alert: you look into it. It stays active until it is resolved."""
    async def resolve(self, alert_id: str) -> AlertInfo:
        """Resolve an alert; a digest with all alerts in it. Only later calls of the agent open it again."""

class ApprovalOperations:
    """The approval operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(
        self,
        *,
        state: Literal["pending", "approved", "performed", "rejected", "expired"] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> ApprovalList:
        """List calls that wait for approval or were decided: all for approvers, otherwise your own."""
    async def show(self, approval_id: str) -> ApprovalShown:
        """Show a held call with its request; its caller also sees the answer. Views of others are audited."""
    async def approve(self, approval_id: str, *, reason: str | None = None) -> ApprovalDecided:
        """Approve a held call: it is performed once, as its caller, past the check that held it."""
    async def reject(self, approval_id: str, *, reason: str | None = None) -> ApprovalDecided:
        """Reject a held call: it is never performed, and its caller is told."""

class AuditOperations:
    """The audit operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(
        self,
        *,
        before: str | None = None,
        outcome: Literal["done", "denied", "refused", "held"] | None = None,
        action: str | None = None,
        agent_id: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 100,
    ) -> AuditLog:
        """Read the tenant's audit log: every denial, every refused credential and administrative change, newest first.

        Rows about knowledge domains that you may not read show only who did what, and when.
        """

class BoardOperations:
    """The board operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list_keys(
        self, session_id: str, *, prefix: str | None = None, values: bool = False, branch: str | None = None
    ) -> Keys:
        """List the keys of the board with sizes, to choose what to read; with ``values``, read them at once."""
    async def read(self, session_id: str, key: str, *, branch: str | None = None) -> EntryRead:
        """Read one entry."""
    async def read_batch(self, session_id: str, keys: Sequence[str], *, branch: str | None = None) -> EntriesRead:
        """Read several entries from one consistent state in one call."""
    async def write(
        self,
        session_id: str,
        key: str,
        value: str | int | float | bool | Sequence[Any] | Mapping[str, Any] | None,
        *,
        if_version: int | None = None,
        ttl_seconds: int | None = None,
        readable_by: Sequence[str] | None = None,
        writable_by: Sequence[str] | None = None,
        branch: str | None = None,
        reason: str | None = None,
        step: str | None = None,
        derived_from: Sequence[str] = (),
    ) -> EntryWritten:
        """Create or overwrite one entry: conclusions and state that others need, not raw data.

        The last write wins unless ``if_version`` names the version to replace.
        """
    async def delete(
        self,
        session_id: str,
        key: str,
        *,
        if_version: int | None = None,
        branch: str | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> EntryDeleted:
        """Delete an entry that is no longer relevant."""
    async def read_history(
        self,
        session_id: str,
        key: str,
        *,
        versions: Sequence[int] | None = None,
        incarnation: int | None = None,
        branch: str | None = None,
    ) -> KeyHistory:
        """Read the earlier versions of a key: values, authors and times."""
    async def snapshot(self, session_id: str, label: str, *, branch: str | None = None) -> SnapshotInfo:
        """Name the current state of the whole board, to read, compare or restore it later."""
    async def list_snapshots(self, session_id: str, *, branch: str | None = None) -> Snapshots:
        """List the board's snapshots."""
    async def read_snapshot(self, session_id: str, label: str, *, branch: str | None = None) -> SnapshotRead:
        """Read the board as of a snapshot."""
    async def compare_snapshots(
        self, session_id: str, from_label: str, *, to_label: str | None = None, branch: str | None = None
    ) -> Comparison:
        """Compare two snapshots, or a snapshot with the current board."""
    async def restore_snapshot(
        self,
        session_id: str,
        label: str,
        *,
        branch: str | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> SnapshotRestored:
        """Return the whole board to a snapshot. Needs clearance 3.

        History is not rewritten: the restore adds new versions, and the state before it gets an automatic snapshot.
        """
    async def guidance(
        self,
        *,
        session_id: str | None = None,
        conventions: str | None = None,
        part: Literal["all", "conventions", "writing", "reading"] = "all",
    ) -> Guidance:
        """Get the text for an agent's system prompt that explains how to use the board."""
    async def check(
        self, session_id: str, *, branch: str | None = None, stale_hours: float = 168.0, unread_hours: float = 1.0
    ) -> BoardCheck:
        """Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys."""

class BudgetOperations:
    """The budget operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def set(
        self,
        subject: str,
        period: Literal["day", "month"],
        *,
        tokens: int | None = None,
        cost: float | None = None,
        at_limit: Literal["warn", "downgrade", "refuse"] = "warn",
        warn_at: float = 0.8,
        tree_share: float | None = None,
        agent_share: float | None = None,
    ) -> BudgetInfo:
        """Limit what a tenant, a team or an agent spends in a day or month. For admins.

        What was already spent in the period counts, also if the budget is new. With shares, one tree of agents or one
        agent cannot spend what is for all: at its share, what ``at_limit`` says happens to it alone.
        """
    async def list(self, *, agent_id: str | None = None, limit: int = 100, cursor: str | None = None) -> BudgetList:
        """List the budgets that limit you, or an agent below you, with what is spent; as an admin, all."""
    async def delete(self, subject: str, period: Literal["day", "month"]) -> BudgetDeleted:
        """Delete a budget with what was spent of it. For admins."""

class BundleOperations:
    """The bundle operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def export(
        self,
        *,
        session_id: str | None = None,
        scope: Literal["session", "turn", "task", "tool_invocation", "review", "handoff"] = "session",
        turn_id: str | None = None,
        task_id: str | None = None,
        tool_call_id: str | None = None,
        review_id: str | None = None,
        recipient: str | None = None,
        policy: str | None = None,
        format: Literal["ndjson", "json", "prov"] = "ndjson",
        history: bool | None = None,
    ) -> ContextExported:
        """Export a session, turn, task, tool call, review or handoff as one bundle of records.

        It contains what you may read and the export policy allows. The export itself is recorded. Another Weftline
        imports the bundle with ``weftline import``, under the same ids. Up to 1 MiB; stream larger exports with
        ``weftline export``.
        """
    async def import_(
        self, bundle: str, *, expected_digest: str | None = None, session_id: str | None = None, dry_run: bool = False
    ) -> ContextImported:
        """Import a bundle that this or another Weftline exported: all of it, or nothing.

        A session is restored with its id, all board versions, messages and events, under the names of their authors;
        this is why only admins may import. An altered bundle is rejected with the line of the first change. If the
        session id is taken, such as by an earlier handoff, pass another ``session_id``.
        """

class CompactionOperations:
    """The compaction operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(
        self, session_id: str, *, agent_id: str | None = None, limit: int = 10, cursor: str | None = None
    ) -> CompactionList:
        """List the compactions of a window, newest first: state, strategy, tokens before and after, facts."""
    async def show(
        self, compaction_id: str, *, limit: int = 2, offset: int = 0, originals: bool = True
    ) -> CompactionShown:
        """Show a compaction: each summary next to its original events, what was dropped and why, and the key facts.

        One that is held for review is also open to the humans who may approve it. Their views are audited.
        """
    async def expand(
        self,
        session_id: str,
        ids: Sequence[str],
        *,
        agent_id: str | None = None,
        compaction_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> CompactionExpanded:
        """Read the original events of summaries or key facts, such as when a summary lacks a detail that you need."""
    async def facts(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        kind: Literal[
            "decision",
            "commitment",
            "constraint",
            "requirement",
            "preference",
            "open_question",
            "blocker",
            "owner",
            "deadline",
            "fact",
            "error",
            "pending_call",
            "identifier",
            "quantity",
            "date",
            "path",
            "url",
            "symbol",
            "quote",
        ]
        | None = None,
        status: Literal["current", "superseded", "resolved"] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> FactList:
        """List the key facts of a window with their sources: decisions, constraints, open questions, names and numbers.

        A later decision supersedes an earlier one. Facts of events since the last compaction are included.
        """
    async def apply(self, compaction_id: str) -> CompactionInfo:
        """Apply a compaction that is held for review. It is applied when its review is approved, or by an approver."""
    async def drop(self, session_id: str, *, agent_id: str | None = None) -> CompactionDropped:
        """Return to the original events of a window. Compact it again to undo this."""

class ContextOperations:
    """The context operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def ingest(
        self, session_id: str, events: Sequence[NewWindowEvent | Mapping[str, Any]], *, agent_id: str | None = None
    ) -> Ingested:
        """Add events of your conversation to your window: messages, tool calls and their results, workflow events.

        Idempotent by event_id: sending an event again changes nothing. The window is made with its first event. System
        text comes from your definition: your own system events are refused, or data if you add others with them.
        """
    async def compact(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        strategy: Literal["auto", "sliding_window", "key_facts", "hierarchical", "task_scoped"] | None = None,
        target: float | None = None,
        keep_recent: int | None = None,
        wait_seconds: float = 10.0,
    ) -> ContextCompacted:
        """Compact your window: prompts get summaries and key facts in place of older events, which stay in history.

        Every decision, constraint, open question, number and name is checked to be in the result, or kept next to it.
        """
    async def assemble(
        self,
        session_id: str,
        task_description: str,
        *,
        token_budget: int | None = None,
        agent_id: str | None = None,
        model: str | None = None,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"] = "neutral",
        messages: Sequence[Any] | None = None,
        system: object = None,
        tools: Sequence[Any] | Literal["auto"] | None = None,
        domains: Sequence[str] | None = None,
        min_score: float | None = None,
        cache_ttl: str | None = None,
        omit_secrets: bool = False,
        data_marking: Literal["delimit", "words"] = "delimit",
        fresh: bool = False,
    ) -> PromptAssembled:
        """Assemble the prompt for your next model call: the smallest that carries everything that matters for the task.

        Layers, pins, your conversation, relevant passages, the board and open questions, within the token budget,
        ordered so that provider caches hit. The receipt says what was left out and why, and can show the prompt again.
        """
    async def emit_metrics(
        self,
        session_id: str,
        receipt_id: str,
        usage: Mapping[str, Any],
        *,
        model: str | None = None,
        latency_ms: float | None = None,
        quality_score: float | None = None,
        response_id: str | None = None,
        answer: str | Mapping[str, Any] | Sequence[Any] | None = None,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
    ) -> MetricsEmitted:
        """Report a model call: the provider's usage, and the answer, to learn how much of the prompt was used."""
    async def validate_prompt(
        self,
        receipt_id: str,
        body: Mapping[str, Any],
        *,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"] = "neutral",
    ) -> PromptValidated:
        """Check a prompt right before you send it to the model: it must be the assembled one.

        Layers present, in order, unaltered and still those of the session; texts of others unchanged and marked;
        nothing in the system prompt but the layers and what those above the agent wrote; no other tools; no attack in
        turns and fields added. If not, the call fails and must not be sent.
        """
    async def push(
        self,
        knowledge: Sequence[Knowledge | Mapping[str, Any]],
        *,
        remove: Sequence[RemovedKey | Mapping[str, Any]] = (),
        owner: str | None = None,
        agent_id: str | None = None,
        if_version: int | None = None,
        session_id: str | None = None,
        reason: str | None = None,
        step: str | None = None,
        branch: str | None = None,
    ) -> ContextPushed:
        """Write entries to your persistent memory, or to that of a team or user: all of them, or none.

        If the context has changed since the expected version, nothing is written and the error lists the changes: pull,
        merge, push again. A session has the new entries after its next pull. A push cannot change your definition
        (role, system prompt, guardrails, clearance).
        """
    async def pull(self, session_id: str, *, agent_id: str | None = None, branch: str | None = None) -> ContextPulled:
        """Pin your latest context, your teams' memory and the layers in a session as an immutable snapshot.

        The answer lists what changed since the previous snapshot. Prompts and searches of the session use this one,
        whatever is pushed or edited, until you pull again.
        """
    async def read(
        self,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        memory_type: Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        | None = None,
        key: str | None = None,
        workflow_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ContextRead:
        """Read your persistent memory: its current version or, with a session, your snapshot there.

        With owner, the memory of a team or user instead. With a key, the answer has that entry with its full value,
        even if it is in object storage.
        """
    async def status(
        self,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        branch: str | None = None,
    ) -> ContextStatus:
        """Return the current version of your context, or of a team or user, and the one that your session has."""
    async def copy(
        self,
        agent_id: str,
        from_agent_id: str,
        *,
        version: str | int = "head",
        memory_types: Sequence[
            Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        ] = ("conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"),
        reason: str | None = None,
        step: str | None = None,
    ) -> ContextCopied:
        """Replace an agent's persistent memory by a version of another agent's. Definitions are not copied.

        Needs clearance 4 and the right to edit both agents. The replaced version is tagged, so that it can be restored.
        """

class ConventionsOperations:
    """The conventions operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def define(self, name: str, groups: Sequence[ConventionGroup | Mapping[str, Any]]) -> ConventionsDefined:
        """Define the keys a domain's agents agree on; sessions name them in their config."""
    async def list(self) -> ConventionNames:
        """List the key conventions that sessions can name."""

class ConversationOperations:
    """The conversation operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def settings(self, *, agent_id: str | None = None) -> ProxySettingsShown:
        """Show what the model proxy may change in calls of an agent: of its definition, its teams and the tenant.

        Set it with the configuration `proxy` of an agent, or the field `proxy` of a layer.
        """
    async def open(
        self, handle: str, *, agent_id: str | None = None, first_line: int | None = None, last_line: int | None = None
    ) -> OutputOpened:
        """Read the whole text of a result that the model proxy or the gateway shortened, or some lines of it."""
    async def calls(
        self, *, agent_id: str | None = None, session_id: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> ProxiedCallList:
        """List the receipts of calls through the model proxy, the latest first: tokens, cost, and net savings."""

class EntityOperations:
    """The entity operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(
        self,
        *,
        session_id: str | None = None,
        domain: str | None = None,
        type: Literal["person", "agent", "project", "file", "identifier", "date", "url", "email"] | None = None,
        query: str | None = None,
        limit: int = 50,
    ) -> EntityListing:
        """List people, agents, projects, files, identifiers, dates, URLs and e-mail addresses in what you may see.

        Counted over the newest 1,000 passages with entities, or over all that mention an entity named exactly by query.
        """

class EventsOperations:
    """The events operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def read(
        self,
        *,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        types: Sequence[str] = ("*",),
        personal: bool = False,
        addressed: bool = False,
        after: int | None = None,
        wait_seconds: float = 0.0,
        format: Literal["native", "cloudevents"] = "native",
    ) -> Events:
        """Read events from an offset, waiting for the next one if there is none yet.

        Events are ordered and none is lost: repeat the call with ``after`` set to the ``next_after`` of the last
        answer. If ``after`` is older than the log's retention, ``pruned_through`` says which events are missing.
        """

class GatewayOperations:
    """The gateway operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def add(
        self,
        name: str,
        *,
        command: str | None = None,
        url: str | None = None,
        variables: Mapping[str, str] = {},
        agents: Sequence[str] = ("*",),
        answer_tokens: int = 4000,
        connection: Literal["agent", "tenant"] = "agent",
        cache_seconds: int = 0,
    ) -> ServerInfo:
        """Put an MCP server behind Weftline: agents find and call its tools as NAME__TOOL.

        The server is started or called to ask for its tools. Adding it approves them as they are now, except those
        whose description looks like an attack; tools that it adds or changes later are held until `gateway.approve`.
        """
    async def list(self) -> ServerList:
        """List the MCP servers of the gateway, with the number of their tools by state."""
    async def get(self, name: str) -> ServerInfo:
        """Show an MCP server with its tools: which are approved, held or quarantined, and why."""
    async def refresh(self, name: str) -> ServerInfo:
        """Ask a server for its tools now. New and changed ones are held until `gateway.approve`."""
    async def approve(self, name: str, *, tools: Sequence[str] = ()) -> ServerInfo:
        """Approve the held tools of a server as they are now.

        A quarantined tool is approved only by its name, and the call is held for a human, who sees what was detected.
        """
    async def remove(self, name: str) -> Success:
        """Remove a server with its tools and its secrets."""
    async def call(self, name: str, *, arguments: Mapping[str, Any] = {}) -> ToolCalled:
        """Call a tool of an MCP server of the gateway. MCP clients call it by its name, as in github__search."""

class GuardrailOperations:
    """The guardrail operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def list(self, *, agent_id: str | None = None, cursor: str | None = None) -> GuardrailList:
        """List the guardrails that hold for you or an agent you may edit; those who read layers: of all layers.

        Those of agents are listed with agent_id. Hits are counted within seconds.
        """
    async def test(
        self,
        tool: str,
        *,
        arguments: Mapping[str, Any] = {},
        agent_id: str | None = None,
        session_id: str | None = None,
        step: str | None = None,
        answer: object = None,
        calls: SampleCounts | Mapping[str, Any] | None = None,
        labels: Sequence[Literal["secret", "pii", "injection", "untrusted"]] | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
    ) -> GuardrailsTested:
        """Test guardrails against a sample call: which of them it violates, and what would happen. Nothing is changed.

        For clearance 3 and for admins. Give guardrails to test rules before you define them.
        """
    async def check(
        self,
        tool: str,
        *,
        arguments: Mapping[str, Any] = {},
        session_id: str | None = None,
        step: str | None = None,
        answer: object = None,
    ) -> GuardrailsChecked:
        """Check a call of a tool that is not Weftline's before you make it, or with its answer; an error prohibits it.

        For runtimes: the rules of your layers, and the step you are in, hold for your other tools too, such as
        github.*.
        """

class HistoryOperations:
    """The history operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def log(
        self, context_id: str, *, key: str | None = None, before_version: str | int | None = None, limit: int = 50
    ) -> Log:
        """Read the commits of a context, newest first: author, time, reason and changed keys."""
    async def show(
        self, context_id: str, *, version: str | int = "head", cursor: str | None = None, limit: int = 200
    ) -> CommitShown:
        """Show one commit: its changes and its parent."""
    async def state(
        self,
        context_id: str,
        *,
        version: str | int = "head",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 200,
    ) -> ContextState:
        """Read the state of a context at any version. For context:AGENT, these are its entries as PART/KEY.

        Values in object storage, and those that do not fit in the response, are returned only if you name the key.
        """
    async def blame(
        self,
        context_id: str,
        *,
        version: str | int = "head",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 200,
    ) -> Blamed:
        """Show who last changed each entry as of a version, when, why and in which workflow step."""
    async def diff(
        self,
        context_id: str,
        from_version: str | int,
        *,
        to_version: str | int = "head",
        other_context_id: str | None = None,
        text: bool = True,
        words: bool = False,
    ) -> Differences:
        """Compare two versions: added, removed and modified entries, with a diff of their values."""
    async def verify(self, context_id: str, *, deep: bool = False) -> Verified:
        """Recompute every hash of a context, to prove that nothing was altered since it was written."""
    async def bisect(
        self, context_id: str, key: str, contains: str, *, from_version: str | int = "0", to_version: str | int = "head"
    ) -> Bisected:
        """Find the first version in which a key contains a text, by binary search up to to_version.

        to_version must contain the text, and every version after the first must too. For context:AGENT, name an entry
        PART/KEY.
        """
    async def snapshot(self, context_id: str, label: str) -> SnapshotTaken:
        """Name the current version of a context, to compare with it or to roll back to it. Needs clearance 3."""
    async def delete_snapshot(self, context_id: str, label: str) -> SnapshotDeleted:
        """Delete a snapshot, so that retention may remove values only it needs. Needs clearance 3."""
    async def snapshots(
        self, *, context_id: str | None = None, agent_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> SnapshotList:
        """List the snapshots of every context you may read, newest first; a sub-agent names those of its session."""
    async def context_snapshots(self, context_id: str, *, cursor: str | None = None, limit: int = 50) -> SnapshotList:
        """List the snapshots of one context, newest first."""
    async def rollback(
        self,
        context_id: str,
        target_version: str | int,
        *,
        if_version: int | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> RolledBack:
        """Return a context to an earlier version. History is not rewritten: the rollback is a new version.

        Needs clearance 3, 4 for persistent memory, 5 for the tenant's layer. With `rollback_by_tree` in the tenant's
        policy, an agent may roll back the memory and the definition of agents below it with any clearance that is not
        below theirs.
        """
    async def branch(self, context_id: str, branch: str, *, from_version: str | int = "head") -> BranchInfo:
        """Start a branch from any version of a context, to try something without changing the context itself."""
    async def branches(self, context_id: str) -> Branches:
        """List the branches of a context, including branches of branches."""
    async def switch(self, context_id: str, *, branch: str | None = None) -> Switched:
        """Switch to a branch. Affects only your own calls that do not name a branch."""
    async def delete_branch(self, context_id: str, branch: str, *, force: bool = False) -> BranchDeleted:
        """Delete a branch. Merged changes stay where they were merged."""
    async def merge(
        self, context_id: str, from_context_id: str, *, reason: str | None = None, step: str | None = None
    ) -> Merged:
        """Merge the changes of another context into this one. If both changed the same keys, a human decides.

        Works in both directions: a branch into its context, and the context into its branch.
        """
    async def reviews(
        self,
        *,
        context_id: str | None = None,
        state: Literal["open", "resolved", "abandoned", "superseded"] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Reviews:
        """List merges that wait for a human or were decided, with the value on each side.

        A sub-agent names the context of its session.
        """
    async def review(self, review_id: str) -> ReviewInfo:
        """Read one merge review, with the value on each side."""
    async def resolve(
        self,
        review_id: str,
        resolutions: Mapping[str, ConflictResolution | Mapping[str, Any]],
        *,
        fingerprint: str | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> ReviewResolved:
        """Resolve a merge key by key. Only humans may, and only for the current values of both sides."""
    async def close_review(self, review_id: str) -> ReviewDropped:
        """Close a review without merging. Both contexts stay as they are."""
    async def set_retention(
        self,
        subject: str,
        *,
        days: Literal[30, 90, 365, "indefinite"] | None = None,
        versions: int | None = None,
        snapshot_from: int | None = None,
    ) -> RetentionRule:
        """Set how long old versions of a context, or of a kind of context, are kept. Omitted limits stay unchanged."""
    async def clear_retention(self, subject: str) -> RetentionCleared:
        """Delete a rule, so that a context follows its kind again, and a kind the default."""
    async def retention(self) -> RetentionRuleList:
        """List the retention rules."""
    async def prune(self, *, context_id: str | None = None) -> HistoryPruned:
        """Apply retention now instead of waiting for the daily run.

        Values that a snapshot, a branch or a session needs are never removed, and the log keeps every version.
        """
    async def prune_log(self, *, context_id: str | None = None, cursor: str | None = None, limit: int = 50) -> PruneLog:
        """Read what retention removed, newest first."""

class KeyOperations:
    """The key operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def create(
        self, agent_id: str, *, expires_in: int | None = None, tools: str | None = None, step: str | None = None
    ) -> ApiKeyCreated:
        """Create another API key for a principal that you may change. It is shown only once."""
    async def list(self, agent_id: str) -> ApiKeyList:
        """List a principal's API keys, without their secrets."""
    async def rotate(self, key_id: str) -> ApiKeyCreated:
        """Replace an API key. The new one is shown only once; the old one and its tokens are revoked at once.

        You may rotate your own keys and, as an admin or orchestrator, those of principals that you may change.
        """
    async def revoke(self, key_id: str) -> Success:
        """Revoke an API key, and every token issued for it, at once."""

class KnowledgeOperations:
    """The knowledge operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def create_domain(
        self,
        domain: str,
        *,
        template: str | DomainTemplate | Mapping[str, Any] | None = None,
        description: str | None = None,
        clearance: int = 1,
        agents: Sequence[str] = ("*",),
        writers: Sequence[str] = ("*",),
        chunking: ChunkingOptions | Mapping[str, Any] | None = None,
        importance: float = 0.5,
    ) -> DomainInfo:
        """Create a domain: a set of documents with common access rules, searched together.

        Needs the highest clearance, since name conflicts and quotas reveal the existence of other domains.
        """
    async def list_domains(self) -> DomainList:
        """List the domains you can see, with their documents and indexing progress."""
    async def show_domain(self, domain: str) -> DomainDetails:
        """Show a domain: description, access rules, indexing progress, and the evaluation of its example questions."""
    async def update_domain(
        self,
        domain: str,
        *,
        description: str | None = None,
        clearance: int | None = None,
        agents: Sequence[str] | None = None,
        writers: Sequence[str] | None = None,
        chunking: ChunkingOptions | Mapping[str, Any] | None = None,
        importance: float | None = None,
    ) -> DomainInfo:
        """Update a domain. Access rules take effect at once, also for searches.

        A change of chunking or importance reindexes all documents in the background; until a document is done, searches
        find its previous chunks.
        """
    async def delete_domain(self, domain: str) -> DomainDeleted:
        """Delete a domain permanently, with its documents and chunks."""
    async def reindex(self, domain: str, *, reembed: bool = False) -> DomainInfo:
        """Parse, chunk and index all documents of a domain again, in the background; searches continue to work.

        show_domain shows the progress. Unchanged chunks are not embedded again, unless ``reembed`` is set.
        """
    async def list_templates(self) -> TemplateList:
        """List the templates for domains that come with Weftline."""
    async def show_template(self, name: str) -> TemplateInfo:
        """Show a template: chunking, metadata fields, pinned documents, retention and example questions."""
    async def evaluate_domain(self, domain: str) -> EvaluationInfo:
        """Search a domain for the example questions of its template: which of them find their evidence, at which rank.

        Weftline does this by itself once documents are indexed; show_domain has the latest result.
        """
    async def add_document(
        self,
        domain: str,
        document_id: str,
        *,
        wait_seconds: float = 0.0,
        text: str | None = None,
        content: str | None = None,
        media_type: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        pinned: bool = False,
        importance: float | None = None,
        timestamp: datetime | None = None,
    ) -> DocumentPut:
        """Add a document to a domain, or replace the one with the same id.

        It is chunked, embedded and indexed in the background; until then searches find the previous version. With
        wait_seconds the call ends when it is indexed, and ``state`` says so.
        """
    async def add_documents(
        self, domain: str, documents: Sequence[NewDocument | Mapping[str, Any]], *, wait_seconds: float = 0.0
    ) -> DocumentsPut:
        """Add a batch of documents to a domain, atomically: all of them or none."""
    async def list_documents(
        self,
        domain: str,
        *,
        state: Literal["pending", "indexed", "failed", "quarantined"] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> DocumentList:
        """List the documents of a domain, by id, with their indexing state."""
    async def get_document(self, domain: str, document_id: str) -> DocumentInfo:
        """Show a document: its state, versions and chunks, and the error if indexing failed."""
    async def read_document(
        self, domain: str, document_id: str, *, start: int = 0, end: int | None = None, version: int | None = None
    ) -> DocumentText:
        """Read the text of a document, or a range of it, such as the range of a search result.

        A version that is not indexed, or not yet, can be read too. It is checked first, like before indexing.
        """
    async def delete_document(self, domain: str, document_id: str) -> DocumentDeleted:
        """Delete a document. Searches no longer find it."""
    async def release_document(self, domain: str, document_id: str, version: int) -> DocumentPut:
        """Release a document from quarantine, after you have read the passages for which it is held.

        It is indexed as it is. Called by an agent, it asks a human.
        """
    async def discard_document(self, domain: str, document_id: str, version: int) -> DocumentDiscarded:
        """Discard a document that is in quarantine: that version only, if searches find an earlier one."""
    async def reindex_all(self, *, reembed: bool = False) -> ReindexStatus:
        """Reindex everything searchable: documents, messages, boards and memories.

        Runs in the background, in batches; show_reindexing returns the progress. Everything stays searchable meanwhile.
        """
    async def show_reindexing(self) -> ReindexStatus:
        """Show what is being reindexed, and how much of it is left."""
    async def embed(
        self,
        *,
        text: str | None = None,
        texts: Sequence[str] | None = None,
        purpose: Literal["query", "passage"] = "passage",
        model: str | None = None,
    ) -> EmbeddedTexts:
        """Embed texts: vectors of texts with similar meaning are close to each other."""
    async def add_source(
        self,
        domain: str,
        kind: Literal["folder", "url", "hook"],
        *,
        folder: str | None = None,
        url: str | None = None,
        prefix: str = "",
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        every_seconds: int | None = None,
        watch: bool = False,
        secret: str | None = None,
    ) -> SourceAdded:
        """Add a source to a domain: a folder, a URL or a hook, whose documents are kept in sync."""
    async def list_sources(self, domain: str) -> SourceList:
        """List the sources of a domain, with the result of the last sync."""
    async def update_source(
        self,
        domain: str,
        source_id: str,
        *,
        enabled: bool | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        every_seconds: int | None = None,
        watch: bool | None = None,
    ) -> SourceInfo:
        """Change the schedule or the files of a source, or enable or disable it."""
    async def remove_source(self, domain: str, source_id: str, *, documents: bool = False) -> SourceRemoved:
        """Remove a source. Its documents stay, unless ``documents`` is set."""
    async def sync_source(self, domain: str, source_id: str, *, full: bool = False) -> SyncRequested:
        """Sync a source now. Only changed files are read and indexed, unless ``full`` is set."""
    async def list_models(self) -> ModelList:
        """List the embedding models that you may use, and which one searches use."""
    async def allow_models(self, models: Sequence[str]) -> ModelList:
        """Restrict which embedding models the tenant may use; an empty list lifts the restriction."""
    async def start_model_migration(
        self, model: str, *, shares: Sequence[float] = (0.1, 0.5), min_overlap: float = 0.3, keep_hours: int = 24
    ) -> ModelMigrationInfo:
        """Migrate searches to another embedding model: both are kept until the new one is on par.

        Then the new one answers a growing share of the queries, and at last all. If its answers differ too much, the
        migration is refused and the old one answers all queries again.
        """
    async def show_model_migration(self) -> ModelMigrationInfo:
        """Show the progress of the latest model migration, and how the two models compare."""
    async def cancel_model_migration(self) -> ModelMigrationInfo:
        """Cancel the model migration, or roll it back after the switch: searches use the old model, at once."""

class LayerOperations:
    """The layer operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def define(
        self,
        layer: str,
        *,
        text: str | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
        policy: TrustPolicy | Mapping[str, Any] | None = None,
        compaction: CompactionSettings | Mapping[str, Any] | None = None,
        alerts: AlertSettings | Mapping[str, Any] | None = None,
        proxy: ProxySettings | Mapping[str, Any] | None = None,
        if_version: int | None = None,
        critical: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> LayerDefined:
        """Set the policies of the tenant or the guidelines of a team, which begin the prompts of all their agents.

        For humans only: clearance 5 for the tenant; clearance 3 for a team, as a member or admin. Running sessions keep
        their version of the text until a pull; everything else holds from the next call.
        """
    async def show(self, *, agent_id: str | None = None, session_id: str | None = None) -> LayersShown:
        """Show the layers that begin your prompts, or those of an agent you may edit: level, version, hash and text.

        Guidelines of teams that you may not see are left out.
        """
    async def list(self, *, limit: int = 200, cursor: str | None = None) -> LayerList:
        """List the layers of the tenant and of your teams, without their texts. For clearance 3 and for admins."""

class MemoryOperations:
    """The memory operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def set(
        self,
        key: str,
        value: object,
        *,
        session_id: str | None = None,
        expires_in: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = True,
        if_version: int | None = None,
        derived_from: Sequence[str] = (),
        reason: str | None = None,
        step: str | None = None,
    ) -> MemorySet:
        """Store a value in your private memory: globally, or for one session.

        Only you can read it. The last write wins, unless you pass ``if_version`` or ``overwrite``.
        """
    async def get(self, key: str, *, session_id: str | None = None) -> MemoryFound:
        """Read an entry of your private memory."""
    async def list(
        self,
        *,
        session_id: str | None = None,
        prefix: str | None = None,
        values: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> MemoryListed:
        """List your private memory with sizes, and with values if you ask for them."""
    async def delete(
        self,
        key: str,
        *,
        session_id: str | None = None,
        if_version: int | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> MemoryDeleted:
        """Delete an entry of your private memory."""
    async def overview(self, agent_id: str) -> MemoryOverview:
        """Return your whole memory with values and totals."""
    async def inspect(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> MemoryInspected:
        """Read an agent's private memory with values, page by page.

        For admins only, up to their own clearance; every use is written to the audit log.
        """

class MessageOperations:
    """The message operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def add(
        self,
        session_id: str,
        content: str,
        *,
        visibility: Literal["public", "private", "agent_only", "admin_only"] | None = None,
        team: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent_message_id: int | None = None,
        recipient_id: str | None = None,
        message_type: str = "message",
        category: str = "DIALOG",
        derived_from: Sequence[str] = (),
    ) -> MessageAdded:
        """Add a message to a session: for all members, one of them, agents of your type, a team, or only yourself.

        Reply to a message with ``parent_message_id``. A reply to a direct message goes to its other side only.
        """
    async def list(
        self,
        session_id: str,
        *,
        limit: int = 50,
        offset: int = 0,
        visibility_filter: Literal["public", "private", "agent_only", "admin_only"] | None = None,
        after_id: int = 0,
    ) -> Messages:
        """Read the messages of a session that you may see, oldest first.

        Pages are stable while others write, because new messages come last. To poll, pass ``after_id``. A page is
        shorter than ``limit`` if it would exceed about 4 MiB; ``has_more`` is then true.
        """
    async def set_visibility(
        self, session_id: str, message_id: int, visibility: Literal["public", "private", "agent_only", "admin_only"]
    ) -> VisibilityChanged:
        """Change the visibility of a message, such as one that should not be public. For admins; audited."""
    async def inspect(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Messages:
        """Read every message of a session, whatever its visibility. For admins; every use is audited."""
    async def inbox(
        self,
        *,
        session_id: str | None = None,
        sender: str | None = None,
        acknowledge: Sequence[str] = (),
        limit: int = 20,
    ) -> InboxPage:
        """Read the messages addressed to you, oldest first, from all your sessions; acknowledge earlier ones.

        A message stays until you pass its handle in ``acknowledge``, so nothing is lost if you stop between reading and
        acting. If there are more than ``limit``, the senders take turns.
        """
    async def search(
        self,
        session_id: str,
        query: str,
        *,
        fuzzy_threshold: float = 60.0,
        limit: int = 10,
        search_metadata: bool = True,
        search_scope: Literal["all", "public", "private"] = "all",
        record: bool = False,
    ) -> MessageSearchResponse:
        """Search the messages of one session by keywords, which may be misspelt, or with a question.

        A score of 100 means that the message matches the whole query, or matches terms that no other message has. To
        search by meaning, and in documents, boards and memory too, use search.
        """
    async def search_by_sender(
        self, session_id: str, sender: str, *, limit: int = 20, offset: int = 0
    ) -> MessagesBySender:
        """List the messages of one sender in a session that you may read, newest first."""
    async def search_by_timerange(
        self, session_id: str, start_time: str, end_time: str, *, limit: int = 50, offset: int = 0
    ) -> MessagesByTime:
        """List the messages of a time range in a session that you may read, oldest first."""

class MissingOperations:
    """The missing operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def report(
        self,
        session_id: str,
        question: str,
        *,
        severity: Literal["info", "low", "medium", "high", "blocking"] = "medium",
        scope: Literal["turn", "task", "session", "tool_invocation", "review", "handoff", "custom"] | None = None,
        needed_for: str | None = None,
        candidate_sources: Sequence[PossibleSource | Mapping[str, Any]] = (),
        blocked_actions: Sequence[str] = (),
        missing_id: str | None = None,
    ) -> MissingReported:
        """Report information that is missing, instead of guessing.

        If the same question is already open in the session, that one is returned.
        """
    async def list(
        self,
        *,
        session_id: str | None = None,
        status: Literal["open", "detected", "requested", "resolved", "all"] = "open",
        severity: Literal["info", "low", "medium", "high", "blocking"] = "info",
        task_id: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> MissingListed:
        """List missing context, most severe and oldest first."""
    async def resolve(
        self,
        missing_id: str,
        *,
        resolution_refs: Sequence[str] = (),
        answer: str | None = None,
        session_id: str | None = None,
    ) -> MissingResolved:
        """Resolve missing context with references or an answer. Any participant may.

        An ``answer`` is written to the board. Writing the key ``answer_…`` also resolves it, and so does the reply of a
        peer to its task message.
        """
    async def request(
        self,
        missing_id: str,
        form: Literal["user_question", "retrieval", "tool_invocation", "policy_request", "peer_task"],
        *,
        agent_id: str | None = None,
        tool: str | None = None,
        requested_from: str | None = None,
        detail: str | None = None,
        session_id: str | None = None,
    ) -> MissingRequested:
        """Request missing context from the user, earlier messages, a tool, a policy or a peer.

        Several requests in different forms are possible. Repeating a request changes nothing, except for a retrieval,
        which searches again.
        """

class PerformanceOperations:
    """The performance operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def read(self, *, history_hours: int = 0) -> Performance:
        """Get performance figures: database, memory, CPU, caches, calls and trends.

        Calls, sessions, agents and caches are those of your tenant only. Memory, CPU and connections are those of the
        answering process, for the operator's tenant (the default one, or the only one); for others they are null,
        because they would show what other tenants do. History and trends cover all server processes and survive
        restarts. A figure that cannot be measured is null.
        """

class PinOperations:
    """The pin operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def add(
        self,
        *,
        session_id: str | None = None,
        message_id: int | None = None,
        key: str | None = None,
        memory_key: str | None = None,
        memory_type: Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        | None = None,
        workflow_id: str | None = None,
        owner: str | None = None,
    ) -> PinInfo:
        """Pin a message, a board key or a key of your memory: it is part of every prompt, whatever the task.

        A pin of a session applies to all who may read the item; it stays when the key is written again.
        """
    async def remove(
        self,
        *,
        session_id: str | None = None,
        message_id: int | None = None,
        key: str | None = None,
        memory_key: str | None = None,
        memory_type: Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        | None = None,
        workflow_id: str | None = None,
        owner: str | None = None,
    ) -> PinRemoved:
        """Unpin a message, a board key or a key of your memory. The item itself stays."""
    async def list(self, *, session_id: str | None = None) -> PinList:
        """List what is pinned in a session and in your memory, with its tokens."""

class PlanOperations:
    """The plan operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def show(self) -> PlanShown:
        """Show the tenant's plan: its limits, and how much of them is used. For admins."""

class PolicyOperations:
    """The policy operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def set(self, name: str, definition: PolicyDefinition | Mapping[str, Any]) -> PolicyInfo:
        """Add or replace an export policy: what an export may contain, in which form, and who may use the policy.

        A policy named default applies to exports that name none; while it exists, only admins may use the built-in
        ones.
        """
    async def list(self) -> PolicyList:
        """List the export policies that you may use, and which one is the default."""
    async def delete(self, name: str) -> PolicyDeleted:
        """Delete an export policy. Exports made with it still refer to it, with the digest of its definition."""

class ReceiptOperations:
    """The receipt operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def show(self, receipt_id: str, *, candidates: bool = True) -> ReceiptShown:
        """Show the receipt of a prompt: blocks, candidates, omissions with reasons, budget, savings and timing."""
    async def list(
        self, *, session_id: str | None = None, agent_id: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> ReceiptList:
        """List receipts of your prompts, newest first; those of agents below you with agent_id."""
    async def replay(
        self,
        receipt_id: str,
        *,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"] = "neutral",
    ) -> PromptReplayed:
        """Show the prompt of a receipt again, byte for byte, in any wire form.

        Not possible once retention or a redaction has removed content of it.
        """
    async def savings(
        self,
        *,
        by: Literal["tenant", "session", "agent", "model"] = "agent",
        session_id: str | None = None,
        agent_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> SavingsReport:
        """Add up tokens and money of prompts against the conversation alone, by agent, session, model or tenant."""

class RecordsOperations:
    """The records operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def add(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        session_id: str | None = None,
        readable_by: Sequence[str] | None = None,
    ) -> RecordsAdded:
        """Record what your own framework did with context: envelopes, selections, budgets, assemblies, compactions.

        Idempotent: adding an identical record changes nothing. A context_event is published under its class to event
        subscribers. The source items of a compaction or summary must exist: stored ones, or items of the same call.
        Records of other producers are read as openly as the standard is, kept and returned as they were given.
        """
    async def set_lifecycle(
        self,
        record_id: str,
        lifecycle: Literal[
            "draft", "available", "selected", "assembled", "injected", "compacted", "redacted", "expired", "archived"
        ],
        *,
        session_id: str | None = None,
    ) -> LifecycleSet:
        """Set the lifecycle state of an envelope. For the principal that recorded it, and for admins.

        States only move forward: draft, available, selected, assembled, injected; any of these may become compacted,
        redacted, expired or archived.
        """
    async def list(
        self,
        *,
        session_id: str | None = None,
        agent: str | None = None,
        turn_id: str | None = None,
        task_id: str | None = None,
        tool_call_id: str | None = None,
        item_id: str | None = None,
        native_id: str | None = None,
        types: Sequence[
            Literal[
                "context_envelope",
                "context_surface",
                "context_item",
                "context_source_ref",
                "context_selection",
                "context_budget",
                "context_window",
                "context_assembly",
                "context_injection",
                "context_compaction",
                "context_summary",
                "missing_context",
                "context_event",
            ]
        ] = (),
        since: str | None = None,
        until: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Records:
        """List what happened as portable records, in log order: by session, agent, turn, task, item or time.

        Key versions and messages are context items, sessions are surfaces; records added by agents are listed
        unchanged. Only records that you may read now are listed.
        """
    async def show(
        self,
        record_id: str,
        *,
        type: Literal[
            "context_envelope",
            "context_surface",
            "context_item",
            "context_source_ref",
            "context_selection",
            "context_budget",
            "context_window",
            "context_assembly",
            "context_injection",
            "context_compaction",
            "context_summary",
            "missing_context",
            "context_event",
        ]
        | None = None,
        with_content: bool = False,
        session_id: str | None = None,
    ) -> RecordShown:
        """Show one record by its id: a stored one, or one derived from the board, messages, sessions or events.

        For an item, the answer includes the records that reference it and its redaction; redacted content is not shown.
        The ref of a search result shows its full source ref, its entities and, as content, its text.
        """
    async def schema(
        self,
        type: Literal[
            "context_envelope",
            "context_surface",
            "context_item",
            "context_source_ref",
            "context_selection",
            "context_budget",
            "context_window",
            "context_assembly",
            "context_injection",
            "context_compaction",
            "context_summary",
            "missing_context",
            "context_event",
        ],
    ) -> RecordSchema:
        """Return the JSON Schema of a record type and the path at which this server publishes it."""
    async def redact(
        self,
        item_id: str,
        state: Literal["none", "masked", "removed", "summarized", "encrypted_ref", "policy_blocked"],
        reason: str,
        *,
        method: str | None = None,
        replacement: str | None = None,
        session_id: str | None = None,
    ) -> ItemRedacted:
        """Redact an item wherever it is read: board, messages, windows, memory, histories, prompts, search, exports.

        An item is one version of a key, one message, or one recorded item, summary or assembly. Its author and admins
        may redact it. The content stays stored for those with the permission ``audit``, who read it with
        ``records.reveal``. Definitions and layers are redacted in records and exports only: write a new version of
        them.
        """
    async def reveal(self, item_id: str, reason: str, *, session_id: str | None = None) -> ItemRevealed:
        """Read an item as it was before its redaction.

        Needs the permission ``audit``, which admins grant, and access to the item itself; every call is audited.
        """
    async def resolve(
        self,
        *,
        source_id: str | None = None,
        source_ref: Mapping[str, Any] | None = None,
        against: str | None = None,
        media_type: str | None = None,
        session_id: str | None = None,
    ) -> SourceResolved:
        """Find the passage of a source ref in the current text of its source: exact, moved or lost.

        Exact means the same text at the same position. Weftline fetches nothing from outside.
        """

class SearchOperations:
    """The search operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def query(
        self,
        query: str,
        *,
        domain: str | None = None,
        domains: Sequence[str] | None = None,
        session_id: str | None = None,
        sources: Sequence[Literal["document", "message", "board", "memory", "event"]] | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        types: Sequence[str] | None = None,
        entities: Sequence[str] | None = None,
        min_score: float | None = None,
        recency_weight: float = 0.02,
        half_life_days: float = 30.0,
        importance_weight: float = 0.15,
        top_k: int = 10,
        low_confidence: bool = False,
        explain: bool = False,
        record: bool = False,
    ) -> SearchResponse:
        """Search everything you may see by keywords and meaning: documents, messages, boards, your memory and windows.

        Each result has a score and a ref, which context_records opens. If the answer may not be there, unsure is true
        and only the best few results are returned.
        """
    async def find_similar(
        self,
        *,
        domain: str | None = None,
        domains: Sequence[str] | None = None,
        session_id: str | None = None,
        sources: Sequence[Literal["document", "message", "board", "memory", "event"]] | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        types: Sequence[str] | None = None,
        entities: Sequence[str] | None = None,
        ref: str | None = None,
        text: str | None = None,
        top_k: int = 10,
        min_score: float = 0.0,
        explain: bool = False,
    ) -> SimilarResponse:
        """Find passages similar in meaning to a search result or a text; the result itself is excluded."""
    async def get_context(
        self,
        *,
        domain: str | None = None,
        domains: Sequence[str] | None = None,
        session_id: str | None = None,
        sources: Sequence[Literal["document", "message", "board", "memory", "event"]] | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        types: Sequence[str] | None = None,
        entities: Sequence[str] | None = None,
        min_score: float | None = None,
        recency_weight: float = 0.02,
        half_life_days: float = 30.0,
        importance_weight: float = 0.15,
        query: str | None = None,
        ref: str | None = None,
        max_tokens: int = 2000,
        tokenizer: Literal["approximate", "o200k_base", "cl100k_base"] = "approximate",
        explain: bool = False,
        record: bool = False,
    ) -> ContextResponse:
        """Gather one text for a prompt: the passages that answer a question, with surroundings, within a token budget.

        They are the ones that a prompt gets. Passages are numbered and have citations. With a ref instead of a query:
        the surroundings of that search result.
        """

class SessionOperations:
    """The session operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def create(
        self,
        purpose: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        config: SessionConfig | Mapping[str, Any] | None = None,
        members: Sequence[str] | None = None,
        exist_ok: bool = False,
    ) -> SessionCreated:
        """Create a session: an isolated workspace for its members, with an empty board.

        It lasts until it is archived or deleted, across days, conversations and restarts. Members are you and the
        agents below you, unless you name others.
        """
    async def list(self, *, limit: int = 50, cursor: str | None = None, include_archived: bool = False) -> SessionList:
        """List the sessions you are a member of, newest first."""
    async def archive(self, session_id: str) -> SessionArchivedAt:
        """Make a session read-only and keep it for reading and audit."""
    async def delete(self, session_id: str, *, force: bool = False) -> SessionDeleted:
        """Delete a session permanently, with its board, messages, session memory and windows.

        For its creator, those above it and admins. Refused while others depend on it, with the list of who and what,
        unless forced. The audit log keeps an entry.
        """
    async def add_members(self, session_id: str, members: Sequence[str]) -> MembersAdded:
        """Add agents, humans, teams or patterns to a session; they see all of it, also what came before.

        For the creator of the session, those above it and admins.
        """
    async def remove_members(self, session_id: str, members: Sequence[str]) -> MembersRemoved:
        """Remove members from a session; they lose access to all of it at once.

        For the creator of the session, those above it and admins. Names an entry as the session shows it.
        """
    async def reinstate(self, session_id: str, agent_id: str) -> AgentReinstated:
        """Admit an agent again to a session that a rule ended for it. For human members with clearance 3 or higher."""
    async def get(self, session_id: str) -> SessionFound:
        """Get a session: purpose, members, state, settings and latest messages."""
    async def overview(self, session_id: str) -> SessionOverview:
        """Get an overview of a session: state, latest messages, figures."""
    async def inspect(self, session_id: str, *, branch: str | None = None) -> Inspection:
        """Read everything on a session's board, values included, and verify its history.

        For admins only; every call is audited.
        """

class SigningKeyOperations:
    """The signing key operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def rotate(self, *, revoke_existing: bool = False) -> Success:
        """Replace the secret that signs the tenant's tokens, and the key that signs its layers and definitions.

        This affects the whole tenant, so it needs clearance 5.
        """

class StepOperations:
    """The step operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def define(
        self,
        name: str,
        tools: Sequence[str],
        *,
        description: str = "",
        shared_with: Literal["tree", "tenant"] | None = None,
    ) -> StepInfo:
        """Define a step of a task: the tools that callers in it see and may call, and no others.

        Callers enter it by the endpoint /mcp/step/NAME, or by a token or key that is bound to it. It takes effect on
        their next call. It grants nothing: they need the same rights as without it.
        """
    async def list(self) -> StepList:
        """List the steps that you can enter: of the tenant, of your tree and of the principals above you."""
    async def remove(self, name: str, *, shared_with: Literal["tree", "tenant"] | None = None) -> Success:
        """Remove a step. Credentials that are bound to it may call nothing until it is defined again."""

class TeamOperations:
    """The team operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def create(self, team: str, *, description: str = "") -> TeamInfo:
        """Create a team without members. For admins."""
    async def list(self, *, after: str | None = None, limit: int = 100) -> TeamList:
        """List the teams you are a member of; as an admin, all."""
    async def show(self, team: str) -> TeamShown:
        """Show a team you are a member of: its members, and the versions of its memory and guidelines."""
    async def update(self, team: str, description: str) -> TeamInfo:
        """Change the description of a team. For admins."""
    async def delete(self, team: str, *, force: bool = False) -> TeamDeleted:
        """Delete a team with its memory and guidelines, for good. For admins; its name cannot be used again."""
    async def add_member(self, team: str, agent_id: str) -> MemberChanged:
        """Add an agent or a human to a team; it sees the team's memory with its next call.

        For admins and for members with clearance 3 or higher, who can add principals that they may edit.
        """
    async def remove_member(self, team: str, agent_id: str) -> MemberChanged:
        """Remove a member from a team; it loses access with its next call.

        For admins and for members with clearance 3 or higher, who can remove principals that they may edit.
        """

class TokenOperations:
    """The token operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def issue(
        self,
        agent_id: str,
        agent_type: str,
        api_key: str,
        *,
        requested_permissions: Sequence[Literal["read", "write", "admin", "audit"]] = ("read", "write"),
        step: str | None = None,
        single_use: bool = False,
    ) -> TokenIssued:
        """Exchange an agent's API key for a token that expires.

        The token carries the requested permissions as far as an admin granted them to the agent. Send it as
        ``Authorization: Bearer TOKEN`` with every request; an MCP client connects again with this header.
        """
    async def refresh(self) -> TokenIssued:
        """Get a new token for the one that this call uses; the old one stays valid until it expires.

        A token can be refreshed for a day (by default); after that, authenticate with the API key again. One for a
        single use ends with this call: of several calls with it, one gets a token.
        """
    async def revoke(
        self, *, token_id: str | None = None, agent_id: str | None = None, refreshed: bool = False
    ) -> Success:
        """Revoke a token, or all of a principal, at once; as an admin, of one you may edit."""

class ToolsOperations:
    """The tools operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def search(self, query: str, *, limit: int = 5) -> ToolsFound:
        """Find the MCP tools for a task among those you may use, each with one line on what it does."""
    async def describe(
        self, name: str, *, session_id: str | None = None, output_schema: bool = False
    ) -> ToolDescription:
        """Describe an MCP tool or one of its actions in full: description, input schema, output schema on request."""
    async def register(
        self,
        tools: Sequence[ToolDraft | Mapping[str, Any]],
        *,
        server: str = "",
        complete: bool = False,
        shared_with: Literal["tree", "tenant"] | None = None,
    ) -> ToolsRegistered:
        """Register the tools of your runtime, so that each task gets the few it needs. All of them or none.

        Weftline does not call them: it chooses, describes and meters them. A name that is registered already gets the
        new definition; names of Weftline's own tools and of tools registered above you are refused.
        """
    async def list(self, *, after: str | None = None, limit: int = 100) -> RegisteredToolList:
        """List the registered tools that you have: of the tenant, of your tree and of the principals above you."""
    async def remove(self, name: str, *, shared_with: Literal["tree", "tenant"] | None = None) -> Success:
        """Remove a tool that you registered; registering it again brings it back."""
    async def select(
        self,
        task_description: str,
        *,
        session_id: str | None = None,
        include: Sequence[str] = (),
        own_tools: bool = False,
    ) -> ToolsSelected:
        """Choose the tools for a task among the registered ones: those that fit it, at most ten.

        The list stays the same, byte for byte, while it has what the task needs, so that provider caches survive;
        another task or step changes it.
        """

class TrustOperations:
    """The trust operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def trace(self, item: str, *, steps: int = 5, possible: bool = True, limit: int = 100) -> ItemTraced:
        """Show what was derived from an item, such as a poisoned document: by declaration, by copy, through prompts.

        Admins trace through the prompts of all agents, others through their own.
        """
    async def forget(
        self,
        item: str,
        reason: str,
        *,
        mode: Literal["delete", "flag"] = "delete",
        possible: Literal["flag", "keep"] = "flag",
        erase: bool = True,
        steps: int = 5,
        dry_run: bool = True,
    ) -> ItemForgotten:
        """Delete or flag a source and everything derived from it. By default a dry run, which only shows what to do.

        Needs clearance 4. What was surely derived is deleted or flagged as the source is; what may have been is
        flagged.
        """

class UsageOperations:
    """The usage operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def report(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        agent_id: str | None = None,
        team: str | None = None,
        session_id: str | None = None,
        model: str | None = None,
        kind: Literal["assembly", "compaction", "proxy"] | None = None,
        by: Literal["tenant", "team", "agent", "session", "step", "model", "kind", "minute", "hour", "day"] = "agent",
        limit: int = 100,
    ) -> UsageReported:
        """Add up tokens, money, savings, latency and efficiency of model calls, by agent, team, model or time.

        Sums are exact at any time. You see your own usage and that of agents below you; admins see all.
        """
    async def export(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        agent_id: str | None = None,
        team: str | None = None,
        session_id: str | None = None,
        model: str | None = None,
        kind: Literal["assembly", "compaction", "proxy"] | None = None,
        unit: Literal["hour", "day"] = "day",
        form: Literal["csv", "json"] = "csv",
        cursor: str | None = None,
    ) -> UsageExported:
        """Export usage as CSV or JSON lines, page by page: a row for each interval, agent, session, step and model."""

class WebhookOperations:
    """The webhook operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def create(
        self,
        url: str,
        *,
        types: Sequence[str] = ("*",),
        session_id: str | None = None,
        description: str = "",
        secret: str | None = None,
    ) -> WebhookCreated:
        """Send future events to an address, signed. The secret is shown only once.

        The webhook receives the events that you may see, as long as you are an admin. A delivery that is not answered
        with a 2xx status within ten seconds is retried for most of a day.
        """
    async def list(self) -> WebhookList:
        """List the webhooks with their delivery counts, without their secrets."""
    async def update(self, webhook_id: str, *, enabled: bool) -> WebhookInfo:
        """Disable a webhook, or enable it: it resumes where it stopped, with every event since then."""
    async def delete(self, webhook_id: str) -> WebhookDeleted:
        """Delete a webhook and its pending deliveries."""
    async def test(self, webhook_id: str) -> WebhookTested:
        """Send an event of type weftline.webhook.test now and return the receiver's answer."""
    async def deliveries(
        self, webhook_id: str, *, state: Literal["pending", "dead"] | None = None, after: int = 0, limit: int = 100
    ) -> DeliveryList:
        """List a webhook's pending deliveries and dead letters, with the result of the last attempt."""
    async def replay(
        self, webhook_id: str, *, seqs: Sequence[int] = (), dead: bool = False, from_seq: int | None = None
    ) -> WebhookReplayed:
        """Send dead letters again, some or all, or every event from a seq on.

        The webhook-id of an event stays the same, so receivers can deduplicate.
        """

class WindowOperations:
    """The window operations."""

    def __init__(self, caller: Caller) -> None: ...
    async def create(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        model_max_tokens: int | None = None,
        shared_cw_max_tokens: int | None = None,
        reserved_tokens: int | None = None,
        budgets: Mapping[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"], float]
        | None = None,
        compaction_threshold: float | None = None,
        autosave: bool | None = None,
    ) -> WindowView:
        """Create an agent's window in a session. A sub-agent's starts with a copy of its parent's SYSTEM and CONTEXT.

        Its limit is that of its own model; if that is smaller than the parent's, the parent gets a note.
        """
    async def show(self, session_id: str, *, agent_id: str | None = None) -> WindowView:
        """Show a window: limit, budgets and use by category, sharing, routes and clamps."""
    async def list(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> WindowList:
        """List the windows of a session that you may open: your own, those of agents below you, as an admin all."""
    async def events(
        self, session_id: str, *, agent_id: str | None = None, limit: int = 50, offset: int = 0
    ) -> WindowEvents:
        """Read the events of a window, oldest first, with those that other agents route to it."""
    async def pop(self, session_id: str, *, agent_id: str | None = None) -> WindowEventPopped:
        """Remove the newest event of a window and return it, such as an answer to be asked for again.

        Events that other agents route to the window stay. Its history keeps the event.
        """
    async def update(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        model_max_tokens: int | None = None,
        shared_cw_max_tokens: int | None = None,
        reserved_tokens: int | None = None,
        budgets: Mapping[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"], float]
        | None = None,
        compaction_threshold: float | None = None,
        autosave: bool | None = None,
    ) -> WindowView:
        """Change the settings of a window, such as its model. Budgets follow the new limit."""
    async def delete(self, session_id: str, *, agent_id: str | None = None) -> WindowDeleted:
        """Delete a window with its events and their history. Copies in other windows stay."""
    async def release(
        self, session_id: str, event_ids: Sequence[str], *, agent_id: str | None = None
    ) -> EventsReleased:
        """Release events that are held because they look like an attack. Called by an agent, it asks a human."""
    async def refresh(self, session_id: str, *, agent_id: str | None = None) -> WindowRefreshed:
        """Copy what changed in the parent's SYSTEM and CONTEXT since a sub-agent's window was made or refreshed."""
    async def join(self, session_id: str, with_agent_id: str, *, agent_id: str | None = None) -> WindowView:
        """Let an agent use another agent's window. Its limit becomes the minimum over all that share it.

        You need access to both windows: as an ancestor of both, or as one of them and ancestor of the other, or as an
        admin. The agent's own window is kept until it leaves.
        """
    async def leave(self, session_id: str, *, agent_id: str | None = None) -> WindowView:
        """Let an agent leave the window it shares and use its own again. The others' limit is computed again."""
    async def route(
        self,
        session_id: str,
        categories: Sequence[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"]],
        *,
        to_agents: Sequence[str] = (),
        to_types: Sequence[str] = (),
        to_teams: Sequence[str] = (),
        agent_id: str | None = None,
    ) -> WindowRoutes:
        """Show categories of a window to other agents, roles or teams. Nothing is copied: they see them in theirs.

        SYSTEM events of an agent that is no ancestor of the reader appear there as CONTEXT.
        """
    async def unroute(
        self,
        session_id: str,
        categories: Sequence[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"]],
        *,
        to_agents: Sequence[str] = (),
        to_types: Sequence[str] = (),
        to_teams: Sequence[str] = (),
        agent_id: str | None = None,
    ) -> WindowRoutes:
        """Stop showing categories of a window to other agents, roles or teams."""
    async def checkpoint(self, session_id: str, label: str, *, agent_id: str | None = None) -> Checkpoint:
        """Name the current state of all windows that you may open, or of one, to return to it later."""
    async def checkpoints(
        self, session_id: str, *, agent_id: str | None = None, include_automatic: bool = True
    ) -> Checkpoints:
        """List the checkpoints of all windows that you may open, by label."""
    async def restore(
        self,
        session_id: str,
        label: str,
        *,
        agent_id: str | None = None,
        from_agent_id: str | None = None,
        all_agents: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> CheckpointRestored:
        """Return a window to a checkpoint: yours, or another agent's, or all that have it and that you may open.

        History is not rewritten: the restored state is a new version. With from_agent_id, another agent's checkpoint is
        restored into a window; its redacted events are left out.
        """
    async def branch(
        self, session_id: str, label: str, branch: str, *, agent_id: str | None = None, switch: bool = False
    ) -> CheckpointBranched:
        """Start a branch from a checkpoint in all windows that have it and that you may open, or in one."""

class Operations:
    """All operations, by group."""

    _caller: Caller
    advise: AdviseOperations
    agent: AgentOperations
    alerts: AlertsOperations
    approval: ApprovalOperations
    audit: AuditOperations
    board: BoardOperations
    budget: BudgetOperations
    bundle: BundleOperations
    compaction: CompactionOperations
    context: ContextOperations
    conventions: ConventionsOperations
    conversation: ConversationOperations
    entity: EntityOperations
    events: EventsOperations
    gateway: GatewayOperations
    guardrail: GuardrailOperations
    history: HistoryOperations
    key: KeyOperations
    knowledge: KnowledgeOperations
    layer: LayerOperations
    memory: MemoryOperations
    message: MessageOperations
    missing: MissingOperations
    performance: PerformanceOperations
    pin: PinOperations
    plan: PlanOperations
    policy: PolicyOperations
    receipt: ReceiptOperations
    records: RecordsOperations
    search: SearchOperations
    session: SessionOperations
    signing_key: SigningKeyOperations
    step: StepOperations
    team: TeamOperations
    token: TokenOperations
    tools: ToolsOperations
    trust: TrustOperations
    usage: UsageOperations
    webhook: WebhookOperations
    window: WindowOperations
    def __init__(self, caller: Caller) -> None: ...

class SyncAdviseOperations:
    """The advise operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(self, *, agent_id: str | None = None, calls: int = 50) -> AdviceList:
        """List what would make prompts smaller or cheaper, with what the last calls would have saved.

        Each recommendation was tried by planning these calls again: compaction, shares of the window, models, tools
        never called, documents, pins and board keys that no answer uses, copies, outdated context.
        """
    def show(self, recommendation_id: str, *, calls: int = 50) -> AdviceShown:
        """Show a recommendation: its evidence, what it would have saved, and the command that makes the change."""
    def try_(
        self,
        *,
        recommendation_id: str | None = None,
        agent_id: str | None = None,
        settings: ProposedSettings | Mapping[str, Any] | None = None,
        calls: int = 50,
        receipt_id: str | None = None,
    ) -> AdviceTried:
        """Try a recommendation, or settings of your own, on the last calls before anything is switched.

        The calls are planned again by the planner that made them, from their receipts: tokens, money, cache, and which
        items that the answers used are kept or lost. The assumptions of the trial say what is not replayed.
        """

class SyncAgentOperations:
    """The agent operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def define(
        self,
        agent_id: str,
        *,
        role: str | None = None,
        system_prompt: str | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
        config: Mapping[str, Any] | None = None,
        if_version: int | None = None,
        critical: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> AgentDefined:
        """Set the definition of an agent: role, system prompt, guardrails and configuration.

        For its parent agents, and for humans with clearance 3 or higher and at least that of the agent; never for
        itself. A running session keeps the definition it pulled until it pulls again; guardrails hold from the next
        call.
        """
    def read_definition(self, agent_id: str, *, version: str | int = "head") -> DefinitionRead:
        """Read a version of the definition of an agent: your own, or that of an agent you may edit."""
    def create(
        self,
        agent_id: str,
        *,
        agent_type: str | None = None,
        kind: Literal["agent", "human"] = "agent",
        parent_id: str | None = None,
        clearance: int = 1,
        permissions: Sequence[Literal["read", "write", "admin", "audit"]] = ("read", "write"),
        min_score: float | None = None,
        instructions: str | None = None,
        exist_ok: bool = False,
    ) -> AgentCreated:
        """Create an agent or a human, with an API key that is shown only once. For admins and orchestrators.

        An agent whose parent is an agent is a sub-agent and writes as ``subagent:{type}`` (or ``subagent:{type}:{id}``
        if its id differs from its type); any other agent is an orchestrator and writes as ``orchestrator:{id}``. You
        cannot grant more than you have, and an agent can create only its own descendants: below itself, or below an
        agent that is below it. If you are in a step of a task, its key is bound to the same step.
        """
    def update(
        self,
        agent_id: str,
        *,
        permissions: Sequence[Literal["read", "write", "admin", "audit"]] | None = None,
        clearance: int | None = None,
        disabled: bool | None = None,
        min_score: float | None = None,
        parent_id: str | None = None,
    ) -> AgentUpdated:
        """Change a principal's permissions or clearance, disable or move it. Takes effect on its next call.

        Disabling it disables everything below it; enabling it enables exactly that again. Human admins may change
        principals up to their own clearance, orchestrators only their descendants. Nobody can change itself or grant
        more than it has.
        """
    def list(self, *, session_id: str | None = None, after: str | None = None, limit: int = 100) -> AgentList:
        """List the agents and humans you may address: the members of a session, or your tree and your teams.

        Your tree: those above and below you, and those with the same parent. Admins see the whole tenant.
        """
    def capabilities(
        self,
        *,
        guidance_type: Literal[
            "operations",
            "coordination",
            "security",
            "troubleshooting",
            "sessions",
            "board",
            "messages",
            "memory",
            "search",
            "assembly",
            "windows",
            "compaction",
            "knowledge",
            "indexing",
            "history",
            "branches",
            "retention",
            "records",
            "missing",
            "agents",
            "approvals",
            "guardrails",
            "trust",
            "insight",
            "admin",
        ] = "operations",
    ) -> UsageGuidance:
        """Get your role, what to do first and the topics of guidance, or one topic: its operations and advice."""

class SyncAlertsOperations:
    """The alerts operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(
        self,
        *,
        state: Literal["active", "open", "acknowledged", "resolved", "all"] = "active",
        condition: Literal[
            "context.overload",
            "efficiency.low",
            "budget.near",
            "budget.exceeded",
            "quota.near",
            "index.damaged",
            "quality.dropped",
        ]
        | None = None,
        agent_id: str | None = None,
        digest_id: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> AlertList:
        """List alerts: about you and the agents below you; for admins all. Those of many agents are one, a digest."""
    def acknowledge(self, alert_id: str) -> AlertInfo:
        """Acknowledge an alert: you look into it. It stays active until it is resolved."""
    def resolve(self, alert_id: str) -> AlertInfo:
        """Resolve an alert; a digest with all alerts in it. Only later calls of the agent open it again."""

class SyncApprovalOperations:
    """The approval operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(
        self,
        *,
        state: Literal["pending", "approved", "performed", "rejected", "expired"] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> ApprovalList:
        """List calls that wait for approval or were decided: all for approvers, otherwise your own."""
    def show(self, approval_id: str) -> ApprovalShown:
        """Show a held call with its request; its caller also sees the answer. Views of others are audited."""
    def approve(self, approval_id: str, *, reason: str | None = None) -> ApprovalDecided:
        """Approve a held call: it is performed once, as its caller, past the check that held it."""
    def reject(self, approval_id: str, *, reason: str | None = None) -> ApprovalDecided:
        """Reject a held call: it is never performed, and its caller is told."""

class SyncAuditOperations:
    """The audit operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(
        self,
        *,
        before: str | None = None,
        outcome: Literal["done", "denied", "refused", "held"] | None = None,
        action: str | None = None,
        agent_id: str | None = None,
        target: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int = 100,
    ) -> AuditLog:
        """Read the tenant's audit log: every denial, every refused credential and administrative change, newest first.

        Rows about knowledge domains that you may not read show only who did what, and when.
        """

class SyncBoardOperations:
    """The board operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list_keys(
        self, session_id: str, *, prefix: str | None = None, values: bool = False, branch: str | None = None
    ) -> Keys:
        """List the keys of the board with sizes, to choose what to read; with ``values``, read them at once."""
    def read(self, session_id: str, key: str, *, branch: str | None = None) -> EntryRead:
        """Read one entry."""
    def read_batch(self, session_id: str, keys: Sequence[str], *, branch: str | None = None) -> EntriesRead:
        """Read several entries from one consistent state in one call."""
    def write(
        self,
        session_id: str,
        key: str,
        value: str | int | float | bool | Sequence[Any] | Mapping[str, Any] | None,
        *,
        if_version: int | None = None,
        ttl_seconds: int | None = None,
        readable_by: Sequence[str] | None = None,
        writable_by: Sequence[str] | None = None,
        branch: str | None = None,
        reason: str | None = None,
        step: str | None = None,
        derived_from: Sequence[str] = (),
    ) -> EntryWritten:
        """Create or overwrite one entry: conclusions and state that others need, not raw data.

        The last write wins unless ``if_version`` names the version to replace.
        """
    def delete(
        self,
        session_id: str,
        key: str,
        *,
        if_version: int | None = None,
        branch: str | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> EntryDeleted:
        """Delete an entry that is no longer relevant."""
    def read_history(
        self,
        session_id: str,
        key: str,
        *,
        versions: Sequence[int] | None = None,
        incarnation: int | None = None,
        branch: str | None = None,
    ) -> KeyHistory:
        """Read the earlier versions of a key: values, authors and times."""
    def snapshot(self, session_id: str, label: str, *, branch: str | None = None) -> SnapshotInfo:
        """Name the current state of the whole board, to read, compare or restore it later."""
    def list_snapshots(self, session_id: str, *, branch: str | None = None) -> Snapshots:
        """List the board's snapshots."""
    def read_snapshot(self, session_id: str, label: str, *, branch: str | None = None) -> SnapshotRead:
        """Read the board as of a snapshot."""
    def compare_snapshots(
        self, session_id: str, from_label: str, *, to_label: str | None = None, branch: str | None = None
    ) -> Comparison:
        """Compare two snapshots, or a snapshot with the current board."""
    def restore_snapshot(
        self,
        session_id: str,
        label: str,
        *,
        branch: str | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> SnapshotRestored:
        """Return the whole board to a snapshot. Needs clearance 3.

        History is not rewritten: the restore adds new versions, and the state before it gets an automatic snapshot.
        """
    def guidance(
        self,
        *,
        session_id: str | None = None,
        conventions: str | None = None,
        part: Literal["all", "conventions", "writing", "reading"] = "all",
    ) -> Guidance:
        """Get the text for an agent's system prompt that explains how to use the board."""
    def check(
        self, session_id: str, *, branch: str | None = None, stale_hours: float = 168.0, unread_hours: float = 1.0
    ) -> BoardCheck:
        """Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys."""

class SyncBudgetOperations:
    """The budget operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def set(
        self,
        subject: str,
        period: Literal["day", "month"],
        *,
        tokens: int | None = None,
        cost: float | None = None,
        at_limit: Literal["warn", "downgrade", "refuse"] = "warn",
        warn_at: float = 0.8,
        tree_share: float | None = None,
        agent_share: float | None = None,
    ) -> BudgetInfo:
        """Limit what a tenant, a team or an agent spends in a day or month. For admins.

        What was already spent in the period counts, also if the budget is new. With shares, one tree of agents or one
        agent cannot spend what is for all: at its share, what ``at_limit`` says happens to it alone.
        """
    def list(self, *, agent_id: str | None = None, limit: int = 100, cursor: str | None = None) -> BudgetList:
        """List the budgets that limit you, or an agent below you, with what is spent; as an admin, all."""
    def delete(self, subject: str, period: Literal["day", "month"]) -> BudgetDeleted:
        """Delete a budget with what was spent of it. For admins."""

class SyncBundleOperations:
    """The bundle operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def export(
        self,
        *,
        session_id: str | None = None,
        scope: Literal["session", "turn", "task", "tool_invocation", "review", "handoff"] = "session",
        turn_id: str | None = None,
        task_id: str | None = None,
        tool_call_id: str | None = None,
        review_id: str | None = None,
        recipient: str | None = None,
        policy: str | None = None,
        format: Literal["ndjson", "json", "prov"] = "ndjson",
        history: bool | None = None,
    ) -> ContextExported:
        """Export a session, turn, task, tool call, review or handoff as one bundle of records.

        It contains what you may read and the export policy allows. The export itself is recorded. Another Weftline
        imports the bundle with ``weftline import``, under the same ids. Up to 1 MiB; stream larger exports with
        ``weftline export``.
        """
    def import_(
        self, bundle: str, *, expected_digest: str | None = None, session_id: str | None = None, dry_run: bool = False
    ) -> ContextImported:
        """Import a bundle that this or another Weftline exported: all of it, or nothing.

        A session is restored with its id, all board versions, messages and events, under the names of their authors;
        this is why only admins may import. An altered bundle is rejected with the line of the first change. If the
        session id is taken, such as by an earlier handoff, pass another ``session_id``.
        """

class SyncCompactionOperations:
    """The compaction operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(
        self, session_id: str, *, agent_id: str | None = None, limit: int = 10, cursor: str | None = None
    ) -> CompactionList:
        """List the compactions of a window, newest first: state, strategy, tokens before and after, facts."""
    def show(self, compaction_id: str, *, limit: int = 2, offset: int = 0, originals: bool = True) -> CompactionShown:
        """Show a compaction: each summary next to its original events, what was dropped and why, and the key facts.

        One that is held for review is also open to the humans who may approve it. Their views are audited.
        """
    def expand(
        self,
        session_id: str,
        ids: Sequence[str],
        *,
        agent_id: str | None = None,
        compaction_id: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> CompactionExpanded:
        """Read the original events of summaries or key facts, such as when a summary lacks a detail that you need."""
    def facts(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        kind: Literal[
            "decision",
            "commitment",
            "constraint",
            "requirement",
            "preference",
            "open_question",
            "blocker",
            "owner",
            "deadline",
            "fact",
            "error",
            "pending_call",
            "identifier",
            "quantity",
            "date",
            "path",
            "url",
            "symbol",
            "quote",
        ]
        | None = None,
        status: Literal["current", "superseded", "resolved"] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> FactList:
        """List the key facts of a window with their sources: decisions, constraints, open questions, names and numbers.

        A later decision supersedes an earlier one. Facts of events since the last compaction are included.
        """
    def apply(self, compaction_id: str) -> CompactionInfo:
        """Apply a compaction that is held for review. It is applied when its review is approved, or by an approver."""
    def drop(self, session_id: str, *, agent_id: str | None = None) -> CompactionDropped:
        """Return to the original events of a window. Compact it again to undo this."""

class SyncContextOperations:
    """The context operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def ingest(
        self, session_id: str, events: Sequence[NewWindowEvent | Mapping[str, Any]], *, agent_id: str | None = None
    ) -> Ingested:
        """Add events of your conversation to your window: messages, tool calls and their results, workflow events.

        Idempotent by event_id: sending an event again changes nothing. The window is made with its first event. System
        text comes from your definition: your own system events are refused, or data if you add others with them.
        """
    def compact(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        strategy: Literal["auto", "sliding_window", "key_facts", "hierarchical", "task_scoped"] | None = None,
        target: float | None = None,
        keep_recent: int | None = None,
        wait_seconds: float = 10.0,
    ) -> ContextCompacted:
        """Compact your window: prompts get summaries and key facts in place of older events, which stay in history.

        Every decision, constraint, open question, number and name is checked to be in the result, or kept next to it.
        """
    def assemble(
        self,
        session_id: str,
        task_description: str,
        *,
        token_budget: int | None = None,
        agent_id: str | None = None,
        model: str | None = None,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"] = "neutral",
        messages: Sequence[Any] | None = None,
        system: object = None,
        tools: Sequence[Any] | Literal["auto"] | None = None,
        domains: Sequence[str] | None = None,
        min_score: float | None = None,
        cache_ttl: str | None = None,
        omit_secrets: bool = False,
        data_marking: Literal["delimit", "words"] = "delimit",
        fresh: bool = False,
    ) -> PromptAssembled:
        """Assemble the prompt for your next model call: the smallest that carries everything that matters for the task.

        Layers, pins, your conversation, relevant passages, the board and open questions, within the token budget,
        ordered so that provider caches hit. The receipt says what was left out and why, and can show the prompt again.
        """
    def emit_metrics(
        self,
        session_id: str,
        receipt_id: str,
        usage: Mapping[str, Any],
        *,
        model: str | None = None,
        latency_ms: float | None = None,
        quality_score: float | None = None,
        response_id: str | None = None,
        answer: str | Mapping[str, Any] | Sequence[Any] | None = None,
        tool_calls: Sequence[Mapping[str, Any]] | None = None,
    ) -> MetricsEmitted:
        """Report a model call: the provider's usage, and the answer, to learn how much of the prompt was used."""
    def validate_prompt(
        self,
        receipt_id: str,
        body: Mapping[str, Any],
        *,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"] = "neutral",
    ) -> PromptValidated:
        """Check a prompt right before you send it to the model: it must be the assembled one.

        Layers present, in order, unaltered and still those of the session; texts of others unchanged and marked;
        nothing in the system prompt but the layers and what those above the agent wrote; no other tools; no attack in
        turns and fields added. If not, the call fails and must not be sent.
        """
    def push(
        self,
        knowledge: Sequence[Knowledge | Mapping[str, Any]],
        *,
        remove: Sequence[RemovedKey | Mapping[str, Any]] = (),
        owner: str | None = None,
        agent_id: str | None = None,
        if_version: int | None = None,
        session_id: str | None = None,
        reason: str | None = None,
        step: str | None = None,
        branch: str | None = None,
    ) -> ContextPushed:
        """Write entries to your persistent memory, or to that of a team or user: all of them, or none.

        If the context has changed since the expected version, nothing is written and the error lists the changes: pull,
        merge, push again. A session has the new entries after its next pull. A push cannot change your definition
        (role, system prompt, guardrails, clearance).
        """
    def pull(self, session_id: str, *, agent_id: str | None = None, branch: str | None = None) -> ContextPulled:
        """Pin your latest context, your teams' memory and the layers in a session as an immutable snapshot.

        The answer lists what changed since the previous snapshot. Prompts and searches of the session use this one,
        whatever is pushed or edited, until you pull again.
        """
    def read(
        self,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        memory_type: Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        | None = None,
        key: str | None = None,
        workflow_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ContextRead:
        """Read your persistent memory: its current version or, with a session, your snapshot there.

        With owner, the memory of a team or user instead. With a key, the answer has that entry with its full value,
        even if it is in object storage.
        """
    def status(
        self,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        branch: str | None = None,
    ) -> ContextStatus:
        """Return the current version of your context, or of a team or user, and the one that your session has."""
    def copy(
        self,
        agent_id: str,
        from_agent_id: str,
        *,
        version: str | int = "head",
        memory_types: Sequence[
            Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        ] = ("conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"),
        reason: str | None = None,
        step: str | None = None,
    ) -> ContextCopied:
        """Replace an agent's persistent memory by a version of another agent's. Definitions are not copied.

        Needs clearance 4 and the right to edit both agents. The replaced version is tagged, so that it can be restored.
        """

class SyncConventionsOperations:
    """The conventions operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def define(self, name: str, groups: Sequence[ConventionGroup | Mapping[str, Any]]) -> ConventionsDefined:
        """Define the keys a domain's agents agree on; sessions name them in their config."""
    def list(self) -> ConventionNames:
        """List the key conventions that sessions can name."""

class SyncConversationOperations:
    """The conversation operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def settings(self, *, agent_id: str | None = None) -> ProxySettingsShown:
        """Show what the model proxy may change in calls of an agent: of its definition, its teams and the tenant.

        Set it with the configuration `proxy` of an agent, or the field `proxy` of a layer.
        """
    def open(
        self, handle: str, *, agent_id: str | None = None, first_line: int | None = None, last_line: int | None = None
    ) -> OutputOpened:
        """Read the whole text of a result that the model proxy or the gateway shortened, or some lines of it."""
    def calls(
        self, *, agent_id: str | None = None, session_id: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> ProxiedCallList:
        """List the receipts of calls through the model proxy, the latest first: tokens, cost, and net savings."""

class SyncEntityOperations:
    """The entity operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(
        self,
        *,
        session_id: str | None = None,
        domain: str | None = None,
        type: Literal["person", "agent", "project", "file", "identifier", "date", "url", "email"] | None = None,
        query: str | None = None,
        limit: int = 50,
    ) -> EntityListing:
        """List people, agents, projects, files, identifiers, dates, URLs and e-mail addresses in what you may see.

        Counted over the newest 1,000 passages with entities, or over all that mention an entity named exactly by query.
        """

class SyncEventsOperations:
    """The events operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def read(
        self,
        *,
        session_id: str | None = None,
        keys: Sequence[str] = ("*",),
        types: Sequence[str] = ("*",),
        personal: bool = False,
        addressed: bool = False,
        after: int | None = None,
        wait_seconds: float = 0.0,
        format: Literal["native", "cloudevents"] = "native",
    ) -> Events:
        """Read events from an offset, waiting for the next one if there is none yet.

        Events are ordered and none is lost: repeat the call with ``after`` set to the ``next_after`` of the last
        answer. If ``after`` is older than the log's retention, ``pruned_through`` says which events are missing.
        """

class SyncGatewayOperations:
    """The gateway operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def add(
        self,
        name: str,
        *,
        command: str | None = None,
        url: str | None = None,
        variables: Mapping[str, str] = {},
        agents: Sequence[str] = ("*",),
        answer_tokens: int = 4000,
        connection: Literal["agent", "tenant"] = "agent",
        cache_seconds: int = 0,
    ) -> ServerInfo:
        """Put an MCP server behind Weftline: agents find and call its tools as NAME__TOOL.

        The server is started or called to ask for its tools. Adding it approves them as they are now, except those
        whose description looks like an attack; tools that it adds or changes later are held until `gateway.approve`.
        """
    def list(self) -> ServerList:
        """List the MCP servers of the gateway, with the number of their tools by state."""
    def get(self, name: str) -> ServerInfo:
        """Show an MCP server with its tools: which are approved, held or quarantined, and why."""
    def refresh(self, name: str) -> ServerInfo:
        """Ask a server for its tools now. New and changed ones are held until `gateway.approve`."""
    def approve(self, name: str, *, tools: Sequence[str] = ()) -> ServerInfo:
        """Approve the held tools of a server as they are now.

        A quarantined tool is approved only by its name, and the call is held for a human, who sees what was detected.
        """
    def remove(self, name: str) -> Success:
        """Remove a server with its tools and its secrets."""
    def call(self, name: str, *, arguments: Mapping[str, Any] = {}) -> ToolCalled:
        """Call a tool of an MCP server of the gateway. MCP clients call it by its name, as in github__search."""

class SyncGuardrailOperations:
    """The guardrail operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def list(self, *, agent_id: str | None = None, cursor: str | None = None) -> GuardrailList:
        """List the guardrails that hold for you or an agent you may edit; those who read layers: of all layers.

        Those of agents are listed with agent_id. Hits are counted within seconds.
        """
    def test(
        self,
        tool: str,
        *,
        arguments: Mapping[str, Any] = {},
        agent_id: str | None = None,
        session_id: str | None = None,
        step: str | None = None,
        answer: object = None,
        calls: SampleCounts | Mapping[str, Any] | None = None,
        labels: Sequence[Literal["secret", "pii", "injection", "untrusted"]] | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
    ) -> GuardrailsTested:
        """Test guardrails against a sample call: which of them it violates, and what would happen. Nothing is changed.

        For clearance 3 and for admins. Give guardrails to test rules before you define them.
        """
    def check(
        self,
        tool: str,
        *,
        arguments: Mapping[str, Any] = {},
        session_id: str | None = None,
        step: str | None = None,
        answer: object = None,
    ) -> GuardrailsChecked:
        """Check a call of a tool that is not Weftline's before you make it, or with its answer; an error prohibits it.

        For runtimes: the rules of your layers, and the step you are in, hold for your other tools too, such as
        github.*.
        """

class SyncHistoryOperations:
    """The history operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def log(
        self, context_id: str, *, key: str | None = None, before_version: str | int | None = None, limit: int = 50
    ) -> Log:
        """Read the commits of a context, newest first: author, time, reason and changed keys."""
    def show(
        self, context_id: str, *, version: str | int = "head", cursor: str | None = None, limit: int = 200
    ) -> CommitShown:
        """Show one commit: its changes and its parent."""
    def state(
        self,
        context_id: str,
        *,
        version: str | int = "head",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 200,
    ) -> ContextState:
        """Read the state of a context at any version. For context:AGENT, these are its entries as PART/KEY.

        Values in object storage, and those that do not fit in the response, are returned only if you name the key.
        """
    def blame(
        self,
        context_id: str,
        *,
        version: str | int = "head",
        key: str | None = None,
        cursor: str | None = None,
        limit: int = 200,
    ) -> Blamed:
        """Show who last changed each entry as of a version, when, why and in which workflow step."""
    def diff(
        self,
        context_id: str,
        from_version: str | int,
        *,
        to_version: str | int = "head",
        other_context_id: str | None = None,
        text: bool = True,
        words: bool = False,
    ) -> Differences:
        """Compare two versions: added, removed and modified entries, with a diff of their values."""
    def verify(self, context_id: str, *, deep: bool = False) -> Verified:
        """Recompute every hash of a context, to prove that nothing was altered since it was written."""
    def bisect(
        self, context_id: str, key: str, contains: str, *, from_version: str | int = "0", to_version: str | int = "head"
    ) -> Bisected:
        """Find the first version in which a key contains a text, by binary search up to to_version.

        to_version must contain the text, and every version after the first must too. For context:AGENT, name an entry
        PART/KEY.
        """
    def snapshot(self, context_id: str, label: str) -> SnapshotTaken:
        """Name the current version of a context, to compare with it or to roll back to it. Needs clearance 3."""
    def delete_snapshot(self, context_id: str, label: str) -> SnapshotDeleted:
        """Delete a snapshot, so that retention may remove values only it needs. Needs clearance 3."""
    def snapshots(
        self, *, context_id: str | None = None, agent_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> SnapshotList:
        """List the snapshots of every context you may read, newest first; a sub-agent names those of its session."""
    def context_snapshots(self, context_id: str, *, cursor: str | None = None, limit: int = 50) -> SnapshotList:
        """List the snapshots of one context, newest first."""
    def rollback(
        self,
        context_id: str,
        target_version: str | int,
        *,
        if_version: int | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> RolledBack:
        """Return a context to an earlier version. History is not rewritten: the rollback is a new version.

        Needs clearance 3, 4 for persistent memory, 5 for the tenant's layer. With `rollback_by_tree` in the tenant's
        policy, an agent may roll back the memory and the definition of agents below it with any clearance that is not
        below theirs.
        """
    def branch(self, context_id: str, branch: str, *, from_version: str | int = "head") -> BranchInfo:
        """Start a branch from any version of a context, to try something without changing the context itself."""
    def branches(self, context_id: str) -> Branches:
        """List the branches of a context, including branches of branches."""
    def switch(self, context_id: str, *, branch: str | None = None) -> Switched:
        """Switch to a branch. Affects only your own calls that do not name a branch."""
    def delete_branch(self, context_id: str, branch: str, *, force: bool = False) -> BranchDeleted:
        """Delete a branch. Merged changes stay where they were merged."""
    def merge(
        self, context_id: str, from_context_id: str, *, reason: str | None = None, step: str | None = None
    ) -> Merged:
        """Merge the changes of another context into this one. If both changed the same keys, a human decides.

        Works in both directions: a branch into its context, and the context into its branch.
        """
    def reviews(
        self,
        *,
        context_id: str | None = None,
        state: Literal["open", "resolved", "abandoned", "superseded"] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Reviews:
        """List merges that wait for a human or were decided, with the value on each side.

        A sub-agent names the context of its session.
        """
    def review(self, review_id: str) -> ReviewInfo:
        """Read one merge review, with the value on each side."""
    def resolve(
        self,
        review_id: str,
        resolutions: Mapping[str, ConflictResolution | Mapping[str, Any]],
        *,
        fingerprint: str | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> ReviewResolved:
        """Resolve a merge key by key. Only humans may, and only for the current values of both sides."""
    def close_review(self, review_id: str) -> ReviewDropped:
        """Close a review without merging. Both contexts stay as they are."""
    def set_retention(
        self,
        subject: str,
        *,
        days: Literal[30, 90, 365, "indefinite"] | None = None,
        versions: int | None = None,
        snapshot_from: int | None = None,
    ) -> RetentionRule:
        """Set how long old versions of a context, or of a kind of context, are kept. Omitted limits stay unchanged."""
    def clear_retention(self, subject: str) -> RetentionCleared:
        """Delete a rule, so that a context follows its kind again, and a kind the default."""
    def retention(self) -> RetentionRuleList:
        """List the retention rules."""
    def prune(self, *, context_id: str | None = None) -> HistoryPruned:
        """Apply retention now instead of waiting for the daily run.

        Values that a snapshot, a branch or a session needs are never removed, and the log keeps every version.
        """
    def prune_log(self, *, context_id: str | None = None, cursor: str | None = None, limit: int = 50) -> PruneLog:
        """Read what retention removed, newest first."""

class SyncKeyOperations:
    """The key operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def create(
        self, agent_id: str, *, expires_in: int | None = None, tools: str | None = None, step: str | None = None
    ) -> ApiKeyCreated:
        """Create another API key for a principal that you may change. It is shown only once."""
    def list(self, agent_id: str) -> ApiKeyList:
        """List a principal's API keys, without their secrets."""
    def rotate(self, key_id: str) -> ApiKeyCreated:
        """Replace an API key. The new one is shown only once; the old one and its tokens are revoked at once.

        You may rotate your own keys and, as an admin or orchestrator, those of principals that you may change.
        """
    def revoke(self, key_id: str) -> Success:
        """Revoke an API key, and every token issued for it, at once."""

class SyncKnowledgeOperations:
    """The knowledge operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def create_domain(
        self,
        domain: str,
        *,
        template: str | DomainTemplate | Mapping[str, Any] | None = None,
        description: str | None = None,
        clearance: int = 1,
        agents: Sequence[str] = ("*",),
        writers: Sequence[str] = ("*",),
        chunking: ChunkingOptions | Mapping[str, Any] | None = None,
        importance: float = 0.5,
    ) -> DomainInfo:
        """Create a domain: a set of documents with common access rules, searched together.

        Needs the highest clearance, since name conflicts and quotas reveal the existence of other domains.
        """
    def list_domains(self) -> DomainList:
        """List the domains you can see, with their documents and indexing progress."""
    def show_domain(self, domain: str) -> DomainDetails:
        """Show a domain: description, access rules, indexing progress, and the evaluation of its example questions."""
    def update_domain(
        self,
        domain: str,
        *,
        description: str | None = None,
        clearance: int | None = None,
        agents: Sequence[str] | None = None,
        writers: Sequence[str] | None = None,
        chunking: ChunkingOptions | Mapping[str, Any] | None = None,
        importance: float | None = None,
    ) -> DomainInfo:
        """Update a domain. Access rules take effect at once, also for searches.

        A change of chunking or importance reindexes all documents in the background; until a document is done, searches
        find its previous chunks.
        """
    def delete_domain(self, domain: str) -> DomainDeleted:
        """Delete a domain permanently, with its documents and chunks."""
    def reindex(self, domain: str, *, reembed: bool = False) -> DomainInfo:
        """Parse, chunk and index all documents of a domain again, in the background; searches continue to work.

        show_domain shows the progress. Unchanged chunks are not embedded again, unless ``reembed`` is set.
        """
    def list_templates(self) -> TemplateList:
        """List the templates for domains that come with Weftline."""
    def show_template(self, name: str) -> TemplateInfo:
        """Show a template: chunking, metadata fields, pinned documents, retention and example questions."""
    def evaluate_domain(self, domain: str) -> EvaluationInfo:
        """Search a domain for the example questions of its template: which of them find their evidence, at which rank.

        Weftline does this by itself once documents are indexed; show_domain has the latest result.
        """
    def add_document(
        self,
        domain: str,
        document_id: str,
        *,
        wait_seconds: float = 0.0,
        text: str | None = None,
        content: str | None = None,
        media_type: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        pinned: bool = False,
        importance: float | None = None,
        timestamp: datetime | None = None,
    ) -> DocumentPut:
        """Add a document to a domain, or replace the one with the same id.

        It is chunked, embedded and indexed in the background; until then searches find the previous version. With
        wait_seconds the call ends when it is indexed, and ``state`` says so.
        """
    def add_documents(
        self, domain: str, documents: Sequence[NewDocument | Mapping[str, Any]], *, wait_seconds: float = 0.0
    ) -> DocumentsPut:
        """Add a batch of documents to a domain, atomically: all of them or none."""
    def list_documents(
        self,
        domain: str,
        *,
        state: Literal["pending", "indexed", "failed", "quarantined"] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> DocumentList:
        """List the documents of a domain, by id, with their indexing state."""
    def get_document(self, domain: str, document_id: str) -> DocumentInfo:
        """Show a document: its state, versions and chunks, and the error if indexing failed."""
    def read_document(
        self, domain: str, document_id: str, *, start: int = 0, end: int | None = None, version: int | None = None
    ) -> DocumentText:
        """Read the text of a document, or a range of it, such as the range of a search result.

        A version that is not indexed, or not yet, can be read too. It is checked first, like before indexing.
        """
    def delete_document(self, domain: str, document_id: str) -> DocumentDeleted:
        """Delete a document. Searches no longer find it."""
    def release_document(self, domain: str, document_id: str, version: int) -> DocumentPut:
        """Release a document from quarantine, after you have read the passages for which it is held.

        It is indexed as it is. Called by an agent, it asks a human.
        """
    def discard_document(self, domain: str, document_id: str, version: int) -> DocumentDiscarded:
        """Discard a document that is in quarantine: that version only, if searches find an earlier one."""
    def reindex_all(self, *, reembed: bool = False) -> ReindexStatus:
        """Reindex everything searchable: documents, messages, boards and memories.

        Runs in the background, in batches; show_reindexing returns the progress. Everything stays searchable meanwhile.
        """
    def show_reindexing(self) -> ReindexStatus:
        """Show what is being reindexed, and how much of it is left."""
    def embed(
        self,
        *,
        text: str | None = None,
        texts: Sequence[str] | None = None,
        purpose: Literal["query", "passage"] = "passage",
        model: str | None = None,
    ) -> EmbeddedTexts:
        """Embed texts: vectors of texts with similar meaning are close to each other."""
    def add_source(
        self,
        domain: str,
        kind: Literal["folder", "url", "hook"],
        *,
        folder: str | None = None,
        url: str | None = None,
        prefix: str = "",
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (),
        every_seconds: int | None = None,
        watch: bool = False,
        secret: str | None = None,
    ) -> SourceAdded:
        """Add a source to a domain: a folder, a URL or a hook, whose documents are kept in sync."""
    def list_sources(self, domain: str) -> SourceList:
        """List the sources of a domain, with the result of the last sync."""
    def update_source(
        self,
        domain: str,
        source_id: str,
        *,
        enabled: bool | None = None,
        include: Sequence[str] | None = None,
        exclude: Sequence[str] | None = None,
        every_seconds: int | None = None,
        watch: bool | None = None,
    ) -> SourceInfo:
        """Change the schedule or the files of a source, or enable or disable it."""
    def remove_source(self, domain: str, source_id: str, *, documents: bool = False) -> SourceRemoved:
        """Remove a source. Its documents stay, unless ``documents`` is set."""
    def sync_source(self, domain: str, source_id: str, *, full: bool = False) -> SyncRequested:
        """Sync a source now. Only changed files are read and indexed, unless ``full`` is set."""
    def list_models(self) -> ModelList:
        """List the embedding models that you may use, and which one searches use."""
    def allow_models(self, models: Sequence[str]) -> ModelList:
        """Restrict which embedding models the tenant may use; an empty list lifts the restriction."""
    def start_model_migration(
        self, model: str, *, shares: Sequence[float] = (0.1, 0.5), min_overlap: float = 0.3, keep_hours: int = 24
    ) -> ModelMigrationInfo:
        """Migrate searches to another embedding model: both are kept until the new one is on par.

        Then the new one answers a growing share of the queries, and at last all. If its answers differ too much, the
        migration is refused and the old one answers all queries again.
        """
    def show_model_migration(self) -> ModelMigrationInfo:
        """Show the progress of the latest model migration, and how the two models compare."""
    def cancel_model_migration(self) -> ModelMigrationInfo:
        """Cancel the model migration, or roll it back after the switch: searches use the old model, at once."""

class SyncLayerOperations:
    """The layer operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def define(
        self,
        layer: str,
        *,
        text: str | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
        policy: TrustPolicy | Mapping[str, Any] | None = None,
        compaction: CompactionSettings | Mapping[str, Any] | None = None,
        alerts: AlertSettings | Mapping[str, Any] | None = None,
        proxy: ProxySettings | Mapping[str, Any] | None = None,
        if_version: int | None = None,
        critical: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> LayerDefined:
        """Set the policies of the tenant or the guidelines of a team, which begin the prompts of all their agents.

        For humans only: clearance 5 for the tenant; clearance 3 for a team, as a member or admin. Running sessions keep
        their version of the text until a pull; everything else holds from the next call.
        """
    def show(self, *, agent_id: str | None = None, session_id: str | None = None) -> LayersShown:
        """Show the layers that begin your prompts, or those of an agent you may edit: level, version, hash and text.

        Guidelines of teams that you may not see are left out.
        """
    def list(self, *, limit: int = 200, cursor: str | None = None) -> LayerList:
        """List the layers of the tenant and of your teams, without their texts. For clearance 3 and for admins."""

class SyncMemoryOperations:
    """The memory operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def set(
        self,
        key: str,
        value: object,
        *,
        session_id: str | None = None,
        expires_in: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        overwrite: bool = True,
        if_version: int | None = None,
        derived_from: Sequence[str] = (),
        reason: str | None = None,
        step: str | None = None,
    ) -> MemorySet:
        """Store a value in your private memory: globally, or for one session.

        Only you can read it. The last write wins, unless you pass ``if_version`` or ``overwrite``.
        """
    def get(self, key: str, *, session_id: str | None = None) -> MemoryFound:
        """Read an entry of your private memory."""
    def list(
        self,
        *,
        session_id: str | None = None,
        prefix: str | None = None,
        values: bool = False,
        limit: int = 50,
        cursor: str | None = None,
    ) -> MemoryListed:
        """List your private memory with sizes, and with values if you ask for them."""
    def delete(
        self,
        key: str,
        *,
        session_id: str | None = None,
        if_version: int | None = None,
        reason: str | None = None,
        step: str | None = None,
    ) -> MemoryDeleted:
        """Delete an entry of your private memory."""
    def overview(self, agent_id: str) -> MemoryOverview:
        """Return your whole memory with values and totals."""
    def inspect(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> MemoryInspected:
        """Read an agent's private memory with values, page by page.

        For admins only, up to their own clearance; every use is written to the audit log.
        """

class SyncMessageOperations:
    """The message operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def add(
        self,
        session_id: str,
        content: str,
        *,
        visibility: Literal["public", "private", "agent_only", "admin_only"] | None = None,
        team: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent_message_id: int | None = None,
        recipient_id: str | None = None,
        message_type: str = "message",
        category: str = "DIALOG",
        derived_from: Sequence[str] = (),
    ) -> MessageAdded:
        """Add a message to a session: for all members, one of them, agents of your type, a team, or only yourself.

        Reply to a message with ``parent_message_id``. A reply to a direct message goes to its other side only.
        """
    def list(
        self,
        session_id: str,
        *,
        limit: int = 50,
        offset: int = 0,
        visibility_filter: Literal["public", "private", "agent_only", "admin_only"] | None = None,
        after_id: int = 0,
    ) -> Messages:
        """Read the messages of a session that you may see, oldest first.

        Pages are stable while others write, because new messages come last. To poll, pass ``after_id``. A page is
        shorter than ``limit`` if it would exceed about 4 MiB; ``has_more`` is then true.
        """
    def set_visibility(
        self, session_id: str, message_id: int, visibility: Literal["public", "private", "agent_only", "admin_only"]
    ) -> VisibilityChanged:
        """Change the visibility of a message, such as one that should not be public. For admins; audited."""
    def inspect(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Messages:
        """Read every message of a session, whatever its visibility. For admins; every use is audited."""
    def inbox(
        self,
        *,
        session_id: str | None = None,
        sender: str | None = None,
        acknowledge: Sequence[str] = (),
        limit: int = 20,
    ) -> InboxPage:
        """Read the messages addressed to you, oldest first, from all your sessions; acknowledge earlier ones.

        A message stays until you pass its handle in ``acknowledge``, so nothing is lost if you stop between reading and
        acting. If there are more than ``limit``, the senders take turns.
        """
    def search(
        self,
        session_id: str,
        query: str,
        *,
        fuzzy_threshold: float = 60.0,
        limit: int = 10,
        search_metadata: bool = True,
        search_scope: Literal["all", "public", "private"] = "all",
        record: bool = False,
    ) -> MessageSearchResponse:
        """Search the messages of one session by keywords, which may be misspelt, or with a question.

        A score of 100 means that the message matches the whole query, or matches terms that no other message has. To
        search by meaning, and in documents, boards and memory too, use search.
        """
    def search_by_sender(self, session_id: str, sender: str, *, limit: int = 20, offset: int = 0) -> MessagesBySender:
        """List the messages of one sender in a session that you may read, newest first."""
    def search_by_timerange(
        self, session_id: str, start_time: str, end_time: str, *, limit: int = 50, offset: int = 0
    ) -> MessagesByTime:
        """List the messages of a time range in a session that you may read, oldest first."""

class SyncMissingOperations:
    """The missing operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def report(
        self,
        session_id: str,
        question: str,
        *,
        severity: Literal["info", "low", "medium", "high", "blocking"] = "medium",
        scope: Literal["turn", "task", "session", "tool_invocation", "review", "handoff", "custom"] | None = None,
        needed_for: str | None = None,
        candidate_sources: Sequence[PossibleSource | Mapping[str, Any]] = (),
        blocked_actions: Sequence[str] = (),
        missing_id: str | None = None,
    ) -> MissingReported:
        """Report information that is missing, instead of guessing.

        If the same question is already open in the session, that one is returned.
        """
    def list(
        self,
        *,
        session_id: str | None = None,
        status: Literal["open", "detected", "requested", "resolved", "all"] = "open",
        severity: Literal["info", "low", "medium", "high", "blocking"] = "info",
        task_id: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> MissingListed:
        """List missing context, most severe and oldest first."""
    def resolve(
        self,
        missing_id: str,
        *,
        resolution_refs: Sequence[str] = (),
        answer: str | None = None,
        session_id: str | None = None,
    ) -> MissingResolved:
        """Resolve missing context with references or an answer. Any participant may.

        An ``answer`` is written to the board. Writing the key ``answer_…`` also resolves it, and so does the reply of a
        peer to its task message.
        """
    def request(
        self,
        missing_id: str,
        form: Literal["user_question", "retrieval", "tool_invocation", "policy_request", "peer_task"],
        *,
        agent_id: str | None = None,
        tool: str | None = None,
        requested_from: str | None = None,
        detail: str | None = None,
        session_id: str | None = None,
    ) -> MissingRequested:
        """Request missing context from the user, earlier messages, a tool, a policy or a peer.

        Several requests in different forms are possible. Repeating a request changes nothing, except for a retrieval,
        which searches again.
        """

class SyncPerformanceOperations:
    """The performance operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def read(self, *, history_hours: int = 0) -> Performance:
        """Get performance figures: database, memory, CPU, caches, calls and trends.

        Calls, sessions, agents and caches are those of your tenant only. Memory, CPU and connections are those of the
        answering process, for the operator's tenant (the default one, or the only one); for others they are null,
        because they would show what other tenants do. History and trends cover all server processes and survive
        restarts. A figure that cannot be measured is null.
        """

class SyncPinOperations:
    """The pin operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def add(
        self,
        *,
        session_id: str | None = None,
        message_id: int | None = None,
        key: str | None = None,
        memory_key: str | None = None,
        memory_type: Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        | None = None,
        workflow_id: str | None = None,
        owner: str | None = None,
    ) -> PinInfo:
        """Pin a message, a board key or a key of your memory: it is part of every prompt, whatever the task.

        A pin of a session applies to all who may read the item; it stays when the key is written again.
        """
    def remove(
        self,
        *,
        session_id: str | None = None,
        message_id: int | None = None,
        key: str | None = None,
        memory_key: str | None = None,
        memory_type: Literal["conversation_context", "learned_knowledge", "team_preferences", "work_artifacts"]
        | None = None,
        workflow_id: str | None = None,
        owner: str | None = None,
    ) -> PinRemoved:
        """Unpin a message, a board key or a key of your memory. The item itself stays."""
    def list(self, *, session_id: str | None = None) -> PinList:
        """List what is pinned in a session and in your memory, with its tokens."""

class SyncPlanOperations:
    """The plan operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def show(self) -> PlanShown:
        """Show the tenant's plan: its limits, and how much of them is used. For admins."""

class SyncPolicyOperations:
    """The policy operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def set(self, name: str, definition: PolicyDefinition | Mapping[str, Any]) -> PolicyInfo:
        """Add or replace an export policy: what an export may contain, in which form, and who may use the policy.

        A policy named default applies to exports that name none; while it exists, only admins may use the built-in
        ones.
        """
    def list(self) -> PolicyList:
        """List the export policies that you may use, and which one is the default."""
    def delete(self, name: str) -> PolicyDeleted:
        """Delete an export policy. Exports made with it still refer to it, with the digest of its definition."""

class SyncReceiptOperations:
    """The receipt operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def show(self, receipt_id: str, *, candidates: bool = True) -> ReceiptShown:
        """Show the receipt of a prompt: blocks, candidates, omissions with reasons, budget, savings and timing."""
    def list(
        self, *, session_id: str | None = None, agent_id: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> ReceiptList:
        """List receipts of your prompts, newest first; those of agents below you with agent_id."""
    def replay(
        self,
        receipt_id: str,
        *,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic", "gemini"] = "neutral",
    ) -> PromptReplayed:
        """Show the prompt of a receipt again, byte for byte, in any wire form.

        Not possible once retention or a redaction has removed content of it.
        """
    def savings(
        self,
        *,
        by: Literal["tenant", "session", "agent", "model"] = "agent",
        session_id: str | None = None,
        agent_id: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> SavingsReport:
        """Add up tokens and money of prompts against the conversation alone, by agent, session, model or tenant."""

class SyncRecordsOperations:
    """The records operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def add(
        self,
        records: Sequence[Mapping[str, Any]],
        *,
        session_id: str | None = None,
        readable_by: Sequence[str] | None = None,
    ) -> RecordsAdded:
        """Record what your own framework did with context: envelopes, selections, budgets, assemblies, compactions.

        Idempotent: adding an identical record changes nothing. A context_event is published under its class to event
        subscribers. The source items of a compaction or summary must exist: stored ones, or items of the same call.
        Records of other producers are read as openly as the standard is, kept and returned as they were given.
        """
    def set_lifecycle(
        self,
        record_id: str,
        lifecycle: Literal[
            "draft", "available", "selected", "assembled", "injected", "compacted", "redacted", "expired", "archived"
        ],
        *,
        session_id: str | None = None,
    ) -> LifecycleSet:
        """Set the lifecycle state of an envelope. For the principal that recorded it, and for admins.

        States only move forward: draft, available, selected, assembled, injected; any of these may become compacted,
        redacted, expired or archived.
        """
    def list(
        self,
        *,
        session_id: str | None = None,
        agent: str | None = None,
        turn_id: str | None = None,
        task_id: str | None = None,
        tool_call_id: str | None = None,
        item_id: str | None = None,
        native_id: str | None = None,
        types: Sequence[
            Literal[
                "context_envelope",
                "context_surface",
                "context_item",
                "context_source_ref",
                "context_selection",
                "context_budget",
                "context_window",
                "context_assembly",
                "context_injection",
                "context_compaction",
                "context_summary",
                "missing_context",
                "context_event",
            ]
        ] = (),
        since: str | None = None,
        until: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Records:
        """List what happened as portable records, in log order: by session, agent, turn, task, item or time.

        Key versions and messages are context items, sessions are surfaces; records added by agents are listed
        unchanged. Only records that you may read now are listed.
        """
    def show(
        self,
        record_id: str,
        *,
        type: Literal[
            "context_envelope",
            "context_surface",
            "context_item",
            "context_source_ref",
            "context_selection",
            "context_budget",
            "context_window",
            "context_assembly",
            "context_injection",
            "context_compaction",
            "context_summary",
            "missing_context",
            "context_event",
        ]
        | None = None,
        with_content: bool = False,
        session_id: str | None = None,
    ) -> RecordShown:
        """Show one record by its id: a stored one, or one derived from the board, messages, sessions or events.

        For an item, the answer includes the records that reference it and its redaction; redacted content is not shown.
        The ref of a search result shows its full source ref, its entities and, as content, its text.
        """
    def schema(
        self,
        type: Literal[
            "context_envelope",
            "context_surface",
            "context_item",
            "context_source_ref",
            "context_selection",
            "context_budget",
            "context_window",
            "context_assembly",
            "context_injection",
            "context_compaction",
            "context_summary",
            "missing_context",
            "context_event",
        ],
    ) -> RecordSchema:
        """Return the JSON Schema of a record type and the path at which this server publishes it."""
    def redact(
        self,
        item_id: str,
        state: Literal["none", "masked", "removed", "summarized", "encrypted_ref", "policy_blocked"],
        reason: str,
        *,
        method: str | None = None,
        replacement: str | None = None,
        session_id: str | None = None,
    ) -> ItemRedacted:
        """Redact an item wherever it is read: board, messages, windows, memory, histories, prompts, search, exports.

        An item is one version of a key, one message, or one recorded item, summary or assembly. Its author and admins
        may redact it. The content stays stored for those with the permission ``audit``, who read it with
        ``records.reveal``. Definitions and layers are redacted in records and exports only: write a new version of
        them.
        """
    def reveal(self, item_id: str, reason: str, *, session_id: str | None = None) -> ItemRevealed:
        """Read an item as it was before its redaction.

        Needs the permission ``audit``, which admins grant, and access to the item itself; every call is audited.
        """
    def resolve(
        self,
        *,
        source_id: str | None = None,
        source_ref: Mapping[str, Any] | None = None,
        against: str | None = None,
        media_type: str | None = None,
        session_id: str | None = None,
    ) -> SourceResolved:
        """Find the passage of a source ref in the current text of its source: exact, moved or lost.

        Exact means the same text at the same position. Weftline fetches nothing from outside.
        """

class SyncSearchOperations:
    """The search operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def query(
        self,
        query: str,
        *,
        domain: str | None = None,
        domains: Sequence[str] | None = None,
        session_id: str | None = None,
        sources: Sequence[Literal["document", "message", "board", "memory", "event"]] | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        types: Sequence[str] | None = None,
        entities: Sequence[str] | None = None,
        min_score: float | None = None,
        recency_weight: float = 0.02,
        half_life_days: float = 30.0,
        importance_weight: float = 0.15,
        top_k: int = 10,
        low_confidence: bool = False,
        explain: bool = False,
        record: bool = False,
    ) -> SearchResponse:
        """Search everything you may see by keywords and meaning: documents, messages, boards, your memory and windows.

        Each result has a score and a ref, which context_records opens. If the answer may not be there, unsure is true
        and only the best few results are returned.
        """
    def find_similar(
        self,
        *,
        domain: str | None = None,
        domains: Sequence[str] | None = None,
        session_id: str | None = None,
        sources: Sequence[Literal["document", "message", "board", "memory", "event"]] | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        types: Sequence[str] | None = None,
        entities: Sequence[str] | None = None,
        ref: str | None = None,
        text: str | None = None,
        top_k: int = 10,
        min_score: float = 0.0,
        explain: bool = False,
    ) -> SimilarResponse:
        """Find passages similar in meaning to a search result or a text; the result itself is excluded."""
    def get_context(
        self,
        *,
        domain: str | None = None,
        domains: Sequence[str] | None = None,
        session_id: str | None = None,
        sources: Sequence[Literal["document", "message", "board", "memory", "event"]] | None = None,
        prefix: str | None = None,
        owner: str | None = None,
        since: str | None = None,
        until: str | None = None,
        metadata: Mapping[str, str | int | float | bool | None] | None = None,
        types: Sequence[str] | None = None,
        entities: Sequence[str] | None = None,
        min_score: float | None = None,
        recency_weight: float = 0.02,
        half_life_days: float = 30.0,
        importance_weight: float = 0.15,
        query: str | None = None,
        ref: str | None = None,
        max_tokens: int = 2000,
        tokenizer: Literal["approximate", "o200k_base", "cl100k_base"] = "approximate",
        explain: bool = False,
        record: bool = False,
    ) -> ContextResponse:
        """Gather one text for a prompt: the passages that answer a question, with surroundings, within a token budget.

        They are the ones that a prompt gets. Passages are numbered and have citations. With a ref instead of a query:
        the surroundings of that search result.
        """

class SyncSessionOperations:
    """The session operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def create(
        self,
        purpose: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        config: SessionConfig | Mapping[str, Any] | None = None,
        members: Sequence[str] | None = None,
        exist_ok: bool = False,
    ) -> SessionCreated:
        """Create a session: an isolated workspace for its members, with an empty board.

        It lasts until it is archived or deleted, across days, conversations and restarts. Members are you and the
        agents below you, unless you name others.
        """
    def list(self, *, limit: int = 50, cursor: str | None = None, include_archived: bool = False) -> SessionList:
        """List the sessions you are a member of, newest first."""
    def archive(self, session_id: str) -> SessionArchivedAt:
        """Make a session read-only and keep it for reading and audit."""
    def delete(self, session_id: str, *, force: bool = False) -> SessionDeleted:
        """Delete a session permanently, with its board, messages, session memory and windows.

        For its creator, those above it and admins. Refused while others depend on it, with the list of who and what,
        unless forced. The audit log keeps an entry.
        """
    def add_members(self, session_id: str, members: Sequence[str]) -> MembersAdded:
        """Add agents, humans, teams or patterns to a session; they see all of it, also what came before.

        For the creator of the session, those above it and admins.
        """
    def remove_members(self, session_id: str, members: Sequence[str]) -> MembersRemoved:
        """Remove members from a session; they lose access to all of it at once.

        For the creator of the session, those above it and admins. Names an entry as the session shows it.
        """
    def reinstate(self, session_id: str, agent_id: str) -> AgentReinstated:
        """Admit an agent again to a session that a rule ended for it. For human members with clearance 3 or higher."""
    def get(self, session_id: str) -> SessionFound:
        """Get a session: purpose, members, state, settings and latest messages."""
    def overview(self, session_id: str) -> SessionOverview:
        """Get an overview of a session: state, latest messages, figures."""
    def inspect(self, session_id: str, *, branch: str | None = None) -> Inspection:
        """Read everything on a session's board, values included, and verify its history.

        For admins only; every call is audited.
        """

class SyncSigningKeyOperations:
    """The signing key operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def rotate(self, *, revoke_existing: bool = False) -> Success:
        """Replace the secret that signs the tenant's tokens, and the key that signs its layers and definitions.

        This affects the whole tenant, so it needs clearance 5.
        """

class SyncStepOperations:
    """The step operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def define(
        self,
        name: str,
        tools: Sequence[str],
        *,
        description: str = "",
        shared_with: Literal["tree", "tenant"] | None = None,
    ) -> StepInfo:
        """Define a step of a task: the tools that callers in it see and may call, and no others.

        Callers enter it by the endpoint /mcp/step/NAME, or by a token or key that is bound to it. It takes effect on
        their next call. It grants nothing: they need the same rights as without it.
        """
    def list(self) -> StepList:
        """List the steps that you can enter: of the tenant, of your tree and of the principals above you."""
    def remove(self, name: str, *, shared_with: Literal["tree", "tenant"] | None = None) -> Success:
        """Remove a step. Credentials that are bound to it may call nothing until it is defined again."""

class SyncTeamOperations:
    """The team operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def create(self, team: str, *, description: str = "") -> TeamInfo:
        """Create a team without members. For admins."""
    def list(self, *, after: str | None = None, limit: int = 100) -> TeamList:
        """List the teams you are a member of; as an admin, all."""
    def show(self, team: str) -> TeamShown:
        """Show a team you are a member of: its members, and the versions of its memory and guidelines."""
    def update(self, team: str, description: str) -> TeamInfo:
        """Change the description of a team. For admins."""
    def delete(self, team: str, *, force: bool = False) -> TeamDeleted:
        """Delete a team with its memory and guidelines, for good. For admins; its name cannot be used again."""
    def add_member(self, team: str, agent_id: str) -> MemberChanged:
        """Add an agent or a human to a team; it sees the team's memory with its next call.

        For admins and for members with clearance 3 or higher, who can add principals that they may edit.
        """
    def remove_member(self, team: str, agent_id: str) -> MemberChanged:
        """Remove a member from a team; it loses access with its next call.

        For admins and for members with clearance 3 or higher, who can remove principals that they may edit.
        """

class SyncTokenOperations:
    """The token operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def issue(
        self,
        agent_id: str,
        agent_type: str,
        api_key: str,
        *,
        requested_permissions: Sequence[Literal["read", "write", "admin", "audit"]] = ("read", "write"),
        step: str | None = None,
        single_use: bool = False,
    ) -> TokenIssued:
        """Exchange an agent's API key for a token that expires.

        The token carries the requested permissions as far as an admin granted them to the agent. Send it as
        ``Authorization: Bearer TOKEN`` with every request; an MCP client connects again with this header.
        """
    def refresh(self) -> TokenIssued:
        """Get a new token for the one that this call uses; the old one stays valid until it expires.

        A token can be refreshed for a day (by default); after that, authenticate with the API key again. One for a
        single use ends with this call: of several calls with it, one gets a token.
        """
    def revoke(self, *, token_id: str | None = None, agent_id: str | None = None, refreshed: bool = False) -> Success:
        """Revoke a token, or all of a principal, at once; as an admin, of one you may edit."""

class SyncToolsOperations:
    """The tools operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def search(self, query: str, *, limit: int = 5) -> ToolsFound:
        """Find the MCP tools for a task among those you may use, each with one line on what it does."""
    def describe(self, name: str, *, session_id: str | None = None, output_schema: bool = False) -> ToolDescription:
        """Describe an MCP tool or one of its actions in full: description, input schema, output schema on request."""
    def register(
        self,
        tools: Sequence[ToolDraft | Mapping[str, Any]],
        *,
        server: str = "",
        complete: bool = False,
        shared_with: Literal["tree", "tenant"] | None = None,
    ) -> ToolsRegistered:
        """Register the tools of your runtime, so that each task gets the few it needs. All of them or none.

        Weftline does not call them: it chooses, describes and meters them. A name that is registered already gets the
        new definition; names of Weftline's own tools and of tools registered above you are refused.
        """
    def list(self, *, after: str | None = None, limit: int = 100) -> RegisteredToolList:
        """List the registered tools that you have: of the tenant, of your tree and of the principals above you."""
    def remove(self, name: str, *, shared_with: Literal["tree", "tenant"] | None = None) -> Success:
        """Remove a tool that you registered; registering it again brings it back."""
    def select(
        self,
        task_description: str,
        *,
        session_id: str | None = None,
        include: Sequence[str] = (),
        own_tools: bool = False,
    ) -> ToolsSelected:
        """Choose the tools for a task among the registered ones: those that fit it, at most ten.

        The list stays the same, byte for byte, while it has what the task needs, so that provider caches survive;
        another task or step changes it.
        """

class SyncTrustOperations:
    """The trust operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def trace(self, item: str, *, steps: int = 5, possible: bool = True, limit: int = 100) -> ItemTraced:
        """Show what was derived from an item, such as a poisoned document: by declaration, by copy, through prompts.

        Admins trace through the prompts of all agents, others through their own.
        """
    def forget(
        self,
        item: str,
        reason: str,
        *,
        mode: Literal["delete", "flag"] = "delete",
        possible: Literal["flag", "keep"] = "flag",
        erase: bool = True,
        steps: int = 5,
        dry_run: bool = True,
    ) -> ItemForgotten:
        """Delete or flag a source and everything derived from it. By default a dry run, which only shows what to do.

        Needs clearance 4. What was surely derived is deleted or flagged as the source is; what may have been is
        flagged.
        """

class SyncUsageOperations:
    """The usage operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def report(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        agent_id: str | None = None,
        team: str | None = None,
        session_id: str | None = None,
        model: str | None = None,
        kind: Literal["assembly", "compaction", "proxy"] | None = None,
        by: Literal["tenant", "team", "agent", "session", "step", "model", "kind", "minute", "hour", "day"] = "agent",
        limit: int = 100,
    ) -> UsageReported:
        """Add up tokens, money, savings, latency and efficiency of model calls, by agent, team, model or time.

        Sums are exact at any time. You see your own usage and that of agents below you; admins see all.
        """
    def export(
        self,
        *,
        since: str | None = None,
        until: str | None = None,
        agent_id: str | None = None,
        team: str | None = None,
        session_id: str | None = None,
        model: str | None = None,
        kind: Literal["assembly", "compaction", "proxy"] | None = None,
        unit: Literal["hour", "day"] = "day",
        form: Literal["csv", "json"] = "csv",
        cursor: str | None = None,
    ) -> UsageExported:
        """Export usage as CSV or JSON lines, page by page: a row for each interval, agent, session, step and model."""

class SyncWebhookOperations:
    """The webhook operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def create(
        self,
        url: str,
        *,
        types: Sequence[str] = ("*",),
        session_id: str | None = None,
        description: str = "",
        secret: str | None = None,
    ) -> WebhookCreated:
        """Send future events to an address, signed. The secret is shown only once.

        The webhook receives the events that you may see, as long as you are an admin. A delivery that is not answered
        with a 2xx status within ten seconds is retried for most of a day.
        """
    def list(self) -> WebhookList:
        """List the webhooks with their delivery counts, without their secrets."""
    def update(self, webhook_id: str, *, enabled: bool) -> WebhookInfo:
        """Disable a webhook, or enable it: it resumes where it stopped, with every event since then."""
    def delete(self, webhook_id: str) -> WebhookDeleted:
        """Delete a webhook and its pending deliveries."""
    def test(self, webhook_id: str) -> WebhookTested:
        """Send an event of type weftline.webhook.test now and return the receiver's answer."""
    def deliveries(
        self, webhook_id: str, *, state: Literal["pending", "dead"] | None = None, after: int = 0, limit: int = 100
    ) -> DeliveryList:
        """List a webhook's pending deliveries and dead letters, with the result of the last attempt."""
    def replay(
        self, webhook_id: str, *, seqs: Sequence[int] = (), dead: bool = False, from_seq: int | None = None
    ) -> WebhookReplayed:
        """Send dead letters again, some or all, or every event from a seq on.

        The webhook-id of an event stays the same, so receivers can deduplicate.
        """

class SyncWindowOperations:
    """The window operations."""

    def __init__(self, caller: SyncCaller) -> None: ...
    def create(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        model_max_tokens: int | None = None,
        shared_cw_max_tokens: int | None = None,
        reserved_tokens: int | None = None,
        budgets: Mapping[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"], float]
        | None = None,
        compaction_threshold: float | None = None,
        autosave: bool | None = None,
    ) -> WindowView:
        """Create an agent's window in a session. A sub-agent's starts with a copy of its parent's SYSTEM and CONTEXT.

        Its limit is that of its own model; if that is smaller than the parent's, the parent gets a note.
        """
    def show(self, session_id: str, *, agent_id: str | None = None) -> WindowView:
        """Show a window: limit, budgets and use by category, sharing, routes and clamps."""
    def list(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> WindowList:
        """List the windows of a session that you may open: your own, those of agents below you, as an admin all."""
    def events(self, session_id: str, *, agent_id: str | None = None, limit: int = 50, offset: int = 0) -> WindowEvents:
        """Read the events of a window, oldest first, with those that other agents route to it."""
    def pop(self, session_id: str, *, agent_id: str | None = None) -> WindowEventPopped:
        """Remove the newest event of a window and return it, such as an answer to be asked for again.

        Events that other agents route to the window stay. Its history keeps the event.
        """
    def update(
        self,
        session_id: str,
        *,
        agent_id: str | None = None,
        model: str | None = None,
        model_max_tokens: int | None = None,
        shared_cw_max_tokens: int | None = None,
        reserved_tokens: int | None = None,
        budgets: Mapping[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"], float]
        | None = None,
        compaction_threshold: float | None = None,
        autosave: bool | None = None,
    ) -> WindowView:
        """Change the settings of a window, such as its model. Budgets follow the new limit."""
    def delete(self, session_id: str, *, agent_id: str | None = None) -> WindowDeleted:
        """Delete a window with its events and their history. Copies in other windows stay."""
    def release(self, session_id: str, event_ids: Sequence[str], *, agent_id: str | None = None) -> EventsReleased:
        """Release events that are held because they look like an attack. Called by an agent, it asks a human."""
    def refresh(self, session_id: str, *, agent_id: str | None = None) -> WindowRefreshed:
        """Copy what changed in the parent's SYSTEM and CONTEXT since a sub-agent's window was made or refreshed."""
    def join(self, session_id: str, with_agent_id: str, *, agent_id: str | None = None) -> WindowView:
        """Let an agent use another agent's window. Its limit becomes the minimum over all that share it.

        You need access to both windows: as an ancestor of both, or as one of them and ancestor of the other, or as an
        admin. The agent's own window is kept until it leaves.
        """
    def leave(self, session_id: str, *, agent_id: str | None = None) -> WindowView:
        """Let an agent leave the window it shares and use its own again. The others' limit is computed again."""
    def route(
        self,
        session_id: str,
        categories: Sequence[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"]],
        *,
        to_agents: Sequence[str] = (),
        to_types: Sequence[str] = (),
        to_teams: Sequence[str] = (),
        agent_id: str | None = None,
    ) -> WindowRoutes:
        """Show categories of a window to other agents, roles or teams. Nothing is copied: they see them in theirs.

        SYSTEM events of an agent that is no ancestor of the reader appear there as CONTEXT.
        """
    def unroute(
        self,
        session_id: str,
        categories: Sequence[Literal["SYSTEM", "CONTEXT", "DIALOG", "SYSTEM_OUTPUT", "ERROR", "INTERNAL"]],
        *,
        to_agents: Sequence[str] = (),
        to_types: Sequence[str] = (),
        to_teams: Sequence[str] = (),
        agent_id: str | None = None,
    ) -> WindowRoutes:
        """Stop showing categories of a window to other agents, roles or teams."""
    def checkpoint(self, session_id: str, label: str, *, agent_id: str | None = None) -> Checkpoint:
        """Name the current state of all windows that you may open, or of one, to return to it later."""
    def checkpoints(
        self, session_id: str, *, agent_id: str | None = None, include_automatic: bool = True
    ) -> Checkpoints:
        """List the checkpoints of all windows that you may open, by label."""
    def restore(
        self,
        session_id: str,
        label: str,
        *,
        agent_id: str | None = None,
        from_agent_id: str | None = None,
        all_agents: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> CheckpointRestored:
        """Return a window to a checkpoint: yours, or another agent's, or all that have it and that you may open.

        History is not rewritten: the restored state is a new version. With from_agent_id, another agent's checkpoint is
        restored into a window; its redacted events are left out.
        """
    def branch(
        self, session_id: str, label: str, branch: str, *, agent_id: str | None = None, switch: bool = False
    ) -> CheckpointBranched:
        """Start a branch from a checkpoint in all windows that have it and that you may open, or in one."""

class SyncOperations:
    """All operations, by group."""

    _caller: SyncCaller
    advise: SyncAdviseOperations
    agent: SyncAgentOperations
    alerts: SyncAlertsOperations
    approval: SyncApprovalOperations
    audit: SyncAuditOperations
    board: SyncBoardOperations
    budget: SyncBudgetOperations
    bundle: SyncBundleOperations
    compaction: SyncCompactionOperations
    context: SyncContextOperations
    conventions: SyncConventionsOperations
    conversation: SyncConversationOperations
    entity: SyncEntityOperations
    events: SyncEventsOperations
    gateway: SyncGatewayOperations
    guardrail: SyncGuardrailOperations
    history: SyncHistoryOperations
    key: SyncKeyOperations
    knowledge: SyncKnowledgeOperations
    layer: SyncLayerOperations
    memory: SyncMemoryOperations
    message: SyncMessageOperations
    missing: SyncMissingOperations
    performance: SyncPerformanceOperations
    pin: SyncPinOperations
    plan: SyncPlanOperations
    policy: SyncPolicyOperations
    receipt: SyncReceiptOperations
    records: SyncRecordsOperations
    search: SyncSearchOperations
    session: SyncSessionOperations
    signing_key: SyncSigningKeyOperations
    step: SyncStepOperations
    team: SyncTeamOperations
    token: SyncTokenOperations
    tools: SyncToolsOperations
    trust: SyncTrustOperations
    usage: SyncUsageOperations
    webhook: SyncWebhookOperations
    window: SyncWindowOperations
    def __init__(self, caller: SyncCaller) -> None: ...
