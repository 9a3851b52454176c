"""Operations on principals, API keys, tokens and signing keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from weftline.access.agent_tree import (
    AgentLimit,
    TreeChange,
    check_room,
    disable,
    enable,
    exceeding,
    find_parent,
    move,
)
from weftline.access.authentication import active_principal, check_key
from weftline.access.grants import (
    check_highest_clearance,
    check_may_create,
    check_may_edit,
    check_may_grant,
    check_may_grant_type,
    check_may_hold_key,
    check_may_manage,
    check_may_manage_credentials,
    check_may_take_key,
    check_reach,
    check_supervisor,
    forbid_self_change,
    is_descendant,
)
from weftline.access.model import (
    AgentExists,
    AgentId,
    AgentInstructions,
    AgentNotFound,
    AgentType,
    ApiKeyNotFound,
    Clearance,
    InvalidParent,
    LineKeys,
    PermissionName,
    Principal,
    StoredKey,
    StoredToken,
    TokenCodec,
    new_key,
    new_signing_key,
    parse_key,
)
from weftline.access.sql import AccessStore
from weftline.access.steps import (
    BoundToStep,
    StepName,
    StepNotFound,
    ToolsField,
    UnknownToolProfile,
    no_step,
    parse_tool_profile,
    step_within,
)
from weftline.kernel.clock import Clock, from_micros, optional_datetime, to_micros
from weftline.kernel.errors import (
    AuthenticationError,
    InvalidApiKey,
    InvalidInput,
    PermissionDenied,
    QuotaExceeded,
    SelfModification,
)
from weftline.kernel.fields import Fraction, ShortText, new_id
from weftline.kernel.identity import SYSTEM_ID, Actor, Permission, PrincipalKind
from weftline.kernel.operation import (
    Audience,
    Effect,
    RateClass,
    Request,
    Response,
    SessionUse,
    Success,
    admin_write,
    operation,
)

MinScore = Annotated[
    Fraction | None,
    msgspec.Meta(description="Default minimum relevance of its search results; 0.7 if not set."),
]
MAX_INSTRUCTIONS = 65_536
DAY_SECONDS = 86_400
YEAR_SECONDS = 31_536_000


@dataclass(frozen=True, slots=True)
class TokenLifetimes:
    """The lifetime of a token, and how long it can be refreshed before the API key must be presented again.

    ``single_use`` is the lifetime of a token that can only be exchanged for another one.
    """

    token: timedelta
    proof: timedelta
    single_use: timedelta = timedelta(minutes=5)


class AuthenticateAgent(Request):
    """An API key to exchange for a token."""

    agent_id: AgentId
    agent_type: AgentType
    api_key: Annotated[str, msgspec.Meta(max_length=500, description="The agent's API key.")]
    requested_permissions: Annotated[
        tuple[PermissionName, ...],
        msgspec.Meta(description="Permissions to request; the token gets those that were granted to the agent."),
    ] = ("read", "write")
    step: Annotated[
        StepName | None,
        msgspec.Meta(description="Step of a task: the token may call the tools of this step only."),
    ] = None
    single_use: Annotated[
        bool,
        msgspec.Meta(
            description="The token can only be refreshed, once and within five minutes: for a link that signs in."
        ),
    ] = False


class RefreshToken(Request):
    """No parameters: refreshes the token of this call."""


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
    step: str | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        return f"TokenIssued(agent_id={self.agent_id!r}, expires_at={self.expires_at})"


class RevokeToken(Request):
    """The token to revoke; by default the one of this call."""

    token_id: Annotated[ShortText | None, msgspec.Meta(description="The token's jti claim.")] = None
    agent_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="Revoke all tokens of this principal, such as your own, instead of one."),
    ] = None
    refreshed: Annotated[
        bool, msgspec.Meta(description="Also revoke the tokens it was refreshed from, and those refreshed from it.")
    ] = False


class CreateAgent(Request):
    """A new principal in the tenant's tree."""

    agent_id: AgentId
    agent_type: Annotated[AgentType | None, msgspec.Meta(description="Defaults to the agent_id.")] = None
    kind: Annotated[Literal["agent", "human"], msgspec.Meta(description="An agent or a human.")] = "agent"
    parent_id: Annotated[
        AgentId | None,
        msgspec.Meta(
            description="The parent: by default you, if you are an agent. An agent with an agent as parent is a "
            "sub-agent; otherwise it is an orchestrator."
        ),
    ] = None
    clearance: Clearance = 1
    permissions: Annotated[tuple[PermissionName, ...], msgspec.Meta(description="What it may do.")] = ("read", "write")
    min_score: MinScore = None
    instructions: Annotated[
        Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_INSTRUCTIONS)] | None,
        msgspec.Meta(description="System prompt of its definition, part of each of its prompts; for agents only."),
    ] = None
    exist_ok: Annotated[
        bool, msgspec.Meta(description="If it exists below the same parent, return it unchanged, without a key.")
    ] = False


