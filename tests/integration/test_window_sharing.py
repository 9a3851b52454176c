"""Windows of sub-agents: what they inherit, their limits, shared windows and routed categories."""

from __future__ import annotations

from typing import Any

import pytest

from support.windows import contents, create, ingest, message, published, show, window_events
from support.world import SESSION, Caller, World, refused

RULES = message("rules", "be brief", role="system")
FACTS = message("facts", "the sky is blue", category="CONTEXT")
QUESTION = message("question", "why is it blue?")
CALL = message("call", "", role="assistant", tool_calls=[{"call_id": "c1", "name": "look", "arguments": "{}"}])
RESULT = message("result", "it is", role="tool", tool_call_id="c1")
CONVERSATION = (RULES, FACTS, QUESTION, CALL, RESULT)


async def refresh(caller: Caller, agent_id: str | None = None) -> Any:
    return await caller.call("window.refresh", session_id=SESSION, agent_id=agent_id)


async def define(world: World, agent_id: str, **config: Any) -> None:
    await world.admin.call("agent.define", agent_id=agent_id, config=config)


@pytest.mark.req("MW-14")
async def test_creating_isolated_sub_agents_clamps_the_child_window_when_specified(world: World) -> None:
    """First smoke check."""
    parent = await create(world.planner, model_max_tokens=8_000, reserved_tokens=0)
    child = await create(world.planner, "analysis", model_max_tokens=2_000, reserved_tokens=0)
    other = await create(world.planner, "review-2", model_max_tokens=8_000, shared_cw_max_tokens=500, reserved_tokens=0)
    assert (parent["limit"], child["limit"], other["limit"]) == (8_000, 2_000, 500)
    assert (await show(world.planner))["limit"] == 8_000


@pytest.mark.req("MW-02", "MW-14")
async def test_partial_share_is_applied_to_the_child_only_once(world: World) -> None:
    """Second smoke check."""
    await ingest(world.admin, *CONVERSATION, agent_id="planner")
    await create(world.planner, "analysis")
    assert await contents(world.analysis) == ["be brief", "the sky is blue"]
    await ingest(world.admin, message("more", "be very brief", role="system"), agent_id="planner")
    await ingest(world.analysis, message("own", "hello"))
    assert await contents(world.analysis) == ["be brief", "the sky is blue", "hello"]


@pytest.mark.req("MW-07", "MW-14")
async def test_routing_uses_the_requested_agents_conversation_and_window(world: World) -> None:
    """Third smoke check, and the third line of the test checklist."""
    await create(world.planner, "analysis", model_max_tokens=2_000)
    await ingest(world.planner, message("a", "for analysis"), agent_id="analysis")
    await ingest(world.planner, message("a", "for planner"))
    assert await contents(world.planner, agent_id="analysis") == ["for analysis"]
    assert await contents(world.planner) == ["for planner"]
    assert (await show(world.planner, "analysis"))["model_tokens"] == 2_000


@pytest.mark.req("MW-12", "MW-14")
async def test_guarded_delete_returns_a_warning_for_shared_sessions_when_not_forced(world: World) -> None:
    """Fourth smoke check, and the last line of the test checklist."""
    await ingest(world.planner, message("a", "mine"))
    await ingest(world.analysis, message("a", "theirs"))
    await ingest(world.review, message("a", "theirs"))
    with refused("SESSION_IN_USE") as caught:
        await world.planner.call("session.delete", session_id=SESSION)
    assert caught.value.context["dependents"] == [
        {"agent_id": "analysis", "windows": 1},
        {"agent_id": "review-2", "windows": 1},
    ]
    assert "analysis: 1 window; review-2: 1 window" in caught.value.message
    assert await contents(world.analysis) == ["theirs"]
    await world.planner.call("session.delete", session_id=SESSION, force=True)
    with refused("SESSION_NOT_FOUND"):
        await contents(world.analysis)


@pytest.mark.req("MW-12")
async def test_a_session_with_windows_of_nobody_else_is_deleted_without_force(world: World) -> None:
    await ingest(world.planner, message("a", "mine"))
    assert (await world.planner.call("session.delete", session_id=SESSION))["success"] is True


