# Written by scripts/generate.py from the operation registry; change the operations instead.
# mypy: disable-error-code="no-any-return"
"""Blocking method for each operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weftline.client._calling import SyncCaller, given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from typing import Any, Literal

    from weftline.access.audit import AuditLog
    from weftline.access.operations import AgentCreated, AgentUpdated, ApiKeyCreated, ApiKeyList, TokenIssued
    from weftline.exchange.lineage.operations import ItemForgotten, ItemTraced
    from weftline.exchange.missing_context.operations import (
        MissingListed,
        MissingReported,
        MissingResolved,
        PossibleSource,
    )
    from weftline.exchange.missing_context.requests import MissingRequested
    from weftline.exchange.record_log.add import LifecycleSet, RecordsAdded
    from weftline.exchange.record_log.list_records import Records
    from weftline.exchange.record_log.redact import ItemRedacted, ItemRevealed
    from weftline.exchange.record_log.resolve_source import SourceResolved
    from weftline.exchange.record_log.show import RecordSchema, RecordShown
    from weftline.exchange.transfer.export import ContextExported
    from weftline.exchange.transfer.importer import ContextImported
    from weftline.exchange.transfer.policies import PolicyDeleted, PolicyInfo, PolicyList
    from weftline.exchange.transfer.policy_filter import PolicyDefinition
    from weftline.history.bisect import Bisected
    from weftline.history.branches import BranchDeleted, Branches, BranchInfo, Switched
    from weftline.history.diff import Differences
    from weftline.history.log import Blamed, CommitShown, ContextState, Log
    from weftline.history.merge_operations import Merged
    from weftline.history.merge_reviews import ConflictResolution, ReviewDropped, ReviewInfo, ReviewResolved, Reviews
    from weftline.history.retention import HistoryPruned, PruneLog, RetentionCleared, RetentionRule, RetentionRuleList
    from weftline.history.rollback import RolledBack
    from weftline.history.snapshots import SnapshotDeleted, SnapshotList, SnapshotTaken
    from weftline.history.verify import Verified
    from weftline.indexing.chunking.model import ChunkingOptions
    from weftline.indexing.embeddings.operations import EmbeddedTexts
    from weftline.indexing.model_migration.operations import ModelList, ModelMigrationInfo
    from weftline.insight.alerts.operations import AlertInfo, AlertList
    from weftline.insight.guidance.operations import UsageGuidance
    from weftline.insight.guidance.plan import PlanShown
    from weftline.insight.metrics.operations import Performance
    from weftline.insight.recommendations.model import ProposedSettings
    from weftline.insight.recommendations.operations import AdviceList, AdviceShown, AdviceTried
    from weftline.insight.usage.operations import UsageExported, UsageReported
    from weftline.kernel.operation import Success
    from weftline.knowledge.document_operations import DocumentPut, DocumentsPut, NewDocument
    from weftline.knowledge.document_queries import DocumentDeleted, DocumentList, DocumentText
    from weftline.knowledge.document_review import DocumentDiscarded
    from weftline.knowledge.documents import DocumentInfo
    from weftline.knowledge.domain_operations import DomainDeleted, DomainDetails, DomainInfo, DomainList
    from weftline.knowledge.sources.operations import SourceAdded, SourceInfo, SourceList, SourceRemoved, SyncRequested
    from weftline.knowledge.templates.model import DomainTemplate
    from weftline.knowledge.templates.operations import TemplateInfo, TemplateList
    from weftline.models.budgets.operations import BudgetDeleted, BudgetInfo, BudgetList
    from weftline.prompts.assembly.get_context import ContextResponse
    from weftline.prompts.assembly.operations import PromptAssembled
    from weftline.prompts.assembly.receipt_operations import PromptReplayed, ReceiptList, ReceiptShown, SavingsReport
    from weftline.prompts.assembly.usage_report import MetricsEmitted
    from weftline.prompts.assembly.validate_operation import PromptValidated
    from weftline.prompts.tools.catalogue import ToolDescription, ToolsFound
    from weftline.prompts.tools.operations import RegisteredToolList, ToolDraft, ToolsRegistered, ToolsSelected
    from weftline.prompts.tools.step_operations import StepInfo, StepList
    from weftline.safety.approvals.operations import ApprovalDecided, ApprovalList, ApprovalShown
    from weftline.safety.guardrails.model import Guardrail
    from weftline.safety.trust.policy import TrustPolicy
    from weftline.search.domain_evaluation import EvaluationInfo
    from weftline.search.entity_operations import EntityListing
    from weftline.search.operations import SearchResponse, SimilarResponse
    from weftline.search.pin_operations import PinInfo, PinList, PinRemoved
    from weftline.search.session_indexing.reindex import ReindexStatus
    from weftline.sessions.agent_directory import AgentList
    from weftline.sessions.events.operations import Events
    from weftline.sessions.events.webhooks.operations import (
        DeliveryList,
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
    from weftline.sessions.messages.search.by_sender_and_time import MessagesBySender, MessagesByTime
    from weftline.sessions.messages.search.operations import MessageSearchResponse
    from weftline.sessions.messages.session_overview import SessionFound, SessionOverview
    from weftline.sessions.model import SessionConfig
    from weftline.sessions.operations import SessionArchivedAt, SessionCreated, SessionDeleted, SessionList
    from weftline.sessions.teams.operations import MemberChanged, TeamDeleted, TeamInfo, TeamList, TeamShown
    from weftline.state.agent_context.alert_settings import AlertSettings
    from weftline.state.agent_context.compaction_settings import CompactionSettings
    from weftline.state.agent_context.copy_context import ContextCopied
    from weftline.state.agent_context.definitions import AgentDefined, DefinitionRead
    from weftline.state.agent_context.pull import ContextPulled, ContextRead, ContextStatus
    from weftline.state.agent_context.push import ContextPushed, Knowledge, RemovedKey
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
    from weftline.state.layers.guardrail_operations import (
        GuardrailList,
        GuardrailsChecked,
        GuardrailsTested,
        SampleCounts,
    )
    from weftline.state.layers.operations import LayerDefined, LayerList, LayersShown
    from weftline.state.memory.admin_view import MemoryInspected, MemoryOverview
    from weftline.state.memory.operations import MemoryDeleted, MemoryFound, MemoryListed, MemorySet
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
    from weftline.windows.ingest import Ingested, NewWindowEvent
    from weftline.windows.operations import WindowDeleted, WindowEventPopped, WindowEvents, WindowList
    from weftline.windows.review import EventsReleased
    from weftline.windows.shared_windows import WindowRefreshed, WindowRoutes
    from weftline.windows.views import WindowView


class SyncAdviseOperations:
    """The advise operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def list(self, *, agent_id: str | None = None, calls: int = 50) -> AdviceList:
        """List what would make prompts smaller or cheaper, with what the last calls would have saved.

        Each recommendation was tried by planning these calls again: compaction, shares of the window, models, tools
        never called, documents, pins and board keys that no answer uses, copies, outdated context.
        """
        return self._caller.call("advise.list", {"calls": calls, **given(agent_id=agent_id)})

    def show(self, recommendation_id: str, *, calls: int = 50) -> AdviceShown:
        """Show a recommendation: its evidence, what it would have saved, and the command that makes the change."""
        return self._caller.call("advise.show", {"recommendation_id": recommendation_id, "calls": calls})

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
        return self._caller.call(
            "advise.try",
            {
                "calls": calls,
                **given(
                    recommendation_id=recommendation_id, agent_id=agent_id, settings=settings, receipt_id=receipt_id
                ),
            },
        )


class SyncAgentOperations:
    """The agent operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "agent.define",
            {
                "agent_id": agent_id,
                "critical": critical,
                **given(
                    role=role,
                    system_prompt=system_prompt,
                    guardrails=guardrails,
                    config=config,
                    if_version=if_version,
                    reason=reason,
                    step=step,
                ),
            },
        )

    def read_definition(self, agent_id: str, *, version: str | int = "head") -> DefinitionRead:
        """Read a version of the definition of an agent: your own, or that of an agent you may edit."""
        return self._caller.call("agent.read_definition", {"agent_id": agent_id, "version": version})

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
        return self._caller.call(
            "agent.create",
            {
                "agent_id": agent_id,
                "kind": kind,
                "clearance": clearance,
                "permissions": permissions,
                "exist_ok": exist_ok,
                **given(agent_type=agent_type, parent_id=parent_id, min_score=min_score, instructions=instructions),
            },
        )

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
        return self._caller.call(
            "agent.update",
            {
                "agent_id": agent_id,
                **given(
                    permissions=permissions,
                    clearance=clearance,
                    disabled=disabled,
                    min_score=min_score,
                    parent_id=parent_id,
                ),
            },
        )

    def list(self, *, session_id: str | None = None, after: str | None = None, limit: int = 100) -> AgentList:
        """List the agents and humans you may address: the members of a session, or your tree and your teams.

        Your tree: those above and below you, and those with the same parent. Admins see the whole tenant.
        """
        return self._caller.call("agent.list", {"limit": limit, **given(session_id=session_id, after=after)})

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
        return self._caller.call("agent.capabilities", {"guidance_type": guidance_type})


class SyncAlertsOperations:
    """The alerts operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "alerts.list",
            {
                "state": state,
                "limit": limit,
                **given(condition=condition, agent_id=agent_id, digest_id=digest_id, cursor=cursor),
            },
        )

    def acknowledge(self, alert_id: str) -> AlertInfo:
        """Acknowledge an alert: you look into it. It stays active until it is resolved."""
        return self._caller.call("alerts.acknowledge", {"alert_id": alert_id})

    def resolve(self, alert_id: str) -> AlertInfo:
        """Resolve an alert; a digest with all alerts in it. Only later calls of the agent open it again."""
        return self._caller.call("alerts.resolve", {"alert_id": alert_id})


