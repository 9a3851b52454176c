"""MCP clients without a credential: they can log in with authenticate_agent, and do nothing else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from support.team import LEGACY, MODERN, Team, call, team_process, tools_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = pytest.mark.req("MS-01")
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


@asynccontextmanager
async def connected(team: Team, era: str, token: str | None = None, path: str = "/mcp") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, verify=False) as http,
        Client(streamable_http_client(f"{team.url}{path}", http_client=http), mode=era) as client,
    ):
        yield client


async def answer_of(client: Client, tool: str, **arguments: Any) -> Any:
    return (await call(client, tool, **arguments)).structured_content


def credentials(team: Team, agent: str = "planner", agent_type: str = "planning") -> dict[str, Any]:
    return {"agent_id": agent, "agent_type": agent_type, "api_key": team.keys[agent]}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/full", "/mcp/session/any", "/mcp/tools/board"])
async def test_exactly_authenticate_agent_is_listed_without_a_credential(team: Team, era: str, path: str) -> None:
    async with connected(team, era, path=path) as client:
        tools = await tools_of(client)
        assert list(tools) == ["authenticate_agent"]
        assert {"agent_id", "agent_type", "api_key"} == set(tools["authenticate_agent"].input_schema["required"])
        assert "Authorization: Bearer" in tools["authenticate_agent"].description
        if era == LEGACY:
            # Clients of the stateless era do not ask for instructions.
            assert "authenticate_agent" in (client.instructions or "")


async def test_a_client_logs_in_and_works_with_the_token(team: Team, era: str) -> None:
    async with connected(team, era) as client:
        issued = await answer_of(
            client, "authenticate_agent", requested_permissions=["read", "write"], **credentials(team)
        )
    assert issued["success"] is True
    assert (issued["agent_id"], issued["token_type"], issued["permissions"]) == ("planner", "Bearer", ["read", "write"])
    async with connected(team, era, issued["token"]) as client:
        assert "authenticate_agent" not in await tools_of(client)
        made = await answer_of(client, "create_session", purpose="after logging in")
        assert made["created_by"] == "planner"
    async with connected(team, era) as client:
        reading = await answer_of(client, "authenticate_agent", requested_permissions=["read"], **credentials(team))
    async with connected(team, era, reading["token"]) as client:
        refused = await client.call_tool("create_session", {"purpose": "only reading"})
        assert refused.structured_content["code"] == "PERMISSION_DENIED"


async def test_every_other_call_without_a_credential_is_refused(team: Team, era: str, session: str) -> None:
    async with connected(team, era) as client:
        for name, arguments in {
            "create_session": {"purpose": "p"},
            "get_messages": {"session_id": session},
            "get_performance_metrics": {},
            "refresh_token": {},
            "weftline_tools": {"action": "call", "name": "authenticate_agent", "arguments": credentials(team)},
            "no_such_tool": {},
        }.items():
            answer = await client.call_tool(name, arguments)
            assert answer.is_error
            assert answer.structured_content["code"] == "AUTHENTICATION_ERROR", name
        for forbidden in (client.list_resources, client.list_prompts, client.list_resource_templates):
            with pytest.raises(MCPError):
                await forbidden()
        with pytest.raises(MCPError):
            await client.read_resource(f"session://{session}")


async def test_wrong_keys_are_refused_as_over_http(team: Team, era: str) -> None:
    async with connected(team, era) as client:
        for wrong in ({"api_key": "nonsense"}, {"api_key": team.keys["planner"] + "x"}, {"agent_id": "analysis"}):
            answer = await client.call_tool("authenticate_agent", {**credentials(team), **wrong})
            assert answer.structured_content["code"] == "INVALID_API_KEY"
        answer = await client.call_tool("authenticate_agent", {"agent_id": "planner"})
        assert answer.structured_content["code"] == "INVALID_INPUT_FORMAT"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"method": 7}',
        b"[" * 60_000,
        b'{"jsonrpc":"2.0","id":1,"method":"resources/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"' + b"x" * 70_000 + b'"}',
    ],
)
def test_other_messages_without_a_credential_are_401(team: Team, body: bytes) -> None:
    with httpx2.Client(base_url=team.url, headers=ACCEPT, timeout=60) as raw:
        for headers in ({}, {"mcp-protocol-version": MODERN}):
            answer = raw.post("/mcp", content=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "AUTHENTICATION_ERROR")


def test_nothing_is_kept_for_a_client_without_a_credential(team: Team) -> None:
    with httpx2.Client(base_url=team.url, headers=ACCEPT, timeout=60) as raw:
        opened = raw.post("/mcp", json=INITIALIZE)
        assert opened.status_code == 200
        assert "mcp-session-id" not in opened.headers
        assert list(opened.json()["result"]["capabilities"]) == ["tools"]
        for method in ("GET", "DELETE"):
            assert raw.request(method, "/mcp").status_code == 405
        # The connection of a credential cannot be continued without it.
        owned = raw.post("/mcp", json=INITIALIZE, headers=team.headers("planner")).headers["mcp-session-id"]
        stolen = raw.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers={"mcp-session-id": owned}
        )
        assert [tool["name"] for tool in stolen.json()["result"]["tools"]] == ["authenticate_agent"]


def test_messages_without_a_credential_are_limited_by_address(tmp_path: Path) -> None:
    with team_process(tmp_path, rate_limits="anonymous=5/minute") as team:
        with httpx2.Client(base_url=team.url, headers=ACCEPT, timeout=60) as raw:
            answers = [raw.post("/mcp", json=INITIALIZE) for _ in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 5 + [429]
        assert answers[-1].json()["code"] == "RATE_LIMITED"
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert httpx2.get(f"{team.url}/mcp").status_code == 429
        # Callers with a credential at the same address are not affected.
        assert team.ask("POST", "/mcp/tool/list_memory", json={}).status_code == 200
