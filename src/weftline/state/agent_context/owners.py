"""Owners of persistent memory: an agent or human by its id, a team as team:NAME, a user as user:ID.

The memory of a team is shared by its members; that of a user by the human and the agents that serve it. Admins may use
both, that of a user up to their own clearance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from weftline.access.grants import HIGHEST_CLEARANCE
from weftline.access.model import AgentNotFound
from weftline.access.teams.model import TeamNotFound
from weftline.kernel.errors import PermissionDenied
from weftline.kernel.identity import PRINCIPAL, TEAM, USER, Permission, PrincipalKind
from weftline.sessions.teams.service import unknown_team

if TYPE_CHECKING:
    from weftline.access.sql import AccessStore
    from weftline.access.teams.sql import TeamStore
    from weftline.kernel.identity import Actor

SHARED = (TEAM, USER)
OWNER_ERRORS = (TeamNotFound, AgentNotFound)
Owner = Annotated[
    Annotated[
        str,
        msgspec.Meta(
            pattern=r"^(team|user):[A-Za-z0-9][A-Za-z0-9_-]{0,99}\Z",
            extra_json_schema={"examples": ["team:research", "user:ada"]},
        ),
    ]
    | None,
    msgspec.Meta(description="team:NAME or user:ID for memory shared with others. Default: your own."),
]


def is_shared(owner: str) -> bool:
    """Tell whether an owner is a team or a user; ids of principals have no colon."""
    return owner.startswith(SHARED)


def audience_of(owner: str) -> str:
    """Return the ACL pattern of those who may read an owner's memory, besides admins."""
    return owner if is_shared(owner) else f"{PRINCIPAL}{owner}"


def readable_memory_owners(actor: Actor) -> frozenset[str]:
    """Return the owners whose memory a caller reads as its own: itself, its teams and the users it serves."""
    shared = (*(f"{TEAM}{team}" for team in actor.teams), *(f"{USER}{user}" for user in actor.users))
    return frozenset((actor.principal_id, *shared))


async def may_use_shared(actor: Actor, owner: str, access: AccessStore, teams: TeamStore) -> bool:
    """Tell whether a caller may read and, with the permission, write the memory of a team or a user."""
    if Permission.READ not in actor.permissions:
        return False
    if owner in readable_memory_owners(actor):
        return True
    return actor.is_admin and await exists(owner, access, teams, up_to=actor.clearance)


async def exists(owner: str, access: AccessStore, teams: TeamStore, up_to: int = HIGHEST_CLEARANCE) -> bool:
    """Tell whether there is such a team, or such a human with at most this clearance."""
    if owner.startswith(TEAM):
        return await teams.find(owner.removeprefix(TEAM)) is not None
    principal = await access.principal(owner.removeprefix(USER))
    return principal is not None and principal.kind is PrincipalKind.HUMAN and principal.clearance <= up_to


async def check_may_use(actor: Actor, owner: str, access: AccessStore, teams: TeamStore) -> None:
    """Raise unless the caller may use the memory of a team or a user, as if there were none."""
    if Permission.READ not in actor.permissions:
        raise PermissionDenied("Shared memory needs the permission 'read'.")
    if not await may_use_shared(actor, owner, access, teams):
        error = unknown_owner(owner, actor)
        error.denial = await exists(owner, access, teams)
        raise error


def unknown_owner(owner: str, actor: Actor) -> TeamNotFound | AgentNotFound:
    """Return the error for a team or a user that does not exist or that the caller may not use."""
    if owner.startswith(TEAM):
        return unknown_team(owner.removeprefix(TEAM), actor)
    user = owner.removeprefix(USER)
    return AgentNotFound(
        f"There is no user '{user}' whose memory you share.",
        hint="You share the memory of the humans above you in the tree and of those in your teams.",
        related=("teams",),
        resource_type="user",
        resource_id=user,
    )
