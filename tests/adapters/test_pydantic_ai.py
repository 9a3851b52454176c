"""Pydantic AI with Weftline: assembled prompts, guardrails and stored conversations, with its function model."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.adapters.pydantic_ai import WeftlineCapability, WeftlineConversationStore
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable


class Scripted:
    """Answers as its script says, and keeps what it was sent."""

    def __init__(self, *answers: ModelResponse) -> None:
        self.sent: list[tuple[list[ModelMessage], str]] = []
        self._answers = answers

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self._answer)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.sent.append((messages, info.instructions or ""))
        return self._answers[len(self.sent) - 1]


USAGE = RequestUsage(input_tokens=310, output_tokens=12)


def says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)], usage=USAGE)


def calls(name: str) -> ModelResponse:
    parts = [ThinkingPart("Hm.", signature="abc"), ToolCallPart("read_metric", {"name": name})]
    return ModelResponse(parts=parts, usage=USAGE)


def read_metric(name: str) -> str:
    """Read a metric."""
    return f"{name} is 0.61, key AKIAIOSFODNN7EXAMPLE"


async def test_each_request_has_the_assembled_prompt_with_every_client(any_client: Any) -> None:
    script = Scripted(calls("hit_ratio"), says("The cache."))
    capability = WeftlineCapability(any_client, session_id="slow", strict=True)
    agent = Agent(script.model, instructions="You find causes.", tools=[read_metric], capabilities=[capability])
    if isinstance(any_client, SyncOperations):
        any_client.session.create("Slow orders", session_id="slow", exist_ok=True)
        any_client.board.write("slow", "scope", "Change nothing.")
        result = await agent.run("Why are orders slow?")
        usage, events = any_client.usage.report().total, any_client.window.events("slow").events
    else:
        await any_client.session.create("Slow orders", session_id="slow", exist_ok=True)
        await any_client.board.write("slow", "scope", "Change nothing.")
        result = await agent.run("Why are orders slow?")
        usage = (await any_client.usage.report()).total
        events = (await any_client.window.events("slow")).events
    assert result.output == "The cache."
    (messages, instructions), (later, _) = script.sent
    assert instructions.startswith("You find causes.")
    assert "weftline:layer" in instructions
    assert "Change nothing." in str(messages)
    # The call of the tool is the object that the model made, with its thoughts.
    assert any(isinstance(part, ThinkingPart) for each in later for part in each.parts)
    assert any(
        isinstance(part, ToolReturnPart) and "0.61" in str(part.content) for each in later for part in each.parts
    )
    assert usage.calls >= 1
    assert [each.role for each in events][:3] == ["user", "assistant", "tool"]
    # The history of the agent is its own.
    assert "weftline:data" not in str([part for each in result.all_messages() for part in each.parts])


async def test_a_guardrail_prohibits_a_tool_and_masks_what_another_answers(opened: Weftline) -> None:
    rules = [
        {"name": "no-secret", "prohibited_action": ["read_metric"], "condition": "arguments.name == 'secret'"},
        {
            "name": "mask",
            "prohibited_action": ["read_metric"],
            "condition": "has(answer.content)",
            "violation_response": "redact",
        },
    ]
    await opened.layer.define("tenant", guardrails=rules)
    script = Scripted(calls("secret"), calls("open"), says("Done."))
    capability = WeftlineCapability(opened, session_id="s", strict=True)
    result = await Agent(script.model, tools=[read_metric], capabilities=[capability]).run("Read both")
    answers = [
        str(part.content) for each in result.all_messages() for part in each.parts if isinstance(part, ToolReturnPart)
    ]
    assert "no-secret" in answers[0]
    assert answers[1].startswith("open is 0.61")
    assert "AKIA" not in answers[1]


async def test_a_conversation_is_saved_branched_and_continued_with_every_client(any_client: Any) -> None:
    agent = Agent(TestModel(custom_output_text="Hello."))
    store, name = WeftlineConversationStore(any_client, strict=True), f"bo/{type(any_client).__name__}"
    assert await store.load(name) is None
    for question in ("one", "two"):
        conversation = await store.load(name, scope="bo") or Conversation(conversation_id=name)
        await store.save(await agent.run(question, conversation=conversation), scope="bo")
    again = WeftlineConversationStore(any_client, strict=True)
    loaded = await again.load(name, scope="bo")
    assert loaded is not None
    assert len(loaded.messages) == 4
    assert [each.conversation_id for each in await again.read_records(scope="bo")] == [name]
    assert await again.read_records(scope="cy") == []
    stale = await again.load(name)
    await again.save(await agent.run("three", conversation=loaded))
    with pytest.raises(ConversationConflict):
        await store.save(await agent.run("late", conversation=stale))
    record = await again.read_record(name)
    assert record is not None
    await again.delete_record(name, expected_revision=record.revision)
    assert await again.load(name) is None
    with pytest.raises(ConversationConflict):
        await again.delete_record(name, expected_revision=record.revision)


async def test_of_two_programs_that_save_at_once_one_succeeds(opened: Weftline) -> None:
    agent = Agent(TestModel(custom_output_text="Hello."))
    stores = [WeftlineConversationStore(opened) for _ in range(2)]
    await stores[0].save(await agent.run("one", conversation=Conversation(conversation_id="c")))
    runs = [await agent.run(str(n), conversation=await store.load("c")) for n, store in enumerate(stores)]
    saved = await asyncio.gather(
        *(store.save(run) for store, run in zip(stores, runs, strict=True)), return_exceptions=True
    )
    assert sorted(type(each) for each in saved if isinstance(each, Exception)) == [ConversationConflict]


async def test_an_agent_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        capability, store = WeftlineCapability(nobody), WeftlineConversationStore(nobody)
        script = Scripted(calls("x"), says("Done."))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", AdapterWarning)
            result = await Agent(script.model, tools=[read_metric], capabilities=[capability]).run("Go")
            await store.save(result)
        assert result.output == "Done."
        assert (await store.read_records())[0].conversation_id == result.conversation_id
        assert len([each for each in warned if each.category is AdapterWarning]) == 2  # one of each
        with pytest.raises(SystemUnavailable):
            await WeftlineConversationStore(nobody, strict=True).load("c")
