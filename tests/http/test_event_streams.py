"""Event streams, long polls and the collaboration API's HTTP routes."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from support.team import Team, with_timeout
from weftline.app.event_feed import MAX_OF_PRINCIPAL
from weftline.transports.http.application import HttpApplication
from weftline.transports.http.streams import _event_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from support.world import World


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of server-sent events, one block at a time."""

    lines: AsyncIterator[str]

    async def block(self) -> dict[str, str]:
        """Return the fields of the next event; a comment is a block with an empty name."""
        fields: dict[str, str] = {}
        while line := await with_timeout(anext(self.lines)):
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        return fields

    async def event(self) -> Any:
        block = await self.block()
        while "" in block:
            block = await self.block()
        data = json.loads(block["data"])
        if block["event"] != "error":
            assert (int(block["id"]), block["event"]) == (data["seq"], data["type"])
        return data

    async def subject(self) -> str:
        return (await self.event())["subject"]


@asynccontextmanager
async def following(
    team: Team,
    agent: str = "planner",
    url: str = "/v1/events/stream",
    *,
    last_event_id: str | None = None,
    **query: Any,
) -> AsyncIterator[Stream]:
    headers = team.headers(agent)
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    async with (
        httpx2.AsyncClient(base_url=team.url, headers=headers, timeout=60, verify=False) as http,
        http.stream("GET", url, params=query or None) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        stream = Stream(answer.aiter_lines())
        assert await stream.block() == {"": "open"}
        yield stream


async def write(team: Team, session: str, *keys: str) -> None:
    for key in keys:
        await asyncio.to_thread(team.write, session, key)


@pytest.mark.req("SC-16")
async def test_a_stream_sends_each_write_in_order_without_the_value(team: Team, session: str) -> None:
    async with following(team, session_id=session) as stream:
        await write(team, session, "goal", "plan", "goal")
        events = [await stream.event() for _ in range(3)]
    assert [(event["subject"], event["data"]["version"]) for event in events] == [("goal", 1), ("plan", 1), ("goal", 2)]
    assert [event["seq"] for event in events] == sorted(event["seq"] for event in events)
    assert (events[0]["actor"], events[0]["agent_id"]) == ("orchestrator:planner", "planner")
    assert "value" not in events[0]["data"]


@pytest.mark.req("SC-16")
async def test_a_stream_resumes_after_the_last_event_id(team: Team, session: str) -> None:
    async with following(team, session_id=session) as stream:
        await write(team, session, "one")
        last = (await stream.event())["seq"]
    await write(team, session, "two", "three")
    async with following(team, session_id=session, last_event_id=str(last)) as stream:
        assert [await stream.subject(), await stream.subject()] == ["two", "three"]
    async with following(team, session_id=session, after=last) as stream:
        assert [await stream.subject(), await stream.subject()] == ["two", "three"]
        await write(team, session, "four")
        assert await stream.subject() == "four"
    # The Last-Event-ID of a reconnecting browser overrides ``after``.
    async with following(team, session_id=session, after=0, last_event_id=str(last)) as stream:
        assert await stream.subject() == "two"


@pytest.mark.req("SC-16")
async def test_a_stream_is_filtered_by_key(team: Team, session: str) -> None:
    async with following(team, session_id=session, keys=["risk_*", "goal"]) as stream:
        await write(team, session, "other", "risk_one", "goals", "goal")
        assert [await stream.subject(), await stream.subject()] == ["risk_one", "goal"]


async def test_a_stream_without_a_session_covers_every_readable_session(team: Team, session: str) -> None:
    closed = await asyncio.to_thread(team.new_session, "admin", members=["human:*"])
    async with following(team) as stream:
        await asyncio.to_thread(team.write, closed, "hidden", agent="admin")
        await write(team, session, "shown")
        assert await stream.subject() == "shown"


@pytest.mark.req("WX-05")
async def test_a_stream_ends_when_its_caller_is_removed_from_the_session(team: Team) -> None:
    session = await asyncio.to_thread(team.new_session, members=["reader"])
    async with following(team, "reader", session_id=session) as stream:
        await write(team, session, "before")
        assert await stream.subject() == "before"
        body = {"members": ["reader"]}
        await asyncio.to_thread(team.ask, "POST", f"/v1/sessions/{session}/members/remove", json=body)
        await write(team, session, "after")
        block = await stream.block()
        assert (block["event"], json.loads(block["data"])["code"]) == ("error", "SESSION_NOT_FOUND")


async def test_a_stream_says_which_events_are_past_retention(world: World) -> None:
    await world.planner.write("kept")
    await world.sql("UPDATE tenants SET pruned_seq = $1 WHERE tenant = $2", 1, world.tenant)
    await world.sql("DELETE FROM events WHERE tenant = $1 AND seq <= $2", world.tenant, 1)
    headers = [(b"authorization", f"Bearer {world.planner.credential}".encode()), (b"host", b"127.0.0.1")]
    query = b"session_id=s1&after=0&types=board.*"
    scope = {"type": "http", "method": "GET", "path": "/v1/events/stream", "query_string": query}
    sent: asyncio.Queue[Any] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    stream = asyncio.create_task(HttpApplication(world.app).asgi({**scope, "headers": headers}, receive, sent.put))
    assert (await with_timeout(sent.get()))["status"] == 200
    assert (await with_timeout(sent.get()))["body"] == b": open\n\n"
    pruned, _, event = (await with_timeout(sent.get()))["body"].partition(b"\n\n")
    assert pruned.splitlines() == [b"id: 1", b"event: pruned", b'data: {"pruned_through":1}']
    assert b'"subject":"kept"' in event
    gone.set()
    await with_timeout(stream)


async def test_a_quiet_stream_sends_heartbeats(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.app._HEARTBEAT_SECONDS", 0.01)
    headers = [(b"authorization", f"Bearer {world.planner.credential}".encode()), (b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "GET", "path": "/v1/events/stream", "query_string": b"session_id=s1"}
    sent: asyncio.Queue[Any] = asyncio.Queue()
    gone = asyncio.Event()

    async def receive() -> Any:
        await gone.wait()
        return {"type": "http.disconnect"}

    # Called as ASGI in this process, where the interval can be shorter.
    application = HttpApplication(world.app)
    stream = asyncio.create_task(application.asgi({**scope, "headers": headers}, receive, sent.put))
    assert (await with_timeout(sent.get()))["status"] == 200
    assert [(await with_timeout(sent.get()))["body"] for _ in range(3)] == [b": open\n\n", *[b": still here\n\n"] * 2]
    gone.set()
    await with_timeout(stream)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - conditions of the code under test have no event
            await asyncio.sleep(0.01)


class SlowClient:
    """ASGI client of the event stream that reads only when it is told to."""

    def __init__(self, world: World, query: bytes) -> None:
        headers = [(b"authorization", f"Bearer {world.planner.credential}".encode()), (b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "GET", "path": "/v1/events/stream", "query_string": query}
        self.scope = {**scope, "headers": headers}
        self.application = HttpApplication(world.app)
        self.reading = asyncio.Event()
        self.reading.set()
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        await asyncio.Event().wait()

    async def send(self, message: Any) -> None:
        await self.reading.wait()
        self.sent.append(message)
        if b"event: board." in message.get("body", b""):
            self.reading.clear()

    async def stream(self) -> None:
        await with_timeout(self.application.asgi(self.scope, self.receive, self.send))


async def test_a_stream_whose_client_does_not_read_is_ended_with_the_position_to_resume_from(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weftline.transports.http.streams._SLOW_SECONDS", 0.2)
    monkeypatch.setattr("weftline.transports.http.streams._MESSAGE_BYTES", 1)
    for key in ("one", "two", "three"):
        await world.planner.write(key)
    client = SlowClient(world, b"session_id=s1&after=1")
    streaming = asyncio.create_task(client.stream())
    await until(lambda: not client.reading.is_set())
    await asyncio.sleep(0.3)
    client.reading.set()
    await streaming
    first, error = (message["body"] for message in client.sent if b"event: " in message.get("body", b""))
    assert b'"subject":"one"' in first
    body = json.loads(error.partition(b"data: ")[2])
    assert (body["code"], body["context"]) == ("STREAM_TOO_SLOW", {"resume_after": 2})
    assert client.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    again = await world.planner.events(after=2, session_id="s1")
    assert [event["subject"] for event in again["events"]] == ["two", "three"]


async def test_a_client_that_never_reads_again_does_not_keep_its_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SLOW_SECONDS", "_LAST_SECONDS"):
        monkeypatch.setattr(f"weftline.transports.http.streams.{name}", 0.05)
    await world.planner.write("one")
    client = SlowClient(world, b"session_id=s1&after=1")
    streaming = asyncio.create_task(client.stream())
    await until(lambda: not client.reading.is_set())
    await world.planner.write("two")
    await streaming
    assert len(world.app.feed.subscribers) == 0
    assert b"two" not in b"".join(message.get("body", b"") for message in client.sent)


async def test_an_event_is_encoded_once_for_all_streams(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def counted(seq: int, event: Any) -> bytes:
        encoded.append(seq)
        return _event_text(seq, event)

    monkeypatch.setattr("weftline.transports.http.streams._event_text", counted)
    clients = [SlowClient(world, b"session_id=s1") for _ in range(5)]
    for client in clients:
        client.application = clients[0].application
    streaming = [asyncio.create_task(client.stream()) for client in clients]
    await until(lambda: all(len(client.sent) == 2 for client in clients))
    await world.planner.write("goal")
    await until(lambda: not any(client.reading.is_set() for client in clients))
    assert len({client.sent[2]["body"] for client in clients}) == 1
    assert len(encoded) == 1
    clients[0].application.end_waiting()
    for client in clients:
        client.reading.set()
    await asyncio.gather(*streaming)


async def test_one_agent_has_a_limited_number_of_streams(team: Team, session: str) -> None:
    agent = await asyncio.to_thread(team.new_agent, parent_id="planner")
    async with AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(following(team, agent, session_id=session)) for _ in range(MAX_OF_PRINCIPAL)
        ]
        refused = await asyncio.to_thread(team.ask, "GET", f"/v1/events/stream?session_id={session}", agent)
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_SUBSCRIPTIONS")
        waiting = await asyncio.to_thread(team.ask, "GET", f"/v1/events?session_id={session}&wait_seconds=1", agent)
        assert (waiting.status_code, waiting.json()["code"]) == (429, "TOO_MANY_SUBSCRIPTIONS")
        # Others are not affected, and every stream goes on.
        async with following(team, "planner", session_id=session) as stream:
            await write(team, session, "goal")
            assert [await each.subject() for each in (stream, streams[0], streams[-1])] == ["goal"] * 3


@pytest.mark.req("SC-16")
async def test_a_revoked_key_ends_the_stream_with_an_error(team: Team, session: str) -> None:
    agent_to_revoke = await asyncio.to_thread(team.new_agent, parent_id="planner")
    async with following(team, agent_to_revoke, session_id=session) as stream:
        await asyncio.to_thread(team.revoke, agent_to_revoke)
        block = await stream.block()
        assert block["event"] == "error"
        assert json.loads(block["data"])["code"] == "INVALID_API_KEY"
        with pytest.raises(StopAsyncIteration):
            await anext(stream.lines)


async def test_a_deleted_session_ends_the_stream_with_an_error(team: Team, session: str) -> None:
    async with following(team, session_id=session) as stream:
        await asyncio.to_thread(team.ask, "DELETE", f"/v1/sessions/{session}")
        last = await stream.event()
        while "code" not in last:
            last = await stream.event()
        assert last["code"] == "SESSION_NOT_FOUND"


@pytest.mark.parametrize(
    ("query", "status"),
    [("session_id=nowhere", 404), ("after=x", 400), ("wait_seconds=1", 400), ("keys=%00", 400), ("unknown=1", 400)],
)
def test_an_invalid_stream_request_is_an_ordinary_error(team: Team, query: str, status: int) -> None:
    answer = team.ask("GET", f"/v1/events/stream?{query}")
    assert answer.status_code == status
    assert answer.json()["success"] is False


def test_a_stream_needs_a_credential_and_the_permission_to_read(team: Team, session: str) -> None:
    assert team.ask("GET", "/v1/events/stream", None).status_code == 401
    writer = team.new_agent(permissions=["write"])
    answer = team.ask("GET", f"/v1/events/stream?session_id={session}", writer)
    assert (answer.status_code, answer.json()["code"]) == (403, "PERMISSION_DENIED")
    answer = team.ask("GET", f"/v1/events/stream?session_id={session}", headers={"Last-Event-ID": "x"})
    assert answer.status_code == 400


@pytest.mark.req("SC-16")
async def test_a_long_poll_is_answered_by_the_next_event(team: Team, session: str) -> None:
    def poll(**query: Any) -> Any:
        return team.ask("GET", "/v1/events", params={"session_id": session, **query}).json()

    present = poll()
    assert present["events"] == []
    waiting = asyncio.create_task(asyncio.to_thread(poll, after=present["next_after"], wait_seconds=30))
    await write(team, session, "goal")
    polled = await with_timeout(waiting)
    assert [event["subject"] for event in polled["events"]] == ["goal"]
    assert poll(after=polled["next_after"], wait_seconds=0.01)["events"] == []
    assert [event["subject"] for event in poll(after=present["next_after"])["events"]] == ["goal"]


@pytest.mark.req("MS-12")
async def test_the_subscribe_route_returns_the_stream_url(team: Team, session: str) -> None:
    answer = team.ask("POST", "/mcp/resource/subscribe", json={"uri": f"board://{session}/risk_*"})
    assert answer.status_code == 200
    subscribed = answer.json()
    assert (subscribed["success"], subscribed["uri"]) == (True, f"board://{session}/risk_*")
    await write(team, session, "other", "risk_one")
    async with following(team, url=subscribed["stream"]) as stream:
        assert await stream.subject() == "risk_one"
    polled = team.ask("GET", subscribed["poll"]).json()
    assert [event["subject"] for event in polled["events"]] == ["risk_one"]


@pytest.mark.req("MS-12")
@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 400), ({"uri": 5}, 400), ({"uri": "nonsense"}, 404), ({"uri": "board://nowhere/goal"}, 404)],
)
def test_subscribing_to_an_unknown_resource_is_refused(team: Team, body: Any, status: int) -> None:
    answer = team.ask("POST", "/mcp/resource/subscribe", json=body)
    assert answer.status_code == status
    assert answer.json()["suggestions"]


def test_hints_name_what_the_caller_can_call(team: Team) -> None:
    """The plain tool API names tools, REST names routes, over the same errors."""
    session = {"session_id": "nowhere"}
    by_tool = team.ask("POST", "/mcp/tool/get_session", json=session).json()["suggestions"]
    by_route = team.ask("GET", "/v1/sessions/nowhere").json()["suggestions"]
    (of_tool,), (of_route,) = by_tool, by_route
    assert of_tool.startswith("Check the session_id; list yours with list_sessions or create one with create_session.")
    assert of_tool.endswith("The creator of a session can add you with session_members (action add).")
    assert "list yours with `GET /v1/sessions` or create one with `POST /v1/sessions`." in of_route
    assert of_route.endswith("can add you with `POST /v1/sessions/{session_id}/members`.")
    streamed = team.ask("GET", "/v1/events/stream", params=session).json()["suggestions"]
    assert streamed == by_route
    read = team.ask("GET", "/mcp/resource/board://nowhere/goal").json()["suggestions"]
    assert "`" not in read[0]


@pytest.mark.req("MS-12")
def test_tools_can_be_called_by_name(team: Team) -> None:
    made = team.ask("POST", "/mcp/tool/create_session", json={"purpose": "by shim"}).json()
    assert made["success"] is True
    session = made["session_id"]
    written = team.ask(
        "POST",
        "/mcp/tool/shared_context",
        "analysis",
        json={"session_id": session, "action": "write", "key": "goal", "value": "ship"},
    )
    assert written.json()["written_by"] == "subagent:analysis"
    for tool, code in {"no_such_tool": "UNKNOWN_OPERATION", "shared_context": "INVALID_INPUT_FORMAT"}.items():
        assert team.ask("POST", f"/mcp/tool/{tool}", json={}).json()["code"] == code
    assert team.ask("POST", "/mcp/tool/create_session", "analysis", json={"purpose": "no"}).status_code == 403
    assert team.ask("POST", "/mcp/tool/list_sessions", None, json={}).status_code == 401
    body = {"agent_id": "analysis", "agent_type": "analysis", "api_key": team.keys["analysis"]}
    token = team.ask("POST", "/mcp/tool/authenticate_agent", None, json=body).json()
    assert (token["success"], token["token_type"]) == (True, "Bearer")


@pytest.mark.req("MS-12")
def test_resources_can_be_read_by_uri(team: Team, session: str) -> None:
    team.write(session, "goal", "ship")
    entry = team.ask("GET", f"/mcp/resource/board://{session}/goal")
    assert (entry.status_code, entry.json()["value"]) == (200, "ship")
    assert team.ask("GET", f"/mcp/resource/board:/{session}/goal").json()["value"] == "ship"
    listed = team.ask("GET", f"/mcp/resource/board://{session}").json()
    assert [key["key"] for key in listed["keys"]] == ["goal"]
    assert team.ask("GET", f"/mcp/resource/session://{session}").json()["session"]["id"] == session
    assert team.ask("GET", f"/mcp/resource/board://{session}/goal", "stranger").status_code == 404
    assert team.ask("GET", f"/mcp/resource/board://{session}/goal", None).status_code == 401
    assert team.ask("GET", "/mcp/resource/file:///etc/passwd").json()["code"] == "RESOURCE_NOT_FOUND"
