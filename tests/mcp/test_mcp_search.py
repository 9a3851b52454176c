"""Search over MCP: three tools; a session connection searches no other session."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from support.team import TIMEOUT_SECONDS, call, refused

if TYPE_CHECKING:
    from mcp.client.client import Client

    from conftest import Connect

pytestmark = [pytest.mark.req("CE-F41"), pytest.mark.req("CE-A")]
TOOLS = ("search", "get_context", "find_similar")


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    return (await call(client, tool, **arguments)).structured_content


async def test_three_search_tools_are_read_only_and_answer(web: Connect) -> None:
    async with web("planner", tools="full") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        for name in TOOLS:
            assert tools[name].annotations.read_only_hint
            assert "session_id" in tools[name].input_schema["properties"]
        assert tools["search"].input_schema["required"] == ["query"]
        found = await answer(client, "search", query="nothing of the kind", since="2099-01-01")
        assert (found["results"], found["unsure"], found["confidence"]) == ([], True, 0.0)
        # What earlier tests wrote to this server may still be indexed.
        assert found.keys() - {"pending"} == {"results", "unsure", "confidence", "hint"}
        context = await answer(client, "get_context", query="nothing of the kind", since="2099-01-01")
        assert (context["context"], context["unsure"], context["citations"]) == ("", True, [])
        similar = await answer(client, "find_similar", text="nothing of the kind", since="2099-01-01")
        assert similar["results"] == []


async def test_the_search_tools_return_what_an_agent_was_told(web: Connect) -> None:
    text = "The launch of the falcon needs the approval of Dana."
    async with web("planner", tools="full") as client:
        await call(client, "set_memory", key="falcon", value=text)
        found = await answer(client, "search", query="Who approves the launch of the falcon?")
        assert found["results"][0]["text"] == text
        ref = found["results"][0]["ref"]
        context = await answer(client, "get_context", query="Who approves the launch of the falcon?")
        assert text in context["context"]
        async with asyncio.timeout(TIMEOUT_SECONDS):
            # Texts are embedded in the background; other tests have stored some too.
            while True:
                similar = await answer(client, "find_similar", text=text)
                if ref in [result["ref"] for result in similar["results"]]:
                    break
                await asyncio.sleep(0.05)
        assert similar["results"][0]["text"] == text


async def test_a_connection_for_one_session_searches_no_other(web: Connect, session: str) -> None:
    other = web.team.new_session()
    async with web("planner", session, tools="full") as client:
        for name in TOOLS:
            tool = next(tool for tool in (await client.list_tools()).tools if tool.name == name)
            assert "session_id" not in tool.input_schema["properties"]
        for arguments in ({"query": "x"}, {"query": "x", "sources": ["message"]}):
            named = await refused(client, "search", session_id=other, **arguments)
            assert named["code"] == "SESSION_NOT_FOUND"


async def test_an_unknown_domain_is_a_tool_error_with_a_hint(web: Connect) -> None:
    async with web("planner") as client:
        domain = await refused(client, "search", query="x", domain="no-such-domain")
        assert (domain["code"], domain["recoverable"]) == ("DOMAIN_NOT_FOUND", True)
        chunk = await refused(client, "find_similar", ref="domain:no-such-domain/1")
        assert chunk["code"] == "CHUNK_NOT_FOUND"
        assert chunk["suggestions"]
