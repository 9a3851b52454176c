"""Tenant isolation: in the product, and by row-level security."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from support.world import refused
from weftline.app.tenants import TenantExists
from weftline.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.both_databases


@pytest.fixture
async def two_tenants(world: World) -> World:
    """Return a world whose two tenants have sessions and keys of the same names."""
    await world.planner.write("goal", "home's goal")
    await world.planner.snapshot("mark")
    await world.stranger.create_session("s1")
    await world.stranger.create_session("theirs")
    await world.stranger.write("goal", "away's goal")
    await world.stranger.in_session("theirs").write("goal", "more of theirs")
    return world


@pytest.mark.req("SC-08")
async def test_equal_ids_in_two_tenants_are_separate(two_tenants: World) -> None:
    assert await two_tenants.planner.value("goal") == "home's goal"
    assert await two_tenants.stranger.value("goal") == "away's goal"
    with refused("SNAPSHOT_NOT_FOUND"):
        await two_tenants.stranger.read_snapshot("mark")
    assert (await two_tenants.planner.history("goal"))["versions"][0]["value"] == "home's goal"


@pytest.mark.req("SC-08")
async def test_resources_of_another_tenant_are_not_found(two_tenants: World) -> None:
    theirs = two_tenants.admin.in_session("theirs")
    for attempt in (theirs.read("goal"), theirs.write("goal"), theirs.list(), theirs.inspect()):
        with refused("SESSION_NOT_FOUND"):
            await attempt
    with refused("AGENT_NOT_FOUND"):
        await two_tenants.stranger.call("agent.update", agent_id="planner", disabled=True)
    with refused("API_KEY_NOT_FOUND"):
        await two_tenants.stranger.call("key.revoke", key_id=two_tenants.planner.key_id)
    sessions = (await two_tenants.admin.call("session.list"))["sessions"]
    assert [session["id"] for session in sessions] == ["s1"]


@pytest.mark.req("SC-08")
async def test_events_agents_and_audit_are_isolated_by_tenant(two_tenants: World) -> None:
    events = (await two_tenants.stranger.events())["events"]
    assert {event["actor"] for event in events} == {"human:admin"}
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    agents = (await two_tenants.stranger.call("agent.list"))["agents"]
    assert [agent["agent_id"] for agent in agents] == ["admin"]
    assert await two_tenants.stranger.audit() == []


async def test_tenant_names_are_unique_and_validated(world: World) -> None:
    with pytest.raises(TenantExists):
        await world.app.tenants.create(world.tenant)
    for name in ("", "a.b", "../x", "a b", "a\n", "x" * 101):
        with pytest.raises(InvalidInput):
            await world.app.tenants.create(name)
    assert await world.app.tenants.exists(world.tenant)
    assert not await world.app.tenants.exists("nobody")
    assert world.tenant in await world.app.tenants.names()


async def test_a_new_installation_creates_a_default_tenant_once(world: World) -> None:
    assert await world.app.tenants.ensure_default() is None


async def insert_into_other_tenant(connection: asyncpg.Connection, world: World) -> None:
    """Try to insert a row of the other tenant."""
    async with connection.transaction():
        await connection.execute("SET LOCAL ROLE weftline_app")
        await connection.execute("SELECT set_config('weftline.tenant', $1, true)", world.tenant)
        await connection.execute("INSERT INTO conventions VALUES ($1, 'planted', '{}', 'x', 0)", world.other_tenant)


@pytest.mark.req("SC-08")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_row_level_security_holds_without_any_where_clause(two_tenants: World) -> None:
    connection = await asyncpg.connect(two_tenants.url)
    try:
        tables = [
            row[0]
            for row in await connection.fetch(
                "SELECT table_name FROM information_schema.columns"
                " WHERE table_schema = 'public' AND column_name = 'tenant'"
            )
        ]
        assert len(tables) >= 13
        async with connection.transaction():
            await connection.execute("SET LOCAL ROLE weftline_app")
            for table in tables:
                assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
        async with connection.transaction():
            await connection.execute("SET LOCAL ROLE weftline_app")
            await connection.execute("SELECT set_config('weftline.tenant', $1, true)", two_tenants.tenant)
            for table in tables:
                seen = {row[0] for row in await connection.fetch(f"SELECT DISTINCT tenant FROM {table}")}
                assert seen <= {two_tenants.tenant}, table
            assert await connection.fetchval("SELECT count(*) FROM entries") == 1
            changed = await connection.execute("UPDATE entries SET version = 99 WHERE tenant <> $1", two_tenants.tenant)
            assert changed == "UPDATE 0"
            assert await connection.execute("DELETE FROM sessions WHERE session_id = 'theirs'") == "DELETE 0"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await insert_into_other_tenant(connection, two_tenants)
    finally:
        await connection.close()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_process_can_start_during_a_transaction_of_another(world: World) -> None:
    connection = await asyncpg.connect(world.url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM entries; SELECT 1 FROM events; SELECT 1 FROM tenants FOR UPDATE")
            async with asyncio.timeout(60):
                second_app = await world.another_app()
            assert await world.planner.at(second_app).keys() == []
    finally:
        await connection.close()
