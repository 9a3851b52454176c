"""Rules for changing principals and granting rights: only descendants, and never more than the caller has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.kernel.errors import PermissionDenied, SelfModification
from weftline.kernel.identity import Permission, PrincipalKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weftline.access.model import Principal
    from weftline.access.sql import AccessStore
    from weftline.kernel.identity import Actor


HIGHEST_CLEARANCE = 5
_ASK_FOR_TYPE = "Pass another agent_type, or ask a human admin to create the first agent of this type below you."


async def check_may_edit(actor: Actor, target: Principal, access: AccessStore) -> None:
    """Refuse changes to oneself, to a higher clearance, by agents to humans and to others than their descendants."""
    if actor.principal_id == target.principal_id:
        check_not_itself(actor, target.principal_id)
        raise PermissionDenied("A principal cannot change its own permissions, clearance or state.")
    # First, so that an agent learns nothing of principals outside its tree.
    await check_reach(actor, target, access)
    if target.clearance > actor.clearance:
        raise PermissionDenied("The principal has a higher clearance than yours.", your_clearance=actor.clearance)
    if actor.kind is PrincipalKind.AGENT and target.kind is PrincipalKind.HUMAN:
        raise PermissionDenied("An agent cannot change a human.", hint="Ask a human admin.")


def check_not_itself(actor: Actor, target_id: object) -> None:
    """Raise SelfModification for an agent that is about to change itself."""
    if actor.kind is PrincipalKind.AGENT and actor.principal_id == target_id:
        raise SelfModification(
            "An agent cannot change its own permissions, clearance, parent, teams or state.",
            hint="Ask the agent above you, or a human, to change it with `agent.update`.",
            related=("update_agent",),
        )


def forbid_self_change(raw: Mapping[str, Any], actor: Actor) -> None:
    """Raise SelfModification for a request of an agent to change itself, whatever its permissions."""
    check_not_itself(actor, raw.get("agent_id"))


async def check_reach(actor: Actor, target: Principal, access: AccessStore) -> None:
    """Refuse an agent that is not an ancestor of the target; humans may change any principal."""
    if actor.kind is PrincipalKind.AGENT and not await is_descendant(actor.principal_id, target, access):
        raise PermissionDenied(
            "An agent can create and change only agents below itself.",
            hint="Ask a human admin. To create an agent below yourself, omit parent_id.",
        )


async def check_may_manage_credentials(actor: Actor, owner: Principal, access: AccessStore) -> None:
    """Refuse callers that neither own the credential nor may edit its owner."""
    if actor.principal_id != owner.principal_id:
        await check_may_edit(actor, owner, access)


def check_may_grant(actor: Actor, clearance: int, permissions: frozenset[Permission]) -> None:
    """Refuse to grant a clearance or permission that the caller does not have."""
    if clearance > actor.clearance:
        raise PermissionDenied("You cannot grant a clearance above your own.", your_clearance=actor.clearance)
    # Nobody has the permission to audit before an admin grants it.
    own = actor.permissions | ({Permission.AUDIT} if actor.is_admin else set())
    if not permissions <= own:
        raise PermissionDenied(
            "You cannot grant a permission that you do not have.", your_permissions=sorted(actor.permissions)
        )


def may_read_as_admin(actor: Actor, owner: Principal) -> bool:
    """Tell whether a caller may read the private data of a principal as an admin: not above its own clearance."""
    return actor.is_admin and owner.clearance <= actor.clearance


def check_clearance(actor: Actor, needed: int, what: str = "This", *, who: str = "someone") -> None:
    """Refuse callers below a clearance; the hint names who has it."""
    if actor.clearance < needed:
        raise PermissionDenied(
            f"{what} needs clearance {needed}; yours is {actor.clearance}.",
            hint=f"Ask {who} with clearance {needed} or more.",
            required_clearance=needed,
            your_clearance=actor.clearance,
        )


def needs_clearance(needed: int, what: str) -> Callable[[Actor], None]:
    """Return the check of a clearance that an operation requires of every caller."""
    return lambda actor: check_clearance(actor, needed, what)


def check_supervisor(actor: Actor) -> None:
    """Refuse agents that have no agents below them."""
    if actor.kind is PrincipalKind.AGENT and not actor.has_agents_below:
        raise PermissionDenied(
            "This is for humans and for agents that have agents below them.",
            hint="Leave this to a human or to the agent that started you.",
            related=("get_usage_guidance",),
        )


def check_may_create(actor: Actor) -> None:
    """Refuse callers that may create no agents: all but admins and orchestrators that may write."""
    if not actor.is_admin and (actor.kind is not PrincipalKind.AGENT or Permission.WRITE not in actor.permissions):
        raise PermissionDenied(
            "This is for admins, and for orchestrators with the permission 'write'.",
            your_permissions=sorted(actor.permissions),
        )


def check_may_manage(actor: Actor) -> None:
    """Refuse callers that may change no agents: all but admins and orchestrators that have agents below them."""
    check_may_create(actor)
    if not actor.is_admin:
        check_supervisor(actor)


def check_highest_clearance(actor: Actor) -> None:
    if actor.clearance < HIGHEST_CLEARANCE:
        raise PermissionDenied(
            f"This affects the whole tenant and needs clearance {HIGHEST_CLEARANCE}.",
            required_clearance=HIGHEST_CLEARANCE,
        )


def check_may_hold_key(actor: Actor, owner: Principal) -> None:
    """Refuse to show a key to a caller with fewer rights than its owner: a key is the owner's full identity."""
    if actor.kind is PrincipalKind.AGENT and owner.kind is PrincipalKind.HUMAN:
        raise PermissionDenied("An agent cannot hold the key of a human, because humans may change any principal.")
    check_may_grant(actor, owner.clearance, owner.permissions)


def check_may_take_key(actor: Actor, owner: Principal) -> None:
    """Refuse to show a new key of somebody who exists to a caller with fewer rights.

    An admin grants the permission to audit, but does not act as an auditor.
    """
    check_may_hold_key(actor, owner)
    if Permission.AUDIT in owner.permissions - actor.permissions and actor.principal_id != owner.principal_id:
        raise PermissionDenied("Only an auditor can hold the key of an auditor.")


async def check_may_grant_type(actor: Actor, agent_type: str, access: AccessStore) -> None:
    """Refuse a type that only others have: ACLs admit agents by their type, so it would give their access.

    Human admins grant such types, up to their own clearance; agents get no more by the permission 'admin'.
    """
    if actor.is_admin and actor.kind is PrincipalKind.HUMAN:
        highest = await access.clearance_of_type(agent_type)
        check_clearance(actor, highest, f"The agent_type '{agent_type}' is that of others and")
    elif await access.is_foreign_type(agent_type, actor.principal_id):
        raise PermissionDenied(
            f"Others have the agent_type '{agent_type}', and neither you nor the agents below you have it. "
            "Access rules can name a type, so the new agent would get their access.",
            hint=_ASK_FOR_TYPE,
        )
    elif await access.is_type_named_by_others(agent_type, actor.principal_id):
        raise PermissionDenied(
            f"Access rules of others name the agent_type '{agent_type}', so the new agent would get access that was "
            "not meant for it.",
            hint=_ASK_FOR_TYPE,
        )


async def is_descendant(ancestor_id: str, principal: Principal, access: AccessStore) -> bool:
    """Tell whether a principal is below another one in the tree; it may be one that is about to be created."""
    if principal.parent_id in {None, ancestor_id}:
        return principal.parent_id is not None
    return any(above.principal_id == ancestor_id for above in await access.ancestors(principal.parent_id))
