"""The four message visibilities on every read path, and changes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.world import outcome, refused

if TYPE_CHECKING:
    from support.world import Caller, World


@pytest.fixture
async def same_type_agent(world: World) -> Caller:
    """Return an agent of the planner's type."""
    agent = await world.admin.create_agent("planner-2", agent_type="planning")
    await world.planner.admit("planner-2")
    return agent


async def add_message_of_each_visibility(caller: Caller) -> None:
    for visibility in ("public", "private", "agent_only"):
        await caller.say(visibility, visibility=visibility)


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
async def test_each_visibility_reaches_its_audience(world: World, same_type_agent: Caller) -> None:
    await add_message_of_each_visibility(world.planner)
    await world.admin.say("admin_only", visibility="admin_only")
    assert await world.planner.message_texts() == ["public", "private", "agent_only"]
    assert await same_type_agent.message_texts() == ["public", "agent_only"]
    assert await world.review.message_texts() == ["public"]
    assert await world.admin.message_texts() == ["public", "admin_only"]


@pytest.mark.req("MS-04")
@pytest.mark.parametrize("wanted", ["public", "private", "agent_only", "admin_only"])
async def test_a_filter_only_narrows(world: World, same_type_agent: Caller, wanted: str) -> None:
    await add_message_of_each_visibility(world.planner)
    await add_message_of_each_visibility(world.review)
    await world.admin.say("admin_only", visibility="admin_only")
    for caller in (world.planner, world.review, world.analysis, same_type_agent, world.admin):
        everything = (await caller.messages())["messages"]
        filtered = await caller.messages(visibility_filter=wanted)
        assert filtered["messages"] == [m for m in everything if m["visibility"] == wanted]
        assert filtered["total_count"] == len(filtered["messages"])


@pytest.mark.req("MS-03")
async def test_only_admins_write_admin_only_messages(world: World) -> None:
    with refused("PERMISSION_DENIED"):
        await world.planner.say("psst", visibility="admin_only")
    await world.planner.admit("admin")
    narrowed = await world.admin.with_token("admin", "admin", requested_permissions=["read", "write"])
    assert await outcome(narrowed.say("psst", visibility="admin_only")) == "PERMISSION_DENIED"
    await world.admin.say("for admins", visibility="admin_only")
    assert await narrowed.message_texts() == []
    assert await world.admin.message_texts() == ["for admins"]


@pytest.mark.req("MS-13")
async def test_an_admin_changes_the_visibility_of_a_message_and_is_audited(
    world: World, same_type_agent: Caller
) -> None:
    number = await world.planner.say("a key nobody should see")
    answer = await world.admin.call(
        "message.set_visibility", session_id="s1", message_id=number, visibility="agent_only"
    )
    assert answer == {
        "success": True,
        "message_id": number,
        "visibility": "agent_only",
        "previous_visibility": "public",
    }
    assert await world.review.message_texts() == []
    assert await world.admin.message_texts() == []
    assert await same_type_agent.message_texts() == ["a key nobody should see"]
    assert (await world.review.messages())["total_count"] == 0
    (row, *_) = await world.admin.audit(outcome="done")
    assert row["action"] == "message.set_visibility"
    assert row["detail"] == {"visibility": "agent_only", "previous_visibility": "public"}
    assert "a key nobody should see" not in str(row)


@pytest.mark.req("MS-13")
async def test_only_an_admin_changes_the_visibility(world: World) -> None:
    number = await world.planner.say("mine", visibility="private")
    with refused("PERMISSION_DENIED"):
        await world.planner.call("message.set_visibility", session_id="s1", message_id=number, visibility="public")
    assert await world.review.message_texts() == []
    with refused("MESSAGE_NOT_FOUND"):
        await world.admin.call("message.set_visibility", session_id="s1", message_id=99, visibility="public")


@pytest.mark.req("MS-13")
async def test_a_message_can_still_be_hidden_in_an_archived_session(world: World) -> None:
    number = await world.planner.say("secret")
    await world.planner.call("session.archive", session_id="s1")
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    assert await world.review.message_texts() == []
    assert await world.planner.message_texts() == ["secret"]


@pytest.mark.req("MS-13")
async def test_an_admin_inspects_all_messages_and_is_audited(world: World) -> None:
    await add_message_of_each_visibility(world.planner)
    assert await world.admin.message_texts() == ["public"]
    seen = await world.admin.call("message.inspect", session_id="s1")
    assert [m["content"] for m in seen["messages"]] == ["public", "private", "agent_only"]
    assert (await world.admin.audit(outcome="done"))[0]["action"] == "message.inspect"
    with refused("PERMISSION_DENIED"):
        await world.planner.call("message.inspect", session_id="s1")


