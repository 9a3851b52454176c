"""The history of a key, and its integrity."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.world import refused
from weftline.history.lines import LineStore
from weftline.history.model import blob_hash
from weftline.storage.sql.database import Scope

if TYPE_CHECKING:
    from support.world import World

LINE = "board:s1"


async def verify(world: World, line: str = LINE) -> str | None:
    damage = await world.app.database.write(Scope(world.tenant), lambda tx: LineStore(tx).verify(line))
    return None if damage is None else damage.detail


async def kept(world: World, value: str) -> bool:
    return bool(await world.rows("SELECT 1 FROM blobs WHERE tenant = $1 AND hash = $2", world.tenant, blob_hash(value)))


@pytest.mark.req("SC-12")
async def test_read_history_returns_every_version_with_its_author(world: World) -> None:
    await world.planner.write("draft", "one")
    world.clock.advance(minutes=1)
    await world.analysis.write("draft", "two!")
    assert await world.review.history("draft") == {
        "key": "draft",
        "incarnation": 1,
        "incarnations": 1,
        "versions": [
            {
                "version": 1,
                "value": "one",
                "written_by": "orchestrator:planner",
                "written_at": "2026-02-20T14:30:00Z",
                "value_size_tokens": 1,
            },
            {
                "version": 2,
                "value": "two!",
                "written_by": "subagent:analysis",
                "written_at": "2026-02-20T14:31:00Z",
                "value_size_tokens": 1,
            },
        ],
    }


@pytest.mark.req("SC-12")
async def test_read_history_returns_only_the_requested_versions(world: World) -> None:
    for number in range(1, 6):
        await world.planner.write("draft", f"v{number}")
    history = await world.planner.history("draft", versions=[2, 4, 99])
    assert [version["value"] for version in history["versions"]] == ["v2", "v4"]


@pytest.mark.req("SC-02")
@pytest.mark.req("SC-12")
async def test_a_recreated_key_goes_on_counting_in_a_new_incarnation(world: World) -> None:
    await world.planner.write("draft", "old 1")
    await world.planner.write("draft", "old 2")
    world.clock.advance(minutes=1)
    await world.analysis.delete("draft")
    assert (await world.planner.write("draft", "new"))["version"] == 3
    first, second = await world.planner.history("draft", incarnation=1), await world.planner.history("draft")
    assert [v["value"] for v in first["versions"]] == ["old 1", "old 2"]
    assert [v["value"] for v in second["versions"]] == ["new"]
    assert (first["incarnations"], second["incarnation"], second["incarnations"]) == (2, 2, 2)
    assert (first["ended"], first["ended_by"]) == ("deleted", "subagent:analysis")
    assert first["ended_at"] == "2026-02-20T14:31:00Z"
    assert "ended" not in second
    with refused("KEY_NOT_FOUND"):
        await world.planner.history("draft", incarnation=3)


@pytest.mark.req("SC-07")
async def test_a_session_or_branch_of_an_earlier_name_repeats_no_version(world: World) -> None:
    planner = await world.planner.create_session("vault")
    read = [(await planner.write("draft", f"old {number}"))["version"] for number in range(3)]
    noted = (await planner.remember("note", "old", session_id="vault"))["version"]
    await planner.call("session.delete", session_id="vault")
    await world.planner.create_session("vault")
    assert (await planner.write("draft", "new"))["version"] not in read
    assert (await planner.remember("note", "new", session_id="vault"))["version"] != noted
    with refused("VERSION_CONFLICT"):
        await planner.write("draft", "unseen", if_version=read[0])
    names = {"context_id": "board:vault", "branch": "try"}
    await planner.call("history.branch", **names)
    tried = (await planner.write("draft", "tried", branch="try"))["version"]
    added = (await planner.write("added", "tried", branch="try"))["version"]
    await planner.call("history.delete_branch", **names, force=True)
    await planner.call("history.branch", **names)
    assert (await planner.write("draft", "other", branch="try"))["version"] > tried
    assert (await planner.write("added", "other", branch="try"))["version"] > added
    await planner.call("history.merge", context_id="board:vault", from_context_id="board:vault@try")
    assert (await planner.read("added"))["version"] > 3


@pytest.mark.req("SC-12")
async def test_only_the_last_versions_are_kept(world: World) -> None:
    short = await world.planner.create_session("short", keep_versions=3)
    for number in range(1, 17):
        await short.write("draft", f"version number {number}")
    history = await short.history("draft")
    assert [(v["version"], v["value"]) for v in history["versions"]] == [
        (number, f"version number {number}") for number in (14, 15, 16)
    ]
    assert not await kept(world, "version number 1")
    assert await verify(world, "board:short") is None


@pytest.mark.req("SC-12")
@pytest.mark.req("SC-15")
async def test_values_of_a_snapshot_are_not_pruned(world: World) -> None:
    short = await world.planner.create_session("short", keep_versions=1)
    await short.write("draft", "gone")
    await short.write("draft", "needed")
    await short.snapshot("mark")
    for number in range(3, 25):
        await short.write("draft", f"{number}")
    assert await short.read_snapshot("mark") == {"draft": "needed"}
    assert not await kept(world, "gone")
    await short.restore("mark")
    assert await short.value("draft") == "needed"


async def test_a_pruned_value_with_another_reference_stays_stored(world: World) -> None:
    short = await world.planner.create_session("short", keep_versions=1)
    await short.write("draft", "the same words")
    await world.planner.write("copy", "the same words")
    for number in range(2, 9):
        await short.write("draft", f"{number}")
    assert await world.planner.value("copy") == "the same words"
    await world.planner.call("session.delete", session_id="short")
    assert await world.planner.value("copy") == "the same words"
    assert await verify(world) is None


async def test_deleting_a_session_deletes_values_no_other_session_references(world: World) -> None:
    gone = await world.planner.create_session("gone")
    await gone.write("draft", "only here")
    await gone.call("session.delete", session_id="gone")
    assert not await kept(world, "only here")


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_value_written_while_another_session_deletes_it_is_kept(world: World) -> None:
    """Two writers share a value by its hash; deleting it must wait for the other's uncommitted write."""
    gone = await world.planner.create_session("gone")
    await gone.write("draft", "shared words")
    written, finish = asyncio.Event(), asyncio.Event()
    database = world.app.database

    async def write_slowly(transaction: object) -> None:
        lines = LineStore(transaction)  # type: ignore[arg-type]
        await lines.put_blob(blob_hash("shared words"), "shared words")
        written.set()
        await finish.wait()
        await transaction.run(  # type: ignore[attr-defined]
            "INSERT INTO changes (tenant, line_id, key, seq, incarnation, version, act, blob_hash, meta)"
            " VALUES ($1, 'board:s1', 'slow', 99, 1, 1, 'write', $2, '{{}}')",
            world.tenant,
            blob_hash("shared words"),
        )

    writing = asyncio.create_task(database.write(Scope(world.tenant), write_slowly))
    await written.wait()
    deleting = asyncio.create_task(gone.call("session.delete", session_id="gone"))
    await asyncio.wait([deleting], timeout=0.2)
    finish.set()
    await asyncio.gather(writing, deleting)
    assert await kept(world, "shared words")