class SyncApprovalOperations:
    """The approval operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def list(
        self,
        *,
        state: Literal["pending", "approved", "performed", "rejected", "expired"] | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> ApprovalList:
        """List calls that wait for approval or were decided: all for approvers, otherwise your own."""
        return self._caller.call("approval.list", {"limit": limit, **given(state=state, cursor=cursor)})

    def show(self, approval_id: str) -> ApprovalShown:
        """Show a held call with its request; its caller also sees the answer. Views of others are audited."""
        return self._caller.call("approval.show", {"approval_id": approval_id})

    def approve(self, approval_id: str, *, reason: str | None = None) -> ApprovalDecided:
        """Approve a held call: it is performed once, as its caller, past the check that held it."""
        return self._caller.call("approval.approve", {"approval_id": approval_id, **given(reason=reason)})

    def reject(self, approval_id: str, *, reason: str | None = None) -> ApprovalDecided:
        """Reject a held call: it is never performed, and its caller is told."""
        return self._caller.call("approval.reject", {"approval_id": approval_id, **given(reason=reason)})


class SyncAuditOperations:
    """The audit operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "audit.list",
            {
                "limit": limit,
                **given(
                    before=before,
                    outcome=outcome,
                    action=action,
                    agent_id=agent_id,
                    target=target,
                    since=since,
                    until=until,
                ),
            },
        )


class SyncBoardOperations:
    """The board operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def list_keys(
        self, session_id: str, *, prefix: str | None = None, values: bool = False, branch: str | None = None
    ) -> Keys:
        """List the keys of the board with sizes, to choose what to read; with ``values``, read them at once."""
        return self._caller.call(
            "board.list_keys", {"session_id": session_id, "values": values, **given(prefix=prefix, branch=branch)}
        )

    def read(self, session_id: str, key: str, *, branch: str | None = None) -> EntryRead:
        """Read one entry."""
        return self._caller.call("board.read", {"session_id": session_id, "key": key, **given(branch=branch)})

    def read_batch(self, session_id: str, keys: Sequence[str], *, branch: str | None = None) -> EntriesRead:
        """Read several entries from one consistent state in one call."""
        return self._caller.call("board.read_batch", {"session_id": session_id, "keys": keys, **given(branch=branch)})

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
        return self._caller.call(
            "board.write",
            {
                "session_id": session_id,
                "key": key,
                "value": value,
                "derived_from": derived_from,
                **given(
                    if_version=if_version,
                    ttl_seconds=ttl_seconds,
                    readable_by=readable_by,
                    writable_by=writable_by,
                    branch=branch,
                    reason=reason,
                    step=step,
                ),
            },
        )

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
        return self._caller.call(
            "board.delete",
            {
                "session_id": session_id,
                "key": key,
                **given(if_version=if_version, branch=branch, reason=reason, step=step),
            },
        )

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
        return self._caller.call(
            "board.read_history",
            {"session_id": session_id, "key": key, **given(versions=versions, incarnation=incarnation, branch=branch)},
        )

    def snapshot(self, session_id: str, label: str, *, branch: str | None = None) -> SnapshotInfo:
        """Name the current state of the whole board, to read, compare or restore it later."""
        return self._caller.call("board.snapshot", {"session_id": session_id, "label": label, **given(branch=branch)})

    def list_snapshots(self, session_id: str, *, branch: str | None = None) -> Snapshots:
        """List the board's snapshots."""
        return self._caller.call("board.list_snapshots", {"session_id": session_id, **given(branch=branch)})

    def read_snapshot(self, session_id: str, label: str, *, branch: str | None = None) -> SnapshotRead:
        """Read the board as of a snapshot."""
        return self._caller.call(
            "board.read_snapshot", {"session_id": session_id, "label": label, **given(branch=branch)}
        )

    def compare_snapshots(
        self, session_id: str, from_label: str, *, to_label: str | None = None, branch: str | None = None
    ) -> Comparison:
        """Compare two snapshots, or a snapshot with the current board."""
        return self._caller.call(
            "board.compare_snapshots",
            {"session_id": session_id, "from_label": from_label, **given(to_label=to_label, branch=branch)},
        )

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
        return self._caller.call(
            "board.restore_snapshot",
            {"session_id": session_id, "label": label, **given(branch=branch, reason=reason, step=step)},
        )

    def guidance(
        self,
        *,
        session_id: str | None = None,
        conventions: str | None = None,
        part: Literal["all", "conventions", "writing", "reading"] = "all",
    ) -> Guidance:
        """Get the text for an agent's system prompt that explains how to use the board."""
        return self._caller.call(
            "board.guidance", {"part": part, **given(session_id=session_id, conventions=conventions)}
        )

    def check(
        self, session_id: str, *, branch: str | None = None, stale_hours: float = 168.0, unread_hours: float = 1.0
    ) -> BoardCheck:
        """Check the board for raw dumps, likely secrets and personal data, stale, duplicate and unread keys."""
        return self._caller.call(
            "board.check",
            {
                "session_id": session_id,
                "stale_hours": stale_hours,
                "unread_hours": unread_hours,
                **given(branch=branch),
            },
        )


class SyncBudgetOperations:
    """The budget operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "budget.set",
            {
                "subject": subject,
                "period": period,
                "at_limit": at_limit,
                "warn_at": warn_at,
                **given(tokens=tokens, cost=cost, tree_share=tree_share, agent_share=agent_share),
            },
        )

    def list(self, *, agent_id: str | None = None, limit: int = 100, cursor: str | None = None) -> BudgetList:
        """List the budgets that limit you, or an agent below you, with what is spent; as an admin, all."""
        return self._caller.call("budget.list", {"limit": limit, **given(agent_id=agent_id, cursor=cursor)})

    def delete(self, subject: str, period: Literal["day", "month"]) -> BudgetDeleted:
        """Delete a budget with what was spent of it. For admins."""
        return self._caller.call("budget.delete", {"subject": subject, "period": period})


class SyncBundleOperations:
    """The bundle operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "bundle.export",
            {
                "scope": scope,
                "format": format,
                **given(
                    session_id=session_id,
                    turn_id=turn_id,
                    task_id=task_id,
                    tool_call_id=tool_call_id,
                    review_id=review_id,
                    recipient=recipient,
                    policy=policy,
                    history=history,
                ),
            },
        )

    def import_(
        self, bundle: str, *, expected_digest: str | None = None, session_id: str | None = None, dry_run: bool = False
    ) -> ContextImported:
        """Import a bundle that this or another Weftline exported: all of it, or nothing.

        A session is restored with its id, all board versions, messages and events, under the names of their authors;
        this is why only admins may import. An altered bundle is rejected with the line of the first change. If the
        session id is taken, such as by an earlier handoff, pass another ``session_id``.
        """
        return self._caller.call(
            "bundle.import",
            {"bundle": bundle, "dry_run": dry_run, **given(expected_digest=expected_digest, session_id=session_id)},
        )


