"""Principals, API keys, tokens and signing keys."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol

import msgspec

from weftline.kernel.errors import Conflict, NotFound, Rejected
from weftline.kernel.fields import NAME_PATTERN, is_name, new_id
from weftline.kernel.identity import EVERYONE, Actor, Permission, PrincipalKind, participant_name

if TYPE_CHECKING:
    from collections.abc import Mapping


DEFAULT_TENANT = "default"
KEY_PREFIX = "weftline"

AgentId = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=100,
        pattern=NAME_PATTERN,
        description="Letters, digits, underscores and dashes; unique in the tenant.",
    ),
]
AgentType = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=50,
        pattern=NAME_PATTERN,
        description="The type of agent, such as claude, gemini or custom.",
    ),
]
Clearance = Annotated[int, msgspec.Meta(ge=1, le=5, description="1 (lowest) to 5 (highest).")]
PermissionName = Literal["read", "write", "admin", "audit"]


class AgentNotFound(NotFound):
    """No principal of this tenant has this id."""

    code = "AGENT_NOT_FOUND"
    hint = "List the principals with `agent.list`."
    related = ("list_agents",)


class AgentExists(Conflict):
    """A principal with this id already exists."""

    code = "AGENT_EXISTS"
    hint = "Choose another agent_id, or change the existing one with `agent.update`."
    related = ("update_agent", "list_agents")


class ApiKeyNotFound(NotFound):
    """No API key of this principal has this id."""

    code = "API_KEY_NOT_FOUND"
    hint = "List the principal's keys with `key.list`; secrets are never shown again."
    related = ("list_api_keys",)


class InvalidParent(Rejected):
    """The parent must be an active principal of the same tenant."""

    code = "INVALID_PARENT"
    hint = "Create the parent first with `agent.create`, or enable it with `agent.update`."
    related = ("create_agent", "list_agents")


@dataclass(frozen=True, slots=True)
class Principal:
    """An agent or a human in a tenant's tree.

    ``disabled_by`` is the principal that disabled it, ``disabled_with`` the one above it that was disabled, if it was
    not disabled by itself.
    """

    principal_id: str
    kind: PrincipalKind
    agent_type: str
    parent_id: str | None
    parent_is_agent: bool
    clearance: int
    permissions: frozenset[Permission]
    created_at: int
    disabled_at: int | None = None
    min_score: float | None = None
    has_agents_below: bool = False
    disabled_by: str | None = None
    disabled_with: str | None = None

    @property
    def participant(self) -> str:
        """Return the participant name shown on the principal's work."""
        return participant_name(self.kind, self.principal_id, self.agent_type, parent_is_agent=self.parent_is_agent)


class Memberships(NamedTuple):
    """The teams of a principal, the humans it serves, the principals above it, sessions that refuse it; see Actor."""

    teams: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    ancestors: frozenset[str] = frozenset()
    terminated_sessions: frozenset[str] = frozenset()
    tree: str | None = None


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A stored API key: the hash of its secret, never the secret."""

    key_id: str
    principal_id: str
    secret_hash: bytes
    created_at: int
    expires_at: int | None
    revoked_at: int | None
    tools: str | None = None
    step: str | None = None

    def usable(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def accepts(self, secret: str, now: int) -> bool:
        return hmac.compare_digest(self.secret_hash, hash_secret(secret)) and self.usable(now)


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A stored access token. ``proven_at`` is when its API key was last presented.

    One for ``single_use`` is exchanged for another one and accepted for nothing else.
    """

    token_id: str
    principal_id: str
    key_id: str | None
    permissions: frozenset[Permission]
    proven_at: int
    expires_at: int
    revoked_at: int | None
    step: str | None = None
    single_use: bool = False


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A secret that signs a tenant's tokens; a retired one verifies until its tokens have expired."""

    kid: str
    secret: bytes
    created_at: int
    retired_at: int | None


class BoundStep(NamedTuple):
    """The step that a credential is bound to, and its tools: none if the step was removed."""

    name: str
    tools: frozenset[str]