async def test_history_verifies_after_every_kind_of_change(world: World) -> None:
    await world.planner.write("zebra", "1")
    await world.planner.write("alpha", "1", ttl_seconds=5, readable_by=["subagent:*"])
    await world.planner.snapshot("mark")
    await world.planner.write("zebra", "2")
    await world.planner.write("middle", "1", ttl_seconds=5)
    world.clock.advance(seconds=6)
    await world.planner.write("beta", "1")
    await world.admin.restore("mark")
    await world.planner.delete("zebra")
    assert await verify(world) is None
    assert (await world.admin.inspect())["history_intact"] is True


async def test_verification_during_writes_reports_no_damage(world: World) -> None:
    writing = asyncio.gather(*(world.analysis.write("draft", f"{n}") for n in range(100)))
    inspected = [await world.admin.inspect() for _ in range(10)]
    await writing
    assert [answer.get("history_problem") for answer in inspected] == [None] * 10


@pytest.mark.req("SC-08")
@pytest.mark.parametrize(
    ("tampering", "values", "found"),
    [
        ("UPDATE blobs SET content = $1 WHERE tenant = $2", (b"txet",), "the value of 'draft' version 1"),
        ("DELETE FROM blobs WHERE tenant = $1", (), "the value of 'draft' version 1"),
        ("UPDATE commits SET author = 'human:nobody' WHERE tenant = $1 AND seq = 1", (), "commit 1 is not"),
        ("UPDATE commits SET committed_at = committed_at + 1 WHERE tenant = $1 AND seq = 2", (), "commit 2 is not"),
        ("UPDATE changes SET version = 7 WHERE tenant = $1 AND seq = 2", (), "commit 2 is not"),
        ("UPDATE changes SET act = 'delete' WHERE tenant = $1 AND seq = 1", (), "commit 1 is not"),
        ("DELETE FROM changes WHERE tenant = $1 AND seq = 2", (), "commit 2 is not"),
        ("DELETE FROM commits WHERE tenant = $1 AND seq = 1", (), "commit 1 is missing"),
        ("DELETE FROM commits WHERE tenant = $1 AND seq = 2", (), "commit 2 is missing"),
        ("UPDATE lines SET head = $1 WHERE tenant = $2", (bytes(32),), "the head is not"),
        ("UPDATE entries SET version = 77 WHERE tenant = $1", (), "the entry 'draft' differs from its history"),
        (
            "UPDATE entries SET readable_by = '[\"a\"]' WHERE tenant = $1",
            (),
            "the entry 'draft' differs from its history",
        ),
        ("DELETE FROM entries WHERE tenant = $1", (), "an entry is missing that history has"),
    ],
)
async def test_verification_finds_altered_rows(
    world: World, tampering: str, values: tuple[bytes, ...], found: str
) -> None:
    await world.planner.write("draft", "text")
    await world.planner.write("draft", "text")
    assert await verify(world) is None
    await world.sql(tampering, *values, world.tenant)
    assert found in (await verify(world) or "nothing")
    if "blobs" not in tampering:
        inspected = await world.admin.inspect()
        assert (inspected["history_intact"], found in inspected["history_problem"]) == (False, True)


