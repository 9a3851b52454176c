"""Records reveal no content, name or existence of what the caller may not read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.records import all_records, correlated_call, envelope, ids, item, record_page
from support.world import refused
from weftline.kernel.correlation import Correlation

if TYPE_CHECKING:
    from support.world import Caller, World

EVERY_TYPE = ["context_item", "context_event", "context_envelope", "context_surface", "context_assembly"]
SECRET = "hush-4711"


async def listed_text(caller: Caller, **which: Any) -> str:
    """Return every record list a caller can read, as one text."""
    pages = [await all_records(caller, **which), await all_records(caller, **which, types=EVERY_TYPE)]
    return json.dumps(pages)


async def expect_not_found(caller: Caller, *record_ids: str) -> None:
    for record_id in record_ids:
        with refused("RECORD_NOT_FOUND"):
            await caller.call("records.show", record_id=record_id, with_content=True)
        assert await ids(caller, session_id="s1", item_id=record_id) == []


async def test_private_messages_are_listed_for_their_audience_only(world: World) -> None:
    own = await world.analysis.say(f"private {SECRET}", visibility="private")
    kin = await world.analysis.say(f"kin {SECRET}", visibility="agent_only")
    admins = await world.admin.say(f"admins {SECRET}", visibility="admin_only")
    names = {number: f"message:s1/{number}" for number in (own, kin, admins)}
    for caller, seen in (
        (world.analysis, {own, kin}),
        (world.review, set()),
        (world.planner, set()),
        (world.admin, {admins}),
    ):
        shown = await ids(caller, session_id="s1", types=["context_item"])
        assert set(shown) == {names[number] for number in seen}
        await expect_not_found(caller, *(names[number] for number in names.keys() - seen))
        assert seen or SECRET not in await listed_text(caller, session_id="s1")


async def test_a_hidden_message_is_removed_from_the_records_of_others(world: World) -> None:
    number = await world.analysis.say(SECRET)
    name = f"message:s1/{number}"
    assert await ids(world.review, session_id="s1", item_id=name) == [name]
    await world.admin.call("message.set_visibility", session_id="s1", message_id=number, visibility="private")
    await expect_not_found(world.review, name)
    assert name not in await listed_text(world.review, session_id="s1")
    assert '"subject": "1"' not in await listed_text(world.review, session_id="s1")
    assert name in await ids(world.analysis, session_id="s1")


async def test_records_of_a_hidden_key_are_hidden_in_every_version(world: World) -> None:
    await world.planner.write("verdict", f"open {SECRET}")
    await world.planner.write("verdict", f"closed {SECRET}", readable_by=["orchestrator"])
    await world.planner.write("other", "open")
    await world.planner.delete("verdict")
    names = ["board:s1/verdict/1.1", "board:s1/verdict/1.2", "board:s1/verdict/1.2/removed"]
    for caller in (world.analysis, world.admin):
        await expect_not_found(caller, *names)
        listed = await listed_text(caller, session_id="s1")
        assert SECRET not in listed
        assert "verdict" not in listed
        assert "board:s1/other/1.1" in listed
    assert [name for name in await ids(world.planner, session_id="s1") if "/verdict/" in name] == names


async def test_records_of_a_key_hidden_on_a_branch_are_hidden(world: World) -> None:
    await world.planner.write("verdict", "open")
    await world.planner.call("history.branch", context_id="board:s1", branch="try")
    await world.planner.write("verdict", SECRET, branch="try", readable_by=["orchestrator"])
    await expect_not_found(world.analysis, "board:s1@try/verdict/1.2")
    assert await ids(world.analysis, session_id="s1", types=["context_item"]) == ["board:s1/verdict/1.1"]


async def test_a_private_session_does_not_exist_for_others(world: World) -> None:
    owner = await world.planner.create_session("inner", members=["subagent:analysis"])
    await owner.write("goal", SECRET)
    await owner.say(SECRET)
    await owner.call("records.add", session_id="inner", records=[envelope("c9"), item("big", SECRET * 300)])
    insider = world.analysis.in_session("inner")
    assert len(await ids(insider, session_id="inner")) == 5
    outsider = await world.admin.create_agent("other", agent_type="other")
    for caller in (outsider, world.stranger):
        assert "inner" not in await listed_text(caller)
        for record_id in ("session:inner", "board:inner/goal/1.1", "message:inner/1", "c9", "big"):
            with refused("RECORD_NOT_FOUND"):
                await caller.call("records.show", record_id=record_id, with_content=True)
            assert await ids(caller, item_id=record_id) == []
        with refused("SESSION_NOT_FOUND"):
            await record_page(caller, session_id="inner")
    with refused("RECORD_NOT_FOUND"):
        await world.review.call("records.show", record_id="board:inner/goal/1.1")
    with refused("RECORD_NOT_FOUND"):
        await outsider.call("records.set_lifecycle", record_id="c9", lifecycle="archived")


async def test_memory_records_are_visible_to_the_owner_only_and_have_no_values(world: World) -> None:
    await world.planner.remember("note", SECRET)
    await world.planner.remember("note", SECRET, session_id="s1")
    own = ["memory:planner/note/1.1", "memory:planner:s1/note/1.1"]
    assert await ids(world.planner, types=["context_item"]) == own
    assert SECRET not in await listed_text(world.planner)
    for record_id in own:
        shown = await world.planner.call("records.show", record_id=record_id, with_content=True)
        assert "content" not in shown
    assert "memory:planner" not in await listed_text(world.admin)
    await expect_not_found(world.admin, *own)
    await expect_not_found(world.analysis, *own)


async def test_context_records_are_visible_to_the_agent_and_its_ancestors(world: World) -> None:
    await world.analysis.call("context.push", knowledge=[{"key": "k", "value": SECRET}], if_version=0)
    await world.analysis.call("context.pull", session_id="s1")
    name = "context:analysis:learned_knowledge/k/1.1"
    shown = await world.analysis.call("records.show", record_id=name, with_content=True)
    assert (shown["record"]["sensitivity"], shown["content"]) == ("private", f'"{SECRET}"')
    assert (await world.admin.call("records.show", record_id=name))["type"] == "context_item"
    with refused("RECORD_NOT_FOUND"):
        await world.review.call("records.show", record_id=name)
    for caller in (world.review, world.planner):
        assert "analysis" not in (await listed_text(caller, session_id="s1")).replace("subagent:analysis", "")


async def test_records_that_name_an_item_follow_the_acl_of_the_item(world: World) -> None:
    await world.planner.write("goal", "ship")
    goal = "board:s1/goal/1.1"
    await world.planner.call(
        "records.add", session_id="s1", records=[envelope("closed", item_refs=[goal])], readable_by=["orchestrator"]
    )
    await world.planner.call("records.add", session_id="s1", records=[envelope("open", item_refs=[goal])])
    shown = await world.analysis.call("records.show", record_id=goal)
    assert [named["id"] for named in shown["referenced_by"]] == ["open"]
    assert await ids(world.analysis, session_id="s1", item_id=goal) == [goal, "open"]


async def test_knowing_a_digest_gives_no_access_to_its_content(world: World) -> None:
    await world.planner.call(
        "records.add", session_id="s1", records=[item("closed", SECRET * 500)], readable_by=["orchestrator"]
    )
    digest = (await world.planner.call("records.show", record_id="closed"))["digest"]
    for kind in ("content", "content_json"):
        thief = item("thief", None, content_mode="ref", content_ref={"kind": kind, "id": "closed", "digest": digest})
        with refused("INVALID_INPUT_FORMAT"):
            await world.analysis.call("records.add", session_id="s1", records=[thief])
    plain = item("plain", None, content_mode="ref", content_ref={"kind": "file", "id": "closed", "digest": digest})
    await world.analysis.call("records.add", session_id="s1", records=[plain])
    assert SECRET not in json.dumps(await world.analysis.call("records.show", record_id="plain", with_content=True))


async def test_correlation_filters_give_no_access(world: World) -> None:
    part = Correlation(turn_id="t1", task_id="a", tool_call_id="c")
    await correlated_call(
        part, world.planner, "board.write", session_id="s1", key="k", value=SECRET, readable_by=["orchestrator"]
    )
    for which in ({"turn_id": "t1"}, {"task_id": "a"}, {"tool_call_id": "c"}, {"agent": "orchestrator:planner"}):
        assert SECRET not in await listed_text(world.analysis, session_id="s1", **which)
        assert "board:s1/k/1.1" not in await listed_text(world.analysis, session_id="s1", **which)


@pytest.mark.parametrize(
    "which", [{}, {"item_id": "board:s1/goal/1.1"}, {"task_id": "a"}, {"agent": "orchestrator:planner"}]
)
async def test_records_are_isolated_by_tenant(world: World, which: dict[str, str]) -> None:
    part = Correlation(task_id="a")
    await correlated_call(part, world.planner, "board.write", session_id="s1", key="goal", value=SECRET)
    await correlated_call(
        part, world.planner, "records.add", session_id="s1", records=[envelope("c1", item_refs=["board:s1/goal/1.1"])]
    )
    assert await record_page(world.stranger, **which) == {
        "records": [],
        "count": 0,
        "has_more": False,
        "next_after": None,
    }
    for record_id in ("c1", "board:s1/goal/1.1", "session:s1"):
        with refused("RECORD_NOT_FOUND"):
            await world.stranger.call("records.show", record_id=record_id)
    await world.stranger.create_session("s1")
    await world.stranger.call("records.add", session_id="s1", records=[envelope("c1")])
    assert (await world.planner.call("records.show", record_id="c1"))["record"]["item_refs"] == ["board:s1/goal/1.1"]