@pytest.mark.req("MW-03", "MW-04", "MW-14")
async def test_a_smaller_model_clamps_the_sub_agent_and_leaves_a_note_for_its_parent(world: World) -> None:
    """Test checklist, first line."""
    await create(world.planner, model_max_tokens=8_000, reserved_tokens=0)
    await create(world.planner, "analysis", model_max_tokens=2_000, reserved_tokens=0)
    (note,) = (await window_events(world.planner))["events"]
    assert (note["category"], note["role"], note["author"]) == ("SYSTEM", "system", "system")
    assert "'analysis' holds 2000 tokens" in note["content"]
    clamp = {"agent_id": "analysis", "limit": 2_000, "parent_id": "planner", "parent_limit": 8_000}
    assert (await show(world.planner))["clamps"] == [clamp]
    assert (await show(world.analysis))["clamps"] == [clamp]
    assert await published(world.planner, "window.clamped") == [clamp]
    assert await published(world.analysis, "window.clamped") == [clamp]
    assert await published(world.review, "window.clamped") == []


@pytest.mark.req("MW-02", "MW-14")
async def test_a_sub_agent_initially_has_system_and_context_only_and_later_messages_do_not_mirror(world: World) -> None:
    """Test checklist, second line; by the first event that is added, without an explicit creation."""
    await ingest(world.admin, *CONVERSATION, agent_id="planner")
    await ingest(world.analysis, message("own", "hello"))
    events = (await window_events(world.analysis))["events"]
    assert [event["category"] for event in events] == ["SYSTEM", "CONTEXT", "DIALOG"]
    assert [event["agent_id"] for event in events] == ["planner", "planner", "analysis"]
    await ingest(world.admin, message("later", "later", role="system"), message("said", "said"), agent_id="planner")
    await ingest(world.analysis, message("reply", "reply"))
    assert await contents(world.analysis) == ["be brief", "the sky is blue", "hello", "reply"]
    assert await contents(world.planner) == [
        "be brief", "the sky is blue", "why is it blue?", "", "it is", "later", "said"
    ]  # fmt: skip


async def test_copies_share_large_contents_and_cannot_collide_with_own_events(world: World) -> None:
    await ingest(world.admin, message("rules", "a long rule " * 1_000, role="system"), agent_id="planner")
    await ingest(world.analysis, message("rules", "my own"))
    assert await contents(world.analysis) == ["a long rule " * 1_000, "my own"]
    hashes = await world.rows(
        "SELECT DISTINCT blob_hash FROM changes WHERE tenant = $1 AND key LIKE '%#content'", world.tenant
    )
    assert len(hashes) == 1


async def test_the_parents_notes_are_not_inherited(world: World) -> None:
    await create(world.planner, model_max_tokens=8_000)
    await create(world.planner, "analysis", model_max_tokens=2_000)
    await create(world.planner, "review-2")
    assert await contents(world.review) == []


async def test_a_redacted_event_of_the_parent_is_hidden_in_the_copies_too(world: World) -> None:
    await ingest(world.admin, message("rules", "secret rule", role="system"), agent_id="planner")
    await create(world.planner, "analysis")
    (event,) = (await window_events(world.planner))["events"]
    await world.admin.call("records.redact", item_id=event["item_id"], state="removed", reason="secret")
    assert await contents(world.analysis) == ["[content removed]"]
    await create(world.planner, "review-2")
    assert await contents(world.review) == ["[content removed]"]


@pytest.mark.req("MW-03")
async def test_the_limit_follows_from_the_model_less_the_reserved_output(world: World) -> None:
    window = await create(world.planner, model="gpt-4o", reserved_tokens=1_000)
    assert (window["model_tokens"], window["limit"]) == (128_000, 127_000)
    changed = await world.planner.call("window.update", session_id=SESSION, model="claude-sonnet-4-5")
    assert changed["model_tokens"] > 128_000
    assert sum(use["budget"] for use in changed["usage"]) == changed["limit"]


@pytest.mark.req("MW-03")
async def test_model_and_context_come_from_the_definition_else_from_the_parents_window(world: World) -> None:
    await define(world, "review-2", model_max_tokens=3_000)
    await create(world.planner, model_max_tokens=9_000, reserved_tokens=0)
    await ingest(world.analysis, message("a"))
    await ingest(world.review, message("a"))
    assert (await show(world.analysis))["limit"] == 9_000
    assert (await show(world.review))["model_tokens"] == 3_000


