"""Sessions from creation to deletion, and their owners."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, get_args

import pytest

from support.world import refused
from weftline.kernel.transaction import placeholders
from weftline.storage.backup.archive import known_schema_steps, tables_of_schema
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World
    from weftline.kernel.transaction import Transaction

BOARD_READS = ("list", "snapshots", "check_board")


@pytest.mark.req("SC-01")
@pytest.mark.req("MS-02")
async def test_a_session_id_is_generated_unless_given(world: World) -> None:
    created = await world.planner.call("session.create", purpose="work")
    assert re.fullmatch(r"session_[0-9a-f]{16}", created.pop("session_id"))
    assert created == {"success": True, "created_by": "planner", "created_at": "2026-02-20T14:30:00Z"}
    with refused("SESSION_EXISTS"):
        await world.planner.create_session("s1")


@pytest.mark.req("SC-01")
@pytest.mark.req("MS-02")
async def test_a_session_shows_its_purpose_settings_and_last_activity(world: World) -> None:
    await world.planner.call(
        "session.create", session_id="mine", purpose="work", metadata={"ticket": 7}, config={"keep_versions": 5}
    )
    world.clock.advance(minutes=3)
    await world.planner.in_session("mine").write("a")
    session = (await world.planner.call("session.get", session_id="mine"))["session"]
    assert session.pop("config")["keep_versions"] == 5
    assert session == {
        "id": "mine",
        "purpose": "work",
        "created_at": "2026-02-20T14:30:00Z",
        "updated_at": "2026-02-20T14:33:00Z",
        "created_by": "planner",
        "is_active": True,
        "metadata": {"ticket": 7},
        "archived_at": None,
        "branches": [],
        "members": ["tree:planner"],
    }


@pytest.mark.req("MS-02")
async def test_sessions_are_listed_newest_first_page_by_page(world: World) -> None:
    for number in range(5):
        world.clock.advance(seconds=number % 2)
        await world.planner.create_session(f"n{number}")
    await world.planner.call("session.archive", session_id="n3")
    seen: list[str] = []
    cursor = None
    while True:
        page = await world.planner.call("session.list", limit=2, cursor=cursor)
        seen += [session["id"] for session in page["sessions"]]
        assert page["count"] == len(page["sessions"])
        cursor = page["next_cursor"]
        if not page["has_more"]:
            break
    assert seen == ["n4", "n2", "n1", "s1", "n0"] or sorted(seen) == ["n0", "n1", "n2", "n4", "s1"]
    assert seen.index("n4") < seen.index("n2") < seen.index("s1")
    everything = await world.planner.call("session.list", include_archived=True)
    assert "n3" in [session["id"] for session in everything["sessions"]]


@pytest.mark.req("SC-01")
@pytest.mark.req("SC-09")
async def test_an_archived_session_can_be_read_but_not_changed(world: World) -> None:
    await world.planner.write("goal", "kept")
    await world.planner.snapshot("mark")
    archived = await world.planner.call("session.archive", session_id="s1")
    assert archived == {"success": True, "session_id": "s1", "archived_at": "2026-02-20T14:30:00Z"}
    for attempt in (
        world.planner.write("goal"),
        world.planner.delete("goal"),
        world.planner.snapshot("more"),
        world.planner.restore("mark"),
        world.planner.call("session.archive", session_id="s1"),
    ):
        with refused("SESSION_ARCHIVED"):
            await attempt
    assert await world.analysis.value("goal") == "kept"
    assert await world.analysis.read_snapshot("mark") == {"goal": "kept"}
    assert len((await world.analysis.history("goal"))["versions"]) == 1
    assert (await world.planner.call("session.get", session_id="s1"))["session"]["is_active"] is False


@pytest.mark.req("SC-01")
@pytest.mark.req("SC-09")
async def test_deleting_a_session_deletes_its_contents(world: World) -> None:
    await world.planner.write("goal", "secret plan")
    await world.planner.snapshot("mark")
    await world.planner.call("session.delete", session_id="s1")
    for attempt in (
        world.planner.read("goal"),
        world.planner.write("goal"),
        world.planner.list(),
        world.planner.events(session_id="s1"),
        world.planner.call("session.get", session_id="s1"),
        world.planner.call("session.delete", session_id="s1"),
        world.admin.inspect(),
    ):
        with refused("SESSION_NOT_FOUND"):
            await attempt
    for table in ("entries", "blobs", "lines", "commits", "changes", "tags", "sessions"):
        assert not await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1", world.tenant)
    assert "session.delete" in [row["action"] for row in await world.admin.audit()]
    fresh = await world.planner.create_session("s1")
    assert await fresh.keys() == []
    assert (await fresh.write("goal", "new"))["version"] == 2


@pytest.mark.req("SC-01")
@pytest.mark.req("SC-08")
async def test_a_session_survives_a_restart(world: World) -> None:
    await world.planner.write("goal", "ship")
    await world.planner.snapshot("mark")
    await world.close_app(world.app)
    world.clock.advance(days=9)
    world.app = await world.another_app()
    planner = world.planner.at(world.app)
    assert await planner.value("goal") == "ship"
    assert await planner.snapshots() == ["mark"]
    assert (await planner.write("goal", "on"))["version"] == 2


@pytest.mark.req("SC-01")
async def test_sub_agents_cannot_create_list_or_change_sessions(world: World) -> None:
    for operation, raw in (
        ("session.create", {"purpose": "mine"}),
        ("session.add_members", {"session_id": "s1", "members": ["*"]}),
        ("session.remove_members", {"session_id": "s1", "members": ["tree:planner"]}),
        ("session.list", {}),
        ("session.archive", {"session_id": "s1"}),
        ("session.delete", {"session_id": "s1"}),
        ("session.inspect", {"session_id": "s1"}),
    ):
        with refused("PERMISSION_DENIED"):
            await world.analysis.call(operation, **raw)
    assert (await world.planner.call("session.get", session_id="s1"))["session"]["is_active"]


@pytest.mark.req("SC-01")
async def test_a_reader_cannot_create_or_end_sessions(world: World) -> None:
    reader = await world.admin.create_agent("reader", permissions=["read"])
    await world.planner.admit("reader")
    assert (await reader.call("session.get", session_id="s1"))["success"]
    for operation, raw in (
        ("session.create", {"purpose": "mine"}),
        ("session.archive", {"session_id": "s1"}),
        ("session.delete", {"session_id": "s1"}),
    ):
        with refused("PERMISSION_DENIED"):
            await reader.call(operation, **raw)


@pytest.mark.req("SC-19")
async def test_an_admin_can_inspect_a_whole_session_and_is_audited(world: World) -> None:
    await world.planner.write("goal", "ship", ttl_seconds=60)
    await world.planner.snapshot("mark")
    inspected = await world.admin.inspect()
    assert inspected["session"]["id"] == "s1"
    assert inspected["entries"][0]["value"] == "ship"
    assert inspected["entries"][0]["info"]["key"] == "goal"
    assert [snapshot["label"] for snapshot in inspected["snapshots"]] == ["mark"]
    assert inspected["history_intact"] is True
    assert (await world.admin.audit())[0]["action"] == "session.inspect"
    with refused("PERMISSION_DENIED"):
        await world.planner.inspect()


@pytest.mark.req("SC-19")
async def test_changes_are_logged_with_metadata_and_never_with_values(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await world.planner.write("goal", "a very private sentence", readable_by=["orchestrator"])
    await world.planner.delete("goal")
    with refused("VALUE_TOO_LARGE"):
        await world.planner.write("goal", "a very private sentence" * 1000)
    logged = [record.fields for record in caplog.records if record.name == "weftline.changes"]  # type: ignore[attr-defined]
    assert [
        {name: fields[name] for name in ("session_id", "key", "written_by", "version", "value_size_tokens")}
        for fields in logged
    ] == [
        {
            "session_id": "s1",
            "key": "goal",
            "written_by": "orchestrator:planner",
            "version": 1,
            "value_size_tokens": 6,
        }
    ] * 2
    assert "private" not in "".join(f"{record.__dict__}" for record in caplog.records)
    assert "private" not in f"{await world.admin.audit()}"
    assert b"private" not in world.app.metrics.exposition()
    assert "private" not in f"{(await world.planner.events())['events']}"


async def test_a_session_can_be_taken_up_again(world: World) -> None:
    await world.planner.create_session("again", members=["analysis"])
    asked = {"session_id": "again", "purpose": "other", "exist_ok": True}
    found = await world.planner.call("session.create", **asked)
    assert (found["session_id"], found["created_by"], found["existed"]) == ("again", "planner", True)
    (listed,) = [each for each in (await world.planner.call("session.list"))["sessions"] if each["id"] == "again"]
    assert listed["purpose"] != "other"
    made = await world.planner.call("session.create", session_id="fresh", purpose="new", exist_ok=True)
    assert "existed" not in made
    outsider = await world.admin.create_agent("outsider", agent_type="planning")
    with refused("SESSION_EXISTS"):
        await outsider.call("session.create", **asked)
    await world.planner.call("session.archive", session_id="again")
    with refused("SESSION_EXISTS"):
        await world.planner.call("session.create", **asked)


# Sums without the session, calls that are being performed, and a webhook that is told of the deletion.
OUTLIVING_TABLES = {"approvals", "usage_entries", "usage_rollups", "webhooks"}
SAMPLES = {str: "x", int: 1, float: 1.0, bytes: b"x"}


async def test_a_deleted_session_keeps_no_row_in_any_table_with_a_session(world: World) -> None:
    schema = tables_of_schema(len(known_schema_steps()))
    tables = [each for each in schema if "session_id" in each.columns and each.name not in OUTLIVING_TABLES]
    assert len(tables) > 20

    async def add_row_to_each(transaction: Transaction) -> None:
        for table in tables:
            known = {"tenant": world.tenant, "session_id": "s1"}
            values = [
                known.get(name, SAMPLES.get(kind))
                for name, kind in zip(table.columns, get_args(table.row), strict=True)
            ]
            sql = f"INSERT INTO {table.name} VALUES ({placeholders(1, len(values))}) ON CONFLICT DO NOTHING"
            await transaction.run(sql, *values)

    async def remaining(table: str) -> int:
        return len(await world.rows(f"SELECT 1 FROM {table} WHERE tenant = $1 AND session_id = 's1'", world.tenant))

    await world.app.database.write(Scope(world.tenant), add_row_to_each)
    assert all([await remaining(table.name) for table in tables])
    await world.planner.call("session.delete", session_id="s1", force=True)
    # The event that tells of the deletion.
    assert {name: count for name in (table.name for table in tables) if (count := await remaining(name))} == {
        "events": 1
    }
