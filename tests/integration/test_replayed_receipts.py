"""Replay of receipts: with the settings that they had, prompts come out as they were sent; with others, they differ."""

from __future__ import annotations

import pytest

from support.replays import recorded, services, tried, work_through
from support.world import World
from weft.capabilities.agent_context.compaction_settings import CompactionSettings
from weft.capabilities.recommendations.model import ProposedSettings
from weft.capabilities.recommendations.replay import Replay

TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"{name} something. " * 10, "parameters": {}}}
    for name in ("look_up", "send_mail", "draw_chart")
]


@pytest.mark.req("CE-F47")
@pytest.mark.parametrize("budget", [None, 1_500, 3_000])
async def test_with_the_same_settings_every_prompt_comes_out_as_it_was_sent(world: World, budget: int | None) -> None:
    await work_through(world, world.analysis, token_budget=budget)
    (window,) = await recorded(world, "analysis")
    replayed = Replay(window, await services()).as_recorded()
    differing = [
        (each.call.receipt.mode, each.call.receipt.tokens, each.plan and each.plan.mode, each.tokens)
        for each in replayed
        if not each.is_as_sent
    ]
    assert not differing
    assert [each.cost for each in replayed] == pytest.approx([c.receipt.savings.cost for c in window.calls])


async def test_without_a_tool_each_prompt_has_its_tokens_less(world: World) -> None:
    await work_through(world, world.analysis, form="openai_chat", tools=TOOLS)
    result = await tried(world, "analysis", ProposedSettings(without_tools=("draw_chart",)))
    trial = result.trial
    assert trial.reproduced == trial.calls == 12
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
    assert trial.reproduced == trial.calls == 24
    assert trial.tried_tokens < trial.tokens
    assert not trial.safe, "no answer was reported, so nobody knows whether what is left out was useful"