class SyncCompactionOperations:
    """The compaction operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def list(
        self, session_id: str, *, agent_id: str | None = None, limit: int = 10, cursor: str | None = None
    ) -> CompactionList:
        """List the compactions of a window, newest first: state, strategy, tokens before and after, facts."""
        return self._caller.call(
            "compaction.list", {"session_id": session_id, "limit": limit, **given(agent_id=agent_id, cursor=cursor)}
        )

    def show(self, compaction_id: str, *, limit: int = 2, offset: int = 0, originals: bool = True) -> CompactionShown:
        """Show a compaction: each summary next to its original events, what was dropped and why, and the key facts.

        One that is held for review is also open to the humans who may approve it. Their views are audited.
        """
        return self._caller.call(
            "compaction.show",
            {"compaction_id": compaction_id, "limit": limit, "offset": offset, "originals": originals},
        )

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
        return self._caller.call(
            "compaction.expand",
            {
                "session_id": session_id,
                "ids": ids,
                "limit": limit,
                "offset": offset,
                **given(agent_id=agent_id, compaction_id=compaction_id),
            },
        )

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
        return self._caller.call(
            "compaction.facts",
            {
                "session_id": session_id,
                "limit": limit,
                "offset": offset,
                **given(agent_id=agent_id, kind=kind, status=status),
            },
        )

    def apply(self, compaction_id: str) -> CompactionInfo:
        """Apply a compaction that is held for review. It is applied when its review is approved, or by an approver."""
        return self._caller.call("compaction.apply", {"compaction_id": compaction_id})

    def drop(self, session_id: str, *, agent_id: str | None = None) -> CompactionDropped:
        """Return to the original events of a window. Compact it again to undo this."""
        return self._caller.call("compaction.drop", {"session_id": session_id, **given(agent_id=agent_id)})


class SyncContextOperations:
    """The context operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def ingest(
        self, session_id: str, events: Sequence[NewWindowEvent | Mapping[str, Any]], *, agent_id: str | None = None
    ) -> Ingested:
        """Add events of your conversation to your window: messages, tool calls and their results, workflow events.

        Idempotent by event_id: sending an event again changes nothing. The window is made with its first event. System
        text comes from your definition: your own system events are refused, or data if you add others with them.
        """
        return self._caller.call(
            "context.ingest", {"session_id": session_id, "events": events, **given(agent_id=agent_id)}
        )

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
        return self._caller.call(
            "context.compact",
            {
                "session_id": session_id,
                "wait_seconds": wait_seconds,
                **given(agent_id=agent_id, strategy=strategy, target=target, keep_recent=keep_recent),
            },
        )

    def assemble(
        self,
        session_id: str,
        task_description: str,
        *,
        token_budget: int | None = None,
        agent_id: str | None = None,
        model: str | None = None,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic"] = "neutral",
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
        return self._caller.call(
            "context.assemble",
            {
                "session_id": session_id,
                "task_description": task_description,
                "form": form,
                "omit_secrets": omit_secrets,
                "data_marking": data_marking,
                "fresh": fresh,
                **given(
                    token_budget=token_budget,
                    agent_id=agent_id,
                    model=model,
                    messages=messages,
                    system=system,
                    tools=tools,
                    domains=domains,
                    min_score=min_score,
                    cache_ttl=cache_ttl,
                ),
            },
        )

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
        return self._caller.call(
            "context.emit_metrics",
            {
                "session_id": session_id,
                "receipt_id": receipt_id,
                "usage": usage,
                **given(
                    model=model,
                    latency_ms=latency_ms,
                    quality_score=quality_score,
                    response_id=response_id,
                    answer=answer,
                    tool_calls=tool_calls,
                ),
            },
        )

    def validate_prompt(
        self,
        receipt_id: str,
        body: Mapping[str, Any],
        *,
        form: Literal["neutral", "openai_chat", "openai_responses", "anthropic"] = "neutral",
    ) -> PromptValidated:
        """Check a prompt right before you send it to the model: it must be the assembled one.

        Layers present, in order, unaltered and still those of the session; texts of others unchanged and marked;
        nothing in the system prompt but the layers and what those above the agent wrote; no other tools; no attack in
        turns and fields added. If not, the call fails and must not be sent.
        """
        return self._caller.call("context.validate_prompt", {"receipt_id": receipt_id, "body": body, "form": form})

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
        return self._caller.call(
            "context.push",
            {
                "knowledge": knowledge,
                "remove": remove,
                **given(
                    owner=owner,
                    agent_id=agent_id,
                    if_version=if_version,
                    session_id=session_id,
                    reason=reason,
                    step=step,
                    branch=branch,
                ),
            },
        )

    def pull(self, session_id: str, *, agent_id: str | None = None, branch: str | None = None) -> ContextPulled:
        """Pin your latest context, your teams' memory and the layers in a session as an immutable snapshot.

        The answer lists what changed since the previous snapshot. Prompts and searches of the session use this one,
        whatever is pushed or edited, until you pull again.
        """
        return self._caller.call("context.pull", {"session_id": session_id, **given(agent_id=agent_id, branch=branch)})

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
        return self._caller.call(
            "context.read",
            {
                "limit": limit,
                **given(
                    owner=owner,
                    session_id=session_id,
                    memory_type=memory_type,
                    key=key,
                    workflow_id=workflow_id,
                    cursor=cursor,
                ),
            },
        )

    def status(
        self,
        *,
        owner: str | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        branch: str | None = None,
    ) -> ContextStatus:
        """Return the current version of your context, or of a team or user, and the one that your session has."""
        return self._caller.call(
            "context.status", given(owner=owner, session_id=session_id, agent_id=agent_id, branch=branch)
        )

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
        return self._caller.call(
            "context.copy",
            {
                "agent_id": agent_id,
                "from_agent_id": from_agent_id,
                "version": version,
                "memory_types": memory_types,
                **given(reason=reason, step=step),
            },
        )


class SyncConventionsOperations:
    """The conventions operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def define(self, name: str, groups: Sequence[ConventionGroup | Mapping[str, Any]]) -> ConventionsDefined:
        """Define the keys a domain's agents agree on; sessions name them in their config."""
        return self._caller.call("conventions.define", {"name": name, "groups": groups})

    def list(self) -> ConventionNames:
        """List the key conventions that sessions can name."""
        return self._caller.call("conventions.list", {})


class SyncEntityOperations:
    """The entity operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "entity.list", {"limit": limit, **given(session_id=session_id, domain=domain, type=type, query=query)}
        )


class SyncEventsOperations:
    """The events operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "events.read",
            {
                "keys": keys,
                "types": types,
                "personal": personal,
                "addressed": addressed,
                "wait_seconds": wait_seconds,
                "format": format,
                **given(session_id=session_id, after=after),
            },
        )


