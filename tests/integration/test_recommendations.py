"""Recommendations: what the last calls of an agent suggest, tried on these calls before anything is switched."""

from __future__ import annotations

from typing import Any

import pytest

from support.replays import score, work_through
from support.world import World, outcome, refused

CALLS = 24
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} something. " * 20, "parameters": {}}}
    for name in ("look_up", "send_mail", "draw_chart")
]


def kinds(answer: Any) -> dict[str, Any]:
    return {each["kind"]: each for each in answer["recommendations"]}


@pytest.fixture
async def used(world: World) -> World:
    """Return a world in which an agent has made calls whose answers used the conversation and one board key."""
    await work_through(world, world.analysis, rounds=CALLS, form="openai_chat", tools=TOOLS, token_budget=60_000)
    await score(world, lambda ref: ref.startswith("window:") or ref.endswith("/goal"))
    return world


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
async def test_what_no_call_used_is_recommended_with_evidence_and_can_be_tried(used: World) -> None:
    found = kinds(await used.analysis.call("advise.list"))
    assert {"tools", "board_keys", "model"} <= found.keys()
    tools = await used.analysis.call("advise.show", recommendation_id=found["tools"]["recommendation_id"])
    assert set(tools["subjects"]) == {"draw_chart", "send_mail"}
    assert tools["evidence"][0]["count"] == CALLS
    assert tools["safe"]
    assert tools["trial"]["lost"] == 0
    keys = await used.analysis.call("advise.show", recommendation_id=found["board_keys"]["recommendation_id"])
    assert keys["subjects"] == ["board:s1/status"]
    assert keys["command"] == "weftline board delete --session s1 status --yes"
    tried = await used.analysis.call("advise.try", recommendation_id=keys["recommendation_id"])
    assert tried["trial"]["tried_tokens"] < tried["trial"]["tokens"]
    assert tried["trial"]["kept"] == tried["trial"]["useful"]
    assert len(tried["tried"]) == tried["trial"]["calls"]


async def test_a_trial_switches_nothing(used: World) -> None:
    before = (await used.analysis.call("receipt.list", limit=1))["receipts"]
    await used.analysis.call("advise.try", settings={"without_items": ["board:s1/goal"]})
    assert (await used.analysis.call("receipt.list", limit=1))["receipts"] == before
    assert (await used.analysis.call("board.read", session_id="s1", key="goal"))["value"]


async def test_a_proposal_that_loses_what_answers_used_is_not_safe(used: World) -> None:
    lost = await used.analysis.call("advise.try", settings={"without_items": ["board:s1/goal"]})
    assert lost["trial"]["lost"] == CALLS
    assert not lost["trial"]["safe"]
    assert lost["tried"][0]["lost"] == ["board:s1/goal"]


async def test_another_model_is_never_called_safe(used: World) -> None:
    found = kinds(await used.analysis.call("advise.list"))["model"]
    assert not found["safe"]
    assert found["saved_cost"] > 0


async def test_recommendations_are_for_the_agent_its_ancestors_and_admins(used: World) -> None:
    name = kinds(await used.analysis.call("advise.list"))["tools"]["recommendation_id"]
    assert kinds(await used.admin.call("advise.list"))["tools"]["recommendation_id"] == name
    assert (await used.planner.call("advise.show", recommendation_id=name))["recommendation_id"] == name
    assert await outcome(used.review.call("advise.show", recommendation_id=name)) == "RECOMMENDATION_NOT_FOUND"
    assert await outcome(used.review.call("advise.list", agent_id="analysis")) == "PERMISSION_DENIED"
    assert await outcome(used.stranger.call("advise.show", recommendation_id=name)) == "RECOMMENDATION_NOT_FOUND"
    assert (await used.stranger.call("advise.list"))["analysed"] == {}
    assert await outcome(used.analysis.call("advise.show", recommendation_id="analysis.pins.000000")) == (
        "RECOMMENDATION_NOT_FOUND"
    )


async def test_plans_without_recommendations_refuse_them(world: World) -> None:
    await world.app.tenants.set_plan(world.tenant, "pro")
    assert await outcome(world.analysis.call("advise.list")) == "QUOTA_EXCEEDED"


async def test_unknown_categories_of_shares_are_named_with_those_that_there_are(world: World) -> None:
    with refused("INVALID_INPUT_FORMAT") as caught:
        await world.analysis.call("advise.try", settings={"shares": {"dialog": 0.5}})
    assert caught.value.message.startswith("settings.shares: Invalid enum value 'dialog'; use one of SYSTEM, ")
    assert caught.value.context["field"] == "settings.shares"


async def test_either_a_recommendation_or_settings_can_be_tried(world: World) -> None:
    assert await outcome(world.analysis.call("advise.try")) == "INVALID_INPUT_FORMAT"
    tried = await world.analysis.call("advise.try", settings={"min_score": 0.5})
    assert tried["trial"]["calls"] == 0
    assert not tried["trial"]["safe"]


async def test_documents_that_no_answer_uses_are_named(world: World) -> None:
    await work_through(world, world.analysis, rounds=CALLS, topics=1)
    await score(world, lambda ref: ref.startswith("window:"))
    found = kinds(await world.analysis.call("advise.list"))
    assert found["documents"]["saved_tokens"] > 0
