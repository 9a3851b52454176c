"""Rendered prompts are accepted over HTTP in every wire form; the usage that comes back is understood."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from support.scripted_provider import FORMS, Answer, ScriptedProvider, invalid, scripted_provider
from support.wire_forms import MODELS
from weftline.models.language_models import wire_forms
from weftline.models.language_models.answer_usage import normalise_usage
from weftline.models.language_models.catalog import load_catalog
from weftline.models.language_models.content import (
    ConversationMessage,
    Prompt,
    PromptBlock,
    ToolCall,
    ToolDefinition,
)

CATALOG = load_catalog()
PATHS = {form: path for path, form in FORMS.items()} | {"gemini": f"/v1beta/models/{MODELS['gemini']}:generateContent"}
CALL = ToolCall("call_1", "search", '{"q":"logs"}')
TOOL = ToolDefinition("search", "Search the logs.", {"type": "object", "properties": {"q": {"type": "string"}}})


def prompt(form: str, talk: list[ConversationMessage]) -> Prompt:
    rules = ConversationMessage(role="system", content="You are careful. " * 1_000)
    blocks = (
        PromptBlock("layer", "layer", (rules,), cache_point=True),
        PromptBlock("talk", "conversation", tuple(talk), cache_point=True),
    )
    return Prompt(MODELS[form], (TOOL,), blocks, 500)


async def send(
    provider: ScriptedProvider, form: Any, talk: list[ConversationMessage], **options: Any
) -> httpx2.Response:
    body = wire_forms.render(form, prompt(form, talk), CATALOG.find(MODELS[form]))
    async with httpx2.AsyncClient(base_url=provider.url, **options) as client:
        return await client.post(PATHS[form], content=wire_forms.encode_body(body))


def answered(form: Any, answer: dict[str, Any]) -> list[ConversationMessage]:
    """The messages of an answer, parsed as the caller would send them back."""
    if form == "openai_chat":
        return wire_forms.parse(form, [answer["choices"][0]["message"]]).messages
    if form == "openai_responses":
        return wire_forms.parse(form, answer["output"]).messages
    if form == "gemini":
        return wire_forms.parse(form, [answer["candidates"][0]["content"]]).messages
    return wire_forms.parse(form, [{"role": "assistant", "content": answer["content"]}]).messages


@pytest.mark.parametrize("form", sorted(MODELS))
async def test_a_loop_with_a_tool_reads_the_cache(form: Any) -> None:
    talk = [ConversationMessage(role="user", content="Find the fault.")]
    async with scripted_provider(Answer(text="Looking.", tool_calls=(CALL,)), now=lambda: 0.0) as provider:
        first = await send(provider, form, talk)
        assert first.status_code == 200
        talk += [*answered(form, first.json()), ConversationMessage(role="tool", content="none", tool_call_id="call_1")]
        second = await send(provider, form, talk)
    assert second.status_code == 200
    before, after = (normalise_usage(each.json().get("usage") or each.json()) for each in (first, second))
    assert before.cache_read_tokens == 0
    assert after.cache_read_tokens >= (before.cache_write_tokens or 1_024) > 1_000
    assert [call.usage for call in provider.calls] == [before, after]
    assert [message.content for message in answered(form, second.json())] == ["Done."]


@pytest.mark.parametrize("status", [429, 500])
async def test_it_fails_as_told(status: int) -> None:
    talk = [ConversationMessage(role="user", content="hi")]
    async with scripted_provider(Answer(status=status, headers={"retry-after": "1"})) as provider:
        failed = await send(provider, "anthropic", talk)
        assert (failed.status_code, failed.headers["retry-after"]) == (status, "1")
        assert (await send(provider, "anthropic", talk)).status_code == 200


async def test_it_keeps_callers_waiting_hangs_up_and_talks_nonsense() -> None:
    talk = [ConversationMessage(role="user", content="hi")]
    script = [Answer(failure="timeout"), Answer(failure="disconnect"), Answer(failure="malformed")]
    async with scripted_provider(*script) as provider:
        with pytest.raises(httpx2.ReadTimeout):
            await send(provider, "openai_chat", talk, timeout=0.05)
        with pytest.raises(httpx2.RemoteProtocolError):
            await send(provider, "openai_chat", talk)
        with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
            (await send(provider, "openai_chat", talk)).json()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("form", "body", "reason"),
    [
        ("anthropic", {"messages": [{"role": "assistant", "content": []}], "max_tokens": 1}, "must be of the user"),
        ("openai_chat", {"messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]}, "no call"),
        ("openai_responses", {"input": [{"type": "function_call", "call_id": "x"}]}, "differ"),
    ],
)
def test_it_refuses_what_providers_refuse(form: Any, body: dict[str, Any], reason: str) -> None:
    assert reason in (invalid(form, {"model": "m", **body}) or "")
