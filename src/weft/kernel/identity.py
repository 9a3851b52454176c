"""The authenticated caller and its permissions; participant patterns used in ACLs."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from weft.kernel.correlation import NO_CORRELATION, Correlation

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERYONE = "*"
ANYONE = (EVERYONE,)
# Prefixes of ACL patterns other than participant names: one principal, all agents of a type, all holders of a
# permission, everyone with at least this clearance, the members of a team, a human with the agents that serve it.
PRINCIPAL = "principal:"
AGENT_TYPE = "type:"
PERMISSION = "permission:"
CLEARANCE = "clearance:"
TEAM = "team:"
USER = "user:"
# Prefixes of the participant names of sub-agents and of humans.
SUBAGENT = "subagent:"
HUMAN = "human:"
HIGHEST_CLEARANCE = 5


class Permission(StrEnum):
    """Permissions of a principal; admin does not include the others."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class PrincipalKind(StrEnum):
    """Kind of a principal."""

    AGENT = "agent"
    HUMAN = "human"


def participant_name(kind: PrincipalKind, principal_id: str, agent_type: str, *, parent_is_agent: bool) -> str:
    """Return the participant name shown on a principal's work.

    An agent whose id is its type is the only one of that type, so its name is not suffixed with the id.
    """
    if kind is PrincipalKind.HUMAN:
        return f"{HUMAN}{principal_id}"
    if not parent_is_agent:
        return "orchestrator"
    if principal_id == agent_type:
        return f"{SUBAGENT}{agent_type}"
    return f"{SUBAGENT}{agent_type}:{principal_id}"


class Actor(msgspec.Struct, frozen=True):
    """The authenticated caller of one operation. Built from a credential, never from a request.

    ``epoch`` is the version of the tenant's access rules it was built under, ``valid_until`` the expiry of its
    credential, ``min_score`` the minimum relevance of its search results if an admin set one. ``correlation`` is what
    the caller claims; it serves lookups and decides nothing. ``teams`` are the teams it is a member of, ``users`` the
    humans it serves: those above it in the tree and those in its teams; of a human, itself. ``tools`` is
    the tool profile of its API key.
    """

    tenant: str
    principal_id: str
    kind: PrincipalKind
    agent_type: str
    parent_is_agent: bool
    permissions: frozenset[Permission]
    clearance: int
    epoch: int
    valid_until: int | None = None
    token_id: str | None = None
    min_score: float | None = None
    correlation: Correlation = NO_CORRELATION
    teams: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    tools: str | None = None
    has_agents_below: bool = False

    @property
    def is_subagent(self) -> bool:
        return self.kind is PrincipalKind.AGENT and self.parent_is_agent

    @property
    def is_admin(self) -> bool:
        return Permission.ADMIN in self.permissions

    @property
    def participant(self) -> str:
        """Return the participant name shown on this caller's work."""
        return participant_name(self.kind, self.principal_id, self.agent_type, parent_is_agent=self.parent_is_agent)

    @property
    def audiences(self) -> frozenset[str]:
        """Return the ACL patterns that match this caller besides its participant name."""
        held = (f"{PERMISSION}{permission}" for permission in self.permissions)
        groups = (*(f"{TEAM}{team}" for team in self.teams), *(f"{USER}{user}" for user in self.users))
        own = (EVERYONE, f"{PRINCIPAL}{self.principal_id}", f"{AGENT_TYPE}{self.agent_type}")
        return frozenset((*own, *held, *groups))

    def matches(self, patterns: Iterable[str]) -> bool:
        """Return whether any of the ACL patterns matches this caller (``*`` is a wildcard)."""
        name, audiences = self.participant, self.audiences
        return any(
            pattern in audiences or fnmatchcase(name, pattern) or self._is_cleared_for(pattern) for pattern in patterns
        )

    def _is_cleared_for(self, pattern: str) -> bool:
        level = pattern.removeprefix(CLEARANCE)
        return level != pattern and level.isdecimal() and int(level) <= self.clearance


def system_actor(tenant: str) -> Actor:
    """Return the actor of background work inside one tenant."""
    return Actor(
        tenant=tenant,
        principal_id="system",
        kind=PrincipalKind.HUMAN,
        agent_type="system",
        parent_is_agent=False,
        permissions=frozenset(Permission),
        clearance=HIGHEST_CLEARANCE,
        epoch=0,
    )
