"""The inbox: messages addressed to the caller, until it acknowledges them."""

from __future__ import annotations

import asyncio
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import pytest

from support.statement_log import statements_of
from support.world import SESSION, outcome, refused
from weftline.sessions.events.model import EventFilter
from weftline.sessions.messages import inbox_operations as inbox_rules

if TYPE_CHECKING:
    from support.world import Caller, World

pytestmark = pytest.mark.req("WX-03")


async def contents(caller: Caller, **fields: Any) -> list[str]:
    return [each["content"] for each in (await caller.call("message.inbox", **fields))["messages"]]


async def test_addressed_messages_wait_until_they_are_acknowledged(world: World) -> None:
    await world.planner.say("Review this, please.", recipient_id="review-2", message_type="request")
    await world.analysis.say("For all to see.", recipient_id="review-2", visibility="public")
    await world.planner.say("Not for anyone in particular.")
    for _ in range(2):
        answer = await world.review.call("message.inbox")
        assert answer == {
            "messages": [
                {
                    "handle": "s1/1",
                    "session_id": "s1",
                    "message_id": 1,
                    "sender": "planner",
                    "content": "Review this, please.",
                    "timestamp": "2026-02-20T14:30:00Z",
                    "visibility": "private",
                    "message_type": "request",
                },
                {
                    "handle": "s1/2",
                    "session_id": "s1",
                    "message_id": 2,
                    "sender": "analysis",
                    "content": "For all to see.",
                    "timestamp": "2026-02-20T14:30:00Z",
                    "visibility": "public",
                },
            ],
            "unread": 2,
        }
    answer = await world.review.call("message.inbox", acknowledge=["s1/1", "s1/1", "s1/3", "nowhere/7"])
    assert (answer["acknowledged"], answer["unread"]) == (1, 1)
    assert await contents(world.review, acknowledge=["s1/2"]) == []
    assert await world.review.call("message.inbox") == {"messages": [], "unread": 0}
    assert len(await world.review.message_texts()) == 3


async def test_nobody_reads_or_acknowledges_another_inbox(world: World) -> None:
    await world.planner.say("for review", recipient_id="review-2")
    for other in (world.analysis, world.planner, world.admin, world.stranger):
        assert await other.call("message.inbox", acknowledge=["s1/1"]) == {"messages": [], "unread": 0}
    assert await contents(world.review) == ["for review"]


async def test_an_inbox_spans_sessions_and_can_be_narrowed(world: World) -> None:
    second = await world.planner.create_session("s2")
    await world.planner.say("first", recipient_id="review-2")
    await second.say("second", recipient_id="review-2")
    await world.analysis.say("third", recipient_id="review-2")
    assert await contents(world.review) == ["first", "third", "second"]
    assert await contents(world.review, session_id="s2") == ["second"]
    assert await contents(world.review, sender="analysis") == ["third"]
    answer = await world.review.call("message.inbox", sender="analysis")
    assert (answer["unread"], answer["senders"]) == (1, {"planner": 2, "analysis": 1})
    with refused("SESSION_NOT_FOUND"):
        await world.review.call("message.inbox", session_id="nowhere")
    await world.planner.call("session.delete", session_id="s1", force=True)
    assert await contents(world.review) == ["second"]


async def test_messages_of_sessions_that_one_has_left_are_not_shown(world: World) -> None:
    await world.admin.call("team.create", team="crew", description="x")
    for member in ("planner", "review-2"):
        await world.admin.call("team.add_member", team="crew", agent_id=member)
    closed = await world.planner.create_session("closed", members=["team:crew"])
    await closed.say("for the crew", recipient_id="review-2")
    assert await contents(world.review) == ["for the crew"]
    await world.admin.call("team.remove_member", team="crew", agent_id="review-2")
    assert await world.review.call("message.inbox") == {"messages": [], "unread": 0}


@pytest.mark.req("WX-05")
async def test_a_removed_member_neither_gets_nor_keeps_messages(world: World) -> None:
    start = await world.last_event()
    room = await world.planner.create_session("room", members=["review-2", "analysis"])
    await room.say("for review", recipient_id="review-2")
    assert len((await world.review.events(addressed=True, after=start))["events"]) == 1
    await room.call("session.remove_members", session_id="room", members=["review-2"])
    assert await world.review.call("message.inbox") == {"messages": [], "unread": 0}
    assert (await world.review.events(addressed=True, after=start))["events"] == []
    with refused("SESSION_NOT_FOUND"):
        await world.review.call("message.inbox", session_id="room")
    with refused("RECIPIENT_NOT_FOUND"):
        await room.say("still there?", recipient_id="review-2")
    assert [each["agent_id"] for each in (await room.call("agent.list", session_id="room"))["agents"]] == ["analysis"]
    await room.admit("review-2")
    assert await contents(world.review) == ["for review"]


