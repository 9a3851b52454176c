"""Compactions with a language model: used where it helps, without effect on the agent where it fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from support.compaction_runs import SMALL_TALK, compact
from support.scripted_provider import Answer, ScriptedProvider, scripted_provider
from support.summary_model import as_json, faithful, inventing_number
from support.windows import create, ingest, message, published
from support.world import SESSION, Caller, World
from weftline.app.app import App
from weftline.jobs.compaction import COMPACT
from weftline.providers.chat_models.endpoint import ResilientChatModel
from weftline.windows.compaction.compactor import Compactor
from weftline.windows.compaction.model_summariser import REASONS
from weftline.windows.compaction.runs import NOT_CONFIGURED

FACTS = [
    "We decided to keep the journal in PostgreSQL 16.4.",
    "The export must finish within 90 seconds.",
    "Bob will migrate /srv/journal/schema.sql by 2026-12-01.",
    "The ticket is PAY-4711.",
]
# What must be found unchanged, whoever writes the summaries.
VALUES = ["PostgreSQL 16.4", "90 seconds", "/srv/journal/schema.sql", "2026-12-01", "PAY-4711"]
SECRET = "hunter2-Zk93-long-value"


@pytest.fixture
async def service() -> AsyncIterator[ScriptedProvider]:
    async with scripted_provider() as service:
        service.respond = faithful
        yield service


@pytest.fixture(params=["openai", "anthropic"])
async def app(request: pytest.FixtureRequest, world: World, service: ScriptedProvider) -> App:
    # The processes of an installation have the same settings; this one would run without the model.
    world.app.scheduler.paused |= {COMPACT}
    return await world.another_app(
        chat_model=f"{request.param}:small", chat_url=f"{service.url}/v1", chat_timeout_seconds=1
    )


def shorten_attempts(app: App, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let attempts at a model that never answers end sooner than the setting can say, without pauses between them."""
    assert isinstance(app.chat_model, ResilientChatModel)
    monkeypatch.setattr(app.chat_model, "_limits", app.chat_model._limits._replace(attempt_seconds=seconds))
    monkeypatch.setattr(app.chat_model, "_pause", lambda _: asyncio.sleep(0))


async def window_with_facts(caller: Caller, *more: str) -> None:
    await create(caller, model_max_tokens=100_000)
    said = [f"Turn {number}. {SMALL_TALK}" for number in range(60)]
    for place, fact in enumerate([*FACTS, *more]):
        said[2 * place + 1] = fact
    events = [
        message(f"t{number}", text, role="user" if number % 2 else "assistant") for number, text in enumerate(said)
    ]
    await ingest(caller, *events)


async def shown(caller: Caller) -> str:
    """Return the prompt that the agent gets."""
    answer = await caller.call("context.assemble", session_id=SESSION, task_description="Go on.", token_budget=50_000)
    return json.dumps(answer, ensure_ascii=False)


async def details(caller: Caller) -> Any:
    (newest,) = (await caller.call("compaction.list", session_id=SESSION, limit=1))["compactions"]
    return newest


@pytest.mark.req("CE-F5", "CE-M", "CE-O")
async def test_summaries_are_written_by_the_model_and_metered(
    world: World, app: App, service: ScriptedProvider
) -> None:
    agent = world.analysis.at(app)
    await window_with_facts(agent)
    answer = await compact(agent)
    assert (answer["state"], answer.get("degraded", [])) == ("applied", [])
    assert answer["tokens_after"] < answer["tokens_before"]
    found = await details(agent)
    usages = [call.usage for call in service.calls if call.usage is not None]
    assert found["model"] == "small"
    assert found["model_usage"] == {
        "model": "small",
        "calls": len(usages),
        "input_tokens": sum(usage.input_tokens for usage in usages),
        "cached_tokens": 0,
        "output_tokens": sum(usage.output_tokens for usage in usages),
    }
    summaries = (await agent.call("compaction.show", compaction_id=answer["compaction_id"]))["summaries"]
    assert {summary["method"] for summary in summaries} == {"abstractive_summary"}
    prompt = await shown(agent)
    assert all(value in prompt for value in VALUES)
    figures = (await world.admin.at(app).call("performance.read"))["chat_model"]
    assert figures["calls"] == len(usages)
    (row,) = (await world.admin.at(app).call("usage.report", by="agent", kind="compaction"))["rows"]
    assert (row["group"], row["calls"], row["reported_calls"]) == ("analysis", len(usages), len(usages))
    assert row["input_tokens"] == sum(usage.input_tokens for usage in usages)


FAILURES: dict[str, tuple[Callable[[dict[str, Any]], Answer], str]] = {
    "timeout": (lambda _: Answer(failure="timeout"), "timeout"),
    "status 500": (lambda _: Answer(status=500), "unavailable"),
    "status 429": (lambda _: Answer(status=429, headers={"retry-after": "3600"}), "rate_limited"),
    "refusal": (lambda _: Answer("no", finish="refusal"), "refused"),
    "wrong schema": (lambda _: as_json(1, 2), "malformed"),
    "invents": (inventing_number, "invented"),
}


