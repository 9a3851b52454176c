"""Steps over MCP: real clients of both protocol versions list and call the tools of a step, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp.shared.exceptions import MCPError

from support.team import call, refused, tools_of

if TYPE_CHECKING:
    from conftest import Connect
    from support.team import Team

pytestmark = pytest.mark.req("CE-F44")
STEP = "reading"
TOOLS = ["shared_context.read", "shared_context.list_keys", "get_messages", "weather.forecast"]


@pytest.fixture(autouse=True)
def step(team: Team) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    forecast = {"name": "weather.forecast", "description": "Forecast for a city", "input_schema": schema}
    put(team, "POST", "/v1/registered-tools", tools=[forecast])
    put(team, "PUT", f"/v1/steps/{STEP}", tools=TOOLS)


def put(team: Team, method: str, path: str, agent: str = "planner", **body: Any) -> Any:
    answer = team.ask(method, path, agent, json=body)
    assert answer.is_success, answer.text
    return answer.json()


async def test_the_endpoint_of_a_step_lists_and_answers_its_tools_only(
    connect: Connect, team: Team, session: str
) -> None:
    team.write(session, "goal", "ship")
    for bound in (None, session):
        fields = {} if bound else {"session_id": session}
        async with connect("analysis", bound, step=STEP) as client:
            tools = await tools_of(client)
            assert list(tools) == ["shared_context", "get_messages"]
            assert tools["shared_context"].input_schema["properties"]["action"]["enum"] == ["list_keys", "read"]
            read = await call(client, "shared_context", action="read", key="goal", **fields)
            assert (read.structured_content or {})["value"] == "ship"
            for tool, arguments in (
                ("shared_context", {"action": "write", "key": "goal", "value": "x", **fields}),
                ("search", {"query": "goal"}),
                ("set_memory", {"key": "a", "value": "b"}),
                ("weftline_tools", {"action": "search", "query": "x"}),
                ("weftline_tools", {"action": "call", "name": "get_messages", "arguments": fields}),
                ("weftline_tools", {"action": "call", "name": "list_memory", "arguments": {}}),
            ):
                error = await refused(client, tool, **arguments)
                assert error["code"] == "TOOL_NOT_IN_STEP", tool
                assert error["context"]["step"] == STEP
            own = await refused(client, "weather.forecast", city="Oslo")
            assert (own["code"], own["context"]["input_schema"]["properties"].keys()) == ("TOOL_OF_RUNTIME", {"city"})


async def test_the_same_list_byte_for_byte_on_every_connection(web: Connect, session: str) -> None:
    lists = []
    for bound in (session, session, session):
        async with web("analysis", bound, step=STEP) as client:
            lists.append([tool.model_dump_json() for tool in (await client.list_tools()).tools])
    assert lists[0] == lists[1] == lists[2]


async def test_a_token_has_its_step_on_every_endpoint(web: Connect, team: Team, session: str) -> None:
    who = {"agent_id": "analysis", "agent_type": "analysis", "api_key": team.keys["analysis"]}
    issued = put(team, "POST", "/v1/tokens", **who, step=STEP)
    assert issued["step"] == STEP
    team.keys["bound"] = issued["token"]
    for profile in ("", "full", "default,history"):
        async with web("bound", session, tools=profile) as client:
            assert list(await tools_of(client)) == ["shared_context", "get_messages"]
            assert (await refused(client, "list_memory"))["code"] == "TOOL_NOT_IN_STEP"
    # REST, plain tool calls, resources and event streams of the same token.
    for method, path, body in (
        ("PUT", f"/v1/sessions/{session}/context/goal", {"value": "x"}),
        ("GET", "/v1/memory", None),
        ("POST", "/mcp/tool/list_memory", {}),
        ("POST", "/mcp/tool/weftline_tools", {"action": "call", "name": "list_memory", "arguments": {}}),
        ("GET", "/mcp/resource/inbox://me", None),
        ("GET", f"/v1/events/stream?session_id={session}", None),
    ):
        answer = team.ask(method, path, "bound", json=body)
        assert answer.status_code == 403, f"{path}: {answer.text}"
        assert answer.json()["code"] == "TOOL_NOT_IN_STEP"
    put(team, "PUT", "/v1/steps/writing", tools=["shared_context"])
    left = team.ask("POST", "/mcp/step/writing", "bound", json={})
    assert (left.status_code, left.json()["code"]) == (403, "BOUND_TO_STEP")
    unknown = team.ask("POST", "/mcp/step/nonsense", "analysis", json={})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "STEP_NOT_FOUND")


async def test_resources_and_prompts_of_a_step(web: Connect, team: Team, session: str) -> None:
    team.write(session, "goal", "ship")
    async with web("planner", session, step=STEP) as client:
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert listed == [f"board://{session}"]
        assert (await client.list_prompts()).prompts == []
        await client.read_resource(f"board://{session}/goal")
        for uri in (f"session://{session}", "inbox://me", "agent://planner/memory"):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert caught.value.error.data["code"] == "TOOL_NOT_IN_STEP", uri
        with pytest.raises(MCPError):
            await client.get_prompt("board_guide")
