"""The model proxy of one person, between raw sockets: what it forwards is compared with what goes there directly."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING

import pytest

from support.full_run import FULL
from support.raw_upstream import RawClient, local_proxy, post, upstream
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from support.raw_upstream import Answer, Received, RunningProxy, Upstream, Writer

HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"proxy-authorization"}
ABOUT_FRAMES = {*HOP_BY_HOP, b"host", b"content-length", b"x-once"}
ANTHROPIC_USAGE = {"input_tokens": 10, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 90}
ANTHROPIC_STREAM = [
    {
        "type": "message_start",
        "message": {"model": "claude-sonnet-4-5", "usage": {**ANTHROPIC_USAGE, "output_tokens": 1}},
    },
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQ="}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"usage":'}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 42}},
    {"type": "message_stop"},
]
CHAT_USAGE = {"prompt_tokens": 1000, "completion_tokens": 42, "prompt_tokens_details": {"cached_tokens": 900}}
CHAT_STREAM = [
    {"model": "gpt-5-mini", "choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]},
    {"model": "gpt-5-mini", "choices": [], "usage": CHAT_USAGE},
]
RESPONSES_USAGE = {"input_tokens": 1000, "output_tokens": 42, "input_tokens_details": {"cached_tokens": 900}}
RESPONSES_STREAM = [
    {"type": "response.created", "response": {"model": "gpt-5-mini", "usage": None}},
    {"type": "response.output_text.delta", "delta": "Hi"},
    {"type": "response.completed", "response": {"model": "gpt-5-mini", "usage": RESPONSES_USAGE}},
]
GEMINI_USAGE = {"promptTokenCount": 1000, "cachedContentTokenCount": 900, "candidatesTokenCount": 40}
GEMINI_STREAM = [
    {"candidates": [{"content": {"parts": [{"text": "Hi"}]}}], "modelVersion": "gemini-2.5-flash"},
    {"usageMetadata": {**GEMINI_USAGE, "thoughtsTokenCount": 2}, "modelVersion": "gemini-2.5-flash"},
]
STREAMS = {
    "/anthropic/v1/messages": ANTHROPIC_STREAM,
    "/openai/v1/chat/completions": CHAT_STREAM,
    "/openai/v1/responses": RESPONSES_STREAM,
    "/gemini/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse": GEMINI_STREAM,
}


def events(stream: list[dict[str, object]]) -> list[bytes]:
    return [f"event: {each.get('type', 'x')}\ndata: {json.dumps(each)}\n\n".encode() for each in stream]


@asynccontextmanager
async def proxied(answer: Answer, tmp_path: Path) -> AsyncIterator[tuple[Upstream, RunningProxy, RawClient]]:
    """Run an upstream for both providers, the proxy, and a connection to it."""
    async with upstream(answer) as server:
        settings = Settings(
            data_dir=str(tmp_path), proxy_upstreams=f"anthropic={server.url} openai={server.url}/v1 gemini={server.url}"
        )
        async with local_proxy(settings) as proxy:
            client = await RawClient.connect(proxy.port)
            try:
                yield server, proxy, client
            finally:
                client.stream.close()


def generated_request(random: Random, number: int) -> tuple[str, bytes]:
    """Return a path, and the rest of a request, with headers and a body of any kind."""
    body = random.choice([b"", b"{}", random.randbytes(random.randrange(20_000)), json.dumps({"ü": number}).encode()])
    path = random.choice(["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/files/a%2Fb%20c", "/v1/x;y=1"])
    query = random.choice(["", "?beta=true&a=%20b+c"])
    lines = [
        f"x-case: {number}",
        *(f"X-Field-{random.randrange(9)}: {random.random()}" for _ in range(random.randrange(5))),
    ]
    lines += random.choice(
        [[], ["anthropic-beta: a-2025,b", "anthropic-beta: c"], ["Authorization: Bearer s", "cookie: a=b"]]
    )
    lines += random.choice(
        [[], ["connection: keep-alive, x-once", "x-once: 1"], ["TE: trailers"], ["accept-encoding: gzip"]]
    )
    method = random.choice(["POST", "POST", "PUT", "DELETE", "GET", "HEAD"])
    if method in {"GET", "HEAD"}:
        framed = b""
    elif random.random() < 0.3:
        lines.append("transfer-encoding: chunked")
        cut = random.randrange(len(body) + 1)
        framed = (
            b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:cut], body[cut:]) if part) + b"0\r\n\r\n"
        )
    else:
        lines.append(f"content-length: {len(body)}")
        framed = body
    rest = f"{path}{query} HTTP/1.1\r\nhost: 127.0.0.1\r\n" + "\r\n".join([*lines, "", ""])
    return method, rest.encode() + framed


async def generated_answer(request: Received, writer: Writer) -> None:
    """Answer in a way that depends only on the number of the request."""
    random = Random(int(request.value(b"x-case") or b"0"))
    status = random.choice([200, 200, 201, 400, 401, 429, 500, 529])
    body = random.choice([b"", b"{}", b'{"usage":1}', b'{"usage":{}', random.randbytes(random.randrange(50_000))])
    kind = random.choice(["application/json", "text/event-stream; charset=utf-8", "audio/mpeg"])
    head = f"HTTP/1.1 {status} .\r\nContent-Type: {kind}\r\nRequest-Id: {random.random()}\r\n"
    head += "date: Thu, 19 Nov 2026 01:02:03 GMT\r\n"
    head += random.choice(["", "set-cookie: a=1\r\nset-cookie: b=2\r\n", "retry-after: 7\r\nx-ratelimit-reset: 1s\r\n"])
    head += random.choice(["", "connection: x-hop\r\nx-hop: 1\r\n"])
    if random.random() < 0.5:
        await writer.send(
            f"{head}content-length: {len(body)}\r\n\r\n".encode() + (b"" if request.method == b"HEAD" else body)
        )
        return
    await writer.send(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    if request.method != b"HEAD":
        cut = random.randrange(len(body) + 1)
        for part in (body[:cut], body[cut:]):
            if part:
                await writer.chunk(part)
        await writer.chunk(b"")


def comparable(request: Received) -> tuple[object, ...]:
    kept = sorted((name.lower(), value) for name, value in request.headers if name.lower() not in ABOUT_FRAMES)
    return request.method, request.target, kept, request.body


@pytest.mark.req("WX-10", part="requests and answers that nothing changes are forwarded byte for byte")
async def test_generated_requests_and_answers_are_the_same_as_without_the_proxy(tmp_path: Path) -> None:
    random = Random(37)
    async with proxied(generated_answer, tmp_path) as (server, proxy, _):
        client = await RawClient.connect(proxy.port)
        direct = await RawClient.connect(server.port)
        for number in range(10_000 if FULL else 600):
            method, rest = generated_request(random, number)
            prefix = random.choice(["/openai", "/anthropic"])
            expected = await direct.ask(f"{method} ".encode() + rest)
            found = await client.ask(f"{method} {prefix}".encode() + rest)
            if (found.value(b"connection") or b"") == b"close":
                client.stream.close()
                client = await RawClient.connect(proxy.port)
            sent, forwarded = server.received
            server.received.clear()
            assert comparable(forwarded) == comparable(sent)
            assert (found.status, found.body, found.is_whole) == (expected.status, expected.body, True)
            hidden = {b"transfer-encoding", b"connection", b"x-hop"}
            assert [header for header in found.headers if header[0] not in hidden] == [
                (name.lower(), value) for name, value in expected.headers if name.lower() not in hidden
            ]
        for each in (client, direct):
            each.stream.close()


@pytest.mark.parametrize("path", list(STREAMS))
async def test_a_stream_passes_event_by_event_and_its_usage_is_shown(path: str, tmp_path: Path) -> None:
    seen = asyncio.Queue[None]()
    last = [b": comment\r\n\r\n", b"data: [DONE]\n\n", b'event: error\ndata: {"type":"error"}\n\n']
    sent = [*events(STREAMS[path]), *last]

    async def answer(_: Received, writer: Writer) -> None:
        await writer.start_stream()
        for event in sent:
            await writer.chunk(event)
            # The next is sent only after the client has received this one.
            await seen.get()
        await writer.chunk(b"")

    async with proxied(answer, tmp_path) as (_, proxy, client):
        client.stream.write(post(path, b'{"model":"m","stream":true}'))
        assert (await client.start())[0] == 200
        for event in sent:
            assert await client.chunk() == event
            seen.put_nowait(None)
        assert await client.chunk() == b""
        (line,) = await proxy.lines(1)
    assert "1,000 in (900 from cache" in line
    assert "42 out" in line
    assert "$0.0" in line


async def test_usage_is_read_from_compressed_and_plain_answers(tmp_path: Path) -> None:
    plain = json.dumps({"model": "claude-sonnet-4-5", "usage": {**ANTHROPIC_USAGE, "output_tokens": 42}}).encode()
    packed = gzip.compress(plain)

    async def answer(request: Received, writer: Writer) -> None:
        if request.value(b"accept-encoding") == b"gzip, deflate":
            await writer.json(packed, headers="content-encoding: gzip\r\n")
        else:
            await writer.json(plain)

    async with proxied(answer, tmp_path) as (server, proxy, client):
        compressed = await client.ask(post("/anthropic/v1/messages", b"{}", "accept-encoding: gzip, deflate, br, zstd"))
        assert compressed.body == packed
        assert (await client.ask(post("/anthropic/v1/messages", b"{}", "accept-encoding: br"))).body == plain
        # What cannot be read here is not asked for.
        assert [request.value(b"accept-encoding") for request in server.received] == [b"gzip, deflate", b"identity"]
        for line in await proxy.lines(2):
            assert "claude-sonnet-4-5  1,000 in (900 from cache, 90 to cache)  42 out  $0.0" in line


async def test_the_errors_of_a_provider_arrive_with_their_retry_headers(tmp_path: Path) -> None:
    async def answer(request: Received, writer: Writer) -> None:
        status = int(request.value(b"x-status") or b"500")
        await writer.json(b'{"type":"error","e":1}', status, "retry-after: 7\r\nx-should-retry: true\r\n")

    async with proxied(answer, tmp_path) as (_, proxy, client):
        for status in (400, 401, 429, 529):
            found = await client.ask(post("/anthropic/v1/messages", b'{"model":"claude-x"}', f"x-status: {status}"))
            assert (found.status, found.body) == (status, b'{"type":"error","e":1}')
            assert (found.value(b"retry-after"), found.value(b"x-should-retry")) == (b"7", b"true")
        assert "claude-x  status 529" in (await proxy.lines(4))[3]


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/anthropic/v1/messages", {"type": "error", "error": {"type": "api_error"}}),
        ("/openai/v1/responses", {"error": {"type": "server_error", "code": "upstream_unreachable", "param": None}}),
        ("/gemini/v1beta/models/claude-x:generateContent", {"error": {"code": 502, "status": "UNAVAILABLE"}}),
    ],
)
async def test_a_provider_that_does_not_answer_is_an_error_in_its_form(
    path: str, form: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        writer.reset()

    async with proxied(answer, tmp_path) as (_, proxy, client):
        found = await client.ask(post(path, b'{"model":"claude-x"}'))
        assert found.status == 502
        body = json.loads(found.body)
        message = body["error"].pop("message")
        assert body == form
        assert message.startswith("Weftline: The provider cannot be reached (connection_lost).")
        assert "claude-x  no answer" in (await proxy.lines(1))[0]


async def test_a_provider_that_breaks_off_is_seen_to_break_off(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def answer(_: Received, writer: Writer) -> None:
        await writer.start_stream()
        await writer.chunk(b"data: 1\n\n")
        await begun.wait()
        writer.reset()

    async with proxied(answer, tmp_path) as (_, proxy, client):
        client.stream.write(post("/openai/v1/responses", b"{}"))
        await client.start()
        assert await client.chunk() == b"data: 1\n\n"
        begun.set()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await client.chunk()
        assert "broken off" in (await proxy.lines(1))[0]


@pytest.mark.parametrize("answers", ["begun", "not begun"])
async def test_a_client_that_leaves_cancels_the_request_to_the_provider(answers: str, tmp_path: Path) -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def answer(_: Received, writer: Writer) -> None:
        if answers == "begun":
            await writer.start_stream()
            await writer.chunk(events(ANTHROPIC_STREAM)[0])
        asked.set()
        await writer.until_client_leaves()
        gone.set()

    async with proxied(answer, tmp_path) as (_, proxy, client):
        client.stream.write(post("/anthropic/v1/messages", b'{"model":"claude-sonnet-4-5"}'))
        await asked.wait()
        if answers == "begun":
            await client.start()
            await client.chunk()
        client.stream.close()
        async with asyncio.timeout(30):
            await gone.wait()
        # What the provider had reported until then was paid for.
        (line,) = await proxy.lines(1)
    assert ("broken off  1,000 in" if answers == "begun" else "no answer") in line


async def test_a_slow_reader_slows_the_provider_down(tmp_path: Path) -> None:
    written = 0
    piece, pieces = b"x" * 65_536, 1_024

    async def answer(_: Received, writer: Writer) -> None:
        nonlocal written
        await writer.start_stream()
        for _ in range(pieces):
            await writer.chunk(piece)
            written += 1
        await writer.chunk(b"")

    async with proxied(answer, tmp_path) as (_, _, client):
        client.stream.write(post("/openai/v1/responses", b"{}"))
        await client.start()
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.2)
        assert 0 < written < pieces // 2
        received = 0
        while chunk := await client.chunk():
            received += len(chunk)
        assert received == len(piece) * pieces


async def test_two_hundred_streams_are_open_at_once(tmp_path: Path) -> None:
    count = 200
    all_open, open_now = asyncio.Event(), 0

    async def answer(request: Received, writer: Writer) -> None:
        nonlocal open_now
        open_now += 1
        await writer.start_stream()
        await writer.chunk(request.body[:8])
        await all_open.wait()
        await writer.chunk(request.body)
        await writer.chunk(b"")

    async with proxied(answer, tmp_path) as (_, proxy, _):
        clients = [await RawClient.connect(proxy.port) for _ in range(count)]
        bodies = [b'{"n":%03d,' % number + b'"text":"' + b"x" * 50_000 + b'"}' for number in range(count)]
        for client, body in zip(clients, bodies, strict=True):
            client.stream.write(post("/anthropic/v1/messages", body))
            await client.start()
        for client, body in zip(clients, bodies, strict=True):
            assert await client.chunk() == body[:8]
        assert open_now == count
        all_open.set()
        for client, body in zip(clients, bodies, strict=True):
            received = b""
            while chunk := await client.chunk():
                received += chunk
            assert received == body
            client.stream.close()


async def test_a_model_is_served_by_its_own_upstream(tmp_path: Path) -> None:
    async def usual(_: Received, writer: Writer) -> None:
        await writer.json(b'"usual"')

    async def own(_: Received, writer: Writer) -> None:
        await writer.json(b'"own"')

    async with upstream(usual) as first, upstream(own) as second:
        where = f"openai={first.url}/v1/ openai:llama*={second.url}/base"
        settings = Settings(data_dir=str(tmp_path), proxy_upstreams=where)
        async with local_proxy(settings) as proxy:
            client = await RawClient.connect(proxy.port)
            for model, answer in (("llama-4", b'"own"'), ("gpt-5", b'"usual"')):
                body = json.dumps({"messages": [], "model": model}).encode()
                assert (await client.ask(post("/openai/v1/chat/completions", body))).body == answer
            client.stream.close()
        assert [request.target for request in first.received] == [b"/v1/chat/completions"]
        assert [request.target for request in second.received] == [b"/base/v1/chat/completions"]


async def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(b"{}")

    async with upstream(answer) as server, upstream(answer) as corporate:
        monkeypatch.setenv("http_proxy", corporate.url)
        where = f"anthropic=http://models.example openai={server.url}"
        async with local_proxy(Settings(data_dir=str(tmp_path), proxy_upstreams=where)) as proxy:
            client = await RawClient.connect(proxy.port)
            assert (await client.ask(post("/anthropic/v1/messages", b"{}"))).status == 200
            assert (await client.ask(post("/openai/v1/responses", b"{}"))).status == 200
            client.stream.close()
        assert [request.target for request in corporate.received] == [b"http://models.example/v1/messages"]
        assert [request.target for request in server.received] == [b"/v1/responses"]


async def test_an_upstream_whose_name_leads_into_the_private_network_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(b"{}")

    resolve = asyncio.get_running_loop().getaddrinfo

    async def everything_is_here(host: str, port: int, **options: int) -> object:
        return await resolve("127.0.0.1", port, **options)

    async with upstream(answer) as server:
        where = f"openai=http://models.internal:{server.port}"
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", everything_is_here, raising=False)
        for private, status in (("", 502), ("models.internal", 200)):
            settings = Settings(data_dir=str(tmp_path), proxy_upstreams=where, proxy_private_hosts=private)
            async with local_proxy(settings) as proxy:
                client = await RawClient.connect(proxy.port)
                assert (await client.ask(post("/openai/v1/responses", b"{}"))).status == status
                client.stream.close()
        assert len(server.received) == 1


async def test_trailers_of_a_request_are_no_headers_and_a_tunnel_is_no_request(tmp_path: Path) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(b"{}")

    async with proxied(answer, tmp_path) as (server, _, client):
        lines = ["POST /openai/v1/responses HTTP/1.1", "host: 127.0.0.1", "transfer-encoding: chunked", "x-given: 1"]
        body = b"2\r\n{}\r\n0\r\nx-given: 2\r\nx-trailer: 1\r\n\r\n"
        assert (await client.ask("\r\n".join([*lines, "", ""]).encode() + body)).status == 200
        (received,) = server.received
        assert [value for name, value in received.headers if name.startswith(b"x-")] == [b"1"]
        refused = await client.ask(b"CONNECT /openai/v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (405, "method_not_allowed")
        assert len(server.received) == 1


async def test_pages_of_other_hosts_and_paths_of_dots_are_refused(tmp_path: Path) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(b"{}")

    async with proxied(answer, tmp_path) as (server, _, client):
        foreign = post("/anthropic/v1/messages", b"{}", host="evil.example")
        assert (await client.ask(foreign)).status == 403
        assert (await client.ask(post("/anthropic/v1/messages", b"{}", "origin: https://evil.example"))).status == 403
        for path in ("%2e./admin", "..%2fadmin", "..%5cadmin", "a\\..\\admin", "..;/admin", "%252e%252e/admin"):
            assert (await client.ask(post(f"/anthropic/v1/{path}", b"{}"))).status == 400
        assert (await client.ask(post("/other", b"{}"))).status == 404
        assert server.received == []


async def test_credentials_and_texts_are_neither_logged_nor_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    canary, text = "sk-ant-canary-5150", "a text that stays private"

    async def answer(request: Received, writer: Writer) -> None:
        if request.value(b"x-reset"):
            writer.reset()
        else:
            await writer.json(json.dumps({"model": "m", "content": text, "usage": {"input_tokens": "x"}}).encode())

    caplog.set_level(logging.DEBUG, "weftline")
    body = json.dumps({"model": "m", "messages": text}).encode()
    async with proxied(answer, tmp_path) as (server, proxy, client):
        for more in ([], ["x-reset: 1"]):
            await client.ask(post("/anthropic/v1/messages", body, f"x-api-key: {canary}", *more))
        assert server.received[0].value(b"x-api-key") == canary.encode()
        shown = "\n".join(await proxy.lines(2))
    assert canary not in shown + caplog.text
    assert text not in shown + caplog.text
