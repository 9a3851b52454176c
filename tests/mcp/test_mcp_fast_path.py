"""The fast path answers exactly as the SDK does, and passes all other requests to the SDK."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from support.team import with_timeout
from support.world import World
from weftline.app.dispatch import CallContext
from weftline.kernel.guards import Guard, GuardedCall
from weftline.settings import Settings
from weftline.testing.clock import FrozenClock
from weftline.transports.http.application import HttpApplication
from weftline.transports.mcp.caller import McpCaller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

    from weftline.app.app import App
    from weftline.transports.mcp.fast_path import FastPath

    # Alters the body and headers of a plain call.
    Change = Callable[[dict[str, Any], dict[str, str]], tuple[Any, Any]]

LEGACY, MODERN = "2025-11-25", "2026-07-28"
ERAS = pytest.mark.parametrize("era", [LEGACY, MODERN])
PLAIN = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
INFO = {"name": "raw", "version": "1"}
RESERVED = "io.modelcontextprotocol"
ENVELOPE = {
    f"{RESERVED}/protocolVersion": MODERN,
    f"{RESERVED}/clientInfo": INFO,
    f"{RESERVED}/clientCapabilities": {},
}
INITIALIZE_PARAMS = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
UNUSUAL_TEXT = '\x01\x07\x1b[31m\u202e\u2028\ufeff😀 e\u0301\x7f ﷽ \\ "quoted" \n'
Json = dict[str, Any]
CLIENT_REQUESTS: list[Json] = json.loads((Path(__file__).parents[1] / "data" / "mcp_client_requests.json").read_text())


@dataclass(slots=True)
class Served:
    """One of two servers on the same App, and the requests that reached its SDK."""

    application: HttpApplication
    http: httpx2.AsyncClient
    session: str
    sdk: list[Json] = field(default_factory=list)
    connections: dict[str, str] = field(default_factory=dict)
    reached_sdk: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fast_path(self) -> FastPath:
        return self.application.mcp._answer

    async def connection(self, key: str) -> str:
        """Return the id of the caller's initialized connection."""
        if key not in self.connections:
            opened = await self.post(key, {**message("initialize"), "params": INITIALIZE_PARAMS}, PLAIN)
            self.connections[key] = opened.headers["mcp-session-id"]
            self.sdk.clear()
        return self.connections[key]

    async def post(self, key: str, body: Any, headers: Any, path: str = "/mcp") -> httpx2.Response:
        content = body if isinstance(body, bytes) or hasattr(body, "__aiter__") else json.dumps(body).encode()
        pairs = headers if isinstance(headers, list) else list(headers.items())
        return await self.http.post(path, content=content, headers=[("authorization", f"Bearer {key}"), *pairs])

    async def call(
        self, key: str, era: str, arguments: Any, tool: str = "shared_context", path: str = "/mcp"
    ) -> httpx2.Response:
        body, headers = await self.plain(key, era, tool, arguments)
        return await self.post(key, body, headers, path)

    async def plain(self, key: str, era: str, tool: str, arguments: Any) -> tuple[Json, dict[str, str]]:
        """Return a call as a client of a protocol version sends it; ``$`` in arguments is this server's session."""
        params = {"name": tool, "arguments": json.loads(json.dumps(arguments).replace("$", self.session))}
        if era == MODERN:
            headers = {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": tool}
            return message("tools/call", **params, _meta=ENVELOPE), PLAIN | headers
        headers = {"mcp-protocol-version": era, "mcp-session-id": await self.connection(key)}
        return message("tools/call", **params), PLAIN | headers

    def seen(self, answer: httpx2.Response) -> tuple[int, dict[str, str], Any]:
        """Return an answer without what differs between the two servers."""
        headers = {name: value for name, value in answer.headers.items() if name != "mcp-session-id"}
        body = answer.text.replace(self.session, "$")
        parsed = answer.headers.get("content-type") == "application/json"
        return answer.status_code, {**headers, "content-length": ""}, json.loads(body) if parsed and body else body


def message(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 7, "method": method, **({"params": params} if params else {})}


@asynccontextmanager
async def serving(app: App, session: str, *, fast_path: bool) -> AsyncIterator[Served]:
    application = HttpApplication(app, fast_path=fast_path)
    transport = httpx2.ASGITransport(application.asgi)
    async with application.mcp.running(), httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        served = Served(application, http, session)
        given = application.mcp._manager.handle_request

        async def record(scope: Scope, receive: Receive, send: Send) -> None:
            served.sdk.append(scope)
            served.reached_sdk.set()
            await given(scope, receive, send)

        application.mcp._manager.handle_request = record
        yield served


@pytest.fixture
def database_url(empty_file: Path, tmp_path: Path) -> str:
    """Return the URL of a SQLite database: answers are the same on both, as tests of the operations show."""
    return str(shutil.copy(empty_file, tmp_path / "weftline.db"))


@asynccontextmanager
async def both(world: World) -> AsyncIterator[tuple[Served, Served]]:
    """Serve the same App with the fast path and without it, each with its own session."""
    async with serving(world.app, "", fast_path=True) as fast, serving(world.app, "", fast_path=False) as sdk:
        await new_sessions(world, fast, sdk)
        yield fast, sdk


async def new_sessions(world: World, *servers: Served) -> None:
    """Give each server a new session with the same board, and no connections."""
    for served in servers:
        served.session = f"s_{secrets.token_hex(6)}"
        board = await world.planner.create_session(served.session)
        await board.write("goal", "ship")
        await board.write("strange", UNUSUAL_TEXT)
        await board.snapshot("before")
        served.sdk.clear()
        served.connections.clear()


@dataclass(frozen=True, slots=True)
class Pair:
    """The two servers that single calls share; each test has new sessions and connections."""

    world: World
    fast: Served
    sdk: Served


@pytest.fixture(scope="module")
async def servers(empty_file: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("servers")
    url = str(shutil.copy(empty_file, folder / "weftline.db"))
    settings = Settings(database_url=url, data_dir=str(folder), rate_limits="off", session_indexing="off")
    world = World(url, FrozenClock(), settings)
    await world.open()
    opened, ended = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def serve() -> None:
        async with both(world) as (fast, sdk):
            opened.set_result(Pair(world, fast, sdk))
            await ended.wait()

    # One task for both ends: a fixture is set up and torn down in two, which task groups do not allow.
    serving_both = asyncio.create_task(serve())
    yield await with_timeout(opened)
    ended.set()
    await with_timeout(serving_both)
    await world.close()


@pytest.fixture
async def pair(servers: Pair) -> Pair:
    await new_sessions(servers.world, servers.fast, servers.sdk)
    return servers


BOARD_CALLS = [
    {"action": "write", "key": "plan", "value": UNUSUAL_TEXT, "ttl_seconds": 60, "readable_by": ["principal:planner"]},
    {"action": "write", "key": "goal", "value": "ship it", "expected_version": 1},
    {"action": "write", "key": "goal", "value": "late", "expected_version": 9},
    {"action": "read", "key": "goal"},
    {"action": "read", "key": "strange"},
    {"action": "read", "key": "absent"},
    {"action": "read_batch", "keys": ["goal", "absent", "strange"]},
    {"action": "list_keys"},
    {"action": "read_history", "key": "goal"},
    {"action": "compare_snapshots", "from_label": "before"},
    {"action": "delete", "key": "goal"},
    {"action": "write", "key": "k", "value": 5},
    {"action": "write", "key": "k", "value": "v", "ttl_seconds": 10**40},
    {"action": "read", "key": 'no "such" \\ key\x00'},
    {"action": "list_keys", "extra": {"deep": [None, 1.5, True]}},
    {"action": ["list_keys"]},
    {"action": "no_such_action"},
    {},
]


@ERAS
@pytest.mark.parametrize("arguments", BOARD_CALLS, ids=range(len(BOARD_CALLS)))
async def test_a_board_call_gets_the_same_answer_as_from_the_sdk(pair: Pair, era: str, arguments: Json) -> None:
    fast, sdk = pair.fast, pair.sdk
    key = pair.world.planner.credential
    mine, theirs = [await served.call(key, era, {"session_id": "$", **arguments}) for served in (fast, sdk)]
    assert fast.seen(mine) == sdk.seen(theirs)
    assert mine.status_code == 200
    assert json.loads(mine.json()["result"]["content"][0]["text"]) == mine.json()["result"]["structuredContent"]
    assert not fast.sdk


OTHER_TOOLS = [
    ("weftline_tools", {"action": "call", "name": "get_session", "arguments": {"session_id": "$"}}),
    (
        "weftline_tools",
        {"action": "call", "name": "shared_context.read", "arguments": {"session_id": "$", "key": "goal"}},
    ),
    ("weftline_tools", {"action": "call", "name": "no_such_tool"}),
    ("weftline_tools", {"action": "call"}),
    ("weftline_tools", {"action": "describe", "name": "rollback_context"}),
    ("get_session", {"session_id": "$"}),
    ("get_session", {"session_id": "absent"}),
    ("inspect_session", {"session_id": "$"}),
    ("check_board", {"session_id": "$"}),
    ("get_board_guidance", {}),
    ("list_agents", {}),
    ("create_session", {"purpose": "one more", "session_id": "$.more"}),
    ("create_session", {"purpose": ""}),
    ("no_such_tool", {"a": 1}),
    ("não há 😀", {}),
    ("", {}),
]


@ERAS
@pytest.mark.parametrize(("tool", "arguments"), OTHER_TOOLS, ids=range(len(OTHER_TOOLS)))
@pytest.mark.parametrize("who", ["admin", "analysis"])
async def test_any_tool_call_gets_the_same_answer_as_from_the_sdk(
    pair: Pair, era: str, tool: str, arguments: Json, who: str
) -> None:
    fast, sdk = pair.fast, pair.sdk
    key = getattr(pair.world, who).credential
    seen = []
    for served in (fast, sdk):
        body, headers = await served.plain(key, era, "name", arguments)
        body["params"]["name"] = tool
        # A name that is not ASCII is sent in base64.
        headers |= {"mcp-name": "=?base64?bsOjbyBow6Eg8J+YgA==?="} if not tool.isascii() else {"mcp-name": tool}
        seen.append(served.seen(await served.post(key, body, headers)))
    assert seen[0] == seen[1]
    assert seen[0][0] == 200
    assert not fast.sdk


@ERAS
@pytest.mark.parametrize("given", [0, -1, 2**70, "", "seven", "é\u2028"])
async def test_a_response_has_the_id_of_its_request(pair: Pair, era: str, given: int | str) -> None:
    fast, sdk = pair.fast, pair.sdk
    key = pair.world.planner.credential
    for served in (fast, sdk):
        body, headers = await served.plain(key, era, "shared_context", {"action": "list_keys", "session_id": "$"})
        assert (await served.post(key, {**body, "id": given}, headers)).json()["id"] == given
    assert not fast.sdk


def changed(**fields: Any) -> Change:
    return lambda body, headers: (body | fields, headers)


def with_params(**fields: Any) -> Change:
    return lambda body, headers: (body | {"params": body["params"] | fields}, headers)


def with_meta(name: str, value: Any) -> Change:
    return lambda body, headers: with_params(_meta=body["params"].get("_meta", {}) | {name: value})(body, headers)


def with_headers(**fields: str | None) -> Change:
    new = {name.replace("_", "-"): value for name, value in fields.items()}
    return lambda body, headers: (body, {k: v for k, v in (headers | new).items() if v is not None})


def twice(name: str) -> Change:
    return lambda body, headers: (body, [*headers.items(), (name, headers.get(name, "*/*"))])


def as_text(old: str, new: str) -> Change:
    return lambda body, headers: (json.dumps(body).replace(old, new).encode(), headers)


def with_body(content: bytes) -> Change:
    return lambda _, headers: (content, headers)


NOT_PLAIN = {
    "another method": changed(method="ping", params={}),
    "a list of tools with the parameters of a call": lambda body, headers: (
        changed(method="tools/list")(body, headers)[0],
        headers | {"mcp-method": "tools/list"},
    ),
    "an unknown method": changed(method="tools/burn"),
    "another version of JSON-RPC": changed(jsonrpc="1.0"),
    "an id of null": changed(id=None),
    "a fractional id": changed(id=1.5),
    "an id that is true": changed(id=True),
    "no parameters": changed(params=None),
    "parameters in a list": changed(params=["shared_context"]),
    "an unknown field": changed(more=1),
    "a notification": lambda body, headers: ({k: v for k, v in body.items() if k != "id"}, headers),
    "an answer": lambda _, headers: ({"jsonrpc": "2.0", "id": 1, "result": {}}, headers),
    "a batch": lambda body, headers: ([body], headers),
    "arguments of null": with_params(arguments=None),
    "arguments in a list": with_params(arguments=["read"]),
    "a name that is a number": with_params(name=5),
    "a task": with_params(task={"ttl": 5}),
    "an unknown parameter": with_params(more=1),
    "state of an earlier request": with_params(requestState="x"),
    "a progress token of the wrong kind": with_meta("progressToken", [5]),
    "a trace that is a number": with_meta("traceparent", 5),
    "a related task": with_meta(f"{RESERVED}/related-task", {"taskId": "t"}),
    "a lone surrogate of a vendor": as_text('"params": {', '"params": {"_meta": {"vendor/x": "\\ud800"}, '),
    "a key that may be reserved": with_meta("tools.mcp.com/x", 1),
    "metadata of null": with_params(_meta=None),
    "metadata in a list": with_params(_meta=[]),
    "no body": with_body(b""),
    "half a body": with_body(b'{"jsonrpc":"2.0","id":1,'),
    "invalid UTF-8": with_body(b"\xff\xfe"),
    "excessive nesting": with_body(b'{"a":' * 5_000),
    "NaN": as_text('"list_keys"', "NaN"),
    "a lone surrogate": as_text("list_keys", r"\ud800"),
    "nothing accepted": with_headers(accept="text/html"),
    "only streams accepted": with_headers(accept="text/event-stream"),
    "another content type": with_headers(content_type="text/plain"),
    "no content type": with_headers(content_type=None),
    "a content type in capitals": with_headers(content_type="Application/JSON"),
    "an unknown version": with_headers(mcp_protocol_version="2099-01-01"),
    "accept twice": twice("accept"),
    "the version twice": twice("mcp-protocol-version"),
}
NOT_PLAIN_MODERN = {
    "no method in the headers": with_headers(mcp_method=None),
    "another method in the headers": with_headers(mcp_method="tools/list"),
    "no name in the headers": with_headers(mcp_name=None),
    "another name in the headers": with_headers(mcp_name="list_sessions"),
    "a name in broken base64": with_headers(mcp_name="=?base64?c2hhcmVk_?="),
    "the method twice": twice("mcp-method"),
    "the name twice": twice("mcp-name"),
    "another version in the headers": with_headers(mcp_protocol_version=LEGACY),
    "another version in the envelope": with_meta(f"{RESERVED}/protocolVersion", "2025-11-25"),
    "no envelope": with_params(_meta={}),
    "capabilities of the wrong kind": with_meta(f"{RESERVED}/clientCapabilities", []),
    "capabilities that are broken": with_meta(f"{RESERVED}/clientCapabilities", {"roots": 5}),
    "a client without a version": with_meta(f"{RESERVED}/clientInfo", {"name": "raw"}),
    "no version": with_headers(mcp_protocol_version=None),
    "an unknown log level": with_meta(f"{RESERVED}/logLevel", "loud"),
    "an envelope that is not UTF-8": lambda body, headers: (
        json.dumps(body).encode().replace(b'"raw"', b'"\xff"'),
        headers,
    ),
    "an oversized envelope": with_meta(f"{RESERVED}/clientInfo", {"name": "raw" * 2000, "version": "1"}),
}
NOT_PLAIN_LEGACY = {
    "no connection": with_headers(mcp_session_id=None),
    "an unknown connection": with_headers(mcp_session_id="0" * 32),
    "an empty connection": with_headers(mcp_session_id=""),
    "the connection twice": twice("mcp-session-id"),
    "another version": with_headers(mcp_protocol_version=MODERN),
    "the envelope of the other era": with_params(_meta=ENVELOPE),
}
NOT_PLAIN_CASES = [
    *((era, name, change) for name, change in NOT_PLAIN.items() for era in (LEGACY, MODERN)),
    *((MODERN, name, change) for name, change in NOT_PLAIN_MODERN.items()),
    *((LEGACY, name, change) for name, change in NOT_PLAIN_LEGACY.items()),
]


@pytest.mark.parametrize(
    ("era", "change"),
    [(era, change) for era, _, change in NOT_PLAIN_CASES],
    ids=[f"{e} {n}" for e, n, _ in NOT_PLAIN_CASES],
)
async def test_other_messages_are_passed_to_the_sdk(pair: Pair, era: str, change: Change) -> None:
    fast, sdk = pair.fast, pair.sdk
    key = pair.world.planner.credential
    seen = []
    for served in (fast, sdk):
        asked = await served.plain(key, era, "shared_context", {"action": "list_keys", "session_id": "$"})
        seen.append(served.seen(await served.post(key, *change(*asked))))
    assert seen[0] == seen[1]
    assert len(fast.sdk) == 1


FROM_REAL_CLIENTS = {
    "a progress token": with_meta("progressToken", 5),
    "a progress token of text": with_meta("progressToken", "b1d2"),
    "a key of a vendor": with_meta("claudecode/toolUseId", "toolu_01"),
    "an object of a vendor": with_meta("openai/userLocation", {"city": "Ghent"}),
    "a key without a prefix": with_meta("note", None),
    "streams accepted first": with_headers(accept="text/event-stream, application/json"),
    "ranges accepted": with_headers(accept="text/*;q=0.5, Application/*"),
    "a charset": with_headers(content_type="application/json ; charset=utf-8"),
    "headers of proxies": lambda body, headers: (
        body,
        [*headers.items(), ("x-forwarded-for", "10.0.0.1"), ("x-forwarded-for", "10.0.0.2")],
    ),
}
FROM_REAL_CLIENTS_CASES = [
    *((era, name, change) for name, change in FROM_REAL_CLIENTS.items() for era in (LEGACY, MODERN)),
    (MODERN, "a log level", with_meta(f"{RESERVED}/logLevel", "debug")),
    (LEGACY, "no version", with_headers(mcp_protocol_version=None)),
    (LEGACY, "an older version", with_headers(mcp_protocol_version="2025-03-26")),
]


@pytest.mark.parametrize(
    ("era", "change"),
    [(era, change) for era, _, change in FROM_REAL_CLIENTS_CASES],
    ids=[f"{e} {n}" for e, n, _ in FROM_REAL_CLIENTS_CASES],
)
async def test_what_real_clients_add_to_a_call_does_not_leave_the_fast_path(
    pair: Pair, era: str, change: Change
) -> None:
    fast, sdk = pair.fast, pair.sdk
    key = pair.world.planner.credential
    seen = []
    for served in (fast, sdk):
        asked = await served.plain(key, era, "shared_context", {"action": "list_keys", "session_id": "$"})
        seen.append(served.seen(await served.post(key, *change(*asked))))
    assert seen[0] == seen[1]
    assert seen[0][0] == 200
    assert not fast.sdk


async def test_envelopes_that_differ_in_their_progress_token_are_cached_once(pair: Pair) -> None:
    fast, key = pair.fast, pair.world.planner.credential
    fast.fast_path._envelopes.clear()
    for token in range(5):
        asked = await fast.plain(key, MODERN, "shared_context", {"action": "list_keys", "session_id": "$"})
        assert (await fast.post(key, *with_meta("progressToken", token)(*asked))).status_code == 200
    assert len(fast.fast_path._envelopes) == 1


def listing(era: str, meta: Json | None = None) -> tuple[Json, dict[str, str]]:
    if era == MODERN:
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/list"}
        return message("tools/list", _meta=ENVELOPE | (meta or {})), PLAIN | headers
    return message("tools/list", **({"_meta": meta} if meta else {})), PLAIN | {"mcp-protocol-version": era}


@ERAS
@pytest.mark.parametrize("who", ["admin", "planner", "analysis"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/session/$"])
async def test_a_list_of_tools_is_the_sdk_s_and_takes_the_fast_path(pair: Pair, era: str, who: str, path: str) -> None:
    key = getattr(pair.world, who).credential
    for meta in (None, {"progressToken": 3}):
        seen = []
        for served in (pair.fast, pair.sdk):
            body, headers = listing(era, meta)
            if era == LEGACY:
                headers["mcp-session-id"] = await served.connection(key)
            seen.append(served.seen(await served.post(key, body, headers, path.replace("$", served.session))))
        assert seen[0] == seen[1]
        assert seen[0][2]["result"]["tools"]
    assert not pair.fast.sdk


@ERAS
async def test_a_page_of_a_list_is_left_to_the_sdk(pair: Pair, era: str) -> None:
    key = pair.world.planner.credential
    seen = []
    for served in (pair.fast, pair.sdk):
        body, headers = listing(era)
        body["params"] = body.get("params", {}) | {"cursor": "2"}
        if era == LEGACY:
            headers["mcp-session-id"] = await served.connection(key)
        seen.append(served.seen(await served.post(key, body, headers)))
    assert seen[0] == seen[1]
    assert len(pair.fast.sdk) == 1


async def test_a_list_follows_the_permissions_of_the_caller(world: World) -> None:
    async with serving(world.app, "s1", fast_path=True) as fast:
        key = world.planner.credential

        async def names() -> set[str]:
            answer = await fast.post(key, *listing(MODERN))
            return {tool["name"] for tool in answer.json()["result"]["tools"]}

        assert "add_message" in await names()
        await world.admin.call("agent.update", agent_id="planner", permissions=["read"])
        assert "add_message" not in await names()
        assert not fast.sdk


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_client_of_an_older_protocol_version_gets_the_same_answers(pair: Pair, version: str) -> None:
    key = pair.world.planner.credential
    seen = []
    for served in (pair.fast, pair.sdk):
        hello = message("initialize", **INITIALIZE_PARAMS | {"protocolVersion": version})
        opened = await served.post(key, hello, PLAIN)
        served.sdk.clear()
        headers = PLAIN | {"mcp-session-id": opened.headers["mcp-session-id"]}
        call, _ = await served.plain(key, MODERN, "shared_context", {"action": "list_keys", "session_id": "$"})
        del call["params"]["_meta"]
        seen.append([served.seen(await served.post(key, body, headers)) for body in (call, message("tools/list"))])
    assert seen[0] == seen[1]
    assert not pair.fast.sdk


async def call_on_connection_of(served: Served, owner: str, caller: str, headers: Any = ()) -> tuple[int, Any, Any]:
    """Call on one agent's connection with the credential of another."""
    arguments = {"action": "list_keys", "session_id": "$"}
    body, given = await served.plain(owner, LEGACY, "shared_context", arguments)
    return served.seen(await served.post(caller, body, given | dict(headers)))


async def test_a_connection_belongs_to_its_principal(world: World) -> None:
    async with both(world) as (fast, sdk):
        planner = world.planner.credential
        for other in (world.analysis, world.admin, world.stranger):
            mine, theirs = [await call_on_connection_of(served, planner, other.credential) for served in (fast, sdk)]
            assert mine == theirs
            assert (mine[0], mine[2]["error"]["message"]) == (404, "Session not found")
        assert len(fast.sdk) == 3
        token = await world.planner.token("planner", "planning")
        mine, theirs = [await call_on_connection_of(served, planner, token) for served in (fast, sdk)]
        assert mine == theirs
        assert (mine[0], len(fast.sdk)) == (200, 3)


async def test_an_ended_connection_stays_ended(world: World) -> None:
    async with both(world) as (fast, sdk):
        key = world.planner.credential
        for served in (fast, sdk):
            headers = {"authorization": f"Bearer {key}", "mcp-session-id": await served.connection(key)}
            assert (await call_on_connection_of(served, key, key))[0] == 200
            assert (await served.http.delete("/mcp", headers=headers)).status_code == 200
        mine, theirs = [await call_on_connection_of(served, key, key) for served in (fast, sdk)]
        assert mine == theirs
        assert mine[0] == 404
        for _ in range(100):
            await asyncio.sleep(0)
        assert not fast.fast_path._sessions


async def test_a_connection_whose_handshake_failed_cannot_call(world: World) -> None:
    async with both(world) as (fast, sdk):
        key = world.planner.credential
        for served in (fast, sdk):
            failed = await served.post(key, message("initialize", protocolVersion=5), PLAIN)
            served.connections[key] = failed.headers["mcp-session-id"]
        mine, theirs = [await call_on_connection_of(served, key, key) for served in (fast, sdk)]
        assert mine == theirs
        assert mine[2]["error"]["code"] == -32602


@ERAS
async def test_a_session_endpoint_reaches_no_other_session(world: World, era: str) -> None:
    async with both(world) as (fast, sdk):
        key = world.planner.credential
        for arguments in ({}, {"session_id": "$"}, {"session_id": "s1"}, {"session_id": 5}):
            seen = []
            for served in (fast, sdk):
                asked = {"action": "read", "key": "goal", **arguments}
                answer = await served.call(key, era, asked, path=f"/mcp/session/{served.session}")
                seen.append(served.seen(answer))
            assert seen[0] == seen[1]
            content = seen[0][2]["result"]["structuredContent"]
            named_another = arguments.get("session_id", "$") != "$"
            assert content.get("code") == ("SESSION_NOT_FOUND" if named_another else None)
        assert not fast.sdk


@ERAS
async def test_missing_credentials_and_foreign_origins_are_refused(world: World, era: str) -> None:
    async with both(world) as (fast, sdk):
        key = world.planner.credential
        for caller, extra, status in (
            ("nonsense", {}, 401),
            (key, {"host": "evil.example"}, 403),
            (key, {"origin": "https://evil.example"}, 403),
        ):
            seen = []
            for served in (fast, sdk):
                body, headers = await served.plain(key, era, "list_agents", {})
                seen.append(served.seen(await served.post(caller, body, headers | extra)))
            assert seen[0] == seen[1]
            assert seen[0][0] == status
        assert not fast.sdk


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 50_000):
        yield body[start : start + 50_000]


@ERAS
@pytest.mark.parametrize("parts", [True, False], ids=["in parts", "announced"])
async def test_a_chunked_body_is_read_and_refused_above_the_limit(world: World, era: str, parts: bool) -> None:  # noqa: FBT001
    async with both(world) as (fast, sdk):
        key = world.planner.credential
        limit = world.app.settings.max_body_bytes
        for size, status in ((120_000, 200), (limit, 413)):
            seen = []
            for served in (fast, sdk):
                body, headers = await served.plain(
                    key, era, "shared_context", {"action": "write", "session_id": "$", "key": "k", "value": "v" * size}
                )
                content = json.dumps(body).encode()
                seen.append(served.seen(await served.post(key, in_parts(content) if parts else content, headers)))
            assert seen[0] == seen[1]
            assert seen[0][0] == status
            assert len(fast.sdk) == (status == 413)


@ERAS
async def test_the_rate_limit_and_the_limit_on_connections_hold(world: World, era: str) -> None:
    app = await world.another_app(rate_limits="board=2/minute")
    async with serving(app, "s1", fast_path=True) as fast:
        key = world.planner.credential
        fast.application.mcp._connections._limit = 1
        codes = []
        for _ in range(3):
            answer = await fast.call(key, era, {"action": "list_keys", "session_id": "$"})
            codes.append(answer.json()["result"]["structuredContent"].get("code"))
        assert codes == [None, None, "RATE_LIMITED"]
        assert not fast.sdk
        await fast.connection(key)
        refused = await fast.post(key, *await fast.plain(key, MODERN, "shared_context", {}))
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_CONNECTIONS")


async def test_a_call_resets_the_idle_timeout_of_its_connection(world: World) -> None:
    async with serving(world.app, "s1", fast_path=True) as fast:
        key = world.planner.credential
        transport = fast.application.mcp._manager._server_instances[await fast.connection(key)]
        during = []

        class Watch(Guard):
            async def before(self, call: GuardedCall) -> Any:
                during.append((transport._requests_in_flight, transport.idle_scope.deadline))
                return call.request

        world.app.guards.install(Watch())
        early = transport.idle_scope.deadline = asyncio.get_running_loop().time() + 60
        assert (await fast.call(key, LEGACY, {"action": "list_keys", "session_id": "$"})).status_code == 200
        assert during == [(1, float("inf"))]
        assert transport._requests_in_flight == 0
        assert early < transport.idle_scope.deadline < float("inf")
        assert not fast.sdk


async def test_an_idle_connection_is_passed_to_the_sdk(world: World) -> None:
    async with serving(world.app, "s1", fast_path=True) as fast:
        key = world.planner.credential
        transport = fast.application.mcp._manager._server_instances[await fast.connection(key)]
        transport.idle_scope.cancel()
        assert (await fast.call(key, LEGACY, {"action": "list_keys", "session_id": "$"})).status_code == 404
        assert len(fast.sdk) == 1


WAITING = {
    "read_events": {"wait_seconds": 60},
    "weftline_tools": {"action": "call", "name": "read_events", "arguments": {"wait_seconds": 60}},
}


@pytest.mark.parametrize("tool", WAITING)
async def test_a_call_that_waits_can_be_cancelled(world: World, tool: str) -> None:
    async with serving(world.app, "s1", fast_path=True) as fast:
        key = world.planner.credential
        await fast.connection(key)
        fast.reached_sdk.clear()
        waiting = asyncio.create_task(fast.call(key, LEGACY, WAITING[tool], tool))
        await with_timeout(fast.reached_sdk.wait())
        headers = PLAIN | {"mcp-session-id": await fast.connection(key)}
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        assert (await fast.post(key, cancelled, headers)).status_code == 202
        assert (await with_timeout(waiting)).json()["error"]["message"] == "Request cancelled"


@ERAS
@pytest.mark.req("WX-01")
async def test_a_list_depends_on_caller_and_endpoint_and_not_on_the_connection(world: World, era: str) -> None:
    key = world.planner.credential
    paths = ("/mcp", "/mcp/full", "/mcp/tools/board,history", "/mcp/session/s1/knowledge", "/mcp")
    async with both(world) as (fast, sdk):
        lists = []
        for served in (fast, sdk):
            _, headers = await served.plain(key, era, "x", {})
            headers.pop("mcp-name", None)
            if era == MODERN:
                headers["mcp-method"] = "tools/list"
            asked = message("tools/list", **({"_meta": ENVELOPE} if era == MODERN else {}))
            # All on one connection, where there is one.
            answers = [await served.post(key, asked, headers, path) for path in paths]
            lists.append([answer.json()["result"]["tools"] for answer in answers])
        assert lists[0] == lists[1]
        default, full, groups, knowledge, again = lists[0]
        assert default == again
        assert len(default) < len(groups) + 10 < len(full)
        assert [tool["name"] for tool in knowledge] == ["knowledge"]
        assert not any("outputSchema" in tool for tool in full)


async def test_the_envelope_cache_is_bounded(world: World) -> None:
    async with serving(world.app, "s1", fast_path=True) as fast:
        key = world.planner.credential
        body, headers = await fast.plain(key, MODERN, "shared_context", {"action": "list_keys", "session_id": "$"})
        for number in range(300):
            info = {"name": f"client {number}", "version": "1"}
            asked, _ = with_meta(f"{RESERVED}/clientInfo", info)(body, headers)
            assert (await fast.post(key, asked, headers)).status_code == 200
        assert 0 < len(fast.fast_path._envelopes) <= 256
        assert not fast.sdk


@pytest.mark.req("WX-01")
@pytest.mark.parametrize("progress", [None, lambda *_: asyncio.sleep(0)], ids=["", "with progress"])
@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
async def test_calls_of_the_sdk_client_take_the_fast_path(world: World, mode: str, progress: Any) -> None:
    async with serving(world.app, "s1", fast_path=True) as fast:
        fast.http.headers["authorization"] = f"Bearer {world.planner.credential}"
        connected = streamable_http_client("http://127.0.0.1/mcp", http_client=fast.http)
        async with Client(connected, mode=mode) as client:
            await client.list_tools()
            fast.sdk.clear()
            await client.list_tools()
            for action in ({"action": "write", "value": UNUSUAL_TEXT}, {"action": "read"}):
                arguments = {"session_id": "s1", "key": "strange", **action}
                answer = await client.call_tool("shared_context", arguments, progress_callback=progress)
                assert not answer.is_error
            assert answer.structured_content["value"] == UNUSUAL_TEXT
            missing = await client.call_tool("shared_context", {"action": "read", "session_id": "s1", "key": "none"})
            assert (missing.is_error, missing.structured_content["code"]) == (True, "KEY_NOT_FOUND")
            assert not [scope for scope in fast.sdk if scope["method"] == "POST"]
    assert tool_calls(world.app) == {"fast": 3}


def tool_calls(app: App) -> dict[str, int]:
    """Return the tool calls that /metrics reports, by path."""
    found = re.findall(
        r'^weftline_tool_calls_total\{path="(\w+)"\} (\d+)', app.metrics.exposition().decode(), re.MULTILINE
    )
    return {path: int(count) for path, count in found}


@pytest.mark.parametrize("client", CLIENT_REQUESTS, ids=lambda client: client["client"])
async def test_requests_as_real_clients_send_them_take_the_fast_path(world: World, client: Json) -> None:
    """The headers and bodies were recorded from the clients, their ids of connections aside."""
    async with serving(world.app, "s1", fast_path=True) as fast:
        key = world.planner.credential
        for sent in client["requests"]:
            headers = sent["headers"]
            if "mcp-session-id" in headers:
                headers = headers | {"mcp-session-id": await fast.connection(key)}
            answer = await fast.post(key, sent["body"], headers)
            assert answer.status_code == 200
            assert "result" in answer.json()
        assert not fast.sdk
        calls = sum(sent["body"]["method"] == "tools/call" for sent in client["requests"])
        assert tool_calls(world.app) == {"fast": calls}


@ERAS
@pytest.mark.parametrize(
    "large",
    [
        {"_meta": {f"vendor.example/{number}": number for number in range(45_000)}},
        {"capabilities": {"experimental": {f"feature{number}": {} for number in range(5_000)}}},
    ],
)
async def test_only_the_arguments_of_a_tool_may_be_large(world: World, era: str, large: Json) -> None:
    async with serving(world.app, "s1", fast_path=True) as served:
        key = world.planner.credential
        body, headers = await served.plain(key, era, "list_sessions", {})
        body["params"] = {**body["params"], **large}
        assert (await served.post(key, body, headers)).status_code == 413
        answer = await served.call(
            key, era, {"action": "write", "session_id": "none", "key": "k", "value": "x" * 200_000}
        )
        assert answer.status_code == 200


async def test_the_least_recently_used_users_are_forgotten_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.transports.mcp.http._MAX_USERS", 3)
    endpoint = HttpApplication(world.app).mcp
    actor = await world.app.identify(CallContext(world.planner.credential))
    known = endpoint._user(actor, McpCaller(CallContext("busy")))
    for number in range(10):
        endpoint._user(actor, McpCaller(CallContext(f"other{number}")))
        assert endpoint._user(actor, McpCaller(CallContext("busy"))) is known
    assert len(endpoint._users) == 3
