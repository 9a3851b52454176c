"""The audit log: every denial and every administrative change, written in the transaction of that change."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import msgspec

from weftline.access.model import AgentId
from weftline.kernel.clock import TimestampText, from_micros, parse_range
from weftline.kernel.fields import MAX_INT, ShortText
from weftline.kernel.identity import Permission
from weftline.kernel.operation import Effect, RateClass, Request, Response, SessionUse, operation
from weftline.kernel.transaction import SqlStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weftline.kernel.errors import WeftlineError
    from weftline.kernel.operation import Operation


# Rows of the audit log, and their store.


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One action that was performed or denied."""

    audit_id: str
    at: int
    actor: str
    principal_id: str | None
    action: str
    outcome: str
    target: str
    detail: dict[str, Any]


class AuditQuery(msgspec.Struct, frozen=True):
    """Which audit rows to read; an empty text, and a time of None, exclude none.

    ``action``: an operation, or a group of them. ``target``: one of the ids in the target. Times are in microseconds;
    ``until`` is exclusive.
    """

    before: str = ""
    outcome: str = ""
    action: str = ""
    agent: str = ""
    target: str = ""
    since: int | None = None
    until: int | None = None


_ADD = """
INSERT INTO audit_log (tenant, audit_id, at, actor, principal_id, action, outcome, target, detail)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_READ = """
SELECT audit_id, at, actor, principal_id, action, outcome, target, detail FROM audit_log
WHERE tenant = $1 AND ($2 = '' OR audit_id < $2) AND outcome LIKE $3
    AND ($4 = '' OR action = $4 OR substr(action, 1, length($4) + 1) = $5)
    AND ($6 = '' OR principal_id = $6)
    AND ($7 = '' OR replace('/' || target || '/', $7, '') <> '/' || target || '/')
    AND at >= $8 AND at < $9
ORDER BY audit_id DESC LIMIT $10
"""


class AuditStore(SqlStore):
    """Audit rows of one tenant: they are added, and those of repeated refusals are counted."""

    async def add(self, row: AuditRow) -> None:
        await self._tx.run(
            _ADD,
            self._tenant,
            row.audit_id,
            row.at,
            row.actor,
            row.principal_id,
            row.action,
            row.outcome,
            row.target,
            msgspec.json.encode(row.detail).decode(),
        )

    async def replace_detail(self, audit_id: str, detail: dict[str, Any]) -> None:
        """Replace the detail of a row that counts repeated refusals."""
        text = msgspec.json.encode(detail).decode()
        await self._tx.run(
            "UPDATE audit_log SET detail = $1 WHERE tenant = $2 AND audit_id = $3", text, self._tenant, audit_id
        )

    async def read(self, wanted: AuditQuery, limit: int) -> Sequence[AuditRow]:
        """Return rows newest first."""
        rows = await self._tx.all(
            _READ,
            self._tenant,
            wanted.before,
            wanted.outcome or "%",
            wanted.action,
            f"{wanted.action}.",
            wanted.agent,
            f"/{wanted.target}/" if wanted.target else "",
            0 if wanted.since is None else wanted.since,
            MAX_INT if wanted.until is None else wanted.until,
            limit,
        )
        return [_audit_row(*row) for row in rows]


def _audit_row(*columns: Any) -> AuditRow:  # noqa: ANN401 - a row
    *plain, detail = columns
    return AuditRow(*plain, msgspec.json.decode(detail))  # type: ignore[call-arg]


class AuditTrail(Protocol):
    """Adds audit rows in the transaction of the change they describe, for the caller of that transaction."""

    async def record(self, operation: Operation, request: Request, response: Response | None = None) -> None: ...

    async def note_violation(self, action: str, error: WeftlineError, session_id: str | None) -> None:
        """Add the row and the security event of a violation that the call survives."""
        ...


class AuditFilter(Protocol):
    """Removes details that a reader of the audit log may not see."""

    async def shown(self, rows: list[AuditRow]) -> list[AuditRow]:
        """Return the rows with details of invisible resources removed."""
        ...


class GetAuditLog(Request):
    """A page of the audit log."""

    before: Annotated[ShortText | None, msgspec.Meta(description="Rows older than this audit_id; for paging.")] = None
    outcome: Annotated[
        Literal["done", "denied", "refused", "held"] | None,
        msgspec.Meta(
            description="Only these. refused: callers without a valid credential or above a rate limit, by address "
            "and minute. held: calls that wait for approval."
        ),
    ] = None
    action: Annotated[
        ShortText | None,
        msgspec.Meta(description="Only this operation, such as session.delete, or this group, such as session."),
    ] = None
    agent_id: Annotated[AgentId | None, msgspec.Meta(description="Only what this agent or human did.")] = None
    target: Annotated[
        ShortText | None,
        msgspec.Meta(description="Only rows about this id of a session, agent, team or domain."),
    ] = None
    since: Annotated[TimestampText | None, msgspec.Meta(description="From this time (ISO 8601) or day on.")] = None
    until: Annotated[
        TimestampText | None, msgspec.Meta(description="Up to this time; a date alone is that whole day.")
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many.")] = 100


class AuditEntry(Response):
    """One action or denial."""

    audit_id: str
    at: datetime
    actor: str
    agent_id: str | None
    action: str
    outcome: str
    target: str
    detail: dict[str, Any]


class AuditLog(Response):
    """Audit rows, newest first."""

    entries: list[AuditEntry]
    has_more: bool


@operation(
    "audit.list",
    tool="get_audit_log",
    http="GET /v1/audit",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    session=SessionUse.OUTSIDE,
    heavy=lambda request: bool(request.action or request.agent_id or request.target or request.since),
)
async def list_audit(request: GetAuditLog, audit: AuditStore, audit_filter: AuditFilter) -> AuditLog:
    """Read the tenant's audit log: every denial, every refused credential and administrative change, newest first.

    Rows about knowledge domains that you may not read show only who did what, and when.
    """
    since, until = parse_range(request.since, request.until)
    wanted = AuditQuery(
        before=request.before or "",
        outcome=request.outcome or "",
        action=request.action or "",
        agent=request.agent_id or "",
        target=request.target or "",
        since=since,
        until=until,
    )
    rows = await audit.read(wanted, request.limit + 1)
    page = await audit_filter.shown(list(rows[: request.limit]))
    entries = [
        AuditEntry(
            audit_id=row.audit_id,
            at=from_micros(row.at),
            actor=row.actor,
            agent_id=row.principal_id,
            action=row.action,
            outcome=row.outcome,
            target=row.target,
            detail=row.detail,
        )
        # Hidden rows are no answer to a guess at their target.
        for row in page
        if not wanted.target or wanted.target in row.target.split("/")
    ]
    return AuditLog(entries=entries, has_more=len(rows) > request.limit)
