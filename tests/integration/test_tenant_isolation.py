"""Tenant isolation: in the product, and by row-level security."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import asyncpg
import pytest

from support.world import refused
from weft.app.tenants import TenantExists
from weft.kernel.errors import InvalidInput

if TYPE_CHECKING:
    from support.world import World

pytestmark = pytest.mark.both_databases


@pytest.fixture
async def neighbours(world: World) -> World:
    """Return a world in which both tenants have a session and keys of the same names."""
    await world.planner.write("goal", "home's goal")
    await world.planner.snapshot("mark")
    await world.stranger.create_session("s1")
    await world.stranger.create_session("theirs")
    await world.stranger.write("goal", "away's goal")
    await world.stranger.in_session("theirs").write("goal", "more of theirs")
    return world


@pytest.mark.req("SC-08")
async def test_the_same_ids_in_two_tenants_are_different_things(neighbours: World) -> None:
    assert await neighbours.planner.value("goal") == "home's goal"
    assert await neighbours.stranger.value("goal") == "away's goal"
    with refused("SNAPSHOT_NOT_FOUND"):
        await neighbours.stranger.read_snapshot("mark")
    assert (await neighbours.planner.history("goal"))["versions"][0]["value"] == "home's goal"


@pytest.mark.req("SC-08")
async def test_what_another_tenant_has_does_not_exist(neighbours: World) -> None:
    theirs = neighbours.admin.in_session("theirs")
    for attempt in (theirs.read("goal"), theirs.write("goal"), theirs.list(), theirs.inspect()):
        with refused("SESSION_NOT_FOUND"):
            await attempt
    with refused("AGENT_NOT_FOUND"):
        await neighbours.stranger.call("agent.update", agent_id="planner", disabled=True)
    with refused("API_KEY_NOT_FOUND"):
        await neighbours.stranger.call("key.revoke", key_id=neighbours.planner.key_id)
    sessions = (await neighbours.admin.call("session.list"))["sessions"]
    assert [session["id"] for session in sessions] == ["s1"]


@pytest.mark.req("SC-08")
async def test_events_agents_and_audit_are_a_tenant_s_own(neighbours: World) -> None:
    told = (await neighbours.stranger.events())["events"]
    assert {event["actor"] for event in told} == {"human:admin"}
    assert [event["seq"] for event in told] == list(range(1, len(told) + 1))
    agents = (await neighbours.stranger.call("agent.list"))["agents"]
    assert [agent["agent_id"] for agent in agents] == ["admin"]
    assert await neighbours.stranger.audit() == []


async def test_a_tenant_s_name_is_taken_once_and_must_be_plain(world: World) -> None:
    with pytest.raises(TenantExists):
        await world.app.tenants.create(world.tenant)
    for name in ("", "a.b", "../x", "a b", "a\n", "x" * 101):
        with pytest.raises(InvalidInput):
            await world.app.tenants.create(name)
    assert await world.app.tenants.exists(world.tenant)
    assert not await world.app.tenants.exists("nobody")
    assert world.tenant in await world.app.tenants.names()


async def test_a_fresh_installation_makes_a_default_tenant_once(world: World) -> None:
    assert await world.app.tenants.ensure_default() is None


async def plant_elsewhere(connection: asyncpg.Connection, world: World) -> None:
    """Try to add a row to the other tenant while acting inside this one."""
    async with connection.transaction():
        await connection.execute("SET LOCAL ROLE weft_app")
        await connection.execute("SELECT set_config('weft.tenant', $1, true)", world.tenant)
        await connection.execute("INSERT INTO conventions VALUES ($1, 'planted', '{}', 'x', 0)", world.other_tenant)


@pytest.mark.req("SC-08")
@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_row_level_security_holds_without_any_where_clause(neighbours: World) -> None:
    connection = await asyncpg.connect(neighbours.url)
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
            await connection.execute("SET LOCAL ROLE weft_app")
            for table in tables:
                assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
        async with connection.transaction():
            await connection.execute("SET LOCAL ROLE weft_app")
            await connection.execute("SELECT set_config('weft.tenant', $1, true)", neighbours.tenant)
            for table in tables:
                seen = {row[0] for row in await connection.fetch(f"SELECT DISTINCT tenant FROM {table}")}
                assert seen <= {neighbours.tenant}, table
            assert await connection.fetchval("SELECT count(*) FROM entries") == 1
            changed = await connection.execute("UPDATE entries SET version = 99 WHERE tenant <> $1", neighbours.tenant)
            assert changed == "UPDATE 0"
            assert await connection.execute("DELETE FROM sessions WHERE session_id = 'theirs'") == "DELETE 0"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await plant_elsewhere(connection, neighbours)
    finally:
        await connection.close()


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_process_can_start_while_another_is_in_the_middle_of_a_transaction(world: World) -> None:
    connection = await asyncpg.connect(world.url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT 1 FROM entries; SELECT 1 FROM events; SELECT 1 FROM tenants FOR UPDATE")
            async with asyncio.timeout(20):
                newcomer = await world.another_app()
            assert await world.planner.at(newcomer).keys() == []
    finally:
        await connection.close()
