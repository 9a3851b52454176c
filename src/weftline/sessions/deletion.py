"""What is lost with a session, who depends on it, and whether a rule prohibits its deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.history.line_kinds import calls_implied_by, kind_of
from weftline.history.lines import LineStore
from weftline.kernel.guards import CheckedCalls, ImpliedCall
from weftline.sessions.erasure import SessionContent
from weftline.sessions.model import Session, SessionInUse
from weftline.sessions.sql import SessionStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.identity import Actor
    from weftline.kernel.ports import Transactions
    from weftline.safety.guardrails.guard import GuardrailGuard

# Named in the message, and listed with the error.
_MAX_NAMED, _MAX_LISTED = 10, 100
# Expiry and other background work.
_SYSTEM = "system"
_DELETIONS = ("board.delete", "memory.delete", "window.delete")


def removed_content(contents: Iterable[SessionContent]) -> dict[str, int]:
    """Return how much of each kind is deleted with a session. Webhooks stay."""
    removed: dict[str, int] = {}
    for each in contents:
        if each.kind != "webhooks":
            removed[each.kind] = removed.get(each.kind, 0) + each.count
    return removed


def check_unused(session: Session, actor: Actor, contents: Iterable[SessionContent]) -> None:
    """Refuse to delete a session that principals other than the caller have worked in or listen to."""
    others: dict[str, dict[str, int]] = {}
    for each in contents:
        if each.principal_id not in {None, _SYSTEM, actor.principal_id}:
            others.setdefault(each.principal_id or "", {})[each.kind] = each.count
    if not others:
        return
    dependents = [{"agent_id": who, **counts} for who, counts in sorted(others.items())]
    named = "; ".join(f"{who}: {_listed(counts)}" for who, counts in sorted(others.items())[:_MAX_NAMED])
    more = "; ..." if len(others) > _MAX_NAMED else ""
    raise SessionInUse(
        f"Others depend on the session '{session.session_id}': {named}{more}.",
        resource_type="session",
        resource_id=session.session_id,
        dependents=dependents[:_MAX_LISTED],
        dependent_count=len(dependents),
    )


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(
        f"{count} {kind if count > 1 else _SINGULAR.get(kind, kind[:-1])}" for kind, count in counts.items()
    )


_SINGULAR = {"memories": "memory"}


class StoredContent(msgspec.Struct, frozen=True):
    """Where the content of a session is found."""

    sessions: SessionStore
    lines: LineStore


async def check_rules(
    session_id: str, actor: Actor, stored: Transactions[StoredContent], implied: GuardrailGuard
) -> CheckedCalls:
    """Refuse or hold the deletion of a session if a rule prohibits the deletion of something in it.

    Return what was checked: the transaction deletes nothing else.
    """
    if not await implied.check(actor, (), _DELETIONS):
        return CheckedCalls()

    async def deletions(content: StoredContent) -> list[ImpliedCall]:
        session = await content.sessions.find(session_id)
        return [] if session is None else await implied_deletions(session, content)

    calls = await stored.read(actor, deletions)
    await implied.check(actor, calls, _DELETIONS)
    return CheckedCalls.of(calls)


async def implied_deletions(session: Session, stored: StoredContent) -> list[ImpliedCall]:
    """Return the calls that would delete each key, each entry of a private memory and each window."""
    calls: list[ImpliedCall] = []
    for line_id in await stored.sessions.lines(session.session_id):
        line = await stored.lines.find(line_id) if kind_of(line_id).implied_calls is not None else None
        if line is not None:
            state = await stored.lines.state_at(line_id, line.head.seq, values=False)
            calls += calls_implied_by(line_id, dict.fromkeys(version.change.key for version in state))
    for each in await stored.sessions.content(session):
        if each.kind == "windows":
            arguments = {"session_id": session.session_id, "agent_id": each.principal_id}
            calls.append(ImpliedCall("window.delete", arguments))
    return calls