class UpdateAgent(Request):
    """Changes to a principal; omitted fields stay as they are."""

    agent_id: AgentId
    permissions: Annotated[list[PermissionName] | None, msgspec.Meta(description="The new full set.")] = None
    clearance: Clearance | None = None
    disabled: Annotated[
        bool | None,
        msgspec.Meta(
            description="True disables it and everything below it at once; false enables it again, with what was "
            "disabled with it."
        ),
    ] = None
    min_score: MinScore = None
    parent_id: Annotated[
        AgentId | None,
        msgspec.Meta(description="Move it, with its memory and everything below it, under this principal; for humans."),
    ] = None


class AgentInfo(Response, kw_only=True, omit_defaults=False):
    """A principal, without credentials."""

    agent_id: str
    agent_type: str
    kind: str
    participant: str
    parent_id: str | None
    clearance: int
    permissions: list[str]
    created_at: datetime
    disabled: bool
    min_score: float | None


class AgentCreated(AgentInfo):
    """A new principal with its API key, which is shown only once.

    ``existed``: it was there already and is unchanged; ``api_key`` is then empty.
    """

    api_key: str
    existed: bool | msgspec.UnsetType = msgspec.UNSET

    def __repr__(self) -> str:
        return f"AgentCreated(agent_id={self.agent_id!r})"


class AgentUpdated(AgentInfo, omit_defaults=True):
    """A principal after the change, and what was disabled or enabled with it: the first 100 ids and the number."""

    on_record = ("also_disabled", "also_enabled", "also_changed")

    also_disabled: tuple[str, ...] = ()
    also_enabled: tuple[str, ...] = ()
    also_changed: int = 0
    exceeded_by: Annotated[
        tuple[str, ...],
        msgspec.Meta(description="After lowering it: agents below it that have more than it now; change them too."),
    ] = ()


class CreateApiKey(Request):
    """An additional API key for a principal."""

    agent_id: AgentId
    expires_in: Annotated[
        Annotated[int, msgspec.Meta(ge=60, le=10 * YEAR_SECONDS)] | None,
        msgspec.Meta(description="Seconds until it expires; it does not expire by default."),
    ] = None
    tools: ToolsField = None
    step: Annotated[
        StepName | None,
        msgspec.Meta(description="Step of a task: the key and its tokens may call the tools of this step only."),
    ] = None


class RotateKey(Request):
    """The key to replace."""

    key_id: Annotated[str, msgspec.Meta(max_length=100, description="The key's id: its second part, after the tenant.")]


class RevokeKey(Request):
    """The key to revoke."""

    key_id: Annotated[str, msgspec.Meta(max_length=100, description="The key's id: its second part, after the tenant.")]


class ListApiKeys(Request):
    """The principal whose keys to list."""

    agent_id: AgentId


class ApiKeyInfo(Response, kw_only=True, omit_defaults=False):
    """A key without its secret."""

    key_id: str
    agent_id: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    tools: str | None
    step: str | None