@pytest.mark.req("CE-E")
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_model_that_fails_degrades_the_compaction_and_nothing_else(
    app: App,
    world: World,
    service: ScriptedProvider,
    failure: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service.respond, reason = FAILURES[failure]
    if reason in {"timeout", "unavailable"}:
        shorten_attempts(app, monkeypatch, 0.1)
    agent = world.analysis.at(app)
    await window_with_facts(agent)
    with caplog.at_level(logging.INFO, "weftline"):
        answer = await compact(agent, wait_seconds=30)
    assert (answer["state"], answer["degraded"]) == ("applied", [REASONS[reason]])  # type: ignore[index]
    prompt = await shown(agent)
    assert all(value in prompt for value in VALUES)
    (event,) = await published(agent, "compaction.degraded")
    assert event["degraded"] == [REASONS[reason]]  # type: ignore[index]
    (record,) = [each for each in caplog.records if each.message == "a compaction was degraded"]
    assert not any(fact in str(vars(record)) for fact in FACTS)


@pytest.mark.req("CE-E")
async def test_the_agent_goes_on_while_the_model_does_not_answer(
    app: App, world: World, service: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    shorten_attempts(app, monkeypatch, 300)
    service.respond = None
    service.usual = Answer(failure="timeout")
    agent = world.analysis.at(app)
    await window_with_facts(agent)
    answer = await compact(agent, wait_seconds=0.1)
    assert answer["state"] in {"queued", "running"}
    await ingest(agent, message("later", "The agent goes on."))
    assert "The agent goes on." in await shown(agent)
    assert (await details(agent))["state"] in {"queued", "running"}
    service.stop()
    async with asyncio.timeout(60):
        while (await details(agent))["state"] != "applied":  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.05)
    prompt = await shown(agent)
    assert all(value in prompt for value in (*VALUES, "The agent goes on."))


async def test_the_policy_of_the_tenant_decides_what_leaves(app: App, world: World, service: ScriptedProvider) -> None:
    agent = world.analysis.at(app)
    await window_with_facts(agent, f"Use password: {SECRET} for the staging database.")
    await compact(agent)
    assert service.calls
    assert SECRET not in json.dumps([call.body for call in service.calls])
    await agent.call("compaction.drop", session_id=SESSION)
    await world.admin.at(app).call("layer.define", layer="tenant", policy={"secrets": {"prompt": "block"}})
    sent = len(service.calls)
    answer = await compact(agent)
    assert answer["degraded"] == [REASONS["not_sent"]]
    assert SECRET not in json.dumps([call.body for call in service.calls[sent:]])


async def test_an_agent_can_do_without_the_model(app: App, world: World, service: ScriptedProvider) -> None:
    agent, admin = world.analysis.at(app), world.admin.at(app)
    await window_with_facts(agent)
    await admin.call("agent.define", agent_id="analysis", config={"compaction": {"model": "none"}})
    assert (await compact(agent)).get("degraded", []) == []
    assert service.calls == []
    await agent.call("compaction.drop", session_id=SESSION)
    await admin.call("agent.define", agent_id="analysis", config={"compaction": {"model": "another"}})
    assert (await compact(agent))["degraded"] == [NOT_CONFIGURED]
    assert service.calls == []


@pytest.mark.req("CE-F5")
async def test_unchanged_summaries_are_not_asked_for_again(app: App, world: World, service: ScriptedProvider) -> None:
    agent = world.analysis.at(app)
    await window_with_facts(agent)
    await ingest(agent, *(message(f"u{n}", f"Turn {n}. {SMALL_TALK}") for n in range(100)))
    await ingest(agent, *(message(f"w{n}", f"Turn {n}. {SMALL_TALK}") for n in range(100)))
    first = await compact(agent)
    before = await agent.call("compaction.show", compaction_id=first["compaction_id"], originals=False)
    calls = len(service.calls)
    await ingest(agent, *(message(f"v{n}", f"Turn {n}. {SMALL_TALK}") for n in range(40)))
    second = await compact(agent)
    after = await agent.call("compaction.show", compaction_id=second["compaction_id"], originals=False)
    kept = [summary["text"] for summary in before["summaries"]][:-1]
    assert kept
    assert [summary["text"] for summary in after["summaries"]][: len(kept)] == kept
    assert len(service.calls) - calls < calls


async def test_a_caller_does_not_wait_longer_than_it_says_for_a_run_that_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(Compactor, "compact", failing)
    await window_with_facts(world.analysis)
    async with asyncio.timeout(60):
        answer = await compact(world.analysis, wait_seconds=0.5)
    assert answer["state"] in {"queued", "running", "failed"}
