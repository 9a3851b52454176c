"""Client errors, retries and reconnects."""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from client_support import ScriptedServer, disconnects, responds, streams

from weftline import Client, SyncClient
from weftline.errors import (
    AuthenticationError,
    Conflict,
    InternalError,
    InvalidInput,
    KeyNotFound,
    NotFound,
    RateLimited,
    SystemUnavailable,
    Unavailable,
)

Connect = Callable[..., Any]
KEY = "weftline.default.key_0123456789abcdef.a-very-secret-part"


def error_body(code: str, **more: Any) -> dict[str, Any]:
    return {
        "success": False,
        "error": "it went wrong",
        "code": code,
        "severity": "error",
        "recoverable": True,
        "suggestions": ["do this", "then that"],
        "context": {"key": "goal"},
        "related_resources": ["shared_context"],
        "timestamp": "2026-01-01T00:00:00.000Z",
        **more,
    }


def event_block(seq: int) -> str:
    return (
        f"id: {seq}\nevent: board.written\n"
        f'data: {{"seq":{seq},"type":"board.written","session_id":"s","subject":"goal","actor":"planner",'
        '"agent_id":"planner",'
        '"at":"2026-01-01T00:00:00Z","data":{}}'
    )


ENTRY = {"key": "goal", "value": "ship", "written_by": "planner", "written_at": "2026-01-01T00:00:00Z", "version": 1}


async def test_an_error_is_raised_as_the_class_of_its_code(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(responds(404, error_body("KEY_NOT_FOUND")))
    async with connect(script.url) as weftline:
        with pytest.raises(KeyNotFound) as caught:
            await weftline.board.read("s", "goal")
    error = caught.value
    assert (error.message, error.context) == ("it went wrong", {"key": "goal"})
    assert (error.hint, error.related) == ("do this then that", ("shared_context",))


async def test_an_unknown_code_is_raised_by_its_kind_and_keeps_its_code(
    connect: Connect, script: ScriptedServer
) -> None:
    script.answer_with(responds(409, error_body("FROM_THE_FUTURE")))
    async with connect(script.url) as weftline:
        with pytest.raises(Conflict) as caught:
            await weftline.board.read("s", "goal")
    assert (caught.value.code, caught.value.message) == ("FROM_THE_FUTURE", "it went wrong")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationError), (404, NotFound), (418, Exception), (500, InternalError), (502, Unavailable)],
)
async def test_a_foreign_response_is_raised_by_its_status(
    connect: Connect, script: ScriptedServer, status: int, kind: type[Exception]
) -> None:
    script.answer_with(responds(status, b"<html>a proxy</html>"))
    async with connect(script.url) as weftline:
        with pytest.raises(kind, match=str(status)):
            await weftline.board.read("s", "goal")


