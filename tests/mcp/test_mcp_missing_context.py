"""Missing context over MCP: one tool, and a connection for one session reaches no question of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.team import call, refused, tools_of

if TYPE_CHECKING:
    from conftest import Connect

pytestmark = pytest.mark.req("AC-10")

TOOL = "missing_context"


async def test_a_question_is_reported_requested_and_resolved_over_mcp(connect: Connect, session: str) -> None:
    async with connect("analysis", session, tools="records") as client:
        schema = (await tools_of(client))[TOOL].input_schema
        assert schema["properties"]["action"]["enum"] == ["report", "list", "resolve", "request"]
        assert "session_id" not in schema["properties"]
        reported = await call(client, TOOL, action="report", question="Which region?", severity="blocking")
        missing_id = reported.structured_content["missing_id"]
        asked = await call(client, TOOL, action="request", missing_id=missing_id, form="user_question")
        listed = await call(client, TOOL, action="list")
        (gap,) = listed.structured_content["missing"]
        assert (gap["missing_id"], gap["status"], gap["severity"]) == (missing_id, "requested", "blocking")
        key = asked.structured_content["answer_key"]
        await call(client, "shared_context", action="write", key=key, value="Frankfurt only.")
        assert (await call(client, TOOL, action="list")).structured_content["missing"] == []
        assert (await refused(client, TOOL, action="request", missing_id=missing_id, form="retrieval"))["code"] == (
            "ALREADY_RESOLVED"
        )


async def test_a_connection_for_one_session_reaches_no_question_of_another(web: Connect, session: str) -> None:
    other_session = web.team.new_session()
    body = {"session_id": other_session, "question": "Which region?"}
    missing_id = web.team.ask("POST", "/v1/missing", json=body).json()["missing_id"]
    async with web("analysis", session) as client:
        for what in ({"action": "request", "form": "retrieval"}, {"action": "resolve", "resolution_refs": ["x"]}):
            assert (await refused(client, TOOL, missing_id=missing_id, **what))["code"] == "MISSING_CONTEXT_NOT_FOUND"
        assert (await call(client, TOOL, action="list")).structured_content["missing"] == []
    answer = web.team.ask("POST", f"/v1/missing/{missing_id}/resolve", json={"answer": "Frankfurt only."})
    assert answer.status_code == 200, answer.text
    listed = web.team.ask("GET", f"/v1/missing?session_id={other_session}&status=all").json()["missing"]
    assert [gap["status"] for gap in listed] == ["resolved"]
