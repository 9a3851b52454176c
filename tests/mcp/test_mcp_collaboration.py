"""The collaboration API over MCP: tools, resources and change notifications."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from mcp.shared.exceptions import MCPError

from support.team import LEGACY, ResourceUpdates, call, refused, tools_of, with_timeout
from weftline.app.dispatch import CallContext
from weftline.kernel.errors import PermissionDenied, RateLimited
from weftline.transports.mcp.caller import McpCaller
from weftline.transports.mcp.subscriptions import Watcher
from weftline.transports.resources import parse_uri

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from mcp.client.client import Client

    from conftest import Connect
    from support.team import Team

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")

KEY_PART = "[A-Za-z0-9_:-][A-Za-z0-9_.:-]*"
STRING = {"type": "string"}
OBJECT = {"type": "object", "default": None}
VISIBILITIES = {"admin_only", "agent_only", "private", "public"}


def integer(minimum: int, maximum: int, default: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "default": default}


# Documented parameters; a tool may take more, which must be optional.
PARAMETERS: dict[str, dict[str, dict[str, Any]]] = {
    "create_session": {"purpose": STRING, "metadata": OBJECT},
    "get_session": {"session_id": STRING},
    "list_sessions": {},
    "add_message": {
        "session_id": STRING,
        "content": {"type": "string", "minLength": 1, "maxLength": 10_000},
        "visibility": {"enum": VISIBILITIES, "default": None},
        "metadata": OBJECT,
        "parent_message_id": {"type": "integer", "default": None},
    },
    "get_messages": {
        "session_id": STRING,
        "limit": integer(1, 1000, 50),
        "offset": {"type": "integer", "minimum": 0, "default": 0},
        "visibility_filter": {"enum": VISIBILITIES, "default": None},
    },
    "search_context": {
        "session_id": STRING,
        "query": {"type": "string", "maxLength": 500},
        "fuzzy_threshold": {"type": "number", "minimum": 0, "maximum": 100, "default": 60.0},
        "limit": integer(1, 100, 10),
        "search_metadata": {"type": "boolean", "default": True},
        "search_scope": {"enum": {"all", "public", "private"}, "default": "all"},
    },
    "search_by_sender": {"session_id": STRING, "sender": STRING, "limit": integer(1, 100, 20)},
    "search_by_timerange": {
        "session_id": STRING,
        "start_time": STRING,
        "end_time": STRING,
        "limit": integer(1, 200, 50),
    },
    "set_memory": {
        # Wider than documented, which is letters, digits, underscores and dashes.
        "key": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": f"^{KEY_PART}(/{KEY_PART})*$"},
        "value": {},
        "session_id": {**STRING, "default": None},
        "expires_in": {"type": "integer", "minimum": 1, "maximum": 31_536_000, "default": None},
        "metadata": OBJECT,
        "overwrite": {"type": "boolean", "default": True},
    },
    "get_memory": {"key": STRING, "session_id": {**STRING, "default": None}},
    "list_memory": {
        "session_id": {**STRING, "default": None},
        "prefix": {**STRING, "default": None},
        "limit": integer(1, 200, 50),
    },
    "get_performance_metrics": {},
    "get_usage_guidance": {},
}
MESSAGE = {"id", "sender", "sender_type", "content", "timestamp", "visibility", "metadata", "parent_message_id"}
# Schema keywords that are compared only where the documentation has them.
OPTIONAL_KEYWORDS = {"description", "title", "examples", "maxLength", "minLength", "minimum", "maximum", "pattern"}


def documented_form(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a field's schema as documented: without the alternative ``null``, with ``enum`` as a set."""
    inner = next((choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}), {})
    merged = {**inner, **{name: part for name, part in schema.items() if name != "anyOf"}}
    return {**merged, "enum": set(merged["enum"])} if "enum" in merged else merged


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
@pytest.mark.req("MS-07")
@pytest.mark.req("MS-08")
@pytest.mark.parametrize("name", PARAMETERS)
async def test_tools_accept_the_documented_arguments(admin_tools: dict[str, Any], name: str) -> None:
    schema = admin_tools[name].input_schema
    fields = {field: documented_form(part) for field, part in schema["properties"].items()}
    for field, documented in PARAMETERS[name].items():
        actual = {
            part: value for part, value in fields[field].items() if part in documented or part not in OPTIONAL_KEYWORDS
        }
        assert actual == documented, field
    required = {field for field, documented in PARAMETERS[name].items() if "default" not in documented}
    assert set(schema["required"]) == required


@pytest.fixture
async def admin_tools(web: Connect) -> dict[str, Any]:
    async with web("admin", tools="collaboration") as client:
        return await tools_of(client)


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    result = await call(client, tool, **arguments)
    assert not result.is_error, result.structured_content
    return result.structured_content


