"""What is lost with a session, and who depends on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weftline.capabilities.sessions.model import Session, SessionInUse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.kernel.identity import Actor

# Named in the message, and listed with the error.
_MAX_NAMED, _MAX_LISTED = 10, 100
# Expiry and other background work.
_SYSTEM = "system"


class SessionContent(msgspec.Struct, frozen=True):
    """How much of one kind a principal has in a session; None if it belongs to nobody in particular.

    Kinds: messages, writes, windows, memories, pins, snapshots, reviews (open ones), webhooks; keys, branches, records.
    """

    kind: str
    principal_id: str | None
    count: int


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