async def test_a_flood_of_one_sender_hides_nobody(world: World) -> None:
    for number in range(30):
        await world.analysis.say(f"spam {number}", recipient_id="review-2")
    await world.planner.say("important", recipient_id="review-2")
    answer = await world.review.call("message.inbox", limit=3)
    assert [each["content"] for each in answer["messages"]] == ["spam 0", "spam 1", "important"]
    assert (answer["unread"], answer["senders"]) == (31, {"analysis": 30, "planner": 1})
    assert await contents(world.review, sender="planner") == ["important"]


async def test_a_full_inbox_drops_from_the_sender_with_the_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_rules, "MAX_UNREAD", 4)
    await world.planner.say("important", recipient_id="review-2")
    for number in range(10):
        await world.analysis.say(f"spam {number}", recipient_id="review-2")
    messages = (await world.review.call("message.inbox"))["messages"]
    assert [(each["content"], each.get("missed", 0)) for each in messages] == [
        ("important", 0),
        ("spam 7", 7),
        ("spam 8", 0),
        ("spam 9", 0),
    ]
    assert len(await world.review.message_texts()) == 11


async def test_long_messages_do_not_fill_an_answer(world: World) -> None:
    for _ in range(6):
        await world.planner.say("x" * 9_000, recipient_id="review-2")
    answer = await world.review.call("message.inbox")
    assert (len(answer["messages"]), answer["unread"]) == (4, 6)


async def test_an_inbox_costs_what_is_unread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(40):
        await world.planner.say(f"old {number}", recipient_id="review-2")
    handles = [f"s1/{number}" for number in range(1, 40)]
    await world.review.call("message.inbox", acknowledge=handles)
    assert await world.rows("SELECT message_id FROM inbox") == [(40,)]

    async def read() -> None:
        assert await contents(world.review, acknowledge=["s1/39"]) == ["old 39"]

    log = await statements_of(read, world.app.database, monkeypatch)
    assert [sql for sql in log if "FROM messages" in sql and "message_id IN" not in sql] == []
    assert len(log) <= 5


async def test_handles_are_checked(world: World) -> None:
    for handle in ("s1", "s1/0", "s1/x", "/1", "s1/1/2", "s1/01", " s1/1", "s1/1\n"):
        assert await outcome(world.review.call("message.inbox", acknowledge=[handle])) == "INVALID_INPUT_FORMAT", handle


async def test_a_recipient_is_woken_by_the_event_of_its_message(world: World) -> None:
    start = await world.last_event()
    await world.analysis.say("for planner", recipient_id="planner")
    await world.planner.say("for all")
    await world.planner.say("wake up", recipient_id="review-2")
    (event,) = (await world.review.events(addressed=True, after=start))["events"]
    assert (event["type"], event["data"]["message_id"]) == ("message.added", 3)
    async for page in world.review.follow(EventFilter(addressed=True), start):
        if page.events:
            assert [each.data["message_id"] for each in page.events] == [3]
            break


async def test_a_flood_from_many_sessions_at_once_keeps_the_limit_and_the_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_rules, "MAX_UNREAD", 4)
    sessions = [f"flood-{number}" for number in range(6)]
    for session_id in sessions:
        await world.planner.call("session.create", purpose="flood", session_id=session_id, members=["*"])

    async def send(session_id: str) -> None:
        await world.planner.in_session(session_id).say("flood", recipient_id="review-2")

    await asyncio.gather(*map(send, islice(cycle(sessions), 60)))
    answer = await world.review.call("message.inbox")
    assert answer["unread"] == 4
    assert sum(each.get("missed", 0) for each in answer["messages"]) == 56


async def test_acknowledging_in_any_order_while_messages_arrive_loses_no_race(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_rules, "MAX_UNREAD", 8)
    sessions = [f"flood-{number}" for number in range(4)]
    for session_id in sessions:
        await world.planner.call("session.create", purpose="flood", session_id=session_id, members=["*"])

    async def send(session_id: str) -> None:
        await world.planner.in_session(session_id).say("flood", recipient_id="review-2")

    async def acknowledge(*, newest_first: bool) -> None:
        answer = await world.review.call("message.inbox")
        handles = [each["handle"] for each in answer["messages"]]
        await world.review.call("message.inbox", acknowledge=handles[::-1] if newest_first else handles)

    for _ in range(6):
        acknowledging = [acknowledge(newest_first=newest_first) for newest_first in (True, False)]
        await asyncio.gather(*map(send, sessions * 4), *acknowledging)
    await send(sessions[0])
    assert (await world.review.call("message.inbox"))["unread"] <= 8


async def test_a_message_of_the_inbox_names_its_session_and_its_id(world: World) -> None:
    number = await world.planner.say("For you.", recipient_id="analysis")
    (message,) = (await world.analysis.call("message.inbox"))["messages"]
    assert (message["session_id"], message["message_id"]) == (SESSION, number)
    assert message["handle"] == f"{SESSION}/{number}"