@pytest.mark.req("SC-12")
async def test_keep_versions_counts_over_all_incarnations_of_a_key(world: World) -> None:
    planner = await world.planner.create_session("short", keep_versions=1)
    for number in range(15):
        await planner.write("draft", f"incarnation {number}")
        await planner.delete("draft")
    await planner.write("draft", "the last")
    values = [await kept(world, f"incarnation {number}") for number in range(15)]
    assert sum(values) == 0
    assert await planner.value("draft") == "the last"
    assert await verify(world, "board:short") is None


@pytest.mark.req("SC-15")
@pytest.mark.parametrize(
    "forgery", ["version = 9", "written_by = 'orchestrator'", "tokens = 0", "expires_at = 9000000000000000"]
)
async def test_a_board_that_differs_from_its_history_is_reported(world: World, forgery: str) -> None:
    await world.analysis.write("draft", "as it was")
    assert (await world.admin.inspect())["history_intact"]
    await world.app.database.write(
        Scope(world.tenant),
        lambda tx: tx.run(f"UPDATE entries SET {forgery} WHERE tenant = $1", world.tenant),
    )
    answer = await world.admin.inspect()
    assert not answer["history_intact"]
    assert "draft" in answer["history_problem"]


@pytest.mark.req("SC-08")
@pytest.mark.parametrize("value", ["text", "a long text " * 200], ids=["plain", "compressed"])
async def test_an_unreadable_value_is_an_error(world: World, value: str) -> None:
    await world.planner.write("draft", value)
    await world.sql("UPDATE blobs SET content = $1 WHERE tenant = $2", b"\xff\xfe\xfd", world.tenant)
    with refused("VALUE_DAMAGED"):
        await world.planner.read("draft")
