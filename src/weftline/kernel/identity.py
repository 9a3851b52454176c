"""The authenticated caller and its permissions; participant patterns used in ACLs."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.kernel.fields import is_name

if TYPE_CHECKING:
    from collections.abc import Iterable


# Why a call is held until somebody approves it, and what an approved call may pass.
#
# A guard or a service holds a call by raising an error whose class has ``hold``. The dispatcher stores the call; when
# it is approved, it is performed with an ``Approval`` on its actor, which lets it pass the checks it was held by.


class HoldReason(msgspec.Struct, frozen=True, kw_only=True):
    """The check that holds a call, and what its approver is shown.

    ``check`` identifies the rule or check; an approval covers this check only. Include what must not change between the
    hold and the approval, such as the version of a rule or the hash of a text. ``text`` is one line for the caller and
    the approver; ``details`` are for approvers only, and may quote the request. ``approver``: ``client`` lets the
    caller's own MCP client ask its user.
    """

    check: str
    text: str
    details: dict[str, Any] = {}
    approver: Literal["human", "client"] = "human"


class Approval(msgspec.Struct, frozen=True):
    """The approval under which a held call is performed: it passes ``checks``, and no others.

    ``performer`` identifies the process that performs it, so that no other one commits its changes as well.
    ``preparing``: what is committed now is not the call itself, and may be repeated.
    """

    approval_id: str
    checks: frozenset[str]
    approved_by: str
    performer: str
    preparing: bool = False

    def covers(self, check: str) -> bool:
        return check in self.checks


EVERYONE = "*"
ANYONE = (EVERYONE,)
# Prefixes of ACL patterns other than participant names: one principal, all agents of a type, all holders of a
# permission, everyone with at least this clearance, the members of a team, a human with the agents that serve it, a
# principal with the agents below it.
PRINCIPAL = "principal:"
AGENT_TYPE = "type:"
PERMISSION = "permission:"
CLEARANCE = "clearance:"
TEAM = "team:"
USER = "user:"
TREE = "tree:"
# Beginnings of participant names: of orchestrators, of sub-agents and of humans.
ORCHESTRATOR = "orchestrator"
SUBAGENT = "subagent:"
HUMAN = "human:"
_AUDIENCES = (PRINCIPAL, AGENT_TYPE, PERMISSION, CLEARANCE, TEAM, USER, TREE)
_PARTICIPANTS = (f"{ORCHESTRATOR}:", SUBAGENT, HUMAN)
HIGHEST_CLEARANCE = 5
# Between the names of a path in the tree of agents; no name contains it.
PATH_SEPARATOR = "/"
# The actor of background work; no principal has this id.
SYSTEM_ID = "system"
_BOUND = "bound"


class Permission(StrEnum):
    """Permissions of a principal; admin does not include the others. ``AUDIT``: to read what redactions hide."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"
    AUDIT = "audit"


class PrincipalKind(StrEnum):
    """Kind of a principal."""

    AGENT = "agent"
    HUMAN = "human"


def participant_name(kind: PrincipalKind, principal_id: str, agent_type: str, *, parent_is_agent: bool) -> str:
    """Return the participant name shown on a principal's work. Its last part is the principal's id."""
    if kind is PrincipalKind.HUMAN:
        return SYSTEM_ID if principal_id == SYSTEM_ID else f"{HUMAN}{principal_id}"
    group, only_id = _group_of_agents(agent_type, parent_is_agent=parent_is_agent)
    return group if principal_id == only_id else f"{group}:{principal_id}"


def _group_of_agents(agent_type: str, *, parent_is_agent: bool) -> tuple[str, str]:
    """Return the name of all orchestrators or of all sub-agents of a type, and the id that needs no suffix."""
    return (f"{SUBAGENT}{agent_type}", agent_type) if parent_is_agent else (ORCHESTRATOR, ORCHESTRATOR)


def is_group_of_agents(pattern: str) -> bool:
    """Tell whether an ACL pattern means all orchestrators or all sub-agents of one type."""
    agent_type = pattern.removeprefix(SUBAGENT)
    return pattern == ORCHESTRATOR or (agent_type != pattern and is_name(agent_type))


@lru_cache(maxsize=10_000)
def named_types(patterns: tuple[str, ...]) -> frozenset[str]:
    """Return the agent types that an ACL names, by type:NAME, subagent:NAME or subagent:NAME:ID.

    A NAME with wildcards, as in subagent:legal-?, names all types that begin as it does: legal-*. If it begins with
    one, the ACL is open to agents of every type.
    """
    named = (
        pattern.removeprefix(SUBAGENT).partition(":")[0]
        if pattern.startswith(SUBAGENT)
        else pattern.removeprefix(AGENT_TYPE)
        for pattern in patterns
        if pattern.startswith((SUBAGENT, AGENT_TYPE))
    )
    return frozenset(name for name in map(_until_wildcard, named) if is_name(name.removesuffix("*")))


def names_of_type(agent_type: str) -> list[str]:
    """Return the names that named_types has for ACLs that may admit a type."""
    return [agent_type, *(f"{agent_type[:length]}*" for length in range(1, len(agent_type) + 1))]


def _until_wildcard(name: str) -> str:
    beginning, wildcard, _ = name.replace("?", "*").partition("*")
    return beginning + wildcard


def may_match_callers(pattern: str) -> bool:
    """Tell whether a caller can match an ACL pattern at all: agent:ID, for example, is no form of a name."""
    beginning, wildcard, _ = pattern.replace("?", "*").partition("*")
    if wildcard:
        return any(name.startswith(beginning) or beginning.startswith(name) for name in _PARTICIPANTS)
    return pattern == ORCHESTRATOR or pattern.startswith((*_PARTICIPANTS, *_AUDIENCES))