async def content_of(client: Client, uri: str) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    return json.loads(content.text)


@pytest.mark.req("MS-02")
@pytest.mark.req("MS-03")
@pytest.mark.req("MS-04")
async def test_message_tools_return_the_documented_fields(connect: Connect, session: str) -> None:
    async with connect("planner") as client:
        added = await answer(
            client, "add_message", session_id=session, content="The schema is done.", metadata={"type": "status_update"}
        )
        assert added.keys() == {"success", "message_id", "timestamp"}
        read = await answer(client, "get_messages", session_id=session)
        assert read.keys() == {"success", "messages", "count", "total_count", "has_more"}
        (message,) = read["messages"]
        assert message.keys() >= MESSAGE
        assert (message["id"], message["sender"], message["sender_type"]) == (
            added["message_id"],
            "planner",
            "planning",
        )
        assert message["metadata"] == {"type": "status_update"}
        found = await answer(client, "get_session", session_id=session)
        assert found.keys() == {"success", "session", "messages", "message_count"}
        assert found["session"].keys() >= {"id", "purpose", "created_at", "updated_at", "created_by", "is_active"}
        assert (found["messages"], found["message_count"]) == ([message], 1)
        sessions = (await answer(client, "list_sessions"))["sessions"]
        assert session in [listed["id"] for listed in sessions]


@pytest.mark.req("MS-05")
@pytest.mark.req("MS-06")
async def test_search_tools_return_the_documented_fields(connect: Connect, session: str) -> None:
    async with connect("planner") as client:
        await answer(client, "add_message", session_id=session, content="The database schema design is ready.")
        found = await answer(client, "search_context", session_id=session, query="databse schema", fuzzy_threshold=70.0)
        assert found.keys() >= {
            "success",
            "results",
            "query",
            "threshold",
            "search_scope",
            "message_count",
            "search_time_ms",
            "performance_note",
            "cache_hit",
        }
        (result,) = found["results"]
        assert result.keys() >= {"message", "score", "match_preview", "relevance"}
        assert result["message"].keys() >= {"id", "sender", "content", "timestamp", "visibility", "metadata"}
        sent = await answer(client, "search_by_sender", session_id=session, sender="planner")
        assert sent.keys() >= {"success", "messages", "sender", "count"}
        day = result["message"]["timestamp"][:10]
        spoken = await answer(client, "search_by_timerange", session_id=session, start_time=day, end_time=day)
        assert spoken.keys() >= {"success", "messages", "timerange", "count"}
        assert spoken["timerange"].keys() == {"start", "end"}
        assert sent["messages"] == spoken["messages"]
        assert sent["messages"][0].keys() >= MESSAGE


@pytest.mark.req("MS-07")
async def test_memory_tools_return_the_documented_fields(connect: Connect, session: str) -> None:
    async with connect("planner") as client:
        stored = await answer(
            client, "set_memory", key="task", value={"progress": 0.6}, session_id=session, expires_in=3600
        )
        assert stored.keys() >= {"success", "key", "session_scoped", "expires_at", "scope", "stored_at"}
        assert (stored["session_scoped"], stored["scope"]) == (True, "session")
        found = await answer(client, "get_memory", key="task", session_id=session)
        assert found.keys() >= {
            "success",
            "key",
            "value",
            "metadata",
            "created_at",
            "updated_at",
            "expires_at",
            "scope",
        }
        assert found["value"] == {"progress": 0.6}
        listed = await answer(client, "list_memory", session_id=session)
        assert listed.keys() >= {"success", "entries", "count", "scope_filter"}
        (entry,) = listed["entries"]
        assert entry.keys() >= {
            "key",
            "scope",
            "session_id",
            "created_at",
            "updated_at",
            "expires_at",
            "value_size",
        }
        assert (listed["scope_filter"], entry["session_id"]) == ("session", session)


@pytest.mark.req("MS-08")
async def test_metrics_have_the_documented_fields_for_admins_only(connect: Connect) -> None:
    async with connect("admin") as client:
        figures = await answer(client, "get_performance_metrics")
        guidance = await answer(client, "get_usage_guidance")
    assert figures.keys() >= {
        "success",
        "timestamp",
        "database_performance",
        "system_info",
        "performance_targets",
        "requesting_agent",
    }
    assert figures["requesting_agent"] == "admin"
    assert "get_performance_metrics" in guidance["topics"]["admin"]
    async with connect("planner") as client:
        assert (await refused(client, "get_performance_metrics"))["code"] == "PERMISSION_DENIED"
        guidance = await answer(client, "get_usage_guidance")
        assert guidance["access_level"] == "AGENT"
        assert "admin" not in guidance["topics"]


