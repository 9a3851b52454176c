"""A client written from the collaboration API's documentation works unchanged; every route needs a credential."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from typing import TYPE_CHECKING, Any, Self

import httpx2
import hypothesis
import msgspec
import pytest
from hypothesis import given

from support.json_values import JSON, typed
from support.team import Team, team_process, with_timeout
from weftline.app.app import App
from weftline.records.model import RECORD_TYPES
from weftline.records.schemas import schema_url
from weftline.settings import Settings
from weftline.transports.http.application import HttpApplication

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.routing import Route

NUMBER = (int, float)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\Z")
# Documented response shapes: a type where any value is valid, else the exact value.
TOKEN = {
    "success": True,
    "token": str,
    "agent_id": "my-agent",
    "agent_type": "claude",
    "permissions": ["read", "write"],
    "expires_at": TIME,
    "token_type": "Bearer",
    "issued_at": TIME,
}
CREATED = {"success": True, "session_id": re.compile(r"session_[0-9a-f]{16}\Z"), "created_by": str, "created_at": TIME}
SESSION = {
    "id": str,
    "purpose": str,
    "created_at": TIME,
    "updated_at": TIME,
    "created_by": str,
    "is_active": True,
    "metadata": dict,
}
ADDED = {"success": True, "message_id": int, "timestamp": TIME}
FOUND_MESSAGE = {
    "id": int,
    "sender": str,
    "content": str,
    "timestamp": TIME,
    "visibility": "public",
    "metadata": dict,
}
MESSAGE = {**FOUND_MESSAGE, "sender_type": str, "parent_message_id": None}
RESULT = {"message": FOUND_MESSAGE, "score": NUMBER, "match_preview": str, "relevance": str}
FOUND = {
    "success": True,
    "results": [RESULT],
    "query": str,
    "threshold": NUMBER,
    "search_scope": "all",
    "message_count": int,
    "search_time_ms": NUMBER,
    "performance_note": str,
    "cache_hit": bool,
}
STORED = {
    "success": True,
    "key": str,
    "session_scoped": bool,
    "expires_at": NUMBER,
    "scope": re.compile("global|session"),
    "stored_at": TIME,
}
ENTRY = {
    "value": dict,
    "metadata": dict,
    "created_at": NUMBER,
    "updated_at": TIME,
    "expires_at": NUMBER,
    "scope": str,
}
LISTED = {
    "key": str,
    "scope": "session",
    "session_id": str,
    "created_at": NUMBER,
    "updated_at": TIME,
    "expires_at": NUMBER,
    "value_size": int,
}
OVERVIEW = {
    "session": SESSION,
    "messages": [MESSAGE],
    "statistics": {
        "message_count": int,
        "visible_message_count": int,
        "unique_agents": int,
        "last_activity": TIME,
        "session_duration_minutes": int,
        "coordination_locks": int,
    },
    "resource_info": {
        "last_updated": TIME,
        "requesting_agent": "my-agent",
        "supports_subscriptions": True,
        "cache_ttl": 300,
    },
}
MEMORY = {
    "agent_id": "my-agent",
    "memory": {"global": dict, "sessions": dict},
    "statistics": {
        "global_keys": int,
        "session_scopes": int,
        "total_entries": int,
        "memory_usage_kb": NUMBER,
        "expired_entries_cleaned": int,
    },
    "resource_info": {
        "last_updated": TIME,
        "supports_subscriptions": True,
        "cleanup_interval": NUMBER,
        "max_memory_mb": 100,
    },
}
FIGURES = {
    "timestamp": TIME,
    "database_performance": {
        "connection_stats": {
            "total_connections": int,
            "active_connections": int,
            "peak_connections": int,
            "total_queries": int,
            "avg_query_time": NUMBER,
            "slow_queries": int,
            "connection_errors": int,
        },
        "pool_stats": {
            "pool_size": int,
            "available_connections": int,
            "checked_out_connections": int,
            "pool_utilization": NUMBER,
            "wait_time_avg": (*NUMBER, type(None)),
        },
        "cache_stats": {
            "cached_queries": int,
            "l1_cache_size": int,
            "l2_cache_size": int,
            "cache_hit_ratio": NUMBER,
            "cache_misses": int,
            "evictions": int,
        },
    },
    "system_performance": {
        "memory_usage_mb": NUMBER,
        "cpu_usage_percent": (*NUMBER, type(None)),
        "active_sessions": int,
        "active_agents": int,
        "messages_per_second": NUMBER,
        "search_operations_per_minute": int,
    },
    "performance_trends": {
        "response_time_trend": str,
        "throughput_trend": str,
        "error_rate_trend": str,
        "cache_efficiency_trend": str,
    },
    "resource_info": {
        "collection_interval": 30,
        "retention_hours": 24,
        "supports_subscriptions": True,
        "admin_only": True,
    },
}
METRICS = {
    "success": True,
    "timestamp": TIME,
    "database_performance": FIGURES["database_performance"],
    "system_info": {
        "pool_initialized": True,
        "database_url": "weftline.db",
        "min_pool_size": int,
        "max_pool_size": (int, type(None)),
        "connection_timeout": NUMBER,
    },
    "performance_targets": {
        "session_creation": "< 10ms",
        "message_insertion": "< 20ms",
        "message_retrieval_50": "< 30ms",
        "fuzzy_search_1000": "< 100ms",
        "concurrent_agents": "20+",
        "cache_hit_ratio": "> 70%",
    },
    "requesting_agent": "admin",
}
ERROR = {
    "success": False,
    "error": str,
    "code": str,
    "severity": re.compile("warning|error|critical"),
    "recoverable": bool,
    "suggestions": [str],
    "context": dict,
    "related_resources": [str],
    "timestamp": TIME,
}


def mismatches(value: Any, shape: Any, at: str = "") -> Iterator[str]:
    """Yield each path at which a JSON value does not match a shape; extra fields are allowed."""
    if isinstance(shape, dict):
        for name, part in shape.items():
            yield from mismatches(value[name], part, f"{at}.{name}") if name in value else [f"{at}.{name} is missing"]
    elif isinstance(shape, list) and not isinstance(shape[0], str):
        if not value and isinstance(shape[0], dict):
            yield f"{at} is empty"
        for place, item in enumerate(value):
            yield from mismatches(item, shape[0], f"{at}[{place}]")
    elif not _matches(value, shape):
        yield f"{at}: {value!r} is not {shape!r}"


def _matches(value: Any, shape: Any) -> bool:
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.match(value) is not None
    if isinstance(shape, type | tuple):
        # In Python a boolean is an integer, in JSON it is not.
        return isinstance(value, shape) and (shape is bool or not isinstance(value, bool))
    return bool(value == shape) and type(value) is type(shape)


def checked(answer: httpx2.Response, shape: Any, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert list(mismatches(body, shape)) == []
    return body


class Client:
    """A client that uses only the documented API: tools and resources by name, a token in a header."""

    def __init__(self, url: str, agent_id: str, agent_type: str, api_key: str) -> None:
        self._http = httpx2.Client(base_url=url, timeout=60, verify=False)
        self._identity = {"agent_id": agent_id, "agent_type": agent_type, "api_key": api_key}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def authenticate(self, **what: Any) -> httpx2.Response:
        answer = self._http.post("/mcp/tool/authenticate_agent", json={**self._identity, **what})
        if answer.is_success:
            self._http.headers["Authorization"] = f"Bearer {answer.json()['token']}"
        return answer

    def tool(self, name: str, **parameters: Any) -> httpx2.Response:
        return self._http.post(f"/mcp/tool/{name}", json=parameters)

    def resource(self, uri: str) -> httpx2.Response:
        return self._http.get(f"/mcp/resource/{uri}")

    def subscribe(self, uri: str) -> httpx2.Response:
        return self._http.post("/mcp/resource/subscribe", json={"uri": uri})

    def get(self, path: str) -> httpx2.Response:
        return self._http.get(path)

    def new_session(self, **options: Any) -> str:
        return self.tool("create_session", purpose="Multi-agent collaboration", **options).json()["session_id"]


@pytest.fixture(scope="module")
def my_agent_key(team: Team) -> str:
    return team.keys[team.new_agent(agent_id="my-agent", agent_type="claude")]


@pytest.fixture
def client(team: Team, my_agent_key: str) -> Iterator[Client]:
    """Return the documented example agent, with a token."""
    with Client(team.url, "my-agent", "claude", my_agent_key) as client:
        checked(client.authenticate(), TOKEN)
        yield client


@pytest.mark.req("MS-01")
@pytest.mark.req("MS-02")
@pytest.mark.req("MS-12")
def test_the_documented_basic_integration_runs(client: Client) -> None:
    session = checked(client.tool("create_session", purpose="Multi-agent collaboration"), CREATED)
    session_id = session["session_id"]
    assert session["created_by"] == "my-agent"
    added = client.tool("add_message", session_id=session_id, content="Hello from my agent!", visibility="public")
    message_id = checked(added, ADDED)["message_id"]
    page = {"success": True, "messages": [MESSAGE], "count": 1, "total_count": 1, "has_more": False}
    (message,) = checked(client.tool("get_messages", session_id=session_id), page)["messages"]
    assert (message["id"], message["content"]) == (message_id, "Hello from my agent!")
    looked_at = {"success": True, "session": SESSION, "messages": [MESSAGE], "message_count": 1}
    checked(client.tool("get_session", session_id=session_id), looked_at)


@pytest.mark.req("MS-05")
@pytest.mark.req("MS-07")
@pytest.mark.req("MS-12")
def test_the_documented_search_and_memory_usage_runs(client: Client) -> None:
    session_id = client.new_session()
    client.tool("add_message", session_id=session_id, content="Our collaboration begins.")
    searched = client.tool("search_context", session_id=session_id, query="collaboration", fuzzy_threshold=70.0)
    found = checked(searched, FOUND)
    assert (found["message_count"], found["threshold"], len(found["results"])) == (1, 70.0, 1)
    state = {"status": "active", "session": session_id}
    stored = checked(client.tool("set_memory", key="agent_state", value=state, expires_in=3600), STORED)
    assert (stored["session_scoped"], stored["scope"]) == (False, "global")
    recalled = checked(client.tool("get_memory", key="agent_state"), {"success": True, "key": str, **ENTRY})
    assert recalled["value"] == state


@pytest.mark.req("MS-06")
def test_the_documented_searches_answer_as_shown(client: Client) -> None:
    session_id = client.new_session()
    at = client.tool("add_message", session_id=session_id, content="Hello").json()["timestamp"]
    sent = {"success": True, "messages": [MESSAGE], "sender": "my-agent", "count": 1}
    checked(client.tool("search_by_sender", session_id=session_id, sender="my-agent"), sent)
    spoken = {"success": True, "messages": [MESSAGE], "timerange": {"start": TIME, "end": TIME}, "count": 1}
    checked(client.tool("search_by_timerange", session_id=session_id, start_time=at, end_time=at), spoken)


@pytest.mark.req("MS-07")
def test_the_documented_memory_request_is_accepted_verbatim(client: Client) -> None:
    session_id = client.new_session()
    value = {
        "phase": "implementation",
        "progress": 0.6,
        "blockers": ["waiting for API review"],
        "priority": "high",
    }
    metadata = {"type": "task_tracking", "updated_by": "claude-main"}
    request = {"key": "current_task_state", "value": value, "session_id": session_id, "expires_in": 3600}
    stored = checked(client.tool("set_memory", **request, metadata=metadata), STORED)
    assert (stored["session_scoped"], stored["scope"]) == (True, "session")
    found = checked(client.tool("get_memory", key="current_task_state", session_id=session_id), ENTRY)
    assert (found["value"], found["metadata"]) == (value, metadata)
    listed = {"success": True, "entries": [LISTED], "count": 1, "scope_filter": "session"}
    checked(client.tool("list_memory", session_id=session_id), listed)


@pytest.mark.req("MS-08")
@pytest.mark.req("MS-09")
def test_admin_metrics_have_the_documented_shape(team: Team) -> None:
    # Without a lookup there is no hit rate yet.
    assert team.ask("GET", f"/v1/sessions/{team.new_session()}/messages").status_code == 200
    checked(team.ask("POST", "/mcp/tool/get_performance_metrics", "admin", json={}), METRICS)
    through = {"action": "call", "name": "get_performance_metrics", "arguments": {}}
    checked(team.ask("POST", "/mcp/tool/weftline_tools", "admin", json=through), METRICS)
    content = checked(team.ask("GET", "/mcp/resource/performance://metrics", "admin"), FIGURES)
    assert content["history"][-1]["calls"] > 0
    watched = team.ask("POST", "/mcp/resource/subscribe", "admin", json={"uri": "performance://metrics"})
    checked(watched, {"success": True, "uri": "performance://metrics", "poll_seconds": 30})
    assert team.ask("GET", "/mcp/resource/performance://metrics").status_code == 403


@pytest.mark.req("MS-09")
@pytest.mark.req("MS-12")
@pytest.mark.parametrize("slashes", ["//", "/"])
def test_the_documented_resources_are_read_by_uri(client: Client, slashes: str) -> None:
    session_id = client.new_session()
    client.tool("add_message", session_id=session_id, content="Hello")
    preferences, task = {"theme": "dark", "notifications": True}, {"task": "API documentation", "progress": 0.75}
    client.tool("set_memory", key="user_preferences", value=preferences)
    client.tool("set_memory", key="current_task", value=task, session_id=session_id)

    memory = checked(client.resource(f"agent:{slashes}my-agent/memory"), MEMORY)["memory"]
    assert memory["global"]["user_preferences"]["value"] == preferences
    assert memory["sessions"][session_id]["current_task"]["value"] == task
    assert list(mismatches(memory["global"]["user_preferences"], {**ENTRY, "expires_at": None})) == []
    checked(client.resource(f"session:{slashes}{session_id}"), OVERVIEW)
    assert client.resource(f"agent:{slashes}planner/memory").status_code == 403


@pytest.mark.req("MS-09")
@pytest.mark.req("MS-12")
def test_the_documented_subscription_returns_a_stream_url(team: Team, client: Client) -> None:
    session_id = client.new_session(members=["planner"])
    subscribed = client.subscribe(f"session://{session_id}").json()
    assert subscribed["success"] is True
    sent = team.ask("POST", f"/v1/sessions/{session_id}/messages", json={"content": "hello"})
    assert sent.status_code == 201
    (event,) = client.get(subscribed["poll"]).json()["events"]
    assert (event["type"], event["data"]["agent_id"]) == ("message.added", "planner")
    assert "hello" not in json.dumps(event)
    assert client.get(subscribed["resource"]).json()["messages"][0]["content"] == "hello"


@pytest.mark.req("MS-09")
async def test_a_subscription_streams_messages_the_subscriber_may_read(team: Team, session: str) -> None:
    subscribed = team.ask("POST", "/mcp/resource/subscribe", "analysis", json={"uri": f"session://{session}"}).json()
    for content, visibility in {"not for you": "private", "for you": "public"}.items():
        body = {"content": content, "visibility": visibility}
        posted = await asyncio.to_thread(team.ask, "POST", f"/v1/sessions/{session}/messages", json=body)
        assert posted.status_code == 201
    event = await with_timeout(first_event(team, "analysis", subscribed["stream"]))
    assert (event["type"], event["subject"]) == ("message.added", "2")


@pytest.mark.req("MS-07")
@pytest.mark.parametrize("key", ["billing/limit:v1.2", "billing%2Flimit%3Av1.2"])
def test_a_memory_key_with_slashes_is_a_path_escaped_or_not(team: Team, key: str) -> None:
    owner = team.new_agent()
    assert team.ask("PUT", f"/v1/memory/{key}", owner, json={"value": 7}).json()["key"] == "billing/limit:v1.2"
    assert team.ask("GET", f"/v1/memory/{key}", owner).json()["value"] == 7
    assert team.ask("GET", "/v1/memory?prefix=billing/", owner).json()["count"] == 1
    assert team.ask("DELETE", f"/v1/memory/{key}", owner).status_code == 200


@pytest.mark.req("MS-09")
async def test_a_memory_subscription_streams_the_caller_s_memory_only(team: Team) -> None:
    owner = team.new_agent()
    subscribed = team.ask("POST", "/mcp/resource/subscribe", owner, json={"uri": f"agent://{owner}/memory"}).json()
    for agent, key in (("planner", "theirs"), (owner, "mine")):
        assert team.ask("PUT", f"/v1/memory/{key}", agent, json={"value": 1}).status_code == 200
    event = await with_timeout(first_event(team, owner, subscribed["stream"]))
    assert (event["type"], event["subject"]) == ("memory.written", "mine")


async def first_event(team: Team, agent: str, stream: str) -> Any:
    async with (
        httpx2.AsyncClient(base_url=team.url, headers=team.headers(agent), timeout=60, verify=False) as http,
        http.stream("GET", stream) as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith("data:"):
                return json.loads(line.removeprefix("data:"))
    raise AssertionError("the stream ended")


@pytest.mark.req("MS-10")
@pytest.mark.parametrize(
    ("tool", "parameters", "status", "code"),
    [
        ("add_message", {"content": "hello", "visibility": "nonsense"}, 400, "INVALID_INPUT_FORMAT"),
        ("add_message", {"content": "hello", "sender": "planner"}, 400, "INVALID_INPUT_FORMAT"),
        ("get_messages", {"limit": 1001}, 400, "INVALID_INPUT_FORMAT"),
        ("get_messages", {"session_id": "session_invalid123"}, 404, "SESSION_NOT_FOUND"),
        ("add_message", {"content": "hello", "visibility": "admin_only"}, 403, "PERMISSION_DENIED"),
        ("get_performance_metrics", {"session_id": None}, 403, "PERMISSION_DENIED"),
        ("add_message", {"content": "x" * 10_001}, 413, "CONTENT_TOO_LARGE"),
        ("set_memory", {"key": "k", "value": "x" * 1_048_576}, 413, "CONTENT_TOO_LARGE"),
    ],
)
def test_each_documented_error_has_its_code_and_shape(
    client: Client, tool: str, parameters: dict[str, Any], status: int, code: str
) -> None:
    given = {"session_id": client.new_session(), **parameters}
    refused = client.tool(tool, **{name: value for name, value in given.items() if value is not None})
    assert checked(refused, {**ERROR, "code": code}, status)["suggestions"]


@pytest.mark.req("MS-10")
def test_a_wrong_key_is_an_invalid_api_key(client: Client, team: Team) -> None:
    for key in ("your-api-key", team.keys["planner"]):
        checked(client.authenticate(api_key=key), {**ERROR, "code": "INVALID_API_KEY"}, 401)


@pytest.mark.req("MS-10")
def test_an_unknown_session_error_suggests_operations(client: Client) -> None:
    body = checked(client.tool("get_session", session_id="session_invalid123"), ERROR, 404)
    assert body["context"]["resource_type"] == "session"
    assert body["context"]["resource_id"] == "session_invalid123"
    assert set(body["related_resources"]) & {"create_session", "list_sessions"}


@pytest.mark.req("MS-07")
@pytest.mark.req("MS-10")
def test_a_full_memory_is_refused_and_smaller_values_still_fit(tmp_path: Path) -> None:
    with team_process(tmp_path, memory_limit_mb="1") as team:

        def remember(key: str, size: int) -> httpx2.Response:
            return team.ask("POST", "/mcp/tool/set_memory", json={"key": key, "value": "x" * size})

        assert remember("first", 600_000).status_code == 200
        full = checked(remember("second", 600_000), {**ERROR, "code": "MEMORY_LIMIT_EXCEEDED"}, 409)
        assert full["context"]["limit_bytes"] == 1_048_576
        assert remember("second", 100_000).status_code == 200
        info = team.ask("GET", "/mcp/resource/agent://planner/memory").json()["resource_info"]
        assert info["max_memory_mb"] == 1


@pytest.mark.req("MS-17")
def test_agents_of_different_owners_meet_in_a_session_by_its_id(team: Team, client: Client) -> None:
    """Neither is above the other, and neither is named: the session is open to whoever has its id."""
    stranger = team.new_agent(agent_type="gemini")
    with Client(team.url, stranger, "gemini", team.keys[stranger]) as other:
        assert other.authenticate().is_success
        session, closed = client.new_session(members=["*"]), client.new_session()
        for talking in (client, other):
            checked(talking.tool("add_message", session_id=session, content="hello", visibility="public"), ADDED)
        messages = client.tool("get_messages", session_id=session).json()["messages"]
        assert [message["sender"] for message in messages] == ["my-agent", stranger]
        refused = other.tool("add_message", session_id=closed, content="hello", visibility="public")
        assert refused.json()["code"] == "SESSION_NOT_FOUND"


@pytest.mark.req("MS-17")
@pytest.mark.parametrize(
    ("wrong", "code", "says"),
    [
        ({"agent_id": "planner"}, "INVALID_API_KEY", "does not belong to this agent_id"),
        ({"agent_type": "gemini"}, "AUTHENTICATION_ERROR", "Pass agent_type 'claude'"),
        ({"api_key": "your-secure-api-key"}, "INVALID_API_KEY", "key"),
        ({"requested_permissions": ["admin"]}, "PERMISSION_DENIED", "None of the requested permissions"),
    ],
)
def test_authentication_says_why_it_is_refused(client: Client, wrong: dict[str, Any], code: str, says: str) -> None:
    answer = client.authenticate(**wrong)
    assert answer.json()["code"] == code
    assert says in answer.text


CLASSES = {
    "message": ("get_messages", {}, 5),
    "search": ("search_context", {"query": "hello"}, 3),
    "memory": ("list_memory", {}, 4),
}


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    limits = " ".join(f"{name}={limit}/minute" for name, (_, _, limit) in CLASSES.items())
    with team_process(tmp_path_factory.mktemp("limited"), rate_limits=f"{limits} authentication=2/minute") as team:
        yield team


@pytest.mark.req("MS-11")
@pytest.mark.parametrize("rate_class", CLASSES)
def test_rate_limits_are_per_class_and_agent(limited: Team, rate_class: str) -> None:
    agent, other_agent, session = limited.new_agent(), limited.new_agent(), limited.new_session(members=["*"])

    def ask(name: str, agent: str) -> httpx2.Response:
        tool, parameters, _ = CLASSES[name]
        return limited.ask("POST", f"/mcp/tool/{tool}", agent, json={"session_id": session, **parameters})

    limit = CLASSES[rate_class][2]
    answers = [ask(rate_class, agent) for _ in range(limit + 1)]
    assert [answer.status_code for answer in answers] == [200] * limit + [429]
    body = checked(answers[-1], {**ERROR, "code": "RATE_LIMITED", "severity": "warning"}, 429)
    assert body["context"]["rate_class"] == rate_class
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
    assert body["context"]["retry_after_seconds"] == int(answers[-1].headers["retry-after"])
    for other in CLASSES.keys() - {rate_class}:
        assert ask(other, agent).status_code == 200
    assert ask(rate_class, other_agent).status_code == 200


@pytest.mark.req("MS-11")
def test_issuing_tokens_is_rate_limited_per_agent(limited: Team) -> None:
    agents = [limited.new_agent(agent_type="claude") for _ in range(2)]
    clients = [Client(limited.url, agent, "claude", limited.keys[agent]) for agent in agents]
    with clients[0] as first, clients[1] as second:
        answers = [first.authenticate() for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert answers[-1].json()["code"] == "RATE_LIMITED"
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert first.tool("list_memory").status_code == 200
        assert second.authenticate().status_code == 200


PUBLIC_PATHS = {
    "/",
    "/health",
    "/ready",
    "/openapi.json",
    "/schemas",
    "/console/sign-in",
    *map(schema_url, RECORD_TYPES),
}


def served_paths(folder: Path, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each route of the server with its parameters filled in, for every method."""
    served = HttpApplication(App(Settings(data_dir=str(folder))))
    routes: list[Route] = served._routed.routes
    for route in routes:
        path = re.sub(r"{(.*?)}", lambda named: names.get(named[1], "x"), route.path)
        yield from ((method, path) for method in ("GET", "POST", "PUT", "DELETE"))


