"""Direct messages: only sender and recipient learn of them, on every path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.world import refused
from weftline.access.sql import AccessStore
from weftline.sessions import agent_directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from support.world import Caller, World
    from weftline.access.model import Memberships, Principal

pytestmark = pytest.mark.req("WX-03")

SECRET = "The falcon lands at dawn."


async def direct(world: World) -> int:
    return await world.planner.say(SECRET, recipient_id="review-2")


async def test_a_message_with_a_recipient_is_seen_by_both_sides_only(world: World) -> None:
    await direct(world)
    for side in (world.planner, world.review):
        (message,) = (await side.messages())["messages"]
        assert (message["content"], message["visibility"], message["recipient_id"]) == (SECRET, "private", "review-2")
    for other in (world.analysis, world.admin):
        assert await other.message_texts() == []


async def test_an_explicit_visibility_stays_and_only_addresses(world: World) -> None:
    await world.planner.say("for all", recipient_id="review-2", visibility="public")
    assert await world.analysis.message_texts() == ["for all"]
    await world.planner.say("hidden", recipient_id="review-2", visibility="private")
    assert await world.analysis.message_texts() == ["for all"]
    assert await world.review.message_texts() == ["for all", "hidden"]


async def test_a_visibility_that_excludes_the_recipient_is_refused(world: World) -> None:
    for sender, visibility in ((world.planner, "agent_only"), (world.admin, "admin_only")):
        with refused("INVALID_INPUT_FORMAT") as caught:
            await sender.say("never arrives", recipient_id="review-2", visibility=visibility)
        assert caught.value.context["field"] == "visibility"
    assert (await world.planner.messages())["total_count"] == 0


async def test_a_note_without_recipient_stays_with_its_author(world: World) -> None:
    await world.planner.say("mine", visibility="private")
    await world.planner.say("also mine", recipient_id="planner")
    assert await world.planner.message_texts() == ["mine", "also mine"]
    assert await world.review.message_texts() == []


async def test_a_reply_to_a_direct_message_goes_to_the_other_side(world: World) -> None:
    number = await direct(world)
    await world.review.say("At the harbour?", parent_message_id=number)
    await world.planner.say("Yes.", parent_message_id=number + 1)
    await world.planner.say("And be on time.", parent_message_id=number)
    messages = (await world.review.messages())["messages"]
    assert [(m["recipient_id"], m["visibility"]) for m in messages] == [
        ("review-2", "private"),
        ("planner", "private"),
        ("review-2", "private"),
        ("review-2", "private"),
    ]
    assert await world.analysis.message_texts() == []
    await world.review.say("Landed.", parent_message_id=number, visibility="public")
    assert await world.analysis.message_texts() == ["Landed."]
    with refused("MESSAGE_NOT_FOUND"):
        await world.analysis.say("What?", parent_message_id=number)


async def test_the_recipient_must_be_an_active_member(world: World) -> None:
    with refused("RECIPIENT_NOT_FOUND") as caught:
        await world.planner.say("hello", recipient_id="reviw-2")
    assert caught.value.context["available_alternatives"] == ["review-2"]
    with refused("RECIPIENT_NOT_FOUND") as caught:
        await world.planner.say("hello", recipient_id="review")
    assert "review-2" in caught.value.context["available_alternatives"]
    await world.admin.call("agent.update", agent_id="review-2", disabled=True)
    with refused("RECIPIENT_NOT_FOUND") as caught:
        await world.planner.say("hello", recipient_id="review-2")
    assert "review-2" not in caught.value.context["available_alternatives"]
    assert (await world.planner.messages())["total_count"] == 0


async def test_an_unknown_recipient_is_compared_with_few_members(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is locked meanwhile; on SQLite, every writer waits."""
    for number in range(30):
        await world.planner.create_agent(f"helper-{number}", agent_type="helper")
    looked_up: list[int] = []
    memberships_of = AccessStore.memberships_of

    async def count(store: AccessStore, principals: Sequence[Principal]) -> Mapping[str, Memberships]:
        looked_up.append(len(principals))
        return await memberships_of(store, principals)

    monkeypatch.setattr(AccessStore, "memberships_of", count)
    with refused("RECIPIENT_NOT_FOUND") as caught:
        await world.planner.say("hello", recipient_id="helper")
    assert len(caught.value.context["available_alternatives"]) == 5
    assert sum(looked_up) <= 10
    # A member that is named in the session is suggested, however many agents there are.
    monkeypatch.setattr(agent_directory, "MAX_COMPARED", 1)
    await world.planner.call("session.add_members", session_id="s1", members=["review-2"])
    with refused("RECIPIENT_NOT_FOUND") as caught:
        await world.planner.say("hello", recipient_id="reviw-2")
    assert caught.value.context["available_alternatives"] == ["review-2"]


async def test_outsiders_look_like_unknown_names(world: World) -> None:
    closed = await world.planner.create_session("closed", members=["subagent:analysis"])
    errors = []
    for name in ("review-2", "review-3"):
        with refused("RECIPIENT_NOT_FOUND") as caught:
            await closed.say("hello", recipient_id=name)
        errors.append((caught.value.message.replace(name, ""), caught.value.context["available_alternatives"]))
    assert errors[0] == errors[1]
    with refused("RECIPIENT_NOT_FOUND"):
        await closed.say("hello", recipient_id="admin")
    with refused("RECIPIENT_NOT_FOUND"):
        await world.stranger.create_session("theirs")
        await world.stranger.in_session("theirs").say("hello", recipient_id="planner")