class ApiKeyCreated(ApiKeyInfo):
    """A key with its secret, which is shown only once."""

    api_key: str

    def __repr__(self) -> str:
        return f"ApiKeyCreated(key_id={self.key_id!r})"


class ApiKeyList(Response):
    """A principal's keys, newest first."""

    keys: list[ApiKeyInfo]


class RotateSigningKey(Request):
    """Options for replacing the secret that signs the tenant's tokens."""

    revoke_existing: Annotated[
        bool, msgspec.Meta(description="Also revoke every existing token, instead of letting them expire.")
    ] = False


_LISTED = 100


def _check_may_update(actor: Actor) -> None:
    """Refuse callers that may change no principal: also admins that are agents without agents below them."""
    check_may_manage(actor)
    check_supervisor(actor)


_managing = partial(
    operation,
    permission=None,
    rate=RateClass.ADMIN,
    audience=Audience.NOT_SUBAGENTS,
    requires=check_may_manage,
)
_manage = partial(_managing, effect=Effect.WRITE, audited=True)
_token_operation = partial(operation, permission=None, rate=RateClass.AUTHENTICATION, effect=Effect.WRITE)


@_token_operation(
    "token.issue",
    tool="authenticate_agent",
    http="POST /v1/tokens",
    audience=Audience.ANONYMOUS,
    audited=True,
    errors=(InvalidApiKey, AuthenticationError, PermissionDenied, BoundToStep, StepNotFound),
    session=SessionUse.NONE,
)
async def authenticate_agent(
    request: AuthenticateAgent, access: AccessStore, codec: TokenCodec, lifetimes: TokenLifetimes, clock: Clock
) -> TokenIssued:
    """Exchange an agent's API key for a token that expires.

    The token carries the requested permissions as far as an admin granted them to the agent. Send it as
    ``Authorization: Bearer TOKEN`` with every request; an MCP client connects again with this header.
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
    step = step_within(key.step, request.step)
    await _check_step(step, principal, access)
    token = StoredToken(
        token_id=new_id("token"),
        principal_id=principal.principal_id,
        key_id=key.key_id,
        permissions=permissions,
        proven_at=now,
        expires_at=_expiry(lifetimes.single_use if request.single_use else lifetimes.token, key, now),
        revoked_at=None,
        step=step,
        single_use=request.single_use,
    )
    return await _issue(token, principal, access, codec, now)


@_token_operation(
    "token.refresh",
    tool="refresh_token",
    http="POST /v1/tokens/refresh",
    errors=(AuthenticationError,),
    session=SessionUse.NONE,
)
async def refresh_token(
    request: RefreshToken, actor: Actor, access: AccessStore, codec: TokenCodec, lifetimes: TokenLifetimes, clock: Clock
) -> TokenIssued:
    """Get a new token for the one that this call uses; the old one stays valid until it expires.

    A token can be refreshed for a day (by default); after that, authenticate with the API key again. One for a single
    use ends with this call: of several calls with it, one gets a token.
    """
    del request
    now = to_micros(clock.now())
    await access.lock_tokens(actor.principal_id)
    stored = await access.token(actor.token_id) if actor.token_id else None
    if stored is None:
        raise AuthenticationError(
            "Only a token can be refreshed; this call used an API key.",
            hint="Keep using the API key, or exchange it for a token with `token.issue`.",
        )
    if stored.revoked_at is not None:
        raise AuthenticationError("This token was used or revoked.")
    if now - stored.proven_at > lifetimes.proof / timedelta(microseconds=1):
        raise AuthenticationError("This token can no longer be refreshed; authenticate with the API key again.")
    key = await access.key(stored.key_id) if stored.key_id else None
    if key is None or not key.usable(now):
        raise AuthenticationError("The API key of this token has expired or was revoked.")
    principal = await active_principal(stored.principal_id, access)
    if stored.single_use:
        await access.revoke_token(stored.token_id, now)
    token = replace(stored, token_id=new_id("token"), expires_at=_expiry(lifetimes.token, key, now), single_use=False)
    return await _issue(token, principal, access, codec, now)


@_token_operation(
    "token.revoke",
    tool="revoke_token",
    http="POST /v1/tokens/revoke",
    destructive=True,
    audited=True,
    errors=(PermissionDenied, AuthenticationError, AgentNotFound),
    session=SessionUse.NONE,
)
async def revoke_token(request: RevokeToken, actor: Actor, access: AccessStore, clock: Clock) -> Success:
    """Revoke a token, or all of a principal, at once; as an admin, of one you may edit."""
    now = to_micros(clock.now())
    if request.agent_id is not None:
        await _revoke_all(request.agent_id, request.token_id, actor, access, now)
        return Success()
    token_id = request.token_id or actor.token_id
    stored = await access.token(token_id) if token_id else None
    if stored is None or (stored.principal_id != actor.principal_id and not actor.is_admin):
        raise PermissionDenied("You have no token with this id.")
    await check_may_manage_credentials(actor, await _find_principal(stored.principal_id, access), access)
    # The tenant before the principal, as everything that locks both.
    await access.advance_epoch()
    if request.refreshed:
        await access.lock_tokens(stored.principal_id)
        await access.revoke_sign_in(stored, now)
    else:
        await access.revoke_token(stored.token_id, now)
    return Success()


@_manage(
    "agent.create",
    tool="create_agent",
    http="POST /v1/agents",
    status=201,
    requires=check_may_create,
    off_record=("instructions",),
    errors=(AgentExists, InvalidParent, PermissionDenied, QuotaExceeded),
    session=SessionUse.NONE,
)
async def create_agent(
    request: CreateAgent,
    actor: Actor,
    access: AccessStore,
    instructions: AgentInstructions,
    limit: AgentLimit,
    clock: Clock,
) -> AgentCreated:
    """Create an agent or a human, with an API key that is shown only once. For admins and orchestrators.

    An agent whose parent is an agent is a sub-agent and writes as ``subagent:{type}`` (or ``subagent:{type}:{id}`` if
    its id differs from its type); any other agent is an orchestrator and writes as ``orchestrator:{id}``. You cannot
    grant more than you have, and an agent can create only its own descendants: below itself, or below an agent that is
    below it. If you are in a step of a task, its key is bound to the same step.
    """
    if request.instructions is not None and request.kind != "agent":
        raise InvalidInput("instructions: only agents have instructions", field="instructions")
    await access.lock_tree()
    parent_id = request.parent_id or (actor.principal_id if actor.kind is PrincipalKind.AGENT else None)
    parent = None if parent_id is None else await find_parent(parent_id, access)
    now = to_micros(clock.now())
    principal = Principal(
        principal_id=request.agent_id,
        kind=PrincipalKind(request.kind),
        agent_type=request.agent_type or request.agent_id[:50],
        parent_id=parent_id,
        parent_is_agent=parent is not None and parent.kind is PrincipalKind.AGENT,
        clearance=request.clearance,
        permissions=frozenset(map(Permission, request.permissions)),
        created_at=now,
        min_score=request.min_score,
    )
    await check_reach(actor, principal, access)
    check_may_hold_key(actor, principal)
    await check_may_grant_type(actor, principal.agent_type, access)
    existing = await access.principal(principal.principal_id) if request.exist_ok else None
    if existing is not None and (existing.kind, existing.parent_id) == (principal.kind, parent_id):
        return AgentCreated(**msgspec.structs.asdict(_info(existing)), api_key="", existed=True)
    if principal.principal_id == SYSTEM_ID or not await access.add_principal(principal):
        raise AgentExists(f"The principal '{request.agent_id}' already exists.")
    await check_room(actor, access, limit)
    key = new_key(access.tenant, principal.principal_id, now, None, step=actor.step)
    await access.add_key(key.stored)
    if request.instructions is not None:
        await instructions.define(principal.principal_id, request.instructions)
    if parent is not None and not parent.has_agents_below:
        # The parent may now do what needs agents below it.
        await access.advance_epoch()
    return AgentCreated(**msgspec.structs.asdict(_info(principal)), api_key=key.text)


@_manage(
    "agent.update",
    tool="update_agent",
    http="PATCH /v1/agents/{agent_id}",
    requires=_check_may_update,
    forbids=forbid_self_change,
    errors=(AgentNotFound, InvalidParent, PermissionDenied, SelfModification, QuotaExceeded),
    session=SessionUse.NONE,
)
async def update_agent(
    request: UpdateAgent, actor: Actor, access: AccessStore, limit: AgentLimit, clock: Clock
) -> AgentUpdated:
    """Change a principal's permissions or clearance, disable or move it. Takes effect on its next call.

    Disabling it disables everything below it; enabling it enables exactly that again. Human admins may change
    principals up to their own clearance, orchestrators only their descendants. Nobody can change itself or grant more
    than it has.
    """
    await access.lock_tree()
    principal = await _find_principal(request.agent_id, access)
    await check_may_edit(actor, principal, access)
    asked = frozenset(map(Permission, request.permissions or ()))
    check_may_grant(actor, request.clearance or principal.clearance, asked)
    change = TreeChange(principal)
    if request.parent_id not in {None, principal.parent_id}:
        change = TreeChange(await move(principal, request.parent_id or "", actor, access))
    if request.disabled is not None:
        now = to_micros(clock.now())
        moved = change.principal
        change = await (disable(moved, actor, access, now) if request.disabled else enable(moved, actor, access))
    await access.update_principal(_apply_update(change.principal, request))
    if request.disabled is False:
        await check_room(actor, access, limit)
    await access.advance_epoch()
    changed = await _find_principal(request.agent_id, access)
    is_lowered = changed.clearance < principal.clearance or not principal.permissions <= changed.permissions
    return AgentUpdated(
        **msgspec.structs.asdict(_info(changed)),
        exceeded_by=tuple((await exceeding(changed, access))[:_LISTED]) if is_lowered else (),
        also_disabled=change.disabled[:_LISTED],
        also_enabled=change.enabled[:_LISTED],
        also_changed=len(change.disabled) + len(change.enabled),
    )


@_manage(
    "key.create",
    tool="create_api_key",
    http="POST /v1/agents/{agent_id}/keys",
    status=201,
    errors=(AgentNotFound, PermissionDenied, SelfModification, UnknownToolProfile, BoundToStep, StepNotFound),
    session=SessionUse.NONE,
)
async def create_api_key(request: CreateApiKey, actor: Actor, access: AccessStore, clock: Clock) -> ApiKeyCreated:
    """Create another API key for a principal that you may change. It is shown only once."""
    if request.tools is not None:
        parse_tool_profile(request.tools)
    principal = await _find_principal(request.agent_id, access)
    # An additional key of one's own would outlive the rotation of a stolen one.
    may_add_own = actor.is_admin and actor.kind is PrincipalKind.HUMAN
    await (check_may_manage_credentials if may_add_own else check_may_edit)(actor, principal, access)
    check_may_take_key(actor, principal)
    step = step_within(actor.step, request.step)
    await _check_step(step, principal, access)
    now = to_micros(clock.now())
    expires_at = now + request.expires_in * 1_000_000 if request.expires_in else None
    return await _add_key(access, principal.principal_id, now, expires_at, request.tools, step)


@_managing(
    "key.list",
    tool="list_api_keys",
    http="GET /v1/agents/{agent_id}/keys",
    effect=Effect.READ,
    errors=(AgentNotFound, PermissionDenied),
    session=SessionUse.NONE,
)
async def list_api_keys(request: ListApiKeys, actor: Actor, access: AccessStore) -> ApiKeyList:
    """List a principal's API keys, without their secrets."""
    principal = await _find_principal(request.agent_id, access)
    if not actor.is_admin:
        await check_may_manage_credentials(actor, principal, access)
    return ApiKeyList(
        keys=[
            ApiKeyInfo(
                key_id=key.key_id,
                agent_id=key.principal_id,
                created_at=from_micros(key.created_at),
                expires_at=optional_datetime(key.expires_at),
                revoked_at=optional_datetime(key.revoked_at),
                tools=key.tools,
                step=key.step,
            )
            for key in await access.keys_of(principal.principal_id)
        ]
    )


