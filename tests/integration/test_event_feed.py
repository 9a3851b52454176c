"""The event feed: ordered, from any offset, filtered by ACL."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused
from weftline.kernel.errors import WeftlineError
from weftline.sessions.events.model import EventFilter

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("SC-16")
# How long a test waits for an event that must arrive at once.
TIMEOUT_SECONDS = 60


def types_and_subjects(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["type"], event["subject"]) for event in answer["events"]]


async def next_event(caller: Caller, after: int, **which: Any) -> Any:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await caller.events(after=after, wait_seconds=60, **which)


async def test_every_change_is_published_in_order_with_metadata_and_without_values(world: World) -> None:
    await world.planner.write("goal", "private words")
    await world.planner.snapshot("mark")
    await world.planner.write("goal", "other private words")
    await world.planner.restore("mark")
    await world.analysis.delete("goal")
    await world.planner.call("session.archive", session_id="s1")
    answer = await world.planner.events()
    assert types_and_subjects(answer) == [
        ("session.created", "s1"),
        ("board.written", "goal"),
        ("board.snapshot", "mark"),
        ("board.written", "goal"),
        ("board.written", "goal"),
        ("board.restored", "mark"),
        ("board.deleted", "goal"),
        ("session.archived", "s1"),
    ]
    assert [event["seq"] for event in answer["events"]] == list(range(1, 9))
    assert answer["events"][1] == {
        "seq": 2,
        "type": "board.written",
        "session_id": "s1",
        "subject": "goal",
        "actor": "orchestrator:planner",
        "agent_id": "planner",
        "at": "2026-02-20T14:30:00Z",
        "data": {"version": 1, "incarnation": 1, "commit": 1, "value_size_tokens": 4},
    }
    assert "private" not in f"{answer}"


async def test_reading_resumes_at_the_offset(world: World) -> None:
    await world.planner.write("a")
    first = await world.planner.events()
    assert types_and_subjects(await world.planner.events(after=first["next_after"])) == []
    await world.planner.write("b")
    second = await next_event(world.planner, first["next_after"])
    assert types_and_subjects(second) == [("board.written", "b")]
    assert types_and_subjects(await world.planner.events(after=2)) == [("board.written", "b")]
    assert types_and_subjects(await world.planner.events(after=1, session_id="s1")) == [
        ("board.written", "a"),
        ("board.written", "b"),
    ]


async def test_without_an_offset_only_new_events_are_returned(world: World) -> None:
    await world.planner.write("a")
    answer = await world.planner.events(after=None)
    assert types_and_subjects(answer) == []
    await world.planner.write("b")
    assert types_and_subjects(await next_event(world.planner, answer["next_after"])) == [("board.written", "b")]


async def test_an_offset_beyond_the_end_is_clamped_to_the_end(world: World) -> None:
    assert (await world.planner.events(after=10_000))["next_after"] == 1


async def test_events_are_filtered_by_session_and_keys(world: World) -> None:
    other_session = await world.planner.create_session("s2")
    for key in ("inv_a", "inv_b", "other"):
        await world.planner.write(key)
    await other_session.write("inv_a")
    assert types_and_subjects(await world.analysis.events(session_id="s1", keys=["inv_*"])) == [
        ("board.written", "inv_a"),
        ("board.written", "inv_b"),
    ]
    assert types_and_subjects(await world.planner.events(keys=["inv_a"])) == [("board.written", "inv_a")] * 2
    assert types_and_subjects(await world.analysis.events(session_id="s2", keys=["?nv_a"])) == [
        ("board.written", "inv_a")
    ]
    with refused("SESSION_NOT_FOUND"):
        await world.analysis.events(session_id="none")


@pytest.mark.parametrize("where", ["here", "in another process"])
async def test_a_long_poll_is_woken_by_a_write(world: World, where: str) -> None:
    writer = world.analysis if where == "here" else world.analysis.at(await world.another_app())
    waiting = asyncio.create_task(next_event(world.planner, await world.last_event(), keys=["goal"]))
    await asyncio.sleep(0.05)
    await writer.write("noise")
    await writer.write("goal")
    assert types_and_subjects(await waiting) == [("board.written", "goal")]


async def test_a_long_poll_times_out_with_no_events(world: World) -> None:
    answer = await world.planner.events(after=1, wait_seconds=0.05)
    assert answer == {"events": [], "next_after": 1}


async def test_no_event_is_lost_or_repeated_between_two_writing_processes(world: World) -> None:
    second = world.analysis.at(await world.another_app())
    seen: list[int] = []

    async def follow() -> None:
        async for page in world.review.follow(EventFilter("s1"), 0):
            seen.extend(event.seq for event in page.events)
            if len(seen) > 80:
                return

    following = asyncio.create_task(follow())
    await asyncio.gather(*(caller.write(f"k{n}") for n in range(40) for caller in (world.planner, second)))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await following
    assert seen == list(range(1, 82))


async def test_an_event_that_others_read_meanwhile_is_not_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One subscriber reads old events; before it has done so, another one has moved the end of the tail."""
    read, written = world.app.database.read, []

    async def read_and_write(scope: Any, work: Any, **options: Any) -> Any:
        answer = await read(scope, work, **options)
        if options.get("heavy") and not written:
            written.append("late")
            await world.planner.write("late")
            await world.planner.events(after=None)
        return answer

    await world.planner.write("early")
    monkeypatch.setattr(world.app.database, "read", read_and_write)
    page = await world.planner.events(keys=["early", "late"])
    assert types_and_subjects(page) == [("board.written", "early")]
    assert written
    assert types_and_subjects(await next_event(world.planner, page["next_after"])) == [("board.written", "late")]


