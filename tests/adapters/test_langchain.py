"""LangChain agents with Weftline's middleware, with a scripted model."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from pydantic import PrivateAttr

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.adapters.langchain import WeftlineMiddleware
from weftline.adapters.langgraph import WeftlineSaver
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable

USAGE = {"input_tokens": 310, "output_tokens": 12, "total_tokens": 322, "input_token_details": {"cache_read": 200}}


class Scripted(BaseChatModel):
    """Answers as its script says, and keeps what it was sent."""

    script: list[AIMessage]
    _sent: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **options: Any) -> Scripted:  # noqa: ARG002 - LangChain's signature
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self._sent.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.script[len(self._sent) - 1])])


@tool
def read_metric(name: str) -> str:
    """Read a metric."""
    return f"{name} is 0.61, key AKIAIOSFODNN7EXAMPLE"


def calls(**args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"id": "c1", "name": "read_metric", "args": args}])


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


async def test_each_model_call_gets_the_assembled_prompt_with_every_client(any_client: Any) -> None:
    model = Scripted(script=[calls(name="hit_ratio"), AIMessage("The cache.", usage_metadata=USAGE)])
    weftline = WeftlineMiddleware(any_client, session_id="orders", strict=True)
    agent = create_agent(model, [read_metric], system_prompt="You find causes.", middleware=[weftline])
    asked = {"messages": [HumanMessage("Why are orders slow?")]}
    if isinstance(any_client, SyncOperations):
        any_client.session.create("Slow orders", session_id="orders", exist_ok=True)
        any_client.board.write("orders", "scope", "Change nothing.")
        agent.invoke(asked)
        usage = any_client.usage.report().total
        events = any_client.window.events("orders").events
    else:
        await any_client.session.create("Slow orders", session_id="orders", exist_ok=True)
        await any_client.board.write("orders", "scope", "Change nothing.")
        await agent.ainvoke(asked)
        usage = (await any_client.usage.report()).total
        events = (await any_client.window.events("orders")).events
    first, second = model._sent
    assert first[0].text.startswith("You find causes.")
    assert "weftline:layer" in first[0].text
    assert any("Change nothing." in message.text for message in first)
    assert [type(each) for each in second if isinstance(each, ToolMessage)] == [ToolMessage]
    assert usage.calls >= 1
    assert [each.role for each in events][:3] == ["user", "assistant", "tool"]


async def test_a_thread_is_a_session_and_its_history_stays_within_the_budget(opened: Weftline) -> None:
    model = Scripted(script=[AIMessage(f"Answer {n}.") for n in range(8)])
    agent = create_agent(
        model,
        middleware=[WeftlineMiddleware(opened, strict=True, token_budget=1_500)],
        checkpointer=WeftlineSaver(opened),
    )
    for n in range(8):
        question = f"Question {n}: " + "what about this detail of the plan? " * 30
        state = await agent.ainvoke({"messages": [HumanMessage(question)]}, thread("launch"))
    assert len(state["messages"]) == 16
    assert len(model._sent[-1]) < 10
    assert any("Question 7" in each.text for each in model._sent[-1])
    assert len((await opened.receipt.list(session_id="launch")).receipts) == 8


async def test_messages_in_the_prompt_are_the_objects_of_the_conversation(opened: Weftline) -> None:
    model = Scripted(script=[AIMessage("Yes.")])
    before = AIMessage("Hello.", id="kept", response_metadata={"signature": "abc"})
    agent = create_agent(model, middleware=[WeftlineMiddleware(opened, session_id="s", strict=True)])
    await agent.ainvoke({"messages": [HumanMessage("Hi"), before, HumanMessage("Ready?")]})
    assert any(each.response_metadata == {"signature": "abc"} for each in model._sent[0])


async def test_a_guardrail_prohibits_a_tool_and_the_model_reads_why(opened: Weftline) -> None:
    rule = {"name": "no-metrics", "prohibited_action": ["read_metric"], "message": "Ask Dana."}
    await opened.layer.define("tenant", guardrails=[rule])
    model = Scripted(script=[calls(name="x"), AIMessage("I cannot.")])
    agent = create_agent(model, [read_metric], middleware=[WeftlineMiddleware(opened, session_id="s")])
    state = await agent.ainvoke({"messages": [HumanMessage("Read it")]})
    answer = next(each for each in state["messages"] if isinstance(each, ToolMessage))
    assert (answer.status, "Ask Dana." in answer.text) == ("error", True)


async def test_a_guardrail_masks_what_a_tool_answers(opened: Weftline) -> None:
    rule = {
        "name": "no-secrets",
        "prohibited_action": ["read_metric"],
        "condition": "has(answer.content)",
        "violation_response": "redact",
    }
    await opened.layer.define("tenant", guardrails=[rule])
    model = Scripted(script=[calls(name="x"), AIMessage("Done.")])
    agent = create_agent(model, [read_metric], middleware=[WeftlineMiddleware(opened, session_id="s", strict=True)])
    state = await agent.ainvoke({"messages": [HumanMessage("Read it")]})
    answer = next(each for each in state["messages"] if isinstance(each, ToolMessage))
    assert "AKIA" not in answer.text
    assert answer.text.startswith("x is 0.61")


def test_an_agent_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        model = Scripted(script=[calls(name="x"), AIMessage("Done.", usage_metadata=USAGE)])
        weftline = WeftlineMiddleware(nobody)
        agent = create_agent(model, [read_metric], middleware=[weftline])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            state = agent.invoke({"messages": [HumanMessage("Read it")]})
        assert state["messages"][-1].text == "Done."
        assert [each.category for each in warned] == [AdapterWarning]
        assert len(weftline.bridge.failures) == 4
        with pytest.raises(SystemUnavailable):
            create_agent(model, middleware=[WeftlineMiddleware(nobody, strict=True)]).invoke(
                {"messages": [HumanMessage("Hi")]}
            )
