"""Events: metadata of changes, never values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, cast, get_args

import msgspec

from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.identity import ANYONE

if TYPE_CHECKING:
    from collections.abc import Mapping


# Event classes of Agent Context.
EventClass = Literal[
    "context.surface.created",
    "context.surface.updated",
    "context.item.added",
    "context.item.updated",
    "context.item.removed",
    "context.selection.started",
    "context.selection.completed",
    "context.budget.applied",
    "context.assembly.created",
    "context.injection.applied",
    "context.compaction.started",
    "context.compaction.completed",
    "context.summary.created",
    "context.missing.detected",
    "context.missing.requested",
    "context.missing.resolved",
    "context.redaction.applied",
    "context.exported",
]
# Every type of event that Weftline publishes; the page on events documents each.
EventType = Literal[
    EventClass,
    "session.created",
    "session.archived",
    "session.members_changed",
    "session.terminated",
    "session.reinstated",
    "session.deleted",
    "session.imported",
    "board.written",
    "board.deleted",
    "board.expired",
    "board.snapshot",
    "board.restored",
    "branch.written",
    "branch.deleted",
    "branch.expired",
    "branch.snapshot",
    "branch.restored",
    "message.added",
    "message.visibility_changed",
    "pin.added",
    "pin.removed",
    "window.created",
    "window.changed",
    "window.ingested",
    "window.threshold_reached",
    "window.clamped",
    "window.deleted",
    "compaction.degraded",
    "model_call.metered",
    "model_call.held",
    "budget.changed",
    "budget.deleted",
    "budget.near",
    "budget.exceeded",
    "quota.near",
    "layer.defined",
    "guardrail.hit",
    "team.created",
    "team.changed",
    "team.deleted",
    "team.member_added",
    "team.member_removed",
    "memory.written",
    "memory.deleted",
    "memory.expired",
    "context.pushed",
    "context.pulled",
    "context.expired",
    "agent.defined",
    "history.snapshot",
    "history.snapshot_deleted",
    "history.branched",
    "history.branch_deleted",
    "history.switched",
    "history.rolled_back",
    "history.merged",
    "history.review_opened",
    "history.review_closed",
    "history.pruned",
    "record.added",
    "record.changed",
    "search.low_relevance",
    "domain.created",
    "domain.updated",
    "domain.deleted",
    "domain.reindexing",
    "domain.reindexed",
    "document.added",
    "document.updated",
    "document.removed",
    "document.indexed",
    "document.failed",
    "document.quarantined",
    "document.released",
    "knowledge_source.added",
    "knowledge_source.updated",
    "knowledge_source.removed",
    "knowledge_source.synced",
    "knowledge_source.failed",
    "model_migration.started",
    "model_migration.comparing",
    "model_migration.canary",
    "model_migration.switched",
    "model_migration.done",
    "model_migration.refused",
    "model_migration.cancelled",
    "model_migration.rolled_back",
    "alert.opened",
    "alert.acknowledged",
    "alert.resolved",
    "approval.requested",
    "approval.decided",
    "approval.performed",
    "webhook.created",
    "webhook.updated",
    "webhook.deleted",
    "webhook.replayed",
    "webhook.stopped",
    "index.damaged",
    "security.violation",
]


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event to be published when its transaction commits.

    A subscriber must be a member of its session and match ``readable_by``, the ACL of its key. ``participants`` is the
    ACL of an event outside sessions, and of the deletion of a session, which has no members any more. ``native_id`` is
    the id of another system that the event reports; by default that of the caller's MCP session.
    """

    type: EventType
    session_id: str | None
    subject: str
    actor: str
    participants: tuple[str, ...] = ANYONE
    readable_by: tuple[str, ...] = ANYONE
    data: dict[str, Any] = {}
    native_id: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A published event; ``seq`` orders all events of a tenant. ``agent_id`` is the id of its actor."""

    seq: int
    type: str
    session_id: str | None
    subject: str
    actor: str
    agent_id: str
    at: datetime
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source and id of an imported event."""

    source: str
    id: str


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its ACLs, its correlation ids and, if it was imported, its origin.

    ``participants`` are the members of its session when the event is read. ``principal_id`` is the principal whose call
    published it, None if not known. It differs from the actor's if the system did something during the call, such as
    expiring a key.
    """

    event: Event
    participants: tuple[str, ...]
    readable_by: tuple[str, ...]
    correlation: Correlation = NO_CORRELATION
    origin: Origin | None = None
    principal_id: str | None = None


# Alerts as other slices raise them: conditions, subjects and the port.

# What alerts are about. The first two are watched in the background; the others are raised where budgets, quotas,
# indexes and answers are checked.
AlertCondition = Literal[
    "context.overload",
    "efficiency.low",
    "budget.near",
    "budget.exceeded",
    "quota.near",
    "index.damaged",
    "quality.dropped",
]
ALERT_CONDITIONS: tuple[AlertCondition, ...] = get_args(AlertCondition)
SubjectKind = Literal["agent", "team", "tenant"]


class AlertSubject(NamedTuple):
    """Whom an alert is about: an agent, a team, or the tenant, which has no name."""

    kind: SubjectKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @classmethod
    def parse(cls, text: str) -> AlertSubject:
        """Return the subject that is written as agent:ID, team:NAME or tenant."""
        kind, _, name = text.partition(":")
        return cls(cast("SubjectKind", kind), name)


TENANT_SUBJECT = AlertSubject("tenant")


def agent_subject(agent_id: str) -> AlertSubject:
    return AlertSubject("agent", agent_id)


def team_subject(team: str) -> AlertSubject:
    return AlertSubject("team", team)


class AlertPort(Protocol):
    """Opens and resolves alerts in the caller's transaction."""

    async def raise_(
        self, condition: AlertCondition, subject: AlertSubject, data: Mapping[str, Any], *, about: str = ""
    ) -> bool:
        """Open an alert with these figures; return whether it is new.

        There is one active alert of each condition and subject; if both can have several, ``about`` names the quota or
        budget. Raising an active one again updates its figures at most once a minute.
        """
        ...

    async def clear(self, condition: AlertCondition, subject: AlertSubject, *, about: str = "") -> bool:
        """Resolve the active alert, if there is one: the condition does not hold any more."""
        ...