class SyncGuardrailOperations:
    """The guardrail operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def list(self, *, agent_id: str | None = None, cursor: str | None = None) -> GuardrailList:
        """List the guardrails that hold for you or an agent you may edit; those who read layers: of all layers.

        Those of agents are listed with agent_id. Hits are counted within seconds.
        """
        return self._caller.call("guardrail.list", given(agent_id=agent_id, cursor=cursor))

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
        return self._caller.call(
            "guardrail.test",
            {
                "tool": tool,
                "arguments": arguments,
                **given(
                    agent_id=agent_id,
                    session_id=session_id,
                    step=step,
                    answer=answer,
                    calls=calls,
                    labels=labels,
                    guardrails=guardrails,
                ),
            },
        )

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
        return self._caller.call(
            "guardrail.check",
            {"tool": tool, "arguments": arguments, **given(session_id=session_id, step=step, answer=answer)},
        )


class SyncHistoryOperations:
    """The history operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def log(
        self, context_id: str, *, key: str | None = None, before_version: str | int | None = None, limit: int = 50
    ) -> Log:
        """Read the commits of a context, newest first: author, time, reason and changed keys."""
        return self._caller.call(
            "history.log", {"context_id": context_id, "limit": limit, **given(key=key, before_version=before_version)}
        )

    def show(
        self, context_id: str, *, version: str | int = "head", cursor: str | None = None, limit: int = 200
    ) -> CommitShown:
        """Show one commit: its changes and its parent."""
        return self._caller.call(
            "history.show", {"context_id": context_id, "version": version, "limit": limit, **given(cursor=cursor)}
        )

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
        return self._caller.call(
            "history.state",
            {"context_id": context_id, "version": version, "limit": limit, **given(key=key, cursor=cursor)},
        )

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
        return self._caller.call(
            "history.blame",
            {"context_id": context_id, "version": version, "limit": limit, **given(key=key, cursor=cursor)},
        )

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
        return self._caller.call(
            "history.diff",
            {
                "context_id": context_id,
                "from_version": from_version,
                "to_version": to_version,
                "text": text,
                "words": words,
                **given(other_context_id=other_context_id),
            },
        )

    def verify(self, context_id: str, *, deep: bool = False) -> Verified:
        """Recompute every hash of a context, to prove that nothing was altered since it was written."""
        return self._caller.call("history.verify", {"context_id": context_id, "deep": deep})

    def bisect(
        self, context_id: str, key: str, contains: str, *, from_version: str | int = "0", to_version: str | int = "head"
    ) -> Bisected:
        """Find the first version in which a key contains a text, by binary search up to to_version.

        to_version must contain the text, and every version after the first must too. For context:AGENT, name an entry
        PART/KEY.
        """
        return self._caller.call(
            "history.bisect",
            {
                "context_id": context_id,
                "key": key,
                "contains": contains,
                "from_version": from_version,
                "to_version": to_version,
            },
        )

    def snapshot(self, context_id: str, label: str) -> SnapshotTaken:
        """Name the current version of a context, to compare with it or to roll back to it. Needs clearance 3."""
        return self._caller.call("history.snapshot", {"context_id": context_id, "label": label})

    def delete_snapshot(self, context_id: str, label: str) -> SnapshotDeleted:
        """Delete a snapshot, so that retention may remove values only it needs. Needs clearance 3."""
        return self._caller.call("history.delete_snapshot", {"context_id": context_id, "label": label})

    def snapshots(
        self, *, context_id: str | None = None, agent_id: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> SnapshotList:
        """List the snapshots of every context you may read, newest first; a sub-agent names those of its session."""
        return self._caller.call(
            "history.snapshots", {"limit": limit, **given(context_id=context_id, agent_id=agent_id, cursor=cursor)}
        )

    def context_snapshots(self, context_id: str, *, cursor: str | None = None, limit: int = 50) -> SnapshotList:
        """List the snapshots of one context, newest first."""
        return self._caller.call(
            "history.context_snapshots", {"context_id": context_id, "limit": limit, **given(cursor=cursor)}
        )

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
        return self._caller.call(
            "history.rollback",
            {
                "context_id": context_id,
                "target_version": target_version,
                **given(if_version=if_version, reason=reason, step=step),
            },
        )

    def branch(self, context_id: str, branch: str, *, from_version: str | int = "head") -> BranchInfo:
        """Start a branch from any version of a context, to try something without changing the context itself."""
        return self._caller.call(
            "history.branch", {"context_id": context_id, "branch": branch, "from_version": from_version}
        )

    def branches(self, context_id: str) -> Branches:
        """List the branches of a context, including branches of branches."""
        return self._caller.call("history.branches", {"context_id": context_id})

    def switch(self, context_id: str, *, branch: str | None = None) -> Switched:
        """Switch to a branch. Affects only your own calls that do not name a branch."""
        return self._caller.call("history.switch", {"context_id": context_id, **given(branch=branch)})

    def delete_branch(self, context_id: str, branch: str, *, force: bool = False) -> BranchDeleted:
        """Delete a branch. Merged changes stay where they were merged."""
        return self._caller.call("history.delete_branch", {"context_id": context_id, "branch": branch, "force": force})

    def merge(
        self, context_id: str, from_context_id: str, *, reason: str | None = None, step: str | None = None
    ) -> Merged:
        """Merge the changes of another context into this one. If both changed the same keys, a human decides.

        Works in both directions: a branch into its context, and the context into its branch.
        """
        return self._caller.call(
            "history.merge",
            {"context_id": context_id, "from_context_id": from_context_id, **given(reason=reason, step=step)},
        )

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
        return self._caller.call(
            "history.reviews", {"limit": limit, **given(context_id=context_id, state=state, cursor=cursor)}
        )

    def review(self, review_id: str) -> ReviewInfo:
        """Read one merge review, with the value on each side."""
        return self._caller.call("history.review", {"review_id": review_id})

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
        return self._caller.call(
            "history.resolve",
            {
                "review_id": review_id,
                "resolutions": resolutions,
                **given(fingerprint=fingerprint, reason=reason, step=step),
            },
        )

    def close_review(self, review_id: str) -> ReviewDropped:
        """Close a review without merging. Both contexts stay as they are."""
        return self._caller.call("history.close_review", {"review_id": review_id})

    def set_retention(
        self,
        subject: str,
        *,
        days: Literal[30, 90, 365, "indefinite"] | None = None,
        versions: int | None = None,
        snapshot_from: int | None = None,
    ) -> RetentionRule:
        """Set how long old versions of a context, or of a kind of context, are kept. Omitted limits stay unchanged."""
        return self._caller.call(
            "history.set_retention",
            {"subject": subject, **given(days=days, versions=versions, snapshot_from=snapshot_from)},
        )

    def clear_retention(self, subject: str) -> RetentionCleared:
        """Delete a rule, so that a context follows its kind again, and a kind the default."""
        return self._caller.call("history.clear_retention", {"subject": subject})

    def retention(self) -> RetentionRuleList:
        """List the retention rules."""
        return self._caller.call("history.retention", {})

    def prune(self, *, context_id: str | None = None) -> HistoryPruned:
        """Apply retention now instead of waiting for the daily run.

        Values that a snapshot, a branch or a session needs are never removed, and the log keeps every version.
        """
        return self._caller.call("history.prune", given(context_id=context_id))

    def prune_log(self, *, context_id: str | None = None, cursor: str | None = None, limit: int = 50) -> PruneLog:
        """Read what retention removed, newest first."""
        return self._caller.call("history.prune_log", {"limit": limit, **given(context_id=context_id, cursor=cursor)})


class SyncKeyOperations:
    """The key operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def create(
        self, agent_id: str, *, expires_in: int | None = None, tools: str | None = None, step: str | None = None
    ) -> ApiKeyCreated:
        """Create another API key for a principal that you may change. It is shown only once."""
        return self._caller.call(
            "key.create", {"agent_id": agent_id, **given(expires_in=expires_in, tools=tools, step=step)}
        )

    def list(self, agent_id: str) -> ApiKeyList:
        """List a principal's API keys, without their secrets."""
        return self._caller.call("key.list", {"agent_id": agent_id})

    def rotate(self, key_id: str) -> ApiKeyCreated:
        """Replace an API key. The new one is shown only once; the old one and its tokens are revoked at once.

        You may rotate your own keys and, as an admin or orchestrator, those of principals that you may change.
        """
        return self._caller.call("key.rotate", {"key_id": key_id})

    def revoke(self, key_id: str) -> Success:
        """Revoke an API key, and every token issued for it, at once."""
        return self._caller.call("key.revoke", {"key_id": key_id})


class SyncKnowledgeOperations:
    """The knowledge operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "knowledge.create_domain",
            {
                "domain": domain,
                "clearance": clearance,
                "agents": agents,
                "writers": writers,
                "importance": importance,
                **given(template=template, description=description, chunking=chunking),
            },
        )

    def list_domains(self) -> DomainList:
        """List the domains you can see, with their documents and indexing progress."""
        return self._caller.call("knowledge.list_domains", {})

    def show_domain(self, domain: str) -> DomainDetails:
        """Show a domain: description, access rules, indexing progress, and the evaluation of its example questions."""
        return self._caller.call("knowledge.show_domain", {"domain": domain})

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
        return self._caller.call(
            "knowledge.update_domain",
            {
                "domain": domain,
                **given(
                    description=description,
                    clearance=clearance,
                    agents=agents,
                    writers=writers,
                    chunking=chunking,
                    importance=importance,
                ),
            },
        )

    def delete_domain(self, domain: str) -> DomainDeleted:
        """Delete a domain permanently, with its documents and chunks."""
        return self._caller.call("knowledge.delete_domain", {"domain": domain})

    def reindex(self, domain: str, *, reembed: bool = False) -> DomainInfo:
        """Parse, chunk and index all documents of a domain again, in the background; searches continue to work.

        show_domain shows the progress. Unchanged chunks are not embedded again, unless ``reembed`` is set.
        """
        return self._caller.call("knowledge.reindex", {"domain": domain, "reembed": reembed})

    def list_templates(self) -> TemplateList:
        """List the templates for domains that come with Weftline."""
        return self._caller.call("knowledge.list_templates", {})

    def show_template(self, name: str) -> TemplateInfo:
        """Show a template: chunking, metadata fields, pinned documents, retention and example questions."""
        return self._caller.call("knowledge.show_template", {"name": name})

    def evaluate_domain(self, domain: str) -> EvaluationInfo:
        """Search a domain for the example questions of its template: which of them find their evidence, at which rank.

        Weftline does this by itself once documents are indexed; show_domain has the latest result.
        """
        return self._caller.call("knowledge.evaluate_domain", {"domain": domain})

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
        return self._caller.call(
            "knowledge.add_document",
            {
                "domain": domain,
                "wait_seconds": wait_seconds,
                "document_id": document_id,
                "pinned": pinned,
                **given(
                    text=text,
                    content=content,
                    media_type=media_type,
                    title=title,
                    metadata=metadata,
                    importance=importance,
                    timestamp=timestamp,
                ),
            },
        )

    def add_documents(
        self, domain: str, documents: Sequence[NewDocument | Mapping[str, Any]], *, wait_seconds: float = 0.0
    ) -> DocumentsPut:
        """Add a batch of documents to a domain, atomically: all of them or none."""
        return self._caller.call(
            "knowledge.add_documents", {"domain": domain, "documents": documents, "wait_seconds": wait_seconds}
        )

    def list_documents(
        self,
        domain: str,
        *,
        state: Literal["pending", "indexed", "failed", "quarantined"] | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> DocumentList:
        """List the documents of a domain, by id, with their indexing state."""
        return self._caller.call(
            "knowledge.list_documents", {"domain": domain, "limit": limit, **given(state=state, cursor=cursor)}
        )

    def get_document(self, domain: str, document_id: str) -> DocumentInfo:
        """Show a document: its state, versions and chunks, and the error if indexing failed."""
        return self._caller.call("knowledge.get_document", {"domain": domain, "document_id": document_id})

    def read_document(
        self, domain: str, document_id: str, *, start: int = 0, end: int | None = None, version: int | None = None
    ) -> DocumentText:
        """Read the text of a document, or a range of it, such as the range of a search result.

        A version that is not indexed, or not yet, can be read too. It is checked first, like before indexing.
        """
        return self._caller.call(
            "knowledge.read_document",
            {"domain": domain, "document_id": document_id, "start": start, **given(end=end, version=version)},
        )

    def delete_document(self, domain: str, document_id: str) -> DocumentDeleted:
        """Delete a document. Searches no longer find it."""
        return self._caller.call("knowledge.delete_document", {"domain": domain, "document_id": document_id})

    def release_document(self, domain: str, document_id: str, version: int) -> DocumentPut:
        """Release a document from quarantine, after you have read the passages for which it is held.

        It is indexed as it is. Called by an agent, it asks a human.
        """
        return self._caller.call(
            "knowledge.release_document", {"domain": domain, "document_id": document_id, "version": version}
        )

    def discard_document(self, domain: str, document_id: str, version: int) -> DocumentDiscarded:
        """Discard a document that is in quarantine: that version only, if searches find an earlier one."""
        return self._caller.call(
            "knowledge.discard_document", {"domain": domain, "document_id": document_id, "version": version}
        )

    def reindex_all(self, *, reembed: bool = False) -> ReindexStatus:
        """Reindex everything searchable: documents, messages, boards and memories.

        Runs in the background, in batches; show_reindexing returns the progress. Everything stays searchable meanwhile.
        """
        return self._caller.call("knowledge.reindex_all", {"reembed": reembed})

    def show_reindexing(self) -> ReindexStatus:
        """Show what is being reindexed, and how much of it is left."""
        return self._caller.call("knowledge.show_reindexing", {})

    def embed(
        self,
        *,
        text: str | None = None,
        texts: Sequence[str] | None = None,
        purpose: Literal["query", "passage"] = "passage",
        model: str | None = None,
    ) -> EmbeddedTexts:
        """Embed texts: vectors of texts with similar meaning are close to each other."""
        return self._caller.call("knowledge.embed", {"purpose": purpose, **given(text=text, texts=texts, model=model)})

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
        return self._caller.call(
            "knowledge.add_source",
            {
                "domain": domain,
                "kind": kind,
                "prefix": prefix,
                "include": include,
                "exclude": exclude,
                "watch": watch,
                **given(folder=folder, url=url, every_seconds=every_seconds, secret=secret),
            },
        )

    def list_sources(self, domain: str) -> SourceList:
        """List the sources of a domain, with the result of the last sync."""
        return self._caller.call("knowledge.list_sources", {"domain": domain})

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
        return self._caller.call(
            "knowledge.update_source",
            {
                "domain": domain,
                "source_id": source_id,
                **given(enabled=enabled, include=include, exclude=exclude, every_seconds=every_seconds, watch=watch),
            },
        )

    def remove_source(self, domain: str, source_id: str, *, documents: bool = False) -> SourceRemoved:
        """Remove a source. Its documents stay, unless ``documents`` is set."""
        return self._caller.call(
            "knowledge.remove_source", {"domain": domain, "source_id": source_id, "documents": documents}
        )

    def sync_source(self, domain: str, source_id: str, *, full: bool = False) -> SyncRequested:
        """Sync a source now. Only changed files are read and indexed, unless ``full`` is set."""
        return self._caller.call("knowledge.sync_source", {"domain": domain, "source_id": source_id, "full": full})

    def list_models(self) -> ModelList:
        """List the embedding models that you may use, and which one searches use."""
        return self._caller.call("knowledge.list_models", {})

    def allow_models(self, models: Sequence[str]) -> ModelList:
        """Restrict which embedding models the tenant may use; an empty list lifts the restriction."""
        return self._caller.call("knowledge.allow_models", {"models": models})

    def start_model_migration(
        self, model: str, *, shares: Sequence[float] = (0.1, 0.5), min_overlap: float = 0.3, keep_hours: int = 24
    ) -> ModelMigrationInfo:
        """Migrate searches to another embedding model: both are kept until the new one is on par.

        Then the new one answers a growing share of the queries, and at last all. If its answers differ too much, the
        migration is refused and the old one answers all queries again.
        """
        return self._caller.call(
            "knowledge.start_model_migration",
            {"model": model, "shares": shares, "min_overlap": min_overlap, "keep_hours": keep_hours},
        )

    def show_model_migration(self) -> ModelMigrationInfo:
        """Show the progress of the latest model migration, and how the two models compare."""
        return self._caller.call("knowledge.show_model_migration", {})

    def cancel_model_migration(self) -> ModelMigrationInfo:
        """Cancel the model migration, or roll it back after the switch: searches use the old model, at once."""
        return self._caller.call("knowledge.cancel_model_migration", {})


class SyncLayerOperations:
    """The layer operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def define(
        self,
        layer: str,
        *,
        text: str | None = None,
        guardrails: Sequence[Guardrail | Mapping[str, Any]] | None = None,
        policy: TrustPolicy | Mapping[str, Any] | None = None,
        compaction: CompactionSettings | Mapping[str, Any] | None = None,
        alerts: AlertSettings | Mapping[str, Any] | None = None,
        if_version: int | None = None,
        critical: bool = False,
        reason: str | None = None,
        step: str | None = None,
    ) -> LayerDefined:
        """Set the policies of the tenant or the guidelines of a team, which begin the prompts of all their agents.

        For humans only: clearance 5 for the tenant; clearance 3 for a team, as a member or admin. Running sessions keep
        their version of the text until a pull; everything else holds from the next call.
        """
        return self._caller.call(
            "layer.define",
            {
                "layer": layer,
                "critical": critical,
                **given(
                    text=text,
                    guardrails=guardrails,
                    policy=policy,
                    compaction=compaction,
                    alerts=alerts,
                    if_version=if_version,
                    reason=reason,
                    step=step,
                ),
            },
        )

    def show(self, *, agent_id: str | None = None, session_id: str | None = None) -> LayersShown:
        """Show the layers that begin your prompts, or those of an agent you may edit: level, version, hash and text.

        Guidelines of teams that you may not see are left out.
        """
        return self._caller.call("layer.show", given(agent_id=agent_id, session_id=session_id))

    def list(self, *, limit: int = 200, cursor: str | None = None) -> LayerList:
        """List the layers of the tenant and of your teams, without their texts. For clearance 3 and for admins."""
        return self._caller.call("layer.list", {"limit": limit, **given(cursor=cursor)})


class SyncMemoryOperations:
    """The memory operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "memory.set",
            {
                "key": key,
                "value": value,
                "overwrite": overwrite,
                "derived_from": derived_from,
                **given(
                    session_id=session_id,
                    expires_in=expires_in,
                    metadata=metadata,
                    if_version=if_version,
                    reason=reason,
                    step=step,
                ),
            },
        )

    def get(self, key: str, *, session_id: str | None = None) -> MemoryFound:
        """Read an entry of your private memory."""
        return self._caller.call("memory.get", {"key": key, **given(session_id=session_id)})

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
        return self._caller.call(
            "memory.list",
            {"values": values, "limit": limit, **given(session_id=session_id, prefix=prefix, cursor=cursor)},
        )

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
        return self._caller.call(
            "memory.delete",
            {"key": key, **given(session_id=session_id, if_version=if_version, reason=reason, step=step)},
        )

    def overview(self, agent_id: str) -> MemoryOverview:
        """Return your whole memory with values and totals."""
        return self._caller.call("memory.overview", {"agent_id": agent_id})

    def inspect(self, agent_id: str, *, limit: int = 50, cursor: str | None = None) -> MemoryInspected:
        """Read an agent's private memory with values, page by page.

        For admins only, up to their own clearance; every use is written to the audit log.
        """
        return self._caller.call("memory.inspect", {"agent_id": agent_id, "limit": limit, **given(cursor=cursor)})


class SyncMessageOperations:
    """The message operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "message.add",
            {
                "session_id": session_id,
                "content": content,
                "message_type": message_type,
                "category": category,
                "derived_from": derived_from,
                **given(
                    visibility=visibility,
                    team=team,
                    metadata=metadata,
                    parent_message_id=parent_message_id,
                    recipient_id=recipient_id,
                ),
            },
        )

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
        return self._caller.call(
            "message.list",
            {
                "session_id": session_id,
                "limit": limit,
                "offset": offset,
                "after_id": after_id,
                **given(visibility_filter=visibility_filter),
            },
        )

    def set_visibility(
        self, session_id: str, message_id: int, visibility: Literal["public", "private", "agent_only", "admin_only"]
    ) -> VisibilityChanged:
        """Change the visibility of a message, such as one that should not be public. For admins; audited."""
        return self._caller.call(
            "message.set_visibility", {"session_id": session_id, "message_id": message_id, "visibility": visibility}
        )

    def inspect(self, session_id: str, *, limit: int = 50, offset: int = 0) -> Messages:
        """Read every message of a session, whatever its visibility. For admins; every use is audited."""
        return self._caller.call("message.inspect", {"session_id": session_id, "limit": limit, "offset": offset})

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
        return self._caller.call(
            "message.inbox", {"acknowledge": acknowledge, "limit": limit, **given(session_id=session_id, sender=sender)}
        )

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
        return self._caller.call(
            "message.search",
            {
                "session_id": session_id,
                "query": query,
                "fuzzy_threshold": fuzzy_threshold,
                "limit": limit,
                "search_metadata": search_metadata,
                "search_scope": search_scope,
                "record": record,
            },
        )

    def search_by_sender(self, session_id: str, sender: str, *, limit: int = 20, offset: int = 0) -> MessagesBySender:
        """List the messages of one sender in a session that you may read, newest first."""
        return self._caller.call(
            "message.search_by_sender", {"session_id": session_id, "sender": sender, "limit": limit, "offset": offset}
        )

    def search_by_timerange(
        self, session_id: str, start_time: str, end_time: str, *, limit: int = 50, offset: int = 0
    ) -> MessagesByTime:
        """List the messages of a time range in a session that you may read, oldest first."""
        return self._caller.call(
            "message.search_by_timerange",
            {
                "session_id": session_id,
                "start_time": start_time,
                "end_time": end_time,
                "limit": limit,
                "offset": offset,
            },
        )


