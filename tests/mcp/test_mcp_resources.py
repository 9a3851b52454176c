"""Resources, prompts and completion over MCP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from support.team import LEGACY, MODERN, Board, Team, call, over_http

if TYPE_CHECKING:
    from mcp.client.client import Client

    from conftest import Connect

NOT_FOUND = {LEGACY: -32002, MODERN: -32602}


async def content_of(client: Client, uri: str) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert (str(content.uri), content.mime_type) == (uri, "application/json")
    return json.loads(content.text)


async def listed(client: Client) -> list[str]:
    return [str(resource.uri) for resource in (await client.list_resources()).resources]


@pytest.mark.req("MS-09")
async def test_listed_resources_are_those_the_caller_can_read(web: Connect, session: str) -> None:
    hidden = web.team.new_session(agent="admin", members=["human:*"])
    async with web("planner") as client:
        planner = await listed(client)
    async with web("analysis") as client:
        analysis = await listed(client)
    async with web("admin") as client:
        admin = await listed(client)

    assert {f"board://{session}", f"session://{session}", "agent://planner/memory"} <= set(planner)
    assert not {f"board://{hidden}", f"session://{hidden}", "performance://metrics"} & set(planner)
    assert analysis == ["agent://analysis/memory", "inbox://me"]
    assert {"agent://admin/memory", "performance://metrics"} <= set(admin)


async def test_templates_cover_every_kind_of_resource(web: Connect) -> None:
    async with web("analysis") as client:
        templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == [
        "board://{session_id}",
        "board://{session_id}/{key}",
        "session://{session_id}",
        "agent://{agent_id}/memory",
    ]


async def test_a_board_an_entry_a_pattern_and_a_session_can_be_read(connect: Connect, session: str) -> None:
    async with connect("planner") as client:
        board = Board(client, session)
        for key in ("risk_one", "risk_two", "goal"):
            await board("write", key=key, value=f"about {key}")
        whole = await content_of(client, f"board://{session}")
        assert [entry["key"] for entry in whole["keys"]] == ["goal", "risk_one", "risk_two"]
        assert (await content_of(client, f"board://{session}/goal"))["value"] == "about goal"
        matching = await content_of(client, f"board://{session}/risk_*")
        assert [entry["key"] for entry in matching["keys"]] == ["risk_one", "risk_two"]
        assert (await content_of(client, f"session://{session}"))["session"]["purpose"] == "a test"


async def test_an_unreadable_resource_is_refused_with_its_uri(web: Connect, session: str) -> None:
    foreign = web.team.new_session(agent="stranger")
    closed = web.team.new_session(agent="admin", members=["human:*"])
    async with web("planner") as client:
        for uri in (
            f"board://{session}/absent",
            f"board://{foreign}",
            f"board://{closed}",
            "board://nowhere/goal",
            "board://",
            "file:///etc/passwd",
            f"session://{session}/goal",
        ):
            with pytest.raises(MCPError) as refusal:
                await client.read_resource(uri)
            assert refusal.value.code == NOT_FOUND[web.era], uri
            assert refusal.value.error.data["uri"] == uri
            assert refusal.value.error.data["hint"]
            assert "`" not in refusal.value.error.data["hint"]


async def test_a_session_connection_reads_no_other_session(connect: Connect, session: str) -> None:
    other = connect.team.new_session()
    connect.team.write(other, "goal", "theirs")
    connect.team.write(session, "goal", "ours")
    async with connect("planner", session) as client:
        for uri in (f"board://{other}", f"board://{other}/goal", f"board://{other}/go*", f"session://{other}"):
            with pytest.raises(MCPError) as refusal:
                await client.read_resource(uri)
            assert refusal.value.code == NOT_FOUND[connect.era]
            assert refusal.value.error.data["uri"] == uri
        with pytest.raises(MCPError) as refusal:
            await prompt_text(client, "board_guide", session_id=other)
        assert refusal.value.error.data["code"] == "SESSION_NOT_FOUND"
        completed = await client.complete(
            types.PromptReference(name="board_guide"), {"name": "session_id", "value": "s_"}
        )
        assert completed.completion.values == [session]

        assert (await content_of(client, f"board://{session}/goal"))["value"] == "ours"
        assert (await content_of(client, f"session://{session}"))["session"]["id"] == session
        assert await prompt_text(client, "board_guide", session_id=session) == await prompt_text(client, "board_guide")


async def test_a_session_connection_lists_no_resource_of_another(web: Connect, session: str) -> None:
    async with web("planner", session) as client:
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == [
            f"board://{session}",
            f"board://{session}/{{key}}",
            f"session://{session}",
            "agent://{agent_id}/memory",
        ]
        assert await listed(client) == [
            f"board://{session}",
            f"session://{session}",
            "agent://planner/memory",
            "inbox://me",
        ]
        assert not any(prompt.arguments for prompt in (await client.list_prompts()).prompts)


@pytest.mark.req("MS-09")
async def test_sub_agents_read_what_their_sessions_acl_allows(web: Connect, session: str) -> None:
    closed = web.team.new_session(agent="admin", members=["human:*"])
    async with web("planner") as client:
        await call(client, "add_message", session_id=session, content="for all")
        await call(client, "add_message", session_id=session, content="for me", visibility="private")
    async with web("analysis") as client:
        seen = await content_of(client, f"session://{session}")
        with pytest.raises(MCPError) as refusal:
            await client.read_resource(f"session://{closed}")
    assert [message["content"] for message in seen["messages"]] == ["for all"]
    assert seen["statistics"]["visible_message_count"] == 1
    assert refusal.value.error.data["code"] == "SESSION_NOT_FOUND"


@pytest.mark.req("SC-10")
async def test_prompts_carry_the_board_s_guidance(connect: Connect) -> None:
    async with connect("analysis") as client:
        prompts = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
        assert set(prompts) == {"board_guide", "board_conventions", "board_writing", "board_reading"}
        assert all(prompt.description for prompt in prompts.values())
        texts = {name: await prompt_text(client, name) for name in prompts}
        guidance = (await call(client, "get_board_guidance")).structured_content["text"]
    assert texts["board_guide"] == guidance
    for name in ("board_conventions", "board_writing", "board_reading"):
        assert texts[name] in guidance
    assert "problem_summary" in texts["board_conventions"]
    assert "list_keys" in texts["board_reading"]


@pytest.mark.req("SC-10")
async def test_a_prompt_contains_the_conventions_of_the_session(web: Connect) -> None:
    team = web.team
    groups = [{"title": "Patients", "keys": [{"key": "triage_state", "purpose": "how urgent it is"}]}]
    assert team.ask("PUT", "/v1/conventions/clinic", "admin", json={"groups": groups}).status_code == 200
    session = team.new_session(conventions="clinic")
    async with web("analysis") as client:
        assert "triage_state" in await prompt_text(client, "board_conventions", session_id=session)
    async with web("analysis", session) as client:
        assert "triage_state" in await prompt_text(client, "board_guide")


async def test_an_unknown_prompt_is_refused(web: Connect) -> None:
    async with web("planner") as client:
        with pytest.raises(MCPError) as refusal:
            await client.get_prompt("no_such_prompt")
        assert refusal.value.code == types.INVALID_PARAMS
        with pytest.raises(MCPError) as refusal:
            await client.get_prompt("board_guide", {"session_id": "nowhere"})
        assert refusal.value.error.data["code"] == "SESSION_NOT_FOUND"


async def test_session_ids_are_completed_for_those_who_may_list_them(team: Team, era: str, session: str) -> None:
    reference = types.PromptReference(name="board_guide")
    async with over_http(team, "planner", era) as client:
        found = await client.complete(reference, {"name": "session_id", "value": session[:6]})
        assert session in found.completion.values
        nothing = await client.complete(reference, {"name": "session_id", "value": "zzz"})
        assert nothing.completion.values == []
    async with over_http(team, "analysis", era) as client:
        hidden = await client.complete(reference, {"name": "session_id", "value": session[:6]})
        assert hidden.completion.values == []


async def prompt_text(client: Client, name: str, **arguments: str) -> str:
    (message,) = (await client.get_prompt(name, arguments)).messages
    return message.content.text