@pytest.mark.req("MS-09")
async def test_events_of_messages_reach_only_their_audience(world: World, same_type_agent: Caller) -> None:
    start = await world.last_event()
    await add_message_of_each_visibility(world.planner)
    await world.admin.say("admin_only", visibility="admin_only")

    async def visibilities_of_events(caller: Caller) -> list[str]:
        answer = await caller.events(session_id="s1", after=start, types=["message.*"])
        return [event["data"]["visibility"] for event in answer["events"]]

    assert await visibilities_of_events(world.planner) == ["public", "private", "agent_only"]
    assert await visibilities_of_events(same_type_agent) == ["public", "agent_only"]
    assert await visibilities_of_events(world.review) == ["public"]
    assert await visibilities_of_events(world.admin) == ["public", "admin_only"]


async def test_an_event_of_a_message_names_the_sender_and_no_content(world: World) -> None:
    start = await world.last_event()
    await world.planner.say(
        "the words themselves", metadata={"secret": "value"}, recipient_id="review-2", visibility="public"
    )
    (event,) = (await world.review.events(session_id="s1", after=start))["events"]
    assert event["type"] == "message.added"
    assert event["subject"] == "1"
    assert event["data"] == {
        "message_id": 1,
        "agent_id": "planner",
        "recipient_id": "review-2",
        "message_type": "message",
        "category": "DIALOG",
        "visibility": "public",
        "parent_message_id": None,
    }
    assert "words" not in str(event)
    assert "value" not in str(event)


async def test_a_visibility_change_is_published_to_old_and_new_readers(world: World, same_type_agent: Caller) -> None:
    number = await world.planner.say("mine", visibility="private")
    start = await world.last_event()
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="agent_only")
    for caller in (world.planner, same_type_agent):
        (event,) = (await caller.events(session_id="s1", after=start))["events"]
        assert (event["type"], event["data"]["visibility"]) == ("message.visibility_changed", "agent_only")
    assert (await world.review.events(session_id="s1", after=start))["events"] == []


async def test_the_event_of_a_hidden_message_contains_only_its_id_and_visibility(world: World) -> None:
    number = await world.planner.say("soon hidden", message_type="secret")
    start = await world.last_event()
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    (event,) = (await world.review.events(session_id="s1", after=start))["events"]
    assert event["data"] == {"message_id": number, "visibility": "private"}


async def test_past_events_follow_the_current_visibility(world: World) -> None:
    async def types_and_ids(caller: Caller) -> list[tuple[str, str]]:
        answer = await caller.events(session_id="s1", after=0, types=["message.*"])
        return [(event["type"], event["subject"]) for event in answer["events"]]

    hidden, shown = await world.planner.say("soon hidden"), await world.planner.say("soon shown", visibility="private")
    assert await types_and_ids(world.review) == [("message.added", str(hidden))]
    for number, visibility in ((hidden, "admin_only"), (shown, "public")):
        await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility=visibility)
    newcomer = await world.admin.create_agent("newcomer", parent_id="planner")
    for app in (world.app, await world.another_app()):
        assert ("message.added", str(hidden)) not in await types_and_ids(newcomer.at(app))
        assert ("message.added", str(shown)) in await types_and_ids(newcomer.at(app))


@pytest.mark.req("MS-15")
async def test_cached_pages_are_invalidated_by_changes(world: World) -> None:
    number = await world.planner.say("soon hidden")
    for _ in range(3):
        assert await world.review.message_texts() == ["soon hidden"]
    assert world.app.caches.stats(world.tenant).cache_hit_ratio > 0
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    assert await world.review.message_texts() == []
    await world.review.say("new")
    assert await world.review.message_texts() == ["new"]
    assert await world.planner.message_texts() == ["soon hidden", "new"]


@pytest.mark.req("MS-15")
async def test_cached_pages_are_not_served_for_a_recreated_session(world: World) -> None:
    await world.planner.say("first incarnation")
    assert await world.planner.message_texts() == ["first incarnation"]
    await world.planner.call("session.delete", session_id="s1")
    await world.planner.create_session("s1")
    await world.planner.say("second incarnation")
    assert await world.planner.message_texts() == ["second incarnation"]


@pytest.mark.req("MS-15")
async def test_another_process_sees_a_change_at_once(world: World) -> None:
    other = await world.another_app()
    number = await world.planner.say("soon hidden")
    assert await world.review.at(other).message_texts() == ["soon hidden"]
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    assert await world.review.at(other).message_texts() == []


async def test_other_tenants_and_non_participants_get_session_not_found(world: World) -> None:
    await world.planner.say("ours")
    with refused("SESSION_NOT_FOUND"):
        await world.stranger.messages()
    closed = await world.planner.create_session("closed", members=["subagent:analysis"])
    await closed.say("between us")
    with refused("SESSION_NOT_FOUND"):
        await world.review.in_session("closed").messages()
    with refused("SESSION_NOT_FOUND"):
        await world.review.in_session("closed").say("let me in")
    assert await world.analysis.in_session("closed").message_texts() == ["between us"]
