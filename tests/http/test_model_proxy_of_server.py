"""The model proxy of a server: who calls is known by a Weftline key, and each call is metered for its agent."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.http_server import served
from support.raw_upstream import RawClient, post, upstream
from weftline.kernel.errors import SystemUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.raw_upstream import Received, Upstream, Writer
    from support.world import Caller, World

CANARY = "sk-ant-canary-5150"
USAGE = {"input_tokens": 10, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90, "output_tokens": 42}
BODY = json.dumps({"model": "claude-sonnet-4-5", "messages": "a text that stays private"}).encode()


async def answer(request: Received, writer: Writer) -> None:
    if request.target == b"/v1/models":
        await writer.json(b"{}")
    elif request.value(b"x-fail"):
        await writer.json(b"{}", 529)
    else:
        await writer.json(json.dumps({"model": "claude-sonnet-4-5", "usage": USAGE}).encode())


@pytest.fixture
async def provider() -> AsyncIterator[Upstream]:
    async with upstream(answer) as running:
        yield running


async def asked(world: World, provider: Upstream, *requests: bytes, **settings: Any) -> list[tuple[int, Any]]:
    """Send requests to a server whose proxy leads to the provider; return the statuses and bodies of the answers."""
    where = f"anthropic={provider.url} openai={provider.url}"
    app = await world.another_app(**{"proxy_upstreams": where, "proxy_wait_ms": 60_000, **settings})
    async with served(app) as server:
        client = await RawClient.connect(server.port)
        answers = [await client.ask(request) for request in requests]
        client.stream.close()
    return [(each.status, json.loads(each.body)) for each in answers]


async def metered(caller: Caller) -> dict[str, Any]:
    answer = await caller.call("usage.report", kind="proxy", by="agent")
    return {row["group"]: row for row in answer["rows"]}


@pytest.mark.both_databases
async def test_calls_are_metered_for_the_agent_of_the_key_and_the_key_stays_here(
    world: World, provider: Upstream
) -> None:
    by_header = post(
        "/anthropic/v1/messages", BODY, f"X-Weftline-Key: {world.planner.credential}", f"x-api-key: {CANARY}"
    )
    by_path = post(f"/openai/{world.analysis.credential}/v1/responses", BODY, f"authorization: Bearer {CANARY}")
    failed = post("/anthropic/v1/messages", BODY, f"x-weftline-key: {world.planner.credential}", "x-fail: 1")
    other = post("/anthropic/v1/models", b"", f"x-weftline-key: {world.planner.credential}")
    answers = await asked(world, provider, by_header, by_path, failed, other)
    assert [status for status, _ in answers] == [200, 200, 529, 200]
    first, second, _, _ = provider.received
    assert (first.target, first.value(b"x-api-key")) == (b"/v1/messages", CANARY.encode())
    assert (second.target, second.value(b"authorization")) == (b"/v1/responses", f"Bearer {CANARY}".encode())
    assert not [request for request in provider.received if b"weftline." in repr(request).encode()]
    rows = await metered(world.admin)
    assert {agent: (row["calls"], row["failed_calls"]) for agent, row in rows.items()} == {
        "planner": (2, 1),
        "analysis": (1, 0),
    }
    figures = rows["planner"]
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    assert [figures[name] for name in names] == [1000, 900, 90, 42]
    assert figures["cost"] > 0


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/anthropic/v1/messages", "authentication_error"), ("/openai/v1/responses", "invalid_request_error")],
)
async def test_a_missing_or_wrong_key_is_an_error_in_the_providers_form(
    path: str, kind: str, world: World, provider: Upstream
) -> None:
    wrong = post(path, BODY, f"x-weftline-key: weftline.{world.tenant}.key_0.x")
    for status, body in await asked(world, provider, post(path, BODY), wrong):
        assert (status, body["error"]["type"]) == (401, kind)
        assert body["error"]["message"].startswith("Weftline: ")
        assert "X-Weftline-Key" in body["error"]["message"]
    assert provider.received == []


@pytest.mark.parametrize(
    ("target", "header"),
    [
        ("/gemini/v1beta/models/m:generateContent?alt=json&key={}", "x-weftline-key: {}"),
        ("/openai/v1/{}/responses", "x-weftline-key: {}"),
        ("/openai/v1/responses", "authorization: Bearer {}"),
        ("/anthropic/v1/messages", "x-api-key: {}"),
    ],
)
async def test_a_weftline_key_where_the_provider_would_see_it_is_refused(
    target: str, header: str, world: World, provider: Upstream
) -> None:
    key = world.planner.credential
    ((status, body),) = await asked(world, provider, post(target.format(key), BODY, header.format(key)))
    message = body["error"]["message"]
    assert status == 401
    assert "not forwarded" in message
    assert "the provider's key there" in message
    assert key not in str(body)
    assert provider.received == []


@pytest.mark.parametrize("path", ["/anthropic", "/openai", "/gemini", "/anthropic?beta=true", "/openai/{}"])
async def test_a_path_without_that_of_the_provider_is_an_error_in_the_providers_form(
    path: str, world: World, provider: Upstream
) -> None:
    key = world.planner.credential
    ((status, body),) = await asked(world, provider, post(path.format(key), BODY, f"x-weftline-key: {key}"))
    assert status == 404
    assert body["error"]["message"].startswith("Weftline: The path ends with the provider.")
    assert provider.received == []


async def test_a_host_that_is_not_allowed_is_told_so_in_the_providers_form(world: World, provider: Upstream) -> None:
    request = post("/anthropic/v1/messages", BODY, host="elsewhere.example")
    ((status, body),) = await asked(world, provider, request)
    assert (status, body["error"]["type"]) == (403, "permission_error")


async def test_who_may_not_call_is_refused_while_that_cannot_be_written_down(
    world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def note(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("weftline.app.refusals.Refusals.note", note)
    path = "/anthropic/v1/messages"
    wrong = post(path, BODY, f"x-weftline-key: weftline.{world.tenant}.key_0.x")
    answers = await asked(world, provider, post(path, BODY), wrong, proxy_wait_ms=1_000)
    assert [status for status, _ in answers] == [401, 401]
    assert provider.received == []


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/anthropic/v1/messages", {"type": "rate_limit_error"}),
        ("/openai/v1/responses", {"type": "insufficient_quota", "code": "budget_exceeded"}),
        ("/gemini/v1beta/models/m:generateContent", {"code": 429, "status": "RESOURCE_EXHAUSTED"}),
    ],
)
async def test_calls_count_for_budgets_and_a_spent_one_refuses_in_the_providers_form(
    path: str, error: dict[str, object], world: World, provider: Upstream
) -> None:
    await world.admin.call("budget.set", subject="agent:planner", period="day", tokens=1500, at_limit="refuse")
    await world.admin.call("budget.set", subject="tenant", period="day", tokens=100, at_limit="warn")
    first = post("/anthropic/v1/messages", BODY, f"x-weftline-key: {world.planner.credential}")
    for spent in (1042, 2084):
        # A call that was made counts, also beyond the limit.
        assert (await asked(world, provider, first))[0][0] == 200
        rows = (await world.admin.call("budget.list"))["budgets"]
        assert {row["subject"]: row["used_tokens"] for row in rows} == {"agent:planner": spent, "tenant": spent}
    own = f"x-weftline-key: {world.planner.credential}"
    refused = await asked(world, provider, post(path, BODY, own), post("/anthropic/v1/count", b"{}", own))
    (status, body), (uncounted, _) = refused
    assert (status, uncounted) == (429, 200)
    assert error.items() <= body["error"].items()
    assert "is spent" in body["error"]["message"]
    other = post(path, BODY, f"x-weftline-key: {world.analysis.credential}")
    below = [status for status, _ in await asked(world, provider, other)]
    # The agent is below the planner, so its calls count for the planner's budget too.
    assert below == [429]
    assert len(provider.received) == 3


async def test_a_key_gets_no_further_than_its_own_server_if_the_proxy_is_off(world: World) -> None:
    app = await world.another_app(proxy_upstreams="off")
    async with served(app) as server:
        client = await RawClient.connect(server.port)
        request = post("/anthropic/v1/messages", BODY, f"x-weftline-key: {world.planner.credential}")
        assert (await client.ask(request)).status == 404
        client.stream.close()


@pytest.mark.parametrize("fault", ["slow", "gone", "broken"])
async def test_a_call_goes_on_while_it_cannot_be_found_out_who_calls(
    fault: str, world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def identify(*_: object) -> None:
        if fault == "slow":
            await asyncio.Event().wait()
        raise SystemUnavailable if fault == "gone" else RuntimeError("a defect")

    monkeypatch.setattr("weftline.app.app.App.identify", identify)
    monkeypatch.setattr("weftline.transports.proxy.observer._CALLER_SECONDS", 0.01)
    request = post("/anthropic/v1/messages", BODY, "x-weftline-key: k")
    ((status, body),) = await asked(world, provider, request, proxy_wait_ms=1)
    assert (status, body["usage"]) == (200, USAGE)
    ((status, body),) = await asked(world, provider, request, proxy_wait_ms=1, proxy_fail_closed="on")
    assert (status, body["error"]["type"]) == (503, "overloaded_error")
    assert len(provider.received) == 1


async def test_a_database_that_takes_no_usage_fails_no_call(
    world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def add(*_: object) -> None:
        raise SystemUnavailable

    monkeypatch.setattr("weftline.app.call_meter.CallMeter.add", add)
    request = post("/anthropic/v1/messages", BODY, f"x-weftline-key: {world.planner.credential}")
    assert [status for status, _ in await asked(world, provider, request, request)] == [200, 200]
    assert await metered(world.admin) == {}


@pytest.mark.both_databases
async def test_a_call_is_metered_and_charged_together_or_by_the_next_server(
    world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def add(*_: object) -> None:
        raise SystemUnavailable

    await world.admin.call("budget.set", subject="agent:planner", period="day", tokens=1_000_000)
    request = post("/anthropic/v1/messages", BODY, f"x-weftline-key: {world.planner.credential}")
    with monkeypatch.context() as patched:
        patched.setattr("weftline.models.sql.UsageStore.add", add)
        assert (await asked(world, provider, request))[0][0] == 200
    (budget,) = (await world.admin.call("budget.list"))["budgets"]
    assert (budget["used_tokens"], await metered(world.admin)) == (0, {})
    assert (await asked(world, provider, request))[0][0] == 200
    (budget,) = (await world.admin.call("budget.list"))["budgets"]
    # The next server has metered the first call as well.
    assert (budget["used_tokens"], (await metered(world.admin))["planner"]["calls"]) == (2084, 2)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_providers_key_and_the_texts_of_calls_are_in_no_file(
    world: World, provider: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "weftline")
    key = f"x-weftline-key: {world.planner.credential}"
    await asked(world, provider, post("/anthropic/v1/messages", BODY, key, f"x-api-key: {CANARY}"))
    assert (await metered(world.admin))["planner"]["calls"] == 1
    folder = Path(replace(world.settings).storage_url).parent
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for text in (CANARY, "a text that stays private"):
        assert text not in caplog.text
        assert not any(text.encode() in path.read_bytes() for path in files)
