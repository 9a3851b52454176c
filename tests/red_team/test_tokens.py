"""Threat: somebody forges, edits, replays or stretches a token or a key."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from support.red_team import blocked
from support.world import outcome
from weftline.access.sql import AccessStore
from weftline.app.dispatch import CallContext
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = [pytest.mark.req("MS-01"), pytest.mark.req("CE-V", part="immutability")]


def encoded(content: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def edited(token: str, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """Return a token with other claims or another header, and its old signature."""
    head, body, signature = token.split(".")
    return ".".join((encoded({**decoded(head), **(header or {})}), encoded({**decoded(body), **claims}), signature))


async def signing_key(world: World, tenant: str) -> Any:
    keys = await world.app.database.read(Scope(tenant), lambda tx: AccessStore(tx).signing_keys())
    return keys[0]


def signed(kid: str, secret: bytes, **claims: Any) -> str:
    claims = {
        "iss": "weftline",
        "sub": "admin",
        "jti": "token_1",
        "exp": 9_999_999_999,
        "permissions": ["admin"],
        **claims,
    }
    return jwt.encode({"alg": "HS256", "kid": kid}, claims, OctKey.import_key(secret), ["HS256"])


@pytest.fixture
async def token(world: World) -> str:
    return await world.analysis.token("analysis")


async def present(world: World, credential: str) -> Any:
    return await world.planner.with_credential(credential).list()


async def test_edited_and_unsigned_tokens_are_forgeries(world: World, token: str) -> None:
    unsigned = edited(token, {"alg": "none"}, permissions=["admin"]).rsplit(".", 1)[0] + "."
    for forged in (
        edited(token, sub="admin"),
        edited(token, permissions=["read", "write", "admin"]),
        edited(token, exp=9_999_999_999),
        edited(token, jti="token_1"),
        edited(token, tenant=world.other_tenant),
        edited(token, step="everything"),
        edited(token, {"alg": "none"}),
        edited(token, {"alg": "HS512"}),
        edited(token, {"alg": "RS256"}),
        edited(token, {"crit": ["exp"]}),
        unsigned,
        token[:-4] + "AAAA",
    ):
        await blocked(world, present(world, forged), "AUTHENTICATION_ERROR", violation="forged_token")
    await present(world, token)


async def test_a_key_of_another_tenant_signs_nothing_here(world: World, token: str) -> None:
    ours, theirs = await signing_key(world, world.tenant), await signing_key(world, world.other_tenant)
    stolen = signed(ours.kid, theirs.secret)
    await blocked(world, present(world, stolen), "AUTHENTICATION_ERROR", violation="forged_token")
    await blocked(
        world, present(world, signed(ours.kid, b"guessed" * 5)), "AUTHENTICATION_ERROR", violation="forged_token"
    )
    # A key that does not exist may have been replaced: refused and audited, but no forgery for certain.
    await blocked(world, present(world, signed(f"{world.tenant}.0000", ours.secret)), "AUTHENTICATION_ERROR")
    # The other tenant's key with its own name reaches only that tenant, and there is no such token.
    foreign = signed(theirs.kid, theirs.secret)
    await blocked(world, present(world, foreign), "AUTHENTICATION_ERROR", reader=world.stranger)
    swapped = world.planner.credential.replace(f".{world.tenant}.", f".{world.other_tenant}.")
    await blocked(world, present(world, swapped), "INVALID_API_KEY", reader=world.stranger)
    # With our own secret, a token that was never issued is none.
    await blocked(world, present(world, signed(ours.kid, ours.secret)), "AUTHENTICATION_ERROR")
    assert decoded(token.split(".")[1])["sub"] == "analysis"


async def test_a_revoked_token_cannot_be_replayed(world: World, token: str) -> None:
    caller = world.analysis.with_credential(token)
    await caller.list()
    await caller.call("token.revoke")
    await blocked(world, caller.list(), "AUTHENTICATION_ERROR")
    await blocked(world, caller.call("token.refresh"), "AUTHENTICATION_ERROR")
    other = await world.another_app()
    assert await outcome(caller.at(other).list()) == "AUTHENTICATION_ERROR"


async def test_tokens_end_with_their_time_their_key_and_their_agent(world: World, token: str) -> None:
    caller = world.analysis.with_credential(token)
    later = world.analysis.with_credential(await world.analysis.token("analysis"))
    await world.admin.call("key.rotate", key_id=world.analysis.key_id)
    await blocked(world, caller.list(), "AUTHENTICATION_ERROR")
    await blocked(world, world.analysis.list(), "INVALID_API_KEY")
    await blocked(world, later.call("token.refresh"), "AUTHENTICATION_ERROR")
    planner = await world.planner.with_token("planner", "planning")
    await planner.list()
    world.clock.advance(hours=2)
    await blocked(world, planner.list(), "TOKEN_EXPIRED")
    await world.admin.call("agent.update", agent_id="planner", disabled=True)
    await blocked(world, world.planner.list(), "AUTHENTICATION_ERROR")


async def test_a_token_never_has_more_than_its_agent(world: World) -> None:
    reading = await world.planner.with_token("planner", "planning", requested_permissions=["read"])
    await blocked(world, reading.write("goal"), "PERMISSION_DENIED")
    # Neither a refresh nor a key for it gives the rest back.
    refreshed = reading.with_credential((await reading.call("token.refresh"))["token"])
    await blocked(world, refreshed.write("goal"), "PERMISSION_DENIED")
    await blocked(world, reading.call("key.rotate", key_id=world.planner.key_id), "PERMISSION_DENIED")
    await blocked(world, reading.call("key.create", agent_id="planner"), "PERMISSION_DENIED", "SELF_MODIFICATION")
    for wanted in (["admin"], ["read", "admin"]):
        raw = {
            "agent_id": "planner",
            "agent_type": "planning",
            "api_key": world.planner.credential,
            "requested_permissions": wanted,
        }
        issued: Any = await _issue(world.planner, raw)
        assert "admin" not in (issued or {}).get("permissions", [])


async def _issue(caller: Caller, raw: dict[str, Any]) -> Any:
    operation = caller.app.registry["token.issue"]
    if await outcome(caller.app.call(operation, raw, CallContext(None))) != "ok":
        return None
    return {"permissions": (await caller.app.call(operation, raw, CallContext(None))).permissions}  # type: ignore[attr-defined]
