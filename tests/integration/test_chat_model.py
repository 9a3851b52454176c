"""The chat model of an installation: checked at the start and by the doctor, metered for the tenant it works for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from support.scripted_provider import Answer, ScriptedProvider, scripted_provider
from support.world import World
from weftline.app.app import App
from weftline.app.diagnostics import CheckStatus
from weftline.app.diagnostics.checks import check_chat_model, examine
from weftline.models.language_models.chat_model import ChatCaller, ChatMessage, ChatModelError, ChatRequest
from weftline.settings import InvalidSetting, Settings

KEY = "sk-not-for-any-log"


@pytest.fixture
async def service() -> AsyncIterator[ScriptedProvider]:
    async with scripted_provider() as service:
        yield service


def with_model(world: World, service: ScriptedProvider, **changed: Any) -> Settings:
    given = {"chat_model": "openai:small", "chat_url": f"{service.url}/v1", "chat_api_key": KEY, **changed}
    return replace(world.settings, **given)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_the_doctor_asks_the_model(world: World, service: ScriptedProvider, provider: str) -> None:
    finding = await check_chat_model(with_model(world, service, chat_model=f"{provider}:small"))
    assert (finding.state, finding.detail) == (CheckStatus.OK, "small answers")
    assert len(service.calls) == 1


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        (Answer(status=401), "WEFTLINE_CHAT_API_KEY"),
        (Answer(status=404), "WEFTLINE_CHAT_URL and WEFTLINE_CHAT_MODEL"),
        (Answer(status=429, headers={"retry-after": "3600"}), "higher limit"),
        (Answer(failure="malformed"), "openai or anthropic"),
        (Answer(failure="disconnect"), "WEFTLINE_CHAT_URL"),
    ],
)
async def test_the_doctor_says_what_is_wrong_with_the_model(
    world: World, service: ScriptedProvider, answer: Answer, step: str
) -> None:
    service.usual = answer
    finding = await check_chat_model(with_model(world, service))
    assert finding.state is CheckStatus.PROBLEM
    assert step in finding.next_step
    assert KEY not in str(finding)


async def test_the_doctor_warns_of_a_model_that_answers_with_nothing(world: World, service: ScriptedProvider) -> None:
    service.usual = Answer("")
    assert (await check_chat_model(with_model(world, service))).state is CheckStatus.WARNING


async def test_without_a_model_the_doctor_checks_none(world: World, service: ScriptedProvider) -> None:
    named = [finding.check for finding in await examine(world.settings, world.clock)]
    assert "Language model" not in named
    named = [finding.check for finding in await examine(with_model(world, service), world.clock)]
    assert "Language model" in named


async def test_invalid_settings_are_refused_at_the_start(world: World, service: ScriptedProvider) -> None:
    with pytest.raises(InvalidSetting, match="WEFTLINE_CHAT_URL"):
        App(with_model(world, service, chat_url=f"http://user:{KEY}@host/v1"))
    finding = await check_chat_model(with_model(world, service, chat_url=f"http://user:{KEY}@host/v1"))
    assert (finding.state, KEY in str(finding)) == (CheckStatus.PROBLEM, False)


@pytest.mark.req("CE-M")
async def test_the_name_of_a_session_that_was_deleted_meanwhile_is_not_kept(
    world: World, service: ScriptedProvider
) -> None:
    settings = with_model(world, service)
    app = await world.another_app(
        chat_model=settings.chat_model, chat_url=settings.chat_url, chat_api_key=settings.chat_api_key
    )
    metered = app._metered_chat_model()
    assert metered is not None
    for session_id in ("s1", "gone"):
        caller = ChatCaller(world.tenant, "writer", session_id)
        messages = (ChatMessage("user", "A long text about the journal."),)
        await metered.complete(
            ChatRequest(system="Summarise.", messages=messages, max_output_tokens=100, caller=caller)
        )
    rows = (await world.admin.call("usage.report", by="session", kind="compaction"))["rows"]
    assert sorted(row["group"] for row in rows) == ["(deleted)", "s1"]


@pytest.mark.req("CE-M")
async def test_calls_are_metered_for_the_tenant_that_they_are_made_for(world: World, service: ScriptedProvider) -> None:
    settings = with_model(world, service)
    app = await world.another_app(
        chat_model=settings.chat_model, chat_url=settings.chat_url, chat_api_key=settings.chat_api_key
    )
    assert app.chat_model is not None
    request = ChatRequest(
        system="Summarise.",
        messages=(ChatMessage("user", "A long text about the journal."),),
        max_output_tokens=100,
        caller=ChatCaller(world.tenant, "writer", "s1"),
    )
    await app.chat_model.complete(request)
    service.usual = Answer(status=401)
    with pytest.raises(ChatModelError):
        await app.chat_model.complete(request)
    (usage,) = [call.usage for call in service.calls if call.usage is not None]
    figures = (await world.admin.at(app).call("performance.read"))["chat_model"]
    assert figures | {"seconds": 0} == {
        "calls": 2,
        "errors": 1,
        "seconds": 0,
        "input_tokens": usage.input_tokens,
        "cached_tokens": 0,
        "output_tokens": usage.output_tokens,
    }
    other = (await world.stranger.at(app).call("performance.read"))["chat_model"]
    assert other["calls"] == 0
    exposed = app.metrics.exposition().decode()
    assert 'weftline_chat_calls_total{outcome="ok"} 1.0' in exposed
    assert 'weftline_chat_calls_total{outcome="rejected"} 1.0' in exposed
    assert f'weftline_chat_tokens_total{{kind="input"}} {float(usage.input_tokens)}' in exposed