@pytest.mark.req("MS-04")
def test_every_route_needs_a_credential(team: Team, session: str, tmp_path: Path) -> None:
    marker = f"marker{secrets.token_hex(8)}"
    posted = team.ask("POST", f"/v1/sessions/{session}/messages", json={"content": marker, "metadata": {"m": marker}})
    assert posted.status_code == 201
    assert team.ask("PUT", f"/v1/memory/{marker}", json={"value": marker}).status_code == 200
    team.write(session, "goal", marker)
    names = {"session_id": session, "message_id": "1", "key": "goal", "name": "get_messages", "agent_id": "planner"}
    paths = {*served_paths(tmp_path, {**names, "uri:path": f"session://{session}"})}
    paths |= {("POST", f"/mcp/tool/{tool}") for tool in ("search_context", "get_session", "list_memory")}
    paths |= {("GET", f"/mcp/resource/{uri}") for uri in ("agent://planner/memory", f"board://{session}/goal")}
    body = {"session_id": session, "query": marker, "uri": f"session://{session}"}
    assert marker in team.ask("POST", "/mcp/tool/get_messages", json={"session_id": session}).text

    with team.http(None) as http:
        for method, path in sorted(paths):
            answer = http.request(method, path, json=body if path.startswith("/mcp") else {})
            assert marker not in answer.text + str(answer.headers), (method, path)
            if (method, path) == ("POST", "/v1/tokens"):
                # Getting a token needs no credential, as the API key is in the request.
                assert answer.status_code == 400
            elif answer.status_code == 303:
                assert answer.headers["location"].startswith("/console/sign-in"), (method, path)
            elif method != "GET" or path not in PUBLIC_PATHS:
                assert answer.status_code in {401, 404, 405}, (method, path)
    assert len(paths) > 100


@pytest.mark.req("SC-03")
@hypothesis.settings(suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture], deadline=None)
@given(value=JSON)
def test_any_board_value_is_read_as_it_was_written(team: Team, session: str, value: Any) -> None:
    path = f"/v1/sessions/{session}/context/state"
    body = msgspec.json.encode({"value": value})
    answer = team.ask("PUT", path, content=body, headers={"content-type": "application/json"})
    # Random characters may look like a hidden attack.
    hypothesis.assume("CONTENT_QUARANTINED" not in answer.text)
    assert answer.status_code == 200, answer.text
    assert typed(msgspec.json.decode(team.ask("GET", path).content)["value"]) == typed(value)
