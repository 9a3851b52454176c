"""Permissions on an agent's context and definition. An agent may never change its own definition."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from weftline.access.grants import check_clearance, check_may_edit, check_supervisor, may_read_as_admin
from weftline.access.model import AgentNotFound
from weftline.history.line_kinds import EditProof
from weftline.kernel.clock import from_micros
from weftline.kernel.errors import PermissionDenied, SelfModification
from weftline.kernel.identity import PrincipalKind
from weftline.kernel.operation import Response
from weftline.state.agent_context.model import DEFINITION, ContextLine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weftline.access.model import Principal
    from weftline.access.sql import AccessStore
    from weftline.history.composite_lines import PartVersion
    from weftline.kernel.identity import Actor
    from weftline.state.agent_context.sql import CriticalEdit


EDITOR_CLEARANCE = 3
COPY_CLEARANCE = 4


async def find_agent(agent_id: str, access: AccessStore) -> Principal:
    found = await access.principal(agent_id)
    if found is None:
        raise unknown_agent(agent_id)
    return found


def unknown_agent(agent_id: str) -> AgentNotFound:
    return AgentNotFound(f"There is no agent '{agent_id}'.", resource_type="agent", resource_id=agent_id)


async def may_edit(actor: Actor, owner: Principal, access: AccessStore) -> bool:
    try:
        await check_may_edit(actor, owner, access)
    except PermissionDenied:
        return False
    return True


async def may_read_context(actor: Actor, owner: Principal, access: AccessStore) -> bool:
    """Tell whether the caller may read a context with its definition: its own, as an admin, or as an editor.

    None above its clearance; humans that are no admins need EDITOR_CLEARANCE. Every way to a definition asks here.
    """
    if actor.principal_id == owner.principal_id or may_read_as_admin(actor, owner):
        return True
    if actor.kind is PrincipalKind.HUMAN and actor.clearance < EDITOR_CLEARANCE:
        return False
    return await may_edit(actor, owner, access)


async def find_readable(agent_id: str, actor: Actor, access: AccessStore) -> Principal:
    """Return an agent whose context and definition the caller may read; AgentNotFound as if there were none."""
    found = await find_agent(agent_id, access)
    if not await may_read_context(actor, found, access):
        error = unknown_agent(agent_id)
        error.denial = True
        raise error
    return found


def check_editor(actor: Actor) -> None:
    """Refuse callers that may define no agent: agents with none below them, and humans below EDITOR_CLEARANCE."""
    check_supervisor(actor)
    if actor.kind is PrincipalKind.HUMAN:
        check_clearance(actor, EDITOR_CLEARANCE, "Defining an agent")


def check_may_copy(actor: Actor) -> None:
    """Refuse callers that may copy no agent's memory."""
    check_supervisor(actor)
    check_clearance(actor, COPY_CLEARANCE, "Copying an agent's memory")


def forbid_self_definition(raw: Mapping[str, Any], actor: Actor) -> None:
    """Raise SelfModification for a request to define the caller itself, whatever its permissions."""
    if raw.get("agent_id") == actor.principal_id:
        raise SelfModification("You cannot change your own definition.")


async def check_may_roll_back(
    actor: Actor, owner: Principal, needed: int, access: AccessStore, *, by_tree: bool
) -> None:
    """Raise, with those who can, unless the caller has the clearance.

    ``by_tree``: an agent above the owner needs no more than the owner's clearance.
    """
    above = await access.ancestors(owner.principal_id)
    is_above = actor.kind is PrincipalKind.AGENT and actor.principal_id in {each.principal_id for each in above}
    if (by_tree and is_above) or actor.clearance >= needed:
        return
    can = [
        each.principal_id
        for each in above
        if each.disabled_at is None and each.clearance >= _least_clearance(each, owner, needed, by_tree=by_tree)
    ]
    named = " or ".join([*(f"'{name}'" for name in can), f"a human with clearance {needed} or more"])
    raise PermissionDenied(
        f"A rollback of the context of '{owner.principal_id}' needs clearance {needed}; yours is {actor.clearance}.",
        hint=f"Ask {named}.",
        required_clearance=needed,
        your_clearance=actor.clearance,
        who_can=can,
    )


def _least_clearance(above: Principal, owner: Principal, needed: int, *, by_tree: bool) -> int:
    """Return the clearance with which a principal above another one may roll back its context."""
    return owner.clearance if by_tree and above.kind is PrincipalKind.AGENT else max(needed, owner.clearance)


async def check_may_define(actor: Actor, owner: Principal, access: AccessStore) -> EditProof:
    """Return the proof that the caller may edit the agent, a human with EDITOR_CLEARANCE; raise otherwise."""
    if actor.principal_id == owner.principal_id:
        raise SelfModification("You cannot change your own definition.")
    await check_may_edit(actor, owner, access)
    check_editor(actor)
    return EditProof(ContextLine(owner.principal_id, DEFINITION, None).line_id, actor.principal_id)


def check_own(actor: Actor, agent_id: str | None) -> None:
    """Raise PermissionDenied if agent_id is not the caller's own."""
    if agent_id not in {None, actor.principal_id}:
        raise PermissionDenied(
            "You can push and pull your own context only.",
            hint="Omit agent_id. With the clearance for it, use `context.copy`, or read with `history.state`.",
            related=("copy_context",),
        )


# Critical updates: edits of an agent's definition or layers that it must pull. Content is never part of them.


class CriticalChange(Response):
    """A critical version that is newer than the pinned one: of which line, by whom and when."""

    context_id: str
    pinned_version: int
    version: int
    author: str
    marked_at: datetime

    @classmethod
    def since(cls, pinned: PartVersion, edit: CriticalEdit) -> CriticalChange:
        return cls(
            context_id=edit.line_id,
            pinned_version=pinned.seq,
            version=edit.version,
            author=edit.author,
            marked_at=from_micros(edit.marked_at),
        )


class CriticalUpdate(Response):
    """Critical changes that the session does not have yet: pull them with `context.pull`."""

    changes: list[CriticalChange]

    @property
    def note(self) -> str:
        """Return the notice that an agent receives."""
        edits = "; ".join(
            f"{each.context_id} version {each.version} by {each.author} (yours: version {each.pinned_version})"
            for each in self.changes
        )
        return f"Critical update: {edits}. Call pull_context to get it before you continue."