class SyncMissingOperations:
    """The missing operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "missing.report",
            {
                "session_id": session_id,
                "question": question,
                "severity": severity,
                "candidate_sources": candidate_sources,
                "blocked_actions": blocked_actions,
                **given(scope=scope, needed_for=needed_for, missing_id=missing_id),
            },
        )

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
        return self._caller.call(
            "missing.list",
            {
                "status": status,
                "severity": severity,
                "limit": limit,
                **given(session_id=session_id, task_id=task_id, after=after),
            },
        )

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
        return self._caller.call(
            "missing.resolve",
            {
                "missing_id": missing_id,
                "resolution_refs": resolution_refs,
                **given(answer=answer, session_id=session_id),
            },
        )

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
        return self._caller.call(
            "missing.request",
            {
                "missing_id": missing_id,
                "form": form,
                **given(
                    agent_id=agent_id, tool=tool, requested_from=requested_from, detail=detail, session_id=session_id
                ),
            },
        )


class SyncPerformanceOperations:
    """The performance operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def read(self, *, history_hours: int = 0) -> Performance:
        """Get performance figures: database, memory, CPU, caches, calls and trends.

        Calls, sessions, agents and caches are those of your tenant only. Memory, CPU and connections are those of the
        answering process, for the operator's tenant (the default one, or the only one); for others they are null,
        because they would show what other tenants do. History and trends cover all server processes and survive
        restarts. A figure that cannot be measured is null.
        """
        return self._caller.call("performance.read", {"history_hours": history_hours})


