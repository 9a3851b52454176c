"""Replay of receipts: with the settings that they had, prompts come out as they were sent; with others, they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from support.replays import converse, recorded, services, tried, work_through
from support.world import World
from weftline.insight.recommendations.model import ProposedSettings
from weftline.insight.recommendations.recorded_calls import Replay
from weftline.insight.recommendations.trials import Control, try_proposal
from weftline.state.agent_context.settings import CompactionSettings
from weftline.windows.compaction.compactor import Compactor

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weftline.insight.recommendations.recorded_calls import ReplayedCall

TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} something. " * 10, "parameters": {}}}
    for name in ("look_up", "send_mail", "draw_chart")
]


def differing(replayed: Iterable[ReplayedCall]) -> list[Any]:
    """Return the calls that do not come out as they were sent."""
    return [
        (each.call.receipt.mode, each.call.receipt.tokens, each.plan and each.plan.mode, each.tokens)
        for each in replayed
        if not each.is_as_sent
    ]


@pytest.mark.req("CE-F47", part="model, compaction, shares, tools, documents, pins and minimum score")
@pytest.mark.parametrize("budget", [None, 1_500, 3_000])
async def test_with_the_same_settings_every_prompt_comes_out_as_it_was_sent(world: World, budget: int | None) -> None:
    await work_through(world, world.analysis, token_budget=budget)
    (window,) = await recorded(world, "analysis")
    replayed = list(Replay(window, await services()).in_sequence())
    assert not differing(replayed)
    assert [each.cost for each in replayed] == pytest.approx([c.receipt.savings.cost for c in window.calls])


@pytest.mark.parametrize("budget", [600, 900, 1_000])
async def test_passages_of_the_conversation_itself_are_replayed(world: World, budget: int | None) -> None:
    """An event can be in the conversation and found by search: its passage has tokens and a score of its own."""
    await converse(world, world.analysis, rounds=8, token_budget=budget)
    (window,) = await recorded(world, "analysis")
    assert any(each.score for call in window.calls for each in call.receipt.repeated)
    assert not differing(Replay(window, await services()).in_sequence())


async def test_what_is_pinned_and_on_the_board_or_in_the_conversation_is_replayed(world: World) -> None:
    caller = world.analysis
    await caller.call("board.write", session_id="s1", key="goal", value="Answer the questions of customers. " * 5)
    await world.planner.call("pin.add", session_id="s1", key="goal")
    await converse(world, caller, rounds=5, token_budget=900)
    (window,) = await recorded(world, "analysis")
    kinds = {
        (each.ref, each.kind) for call in window.calls for each in (*call.receipt.candidates, *call.receipt.repeated)
    }
    assert {("board:s1/goal", "pin"), ("board:s1/goal", "board")} <= kinds
    assert not differing(Replay(window, await services()).in_sequence())


async def test_a_minimum_score_concerns_passages_and_not_the_conversation(world: World) -> None:
    await converse(world, world.analysis, rounds=8)
    (window,) = await recorded(world, "analysis")
    result = await tried(world, "analysis", ProposedSettings(min_score=1.0))
    scored = [each for call in window.calls for each in call.receipt.repeated if each.score is not None]
    assert scored
    assert all(each.score < 1 for each in scored)
    assert result.trial.changed == 0, "each event is in the conversation, whatever its score as a passage"


async def test_a_minimum_score_leaves_out_passages_of_events_that_have_no_room(world: World) -> None:
    await converse(world, world.analysis, rounds=8, token_budget=400)
    trial = (await tried(world, "analysis", ProposedSettings(min_score=1.0))).trial
    assert trial.exact == trial.calls
    assert trial.dropped > 0
    assert trial.changed > 0


async def test_a_budget_of_tokens_is_tried(world: World) -> None:
    await converse(world, world.analysis, rounds=6)
    same = (await tried(world, "analysis", ProposedSettings(token_budget=100_000))).trial
    assert (same.changed, same.drift_tokens) == (0, 0)
    less = await tried(world, "analysis", ProposedSettings(token_budget=400))
    assert less.trial.tried_tokens < less.trial.tokens
    assert max(each.tried_tokens for each in less.calls) <= 400
    none = (await tried(world, "analysis", ProposedSettings(token_budget=20))).trial
    assert none.failed == none.calls


async def test_calls_that_do_not_come_out_as_they_were_are_drift_and_no_proof(world: World) -> None:
    await converse(world, world.analysis, rounds=4)
    (window,) = await recorded(world, "analysis")
    # Receipts that the replay cannot reproduce.
    calls = [
        call._replace(receipt=structs.replace(call.receipt, tokens=call.receipt.tokens + 5)) for call in window.calls
    ]
    used = await services()
    control = Control([window._replace(calls=calls)], used)
    trial = (await try_proposal(control, ProposedSettings(), used, Compactor())).trial
    assert (trial.exact, trial.drift_tokens, trial.changed) == (0, 5 * 4, 0)
    assert not trial.safe
    assert "replayed exactly" in trial.risks[0]


async def test_without_a_tool_each_prompt_has_its_tokens_less(world: World) -> None:
    # The answer of the last call is not known.
    await work_through(world, world.analysis, rounds=21, form="openai_chat", tools=TOOLS)
    result = await tried(world, "analysis", ProposedSettings(without_tools=("draw_chart",)))
    trial = result.trial
    assert trial.exact == trial.calls == 21
    sizes = {each.tokens - each.tried_tokens for each in result.calls}
    assert len(sizes) == 1
    assert sizes.pop() > 20
    assert trial.dropped == 0
    assert trial.safe
    assert trial.saved_cost is not None
    assert trial.saved_cost > 0


async def test_an_earlier_compaction_shortens_what_was_said(world: World) -> None:
    await work_through(world, world.analysis, rounds=24)
    proposal = ProposedSettings(compaction=CompactionSettings(strategy="key_facts", threshold=0.01, keep_recent=4))
    trial = (await tried(world, "analysis", proposal)).trial
    assert trial.exact == trial.calls == 24
    assert trial.tried_tokens < trial.tokens
    assert not trial.safe, "no answer was reported, so nobody knows whether what is left out was useful"