@pytest.mark.req("MW-06")
async def test_a_clamped_window_divides_its_own_limit(world: World) -> None:
    """Fault of a known implementation: a clamped window keeps its old category budgets."""
    await create(world.planner, model_max_tokens=8_000)
    window = await create(world.planner, "analysis", model_max_tokens=200, reserved_tokens=0)
    assert sum(use["budget"] for use in window["usage"]) == 200
    changed = await world.planner.call(
        "window.update", session_id=SESSION, agent_id="analysis", model_max_tokens=100, budgets={"DIALOG": 0.6}
    )
    assert sum(use["budget"] for use in changed["usage"]) == 100
    assert [use["budget"] for use in changed["usage"] if use["category"] == "DIALOG"] == [60]


async def test_use_is_shown_by_category(world: World) -> None:
    await ingest(world.admin, *CONVERSATION, agent_id="planner")
    usage = (await show(world.planner))["usage"]
    assert {use["category"]: use["events"] for use in usage} == {
        "SYSTEM": 1, "CONTEXT": 1, "DIALOG": 2, "SYSTEM_OUTPUT": 1, "ERROR": 0, "INTERNAL": 0
    }  # fmt: skip
    assert usage[0] == {"category": "SYSTEM", "budget": 18_586, "tokens": 2, "events": 1}


@pytest.mark.req("MW-09")
async def test_a_refresh_brings_only_what_changed(world: World) -> None:
    await ingest(world.planner, RULES, FACTS)
    await create(world.planner, "analysis")
    await ingest(world.analysis, message("own", "hello"))
    assert await refresh(world.analysis) == {
        "session_id": SESSION, "agent_id": "analysis", "parent_id": "planner", "added": [], "updated": [], "removed": []
    }  # fmt: skip
    line = f"window:{SESSION}:analysis"
    before = await world.analysis.call("history.log", context_id=line)
    await ingest(world.planner, message("news", "it rains", category="CONTEXT"), message("chat", "hm"))
    changed = await refresh(world.planner, "analysis")
    assert (changed["added"], changed["updated"], changed["removed"]) == (["planner/news"], [], [])
    assert await contents(world.analysis) == ["be brief", "the sky is blue", "hello", "it rains"]
    after = await world.analysis.call("history.log", context_id=line)
    assert len(after["commits"]) == len(before["commits"]) + 1
    await world.planner.call("history.rollback", context_id=f"window:{SESSION}:planner", target_version=1)
    assert (await refresh(world.analysis))["removed"] == ["planner/news"]
    assert await contents(world.analysis) == ["be brief", "the sky is blue", "hello"]


@pytest.mark.req("MW-05")
async def test_the_limit_of_a_shared_window_is_the_minimum_over_its_sharers(world: World) -> None:
    async def limits() -> list[int]:
        return [(await show(world.planner, agent))["limit"] for agent in ("planner", "analysis", "review-2")]

    await create(world.planner, model_max_tokens=8_000, reserved_tokens=0)
    await create(world.planner, "analysis", model_max_tokens=2_000, reserved_tokens=0)
    await create(world.planner, "review-2", model_max_tokens=4_000, reserved_tokens=0)
    assert await limits() == [8_000, 2_000, 4_000]
    for agent, expected in (("review-2", [4_000, 2_000, 4_000]), ("analysis", [2_000, 2_000, 2_000])):
        await world.planner.call("window.join", session_id=SESSION, agent_id=agent, with_agent_id="planner")
        assert await limits() == expected
    await world.planner.call("window.update", session_id=SESSION, agent_id="analysis", model_max_tokens=1_000)
    assert await limits() == [1_000, 1_000, 1_000]
    await world.analysis.call("window.leave", session_id=SESSION)
    assert await limits() == [4_000, 1_000, 4_000]
    assert (await show(world.planner))["shared_by"] == ["review-2"]


