"""Five calls of a server in this process, traced: the modules of the product that each crosses, and its function calls.

Every call was made before, so that caches are filled; nothing runs in the background.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx2

import weftline
from weftline.app.app import App
from weftline.app.authentication import Local
from weftline.app.dispatch import CallContext
from weftline.settings import Settings
from weftline.transports.http.application import HttpApplication

_SOURCE = str(Path(weftline.__file__).parent)
_MCP = "2026-07-28"
_SESSION = "/v1/sessions/s1"
_SAID = "The retry budget is spent by the second attempt, so the queue must be drained before the deploy."


class Trace:
    """Counts the functions of the product that are called in the block of ``recording``, in all threads."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.calls = 0
        self._is_recording = False

    @contextmanager
    def in_threads(self) -> Iterator[None]:
        """Let threads that are started in the block count what they call while this records."""
        threading.setprofile(self._note)
        try:
            yield
        finally:
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self.modules, self.calls, self._is_recording = set(), 0, True
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._is_recording = False

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if not self._is_recording or event != "call" or not frame.f_code.co_filename.startswith(_SOURCE):
            return
        self.modules.add(frame.f_code.co_filename)
        # A coroutine that goes on is no new call: its RESUME has another argument than at the start.
        if not frame.f_code.co_code[frame.f_lasti + 1] & 3:
            self.calls += 1


def traced_calls() -> list[tuple[str, int, int]]:
    """Return the name of each call, the modules that it crosses and the functions that it calls."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder, trace.in_threads():
        return asyncio.run(_traced(trace, folder))


async def _traced(trace: Trace, folder: str) -> list[tuple[str, int, int]]:
    # As tests have it: what runs by itself would count in whichever call it meets.
    app = App(Settings(data_dir=folder, rate_limits="off", session_indexing="off", search_wait_ms=0))
    await app.open(background=False)
    application = HttpApplication(app)
    try:
        await app.tenants.ensure_default()
        made: Any = await app.call(
            app.registry["key.create"], {"agent_id": "admin"}, CallContext(Local("default", "admin", by_owner=True))
        )
        transport = httpx2.ASGITransport(application.asgi)
        headers = {"authorization": f"Bearer {made.api_key}"}
        async with (
            application.mcp.running(),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as http,
        ):
            await _fill(app, http)
            found = []
            for name, call in _calls(app, http, made.api_key).items():
                for number in range(2):
                    await call(number)
                with trace.recording():
                    await call(2)
                found.append((name, len(trace.modules), trace.calls))
            return found
    finally:
        await app.close()


async def _fill(app: App, http: httpx2.AsyncClient) -> None:
    session = {"session_id": "s1", "purpose": "a measurement", "config": {"max_total_tokens": 1_000_000}}
    await _ask(http.post("/v1/sessions", json=session))
    await _ask(http.put(f"{_SESSION}/context/goal", json={"value": _SAID}))
    for number in range(20):
        await _ask(http.post(f"{_SESSION}/messages", json={"content": f"Message {number}. {_SAID}"}))
    said = [
        {"event_id": f"e{number}", "role": "user" if number % 2 else "assistant", "content": f"Turn {number}. {_SAID}"}
        for number in range(60)
    ]
    await _ask(http.post(f"{_SESSION}/ingest", json={"events": said}))
    app.lease_runner.rest = 0
    await app.scheduler.drain("search.index_sessions", "search.embed_sessions")


def _calls(app: App, http: httpx2.AsyncClient, key: str) -> dict[str, Callable[[int], Awaitable[Any]]]:
    cookies: dict[str, str] = {}

    async def console(_: int) -> None:
        if not cookies:
            signed_in = await http.post("/console/sign-in", data={"api_key": key})
            cookies.update(signed_in.cookies)
        await _ask(http.get("/console/sessions/s1", cookies=cookies))

    return {
        "board write over MCP": lambda number: _write_over_mcp(http, f"value {number}"),
        "search over REST": lambda number: _ask(http.post("/v1/search", json={"query": f"retry budget {number}"})),
        "assemble": lambda number: _ask(
            http.post(f"{_SESSION}/assemble", json={"task_description": f"drain the queue {number}"})
        ),
        "compaction run": lambda number: _compact(app, http, target=round(0.3 - number / 100, 2)),
        "console page": console,
    }


async def _compact(app: App, http: httpx2.AsyncClient, target: float) -> None:
    await _ask(http.post(f"{_SESSION}/compact", json={"target": target, "wait_seconds": 0}))
    await app.scheduler.drain("compaction.run")


async def _write_over_mcp(http: httpx2.AsyncClient, value: str) -> None:
    about = {
        "io.modelcontextprotocol/protocolVersion": _MCP,
        "io.modelcontextprotocol/clientInfo": {"name": "measurement", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    arguments = {"action": "write", "session_id": "s1", "key": "goal", "value": value}
    params = {"name": "shared_context", "arguments": arguments, "_meta": about}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": _MCP}
    headers |= {"mcp-method": "tools/call", "mcp-name": "shared_context"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await _ask(http.post("/mcp", json=body, headers=headers))
    assert '"isError":true' not in answer.text, answer.text


async def _ask(asked: Awaitable[httpx2.Response]) -> httpx2.Response:
    answer = await asked
    assert answer.is_success, answer.text
    return answer
