"""Agents talk to each other over MCP: direct messages, the inbox, and notifications of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.team import MODERN, call, over_http, refused, tools_of, with_timeout

if TYPE_CHECKING:
    from mcp.client.client import Client

    from conftest import Connect
    from support.team import Team

pytestmark = pytest.mark.req("WX-03")


async def inbox(client: Client, **fields: Any) -> Any:
    return (await call(client, "inbox", **fields)).structured_content


async def test_two_agents_talk_and_a_third_hears_nothing(connect: Connect, session: str) -> None:
    async with connect("planner") as planner, connect("analysis") as analysis:
        assert {"add_message", "inbox"} <= (await tools_of(planner)).keys()
        peers = await call(
            planner, "weftline_tools", action="call", name="list_agents", arguments={"session_id": session}
        )
        assert "analysis" in {peer["agent_id"] for peer in peers.structured_content["agents"]}
        error = await refused(planner, "add_message", session_id=session, content="hi", recipient_id="analisys")
        assert error["code"] == "RECIPIENT_NOT_FOUND"
        assert "analysis" in error["context"]["available_alternatives"]

        await call(planner, "add_message", session_id=session, content="Which index?", recipient_id="analysis")
        waiting = await inbox(analysis, session_id=session)
        (question,) = waiting["messages"]
        assert (question["sender"], question["content"]) == ("planner", "Which index?")
        number = question["message_id"]
        await call(analysis, "add_message", session_id=session, content="The second.", parent_message_id=number)
        assert (await inbox(analysis, session_id=session, acknowledge=[question["handle"]]))["messages"] == []
        (answer,) = (await inbox(planner, session_id=session))["messages"]
        assert (answer["content"], answer["visibility"]) == ("The second.", "private")
    async with connect("admin") as admin:
        heard = await call(admin, "get_messages", session_id=session)
        assert (heard.structured_content["messages"], heard.structured_content["total_count"]) == ([], 0)


async def test_a_session_connection_reads_the_inbox_of_its_session(connect: Connect, session: str) -> None:
    other = connect.team.new_session()
    async with connect("planner") as planner:
        for where in (session, other):
            await call(planner, "add_message", session_id=where, content=where, recipient_id="analysis")
    async with connect("analysis", session) as analysis:
        assert [each["content"] for each in (await inbox(analysis))["messages"]] == [session]
        assert "session_id" not in (await tools_of(analysis))["inbox"].input_schema["properties"]
        (content,) = (await analysis.read_resource("inbox://me")).contents
        assert other not in content.model_dump_json()


async def test_a_recipient_is_notified_of_its_inbox(team: Team, session: str) -> None:
    async with (
        over_http(team, "planner", MODERN) as planner,
        over_http(team, "analysis", MODERN) as analysis,
        analysis.listen(resource_subscriptions=["inbox://me", f"board://{session}/end"]) as subscription,
    ):
        await call(planner, "add_message", session_id=session, content="for all")
        await call(planner, "add_message", session_id=session, content="mine", recipient_id="planner")
        await asyncio.to_thread(team.write, session, "end")
        assert (await with_timeout(anext(subscription))).uri == f"board://{session}/end"
        await call(planner, "add_message", session_id=session, content="wake up", recipient_id="analysis")
        assert (await with_timeout(anext(subscription))).uri == "inbox://me"