class SyncPinOperations:
    """The pin operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "pin.add",
            given(
                session_id=session_id,
                message_id=message_id,
                key=key,
                memory_key=memory_key,
                memory_type=memory_type,
                workflow_id=workflow_id,
                owner=owner,
            ),
        )

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
        return self._caller.call(
            "pin.remove",
            given(
                session_id=session_id,
                message_id=message_id,
                key=key,
                memory_key=memory_key,
                memory_type=memory_type,
                workflow_id=workflow_id,
                owner=owner,
            ),
        )

    def list(self, *, session_id: str | None = None) -> PinList:
        """List what is pinned in a session and in your memory, with its tokens."""
        return self._caller.call("pin.list", given(session_id=session_id))


class SyncPlanOperations:
    """The plan operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def show(self) -> PlanShown:
        """Show the tenant's plan: its limits, and how much of them is used. For admins."""
        return self._caller.call("plan.show", {})


class SyncPolicyOperations:
    """The policy operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def set(self, name: str, definition: PolicyDefinition | Mapping[str, Any]) -> PolicyInfo:
        """Add or replace an export policy: what an export may contain, in which form, and who may use the policy.

        A policy named default applies to exports that name none; while it exists, only admins may use the built-in
        ones.
        """
        return self._caller.call("policy.set", {"name": name, "definition": definition})

    def list(self) -> PolicyList:
        """List the export policies that you may use, and which one is the default."""
        return self._caller.call("policy.list", {})

    def delete(self, name: str) -> PolicyDeleted:
        """Delete an export policy. Exports made with it still refer to it, with the digest of its definition."""
        return self._caller.call("policy.delete", {"name": name})


class SyncReceiptOperations:
    """The receipt operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def show(self, receipt_id: str, *, candidates: bool = True) -> ReceiptShown:
        """Show the receipt of a prompt: blocks, candidates, omissions with reasons, budget, savings and timing."""
        return self._caller.call("receipt.show", {"receipt_id": receipt_id, "candidates": candidates})

    def list(
        self, *, session_id: str | None = None, agent_id: str | None = None, limit: int = 20, cursor: str | None = None
    ) -> ReceiptList:
        """List receipts of your prompts, newest first; those of agents below you with agent_id."""
        return self._caller.call(
            "receipt.list", {"limit": limit, **given(session_id=session_id, agent_id=agent_id, cursor=cursor)}
        )

    def replay(
        self, receipt_id: str, *, form: Literal["neutral", "openai_chat", "openai_responses", "anthropic"] = "neutral"
    ) -> PromptReplayed:
        """Show the prompt of a receipt again, byte for byte, in any wire form.

        Not possible once retention or a redaction has removed content of it.
        """
        return self._caller.call("receipt.replay", {"receipt_id": receipt_id, "form": form})

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
        return self._caller.call(
            "receipt.savings", {"by": by, **given(session_id=session_id, agent_id=agent_id, since=since, until=until)}
        )


class SyncRecordsOperations:
    """The records operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "records.add", {"records": records, **given(session_id=session_id, readable_by=readable_by)}
        )

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
        return self._caller.call(
            "records.set_lifecycle", {"record_id": record_id, "lifecycle": lifecycle, **given(session_id=session_id)}
        )

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
        return self._caller.call(
            "records.list",
            {
                "types": types,
                "limit": limit,
                **given(
                    session_id=session_id,
                    agent=agent,
                    turn_id=turn_id,
                    task_id=task_id,
                    tool_call_id=tool_call_id,
                    item_id=item_id,
                    native_id=native_id,
                    since=since,
                    until=until,
                    after=after,
                ),
            },
        )

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
        return self._caller.call(
            "records.show",
            {"record_id": record_id, "with_content": with_content, **given(type=type, session_id=session_id)},
        )

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
        return self._caller.call("records.schema", {"type": type})

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
        return self._caller.call(
            "records.redact",
            {
                "item_id": item_id,
                "state": state,
                "reason": reason,
                **given(method=method, replacement=replacement, session_id=session_id),
            },
        )

    def reveal(self, item_id: str, reason: str, *, session_id: str | None = None) -> ItemRevealed:
        """Read an item as it was before its redaction.

        Needs the permission ``audit``, which admins grant, and access to the item itself; every call is audited.
        """
        return self._caller.call(
            "records.reveal", {"item_id": item_id, "reason": reason, **given(session_id=session_id)}
        )

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
        return self._caller.call(
            "records.resolve",
            given(
                source_id=source_id,
                source_ref=source_ref,
                against=against,
                media_type=media_type,
                session_id=session_id,
            ),
        )


class SyncSearchOperations:
    """The search operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "search.query",
            {
                "recency_weight": recency_weight,
                "half_life_days": half_life_days,
                "importance_weight": importance_weight,
                "query": query,
                "top_k": top_k,
                "low_confidence": low_confidence,
                "explain": explain,
                "record": record,
                **given(
                    domain=domain,
                    domains=domains,
                    session_id=session_id,
                    sources=sources,
                    prefix=prefix,
                    owner=owner,
                    since=since,
                    until=until,
                    metadata=metadata,
                    types=types,
                    entities=entities,
                    min_score=min_score,
                ),
            },
        )

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
        return self._caller.call(
            "search.find_similar",
            {
                "top_k": top_k,
                "min_score": min_score,
                "explain": explain,
                **given(
                    domain=domain,
                    domains=domains,
                    session_id=session_id,
                    sources=sources,
                    prefix=prefix,
                    owner=owner,
                    since=since,
                    until=until,
                    metadata=metadata,
                    types=types,
                    entities=entities,
                    ref=ref,
                    text=text,
                ),
            },
        )

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
        return self._caller.call(
            "search.get_context",
            {
                "recency_weight": recency_weight,
                "half_life_days": half_life_days,
                "importance_weight": importance_weight,
                "max_tokens": max_tokens,
                "tokenizer": tokenizer,
                "explain": explain,
                "record": record,
                **given(
                    domain=domain,
                    domains=domains,
                    session_id=session_id,
                    sources=sources,
                    prefix=prefix,
                    owner=owner,
                    since=since,
                    until=until,
                    metadata=metadata,
                    types=types,
                    entities=entities,
                    min_score=min_score,
                    query=query,
                    ref=ref,
                ),
            },
        )