def principal_of(participant: str) -> str:
    """Return the id of the principal with this participant name."""
    return participant.rpartition(":")[2]


class Actor(msgspec.Struct, frozen=True, dict=True):
    """The authenticated caller of one operation. Built from a credential, never from a request.

    ``epoch`` is the version of the tenant's access rules it was built under, ``valid_until`` the expiry of its
    credential, ``min_score`` the minimum relevance of its search results if an admin set one. ``correlation`` is what
    the caller claims; it serves lookups and decides nothing. ``teams`` are the teams it is a member of, ``users`` the
    humans it serves: those above it in the tree and those in its teams; of a human, itself. ``tools`` is
    the tool profile of its API key. ``ancestors`` are the principals above it in the tree, ``tree`` the topmost agent
    among them, if there is one. ``approval`` is set while a held call of this caller is performed.
    ``terminated_sessions`` are the sessions in which it, or an agent above it, is refused until a human reinstates it.
    ``step`` is the step of a task that its credential or endpoint is bound to; then it may call the tools in
    ``step_tools`` only. ``bound_session`` is the session that its connection is bound to: no other one exists for it.
    ``single_use`` says that its token may only be exchanged for another one. ``by_owner`` says that whoever runs the
    process with the database makes the call in its name: nothing is a secret to them.
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
    key_id: str | None = None
    min_score: float | None = None
    correlation: Correlation = NO_CORRELATION
    teams: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    tools: str | None = None
    has_agents_below: bool = False
    ancestors: frozenset[str] = frozenset()
    approval: Approval | None = None
    terminated_sessions: frozenset[str] = frozenset()
    step: str | None = None
    step_tools: frozenset[str] = frozenset()
    bound_session: str | None = None
    tree: str | None = None
    single_use: bool = False
    by_owner: bool = False

    @property
    def is_subagent(self) -> bool:
        return self.kind is PrincipalKind.AGENT and self.parent_is_agent

    @property
    def is_admin(self) -> bool:
        return Permission.ADMIN in self.permissions

    def may_call(self, *names: str) -> bool:
        """Return whether the caller's step has a tool, under any of its names; without a step it has every tool."""
        return self.step is None or not self.step_tools.isdisjoint(names)

    def bound_to(self, session_id: str) -> Actor:
        """Return this caller on a connection that is bound to a session; the latest one is kept with its audiences."""
        known = self.__dict__.get(_BOUND)
        if known is None or known.bound_session != session_id:
            known = self.__dict__[_BOUND] = msgspec.structs.replace(self, bound_session=session_id)
        return known

    def may_enter(self, session_id: str) -> bool:
        """Return whether neither the connection nor a rule keeps the caller out of a session that admits it."""
        return self.bound_session in (None, session_id) and session_id not in self.terminated_sessions

    @cached_property
    def trees(self) -> frozenset[str]:
        """Return the agents whose tree it is in: itself and the agents above it, without the humans above all."""
        return (self.ancestors - self.users) | {self.principal_id}

    @cached_property
    def path(self) -> str:
        """Return the name by which it shares the server with others: an agent below another is part of its share."""
        return self.principal_id if self.tree is None else f"{self.tree}{PATH_SEPARATOR}{self.principal_id}"

    @cached_property
    def participant(self) -> str:
        """Return the participant name shown on this caller's work."""
        return participant_name(self.kind, self.principal_id, self.agent_type, parent_is_agent=self.parent_is_agent)

    @cached_property
    def audiences(self) -> frozenset[str]:
        """Return the ACL patterns that match this caller besides those that match its participant name."""
        own = {EVERYONE, f"{PRINCIPAL}{self.principal_id}", f"{AGENT_TYPE}{self.agent_type}"}
        own.update(f"{PERMISSION}{permission}" for permission in self.permissions)
        own.update(f"{TEAM}{team}" for team in self.teams)
        own.update(f"{USER}{user}" for user in self.users)
        own.add(f"{TREE}{self.principal_id}")
        if self.kind is PrincipalKind.AGENT:
            own.update(f"{TREE}{ancestor}" for ancestor in self.ancestors)
            own.add(_group_of_agents(self.agent_type, parent_is_agent=self.parent_is_agent)[0])
        return frozenset(own)

    def matches(self, patterns: Iterable[str]) -> bool:
        """Return whether any of the ACL patterns matches this caller (``*`` is a wildcard)."""
        audiences, names = self.audiences, self._names
        return any(
            pattern in audiences or any(fnmatchcase(name, pattern) for name in names) or self._is_cleared_for(pattern)
            for pattern in patterns
        )

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """Return the participant name, and for an agent whose id is its type also the form that repeats the id."""
        name = self.participant
        return (name, f"{name}:{self.principal_id}") if is_group_of_agents(name) else (name,)

    def _is_cleared_for(self, pattern: str) -> bool:
        level = pattern.removeprefix(CLEARANCE)
        return level != pattern and level.isdecimal() and int(level) <= self.clearance


def system_actor(tenant: str) -> Actor:
    """Return the actor of background work inside one tenant."""
    return Actor(
        tenant=tenant,
        principal_id=SYSTEM_ID,
        kind=PrincipalKind.HUMAN,
        agent_type=SYSTEM_ID,
        parent_is_agent=False,
        permissions=frozenset(Permission),
        clearance=HIGHEST_CLEARANCE,
        epoch=0,
    )
