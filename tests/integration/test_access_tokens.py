"""Tokens: claims, validation and expiry."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from support.world import outcome, refused, wire_form
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("MS-01")


def part(token: str, index: int) -> dict[str, Any]:
    text = token.split(".")[index]
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def encoded(content: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.fixture
async def token(world: World) -> str:
    return await world.planner.token("planner", "planning")


async def secret_of(world: World) -> bytes:
    return bytes((await world.rows("SELECT secret FROM signing_keys WHERE tenant = $1", world.tenant))[0][0])


async def test_an_api_key_is_exchanged_for_a_token_in_the_specified_shape(world: World) -> None:
    answer = wire_form(
        await world.app.call(
            world.app.registry["token.issue"],
            {"agent_id": "planner", "agent_type": "planning", "api_key": world.planner.credential},
            CallContext(None),
        )
    )
    claims = part(answer["token"], 1)
    assert claims["sub"] == "planner"
    assert claims["exp"] - claims["iat"] == 3600
    assert {name: value for name, value in answer.items() if name != "token"} == {
        "success": True,
        "agent_id": "planner",
        "agent_type": "planning",
        "permissions": ["read", "write"],
        "expires_at": "2026-02-20T15:30:00Z",
        "token_type": "Bearer",
        "issued_at": "2026-02-20T14:30:00Z",
    }
    assert (await world.planner.with_credential(answer["token"]).write("goal"))["written_by"] == "orchestrator:planner"


@pytest.mark.req("MS-13")
async def test_an_issued_token_is_audited_with_its_agent(world: World) -> None:
    await world.analysis.token("analysis")
    issued = (await world.admin.audit())[0]
    assert (issued["action"], issued["actor"], issued["agent_id"], issued["target"], issued["detail"]) == (
        "token.issue",
        "subagent:analysis",
        "analysis",
        "analysis",
        {"agent_type": "analysis", "requested_permissions": ["read", "write"], "single_use": False},
    )


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"api_key": "nonsense"}, "INVALID_API_KEY"),
        ({"api_key": "weftline.nobody.key_1.secret"}, "INVALID_API_KEY"),
        ({"agent_id": "analysis"}, "INVALID_API_KEY"),
        ({"agent_type": "review"}, "AUTHENTICATION_ERROR"),
        ({"requested_permissions": ["admin"]}, "PERMISSION_DENIED"),
        ({"requested_permissions": []}, "PERMISSION_DENIED"),
    ],
)
async def test_a_token_is_refused_without_proof_of_identity(world: World, change: dict[str, Any], code: str) -> None:
    raw = {"agent_id": "planner", "agent_type": "planning", "api_key": world.planner.credential, **change}
    with refused(code):
        await world.app.call(world.app.registry["token.issue"], raw, CallContext(None))


async def test_requested_permissions_only_narrow_a_token(world: World) -> None:
    every = ["read", "write", "admin"]
    holder = await world.planner.with_token("planner", "planning", requested_permissions=every)
    assert part(holder.credential, 1)["permissions"] == ["read", "write"]
    with refused("PERMISSION_DENIED"):
        await holder.audit()
    reader = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    await reader.list()
    with refused("PERMISSION_DENIED"):
        await reader.write("goal")


async def test_a_token_loses_a_revoked_permission(world: World, token: str) -> None:
    holder = world.planner.with_credential(token)
    await holder.write("goal")
    await world.admin.call("agent.update", agent_id="planner", permissions=["read"])
    with refused("PERMISSION_DENIED"):
        await holder.write("goal")
    await holder.list()


async def test_a_token_expires_after_an_hour(world: World, token: str) -> None:
    holder, stranger_to_it = world.planner.with_credential(token), await world.another_app()
    await holder.list()
    world.clock.advance(minutes=60)
    for caller in (holder, holder.at(stranger_to_it)):
        with refused("TOKEN_EXPIRED"):
            await caller.list()


async def test_forged_tokens_are_refused(world: World, token: str) -> None:
    head, body, signature = token.split(".")
    secret, kid = await secret_of(world), part(token, 0)["kid"]
    claims = part(token, 1)
    widened = {**claims, "sub": "admin", "permissions": ["admin"]}
    rsa = RSAKey.generate_key(2048)
    theirs = (await world.stranger.token("admin")).split(".")
    forgeries = {
        "flipped signature": f"{head}.{body}.{'A' if signature[0] != 'A' else 'B'}{signature[1:]}",
        "changed claims": f"{head}.{encoded(widened)}.{signature}",
        "no signature": f"{head}.{body}.",
        "alg none": f"{encoded({'alg': 'none', 'kid': kid})}.{body}.",
        "alg none, signed": f"{encoded({'alg': 'none', 'kid': kid})}.{body}.{signature}",
        "HS512 with the right secret": jwt.encode(
            {"alg": "HS512", "kid": kid}, claims, OctKey.import_key(secret + secret), ["HS512"]
        ),
        "RS256": jwt.encode({"alg": "RS256", "kid": kid}, claims, rsa, ["RS256"]),
        "another secret": jwt.encode({"alg": "HS256", "kid": kid}, claims, OctKey.import_key(bytes(32)), ["HS256"]),
        "unknown kid": jwt.encode(
            {"alg": "HS256", "kid": f"{world.tenant}.0"}, claims, OctKey.import_key(secret), ["HS256"]
        ),
        "another tenant's kid on our claims": f"{theirs[0]}.{body}.{signature}",
        "our kid on another tenant's claims": f"{head}.{theirs[1]}.{theirs[2]}",
        "signed, but never issued": jwt.encode(
            {"alg": "HS256", "kid": kid}, {**claims, "jti": "token_0"}, OctKey.import_key(secret), ["HS256"]
        ),
        "signed, but for someone else": jwt.encode(
            {"alg": "HS256", "kid": kid}, {**claims, "sub": "admin"}, OctKey.import_key(secret), ["HS256"]
        ),
    }
    for name, forgery in forgeries.items():
        with refused("AUTHENTICATION_ERROR"):
            await world.planner.with_credential(forgery).list()
            pytest.fail(name)
    await world.planner.with_credential(token).list()


async def test_a_token_is_not_valid_in_another_tenant(world: World) -> None:
    theirs = world.planner.with_credential(await world.stranger.token("admin"))
    with refused("SESSION_NOT_FOUND"):
        await theirs.list()


async def test_a_revoked_token_is_refused_at_once_in_every_process(world: World, token: str) -> None:
    holder = world.planner.with_credential(token)
    in_other_process = holder.at(await world.another_app())
    await in_other_process.list()
    assert await holder.call("token.revoke") == {"success": True}
    for caller in (holder, in_other_process):
        with refused("AUTHENTICATION_ERROR"):
            await caller.list()
    await world.planner.list()


async def test_only_its_holder_or_an_admin_can_revoke_a_token(world: World, token: str) -> None:
    token_id = part(token, 1)["jti"]
    for caller in (world.analysis, world.stranger):
        with refused("PERMISSION_DENIED"):
            await caller.call("token.revoke", token_id=token_id)
    await world.planner.with_credential(token).list()
    await world.admin.call("token.revoke", token_id=token_id)
    with refused("AUTHENTICATION_ERROR"):
        await world.planner.with_credential(token).list()


async def refreshed(holder: Caller) -> Caller:
    return holder.with_credential((await holder.call("token.refresh"))["token"])


async def test_a_refreshed_token_expires_later_than_its_predecessor(world: World, token: str) -> None:
    holder = world.planner.with_credential(token)
    world.clock.advance(minutes=50)
    newer = await refreshed(holder)
    world.clock.advance(minutes=20)
    with refused("TOKEN_EXPIRED"):
        await holder.list()
    await newer.list()
    with refused("AUTHENTICATION_ERROR"):
        await world.planner.call("token.refresh")


async def test_a_refreshed_token_keeps_its_narrowed_permissions(world: World) -> None:
    reader = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    with refused("PERMISSION_DENIED"):
        await (await refreshed(reader)).write("goal")


async def test_a_token_can_be_refreshed_for_one_day(world: World, token: str) -> None:
    holder = world.planner.with_credential(token)
    for _ in range(32):
        world.clock.advance(minutes=45)
        holder = await refreshed(holder)
    world.clock.advance(minutes=45)
    with refused("AUTHENTICATION_ERROR"):
        await holder.call("token.refresh")
    await holder.list()


async def test_a_new_signing_key_keeps_tokens_valid_unless_they_are_revoked(world: World, token: str) -> None:
    holder = world.planner.with_credential(token)
    await world.admin.call("signing_key.rotate")
    await holder.list()
    newer = await world.planner.with_token("planner", "planning")
    assert part(newer.credential, 0)["kid"] != part(token, 0)["kid"]
    in_other_process = newer.at(await world.another_app())
    await in_other_process.list()
    await world.admin.call("signing_key.rotate", revoke_existing=True)
    for caller in (holder, newer, in_other_process):
        with refused("AUTHENTICATION_ERROR"):
            await caller.list()
    await (await world.planner.with_token("planner", "planning")).list()


async def test_a_token_does_not_outlive_its_api_key(world: World) -> None:
    made = await world.admin.call("key.create", agent_id="planner", expires_in=600)
    body = {"agent_id": "planner", "agent_type": "planning", "api_key": made["api_key"]}
    holder = world.planner.with_credential((await world.planner.call("token.issue", **body))["token"])
    await refreshed(holder)
    world.clock.advance(minutes=11)
    with refused("TOKEN_EXPIRED"):
        await holder.call("token.refresh")


async def test_rotating_the_signing_key_needs_the_highest_clearance(world: World) -> None:
    lesser = await world.admin.create_agent("warden", kind="human", clearance=4, permissions=["read", "write", "admin"])
    with refused("PERMISSION_DENIED"):
        await lesser.call("signing_key.rotate")
    await world.admin.call("signing_key.rotate")


@pytest.fixture
async def once(world: World) -> Caller:
    """Return a caller with a token for a single use."""
    return await world.planner.with_token("planner", "planning", single_use=True)


async def test_a_token_for_a_single_use_is_exchanged_once_and_does_nothing_else(world: World, once: Caller) -> None:
    for call in (once.list(), once.write("goal"), once.call("token.revoke"), once.call("agent.capabilities")):
        with refused("AUTHENTICATION_ERROR") as caught:
            await call
        assert "token.refresh" in str(caught.value.hint)
    holder = await refreshed(once)
    await holder.write("goal")
    await refreshed(holder)
    for caller in (once, once.at(await world.another_app())):
        with refused("AUTHENTICATION_ERROR"):
            await refreshed(caller)


@pytest.mark.both_databases
async def test_of_many_exchanges_at_once_in_two_processes_one_gets_a_token(world: World, once: Caller) -> None:
    other = once.at(await world.another_app())
    outcomes = await asyncio.gather(*(outcome(refreshed(caller)) for caller in (once, other) * 5))
    assert sorted(outcomes) == ["AUTHENTICATION_ERROR"] * 9 + ["ok"]


async def test_a_token_for_a_single_use_expires_after_five_minutes(world: World, once: Caller) -> None:
    world.clock.advance(minutes=5)
    with refused("TOKEN_EXPIRED"):
        await refreshed(once)


async def test_an_exchanged_token_ends_with_the_key_it_comes_from(world: World, once: Caller) -> None:
    holder = await refreshed(once)
    await world.admin.call("key.rotate", key_id=world.planner.key_id)
    with refused("AUTHENTICATION_ERROR"):
        await holder.list()


async def test_all_tokens_of_a_principal_are_revoked_at_once_in_every_process(world: World, once: Caller) -> None:
    holders = [await world.planner.with_token("planner", "planning") for _ in range(2)]
    elsewhere = holders[1].at(await world.another_app())
    await elsewhere.list()
    neighbour = await world.analysis.with_token("analysis")
    await holders[0].call("token.revoke", agent_id="planner")
    for holder in (*holders, elsewhere):
        with refused("AUTHENTICATION_ERROR"):
            await holder.list()
    with refused("AUTHENTICATION_ERROR"):
        await refreshed(once)
    await neighbour.list()
    await world.planner.list()


async def test_only_an_admin_revokes_all_tokens_of_others(world: World) -> None:
    holder = await world.analysis.with_token("analysis")
    for caller in (world.planner, world.review):
        for agent_id in ("analysis", "nobody"):
            with refused("PERMISSION_DENIED"):
                await caller.call("token.revoke", agent_id=agent_id)
    with refused("AGENT_NOT_FOUND"):
        await world.stranger.call("token.revoke", agent_id="analysis")
    with refused("INVALID_INPUT_FORMAT"):
        await world.admin.call("token.revoke", agent_id="analysis", token_id="token_0")
    await holder.list()
    await world.admin.call("token.revoke", agent_id="analysis")
    with refused("AUTHENTICATION_ERROR"):
        await holder.list()


@pytest.mark.both_databases
async def test_no_token_outlives_the_revocation_of_all_by_being_refreshed_meanwhile(world: World) -> None:
    holder = await world.planner.with_token("planner", "planning")
    other = holder.at(await world.another_app())
    results = await asyncio.gather(
        *(refreshed(caller) for caller in (holder, other) * 3),
        world.planner.call("token.revoke", agent_id="planner"),
        *(refreshed(caller) for caller in (other, holder) * 3),
        return_exceptions=True,
    )
    newer = [each for each in results if not isinstance(each, (dict, BaseException))]
    for caller in (holder, *newer):
        with refused("AUTHENTICATION_ERROR"):
            await caller.list()
