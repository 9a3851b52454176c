"""Authentication: resolve an API key or a token to an Actor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from weftline.access.model import BoundStep, actor_for, parse_key
from weftline.access.steps import no_step, step_within
from weftline.kernel.errors import AuthenticationError, InvalidApiKey, TokenExpired
from weftline.kernel.fields import is_name

if TYPE_CHECKING:
    from weftline.access.model import Memberships, PresentedKey, Principal, StoredKey, TokenCodec
    from weftline.access.sql import AccessStore
    from weftline.kernel.identity import Actor


def tenant_of(credential: str, codec: TokenCodec) -> str:
    """Return the tenant that a credential names; verification then runs inside that tenant only."""
    key = parse_key(credential)
    if key is not None:
        return key.tenant
    tenant, _, rest = (codec.kid_of(credential) or "").partition(".")
    if not is_name(tenant) or not rest:
        raise AuthenticationError("The credential is neither an API key nor a token of this server.")
    return tenant


async def authenticate(credential: str, store: AccessStore, codec: TokenCodec, now: int) -> Actor:
    """Verify a credential and return its actor."""
    key = parse_key(credential)
    if key is not None:
        return await _by_key(key, store, now)
    return await _by_token(credential, store, codec, now)


async def identify_local(principal_id: str, store: AccessStore) -> Actor:
    """Return the actor of a principal without a credential, for processes that have the database itself."""
    epoch = await store.epoch()
    if epoch is None:
        raise AuthenticationError(
            f"There is no tenant '{store.tenant}'.", hint="List the tenants with weftline tenant list.", related=()
        )
    principal = await active_principal(principal_id, store)
    memberships = await store.memberships(principal)
    return actor_for(store.tenant, principal, memberships, permissions=principal.permissions, epoch=epoch)


async def check_key(presented: PresentedKey, store: AccessStore, now: int) -> StoredKey:
    """Return the stored key that matches a presented one; raise InvalidApiKey otherwise."""
    stored = await store.key(presented.key_id)
    if stored is None or not stored.accepts(presented.secret, now):
        raise InvalidApiKey
    return stored


async def active_principal(principal_id: str, store: AccessStore) -> Principal:
    principal = await store.principal(principal_id)
    if principal is None or principal.disabled_at is not None:
        raise AuthenticationError(
            f"The principal '{principal_id}' does not exist or has been disabled.",
            hint="Ask an admin of the tenant to create it with `agent.create`, or to enable it with `agent.update`.",
        )
    return principal


async def _by_key(presented: PresentedKey, store: AccessStore, now: int) -> Actor:
    epoch = await store.epoch()
    if epoch is None:
        raise InvalidApiKey
    stored = await check_key(presented, store, now)
    principal = await active_principal(stored.principal_id, store)
    memberships = await store.memberships(principal)
    return actor_for(
        store.tenant,
        principal,
        memberships,
        permissions=principal.permissions,
        epoch=epoch,
        valid_until=stored.expires_at,
        key_id=stored.key_id,
        tools=stored.tools,
        step=await _bound_step(stored.step, principal, memberships, store),
    )


async def _by_token(token: str, store: AccessStore, codec: TokenCodec, now: int) -> Actor:
    epoch = await store.epoch()
    kid = codec.kid_of(token)
    secret = next((key.secret for key in await store.signing_keys() if key.kid == kid), None)
    claims = codec.decode(token, secret) if secret is not None else None
    if epoch is None or claims is None:
        error = AuthenticationError("The token was not signed by this server.")
        # A key that is not known may have been replaced; with one that is, nobody but a forger signs otherwise.
        error.violation = "forged_token" if secret is not None else None
        raise error
    stored = await store.token(str(claims.get("jti")))
    if stored is None or stored.revoked_at is not None or stored.principal_id != claims.get("sub"):
        raise AuthenticationError("The token has been revoked.")
    if stored.expires_at <= now:
        raise TokenExpired
    principal = await active_principal(stored.principal_id, store)
    key = await store.key(stored.key_id) if stored.key_id else None
    memberships = await store.memberships(principal)
    return actor_for(
        store.tenant,
        principal,
        memberships,
        permissions=stored.permissions,
        epoch=epoch,
        valid_until=stored.expires_at,
        token_id=stored.token_id,
        single_use=stored.single_use,
        tools=key.tools if key else None,
        step=await _bound_step(stored.step, principal, memberships, store),
    )


async def enter_step(actor: Actor, name: str, store: AccessStore) -> Actor:
    """Return a caller within a step that its endpoint names; raises BoundToStep or StepNotFound."""
    step = step_within(actor.step, name)
    if actor.step is not None:
        return actor
    tools = await store.step_tools(name, {actor.principal_id, *actor.ancestors})
    if tools is None:
        raise no_step(name)
    return structs.replace(actor, step=step, step_tools=tools)


async def _bound_step(
    name: str | None, principal: Principal, memberships: Memberships, store: AccessStore
) -> BoundStep | None:
    if name is None:
        return None
    tools = await store.step_tools(name, {principal.principal_id, *memberships.ancestors})
    return BoundStep(name, tools or frozenset())
