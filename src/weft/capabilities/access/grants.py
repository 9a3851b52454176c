"""Who may change whom, and grant what: downward only, and never more than one holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.kernel.errors import PermissionDenied
from weft.kernel.identity import Kind

if TYPE_CHECKING:
    from weft.capabilities.access.model import Principal
    from weft.capabilities.access.store import AccessStore
    from weft.kernel.identity import Actor, Permission


HIGHEST_CLEARANCE = 5


async def check_may_edit(actor: Actor, target: Principal, access: AccessStore) -> None:
    """Refuse to let anyone change themselves, someone cleared higher, or someone out of their reach."""
    if actor.principal_id == target.principal_id:
        raise PermissionDenied("Nobody can change their own permissions, clearance or state.")
    if target.clearance > actor.clearance:
        raise PermissionDenied("The principal has a higher clearance than yours.", your_clearance=actor.clearance)
    await check_reach(actor, target, access)


async def check_reach(actor: Actor, target: Principal, access: AccessStore) -> None:
    """Refuse an agent whoever does not stand below it in the tree; a human reaches everyone."""
    if actor.kind is Kind.AGENT and not await _stands_below(actor.principal_id, target, access):
        raise PermissionDenied(
            "An agent creates and changes only principals below itself.",
            hint="Name yourself, or someone below you, as parent_id of whom you create; leave others to a human admin.",
        )


async def check_may_manage_credentials(actor: Actor, owner: Principal, access: AccessStore) -> None:
    """Refuse whoever is neither the owner nor someone who may change the owner."""
    if actor.principal_id != owner.principal_id:
        await check_may_edit(actor, owner, access)


def check_may_grant(actor: Actor, clearance: int, permissions: frozenset[Permission]) -> None:
    """Refuse to grant more than one holds."""
    if clearance > actor.clearance:
        raise PermissionDenied("You cannot grant a clearance above your own.", your_clearance=actor.clearance)
    if not permissions <= actor.permissions:
        raise PermissionDenied(
            "You cannot grant a permission you do not hold.", your_permissions=sorted(actor.permissions)
        )


def check_clearance(actor: Actor, needed: int, what: str = "This") -> None:
    """Refuse whoever is not cleared for what they ask."""
    if actor.clearance < needed:
        raise PermissionDenied(
            f"{what} needs clearance {needed}; yours is {actor.clearance}.",
            hint=f"Ask someone with clearance {needed} or more.",
            required_clearance=needed,
            your_clearance=actor.clearance,
        )


def check_highest_clearance(actor: Actor) -> None:
    if actor.clearance < HIGHEST_CLEARANCE:
        raise PermissionDenied("This concerns everyone in the tenant.", required_clearance=HIGHEST_CLEARANCE)


def check_may_hold_key(actor: Actor, owner: Principal) -> None:
    """Refuse to show a key, which is its owner's whole identity, to anyone who is less than its owner."""
    if actor.kind is Kind.AGENT and owner.kind is Kind.HUMAN:
        raise PermissionDenied("An agent cannot hold the key of a human, who reaches everyone.")
    check_may_grant(actor, owner.clearance, owner.permissions)


async def _stands_below(ancestor_id: str, principal: Principal, access: AccessStore) -> bool:
    passed: set[str] = set()
    parent_id = principal.parent_id
    # A parent never changes, so the tree has no loops; but a row changed by hand must not make a call go on forever.
    while parent_id is not None and parent_id not in passed:
        if parent_id == ancestor_id:
            return True
        passed.add(parent_id)
        parent = await access.principal(parent_id)
        parent_id = parent.parent_id if parent else None
    return False