class SyncSessionOperations:
    """The session operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "session.create",
            {
                "purpose": purpose,
                "exist_ok": exist_ok,
                **given(metadata=metadata, session_id=session_id, config=config, members=members),
            },
        )

    def list(self, *, limit: int = 50, cursor: str | None = None, include_archived: bool = False) -> SessionList:
        """List the sessions you are a member of, newest first."""
        return self._caller.call(
            "session.list", {"limit": limit, "include_archived": include_archived, **given(cursor=cursor)}
        )

    def archive(self, session_id: str) -> SessionArchivedAt:
        """Make a session read-only and keep it for reading and audit."""
        return self._caller.call("session.archive", {"session_id": session_id})

    def delete(self, session_id: str, *, force: bool = False) -> SessionDeleted:
        """Delete a session permanently, with its board, messages, session memory and windows.

        For its creator, those above it and admins. Refused while others depend on it, with the list of who and what,
        unless forced. The audit log keeps an entry.
        """
        return self._caller.call("session.delete", {"session_id": session_id, "force": force})

    def add_members(self, session_id: str, members: Sequence[str]) -> MembersAdded:
        """Add agents, humans, teams or patterns to a session; they see all of it, also what came before.

        For the creator of the session, those above it and admins.
        """
        return self._caller.call("session.add_members", {"session_id": session_id, "members": members})

    def remove_members(self, session_id: str, members: Sequence[str]) -> MembersRemoved:
        """Remove members from a session; they lose access to all of it at once.

        For the creator of the session, those above it and admins. Names an entry as the session shows it.
        """
        return self._caller.call("session.remove_members", {"session_id": session_id, "members": members})

    def reinstate(self, session_id: str, agent_id: str) -> AgentReinstated:
        """Admit an agent again to a session that a rule ended for it. For human members with clearance 3 or higher."""
        return self._caller.call("session.reinstate", {"session_id": session_id, "agent_id": agent_id})

    def get(self, session_id: str) -> SessionFound:
        """Get a session: purpose, members, state, settings and latest messages."""
        return self._caller.call("session.get", {"session_id": session_id})

    def overview(self, session_id: str) -> SessionOverview:
        """Get an overview of a session: state, latest messages, figures."""
        return self._caller.call("session.overview", {"session_id": session_id})

    def inspect(self, session_id: str, *, branch: str | None = None) -> Inspection:
        """Read everything on a session's board, values included, and verify its history.

        For admins only; every call is audited.
        """
        return self._caller.call("session.inspect", {"session_id": session_id, **given(branch=branch)})


class SyncSigningKeyOperations:
    """The signing key operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def rotate(self, *, revoke_existing: bool = False) -> Success:
        """Replace the secret that signs the tenant's tokens, and the key that signs its layers and definitions.

        This affects the whole tenant, so it needs clearance 5.
        """
        return self._caller.call("signing_key.rotate", {"revoke_existing": revoke_existing})


class SyncStepOperations:
    """The step operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "step.define", {"name": name, "tools": tools, "description": description, **given(shared_with=shared_with)}
        )

    def list(self) -> StepList:
        """List the steps that you can enter: of the tenant, of your tree and of the principals above you."""
        return self._caller.call("step.list", {})

    def remove(self, name: str, *, shared_with: Literal["tree", "tenant"] | None = None) -> Success:
        """Remove a step. Credentials that are bound to it may call nothing until it is defined again."""
        return self._caller.call("step.remove", {"name": name, **given(shared_with=shared_with)})


class SyncTeamOperations:
    """The team operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def create(self, team: str, *, description: str = "") -> TeamInfo:
        """Create a team without members. For admins."""
        return self._caller.call("team.create", {"team": team, "description": description})

    def list(self, *, after: str | None = None, limit: int = 100) -> TeamList:
        """List the teams you are a member of; as an admin, all."""
        return self._caller.call("team.list", {"limit": limit, **given(after=after)})

    def show(self, team: str) -> TeamShown:
        """Show a team you are a member of: its members, and the versions of its memory and guidelines."""
        return self._caller.call("team.show", {"team": team})

    def update(self, team: str, description: str) -> TeamInfo:
        """Change the description of a team. For admins."""
        return self._caller.call("team.update", {"team": team, "description": description})

    def delete(self, team: str, *, force: bool = False) -> TeamDeleted:
        """Delete a team with its memory and guidelines, for good. For admins; its name cannot be used again."""
        return self._caller.call("team.delete", {"team": team, "force": force})

    def add_member(self, team: str, agent_id: str) -> MemberChanged:
        """Add an agent or a human to a team; it sees the team's memory with its next call.

        For admins and for members with clearance 3 or higher, who can add principals that they may edit.
        """
        return self._caller.call("team.add_member", {"team": team, "agent_id": agent_id})

    def remove_member(self, team: str, agent_id: str) -> MemberChanged:
        """Remove a member from a team; it loses access with its next call.

        For admins and for members with clearance 3 or higher, who can remove principals that they may edit.
        """
        return self._caller.call("team.remove_member", {"team": team, "agent_id": agent_id})


class SyncTokenOperations:
    """The token operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "token.issue",
            {
                "agent_id": agent_id,
                "agent_type": agent_type,
                "api_key": api_key,
                "requested_permissions": requested_permissions,
                "single_use": single_use,
                **given(step=step),
            },
        )

    def refresh(self) -> TokenIssued:
        """Get a new token for the one that this call uses; the old one stays valid until it expires.

        A token can be refreshed for a day (by default); after that, authenticate with the API key again. One for a
        single use ends with this call: of several calls with it, one gets a token.
        """
        return self._caller.call("token.refresh", {})

    def revoke(self, *, token_id: str | None = None, agent_id: str | None = None, refreshed: bool = False) -> Success:
        """Revoke a token, or all of a principal, at once; as an admin, of one you may edit."""
        return self._caller.call(
            "token.revoke", {"refreshed": refreshed, **given(token_id=token_id, agent_id=agent_id)}
        )


class SyncToolsOperations:
    """The tools operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def search(self, query: str, *, limit: int = 5) -> ToolsFound:
        """Find the MCP tools for a task among those you may use, each with one line on what it does."""
        return self._caller.call("tools.search", {"query": query, "limit": limit})

    def describe(self, name: str, *, session_id: str | None = None, output_schema: bool = False) -> ToolDescription:
        """Describe an MCP tool or one of its actions in full: description, input schema, output schema on request."""
        return self._caller.call(
            "tools.describe", {"name": name, "output_schema": output_schema, **given(session_id=session_id)}
        )

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
        return self._caller.call(
            "tools.register", {"tools": tools, "server": server, "complete": complete, **given(shared_with=shared_with)}
        )

    def list(self, *, after: str | None = None, limit: int = 100) -> RegisteredToolList:
        """List the registered tools that you have: of the tenant, of your tree and of the principals above you."""
        return self._caller.call("tools.list", {"limit": limit, **given(after=after)})

    def remove(self, name: str, *, shared_with: Literal["tree", "tenant"] | None = None) -> Success:
        """Remove a tool that you registered; registering it again brings it back."""
        return self._caller.call("tools.remove", {"name": name, **given(shared_with=shared_with)})

    def select(
        self,
        task_description: str,
        *,
        session_id: str | None = None,
        include: Sequence[str] = [],
        own_tools: bool = False,
    ) -> ToolsSelected:
        """Choose the tools for a task among the registered ones: those that fit it, at most ten.

        The list stays the same, byte for byte, while it has what the task needs, so that provider caches survive;
        another task or step changes it.
        """
        return self._caller.call(
            "tools.select",
            {
                "task_description": task_description,
                "include": include,
                "own_tools": own_tools,
                **given(session_id=session_id),
            },
        )


class SyncTrustOperations:
    """The trust operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

    def trace(self, item: str, *, steps: int = 5, possible: bool = True, limit: int = 100) -> ItemTraced:
        """Show what was derived from an item, such as a poisoned document: by declaration, by copy, through prompts.

        Admins trace through the prompts of all agents, others through their own.
        """
        return self._caller.call("trust.trace", {"item": item, "steps": steps, "possible": possible, "limit": limit})

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
        return self._caller.call(
            "trust.forget",
            {
                "item": item,
                "reason": reason,
                "mode": mode,
                "possible": possible,
                "erase": erase,
                "steps": steps,
                "dry_run": dry_run,
            },
        )


class SyncUsageOperations:
    """The usage operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "usage.report",
            {
                "by": by,
                "limit": limit,
                **given(
                    since=since,
                    until=until,
                    agent_id=agent_id,
                    team=team,
                    session_id=session_id,
                    model=model,
                    kind=kind,
                ),
            },
        )

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
        return self._caller.call(
            "usage.export",
            {
                "unit": unit,
                "form": form,
                **given(
                    since=since,
                    until=until,
                    agent_id=agent_id,
                    team=team,
                    session_id=session_id,
                    model=model,
                    kind=kind,
                    cursor=cursor,
                ),
            },
        )


