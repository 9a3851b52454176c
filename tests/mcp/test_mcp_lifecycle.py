"""The server process: many concurrent clients, and a graceful shutdown."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from test_mcp_fast_path import ENVELOPE, INITIALIZE_PARAMS, PLAIN, message

from support.team import LEGACY, MODERN, Team, call, opened, over_http, team_process, tools_of, with_timeout
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

CLIENTS = 200


async def test_two_hundred_clients_write_to_one_session_and_nothing_is_lost(team: Team) -> None:
    session = team.new_session(max_total_tokens=100_000)

    async def write_as_client(number: int) -> None:
        async with board_of(team, session, LEGACY if number % 2 else MODERN) as board:
            written = await board("write", key=f"own_{number}", value=f"value {number}")
            assert written["version"] == 1
            await board("write", key="shared", value=f"by {number}")
            assert (await board("read", key=f"own_{number}"))["value"] == f"value {number}"

    await asyncio.gather(*(write_as_client(number) for number in range(CLIENTS)))
    listed = team.ask("GET", f"/v1/sessions/{session}/context").json()["keys"]
    versions = {entry["key"]: entry["version"] for entry in listed}
    assert versions == {"shared": CLIENTS, **{f"own_{number}": 1 for number in range(CLIENTS)}}


@asynccontextmanager
async def board_of(team: Team, session: str, era: str) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Yield a function that calls shared_context. Two hundred clients of the SDK would use more CPU than the server."""
    headers = {**PLAIN, **team.headers("analysis")}
    async with httpx2.AsyncClient(base_url=team.url, headers=headers, timeout=60, verify=False) as http:
        if era == LEGACY:
            opened = await http.post("/mcp", json={**message("initialize"), "params": INITIALIZE_PARAMS})
            http.headers |= {
                "mcp-protocol-version": INITIALIZE_PARAMS["protocolVersion"],
                "mcp-session-id": opened.headers["mcp-session-id"],
            }
        else:
            http.headers |= {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "shared_context"}

        async def ask(action: str, **arguments: Any) -> Any:
            given = {"action": action, "session_id": session, **arguments}
            meta = {} if era == LEGACY else {"_meta": ENVELOPE}
            answer = await http.post("/mcp", json=message("tools/call", name="shared_context", arguments=given, **meta))
            result = answer.json()["result"]
            assert not result["isError"], result
            return result["structuredContent"]

        yield ask
        if era == LEGACY:
            assert (await http.delete("/mcp")).status_code == 200


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_sigterm_finishes_calls_ends_streams_and_exits_cleanly(tmp_path: Path, era: str) -> None:
    with team_process(tmp_path) as team:
        session = team.new_session()
        async with (
            over_http(team, "planner", MODERN) as listener,
            listener.listen(resource_subscriptions=[f"board://{session}/goal"]) as subscription,
            over_http(team, "planner", era, path="/mcp/events") as caller,
            httpx2.AsyncClient(base_url=team.url, headers=team.headers("planner"), timeout=60) as http,
            http.stream("GET", "/v1/events/stream") as stream,
        ):
            lines = stream.aiter_lines()
            assert await with_timeout(anext(lines)) == ": open"
            await tools_of(caller)  # otherwise the client lists the tools before it checks its first answer
            waiting = asyncio.create_task(call(caller, "read_events", session_id=session, wait_seconds=60))
            await _until_in_flight(team, waiting)
            stopping = asyncio.create_task(asyncio.to_thread(team.server.stop))
            assert [event async for event in subscription] == []
            assert any("resume" in line for line in [line async for line in lines])
            await _write_from_another_process(tmp_path, session)
            events = (await with_timeout(waiting)).structured_content["events"]
            assert [event["subject"] for event in events] == ["goal"]
            assert await with_timeout(stopping) == 0
        with pytest.raises(httpx2.ConnectError):
            team.ask("GET", "/health")


async def test_buffered_read_counts_are_flushed_at_shutdown(tmp_path: Path) -> None:
    with team_process(tmp_path) as team:
        session = team.new_session()
        team.write(session, "goal")
        team.ask("GET", f"/v1/sessions/{session}/context/goal")
        assert team.server.stop() == 0
    async with opened(tmp_path) as app:
        admin = CallContext(Local("default", "admin"))
        inspected = await app.call(app.registry["session.inspect"], {"session_id": session}, admin)
        assert [entry.reads for entry in inspected.entries] == [1]


async def _until_in_flight(team: Team, call: asyncio.Task[object]) -> None:
    """Send requests on another connection until the server has read the earlier call."""
    async with httpx2.AsyncClient(base_url=team.url) as http:
        for _ in range(10):
            assert (await http.get("/ready")).status_code == 200
    assert not call.done()


async def _write_from_another_process(data: Path, session: str) -> None:
    async with opened(data) as app:
        request = {"session_id": session, "key": "goal", "value": "ship"}
        await app.call(app.registry["board.write"], request, CallContext(Local("default", "planner")))