@pytest.mark.req("MW-04", "MW-15")
@pytest.mark.parametrize("how", ["join", "update"])
async def test_a_sharer_that_shrinks_a_window_leaves_a_clamp_an_event_and_a_note(world: World, how: str) -> None:
    await create(world.planner, model_max_tokens=8_000, reserved_tokens=0)
    await create(world.planner, "analysis", model_max_tokens=6_000, reserved_tokens=0)
    size = 2_000 if how == "join" else 7_000
    await create(world.planner, "review-2", model_max_tokens=size, reserved_tokens=0)
    await world.planner.call("window.join", session_id=SESSION, agent_id="review-2", with_agent_id="analysis")
    if how == "update":
        await world.planner.call("window.update", session_id=SESSION, agent_id="review-2", model_max_tokens=2_000)
    clamp = {"agent_id": "review-2", "limit": 2_000, "parent_id": "analysis", "parent_limit": 6_000}
    for agent in ("analysis", "review-2"):
        assert clamp in (await show(world.planner, agent))["clamps"]
    notes = [text for text in await contents(world.analysis) if "2000 tokens" in text]
    assert len(notes) == 1
    assert "review-2" in notes[0]
    events = await published(world.analysis, "window.clamped")
    assert clamp in events
    assert any("'analysis' holds 2000 tokens" in text for text in await contents(world.planner))


@pytest.mark.req("MW-01", "MW-05")
async def test_sharers_write_one_conversation_and_get_their_own_back(world: World) -> None:
    await ingest(world.planner, message("a", "of planner"))
    await ingest(world.review, message("a", "of review"))
    await world.planner.call("window.join", session_id=SESSION, agent_id="review-2", with_agent_id="planner")
    await ingest(world.review, message("b", "shared"))
    assert await contents(world.planner) == await contents(world.review) == ["of planner", "shared"]
    assert [event["agent_id"] for event in (await window_events(world.planner))["events"]] == ["planner", "review-2"]
    with refused("WINDOW_IN_USE") as caught:
        await world.planner.call("window.delete", session_id=SESSION)
    assert caught.value.context["agents"] == ["review-2"]
    await world.review.call("window.leave", session_id=SESSION)
    assert await contents(world.review) == ["of review"]


@pytest.mark.req("MW-05")
async def test_only_who_may_open_both_windows_joins_them(world: World) -> None:
    await ingest(world.planner, message("a"))
    await ingest(world.analysis, message("a"))
    await ingest(world.review, message("a"))
    for caller, other in ((world.analysis, "planner"), (world.analysis, "review-2")):
        with refused("PERMISSION_DENIED"):
            await caller.call("window.join", session_id=SESSION, with_agent_id=other)
    with refused("INVALID_INPUT_FORMAT"):
        await world.planner.call("window.join", session_id=SESSION, with_agent_id="planner")
    await world.planner.call("window.join", session_id=SESSION, agent_id="analysis", with_agent_id="review-2")
    with refused("WINDOW_IN_USE"):
        await world.planner.call("window.join", session_id=SESSION, agent_id="review-2", with_agent_id="planner")


@pytest.mark.req("MW-10")
async def test_categories_are_routed_to_agents_and_roles_without_copies(world: World) -> None:
    await create(world.planner, "analysis")
    await create(world.planner, "review-2")
    await ingest(world.planner, FACTS, QUESTION)
    routes = await world.planner.call(
        "window.route", session_id=SESSION, categories=["CONTEXT"], to_agents=["analysis"], to_types=["review"]
    )
    assert len(routes["routes"]) == 2
    before = await world.rows("SELECT COUNT(*) FROM changes WHERE line_id <> $1", f"window:{SESSION}:planner")
    await ingest(world.planner, message("news", "it rains", category="CONTEXT"))
    for caller in (world.analysis, world.review):
        events = (await window_events(caller))["events"]
        assert [(event["content"], event["routed"], event["agent_id"]) for event in events] == [
            ("the sky is blue", True, "planner"), ("it rains", True, "planner")
        ]  # fmt: skip
    assert before == await world.rows("SELECT COUNT(*) FROM changes WHERE line_id <> $1", f"window:{SESSION}:planner")
    await world.planner.call("window.unroute", session_id=SESSION, categories=["CONTEXT"], to_types=["review"])
    assert await contents(world.review) == []
    assert len(await contents(world.analysis)) == 2


@pytest.mark.req("MW-10")
async def test_routed_events_come_in_order_of_time(world: World) -> None:
    await create(world.planner, "analysis")
    await world.review.call("window.route", session_id=SESSION, categories=["DIALOG"], to_agents=["analysis"])
    for number, caller in enumerate((world.analysis, world.review, world.analysis, world.review)):
        world.clock.advance(seconds=1)
        await ingest(caller, message(f"e{number}", str(number)))
    assert await contents(world.analysis) == ["0", "1", "2", "3"]


