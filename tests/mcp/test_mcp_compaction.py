"""Compaction over MCP: an agent compacts its window and brings originals back with two tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.team import call, refused, tools_of

if TYPE_CHECKING:
    from mcp.client.client import Client

    from conftest import Connect

DECISION = "Decision: we use PostgreSQL 16 for the billing service."
EVENTS = [
    {"event_id": "choice", "content": DECISION},
    *({"event_id": f"e{n}", "content": f"Step {n} is done. {'So much for that. ' * 20}"} for n in range(30)),
]


async def answer(client: Client, tool: str, **arguments: Any) -> Any:
    result = await call(client, tool, **arguments)
    assert not result.is_error, result.structured_content
    return result.structured_content


@pytest.mark.req("CE-A")
async def test_an_agent_compacts_its_window_and_reads_originals(connect: Connect, session: str) -> None:
    async with connect("analysis", session) as client:
        await answer(client, "ingest_event", events=EVENTS)
        made = await answer(client, "compact_context", keep_recent=4, wait_seconds=60)
        assert made["state"] == "applied"
        assert len(json.dumps(made)) < 500
        summary = (await answer(client, "compactions", action="show", compaction_id=made["compaction_id"]))[
            "summaries"
        ][0]
        expanded = await answer(client, "compactions", action="expand", ids=[summary["summary_id"]], limit=1)
        assert expanded["events"][0]["content"] == DECISION
        facts = await answer(client, "compactions", action="facts", kind="decision")
        assert DECISION in {fact["text"] for fact in facts["facts"]}
        await answer(client, "compactions", action="drop")
        error = await refused(client, "compactions", action="apply", compaction_id=made["compaction_id"])
        assert error["code"] == "PERMISSION_DENIED"


async def test_the_tools_are_listed_on_request_only(connect: Connect, session: str) -> None:
    async with connect("analysis", session) as client:
        assert not {"compact_context", "compactions"} & {*await tools_of(client)}
