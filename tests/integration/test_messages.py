"""Messages: stored unchanged, ordered, threaded and paged during writes."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.full_run import examples
from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import World
    from weftline.testing.clock import FrozenClock

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("MS-03")
async def test_adding_a_message_returns_its_id_and_time(world: World) -> None:
    answer = await world.planner.call("message.add", session_id="s1", content="Ready for review.")
    assert answer == {"success": True, "message_id": 1, "timestamp": "2026-02-20T14:30:00Z"}


@pytest.mark.req("MS-04")
async def test_a_message_is_returned_with_every_field(world: World) -> None:
    first = await world.planner.say("The schema is done.", metadata={"type": "status_update", "confidence": 0.95})
    await world.review.say("Looking.", parent_message_id=first, recipient_id="planner", message_type="answer")
    answer = await world.planner.messages()
    assert {name: answer[name] for name in ("success", "count", "total_count", "has_more")} == {
        "success": True,
        "count": 2,
        "total_count": 2,
        "has_more": False,
    }
    assert answer["messages"][0] == {
        "id": 1,
        "sender": "planner",
        "sender_type": "planning",
        "content": "The schema is done.",
        "timestamp": "2026-02-20T14:30:00Z",
        "visibility": "public",
        "metadata": {"type": "status_update", "confidence": 0.95},
        "parent_message_id": None,
        "agent_id": "planner",
        "recipient_id": None,
        "message_type": "message",
        "category": "DIALOG",
    }
    assert answer["messages"][1]["parent_message_id"] == 1
    assert answer["messages"][1]["recipient_id"] == "planner"
    assert answer["messages"][1]["metadata"] == {}


@pytest.mark.req("MS-03")
@pytest.mark.parametrize(
    "content",
    [
        "  leading and trailing \n\n",
        "\tif x:\r\n\t\treturn\x00\x01",
        "é ≠ e\u0301 👩‍👩‍👧",
        "<b>'; DROP TABLE messages; --",
        " ",
    ],
)
async def test_content_round_trips_unchanged(world: World, content: str) -> None:
    await world.planner.say(content)
    assert await world.review.message_texts() == [content]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30), deadline=None)
@given(metadata=st.dictionaries(st.text(), JSON, max_size=4))
@pytest.mark.req("MS-03")
async def test_metadata_round_trips_unchanged(world: World, metadata: dict[str, object]) -> None:
    # Noise may look like an attack: here it is only marked.
    await world.admin.call("layer.define", layer="tenant", policy={"injection": {"agent": "annotate"}})
    number = await world.planner.say("text", metadata=metadata)
    (message,) = (await world.planner.messages(after_id=number - 1))["messages"]
    assert message["metadata"] == metadata


@pytest.mark.req("MS-03")
async def test_the_length_of_a_message_is_limited(world: World) -> None:
    assert await world.planner.say("x" * 10_000) == 1
    assert await world.planner.say("👩" * 10_000) == 2
    with refused("CONTENT_TOO_LARGE") as caught:
        await world.planner.say("x" * 10_001)
    assert caught.value.context["limit_characters"] == 10_000
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.say("")
    assert (await world.planner.messages())["total_count"] == 2


@pytest.mark.req("MS-03")
@pytest.mark.parametrize(
    "bad",
    [
        {"visibility": "nonsense"},
        {"metadata": ["not", "an", "object"]},
        {"metadata": {"deep": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[0]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}},
        {"metadata": {"large": "x" * 70_000}},
        {"parent_message_id": 0},
        {"parent_message_id": "first"},
        {"recipient_id": "no such name!"},
        {"sender": "someone-else"},
        {"content": "half \ud83d of a pair"},
    ],
    ids=lambda bad: next(iter(bad)),
)
async def test_invalid_messages_are_refused_and_not_stored(world: World, bad: dict[str, object]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("message.add", **{"session_id": "s1", "content": "text", **bad})
    assert (await world.planner.messages())["total_count"] == 0


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-10")
async def test_a_reply_to_a_missing_message_is_refused(world: World) -> None:
    other_session = await world.planner.create_session("s2")
    await other_session.say("in another session")
    with refused("MESSAGE_NOT_FOUND") as caught:
        await world.planner.say("what?", parent_message_id=1)
    assert caught.value.http_status == 404
    with refused("MESSAGE_NOT_FOUND"):
        await world.planner.say("what?", parent_message_id=2**53)


@pytest.mark.req("MS-03")
async def test_a_reply_to_a_hidden_message_is_refused(world: World) -> None:
    hidden = await world.planner.say("mine", visibility="private")
    absent = await outcome(world.review.say("I know", parent_message_id=hidden + 1))
    assert await outcome(world.review.say("I know", parent_message_id=hidden)) == absent == "MESSAGE_NOT_FOUND"
    assert await outcome(world.planner.say("indeed", parent_message_id=hidden)) == "ok"


@pytest.mark.req("MS-04")
async def test_pages_are_stable_during_writes(world: World) -> None:
    for number in range(7):
        await world.planner.say(f"m{number}")
    pages: list[str] = []
    offset = 0
    while True:
        page = await world.review.messages(limit=3, offset=offset)
        pages += [message["content"] for message in page["messages"]]
        offset += page["count"]
        if not page["has_more"]:
            break
        if offset == 3:
            await world.analysis.say("late")
    assert pages == [*(f"m{number}" for number in range(7)), "late"]


@pytest.mark.req("MS-04")
async def test_paging_skips_hidden_messages(world: World) -> None:
    for number in range(20):
        await world.planner.say(f"m{number}", visibility="private" if number % 3 == 0 else "public")
    visible = [f"m{number}" for number in range(20) if number % 3]
    assert await world.review.message_texts(limit=4, offset=5) == visible[5:9]
    assert (await world.review.messages(limit=4, offset=5))["total_count"] == len(visible)
    assert await world.planner.message_texts(limit=4, offset=5) == ["m5", "m6", "m7", "m8"]
    assert await world.review.message_texts(offset=10_000) == []


@pytest.mark.req("MS-04")
async def test_a_page_is_limited_in_bytes(world: World) -> None:
    for number in range(130):
        visibility = "private" if number % 4 == 0 else "public"
        await world.planner.say(f"m{number}", metadata={"bulk": "x" * 60_000}, visibility=visibility)
    for caller, total in ((world.planner, 130), (world.review, 97)):
        seen: list[int] = []
        while True:
            page = await caller.messages(limit=1000, offset=len(seen))
            seen += [message["id"] for message in page["messages"]]
            if not page["has_more"]:
                break
            assert 0 < page["count"] < total
        assert len(seen) == len(set(seen)) == total == page["total_count"]
        assert seen == sorted(seen)


@pytest.mark.req("MS-04")
async def test_after_id_returns_newer_messages(world: World) -> None:
    await world.planner.say("old")
    last = await world.planner.say("seen")
    await world.planner.say("mine", visibility="private")
    await world.planner.say("new")
    assert await world.review.message_texts(after_id=last) == ["new"]
    assert await world.planner.message_texts(after_id=last) == ["mine", "new"]


@pytest.mark.req("MS-04")
@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 1001}, {"offset": -1}, {"visibility_filter": "nonsense"}])
async def test_a_page_out_of_range_is_refused(world: World, bad: dict[str, object]) -> None:
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.messages(**bad)


@pytest.mark.req("MS-03")
async def test_timestamps_never_decrease_in_a_transcript(world: World, clock: FrozenClock) -> None:
    clock.advance(seconds=60)
    await world.planner.say("by a clock that is ahead")
    clock.advance(seconds=-30)
    await world.review.say("by one that is late")
    times = [message["timestamp"] for message in (await world.planner.messages())["messages"]]
    assert times == ["2026-02-20T14:31:00Z", "2026-02-20T14:31:00Z"]


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-14", part="20 concurrent writers")
async def test_twenty_concurrent_writers_lose_nothing(world: World) -> None:
    async def write(writer: int) -> list[int]:
        return [await world.review.say(f"{writer}/{number}") for number in range(10)]

    numbers = await asyncio.gather(*map(write, range(20)))
    assert sorted(n for own in numbers for n in own) == list(range(1, 201))
    contents = await world.planner.message_texts(limit=1000)
    assert sorted(contents) == sorted(f"{writer}/{number}" for writer in range(20) for number in range(10))


async def test_equal_texts_are_separate_messages(world: World) -> None:
    assert [await world.planner.say("ping") for _ in range(3)] == [1, 2, 3]
    assert await world.planner.message_texts() == ["ping"] * 3


@pytest.mark.req("MS-02")
async def test_an_archived_session_is_read_only(world: World) -> None:
    await world.planner.say("before")
    await world.planner.call("session.archive", session_id="s1")
    with refused("SESSION_ARCHIVED"):
        await world.review.say("after")
    assert await world.review.message_texts() == ["before"]


async def test_deleting_a_session_deletes_its_messages(world: World) -> None:
    await world.planner.say("gone")
    await world.planner.call("session.delete", session_id="s1")
    with refused("SESSION_NOT_FOUND"):
        await world.planner.messages()
    await world.planner.create_session("s1")
    assert await world.planner.message_texts() == []
    assert await world.planner.say("first again") == 1


@pytest.mark.req("MS-02")
async def test_a_session_shows_its_latest_messages(world: World, clock: FrozenClock) -> None:
    for number in range(60):
        await world.planner.say(f"m{number}", visibility="private" if number == 59 else "public")
    clock.advance(seconds=120)
    mine = await world.planner.call("session.get", session_id="s1")
    assert [m["content"] for m in mine["messages"]] == [f"m{number}" for number in range(10, 60)]
    assert mine["message_count"] == 60
    admins = await world.admin.call("session.get", session_id="s1")
    assert [m["content"] for m in admins["messages"]] == [f"m{number}" for number in range(9, 59)]
    assert admins["message_count"] == 59


@pytest.mark.req("MS-09")
async def test_an_overview_counts_the_contents_of_a_session(world: World, clock: FrozenClock) -> None:
    await world.planner.say("one")
    await world.planner.say("two", visibility="private")
    await world.review.say("three")
    clock.advance(hours=2)
    answer = await world.review.call("session.overview", session_id="s1")
    assert set(answer) == {"session", "messages", "statistics", "resource_info"}
    assert [m["content"] for m in answer["messages"]] == ["one", "three"]
    assert answer["statistics"] == {
        "message_count": 3,
        "visible_message_count": 2,
        "unique_agents": 2,
        "last_activity": "2026-02-20T14:30:00Z",
        "session_duration_minutes": 120,
        "coordination_locks": 0,
    }
    assert answer["resource_info"] == {
        "last_updated": "2026-02-20T16:30:00Z",
        "requesting_agent": "review-2",
        "supports_subscriptions": True,
        "cache_ttl": 300,
    }


async def test_a_generated_session_id_has_the_documented_form(world: World) -> None:
    answer = await world.planner.call("session.create", purpose="a test")
    assert re.fullmatch(r"session_[0-9a-f]{16}", answer["session_id"])


@pytest.mark.req("MS-04")
async def test_a_page_of_old_messages_reads_the_same(world: World) -> None:
    await asyncio.gather(*(world.analysis.say(f"m{number}") for number in range(40)))
    await world.planner.say("mine", visibility="private")
    assert await world.review.message_texts(offset=5_001) == []
    assert await world.planner.message_texts(offset=5_001) == []
    answer = await world.review.call("message.search_by_sender", session_id="s1", sender="analysis", offset=6_000)
    assert (answer["count"], answer["has_more"]) == (0, False)
