"""AutoGen with Weftline: a memory that an agent with a scripted model is given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from weftline import SyncClient, Weftline
from weftline.adapters.bridge import AdapterWarning
from weftline.client._operations import SyncOperations
from weftline.errors import SystemUnavailable

pytest.importorskip("autogen_agentchat", reason="make adapters installs AutoGen")

from autogen_agentchat.agents import AssistantAgent
from autogen_core.memory import MemoryContent, MemoryMimeType
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage

from weftline.adapters.autogen import WeftlineMemory


class ScriptedClient(ChatCompletionClient):
    """Answers the same each time, and keeps what it was sent."""

    @property
    def model_info(self) -> Any:
        return {"vision": False, "function_calling": True, "json_output": False, "family": "unknown"}

    capabilities = model_info

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        self.sent.append(str(messages))
        return CreateResult(finish_reason="stop", content="Hello.", usage=self.total_usage(), cached=False)

    def create_stream(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def actual_usage(self) -> RequestUsage:
        return self.total_usage()

    def total_usage(self) -> RequestUsage:
        return RequestUsage(prompt_tokens=1, completion_tokens=1)

    def count_tokens(self, *_: Any, **__: Any) -> int:
        return 1

    def remaining_tokens(self, *_: Any, **__: Any) -> int:
        return 1


def content(text: str) -> MemoryContent:
    return MemoryContent(content=text, mime_type=MemoryMimeType.TEXT)


async def test_an_agent_is_given_what_it_remembers_and_what_others_wrote_with_every_client(any_client: Any) -> None:
    async def done(step: Any) -> Any:
        return step if isinstance(any_client, SyncOperations) else await step

    await done(any_client.session.create("Slow orders", session_id="slow-autogen", exist_ok=True))
    await done(any_client.board.write("slow-autogen", "cause", "Orders are slow because of the price cache."))
    memory = WeftlineMemory(any_client, session_id="slow-autogen", strict=True)
    await memory.clear()
    await memory.add(content("Bo wants short answers about slow orders."))
    client = ScriptedClient()
    await AssistantAgent("desk", client, memory=[memory]).run(task="Why are orders slow? Is it the price cache?")
    assert "because of the price cache" in client.sent[0]
    again = WeftlineMemory(any_client, session_id="slow-autogen", strict=True)
    assert any("short answers" in str(each.content) for each in (await again.query("short answers")).results)
    assert (await again.query(" ")).results == []
    await again.clear()
    assert not any("short answers" in str(each.content) for each in (await again.query("short answers")).results)


async def test_bad_input_raises_what_autogen_raises(opened: Weftline) -> None:
    with pytest.raises(ValueError, match="Unsupported content type"):
        await WeftlineMemory(opened).add(MemoryContent(content=b"x", mime_type=MemoryMimeType.BINARY))


async def test_an_agent_goes_on_without_weftline_and_its_user_is_warned_once() -> None:
    with SyncClient("http://127.0.0.1:9", "weftline.k.k", retries=0) as nobody:
        memory = WeftlineMemory(nobody)
        client = ScriptedClient()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", AdapterWarning)
            await memory.add(content("Bo likes tea."))
            await AssistantAgent("desk", client, memory=[memory]).run(task="What does Bo like?")
        assert "Bo likes tea." in client.sent[0]
        assert len([each for each in warned if each.category is AdapterWarning]) == 1
        with pytest.raises(SystemUnavailable):
            await WeftlineMemory(nobody, strict=True).query("tea")
