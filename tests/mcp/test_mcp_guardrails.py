"""Guardrails hold for MCP clients: over HTTP and stdio, in both protocol versions, and through weftline_tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Connect
    from support.team import Team

NO_DELETE = {"name": "no-delete", "prohibited_action": ["shared_context.delete"], "message": "Keep it."}
WARN = {"name": "soon", "prohibited_action": ["board.list_keys"], "violation_response": "warn"}
MASK = {"name": "masks", "prohibited_action": ["board.write"], "violation_response": "redact", "mask": ["Bluebird"]}


def guardrails_of(team: Team, agent: str, *rules: dict[str, Any]) -> None:
    """Give one agent rules, so that tests do not disturb each other."""
    answer = team.ask("PUT", f"/v1/agents/{agent}/definition", "admin", json={"guardrails": [*rules]})
    assert answer.status_code == 200, answer.text


def text_of(result: Any) -> dict[str, Any]:
    return json.loads(result.content[0].text)


@pytest.fixture
def agent(team: Team, session: str) -> str:
    """Return a new agent that is a member of the session."""
    name = team.new_agent(parent_id="planner")
    team.ask("POST", f"/v1/sessions/{session}/members", "planner", json={"members": [name]})
    return name


@pytest.mark.req("CE-F37")
async def test_a_real_client_is_refused_and_goes_on(connect: Connect, team: Team, agent: str, session: str) -> None:
    team.write(session, "goal")
    delete = {"action": "delete", "session_id": session, "key": "goal"}
    guardrails_of(team, agent, NO_DELETE, WARN, MASK)
    async with connect(agent) as client:
        refused = await client.call_tool("shared_context", delete)
        assert refused.is_error
        body = text_of(refused)
        assert (body["code"], body["context"]["guardrail"], body["context"]["level"]) == (
            *("GUARDRAIL_VIOLATION", "no-delete", 4),
        )
        assert "Keep it." in body["error"]
        through_meta_tool = await client.call_tool(
            "weftline_tools", {"action": "call", "name": "shared_context", "arguments": delete}
        )
        assert text_of(through_meta_tool)["code"] == "GUARDRAIL_VIOLATION"
        listed = await client.call_tool("shared_context", {"action": "list_keys", "session_id": session})
        assert not listed.is_error
        assert [part.text.partition(" '")[0] for part in listed.content[1:]] == ["Warning: The guardrail"]
        written = {"action": "write", "session_id": session, "key": "k", "value": "Ask about Bluebird"}
        assert not (await client.call_tool("shared_context", written)).is_error
        read = await client.call_tool("shared_context", {"action": "read", "session_id": session, "key": "k"})
        assert read.structured_content["value"] == "Ask about [MASKED]"
        own = await client.call_tool(
            "weftline_tools", {"action": "call", "name": "guardrails", "arguments": {"action": "list"}}
        )
        assert {rule["name"] for rule in text_of(own)["guardrails"]} >= {"no-delete", "soon", "masks"}


@pytest.mark.req("CE-F37")
async def test_a_rule_that_is_defined_while_a_client_is_connected_holds_for_its_next_call(
    connect: Connect, team: Team, agent: str, session: str
) -> None:
    delete = {"action": "delete", "session_id": session, "key": "goal"}
    async with connect(agent, session) as client:
        for rules, code in (((), None), ((NO_DELETE,), "GUARDRAIL_VIOLATION"), ((), None)):
            team.write(session, "goal", f"{code}")
            guardrails_of(team, agent, *rules)
            result = await client.call_tool("shared_context", delete)
            assert (text_of(result).get("code") if result.is_error else None) == code


@pytest.mark.req("CE-F37")
async def test_the_fast_path_and_the_sdk_refuse_alike(web: Connect, team: Team, agent: str, session: str) -> None:
    team.write(session, "goal")
    guardrails_of(team, agent, NO_DELETE)
    delete = {"action": "delete", "session_id": session, "key": "goal"}
    async with web(agent) as client:
        answers = [
            await client.call_tool("shared_context", delete),
            # A call with a progress callback of the client goes another way.
            await client.call_tool("shared_context", delete, progress_callback=_ignore),
        ]
    assert {text_of(answer)["code"] for answer in answers} == {"GUARDRAIL_VIOLATION"}
    metrics = team.ask("GET", "/metrics", "metrics").text
    assert 'weftline_tool_calls_total{path="fast"}' in metrics


async def _ignore(*_: Any) -> None:
    """Ignore progress."""


@pytest.mark.req("CE-F37")
def test_rest_and_plain_tool_calls_are_refused(team: Team, agent: str, session: str) -> None:
    team.write(session, "goal")
    guardrails_of(team, agent, NO_DELETE, WARN)
    rest = team.ask("DELETE", f"/v1/sessions/{session}/context/goal", agent)
    assert (rest.status_code, rest.json()["code"]) == (403, "GUARDRAIL_VIOLATION")
    delete = {"action": "delete", "session_id": session, "key": "goal"}
    plain = team.ask("POST", "/mcp/tool/shared_context", agent, json=delete)
    assert (plain.status_code, plain.json()["code"]) == (403, "GUARDRAIL_VIOLATION")
    listed = team.ask("GET", f"/v1/sessions/{session}/context", agent)
    assert listed.status_code == 200
    (warning,) = json.loads(listed.headers["weftline-warning"])
    assert warning.startswith("The guardrail 'soon' of the agent")
    checked = team.ask("POST", "/v1/guardrails/check", agent, json={"tool": "shared_context.delete"})
    assert checked.json()["code"] == "GUARDRAIL_VIOLATION"
