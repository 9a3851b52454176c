"""Guardrails on tool calls in answers through the model proxy: refused or masked before the client sees them."""

from __future__ import annotations

import asyncio
import gzip
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.http_server import served
from support.raw_upstream import RawClient, post, upstream
from weftline.kernel.errors import SystemUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.raw_upstream import Answer, Received, Upstream, Writer
    from support.world import World

PATH = "/anthropic/v1/messages"
NO_DELETE = {
    "name": "no-delete",
    "prohibited_action": ["github.delete_*", "Bash"],
    "condition": "tool.startsWith('mcp__') || arguments.command.contains('rm ')",
    "message": "Ask an admin.",
}
DELETE = {"type": "tool_use", "id": "toolu_1", "name": "mcp__github__delete_repo", "input": {"repo": "docs"}}
SHELL = {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "ls"}}
BODY = json.dumps({"model": "claude-sonnet-4-5", "messages": [{"role": "user", "content": "Tidy up"}]}).encode()


def whole(*blocks: dict[str, Any]) -> bytes:
    return json.dumps({"id": "m", "content": blocks, "stop_reason": "tool_use", "usage": {"output_tokens": 1}}).encode()


def event(**data: Any) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


START = event(type="message_start", message={"id": "m", "usage": {"input_tokens": 1, "output_tokens": 1}})
TEXT = event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "I tidy up."})
END = event(type="message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1})


def streamed(block: dict[str, Any]) -> list[bytes]:
    piece = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    return [
        event(type="content_block_start", index=1, content_block={**block, "input": {}}),
        event(type="content_block_delta", index=1, delta=piece),
        event(type="content_block_stop", index=1),
    ]


@asynccontextmanager
async def asking(world: World, answer: Answer, **settings: Any) -> AsyncIterator[tuple[RawClient, Upstream]]:
    async with upstream(answer) as provider:
        where = f"anthropic={provider.url} openai={provider.url} gemini={provider.url}"
        app = await world.another_app(proxy_upstreams=where, **{"proxy_wait_ms": 60_000, **settings})
        async with served(app) as server:
            client = await RawClient.connect(server.port)
            yield client, provider
            client.stream.close()


def own(world: World) -> str:
    return f"x-weftline-key: {world.planner.credential}"


@pytest.mark.both_databases
async def test_a_refused_call_reaches_no_client_and_is_reported(world: World) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(whole(DELETE, SHELL))

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    async with asking(world, answer) as (client, provider):
        answered = await client.ask(post(PATH, BODY, own(world), "accept-encoding: gzip, br"))
    body = json.loads(answered.body)
    said, shell = body["content"]
    assert (answered.status, shell, body["stop_reason"]) == (200, SHELL, "tool_use")
    assert "'no-delete' of the tenant prohibits mcp__github__delete_repo: Ask an admin" in said["text"]
    assert b"docs" not in answered.body
    # Only an answer that is not compressed can be read as it comes.
    assert provider.received[0].value(b"accept-encoding") == b"identity"
    violations = (await world.admin.call("events.read", after=0, types=["security.violation"]))["events"]
    assert [each["data"]["guardrail"] for each in violations] == ["no-delete"]


async def test_a_stream_goes_on_around_a_refused_call_and_waits_for_nothing_else(world: World) -> None:
    go_on = asyncio.Event()

    async def answer(_: Received, writer: Writer) -> None:
        await writer.start_stream()
        first, *others = streamed(DELETE)
        await writer.chunk(START + TEXT)
        await writer.chunk(first)
        await go_on.wait()
        await writer.chunk(b"".join(others) + END)
        await writer.chunk(b"")

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    async with asking(world, answer) as (client, _):
        client.stream.write(post(PATH, BODY, own(world)))
        await client.start()
        assert await client.chunk() == START + TEXT
        go_on.set()
        rest = b""
        while chunk := await client.chunk():
            rest += chunk
    assert b"no-delete" in rest
    assert b"docs" not in rest
    assert b"end_turn" in rest


async def test_an_allowed_call_is_passed_on_byte_for_byte(world: World) -> None:
    stream = [START, TEXT, *streamed(SHELL), END]

    async def answer(request: Received, writer: Writer) -> None:
        if request.value(b"x-stream"):
            await writer.start_stream("content-encoding: gzip\r\n" if request.value(b"x-gzip") else "")
            data = b"".join(stream)
            await writer.chunk(gzip.compress(data) if request.value(b"x-gzip") else data)
            await writer.chunk(b"")
        else:
            await writer.json(whole(SHELL))

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    async with asking(world, answer) as (client, _):
        assert (await client.ask(post(PATH, BODY, own(world)))).body == whole(SHELL)
        assert (await client.ask(post(PATH, BODY, own(world), "x-stream: 1"))).body == b"".join(stream)
        # A provider that compresses although it was not asked to.
        plain = await client.ask(post(PATH, BODY, own(world), "x-stream: 1", "x-gzip: 1"))
        assert (plain.body, plain.value(b"content-encoding")) == (b"".join(stream), None)


async def test_without_rules_for_tools_of_others_nothing_is_held_back_and_nothing_else_is_asked_for(
    world: World,
) -> None:
    go_on = asyncio.Event()

    async def answer(_: Received, writer: Writer) -> None:
        await writer.start_stream()
        await writer.chunk(streamed(DELETE)[0])
        await go_on.wait()
        await writer.chunk(b"")

    rule = {"name": "own", "prohibited_action": ["board.delete", "message.*"]}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    async with asking(world, answer) as (client, provider):
        client.stream.write(post(PATH, BODY, own(world), "accept-encoding: gzip"))
        await client.start()
        assert await client.chunk() == streamed(DELETE)[0]
        go_on.set()
        assert await client.chunk() == b""
    assert provider.received[0].value(b"accept-encoding") == b"gzip"


async def test_values_are_masked_in_the_arguments(world: World) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(whole({**SHELL, "input": {"command": "login swordfish"}}))

    rule = {"name": "mask", "prohibited_action": ["Bash"], "violation_response": "redact", "mask": ["swordfish"]}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    async with asking(world, answer) as (client, _):
        body = json.loads((await client.ask(post(PATH, BODY, own(world)))).body)
    assert body["content"][0]["input"] == {"command": "login [MASKED]"}
    assert body["stop_reason"] == "tool_use"


async def test_a_call_that_needs_an_approval_is_passed_on_once_it_has_one(world: World) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(whole(SHELL))

    rule = {"name": "ask", "prohibited_action": ["Bash"], "violation_response": "ask"}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    async with asking(world, answer, approval_wait_seconds=0) as (client, _):
        held = json.loads((await client.ask(post(PATH, BODY, own(world)))).body)
        (waiting,) = (await world.admin.call("approval.list"))["approvals"]
        assert waiting["approval_id"] in held["content"][0]["text"]
        await world.admin.call("approval.approve", approval_id=waiting["approval_id"])
        assert (await client.ask(post(PATH, BODY, own(world)))).body == whole(SHELL)


@pytest.mark.parametrize("path", [PATH, "/anthropic//v1/%6dessages/", "/openai/v1/messages"])
async def test_no_spelling_of_a_path_leads_around_the_rules(path: str, world: World) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(whole(DELETE))

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    async with asking(world, answer) as (client, _):
        assert b"docs" not in (await client.ask(post(path, BODY, own(world)))).body


async def test_a_stored_answer_is_checked_when_it_is_read_again(world: World) -> None:
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "github__delete_repo", "arguments": "{}"}

    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(json.dumps({"id": "resp_1", "output": [call]}).encode())

    rule = {"name": "no", "prohibited_action": ["github.*"]}
    await world.admin.call("layer.define", layer="tenant", guardrails=[rule])
    async with asking(world, answer) as (client, _):
        request = f"GET /openai/v1/responses/resp_1 HTTP/1.1\r\nhost: 127.0.0.1\r\n{own(world)}\r\n\r\n".encode()
        (item,) = json.loads((await client.ask(request)).body)["output"]
    assert item["type"] == "message"


