"""The OpenAI Agents SDK: sessions, assembled prompts, guardrails and handoffs, with its scripted model."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from agents import Agent, Runner, Usage, UserError, function_tool, set_tracing_disabled
from agents.memory import SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.adapters.openai_agents import WeftlineRun, WeftlineSession
from weftline.errors import SystemUnavailable

set_tracing_disabled(disabled=True)


def item(text: str) -> Any:
    return {"role": "user", "content": text}


def message(text: str) -> list[Any]:
    return [assistant_message(text)]


def call(name: str, arguments: dict[str, Any]) -> list[Any]:
    return [function_call(name, arguments, call_id=f"call-{len(str(arguments))}")]


def sent(model: ScriptedModel, number: int = -1) -> str:
    return str(model.calls[number].input)


async def test_a_session_keeps_items_as_they_were_with_every_client(any_client: Any) -> None:
    session = WeftlineSession("talk", any_client, strict=True)
    await session.clear_session()
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"}
    items = [item("one"), reasoning, {"role": "assistant", "content": [{"type": "output_text", "text": "1.0"}]}]
    await session.add_items(items[:2])
    await WeftlineSession("talk", any_client, strict=True).add_items(items[2:])
    assert await session.get_items() == items
    assert await session.get_items(limit=2) == items[1:]
    assert await session.get_items(limit=0) == []
    assert await session.pop_item() == items[2]
    assert await WeftlineSession("talk", any_client, strict=True).get_items() == items[:2]
    assert await WeftlineSession("other", any_client, strict=True).get_items() == []
    limited = WeftlineSession("talk", any_client, session_settings=SessionSettings(limit=1), strict=True)
    assert await limited.get_items() == [reasoning]
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None


async def test_items_are_paged_and_stay_in_order(opened: Weftline) -> None:
    session = WeftlineSession("long", opened, strict=True)
    await session.add_items([item(str(n)) for n in range(230)])
    assert [each["content"] for each in await session.get_items()] == [str(n) for n in range(230)]


async def test_a_run_goes_on_where_the_last_one_ended(opened: Weftline) -> None:
    model = ScriptedModel([message("Hello Bo."), message("You are Bo.")])
    agent = Agent("assistant", model=model)
    await Runner.run(agent, "I am Bo", session=WeftlineSession("talk", opened, strict=True))
    result = await Runner.run(agent, "Who am I?", session=WeftlineSession("talk", opened, strict=True))
    assert result.final_output == "You are Bo."
    assert "I am Bo" in sent(model)


async def test_a_run_sends_the_assembled_prompt_and_reports_its_usage(opened: Weftline) -> None:
    await opened.session.create("Slow orders", session_id="orders")
    await opened.board.write("orders", "scope", "Change nothing.")
    usage = Usage(requests=1, input_tokens=310, output_tokens=12, total_tokens=322)
    model = ScriptedModel([message("The cache.")], default_usage=usage)
    run = WeftlineRun(opened, "orders", strict=True)
    session = WeftlineSession("orders", opened, strict=True)
    agent = Agent("finder", model=model, instructions="You find causes.")
    await Runner.run(agent, "Why are orders slow?", run_config=run.config, hooks=run, session=session)
    instructions = str(model.last_call.system_instructions)
    assert instructions.startswith("You find causes.")
    assert "weftline:layer" in instructions
    assert "Change nothing." in sent(model)
    assert sent(model).count("Why are orders slow?") == 1
    assert (await opened.usage.report()).total.input_tokens == 310
    assert (await opened.window.events("orders")).events[0].content == "Why are orders slow?"


async def test_a_guardrail_prohibits_a_tool_and_the_model_reads_why(opened: Weftline) -> None:
    rule = {"name": "no-metrics", "prohibited_action": ["read_metric"], "condition": "arguments.name == 'secret'"}
    await opened.layer.define("tenant", guardrails=[rule])
    run = WeftlineRun(opened, "s", strict=True)
    called = []

    @function_tool(tool_input_guardrails=[run.guardrail])
    def read_metric(name: str) -> str:
        called.append(name)
        return "0.61"

    model = ScriptedModel(
        [
            call("read_metric", {"name": "open"}),
            call("read_metric", {"name": "secret"}),
            message("I cannot."),
        ]
    )
    agent = Agent("finder", model=model, tools=[read_metric])
    result = await Runner.run(agent, "Read both", run_config=run.config, hooks=run)
    assert called == ["open"]
    outputs = [each["output"] for each in result.to_input_list() if each.get("type") == "function_call_output"]
    assert "no-metrics" in outputs[1]


async def test_agents_of_a_handoff_have_windows_of_their_own(opened: Weftline) -> None:
    await opened.agent.create("planner")
    await opened.agent.create("writer", parent_id="planner")
    await opened.session.create("Launch", session_id="launch", members=["planner", "writer"])
    run = WeftlineRun(
        opened.acting_as("planner"), "launch", clients={"writer": opened.acting_as("writer")}, strict=True
    )
    writer = Agent("writer", model=ScriptedModel([message("Done.")]))
    planner = Agent("planner", model=ScriptedModel([call("transfer_to_writer", {})]), handoffs=[writer])
    result = await Runner.run(planner, "Write it", run_config=run.config, hooks=run)
    assert result.final_output == "Done."
    windows = {each.agent_id for each in (await opened.window.list("launch")).windows}
    assert windows == {"planner", "writer"}


async def test_a_compaction_of_the_session_compacts_the_window(opened: Weftline) -> None:
    session = WeftlineSession("talk", opened, strict=True)
    await session.run_compaction()
    turns = [item(f"We decided that release {n} ships on Friday. " + "More about it. " * 20) for n in range(30)]
    run = WeftlineRun(opened, "talk", strict=True)
    agent = Agent("assistant", model=ScriptedModel([message("Good.")]))
    await Runner.run(agent, turns, run_config=run.config, hooks=run)
    await session.run_compaction({"force": True})
    assert (await opened.compaction.list("talk")).compactions


async def test_a_run_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        session, run = WeftlineSession("s", nobody), WeftlineRun(nobody, "s")
        model = ScriptedModel([message("Hello."), message("Again.")])
        agent = Agent("assistant", model=model)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            await Runner.run(agent, "one", session=session, run_config=run.config, hooks=run)
            await Runner.run(agent, "two", session=session, run_config=run.config, hooks=run)
        assert [each["content"] for each in await session.get_items() if each.get("role") == "user"] == ["one", "two"]
        assert await session.pop_item() is not None
        assert [each.category for each in warned] == [AdapterWarning, AdapterWarning]  # one of each
        with pytest.raises(SystemUnavailable):
            await WeftlineSession("s", nobody, strict=True).get_items()


def test_bad_input_raises_what_the_sdk_raises(opened: Weftline) -> None:
    with pytest.raises(UserError, match="id"):
        WeftlineSession("", opened)
