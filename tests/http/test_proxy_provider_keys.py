"""Keys of providers that the server keeps: who may use them, for what, and that nobody else gets to see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.http_server import served
from support.raw_upstream import RawClient, post, upstream
from weftline.kernel.errors import SystemUnavailable
from weftline.providers.provider_keys import ProviderKeys
from weftline.settings import InvalidSetting, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.raw_upstream import Answered, Received, Upstream, Writer
    from support.world import Caller, World

CANARY = "sk-ant-servers-5150"
PATH = "/anthropic/v1/messages"
USAGE = {"input_tokens": 1000, "output_tokens": 42}
BODY = json.dumps({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Hi"}]}).encode()


async def answer(request: Received, writer: Writer) -> None:
    if request.value(b"x-unreported"):
        await writer.start_stream()
        await writer.chunk(b'data: {"model":"gpt-5-mini","choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"x" * 5_000))
        await writer.chunk(b"")
    else:
        await writer.json(json.dumps({"model": "claude-sonnet-4-5", "usage": USAGE}).encode())


@pytest.fixture
async def provider() -> AsyncIterator[Upstream]:
    async with upstream(answer) as running:
        yield running


async def asked(
    world: World, provider: Upstream, *requests: bytes, who: str = "tree:planner", **settings: Any
) -> list[Answered]:
    """Send requests to a server that keeps keys for some callers."""
    entries = [f"{route}/{world.tenant}/{who}={CANARY}" for route in ("anthropic", "openai", "gemini")]
    where = f"anthropic={provider.url} openai={provider.url} gemini={provider.url}"
    given = {"proxy_upstreams": where, "proxy_keys": "\n".join(entries), "proxy_wait_ms": 60_000, **settings}
    app = await world.another_app(**given)
    async with served(app) as server:
        client = await RawClient.connect(server.port)
        answers = [await client.ask(request) for request in requests]
        client.stream.close()
    return answers


def own(caller: Caller) -> str:
    return f"x-weftline-key: {caller.credential}"


@pytest.mark.parametrize(
    ("path", "header", "value"),
    [
        (PATH, b"x-api-key", CANARY),
        ("/anthropic/v1/chat/completions", b"authorization", f"Bearer {CANARY}"),
        ("/openai/v1/responses", b"authorization", f"Bearer {CANARY}"),
        ("/gemini/v1beta/models/m:generateContent", b"x-goog-api-key", CANARY),
        ("/anthropic/v1/messages/count_tokens", b"x-api-key", CANARY),
    ],
)
async def test_a_caller_without_a_key_of_the_provider_gets_the_servers(
    path: str, header: bytes, value: str, world: World, provider: Upstream
) -> None:
    (answered,) = await asked(world, provider, post(path, BODY, own(world.planner)))
    assert (answered.status, provider.received[0].value(header)) == (200, value.encode())


@pytest.mark.parametrize("header", ["authorization: Bearer {}", "x-api-key: {}", "X-Goog-Api-Key: {}"])
async def test_the_weftline_key_may_be_where_a_program_sends_the_providers(
    header: str, world: World, provider: Upstream
) -> None:
    (answered,) = await asked(world, provider, post(PATH, BODY, header.format(world.planner.credential)))
    assert answered.status == 200
    assert provider.received[0].value(b"x-api-key") == CANARY.encode()
    assert b"weftline." not in repr(provider.received).encode()


async def test_callers_that_send_their_own_key_keep_it(world: World, provider: Upstream) -> None:
    given = post(PATH, BODY, own(world.planner), "authorization: Bearer mine")
    in_query = post("/gemini/v1beta/models/m:generateContent?key=mine", BODY, own(world.planner))
    await asked(world, provider, given, in_query)
    assert CANARY not in repr(provider.received)
    assert provider.received[0].value(b"authorization") == b"Bearer mine"


async def test_only_those_that_the_setting_names_may_use_it(world: World, provider: Upstream) -> None:
    await asked(world, provider, post(PATH, BODY, own(world.planner)), who="principal:analysis")
    await asked(world, provider, post(PATH, BODY, own(world.analysis)), who="principal:analysis")
    assert [request.value(b"x-api-key") for request in provider.received] == [None, CANARY.encode()]


@pytest.mark.parametrize(
    "target", ["POST /anthropic/v1/files", "DELETE /openai/v1/models/m", "POST /openai/v1/batches"]
)
async def test_the_servers_key_is_only_for_calls_of_models(target: str, world: World, provider: Upstream) -> None:
    method, _, path = target.partition(" ")
    request = post(path, BODY, own(world.planner)).replace(b"POST", method.encode(), 1)
    (answered,) = await asked(world, provider, request)
    assert (answered.status, provider.received) == (403, [])
    assert b"Weftline: " in answered.body


async def test_its_calls_count_for_budgets_also_if_their_usage_is_not_reported(
    world: World, provider: Upstream
) -> None:
    await world.admin.call("budget.set", subject="agent:planner", period="day", tokens=50, at_limit="refuse")
    request = post("/openai/v1/chat/completions", BODY, own(world.planner), "x-unreported: 1")
    (first,) = await asked(world, provider, request)
    (second,) = await asked(world, provider, request)
    assert (first.status, second.status, len(provider.received)) == (200, 429, 1)


async def test_a_response_in_the_background_is_not_metered_and_gets_no_key(world: World, provider: Upstream) -> None:
    later = json.dumps({"model": "gpt-5-mini", "input": "Hi", "background": True}).encode()
    path = "/openai/v1/responses"
    requests = [
        post(path, later, own(world.planner)),
        post(path, later, own(world.planner), "content-encoding: gzip"),
        post(path, later.replace(b"true", b"false"), own(world.planner)),
        post(path, later, own(world.planner), "authorization: Bearer mine"),
    ]
    assert [each.status for each in await asked(world, provider, *requests)] == [403, 403, 200, 200]
    assert [each.value(b"authorization") for each in provider.received] == [f"Bearer {CANARY}".encode(), b"Bearer mine"]


async def test_nobody_uses_it_while_it_cannot_be_found_out_who_calls(
    world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def identify(*_: object) -> None:
        raise SystemUnavailable

    monkeypatch.setattr("weftline.app.app.App.identify", identify)
    request = post(PATH, BODY, own(world.planner))
    mine = post(PATH, BODY, own(world.planner), "x-api-key: mine")
    without, with_own = await asked(world, provider, request, mine)
    assert (without.status, with_own.status) == (503, 200)
    assert CANARY not in repr(provider.received)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_the_servers_key_is_in_no_file_log_or_answer(
    world: World, provider: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    away = await asked(
        world, provider, post(PATH, BODY, own(world.planner)), proxy_upstreams="anthropic=http://127.0.0.1:9"
    )
    answers = [
        *away,
        *await asked(
            world, provider, post(PATH, BODY, own(world.planner)), post("/anthropic/v1/files", b"", own(world.planner))
        ),
    ]
    assert [each.status for each in answers] == [502, 200, 403]
    shown = [caplog.text, repr(answers), repr(Settings(proxy_keys=f"anthropic/default/*={CANARY}"))]
    shown.append(json.dumps(await world.admin.call("usage.report", kind="proxy", by="agent")))
    assert not [text for text in shown if CANARY in text]
    files = [path for path in Path(world.settings.storage_url).parent.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "entry",
    [CANARY, f"anthropic={CANARY}", f"other/default/*={CANARY}", "openai/default/*=", "openai/default/*=$UNSET"],
)
def test_an_entry_that_is_wrong_is_refused_without_its_text(entry: str) -> None:
    with pytest.raises(InvalidSetting, match="WEFTLINE_PROXY_KEYS") as error:
        ProviderKeys(f"openai:llama/8b*/default/*=k {entry}", {})
    assert CANARY not in str(error.value.message)
    assert "entry 2" in error.value.message


def test_a_key_may_be_in_a_variable() -> None:
    keys = ProviderKeys("openai/default/*=$OPENAI", {"OPENAI": CANARY})
    assert keys.has("openai")
    assert CANARY not in repr(keys._keys)


@pytest.mark.both_databases
async def test_a_tenant_that_fails_closed_is_refused_what_others_are_not(
    world: World, provider: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.admin.call("layer.define", layer="tenant", policy={"proxy_fails_closed": True})
    mine = post(PATH, BODY, own(world.planner), "x-api-key: mine")
    other = post(PATH, BODY, "x-weftline-key: weftline.other.key_1.secret", "x-api-key: mine")
    async with upstream(answer) as running:
        app = await world.another_app(proxy_upstreams=f"anthropic={running.url}", proxy_wait_ms=60_000)
        async with served(app) as server:
            client = await RawClient.connect(server.port)
            assert (await client.ask(mine)).status == 200

            async def identify(*_: object) -> None:
                raise SystemUnavailable

            monkeypatch.setattr("weftline.app.app.App.identify", identify)
            assert [(await client.ask(each)).status for each in (mine, other)] == [503, 200]
            client.stream.close()
