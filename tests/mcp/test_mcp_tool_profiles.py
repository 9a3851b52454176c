"""Tool profiles over MCP: which tools are listed by endpoint, key and setting, and calls through weftline_tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.team import call, refused, tools_of
from weftline.access.steps import DEFAULT_TOOLS, PROFILES

if TYPE_CHECKING:
    from mcp.client.client import Client

    from conftest import Connect

pytestmark = [
    pytest.mark.req("WX-01"),
    pytest.mark.req("CE-F44"),
]


async def answer(client: Client, **arguments: Any) -> Any:
    result = await call(client, "weftline_tools", **arguments)
    assert not result.is_error, result.structured_content
    return result.structured_content


async def test_the_default_list_is_short_and_has_no_output_schemas(connect: Connect, session: str) -> None:
    for bound in (None, session):
        async with connect("analysis", bound) as client:
            tools = await tools_of(client)
        assert list(tools)[-1] == "weftline_tools"
        assert tools.keys() == set(DEFAULT_TOOLS) - {"create_session", "define_agent"}
        assert not any(tool.output_schema for tool in tools.values())
        assert all("session_id" not in tool.input_schema["required"] for tool in tools.values()) is (bound is not None)
        assert tools["shared_context"].input_schema["properties"]["action"]["enum"] == [
            "list_keys",
            "read",
            "write",
            "delete",
        ]


async def test_the_endpoint_chooses_the_profile(web: Connect, session: str) -> None:
    for bound in (None, session):
        async with web("planner", bound, tools="history,knowledge") as client:
            assert list(await tools_of(client)) == ["knowledge", "context_history", "rollback_context"]
    root = f"/mcp/session/{session}"
    for path in ("/mcp/full", f"{root}/full"):
        answered = web.team.ask("POST", path, json={})
        assert answered.status_code != 404, path
    unknown = web.team.ask("POST", "/mcp/tools/board,nonsense", json={})
    assert (unknown.status_code, unknown.json()["code"]) == (400, "UNKNOWN_TOOL_PROFILE")
    assert all(profile in unknown.json()["suggestions"][0] for profile in PROFILES)


async def test_tools_that_are_not_listed_answer_by_name_and_through_weftline_tools(
    connect: Connect, session: str
) -> None:
    async with connect("analysis", session) as client:
        direct = await call(client, "list_memory", limit=5)
        through = await answer(client, action="call", name="list_memory", arguments={"limit": 5})
        assert direct.structured_content == through
        await call(client, "shared_context", action="write", key="goal", value="Ship")
        log = await answer(client, action="call", name="context_history.log", arguments={"context_id": "board"})
        assert log["context_id"] == f"board:{session}"
        refusal = await refused(
            client, "weftline_tools", action="call", name="create_session", arguments={"purpose": "x"}
        )
        same = await refused(client, "create_session", purpose="x")
        assert (refusal["code"], refusal["error"]) == (same["code"], same["error"])


async def test_weftline_tools_finds_and_describes_what_the_caller_may_use(web: Connect, session: str) -> None:
    async with web("planner", session) as client:
        found = await answer(client, action="search", query="return to an earlier version of a context")
        names = [tool["name"] for tool in found["tools"]]
        assert 0 < len(names) <= 5
        assert "rollback_context" in names
        short = await answer(client, action="describe", name="context_history.log")
        described = await answer(client, action="describe", name="context_history.log", output_schema=True)
        assert {**short, "output_schema": described["output_schema"]} == described
        assert described["name"] == "context_history.log"
        assert "action" not in described["input_schema"]["properties"]
        assert described["output_schema"]
    async with web("analysis") as client:
        found = await answer(client, action="search", query="create an API key for an agent")
        assert not {"create_api_key", "rotate_signing_key"} & {tool["name"] for tool in found["tools"]}
        body = await refused(client, "weftline_tools", action="describe", name="create_api_key")
        assert body["code"] == "PERMISSION_DENIED"


async def test_mistaken_calls_say_what_to_do(web: Connect) -> None:
    async with web("analysis") as client:
        unknown = await refused(client, "weftline_tools", action="call", name="list_memories")
        assert (unknown["code"], "list_memory" in unknown["suggestions"][0]) == ("UNKNOWN_OPERATION", True)
        for arguments in (
            {"action": "call"},
            {"action": "call", "name": "weftline_tools"},
            {"action": "call", "name": "list_memory", "limit": 5},
            {"action": "call", "name": "list_memory", "arguments": "limit 5"},
            {"action": "dance"},
        ):
            assert (await refused(client, "weftline_tools", **arguments))["code"] == "INVALID_INPUT_FORMAT"