@pytest.mark.req("MW-10")
async def test_a_peer_cannot_give_system_instructions_by_a_route(world: World) -> None:
    await create(world.planner, "analysis")
    await world.admin.call("agent.define", agent_id="review-2", system_prompt="be strict")
    await ingest(world.review, message("own", "be strict", role="system"))
    await world.review.call("window.route", session_id=SESSION, categories=["SYSTEM"], to_agents=["analysis"])
    await ingest(world.admin, message("rules", "be kind", role="system"), agent_id="planner")
    await world.planner.call("window.route", session_id=SESSION, categories=["SYSTEM"], to_agents=["analysis"])
    found = {e["content"]: (e["category"], e["role"]) for e in (await window_events(world.analysis))["events"]}
    assert found == {"be strict": ("CONTEXT", "user"), "be kind": ("SYSTEM", "system")}


@pytest.mark.req("MW-10")
async def test_nothing_is_routed_to_agents_that_the_session_does_not_admit(world: World) -> None:
    closed = await world.planner.create_session("closed", members=["orchestrator", "subagent:review:*"])
    await ingest(closed, FACTS)
    for target in ("analysis", "no-such-agent"):
        with refused("NOT_A_MEMBER"):
            await closed.call("window.route", session_id="closed", categories=["CONTEXT"], to_agents=[target])
    await closed.call("window.route", session_id="closed", categories=["CONTEXT"], to_types=["analysis", "review"])
    with refused("SESSION_NOT_FOUND"):
        await contents(world.analysis.in_session("closed"))
    await create(closed, "review-2")
    assert "the sky is blue" in await contents(world.review.in_session("closed"))


@pytest.mark.req("CE-F6")
async def test_the_threshold_is_announced_once_per_crossing(world: World) -> None:
    await create(world.analysis, model_max_tokens=100, reserved_tokens=0)
    for number in range(12):
        await ingest(world.analysis, message(f"e{number}", "x" * 40))
    (reached,) = await published(world.analysis, "window.threshold_reached")
    assert reached == {"agent_id": "analysis", "tokens": 80, "limit": 100, "threshold": 0.8}
    assert (await show(world.analysis))["threshold_reached"] is True
    await world.planner.call("history.rollback", context_id=f"window:{SESSION}:analysis", target_version=2)
    assert (await show(world.analysis))["threshold_reached"] is False
    await ingest(world.analysis, message("big", "y" * 400))
    assert len(await published(world.analysis, "window.threshold_reached")) == 2


@pytest.mark.req("CE-F7")
async def test_the_threshold_comes_from_the_window_else_the_definition_else_the_parents(world: World) -> None:
    await define(world, "planner", compaction={"threshold": 0.5, "strategy": "key_facts"})
    await create(world.planner, "analysis")
    assert (await show(world.analysis))["compaction_threshold"] == 0.5
    await define(world, "analysis", compaction={"threshold": 0.6})
    assert (await show(world.analysis))["compaction_threshold"] == 0.6
    await world.analysis.call("window.update", session_id=SESSION, compaction_threshold=0.7)
    assert (await show(world.analysis))["compaction_threshold"] == 0.7
    assert (await create(world.planner, "review-2"))["compaction_threshold"] == 0.5


@pytest.mark.req("CE-F6")
async def test_a_smaller_limit_can_reach_the_threshold(world: World) -> None:
    await create(world.analysis, model_max_tokens=1_000, reserved_tokens=0)
    await ingest(world.analysis, message("a", "x" * 400))
    await world.analysis.call("window.update", session_id=SESSION, model_max_tokens=120)
    assert len(await published(world.analysis, "window.threshold_reached")) == 1


async def test_a_window_is_created_once(world: World) -> None:
    await create(world.analysis)
    with refused("WINDOW_EXISTS"):
        await create(world.planner, "analysis")


async def test_a_deleted_window_is_gone_and_can_be_made_again(world: World) -> None:
    await ingest(world.analysis, message("a", "old"))
    answer = await world.analysis.call("window.delete", session_id=SESSION)
    assert answer["events"] == 1
    with refused("WINDOW_NOT_FOUND"):
        await show(world.analysis)
    await ingest(world.analysis, message("a", "new"))
    assert await contents(world.analysis) == ["new"]
    assert [e["agent_id"] for e in await published(world.analysis, "window.deleted")] == ["analysis"]