@operation(
    "key.rotate",
    tool="rotate_key",
    http="POST /v1/keys/{key_id}/rotate",
    destructive=True,
    permission=None,
    rate=RateClass.ADMIN,
    effect=Effect.WRITE,
    audited=True,
    errors=(ApiKeyNotFound, PermissionDenied),
    session=SessionUse.NONE,
)
async def rotate_key(request: RotateKey, actor: Actor, access: AccessStore, clock: Clock) -> ApiKeyCreated:
    """Replace an API key. The new one is shown only once; the old one and its tokens are revoked at once.

    You may rotate your own keys and, as an admin or orchestrator, those of principals that you may change.
    """
    now = to_micros(clock.now())
    key, owner = await _manageable_key(request.key_id, actor, access)
    if key.revoked_at is not None:
        raise ApiKeyNotFound(f"The key '{request.key_id}' was revoked; create a new one with create_api_key.")
    check_may_take_key(actor, owner)
    await access.revoke_key(key.key_id, now)
    await access.advance_epoch()
    return await _add_key(access, key.principal_id, now, key.expires_at, key.tools, step_within(actor.step, key.step))


@_manage(
    "key.revoke",
    tool="revoke_key",
    http="DELETE /v1/keys/{key_id}",
    destructive=True,
    errors=(ApiKeyNotFound, PermissionDenied),
    session=SessionUse.NONE,
)
async def revoke_key(request: RevokeKey, actor: Actor, access: AccessStore, clock: Clock) -> Success:
    """Revoke an API key, and every token issued for it, at once."""
    key, _ = await _manageable_key(request.key_id, actor, access)
    await access.revoke_key(key.key_id, to_micros(clock.now()))
    await access.advance_epoch()
    return Success()


