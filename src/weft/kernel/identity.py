"""Who is calling, and what they were granted."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from weft.kernel.correlation import UNRELATED, Correlation

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERYONE = "*"
ANYONE = (EVERYONE,)
# In place of a participant's name: one principal and no other, every agent of a type, whoever holds a permission,
# whoever is cleared as high.
PRINCIPAL = "principal:"
AGENT_TYPE = "type:"
PERMISSION = "permission:"
CLEARANCE = "clearance:"


# What the names of sub-agents begin with.
SUBAGENT = "subagent:"


class Permission(StrEnum):
    """What a principal was granted; admin includes nothing else by itself."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


class Kind(StrEnum):
    """What sort of principal stands in a tenant's tree."""

    AGENT = "agent"
    HUMAN = "human"


def participant_name(kind: Kind, principal_id: str, agent_type: str, *, parent_is_agent: bool) -> str:
    """Return the name others see on a principal's work.

    An agent named after its type is the one agent of that type and needs no number behind it.
    """
    if kind is Kind.HUMAN:
        return f"human:{principal_id}"
    if not parent_is_agent:
        return "orchestrator"
    if principal_id == agent_type:
        return f"{SUBAGENT}{agent_type}"
    return f"{SUBAGENT}{agent_type}:{principal_id}"


class Actor(msgspec.Struct, frozen=True):
    """The authenticated caller of one operation. Built from a credential, never from a request.

    ``epoch`` is the state of the tenant's access rules it was built under; ``valid_until`` is when its credential ends.
    ``min_score`` is from which relevance on its searches count something as found, if an admin said so.
    ``during`` is what the caller says this call is part of: good for finding things, never for deciding anything.
    """

    tenant: str
    principal_id: str
    kind: Kind
    agent_type: str
    parent_is_agent: bool
    permissions: frozenset[Permission]
    clearance: int
    epoch: int
    valid_until: int | None = None
    token_id: str | None = None
    min_score: float | None = None
    during: Correlation = UNRELATED

    @property
    def is_subagent(self) -> bool:
        return self.kind is Kind.AGENT and self.parent_is_agent

    @property
    def is_admin(self) -> bool:
        return Permission.ADMIN in self.permissions

    @property
    def participant(self) -> str:
        """Return the name others see on this caller's work."""
        return participant_name(self.kind, self.principal_id, self.agent_type, parent_is_agent=self.parent_is_agent)

    @property
    def audiences(self) -> frozenset[str]:
        """Return the patterns that mean this caller whatever it is called."""
        held = (f"{PERMISSION}{permission}" for permission in self.permissions)
        return frozenset({EVERYONE, f"{PRINCIPAL}{self.principal_id}", f"{AGENT_TYPE}{self.agent_type}", *held})

    def matches(self, patterns: Iterable[str]) -> bool:
        """Tell whether this caller is meant by any of the participant patterns (``*`` is a wildcard)."""
        name, audiences = self.participant, self.audiences
        return any(
            pattern in audiences or fnmatchcase(name, pattern) or self._is_cleared_for(pattern) for pattern in patterns
        )

    def _is_cleared_for(self, pattern: str) -> bool:
        level = pattern.removeprefix(CLEARANCE)
        return level != pattern and level.isdecimal() and int(level) <= self.clearance


HIGHEST_CLEARANCE = 5


def system_actor(tenant: str) -> Actor:
    """Return the actor of background work inside one tenant."""
    return Actor(
        tenant=tenant,
        principal_id="system",
        kind=Kind.HUMAN,
        agent_type="system",
        parent_is_agent=False,
        permissions=frozenset(Permission),
        clearance=HIGHEST_CLEARANCE,
        epoch=0,
    )
