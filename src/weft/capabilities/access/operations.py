"""What callers can ask of access: principals, keys and tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec

from weft.capabilities.access.authentication import active_principal, check_key
from weft.capabilities.access.grants import (
    check_highest_clearance,
    check_may_edit,
    check_may_grant,
    check_may_hold_key,
    check_may_manage_credentials,
    check_reach,
)
from weft.capabilities.access.model import (
    AgentExists,
    AgentId,
    AgentNotFound,
    AgentType,
    Clearance,
    InvalidParent,
    KeyUnknown,
    PermissionName,
    Principal,
    StoredKey,
    StoredToken,
    new_key,
    new_signing_key,
    parse_key,
)
from weft.capabilities.access.store import AccessStore, TokenCodec
from weft.kernel.clock import Clock, from_micros, optional_moment, to_micros
from weft.kernel.errors import AuthenticationError, InvalidApiKey, PermissionDenied
from weft.kernel.fields import Fraction, ShortText
from weft.kernel.identity import Actor, Kind, Permission, participant_name
from weft.kernel.ids import new_id
from weft.kernel.operation import Audience, Effect, RateClass, Request, Response, operation

Floor = Annotated[
    Fraction | None,
    msgspec.Meta(
        description="From which relevance on its searches find something; 0.7 unless set, or given by a call."
    ),
]
DAY_SECONDS = 86_400
YEAR_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """How long a token lasts, and how long refreshing may go on before the API key must be shown again."""

    token: timedelta
    proof: timedelta


class AuthenticateAgent(Request):
    """An API key in exchange for a token."""

    agent_id: AgentId
    agent_type: AgentType
    api_key: Annotated[str, msgspec.Meta(max_length=500, description="The agent's API key.")]
    requested_permissions: Annotated[
        tuple[PermissionName, ...],
        msgspec.Meta(description="Permissions the token shall carry; it gets those that were granted as well."),
    ] = ("read", "write")


class RefreshToken(Request):
    """A new token for the one this call is made with."""


class TokenIssued(Response, kw_only=True, omit_defaults=False):
    """A token, shown once."""

    success: Literal[True] = True
    token: str
    agent_id: str
    agent_type: str
    permissions: list[str]
    expires_at: datetime
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105 - the scheme's name
    issued_at: datetime

    def __repr__(self) -> str:
        return f"TokenIssued(agent_id={self.agent_id!r}, expires_at={self.expires_at})"


class RevokeToken(Request):
    """Which token to end; the one this call is made with if none is named."""

    token_id: Annotated[ShortText | None, msgspec.Meta(description="The token's jti claim.")] = None


class Done(Response, kw_only=True, omit_defaults=False):
    """The change was made."""

    success: Literal[True] = True


class CreateAgent(Request):
    """A new principal for the tenant's tree."""

    agent_id: AgentId
    agent_type: Annotated[AgentType | None, msgspec.Meta(description="Defaults to the agent_id.")] = None
    kind: Annotated[Literal["agent", "human"], msgspec.Meta(description="An agent or a human.")] = "agent"
    parent_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="An agent below another agent is its sub-agent; without one it is an orchestrator."),
    ] = None
    clearance: Clearance = 1
    permissions: Annotated[tuple[PermissionName, ...], msgspec.Meta(description="What it may do.")] = ("read", "write")
    relevance_floor: Floor = None


class UpdateAgent(Request):
    """What to change of a principal; what is left out stays."""

    agent_id: AgentId
    permissions: Annotated[list[PermissionName] | None, msgspec.Meta(description="The new full set.")] = None
    clearance: Clearance | None = None
    disabled: Annotated[bool | None, msgspec.Meta(description="True locks it out at once; false lets it in.")] = None
    relevance_floor: Floor = None


