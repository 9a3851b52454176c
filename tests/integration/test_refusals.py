"""Refused credentials and rate limits on the audit log, collapsed by address and minute."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import outcome, refused
from weftline.app.dispatch import CallContext
from weftline.app.refusals import network_of
from weftline.kernel.errors import InvalidApiKey, RateLimited
from weftline.settings import Settings

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("MS-13")
WRONG = "weftline.{tenant}.key_0.secret"


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, rate_limits="board=2/hour authentication=off anonymous=off")


async def attempt(world: World, credential: str | None, peer: str, times: int = 1) -> set[str]:
    operation = world.app.registry["board.list_keys"]
    calls = (world.app.call(operation, {"session_id": "s1"}, CallContext(credential, peer)) for _ in range(times))
    return set(await asyncio.gather(*map(outcome, calls)))


async def refusals(caller: Caller, **filters: Any) -> list[tuple[str, str, str, int]]:
    await caller.app.flush_refusals()
    rows = await caller.audit(outcome="refused", **filters)
    return [
        (row["action"], row["detail"]["code"], row["detail"]["address"], row["detail"]["count"]) for row in rows[::-1]
    ]


async def test_wrong_credentials_are_one_row_for_each_address_and_minute(world: World) -> None:
    wrong = WRONG.format(tenant=world.tenant)
    assert await attempt(world, wrong, "10.0.0.1", 5) == {"INVALID_API_KEY"}
    assert (await world.admin.audit(outcome="refused"))[0]["detail"]["address"] == "10.0.0.1"
    await attempt(world, wrong, "10.0.0.2")
    await attempt(world, world.planner.credential + "x", "10.0.0.1", 3)
    world.clock.advance(seconds=60)
    await attempt(world, wrong, "10.0.0.1", 2)
    assert await refusals(world.admin) == [
        ("authenticate", "INVALID_API_KEY", "10.0.0.1", 8),
        ("authenticate", "INVALID_API_KEY", "10.0.0.2", 1),
        ("authenticate", "INVALID_API_KEY", "10.0.0.1", 2),
    ]
    assert await refusals(world.stranger) == []


async def test_missing_and_malformed_credentials_are_on_the_operators_log(world: World) -> None:
    await attempt(world, None, "10.0.0.1", 3)
    assert await refusals(world.admin) == []  # two tenants, and none is the operator's
    app = await world.another_app()
    operator = type(world.admin)(app, (await app.tenants.create("default")).admin_key)
    for credential in (None, "", "nonsense", "weftline.x", "a.b.c"):
        operation = app.registry["board.list_keys"]
        context = CallContext(credential, "10.0.0.9")
        assert await outcome(app.call(operation, {"session_id": "s1"}, context)) == "AUTHENTICATION_ERROR"
    login = {"agent_id": "planner", "agent_type": "planning", "api_key": "nonsense"}
    assert (
        await outcome(app.call(app.registry["token.issue"], login, CallContext(None, "10.0.0.9"))) == "INVALID_API_KEY"
    )
    assert await refusals(operator) == [
        ("authenticate", "AUTHENTICATION_ERROR", "10.0.0.9", 5),
        ("token.issue", "INVALID_API_KEY", "10.0.0.9", 1),
    ]
    assert await refusals(world.admin) == []


async def test_a_tenant_that_does_not_exist_gets_no_rows(world: World) -> None:
    await attempt(world, WRONG.format(tenant="nowhere"), "10.0.0.1", 3)
    assert not world.app._refusals._minutes
    assert await refusals(world.admin) == []


async def test_rate_limit_refusals_name_the_caller(world: World) -> None:
    for _ in range(5):
        await outcome(world.analysis.list())
    with refused("RATE_LIMITED"):
        await world.analysis.list()
    await world.app.flush_refusals()
    (row,) = await world.admin.audit(outcome="refused")
    assert (row["action"], row["agent_id"], row["target"]) == ("rate_limit", "analysis", "board")
    assert (row["detail"]["code"], row["detail"]["count"]) == ("RATE_LIMITED", 4)


async def test_a_flood_from_many_addresses_is_a_few_rows_and_hides_nothing(world: World) -> None:
    wrong = WRONG.format(tenant=world.tenant)
    with refused("PERMISSION_DENIED"):
        await world.analysis.call("session.list")
    for number in range(300):
        await attempt(world, wrong, f"10.0.{number // 250}.{number % 250}")
    for _ in range(3):
        await outcome(world.analysis.list())
    await world.app.flush_refusals()
    rows = await world.admin.audit(outcome="refused")
    assert len(rows) == len(world.app._refusals._minutes[world.tenant].rows) == 22
    (others,) = [row for row in rows if row["action"] == "several"]
    assert (others["detail"]["count"], others["detail"]["address"]) == (280, "other addresses")
    assert [row["agent_id"] for row in rows if row["action"] == "rate_limit"] == ["analysis"]
    assert [row["action"] for row in await world.admin.audit(outcome="denied")] == ["session.list"]


async def test_a_flood_of_denials_of_one_caller_is_counted(world: World) -> None:
    for _ in range(70):
        with refused("PERMISSION_DENIED"):
            await world.analysis.call("session.list")
    with refused("PERMISSION_DENIED"):
        await world.review.call("session.list")
    await world.app.flush_refusals()
    rows = await world.admin.audit(outcome="denied")
    assert [row["agent_id"] for row in rows] == ["review-2", *["analysis"] * 61]
    assert [row["detail"]["count"] for row in rows if "count" in row["detail"]] == [10]


async def test_counts_are_written_when_the_process_ends(world: World) -> None:
    app = await world.another_app()
    wrong = CallContext(WRONG.format(tenant=world.tenant), "10.0.0.1")
    for _ in range(4):
        await outcome(app.call(app.registry["board.list_keys"], {"session_id": "s1"}, wrong))
    await world.close_app(app)
    (row,) = await world.admin.audit(outcome="refused")
    assert row["detail"]["count"] == 4


def test_addresses_are_shown_as_networks() -> None:
    assert network_of("10.1.2.3") == "10.1.2.3"
    assert network_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::/64"
    assert network_of("local") == "local"
    assert network_of("<script>") == "unknown"


async def test_tenants_that_are_named_above_the_rate_limit_are_not_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = await world.another_app(rate_limits="authentication=1/hour")
    context, error = CallContext("", "10.0.0.1"), InvalidApiKey()
    await app._dispatcher.note_refusal("nowhere0", context, "authenticate", error)
    with pytest.raises(RateLimited):
        await app._dispatcher.note_refusal("nowhere1", context, "authenticate", error)
    reads = 0

    async def read(*_: Any, **__: Any) -> None:
        nonlocal reads
        reads += 1

    monkeypatch.setattr(app.database, "read", read)
    for number in range(50):
        with pytest.raises(RateLimited):
            await app._dispatcher.note_refusal(f"nowhere{number}", context, "authenticate", error)
    assert reads == 0
