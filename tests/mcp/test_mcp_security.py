"""Authentication, hosts, limits and malformed messages at the MCP endpoint."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from support.team import MODERN, Team, over_http, tools_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


@pytest.fixture
def raw(team: Team) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=team.url, headers=ACCEPT, timeout=60) as client:
        yield client


def open_connection(raw: httpx2.Client, headers: dict[str, str]) -> dict[str, str]:
    """Initialize a connection and return the headers that continue it."""
    answer = raw.post("/mcp", json=INITIALIZE, headers=headers)
    assert answer.status_code == 200, answer.text
    return {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}


def modern_call(arguments: Any, name: str = "shared_context") -> tuple[dict[str, str], dict[str, Any]]:
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": name}
    return headers, {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}


def test_a_connection_belongs_to_the_principal_that_opened_it(team: Team, raw: httpx2.Client) -> None:
    connection = open_connection(raw, team.headers("planner"))
    assert raw.post("/mcp", json=PING, headers={**team.headers("planner"), **connection}).status_code == 200
    for thief in ("analysis", "admin", "stranger"):
        stolen = {**team.headers(thief), **connection}
        assert raw.post("/mcp", json=PING, headers=stolen).status_code == 404
        assert raw.delete("/mcp", headers=stolen).status_code == 404
        assert raw.get("/mcp", headers=stolen).status_code == 404
    assert raw.post("/mcp", json=PING, headers={**team.headers("planner"), **connection}).status_code == 200


def test_a_token_continues_the_connection_of_its_agent_s_key(team: Team, raw: httpx2.Client) -> None:
    connection = open_connection(raw, team.headers("analysis"))
    body = {"agent_id": "analysis", "agent_type": "analysis", "api_key": team.keys["analysis"]}
    token = team.ask("POST", "/v1/tokens", None, json=body).json()["token"]
    headers = {"Authorization": f"Bearer {token}", **connection}
    assert raw.post("/mcp", json=PING, headers=headers).status_code == 200


def test_a_revoked_key_is_refused_on_an_open_connection(team: Team, raw: httpx2.Client, session: str) -> None:
    leaver = team.new_agent()
    connection = {**team.headers(leaver), **open_connection(raw, team.headers(leaver))}
    team.revoke(leaver)
    listing = {"name": "shared_context", "arguments": {"action": "list_keys", "session_id": session}}
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": listing}
    answer = raw.post("/mcp", json=call, headers=connection).json()
    assert answer.get("result", {}).get("structuredContent", answer)["code"] == "INVALID_API_KEY"
    assert raw.post("/mcp", json=PING, headers=connection).status_code == 401


@pytest.mark.parametrize("path", ["/mcp", "/mcp/session/s1"])
@pytest.mark.parametrize(
    "credential", ["", "Bearer", "Bearer nonsense", "Bearer weftline.default.key_0.wrong", "Basic eDp5", "Bearer a.b.c"]
)
def test_a_credential_must_be_valid(raw: httpx2.Client, path: str, credential: str) -> None:
    headers = {"Authorization": credential}
    for answer in (raw.post(path, json=INITIALIZE, headers=headers), raw.get(path, headers=headers)):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["code"] in {"AUTHENTICATION_ERROR", "INVALID_API_KEY"}


@pytest.mark.parametrize("header", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
def test_foreign_origins_and_hosts_are_refused(team: Team, raw: httpx2.Client, header: dict[str, str]) -> None:
    answer = raw.post("/mcp", json=INITIALIZE, headers={**team.headers("planner"), **header})
    assert (answer.status_code, answer.json()["code"]) == (403, "HOST_NOT_ALLOWED")


def test_a_body_of_ten_megabytes_is_refused(team: Team, raw: httpx2.Client) -> None:
    modern, call = modern_call({"session_id": "s", "action": "write", "key": "k", "value": "x" * 10_000_000})

    def status(headers: dict[str, str]) -> int:
        return raw.post("/mcp", json=call, headers={**team.headers("planner"), **headers}).status_code

    # At once: each waits for seconds until the server no longer reads.
    with ThreadPoolExecutor() as threads:
        assert list(threads.map(status, (modern, {}))) == [413, 413]


HOSTILE_ARGUMENTS = [
    {"action": "write", "key": "k"},
    {"action": "write", "key": ["k"], "value": "v"},
    {"action": "write", "key": "k\x00", "value": "v"},
    {"action": "write", "key": "k", "value": "v", "ttl_seconds": 10**400},
    {"action": "write", "key": "k", "value": "v", "ttl_seconds": -1},
    {"action": "write", "key": "k", "value": "v", "readable_by": "everyone"},
    {"action": {"action": "write"}},
    {"action": None},
    {"action": "read", "key": "../../etc/passwd"},
    {"action": "read", "key": "'; DROP TABLE entries; --"},
    {"action": "read_batch", "keys": "goal"},
    {"action": "read_batch", "keys": []},
    {"action": "list_keys", "extra": 1},
    {"action": "list_keys", "session_id": 7},
    {"action": "list_keys", "session_id": "s" * 10_000},
    {"action": "list_keys", "session_id": "\x00"},
    {"action": "read_history", "key": "k", "versions": [1.5]},
    {"action": "snapshot", "label": ""},
    {"action": "read_snapshot", "label": "\x1b[31m"},
]


@pytest.mark.parametrize("arguments", HOSTILE_ARGUMENTS, ids=range(len(HOSTILE_ARGUMENTS)))
def test_arguments_of_the_wrong_type_get_the_error_body(
    team: Team, raw: httpx2.Client, session: str, arguments: dict[str, Any]
) -> None:
    headers, call = modern_call({"session_id": session, **arguments})
    answer = raw.post("/mcp", json=call, headers={**team.headers("planner"), **headers})
    assert answer.status_code == 200, answer.text
    result = answer.json()["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["code"] in {
        "INVALID_INPUT_FORMAT",
        "INVALID_KEY",
        "SESSION_NOT_FOUND",
        "SNAPSHOT_NOT_FOUND",
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":7}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    ],
)
def test_malformed_messages_are_refused_and_the_server_stays_up(team: Team, raw: httpx2.Client, body: bytes) -> None:
    planner = team.headers("planner")
    modern = {"mcp-protocol-version": MODERN, "mcp-method": "ping"}
    for headers in ({**planner, **open_connection(raw, planner)}, {**planner, **modern}):
        answer = raw.post("/mcp", content=body, headers=headers)
        assert 400 <= answer.status_code < 500, answer.text
    assert raw.get("/ready").status_code == 200


@pytest.mark.parametrize("value", [r"\ud800", r"\udfff tail", r"head \ud83d", r"\ude00\ud83d"])
def test_lone_surrogates_are_refused(team: Team, raw: httpx2.Client, session: str, value: str) -> None:
    headers, call = modern_call({"session_id": session, "action": "write", "key": "half", "value": "VALUE"})
    body = json.dumps(call).replace("VALUE", value).encode()
    answer = raw.post("/mcp", content=body, headers={**team.headers("planner"), **headers})
    assert answer.status_code < 500
    assert "result" not in answer.json() or answer.json()["result"]["isError"]
    assert team.ask("GET", f"/v1/sessions/{session}/context/half").json()["code"] == "KEY_NOT_FOUND"


async def test_any_valid_text_round_trips(team: Team, session: str, era: str) -> None:
    strange = "\x01\x07\x1b[31m\u202e\u2028\ufeff😀 e\u0301\x7f ﷽ ￿"
    async with over_http(team, "planner", era) as client:
        await client.call_tool(
            "shared_context", {"session_id": session, "action": "write", "key": "strange", "value": strange}
        )
        read = await client.call_tool("shared_context", {"session_id": session, "action": "read", "key": "strange"})
    assert read.structured_content["value"] == strange


async def test_the_default_profile_has_none_of_the_conformance_suite_s_fixtures(team: Team, era: str) -> None:
    async with over_http(team, "admin", era, path="/mcp/full") as client:
        names = {
            *await tools_of(client),
            *(prompt.name for prompt in (await client.list_prompts()).prompts),
            *(str(resource.uri) for resource in (await client.list_resources()).resources),
        }
        called = await client.call_tool("test_simple_text", {})
    assert not [name for name in names if name.startswith("test")]
    assert called.structured_content["code"] == "UNKNOWN_OPERATION"