@admin_write(
    "signing_key.rotate",
    tool="rotate_signing_key",
    http="POST /v1/signing-keys/rotate",
    destructive=True,
    requires=check_highest_clearance,
    errors=(PermissionDenied,),
    session=SessionUse.NONE,
)
async def rotate_signing_key(
    request: RotateSigningKey, access: AccessStore, line_keys: LineKeys, clock: Clock
) -> Success:
    """Replace the secret that signs the tenant's tokens, and the key that signs its layers and definitions.

    This affects the whole tenant, so it needs clearance 5.
    """
    now = to_micros(clock.now())
    await access.retire_signing_keys(now, forget=request.revoke_existing)
    await access.add_signing_key(new_signing_key(access.tenant, now))
    await line_keys.rotate(now)
    await access.advance_epoch()
    return Success()


async def _revoke_all(principal_id: str, token_id: str | None, actor: Actor, access: AccessStore, now: int) -> None:
    if token_id is not None:
        raise InvalidInput("Name a token or a principal, not both.", field="agent_id")
    if principal_id != actor.principal_id and not actor.is_admin:
        raise PermissionDenied("Only an admin may revoke the tokens of others.")
    await check_may_manage_credentials(actor, await _find_principal(principal_id, access), access)
    # The tenant before the principal, as everything that locks both.
    await access.advance_epoch()
    await access.lock_tokens(principal_id)
    await access.revoke_tokens_of(principal_id, now)