class SyncWebhookOperations:
    """The webhook operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "webhook.create",
            {"url": url, "types": types, "description": description, **given(session_id=session_id, secret=secret)},
        )

    def list(self) -> WebhookList:
        """List the webhooks with their delivery counts, without their secrets."""
        return self._caller.call("webhook.list", {})

    def update(self, webhook_id: str, *, enabled: bool) -> WebhookInfo:
        """Disable a webhook, or enable it: it resumes where it stopped, with every event since then."""
        return self._caller.call("webhook.update", {"webhook_id": webhook_id, "enabled": enabled})

    def delete(self, webhook_id: str) -> WebhookDeleted:
        """Delete a webhook and its pending deliveries."""
        return self._caller.call("webhook.delete", {"webhook_id": webhook_id})

    def test(self, webhook_id: str) -> WebhookTested:
        """Send an event of type weftline.webhook.test now and return the receiver's answer."""
        return self._caller.call("webhook.test", {"webhook_id": webhook_id})

    def deliveries(
        self, webhook_id: str, *, state: Literal["pending", "dead"] | None = None, after: int = 0, limit: int = 100
    ) -> DeliveryList:
        """List a webhook's pending deliveries and dead letters, with the result of the last attempt."""
        return self._caller.call(
            "webhook.deliveries", {"webhook_id": webhook_id, "after": after, "limit": limit, **given(state=state)}
        )

    def replay(
        self, webhook_id: str, *, seqs: Sequence[int] = (), dead: bool = False, from_seq: int | None = None
    ) -> WebhookReplayed:
        """Send dead letters again, some or all, or every event from a seq on.

        The webhook-id of an event stays the same, so receivers can deduplicate.
        """
        return self._caller.call(
            "webhook.replay", {"webhook_id": webhook_id, "seqs": seqs, "dead": dead, **given(from_seq=from_seq)}
        )


class SyncWindowOperations:
    """The window operations."""

    __slots__ = ("_caller",)

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller

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
        return self._caller.call(
            "window.create",
            {
                "session_id": session_id,
                **given(
                    agent_id=agent_id,
                    model=model,
                    model_max_tokens=model_max_tokens,
                    shared_cw_max_tokens=shared_cw_max_tokens,
                    reserved_tokens=reserved_tokens,
                    budgets=budgets,
                    compaction_threshold=compaction_threshold,
                    autosave=autosave,
                ),
            },
        )

    def show(self, session_id: str, *, agent_id: str | None = None) -> WindowView:
        """Show a window: limit, budgets and use by category, sharing, routes and clamps."""
        return self._caller.call("window.show", {"session_id": session_id, **given(agent_id=agent_id)})

    def list(self, session_id: str, *, limit: int = 50, cursor: str | None = None) -> WindowList:
        """List the windows of a session that you may open: your own, those of agents below you, as an admin all."""
        return self._caller.call("window.list", {"session_id": session_id, "limit": limit, **given(cursor=cursor)})

    def events(self, session_id: str, *, agent_id: str | None = None, limit: int = 50, offset: int = 0) -> WindowEvents:
        """Read the events of a window, oldest first, with those that other agents route to it."""
        return self._caller.call(
            "window.events", {"session_id": session_id, "limit": limit, "offset": offset, **given(agent_id=agent_id)}
        )

    def pop(self, session_id: str, *, agent_id: str | None = None) -> WindowEventPopped:
        """Remove the newest event of a window and return it, such as an answer to be asked for again.

        Events that other agents route to the window stay. Its history keeps the event.
        """
        return self._caller.call("window.pop", {"session_id": session_id, **given(agent_id=agent_id)})

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
        return self._caller.call(
            "window.update",
            {
                "session_id": session_id,
                **given(
                    agent_id=agent_id,
                    model=model,
                    model_max_tokens=model_max_tokens,
                    shared_cw_max_tokens=shared_cw_max_tokens,
                    reserved_tokens=reserved_tokens,
                    budgets=budgets,
                    compaction_threshold=compaction_threshold,
                    autosave=autosave,
                ),
            },
        )

    def delete(self, session_id: str, *, agent_id: str | None = None) -> WindowDeleted:
        """Delete a window with its events and their history. Copies in other windows stay."""
        return self._caller.call("window.delete", {"session_id": session_id, **given(agent_id=agent_id)})

    def release(self, session_id: str, event_ids: Sequence[str], *, agent_id: str | None = None) -> EventsReleased:
        """Release events that are held because they look like an attack. Called by an agent, it asks a human."""
        return self._caller.call(
            "window.release", {"session_id": session_id, "event_ids": event_ids, **given(agent_id=agent_id)}
        )

    def refresh(self, session_id: str, *, agent_id: str | None = None) -> WindowRefreshed:
        """Copy what changed in the parent's SYSTEM and CONTEXT since a sub-agent's window was made or refreshed."""
        return self._caller.call("window.refresh", {"session_id": session_id, **given(agent_id=agent_id)})

    def join(self, session_id: str, with_agent_id: str, *, agent_id: str | None = None) -> WindowView:
        """Let an agent use another agent's window. Its limit becomes the minimum over all that share it.

        You need access to both windows: as an ancestor of both, or as one of them and ancestor of the other, or as an
        admin. The agent's own window is kept until it leaves.
        """
        return self._caller.call(
            "window.join", {"session_id": session_id, "with_agent_id": with_agent_id, **given(agent_id=agent_id)}
        )

    def leave(self, session_id: str, *, agent_id: str | None = None) -> WindowView:
        """Let an agent leave the window it shares and use its own again. The others' limit is computed again."""
        return self._caller.call("window.leave", {"session_id": session_id, **given(agent_id=agent_id)})

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
        return self._caller.call(
            "window.route",
            {
                "session_id": session_id,
                "categories": categories,
                "to_agents": to_agents,
                "to_types": to_types,
                "to_teams": to_teams,
                **given(agent_id=agent_id),
            },
        )

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
        return self._caller.call(
            "window.unroute",
            {
                "session_id": session_id,
                "categories": categories,
                "to_agents": to_agents,
                "to_types": to_types,
                "to_teams": to_teams,
                **given(agent_id=agent_id),
            },
        )

    def checkpoint(self, session_id: str, label: str, *, agent_id: str | None = None) -> Checkpoint:
        """Name the current state of all windows that you may open, or of one, to return to it later."""
        return self._caller.call(
            "window.checkpoint", {"session_id": session_id, "label": label, **given(agent_id=agent_id)}
        )

    def checkpoints(
        self, session_id: str, *, agent_id: str | None = None, include_automatic: bool = True
    ) -> Checkpoints:
        """List the checkpoints of all windows that you may open, by label."""
        return self._caller.call(
            "window.checkpoints",
            {"session_id": session_id, "include_automatic": include_automatic, **given(agent_id=agent_id)},
        )

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
        return self._caller.call(
            "window.restore",
            {
                "session_id": session_id,
                "label": label,
                "all_agents": all_agents,
                **given(agent_id=agent_id, from_agent_id=from_agent_id, reason=reason, step=step),
            },
        )

    def branch(
        self, session_id: str, label: str, branch: str, *, agent_id: str | None = None, switch: bool = False
    ) -> CheckpointBranched:
        """Start a branch from a checkpoint in all windows that have it and that you may open, or in one."""
        return self._caller.call(
            "window.branch",
            {"session_id": session_id, "label": label, "branch": branch, "switch": switch, **given(agent_id=agent_id)},
        )


class SyncOperations:
    """All operations, by group."""

    def __init__(self, caller: SyncCaller) -> None:
        self._caller = caller
        self.advise = SyncAdviseOperations(caller)
        self.agent = SyncAgentOperations(caller)
        self.alerts = SyncAlertsOperations(caller)
        self.approval = SyncApprovalOperations(caller)
        self.audit = SyncAuditOperations(caller)
        self.board = SyncBoardOperations(caller)
        self.budget = SyncBudgetOperations(caller)
        self.bundle = SyncBundleOperations(caller)
        self.compaction = SyncCompactionOperations(caller)
        self.context = SyncContextOperations(caller)
        self.conventions = SyncConventionsOperations(caller)
        self.entity = SyncEntityOperations(caller)
        self.events = SyncEventsOperations(caller)
        self.guardrail = SyncGuardrailOperations(caller)
        self.history = SyncHistoryOperations(caller)
        self.key = SyncKeyOperations(caller)
        self.knowledge = SyncKnowledgeOperations(caller)
        self.layer = SyncLayerOperations(caller)
        self.memory = SyncMemoryOperations(caller)
        self.message = SyncMessageOperations(caller)
        self.missing = SyncMissingOperations(caller)
        self.performance = SyncPerformanceOperations(caller)
        self.pin = SyncPinOperations(caller)
        self.plan = SyncPlanOperations(caller)
        self.policy = SyncPolicyOperations(caller)
        self.receipt = SyncReceiptOperations(caller)
        self.records = SyncRecordsOperations(caller)
        self.search = SyncSearchOperations(caller)
        self.session = SyncSessionOperations(caller)
        self.signing_key = SyncSigningKeyOperations(caller)
        self.step = SyncStepOperations(caller)
        self.team = SyncTeamOperations(caller)
        self.token = SyncTokenOperations(caller)
        self.tools = SyncToolsOperations(caller)
        self.trust = SyncTrustOperations(caller)
        self.usage = SyncUsageOperations(caller)
        self.webhook = SyncWebhookOperations(caller)
        self.window = SyncWindowOperations(caller)
