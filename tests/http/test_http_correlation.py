"""Correlation ids of HTTP requests are recorded; invalid ones are ignored."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import pytest

from support.correlation import BAGGAGE, CORRELATION, HEADERS, SPAN, TRACE, TRACEPARENT, events_of, the_event
from weftline.kernel.correlation import NO_CORRELATION, Correlation
from weftline.transports.http.application import HttpApplication
from weftline.transports.http.http_io import context_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.team import Team
    from support.world import World

pytestmark = pytest.mark.req("AC-12")
GOAL = "/v1/sessions/s1/context/goal"


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(HttpApplication(world.app).asgi)
    headers = {"authorization": f"Bearer {world.planner.credential}"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http:
        yield http


async def test_a_write_is_found_by_turn_and_task_with_all_its_ids(world: World) -> None:
    async with serving(world) as http:
        assert (await http.put(GOAL, json={"value": "ship"}, headers=HEADERS)).status_code == 200
        assert (await http.put(GOAL, json={"value": "later"})).status_code == 200
    event = await the_event(world.app, world.tenant)
    assert (event.event.type, event.event.subject, event.correlation) == ("board.written", "goal", CORRELATION)


async def test_records_and_cloudevents_include_the_ids(world: World) -> None:
    async with serving(world) as http:
        await http.put(GOAL, json={"value": "ship"}, headers=HEADERS)
        await http.put(GOAL, json={"value": "later"})
        for name in ("turn_id", "task_id", "tool_call_id"):
            asked = {name: getattr(CORRELATION, name), "types": ["context_item", "context_event"]}
            records = (await http.get("/v1/records", params=asked)).json()["records"]
            assert [entry["type"] for entry in records] == ["context_item", "context_event"]
            assert records[0]["id"] == "board:s1/goal/1.1"
            event = records[1]["record"]
            assert (event["turn_id"], event["task_id"]) == (CORRELATION.turn_id, CORRELATION.task_id)
            (mapping,) = event["external_mappings"]
            assert (mapping["native"], mapping["trace_id"], mapping["span_id"]) == ("opentelemetry", TRACE, SPAN)
        read = await http.get("/v1/events", params={"after": 0, "types": "board.*", "format": "cloudevents"})
        traced = [event.get("traceparent") for event in read.json()["cloudevents"]]
        assert traced == [TRACEPARENT, None]


async def test_tool_calls_over_http_record_the_ids(world: World) -> None:
    async with serving(world) as http:
        message = {"session_id": "s1", "content": "Ready."}
        assert (await http.post("/mcp/tool/add_message", json=message, headers=HEADERS)).status_code == 200
    assert (await the_event(world.app, world.tenant)).event.type == "message.added"


async def test_filtering_by_id_stays_within_the_tenant(world: World) -> None:
    async with serving(world) as http:
        await http.put(GOAL, json={"value": "ship"}, headers=HEADERS)
    assert await events_of(world.app, world.other_tenant, turn_id=CORRELATION.turn_id or "") == []


async def test_concurrent_calls_keep_their_turn_ids(world: World) -> None:
    async def write(http: httpx2.AsyncClient, number: int) -> None:
        headers = {"baggage": f"weftline.turn_id=t{number}"} if number % 2 else {}
        path = f"/v1/sessions/s1/context/key_{number}"
        assert (await http.put(path, json={"value": "x"}, headers=headers)).status_code == 200

    async with serving(world) as http:
        await asyncio.gather(*(write(http, number) for number in range(40)))
    for number in range(40):
        (event,) = await events_of(world.app, world.tenant, subject=f"key_{number}")
        assert event.correlation == (Correlation(turn_id=f"t{number}") if number % 2 else NO_CORRELATION)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"traceparent", b"garbage"), (b"baggage", b"garbage")],
        [(b"traceparent", b"")],
        [(b"traceparent", b"\xff\xfe\x00\x01\r"), (b"baggage", b"weftline.turn_id=\xff\xfe\x00,\x01=\x02;")],
        [(b"traceparent", TRACEPARENT.encode()), (b"traceparent", TRACEPARENT.encode())],
        [(b"baggage", b"weftline.turn_id=" + b"x" * 100_000)],
        [(b"baggage", b"," * 32_000), (b"baggage", b"=;" * 1_000)],
        [(b"baggage", b"weftline.turn_id=a%00b,weftline.task_id=%0d%0aX-Evil:%201")],
        [(b"baggage", b"weftline.turn_id=')%3B DROP TABLE events--")],
    ],
    ids=range(8),
)
async def test_malformed_headers_are_ignored(world: World, headers: list[tuple[bytes, bytes]]) -> None:
    async with serving(world) as http:
        raw: Any = [(b"authorization", f"Bearer {world.planner.credential}".encode()), *headers]
        answer = await http.put(GOAL, json={"value": "ship"}, headers=raw)
    assert answer.status_code == 200
    (event,) = await events_of(world.app, world.tenant, subject="goal")
    assert event.correlation is NO_CORRELATION


async def test_baggage_may_be_split_over_headers(world: World) -> None:
    async with serving(world) as http:
        pieces = [("baggage", "weftline.turn_id=t1"), ("baggage", "user=dana"), ("baggage", "weftline.task_id=k1")]
        await http.put(GOAL, json={"value": "ship"}, headers=pieces)
    (event,) = await events_of(world.app, world.tenant, turn_id="t1")
    assert event.correlation == Correlation(turn_id="t1", task_id="k1")


async def test_correlation_ids_grant_no_access(world: World) -> None:
    async with serving(world) as http:
        http.headers.pop("authorization")
        assert (await http.put(GOAL, json={"value": "x"}, headers=HEADERS)).status_code == 401


def test_a_request_without_ids_records_none() -> None:
    scope = {"headers": [(b"host", b"x"), (b"authorization", b"Bearer key")], "client": ("10.0.0.1", 5)}
    context = context_of(scope)
    assert (context.credential, context.peer, context.sampled) == ("key", "10.0.0.1", True)
    assert context.correlation is NO_CORRELATION


def test_the_sampled_flag_is_recorded() -> None:
    scope = {"headers": [(b"traceparent", TRACEPARENT[:-2].encode() + b"00")]}
    context = context_of(scope)
    assert (context.correlation.trace_id, context.sampled, context.credential) == (TRACE, False, None)


def test_a_server_answers_any_header_bytes(team: Team, session: str) -> None:
    where, body = urlsplit(team.url), b'{"value":"ship"}'
    for hostile in (
        b"baggage: weftline.turn_id=\xff\xfe\xfd\r\ntraceparent: \xe9",
        b"baggage: " + b"weftline.turn_id=x," * 2_000 + b"\r\nbaggage: weftline.turn_id=%",
        b"traceparent: " + b"0" * 20_000,
        b"traceparent: a\r\ntraceparent: b\r\nBaggage: " + BAGGAGE.encode(),
    ):
        request = (
            f"PUT /v1/sessions/{session}/context/goal HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n"
            f"Authorization: Bearer {team.keys['planner']}\r\nContent-Length: {len(body)}\r\n"
        ).encode()
        with socket.create_connection((where.hostname, where.port), timeout=60) as line:
            line.sendall(request + hostile + b"\r\n\r\n" + body)
            answer = b"".join(iter(lambda line=line: line.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 200"), answer[:500]