async def views(caller: Caller) -> dict[str, Any]:
    """Return everything a participant can ask that could tell of a message, without times and new ids."""
    in_session = {"session_id": "s1"}
    found = {
        "list": await caller.messages(),
        "private": await caller.messages(visibility_filter="private"),
        "search": await caller.search("falcon dawn", fuzzy_threshold=0),
        "by sender": await caller.call("message.search_by_sender", **in_session, sender="planner"),
        "by time": await caller.call(
            "message.search_by_timerange", **in_session, start_time="2000-01-01", end_time="2100-01-01"
        ),
        "overview": await caller.call("session.overview", **in_session),
        "everything": await caller.call("search.query", **in_session, query="falcon dawn", low_confidence=True),
        "entities": await caller.call("entity.list", **in_session),
        "pins": await caller.call("pin.list", **in_session),
        "inbox": await caller.call("message.inbox"),
        "events": (await caller.events(**in_session))["events"],
        "records": await caller.call("records.list", **in_session),
    }
    for name in ("search", "everything"):
        for timing in ("search_time_ms", "performance_note", "cache_hit", "took_ms", "timing", "search_id"):
            found[name].pop(timing, None)
    return found


async def test_a_third_agent_learns_neither_content_nor_existence_nor_count(world: World) -> None:
    await world.planner.say("for all")
    await world.index_sessions()
    before = await views(world.analysis)
    for number in range(3):
        await world.planner.say(f"{SECRET} {number}", recipient_id="review-2", category="decision")
        await world.review.say(SECRET, recipient_id="planner")
    await world.index_sessions()
    after = await views(world.analysis)
    assert after == before
    side = await views(world.review)
    assert len(side["list"]["messages"]) == 7
    assert side["list"]["total_count"] == 7
    assert side["overview"]["statistics"]["message_count"] == 7
    assert side["overview"]["statistics"]["unique_agents"] == 2
    assert [result["message"]["content"] for result in side["search"]["results"]]
    assert SECRET in str(side["everything"])


async def test_both_sides_find_a_direct_message_by_meaning_and_by_sender(world: World) -> None:
    await direct(world)
    await world.index_sessions()
    for side in (world.planner, world.review):
        asked = {"session_id": "s1", "query": "When does the falcon land?", "low_confidence": True}
        assert SECRET in str(await side.call("search.query", **asked))
        answer = await side.call("message.search_by_sender", session_id="s1", sender="planner")
        assert [each["content"] for each in answer["messages"]] == [SECRET]
        assert await side.found("falcon") == [SECRET]
        assert await side.found("falcon", search_scope="private") == [SECRET]


async def test_only_both_sides_get_the_events(world: World) -> None:
    start = await world.last_event()
    await direct(world)
    for side in (world.planner, world.review):
        (event,) = (await side.events(session_id="s1", after=start))["events"]
        assert (event["type"], event["data"]["recipient_id"]) == ("message.added", "review-2")
    for other in (world.analysis, world.admin):
        assert (await other.events(session_id="s1", after=start))["events"] == []


async def test_an_admin_makes_a_direct_message_public_and_a_public_one_direct(world: World) -> None:
    number = await direct(world)

    async def change(visibility: str) -> None:
        await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility=visibility)
        await world.index_sessions()

    for visibility, readers in (
        ("public", {"planner", "review-2", "analysis", "admin"}),
        ("private", {"planner", "review-2"}),
        ("admin_only", {"admin"}),
        ("agent_only", {"planner"}),
        ("private", {"planner", "review-2"}),
    ):
        await change(visibility)
        callers = {
            "planner": world.planner,
            "review-2": world.review,
            "analysis": world.analysis,
            "admin": world.admin,
        }
        for name, caller in callers.items():
            expected = [SECRET] if name in readers else []
            assert await caller.message_texts() == expected, (visibility, name)
            assert (await caller.messages())["total_count"] == len(expected)
            assert await caller.found("falcon") == expected
            delivered = (await caller.call("message.inbox"))["messages"]
            assert [each["content"] for each in delivered] == (expected if name == "review-2" else [])
            events = (await caller.events(session_id="s1", types=["message.added"]))["events"]
            assert len(events) == len(expected), (visibility, name)


async def test_exports_and_records_follow_the_visibility(world: World) -> None:
    number = await direct(world)
    item = f"message:s1/{number}"
    for side in (world.planner, world.review):
        shown = await side.call("records.show", type="context_item", record_id=item)
        assert shown["record"]["visibility"] == ["principal:planner", "principal:review-2"]
    with refused("RECORD_NOT_FOUND"):
        await world.analysis.call("records.show", type="context_item", record_id=item)
    exported = {
        name: str((await caller.call("bundle.export", session_id="s1", scope="session"))["bundle"])
        for name, caller in (("planner", world.planner), ("admin", world.admin))
    }
    assert SECRET in exported["planner"]
    assert SECRET not in exported["admin"]


async def test_a_direct_message_survives_export_and_import(world: World) -> None:
    await direct(world)
    bundle = (await world.planner.call("bundle.export", session_id="s1", scope="session"))["bundle"]
    await world.planner.call("session.delete", session_id="s1")
    await world.admin.call("bundle.import", bundle=bundle)
    assert await world.review.message_texts() == [SECRET]
    assert await world.planner.message_texts() == [SECRET]
    assert await world.analysis.message_texts() == []
    assert (await world.analysis.messages())["total_count"] == 0
