"""A server process with a team of agents, reached over HTTP, MCP and stdio."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from support import forked_python
from weftline.app.app import App
from weftline.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence
    from pathlib import Path

    from weftline.testing.server import ServerProcess

LEGACY, MODERN = "legacy", "2026-07-28"
TIMEOUT_SECONDS = 60
METRICS_TOKEN = "the-token-of-the-tests"
_STDIO = """
import sys
from weftline.settings import Settings
from weftline.transports.stdio import run
who = {"tenant": "default", "principal": sys.argv[1]}
session, tools, step = (given or None for given in sys.argv[2:])
run(Settings.from_environment(), **who, session=session, tools=tools, step=step)
"""


@dataclass(frozen=True, slots=True)
class Team:
    """A server with an admin, a planner, its sub-agent, a read-only agent, and an agent of another tenant."""

    server: ServerProcess
    data: Path
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.server.url

    def http(self, agent: str | None = "planner", **options: Any) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers=self.headers(agent), timeout=60, verify=False, **options)

    def headers(self, agent: str | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[agent]}"} if agent else {}

    def ask(self, method: str, path: str, agent: str | None = "planner", **options: Any) -> httpx2.Response:
        with self.http(agent) as http:
            return http.request(method, path, **options)

    def write(self, session_id: str, key: str, value: str = "text", agent: str = "planner") -> None:
        answer = self.ask("PUT", f"/v1/sessions/{session_id}/context/{key}", agent, json={"value": value})
        assert answer.status_code == 200, answer.text

    def instruct(self, session_id: str, event_id: str, content: str, agent: str = "analysis") -> None:
        """Give an agent a system event: its parent writes it, because it cannot do so itself."""
        event = {"event_id": event_id, "role": "system", "content": content}
        body = {"events": [event], "agent_id": agent}
        answer = self.ask("POST", f"/v1/sessions/{session_id}/ingest", "planner", json=body)
        assert answer.status_code == 200, answer.text

    def new_session(self, agent: str = "planner", *, members: Sequence[str] | None = None, **config: Any) -> str:
        session_id = f"s_{secrets.token_hex(6)}"
        body = {"purpose": "a test", "session_id": session_id, "config": config or None, "members": members}
        answer = self.ask("POST", "/v1/sessions", agent, json=body)
        assert answer.status_code == 201, answer.text
        return session_id

    def new_agent(self, **fields: Any) -> str:
        """Add an agent, keep its key, and return its name."""
        name = fields.pop("agent_id", None) or f"a_{secrets.token_hex(6)}"
        answer = self.ask("POST", "/v1/agents", "admin", json={"agent_id": name, **fields})
        assert answer.status_code == 201, answer.text
        self.keys[name] = answer.json()["api_key"]
        return name

    def revoke(self, agent: str) -> None:
        key_id = self.keys[agent].split(".")[2]
        assert self.ask("DELETE", f"/v1/keys/{key_id}", "admin").status_code == 200


@contextlib.contextmanager
def team_process(data: Path, **settings: str) -> Iterator[Team]:
    given = {"rate_limits": "off", "metrics_token": METRICS_TOKEN, **settings}
    with forked_python.server_process(data, **given) as server:
        team = Team(server, data, {"admin": server.admin_key, "metrics": METRICS_TOKEN})
        team.new_agent(agent_id="planner", agent_type="planning", clearance=3)
        team.new_agent(agent_id="analysis", parent_id="planner")
        team.new_agent(agent_id="reader", permissions=["read"])
        # In a separate thread, because coroutine tests start servers too.
        with ThreadPoolExecutor(1) as thread:
            team.keys["stranger"] = thread.submit(asyncio.run, _new_tenant(data)).result()
        yield team


async def _new_tenant(data: Path) -> str:
    async with opened(data) as app:
        return (await app.tenants.create("away")).admin_key


@contextlib.asynccontextmanager
async def opened(data: Path) -> AsyncIterator[App]:
    """Open the data folder in this process, next to the servers that use it."""
    app = App(Settings(data_dir=str(data)))
    await app.open()
    try:
        yield app
    finally:
        await app.close()


@contextlib.asynccontextmanager
async def over_http(
    team: Team, agent: str, era: str, *, path: str = "/mcp", url: str | None = None, **options: Any
) -> AsyncIterator[Client]:
    # No TLS here, and loading certificates for each client would cost more than its calls.
    async with (
        httpx2.AsyncClient(headers=team.headers(agent), timeout=60, verify=False) as http,
        Client(streamable_http_client(f"{url or team.url}{path}", http_client=http), mode=era, **options) as client,
    ):
        yield client


@contextlib.asynccontextmanager
async def over_stdio(
    data: Path, agent: str, era: str, *, session: str = "", tools: str = "", step: str = "", **options: Any
) -> AsyncIterator[Client]:
    environment = {"WEFTLINE_DATA_DIR": str(data), "WEFTLINE_RATE_LIMITS": "off"}
    arguments = ["-c", _STDIO, agent, session, tools, step]
    server = StdioServerParameters(command=forked_python.python(), args=arguments, env=environment)
    async with Client(server, mode=era, **options) as client:
        yield client


class Board:
    """The shared_context tool of one session."""

    def __init__(self, client: Client, session_id: str | None) -> None:
        self._client = client
        self._bound = {} if session_id is None else {"session_id": session_id}

    async def __call__(self, action: str, **arguments: Any) -> Any:
        result = await call(self._client, "shared_context", action=action, **self._bound, **arguments)
        assert not result.is_error, result.structured_content
        return result.structured_content

    async def refused(self, action: str, **arguments: Any) -> Any:
        return await refused(self._client, "shared_context", action=action, **self._bound, **arguments)


async def call(client: Client, tool: str, **arguments: Any) -> types.CallToolResult:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    return result


async def refused(client: Client, tool: str, **arguments: Any) -> Any:
    """Return the error body of a call."""
    result = await call(client, tool, **arguments)
    assert result.is_error, result.structured_content
    return result.structured_content


async def tools_of(client: Client) -> dict[str, types.Tool]:
    return {tool.name: tool for tool in (await client.list_tools()).tools}


@dataclass(slots=True)
class ResourceUpdates:
    """The resource-updated notifications that a client of the handshake era received."""

    uris: list[str] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.uris.append(str(message.params.uri))
            self._news.set()

    async def of(self, uri: str) -> None:
        """Wait for a notification of a URI."""
        while uri not in self.uris:
            self._news.clear()
            await self._news.wait()

    async def after(self, team: Team, session_id: str, key: str, uri: str) -> None:
        """Write a key until the client is notified of the URI: its stream may open late."""
        while uri not in self.uris:
            self._news.clear()
            await asyncio.to_thread(team.write, session_id, key)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), 1)


async def with_timeout(awaitable: Any) -> Any:
    """Await with a timeout, so that a failure is not a hang."""
    return await asyncio.wait_for(awaitable, TIMEOUT_SECONDS)