@pytest.mark.req("MS-09")
async def test_session_memory_and_metrics_resources_can_be_read(connect: Connect, session: str) -> None:
    async with connect("admin") as client:
        await answer(client, "add_message", session_id=session, content="hello")
        await answer(client, "set_memory", key="mood", value="good")
        await answer(client, "set_memory", key="task", value=[1, 2], session_id=session)
        seen = await content_of(client, f"session://{session}")
        memory = await content_of(client, "agent://admin/memory")
        figures = await content_of(client, "performance://metrics")
    assert seen.keys() == {"session", "messages", "statistics", "resource_info"}
    assert seen["messages"][-1].keys() >= MESSAGE
    assert seen["statistics"].keys() == {
        "message_count",
        "visible_message_count",
        "unique_agents",
        "last_activity",
        "session_duration_minutes",
        "coordination_locks",
    }
    assert seen["resource_info"]["requesting_agent"] == "admin"
    assert memory.keys() == {"agent_id", "memory", "statistics", "resource_info"}
    assert memory["memory"]["global"]["mood"]["value"] == "good"
    assert memory["memory"]["sessions"][session]["task"]["value"] == [1, 2]
    assert figures.keys() >= {
        "timestamp",
        "database_performance",
        "system_performance",
        "performance_trends",
        "resource_info",
    }
    assert (figures["resource_info"]["collection_interval"], figures["resource_info"]["admin_only"]) == (30, True)


@pytest.mark.req("MS-09")
@pytest.mark.parametrize(
    "uri", ["agent://analysis/memory", "agent://nobody/memory", "performance://metrics", "performance://other"]
)
async def test_reading_or_subscribing_needs_access(web: Connect, uri: str) -> None:
    async with web("planner") as client:
        with pytest.raises(MCPError) as reading:
            await client.read_resource(uri)
        with pytest.raises(MCPError) as subscribing:
            async with subscribed(client, web.era, uri):
                pass
    for refusal in (reading, subscribing):
        assert refusal.value.error.data["code"] in {"PERMISSION_DENIED", "RESOURCE_NOT_FOUND"}
    assert reading.value.error.message == subscribing.value.error.message


@contextlib.asynccontextmanager
async def subscribed(client: Client, era: str, *uris: str) -> AsyncIterator[Any]:
    """Subscribe to URIs in either protocol version; yields the subscription of the stateless one."""
    if era == LEGACY:
        for uri in uris:
            await client.subscribe_resource(uri)
        yield None
    else:
        async with client.listen(resource_subscriptions=list(uris)) as subscription:
            assert subscription.honored.resource_subscriptions == list(uris)
            yield subscription


class Subscriber:
    """A subscribed client and its notifications."""

    def __init__(self, notifications: ResourceUpdates, subscription: Any) -> None:
        self._notifications = notifications
        self._subscription = subscription

    async def notified_after(self, uri: str, act: Callable[[], Awaitable[Any]]) -> list[str]:
        """Repeat an action until the client is notified of a URI; return the URIs of all notifications so far."""
        if self._subscription is not None:
            await act()
            uris = []
            while uri not in uris:
                uris.append(str((await with_timeout(anext(self._subscription))).uri))
            return uris
        # A stateful client may not have its stream open at once.
        while uri not in self._notifications.uris:
            await act()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._notifications.of(uri), 1)
        return list(self._notifications.uris)


@contextlib.asynccontextmanager
async def subscriber_on(web: Connect, agent: str, *uris: str) -> AsyncIterator[Subscriber]:
    notifications = ResourceUpdates()
    async with web(agent, message_handler=notifications) as client, subscribed(client, web.era, *uris) as subscription:
        yield Subscriber(notifications, subscription)


def add_message(team: Team, session: str, content: str, agent: str = "planner", **what: Any) -> Awaitable[Any]:
    body = {"content": content, **what}
    return asyncio.to_thread(team.ask, "POST", f"/v1/sessions/{session}/messages", agent, json=body)


def write_memory(team: Team, key: str, agent: str) -> Awaitable[Any]:
    return asyncio.to_thread(team.ask, "PUT", f"/v1/memory/{key}", agent, json={"value": "text"})


@pytest.mark.req("MS-09")
async def test_session_subscribers_are_notified_of_messages(web: Connect, session: str) -> None:
    uri = f"session://{session}"
    async with subscriber_on(web, "analysis", uri) as watcher:
        assert set(
            await with_timeout(watcher.notified_after(uri, lambda: add_message(web.team, session, "hello")))
        ) == {uri}