def _expiry(lifetime: timedelta, key: StoredKey, now: int) -> int:
    expires_at = now + lifetime // timedelta(microseconds=1)
    return expires_at if key.expires_at is None else min(expires_at, key.expires_at)


async def _issue(
    token: StoredToken, principal: Principal, access: AccessStore, codec: TokenCodec, now: int
) -> TokenIssued:
    """Store a token and return it signed."""
    signing = next(candidate for candidate in await access.signing_keys() if candidate.retired_at is None)
    await access.forget_expired_tokens(principal.principal_id, now - DAY_SECONDS * 1_000_000)
    await access.add_token(token)
    claims = {
        "iss": "weftline",
        "sub": principal.principal_id,
        "jti": token.token_id,
        "iat": now // 1_000_000,
        "exp": token.expires_at // 1_000_000,
        "permissions": sorted(token.permissions),
        **({} if token.step is None else {"step": token.step}),
    }
    return TokenIssued(
        token=codec.encode(claims, signing.kid, signing.secret),
        agent_id=principal.principal_id,
        agent_type=principal.agent_type,
        permissions=sorted(token.permissions),
        expires_at=from_micros(token.expires_at),
        issued_at=from_micros(now),
        step=msgspec.UNSET if token.step is None else token.step,
    )


async def _check_step(step: str | None, principal: Principal, access: AccessStore) -> None:
    """Raise StepNotFound if a credential of a principal cannot be bound to a step."""
    if step is None:
        return
    above = {each.principal_id for each in await access.ancestors(principal.principal_id)}
    if await access.step_tools(step, {principal.principal_id, *above}) is None:
        raise no_step(step)