async def test_the_record_has_what_the_client_was_given(world: World) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(whole(DELETE))

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    async with asking(world, answer) as (client, _):
        await client.ask(post(PATH, BODY, own(world)))
    sessions = (await world.planner.call("session.list"))["sessions"]
    (session,) = [each for each in sessions if "proxy" in each["metadata"]]
    listed = await world.planner.call("window.events", session_id=session["id"])
    assert "no-delete" in json.dumps(listed)
    assert "delete_repo" not in json.dumps([each.get("tool_calls", []) for each in listed["events"]])


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (PATH, b"overloaded_error"),
        ("/openai/v1/responses", b"server_error"),
        ("/gemini/v1beta/models/m:generateContent", b"UNAVAILABLE"),
    ],
)
async def test_what_cannot_be_checked_passes_or_is_refused_as_the_server_is_set(
    path: str, name: bytes, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [{"type": "function_call", "id": "f", "call_id": "c", "name": "Bash", "arguments": "{}"}]
    parts = [{"functionCall": {"name": "Bash", "args": {}}}]
    body = {"content": [SHELL], "output": items, "candidates": [{"content": {"parts": parts}}]}
    calls = json.dumps(body).encode()

    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(calls)

    async def check(*_: object) -> None:
        raise SystemUnavailable

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    monkeypatch.setattr("weftline.safety.guardrails.service.Guardrails.check", check)
    async with asking(world, answer) as (client, _):
        assert (await client.ask(post(path, BODY, own(world)))).body == calls
    async with asking(world, answer, proxy_fail_closed="on") as (client, _):
        answered = await client.ask(post(path, BODY, own(world)))
    assert answered.status == 503
    assert name in answered.body


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_stream_that_cannot_be_checked_goes_on_or_ends_with_an_error(
    is_closed: bool,  # noqa: FBT001
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = [START, TEXT, *streamed(SHELL), END]

    async def answer(_: Received, writer: Writer) -> None:
        await writer.start_stream()
        for each in stream:
            await writer.chunk(each)
        await writer.chunk(b"")

    async def decide(*_: object) -> None:
        raise RuntimeError("a defect")

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    monkeypatch.setattr("weftline.models.language_models.answer_filter._AnthropicStream.decide", decide)
    async with asking(world, answer, proxy_fail_closed="on" if is_closed else "off") as (client, _):
        body = (await client.ask(post(PATH, BODY, own(world)))).body
    if is_closed:
        assert body.startswith(START + TEXT + b"event: error\n")
        assert b"overloaded_error" in body
    else:
        assert body == b"".join(stream)


async def test_an_answer_in_a_form_that_cannot_be_read_is_refused_where_nothing_passes_unchecked(world: World) -> None:
    async def answer(_: Received, writer: Writer) -> None:
        await writer.json(whole(DELETE), headers="content-encoding: br\r\n")

    await world.admin.call("layer.define", layer="tenant", guardrails=[NO_DELETE])
    async with asking(world, answer) as (client, _):
        assert (await client.ask(post(PATH, BODY, own(world)))).body == whole(DELETE)
    async with asking(world, answer, proxy_fail_closed="on") as (client, _):
        assert (await client.ask(post(PATH, BODY, own(world)))).status == 503