class ListAgents(Request):
    """Which principals to list."""

    after: Annotated[str, msgspec.Meta(max_length=100, description="Those behind this agent_id; for paging.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000, description="At most this many.")] = 100


class AgentInfo(Response, kw_only=True, omit_defaults=False):
    """A principal as others see it."""

    agent_id: str
    agent_type: str
    kind: str
    participant: str
    parent_id: str | None
    clearance: int
    permissions: list[str]
    created_at: datetime
    disabled: bool
    relevance_floor: float | None


class AgentCreated(AgentInfo):
    """A new principal with its API key, which is shown this once."""

    api_key: str

    def __repr__(self) -> str:
        return f"AgentCreated(agent_id={self.agent_id!r})"


class Agents(Response):
    """Principals, by id."""

    agents: list[AgentInfo]
    has_more: bool


class CreateApiKey(Request):
    """A further API key for a principal."""

    agent_id: AgentId
    expires_in: Annotated[
        Annotated[int, msgspec.Meta(ge=60, le=10 * YEAR_SECONDS)] | None,
        msgspec.Meta(description="Seconds until it ends; never if left out."),
    ] = None


class RotateKey(Request):
    """Which key to replace."""

    key_id: Annotated[str, msgspec.Meta(max_length=100, description="The id inside the key, behind the tenant.")]


class RevokeKey(Request):
    """Which key to end."""

    key_id: Annotated[str, msgspec.Meta(max_length=100, description="The id inside the key, behind the tenant.")]


class ListApiKeys(Request):
    """Whose keys to list."""

    agent_id: AgentId


class ApiKeyInfo(Response, kw_only=True, omit_defaults=False):
    """A key without its secret."""

    key_id: str
    agent_id: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class ApiKeyCreated(ApiKeyInfo):
    """A key with its secret, which is shown this once."""

    api_key: str

    def __repr__(self) -> str:
        return f"ApiKeyCreated(key_id={self.key_id!r})"


class ApiKeys(Response):
    """A principal's keys, newest first."""

    keys: list[ApiKeyInfo]


class RotateSigningKey(Request):
    """How to change the secret that signs the tenant's tokens."""

    revoke_existing: Annotated[
        bool, msgspec.Meta(description="Also end every token signed so far, instead of letting them run out.")
    ] = False


@operation(
    "token.issue",
    tool="authenticate_agent",
    http="POST /v1/tokens",
    permission=None,
    rate=RateClass.AUTHENTICATION,
    effect=Effect.WRITE,
    audience=Audience.ANONYMOUS,
    audited=True,
    errors=(InvalidApiKey, AuthenticationError, PermissionDenied),
)
async def authenticate_agent(
    request: AuthenticateAgent, access: AccessStore, codec: TokenCodec, lifetimes: TokenLifetimes, clock: Clock
) -> TokenIssued:
    """Exchange an agent's API key for a token that expires.

    The token carries those of the requested permissions that an admin granted; asking for more never gives more.
    """
    now = to_micros(clock.now())
    presented = parse_key(request.api_key)
    if presented is None or await access.epoch() is None:
        raise InvalidApiKey
    key = await check_key(presented, access, now)
    if key.principal_id != request.agent_id:
        raise InvalidApiKey("The API key does not belong to this agent_id.")
    principal = await active_principal(key.principal_id, access)
    if principal.agent_type != request.agent_type:
        raise AuthenticationError(
            f"The agent '{principal.principal_id}' was created with another agent_type.",
            hint=f"Pass agent_type '{principal.agent_type}'.",
        )
    permissions = principal.permissions & {Permission(name) for name in request.requested_permissions}
    if not permissions:
        raise PermissionDenied("None of the requested permissions was granted to this agent.")
    return await _issue(access, codec, lifetimes, principal, permissions, key=key, proven_at=now, now=now)


@operation(
    "token.refresh",
    tool="refresh_token",
    http="POST /v1/tokens/refresh",
    permission=None,
    rate=RateClass.AUTHENTICATION,
    effect=Effect.WRITE,
    errors=(AuthenticationError,),
)
async def refresh_token(
    request: RefreshToken, actor: Actor, access: AccessStore, codec: TokenCodec, lifetimes: TokenLifetimes, clock: Clock
) -> TokenIssued:
    """Get a fresh token for the one this call is made with, which runs out at its own time.

    Refreshing can go on for a day (by default); after that the API key must be shown again.
    """
    del request
    now = to_micros(clock.now())
    stored = await access.token(actor.token_id) if actor.token_id else None
    if stored is None:
        raise AuthenticationError(
            "Only a token can be refreshed; an API key needs no refreshing.",
            hint="Go on with the API key as it is, or exchange it for a token with authenticate_agent.",
        )
    if now - stored.proven_at > lifetimes.proof / timedelta(microseconds=1):
        raise AuthenticationError("This token has been refreshed for as long as allowed; show the API key again.")
    key = await access.key(stored.key_id) if stored.key_id else None
    if key is None or not key.usable(now):
        raise AuthenticationError("The API key behind this token has ended.")
    principal = await active_principal(stored.principal_id, access)
    return await _issue(
        access,
        codec,
        lifetimes,
        principal,
        stored.permissions,
        key=key,
        proven_at=stored.proven_at,
        now=now,
    )


@operation(
    "token.revoke",
    tool="revoke_token",
    http="POST /v1/tokens/revoke",
    permission=None,
    rate=RateClass.AUTHENTICATION,
    effect=Effect.WRITE,
    audited=True,
    errors=(PermissionDenied, AuthenticationError),
)
async def revoke_token(request: RevokeToken, actor: Actor, access: AccessStore, clock: Clock) -> Done:
    """End a token at once: your own, or, as an admin, that of someone you may change."""
    token_id = request.token_id or actor.token_id
    stored = await access.token(token_id) if token_id else None
    if stored is None or (stored.principal_id != actor.principal_id and not actor.is_admin):
        raise PermissionDenied("There is no such token of yours to revoke.")
    await check_may_manage_credentials(actor, await _find(stored.principal_id, access), access)
    await access.revoke_token(stored.token_id, to_micros(clock.now()))
    await access.advance_epoch()
    return Done()


@operation(
    "agent.create",
    tool="create_agent",
    http="POST /v1/agents",
    status=201,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(AgentExists, InvalidParent, PermissionDenied),
)
async def create_agent(request: CreateAgent, actor: Actor, access: AccessStore, clock: Clock) -> AgentCreated:
    """Add an agent or a human to the tenant, with an API key that is shown this once.

    An agent below another agent is a sub-agent and writes as ``subagent:{type}`` (or ``subagent:{type}:{id}`` when it
    is not named after its type); any other agent is an orchestrator. Nobody grants more than they hold themselves, and
    an agent adds only agents below itself.
    """
    parent = await access.principal(request.parent_id) if request.parent_id else None
    if request.parent_id and (parent is None or parent.disabled_at is not None):
        raise InvalidParent(f"There is no principal '{request.parent_id}' to stand under.")
    now = to_micros(clock.now())
    principal = Principal(
        principal_id=request.agent_id,
        kind=Kind(request.kind),
        agent_type=request.agent_type or request.agent_id[:50],
        parent_id=request.parent_id,
        parent_is_agent=parent is not None and parent.kind is Kind.AGENT,
        clearance=request.clearance,
        permissions=frozenset(map(Permission, request.permissions)),
        created_at=now,
        relevance_floor=request.relevance_floor,
    )
    await check_reach(actor, principal, access)
    check_may_hold_key(actor, principal)
    if not await access.add_principal(principal):
        raise AgentExists(f"There is a principal '{request.agent_id}' already.")
    key = new_key(access.tenant, principal.principal_id, now, None)
    await access.add_key(key.stored)
    return AgentCreated(**msgspec.structs.asdict(_info(principal)), api_key=key.text)


@operation(
    "agent.list",
    tool="list_agents",
    http="GET /v1/agents",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
)
async def list_agents(request: ListAgents, access: AccessStore) -> Agents:
    """List the tenant's principals by id."""
    found = await access.principals(request.after, request.limit + 1)
    return Agents(
        agents=[_info(principal) for principal in found[: request.limit]],
        has_more=len(found) > request.limit,
    )


@operation(
    "agent.update",
    tool="update_agent",
    http="PATCH /v1/agents/{agent_id}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(AgentNotFound, PermissionDenied),
)
async def update_agent(request: UpdateAgent, actor: Actor, access: AccessStore, clock: Clock) -> AgentInfo:
    """Change what a principal may do, or lock it out. Acts on its next call, in every process.

    Humans change those cleared no higher than themselves, agents only those of them that stand below; nobody changes
    itself or grants more than it holds.
    """
    principal = await _find(request.agent_id, access)
    await check_may_edit(actor, principal, access)
    asked = frozenset(map(Permission, request.permissions or ()))
    check_may_grant(actor, request.clearance or principal.clearance, asked)
    await access.update_principal(_changed(principal, request, to_micros(clock.now())))
    await access.advance_epoch()
    return _info(await _find(request.agent_id, access))


@operation(
    "key.create",
    tool="create_api_key",
    http="POST /v1/agents/{agent_id}/keys",
    status=201,
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(AgentNotFound, PermissionDenied),
)
async def create_api_key(request: CreateApiKey, actor: Actor, access: AccessStore, clock: Clock) -> ApiKeyCreated:
    """Give a principal a further API key, shown this once."""
    principal = await _find(request.agent_id, access)
    await check_may_manage_credentials(actor, principal, access)
    check_may_hold_key(actor, principal)
    now = to_micros(clock.now())
    expires_at = now + request.expires_in * 1_000_000 if request.expires_in else None
    return await _add_key(access, principal.principal_id, now, expires_at)


@operation(
    "key.list",
    tool="list_api_keys",
    http="GET /v1/agents/{agent_id}/keys",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.READ,
    audience=Audience.NOT_SUBAGENTS,
    errors=(AgentNotFound,),
)
async def list_api_keys(request: ListApiKeys, access: AccessStore) -> ApiKeys:
    """List a principal's API keys, without their secrets."""
    principal = await _find(request.agent_id, access)
    return ApiKeys(
        keys=[
            ApiKeyInfo(
                key_id=key.key_id,
                agent_id=key.principal_id,
                created_at=from_micros(key.created_at),
                expires_at=optional_moment(key.expires_at),
                revoked_at=optional_moment(key.revoked_at),
            )
            for key in await access.keys_of(principal.principal_id)
        ]
    )


@operation(
    "key.rotate",
    tool="rotate_key",
    http="POST /v1/keys/{key_id}/rotate",
    permission=None,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audited=True,
    errors=(KeyUnknown, PermissionDenied),
)
async def rotate_key(request: RotateKey, actor: Actor, access: AccessStore, clock: Clock) -> ApiKeyCreated:
    """Replace an API key: the new one is shown this once, the old one and its tokens end at once.

    Everyone may rotate their own key; an admin may rotate those of others it may change.
    """
    now = to_micros(clock.now())
    key = await access.key(request.key_id)
    if key is None or (key.principal_id != actor.principal_id and not actor.is_admin):
        error = KeyUnknown(f"There is no key '{request.key_id}' that you may rotate.")
        error.denial = key is not None
        raise error
    if key.revoked_at is not None:
        raise KeyUnknown(f"The key '{request.key_id}' was revoked; create a new one with create_api_key.")
    owner = await _find(key.principal_id, access)
    await check_may_manage_credentials(actor, owner, access)
    check_may_hold_key(actor, owner)
    await access.revoke_key(key.key_id, now)
    await access.advance_epoch()
    return await _add_key(access, key.principal_id, now, key.expires_at)


@operation(
    "key.revoke",
    tool="revoke_key",
    http="DELETE /v1/keys/{key_id}",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
    errors=(KeyUnknown, PermissionDenied),
)
async def revoke_key(request: RevokeKey, actor: Actor, access: AccessStore, clock: Clock) -> Done:
    """End an API key and every token it was used to get, at once."""
    key = await access.key(request.key_id)
    if key is None:
        raise KeyUnknown(f"There is no key '{request.key_id}'.")
    await check_may_manage_credentials(actor, await _find(key.principal_id, access), access)
    await access.revoke_key(key.key_id, to_micros(clock.now()))
    await access.advance_epoch()
    return Done()


@operation(
    "signing_key.rotate",
    tool="rotate_signing_key",
    http="POST /v1/signing-keys/rotate",
    permission=Permission.ADMIN,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audience=Audience.NOT_SUBAGENTS,
    audited=True,
)
async def rotate_signing_key(request: RotateSigningKey, actor: Actor, access: AccessStore, clock: Clock) -> Done:
    """Sign the tenant's tokens with a new secret from now on.

    It concerns everyone in the tenant, so it takes the highest clearance.
    """
    check_highest_clearance(actor)
    now = to_micros(clock.now())
    await access.retire_signing_keys(now, forget=request.revoke_existing)
    await access.add_signing_key(new_signing_key(access.tenant, now))
    await access.advance_epoch()
    return Done()


async def _issue(
    access: AccessStore,
    codec: TokenCodec,
    lifetimes: TokenLifetimes,
    principal: Principal,
    permissions: frozenset[Permission],
    *,
    key: StoredKey,
    proven_at: int,
    now: int,
) -> TokenIssued:
    signing = next(candidate for candidate in await access.signing_keys() if candidate.retired_at is None)
    expires_at = now + lifetimes.token // timedelta(microseconds=1)
    if key.expires_at is not None:
        expires_at = min(expires_at, key.expires_at)
    stored = StoredToken(
        token_id=new_id("token"),
        principal_id=principal.principal_id,
        key_id=key.key_id,
        permissions=permissions,
        proven_at=proven_at,
        expires_at=expires_at,
        revoked_at=None,
    )
    await access.forget_expired_tokens(principal.principal_id, now - DAY_SECONDS * 1_000_000)
    await access.add_token(stored)
    claims = {
        "iss": "weft",
        "sub": principal.principal_id,
        "jti": stored.token_id,
        "iat": now // 1_000_000,
        "exp": expires_at // 1_000_000,
        "permissions": sorted(permissions),
    }
    return TokenIssued(
        token=codec.encode(claims, signing.kid, signing.secret),
        agent_id=principal.principal_id,
        agent_type=principal.agent_type,
        permissions=sorted(permissions),
        expires_at=from_micros(expires_at),
        issued_at=from_micros(now),
    )


async def _add_key(access: AccessStore, principal_id: str, now: int, expires_at: int | None) -> ApiKeyCreated:
    key = new_key(access.tenant, principal_id, now, expires_at)
    await access.add_key(key.stored)
    return ApiKeyCreated(
        key_id=key.stored.key_id,
        agent_id=principal_id,
        created_at=from_micros(now),
        expires_at=optional_moment(expires_at),
        revoked_at=None,
        api_key=key.text,
    )


async def _find(agent_id: str, access: AccessStore) -> Principal:
    principal = await access.principal(agent_id)
    if principal is None:
        raise AgentNotFound(f"There is no principal '{agent_id}'.", agent_id=agent_id)
    return principal


def _changed(principal: Principal, request: UpdateAgent, now: int) -> Principal:
    changes: dict[str, Any] = {"clearance": request.clearance, "relevance_floor": request.relevance_floor}
    if request.permissions is not None:
        changes["permissions"] = frozenset(map(Permission, request.permissions))
    kept = {name: value for name, value in changes.items() if value is not None}
    if request.disabled is not None:
        kept["disabled_at"] = now if request.disabled else None
    return replace(principal, **kept)


def _info(principal: Principal) -> AgentInfo:
    return AgentInfo(
        agent_id=principal.principal_id,
        agent_type=principal.agent_type,
        kind=principal.kind,
        participant=participant_name(
            principal.kind, principal.principal_id, principal.agent_type, parent_is_agent=principal.parent_is_agent
        ),
        parent_id=principal.parent_id,
        clearance=principal.clearance,
        permissions=sorted(principal.permissions),
        created_at=from_micros(principal.created_at),
        disabled=principal.disabled_at is not None,
        relevance_floor=principal.relevance_floor,
    )
