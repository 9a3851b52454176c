"""Changes of the tree: room for new agents, and disabling and enabling with everything below."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weftline.access.model import InvalidParent, Principal
from weftline.kernel.errors import PermissionDenied, QuotaExceeded
from weftline.kernel.identity import PrincipalKind

if TYPE_CHECKING:
    from weftline.access.sql import AccessStore
    from weftline.kernel.identity import Actor

# Levels of a tree. Every check of a caller's reach walks up all of them.
MAX_DEPTH = 20
_CHOOSE = "Choose another parent; `agent.list` shows the tree."


class AgentLimit(msgspec.Struct, frozen=True):
    """How many active agents a tenant may have; 0: no limit."""

    agents: int = 0

    @property
    def below_one(self) -> int:
        """Return how many agents may be below one that is no admin: half, so that none takes all."""
        return self.agents // 2


class TreeChange(NamedTuple):
    """A principal after a change, and the ids of those below it that were disabled or enabled with it."""

    principal: Principal
    disabled: tuple[str, ...] = ()
    enabled: tuple[str, ...] = ()


async def find_parent(parent_id: str, access: AccessStore) -> Principal:
    """Return an active parent that is not too deep in the tree."""
    parent = await access.principal(parent_id)
    if parent is None or parent.disabled_at is not None:
        raise InvalidParent(f"There is no active principal '{parent_id}'.")
    if len(await access.ancestors(parent_id)) + 1 >= MAX_DEPTH:
        raise InvalidParent(
            f"A tree has at most {MAX_DEPTH} levels, and '{parent_id}' is on the last one.",
            hint="Choose a parent further up.",
            max_depth=MAX_DEPTH,
        )
    return parent


async def move(principal: Principal, parent_id: str, actor: Actor, access: AccessStore) -> Principal:
    """Put an agent with everything below it under another principal, and return it as it is then. For humans."""
    if actor.kind is not PrincipalKind.HUMAN:
        raise PermissionDenied(
            "An agent cannot move agents in the tree.", hint="Ask a human admin to move it with `agent.update`."
        )
    if principal.kind is not PrincipalKind.AGENT:
        raise InvalidParent(f"'{principal.principal_id}' is a human: only agents are moved.", hint=_CHOOSE)
    parent = await find_parent(parent_id, access)
    if parent.clearance > actor.clearance:
        raise PermissionDenied("The new parent has a higher clearance than yours.", your_clearance=actor.clearance)
    above = [parent_id, *(each.principal_id for each in await access.ancestors(parent_id))]
    if principal.principal_id in above:
        raise InvalidParent(f"'{parent_id}' is '{principal.principal_id}' itself or below it.", hint=_CHOOSE)
    if len(above) + await access.height(principal.principal_id) > MAX_DEPTH:
        raise InvalidParent(f"A tree has at most {MAX_DEPTH} levels.", hint=_CHOOSE, max_depth=MAX_DEPTH)
    await access.move(principal, parent_id)
    return replace(principal, parent_id=parent_id, disabled_with=None)


async def check_room(actor: Actor, access: AccessStore, limit: AgentLimit) -> None:
    """Raise QuotaExceeded if the tenant now has more active agents than it may, or the caller's tree has."""
    if not limit.agents:
        return
    if await access.active_agents() > limit.agents:
        raise QuotaExceeded(
            f"The tenant may have {limit.agents} active agents.",
            hint=(
                "Disable agents that are no longer needed with `agent.update`; the operator sets WEFTLINE_AGENT_LIMIT."
            ),
            limit_agents=limit.agents,
            setting="WEFTLINE_AGENT_LIMIT",
        )
    if not actor.is_admin and await access.agents_below(actor.principal_id) > limit.below_one:
        raise QuotaExceeded(
            f"One orchestrator may have {limit.below_one} active agents below it: half of the tenant's limit.",
            hint="Disable agents that are no longer needed with `agent.update`; an admin can create more.",
            limit_agents=limit.below_one,
            setting="WEFTLINE_AGENT_LIMIT",
        )


async def disable(principal: Principal, actor: Actor, access: AccessStore, now: int) -> TreeChange:
    """Disable a principal and everything below it; never the caller itself."""
    if principal.principal_id in actor.ancestors:
        raise PermissionDenied(
            f"'{principal.principal_id}' is above you in the tree: you would be disabled with it.",
            hint="Ask an admin that is not below it.",
        )
    if principal.disabled_at is not None and principal.disabled_with is None:
        return TreeChange(principal)
    disabled = replace(
        principal, disabled_at=principal.disabled_at or now, disabled_by=actor.principal_id, disabled_with=None
    )
    return TreeChange(disabled, disabled=tuple(await access.disable_below(disabled, principal.disabled_with)))


async def enable(principal: Principal, actor: Actor, access: AccessStore) -> TreeChange:
    """Enable a principal and what was disabled with it."""
    if principal.disabled_at is None:
        return TreeChange(principal)
    for above in await access.ancestors(principal.principal_id):
        if above.disabled_at is not None:
            raise InvalidParent(
                f"'{above.principal_id}' above it is disabled.",
                hint=f"Enable '{above.principal_id}' first with `agent.update`.",
                disabled_parent=above.principal_id,
            )
    await _check_may_enable(principal, actor, access)
    enabled = replace(principal, disabled_at=None, disabled_by=None, disabled_with=None)
    return TreeChange(enabled, enabled=tuple(await access.enable_below(principal.principal_id)))


async def exceeding(principal: Principal, access: AccessStore) -> list[str]:
    """Return the ids of those below a principal that have a clearance or a permission that it lacks."""
    return [
        each.principal_id
        for each in await access.below(principal.principal_id)
        if each.clearance > principal.clearance or not each.permissions <= principal.permissions
    ]


async def _check_may_enable(principal: Principal, actor: Actor, access: AccessStore) -> None:
    """Refuse agents that would undo what a human, or an agent that is not below them, has done."""
    by = principal.disabled_by
    if actor.kind is PrincipalKind.HUMAN or by == actor.principal_id:
        return
    if by is None or actor.principal_id not in {above.principal_id for above in await access.ancestors(by)}:
        raise PermissionDenied(
            "An agent can enable only what it, or an agent below it, has disabled.",
            hint=f"Ask '{by}', who disabled it, or an admin." if by else "Ask an admin.",
            disabled_by=by,
        )