@pytest.mark.req("MS-09")
@pytest.mark.parametrize("visibility", ["private", "agent_only"])
async def test_subscribers_are_not_notified_of_messages_they_cannot_read(
    web: Connect, session: str, visibility: str
) -> None:
    session_uri, board = f"session://{session}", f"board://{web.team.new_session()}"

    async def add_hidden_message_and_write() -> None:
        added = await add_message(web.team, session, "not for you", visibility=visibility)
        assert added.status_code == 201
        await asyncio.to_thread(web.team.write, board.removeprefix("board://"), "end")

    async with subscriber_on(web, "analysis", session_uri, board) as watcher:
        assert set(await with_timeout(watcher.notified_after(board, add_hidden_message_and_write))) == {board}
        assert session_uri in await with_timeout(
            watcher.notified_after(session_uri, lambda: add_message(web.team, session, "for all"))
        )


@pytest.mark.req("MS-09")
async def test_memory_subscribers_are_notified_of_their_own_memory_only(web: Connect, session: str) -> None:
    mine, board = "agent://analysis/memory", f"board://{session}"

    async def write_memory_of_others() -> None:
        for agent in ("planner", "admin"):
            assert (await write_memory(web.team, "note", agent)).status_code == 200
        await asyncio.to_thread(web.team.write, session, "end")

    async with subscriber_on(web, "analysis", mine, board) as watcher:
        assert set(await with_timeout(watcher.notified_after(board, write_memory_of_others))) == {board}
        assert mine in await with_timeout(
            watcher.notified_after(mine, lambda: write_memory(web.team, "note", "analysis"))
        )


@pytest.mark.req("MS-09")
async def test_metrics_subscribers_are_notified_at_each_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weftline.transports.resources.COLLECTION_INTERVAL", 0)
    monkeypatch.setattr("weftline.transports.mcp.subscriptions._RETRY_SECONDS", 0)
    app = _ScriptedApp()
    watcher = Watcher(app)
    await watcher.watch(parse_uri("performance://metrics"), McpCaller(CallContext("a key")))
    notified = [uri async for uri in watcher.changes(until_empty=True)]
    assert set(notified) == {"performance://metrics"}
    # A rate limit does not end the subscription; a lost permission does.
    assert list(app.answers) == []


class _ScriptedApp:
    """An App that answers calls in turn: ok, rate limited, ok, permission denied."""

    registry: ClassVar[dict[str, str]] = {"performance.read": "read"}

    def __init__(self) -> None:
        self.answers = iter([None, RateLimited(), None, PermissionDenied()])

    async def call(self, *_: object) -> None:
        refusal = next(self.answers)
        if refusal is not None:
            raise refusal

    async def position(self, _: object) -> int:
        return 0

    async def subscription(self, _: object) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


@pytest.mark.req("MS-03")
@pytest.mark.req("MS-05")
async def test_a_session_connection_needs_no_session_id_for_messages_and_searches(
    connect: Connect, session: str
) -> None:
    other = connect.team.new_session()
    async with connect("analysis", session) as client:
        added = await answer(client, "add_message", content="hello in here")
        assert [message["id"] for message in (await answer(client, "get_messages"))["messages"]] == [
            added["message_id"]
        ]
        assert (await answer(client, "search_context", query="hello"))["message_count"] == 1
        assert (await answer(client, "search_by_sender", sender="analysis"))["count"] == 1
        for tool, arguments in {
            "add_message": {"content": "hello"},
            "get_messages": {},
            "search_context": {"query": "hello"},
            "search_by_sender": {"sender": "analysis"},
        }.items():
            assert (await refused(client, tool, session_id=other, **arguments))["code"] == "SESSION_NOT_FOUND"


@pytest.mark.req("MS-07")
@pytest.mark.req("MS-09")
async def test_a_session_connection_reaches_global_memory_and_that_of_its_session(
    connect: Connect, session: str
) -> None:
    other = connect.team.new_session()
    async with connect("analysis", session) as client:
        stored = await answer(client, "set_memory", key="mood", value="good")
        assert (stored["scope"], stored["session_scoped"]) == ("global", False)
        assert (await answer(client, "set_memory", key="mood", value="busy", session_id=session))["scope"] == "session"
        assert (await answer(client, "get_memory", key="mood"))["value"] == "good"
        assert (await answer(client, "get_memory", key="mood", session_id=session))["value"] == "busy"
        for tool, arguments in {
            "set_memory": {"key": "mood", "value": "lost"},
            "get_memory": {"key": "mood"},
            "delete_memory": {"key": "mood"},
            "list_memory": {},
        }.items():
            body = await refused(client, tool, session_id=other, **arguments)
            assert (body["code"], body["context"]["resource_id"]) == ("SESSION_NOT_FOUND", other)
        assert (await content_of(client, "agent://analysis/memory"))["memory"]["global"]["mood"]["value"] == "good"