async def test_a_server_that_is_not_weftline_is_recognised(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(responds(200, b"hello"))
    async with connect(script.url) as weftline:
        with pytest.raises(SystemUnavailable, match="does not answer like"):
            await weftline.board.read("s", "goal")


async def test_unknown_response_fields_are_ignored(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(responds(200, {**ENTRY, "mood": "sunny"}))
    async with connect(script.url) as weftline:
        assert (await weftline.board.read("s", "goal")).value == "ship"


async def test_an_unreachable_server_error_names_the_address_and_the_command(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    async with connect(url, retries=0) as weftline:
        with pytest.raises(SystemUnavailable) as caught:
            await weftline.board.write("s", "goal", "ship")
    assert url in caught.value.message
    assert "weftline serve" in caught.value.message


async def test_a_read_without_a_response_is_retried(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(disconnects, disconnects, responds(200, ENTRY))
    async with connect(script.url) as weftline:
        assert (await weftline.board.read("s", "goal")).value == "ship"
    assert len(script.requests) == 3


async def test_read_retries_are_limited(connect: Connect, script: ScriptedServer) -> None:
    async with connect(script.url, retries=1) as weftline:
        with pytest.raises(SystemUnavailable):
            await weftline.board.read("s", "goal")
    assert len(script.requests) == 2


async def test_a_write_without_a_response_is_never_retried(connect: Connect, script: ScriptedServer) -> None:
    async with connect(script.url) as weftline:
        with pytest.raises(SystemUnavailable) as caught:
            await weftline.board.write("s", "goal", "ship")
    assert len(script.requests) == 1
    assert "may have been made" in caught.value.hint


async def test_rate_limit_errors_are_retried_after_the_wait(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(
        responds(429, error_body("RATE_LIMITED"), retry_after="0"), responds(200, {**ENTRY, "version": 2})
    )
    async with connect(script.url) as weftline:
        assert (await weftline.board.write("s", "goal", "ship")).version == 2


async def test_a_wait_above_the_limit_is_raised(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(responds(429, error_body("RATE_LIMITED"), retry_after="3600"))
    async with connect(script.url, max_wait_seconds=5) as weftline:
        with pytest.raises(RateLimited) as caught:
            await weftline.board.write("s", "goal", "ship")
    assert caught.value.context["retry_after_seconds"] == 3600


async def test_following_resumes_after_the_last_event(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(streams(": open", event_block(8)), disconnects, streams(": still here", event_block(9)))
    seen = []
    async with connect(script.url) as weftline, aclosing(weftline.follow("s", after=7)) as events:
        async for event in events:
            seen.append(event.seq)
            if event.seq == 9:
                break
    assert seen == [8, 9]
    asked = [target.partition("after=")[2] for target in script.requests]
    assert asked[:3] == ["7", "8", "8"]


async def test_following_from_now_on_resumes_without_a_first_event(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(responds(200, {"events": [], "next_after": 41}), disconnects, streams(event_block(42)))
    async with connect(script.url) as weftline, aclosing(weftline.follow("s", ["goal", "plan_*"])) as events:
        assert (await anext(events)).seq == 42
    wanted = "session_id=s&keys=goal&keys=plan_%2A&types=%2A&personal=false&addressed=false&after=41"
    assert script.requests[1:3] == [f"GET /v1/events/stream?{wanted}"] * 2


async def test_following_an_unreadable_session_is_refused(connect: Connect, script: ScriptedServer) -> None:
    script.answer_with(responds(401, error_body("AUTHENTICATION_ERROR")))
    async with connect(script.url) as weftline, aclosing(weftline.follow(after=0)) as events:
        with pytest.raises(AuthenticationError):
            await anext(events)
    assert len(script.requests) == 1


async def test_a_stream_that_ends_in_an_error_raises_it(connect: Connect, script: ScriptedServer) -> None:
    body = '{"success":false,"error":"revoked","code":"AUTHENTICATION_ERROR","severity":"error","recoverable":true,'
    body += '"suggestions":["get a new key"],"context":{},"related_resources":[],"timestamp":"x"}'
    script.answer_with(streams(event_block(1), f"event: error\ndata: {body}"))
    async with connect(script.url) as weftline, aclosing(weftline.follow(after=0)) as events:
        assert (await anext(events)).seq == 1
        with pytest.raises(AuthenticationError, match="revoked"):
            await anext(events)


async def test_following_gives_up_after_consecutive_failures(connect: Connect, script: ScriptedServer) -> None:
    async with connect(script.url, reconnects=2) as weftline, aclosing(weftline.follow(after=0)) as events:
        with pytest.raises(SystemUnavailable):
            await anext(events)
    assert len(script.requests) == 3


async def test_the_api_key_is_sent_to_the_server_and_shown_in_no_error(
    connect: Connect, script: ScriptedServer
) -> None:
    async with connect(script.url, KEY, retries=0) as weftline:
        with pytest.raises(SystemUnavailable) as caught:
            await weftline.board.read("s", "goal")
    assert script.keys == [f"Bearer {KEY}"]
    shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert "secret" not in shown


@pytest.mark.parametrize("kind", [Client, SyncClient])
def test_the_key_is_in_no_repr(kind: type) -> None:
    client = kind("http://127.0.0.1:1", KEY)
    assert repr(client) == f"{kind.__name__}('http://127.0.0.1:1')"
    assert "secret" not in repr(vars(client)) + repr(vars(client._connection))


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidInput) as caught:
        Client(api_key=f"{KEY}\n{KEY}")
    assert "secret" not in str(caught.value)


def test_whitespace_around_a_key_is_stripped() -> None:
    assert Client(api_key=f" {KEY}\n")._connection.address.api_key == KEY


def test_url_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFTLINE_URL", "https://weftline.example/")
    monkeypatch.setenv("WEFTLINE_API_KEY", KEY)
    address = SyncClient()._connection.address
    assert (address.url, address.api_key) == ("https://weftline.example", KEY)
    assert SyncClient("http://127.0.0.1:1")._connection.address.url == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    "url", ["localhost:8787", "ftp://weftline", "http://", "http://u:p@weftline", "http://weftline:99999"]
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="url:"):
        Client(url)