async def _add_key(
    access: AccessStore, principal_id: str, now: int, expires_at: int | None, tools: str | None, step: str | None
) -> ApiKeyCreated:
    key = new_key(access.tenant, principal_id, now, expires_at, tools, step)
    await access.add_key(key.stored)
    return ApiKeyCreated(
        key_id=key.stored.key_id,
        agent_id=principal_id,
        created_at=from_micros(now),
        expires_at=optional_datetime(expires_at),
        revoked_at=None,
        tools=tools,
        step=step,
        api_key=key.text,
    )


async def _find_principal(agent_id: str, access: AccessStore) -> Principal:
    principal = await access.principal(agent_id)
    if principal is None:
        raise AgentNotFound(f"There is no principal '{agent_id}'.", agent_id=agent_id)
    return principal


async def _manageable_key(key_id: str, actor: Actor, access: AccessStore) -> tuple[StoredKey, Principal]:
    """Return a key that the caller may replace or revoke, and its owner."""
    key = await access.key(key_id)
    owner = None if key is None else await access.principal(key.principal_id)
    if key is None or owner is None or not await _may_name_key(actor, owner, access):
        error = ApiKeyNotFound(f"There is no key '{key_id}' that you may change.")
        error.denial = key is not None
        raise error
    await check_may_manage_credentials(actor, owner, access)
    return key, owner


async def _may_name_key(actor: Actor, owner: Principal, access: AccessStore) -> bool:
    """Tell whether a caller may know that a key exists: an owner, an admin, or an orchestrator above the owner."""
    if actor.principal_id == owner.principal_id:
        return True
    if actor.is_subagent or Permission.WRITE not in actor.permissions:
        return actor.is_admin
    return actor.is_admin or await is_descendant(actor.principal_id, owner, access)


def _apply_update(principal: Principal, request: UpdateAgent) -> Principal:
    changes: dict[str, Any] = {"clearance": request.clearance, "min_score": request.min_score}
    if request.permissions is not None:
        changes["permissions"] = frozenset(map(Permission, request.permissions))
    return replace(principal, **{name: value for name, value in changes.items() if value is not None})


def _info(principal: Principal) -> AgentInfo:
    return AgentInfo(
        agent_id=principal.principal_id,
        agent_type=principal.agent_type,
        kind=principal.kind,
        participant=principal.participant,
        parent_id=principal.parent_id,
        clearance=principal.clearance,
        permissions=sorted(principal.permissions),
        created_at=from_micros(principal.created_at),
        disabled=principal.disabled_at is not None,
        min_score=principal.min_score,
    )
