"""API keys: authentication, expiry and revocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import AuthenticationError

if TYPE_CHECKING:
    from support.world import World


@pytest.mark.req("SC-17")
async def test_a_call_without_a_credential_is_refused(world: World) -> None:
    with refused("AUTHENTICATION_ERROR"):
        await world.app.call(world.app.registry["board.list_keys"], {"session_id": "s1"}, CallContext(None))


@pytest.mark.req("MS-01")
async def test_a_wrong_secret_is_refused_and_audited(world: World) -> None:
    forged = world.planner.with_credential(world.planner.credential[:-4] + "AAAA")
    with refused("INVALID_API_KEY"):
        await forged.list()
    denied = (await world.admin.audit(outcome="refused"))[0]
    assert (denied["action"], denied["actor"], denied["detail"]["code"]) == (
        "authenticate",
        "unknown",
        "INVALID_API_KEY",
    )


@pytest.mark.req("MS-01")
async def test_malformed_credentials_are_refused(world: World) -> None:
    tenant = world.tenant
    for text in (
        "",
        "weftline",
        "weftline..",
        "weftline.a.b",
        f"weftline.{tenant}.key_x.y.z",
        "a.b.c",
        "\ud800",
        "x" * 100_000,
        "é.é.é",
    ):
        with refused("AUTHENTICATION_ERROR"):
            await world.planner.with_credential(text).list()
    for text in (
        f"weftline.{tenant}.key_0000000000000000.secret",
        "weftline.nobody.key_0.secret",
        f"weftline.{tenant}.key_x.\ud800",
    ):
        with refused("INVALID_API_KEY"):
            await world.planner.with_credential(text).list()


async def test_a_key_with_another_tenant_s_prefix_is_refused(world: World) -> None:
    moved = world.planner.credential.replace(world.tenant, world.other_tenant)
    with refused("INVALID_API_KEY"):
        await world.planner.with_credential(moved).list()


async def test_a_revoked_key_is_refused_at_once_in_every_process(world: World) -> None:
    in_other_process = world.planner.at(await world.another_app())
    await in_other_process.list()
    await world.planner.list()
    await world.admin.call("key.revoke", key_id=world.planner.key_id)
    for caller in (in_other_process, world.planner):
        with refused("INVALID_API_KEY"):
            await caller.list()


async def test_revoked_credentials_and_disabled_principals_are_not_authenticated(world: World) -> None:
    token = await world.planner.with_token("planner", "planning")
    for caller, operation, raw in (
        (token, "token.revoke", {}),
        (world.planner, "key.revoke", {"key_id": world.planner.key_id}),
        (world.analysis, "agent.update", {"agent_id": "analysis", "disabled": True}),
    ):
        await world.app.identify(CallContext(caller.credential))
        await (caller if caller is token else world.admin).call(operation, **raw)
        with pytest.raises(AuthenticationError):
            await world.app.identify(CallContext(caller.credential))


async def test_a_rotated_key_is_replaced_by_the_new_one(world: World) -> None:
    token = await world.planner.with_token("planner", "planning")
    rotated = await world.planner.call("key.rotate", key_id=world.planner.key_id)
    assert rotated["agent_id"] == "planner"
    await world.planner.with_credential(rotated["api_key"]).list()
    with refused("INVALID_API_KEY"):
        await world.planner.list()
    with refused("AUTHENTICATION_ERROR"):
        await token.list()
    with refused("API_KEY_NOT_FOUND"):
        await world.admin.call("key.rotate", key_id=world.planner.key_id)


async def test_principals_rotate_only_their_own_keys(world: World) -> None:
    with refused("API_KEY_NOT_FOUND"):
        await world.analysis.call("key.rotate", key_id=world.planner.key_id)
    rotated = await world.analysis.call("key.rotate", key_id=world.analysis.key_id)
    assert await world.analysis.with_credential(rotated["api_key"]).keys() == []
    await world.admin.call("key.rotate", key_id=world.planner.key_id)


async def test_an_expired_key_is_refused_cached_or_not(world: World) -> None:
    made = await world.admin.call("key.create", agent_id="planner", expires_in=60)
    brief = world.planner.with_credential(made["api_key"])
    await brief.list()
    world.clock.advance(seconds=60)
    for caller in (brief, brief.at(await world.another_app())):
        with pytest.raises(AuthenticationError):
            await caller.list()
    await world.planner.list()


async def test_keys_are_listed_without_their_secrets(world: World) -> None:
    made = await world.admin.call("key.create", agent_id="planner")
    listed = await world.admin.call("key.list", agent_id="planner")
    assert {key["key_id"] for key in listed["keys"]} == {made["key_id"], world.planner.key_id}
    assert "api_key" not in listed["keys"][0]
    stored = await world.rows("SELECT secret_hash FROM api_keys WHERE tenant = $1", world.tenant)
    assert made["api_key"].rpartition(".")[2].encode() not in {bytes(row[0]) for row in stored}


async def test_local_access_can_act_as_any_existing_principal(world: World) -> None:
    listed = world.app.registry["board.list_keys"]
    await world.app.call(listed, {"session_id": "s1"}, CallContext(Local(world.tenant, "planner")))
    for local in (Local(world.tenant, "nobody"), Local("nowhere", "planner")):
        with refused("AUTHENTICATION_ERROR"):
            await world.app.call(listed, {"session_id": "s1"}, CallContext(local))