async def test_a_cancelled_reader_leaves_new_events_to_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, began = world.app.database.read, asyncio.Event()

    async def hang(scope: Any, work: Any, **options: Any) -> Any:
        if getattr(work, "__name__", "") == "_catch_up":
            began.set()
            await asyncio.sleep(TIMEOUT_SECONDS)
        return await read(scope, work, **options)

    after = (await world.planner.events())["next_after"]
    await world.planner.write("goal")
    monkeypatch.setattr(world.app.database, "read", hang)
    reading = asyncio.create_task(world.planner.events(after=after))
    await began.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert all(tail.stale for tail in world.app.feed._tails.values())
    monkeypatch.setattr(world.app.database, "read", read)
    assert types_and_subjects(await world.planner.events(after=after)) == [("board.written", "goal")]


async def test_a_refused_call_publishes_nothing(world: World) -> None:
    before = await world.last_event()
    with refused("VERSION_CONFLICT"):
        await world.planner.write("goal", if_version=9)
    with refused("KEY_NOT_FOUND"):
        await world.planner.delete("goal")
    assert await world.last_event() == before


@pytest.mark.parametrize("operation", ["key.revoke", "agent.update", "permissions"])
async def test_following_ends_when_the_credential_is_revoked(world: World, operation: str) -> None:
    ended = asyncio.create_task(_follow_to_the_end(world.analysis))
    await asyncio.sleep(0.05)
    if operation == "key.revoke":
        await world.admin.call("key.revoke", key_id=world.analysis.key_id)
    elif operation == "agent.update":
        await world.admin.call("agent.update", agent_id="analysis", disabled=True)
    else:
        await world.admin.call("agent.update", agent_id="analysis", permissions=["write"])
    await world.planner.write("goal", "after the end")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        error, subjects = await ended
    assert error in {"INVALID_API_KEY", "AUTHENTICATION_ERROR", "PERMISSION_DENIED"}
    assert "goal" not in subjects


async def _follow_to_the_end(caller: Caller) -> tuple[str, list[str]]:
    subjects: list[str] = []
    try:
        async for page in caller.follow(EventFilter(), 0):
            subjects += [event.subject for event in page.events]
    except WeftlineError as error:
        return error.code, subjects
    raise AssertionError("the stream ended without an error")


async def test_old_events_are_readable_after_many_newer_ones(world: World) -> None:
    await world.planner.events()
    await world.sql(
        """
        INSERT INTO events (tenant, seq, session_id, type, subject, actor, at, data)
        SELECT tenant, seq + 1, 's1', 'board.written', 'bulk', 'orchestrator', 0, '{{}}'
        FROM (WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 3000)
              SELECT seq FROM n) AS numbers CROSS JOIN tenants WHERE tenant = $1
        """,
        world.tenant,
    )
    await world.sql("UPDATE tenants SET event_seq = 3001 WHERE tenant = $1", world.tenant)
    await world.planner.write("last")
    after, seen = 0, []
    while after < 3002:
        page = await world.planner.events(after=after)
        seen += [event["seq"] for event in page["events"]]
        after = page["next_after"]
    assert seen == list(range(1, 3003))


@pytest.mark.req("SC-16")
async def test_the_creator_of_a_session_receives_its_events_without_being_a_participant(world: World) -> None:
    planner = await world.planner.create_session("theirs", members=["subagent:review:*"])
    await planner.write("goal", "hidden from most")
    session_ids = [event["session_id"] for event in (await world.planner.events())["events"]]
    assert "theirs" in session_ids
    non_participant = await world.admin.create_agent("bystander")
    assert "theirs" not in [event["session_id"] for event in (await non_participant.events())["events"]]


@pytest.mark.req("SC-01")
async def test_a_sub_agent_cannot_follow_all_sessions(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await world.analysis.events()


@pytest.mark.req("SC-16")
async def test_a_key_filter_does_not_match_a_snapshot_of_the_same_name(world: World) -> None:
    await world.planner.write("goal", "one")
    await world.planner.snapshot("goal")
    answer = await world.planner.events(session_id=world.planner.session, keys=["goal"])
    assert [event["type"] for event in answer["events"]] == ["board.written"]