class PresentedKey(NamedTuple):
    """The parts of an API key that a caller presented."""

    tenant: str
    key_id: str
    secret: str


class NewKey(NamedTuple):
    """A new API key: the row to store, and the text that its owner sees once."""

    stored: StoredKey
    text: str


def hash_secret(secret: str) -> bytes:
    # The secret has 256 random bits, so one round of SHA-256 is enough; slow hashes protect guessable secrets only.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def new_key(
    tenant: str,
    principal_id: str,
    now: int,
    expires_at: int | None,
    tools: str | None = None,
    step: str | None = None,
) -> NewKey:
    secret = secrets.token_urlsafe(32)
    stored = StoredKey(new_id("key"), principal_id, hash_secret(secret), now, expires_at, None, tools, step)
    return NewKey(stored, f"{KEY_PREFIX}.{tenant}.{stored.key_id}.{secret}")


def parse_key(text: str) -> PresentedKey | None:
    """Split an API key into its parts; None if the text is not one."""
    prefix, _, rest = text.partition(".")
    parts = rest.split(".")
    if prefix != KEY_PREFIX or len(parts) != len(PresentedKey._fields) or not all(map(is_name, parts[:2])):
        return None
    return PresentedKey(*parts)


def new_signing_key(tenant: str, now: int) -> SigningKey:
    return SigningKey(f"{tenant}.{secrets.token_hex(8)}", secrets.token_bytes(32), now, None)


def actor_for(
    tenant: str,
    principal: Principal,
    memberships: Memberships,
    *,
    permissions: frozenset[Permission],
    epoch: int,
    valid_until: int | None = None,
    token_id: str | None = None,
    single_use: bool = False,
    key_id: str | None = None,
    tools: str | None = None,
    step: BoundStep | None = None,
) -> Actor:
    return Actor(
        tenant=tenant,
        principal_id=principal.principal_id,
        kind=principal.kind,
        agent_type=principal.agent_type,
        parent_is_agent=principal.parent_is_agent,
        permissions=permissions & principal.permissions,
        clearance=principal.clearance,
        epoch=epoch,
        valid_until=valid_until,
        token_id=token_id,
        single_use=single_use,
        key_id=key_id,
        min_score=principal.min_score,
        teams=memberships.teams,
        users=memberships.users,
        tools=tools,
        has_agents_below=principal.has_agents_below,
        ancestors=memberships.ancestors,
        tree=memberships.tree,
        terminated_sessions=memberships.terminated_sessions,
        step=None if step is None else step.name,
        step_tools=frozenset() if step is None else step.tools,
    )


# Patterns of participants.

Pattern = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=200,
        pattern=r"^[A-Za-z0-9_:*?-]+\Z",
        description="A participant's name with wildcards, such as subagent:review:*, or tree:ID, team:NAME.",
    ),
]


def member_patterns(actor: Actor) -> frozenset[str]:
    """Return all the patterns of members that match a caller.

    There are few, because a wildcard stands for everything after a colon only: stores can look them up by index.
    """
    parts = actor.participant.split(":")
    groups = (":".join((*parts[:count], EVERYONE)) for count in range(1, len(parts)))
    return actor.audiences.union((actor.participant,), groups)


# Ports of access: the codec of tokens, and what higher rooms do for it.


class AgentInstructions(Protocol):
    """Sets the system prompt of a new agent."""

    async def define(self, agent_id: str, text: str) -> None: ...


class LineKeys(Protocol):
    """The key that signs the versions of layers and definitions."""

    async def rotate(self, now: int) -> None:
        """Replace the key. What it signed stays valid, but nobody can sign with it any more."""
        ...


class TokenCodec(Protocol):
    """Signs and verifies claims with one fixed algorithm, whatever the token's header names."""

    def encode(self, claims: Mapping[str, Any], kid: str, secret: bytes) -> str: ...

    def kid_of(self, token: str) -> str | None:
        """Return the unverified key id of a token; None if the text is not a token."""
        ...

    def decode(self, token: str, secret: bytes) -> Mapping[str, Any] | None:
        """Return the claims if the signature is valid; None otherwise."""
        ...
