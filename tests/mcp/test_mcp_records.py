"""Records over MCP: a connection for one session reaches no record of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.team import call, refused

if TYPE_CHECKING:
    from conftest import Connect

pytestmark = pytest.mark.req("AC-15", part="operations that exist")

TOOL = "context_records"
TEXT = "text of another session"
ENVELOPE = {
    "schema_version": "0.1.0",
    "scope": "turn",
    "lifecycle": "draft",
    "created_at": "2026-05-08T12:30:00Z",
}


def source_of(uri: str) -> dict[str, Any]:
    quote = {"type": "text_quote", "exact": TEXT}
    return {"schema_version": "0.1.0", "source_id": "s", "uri": uri, "source_kind": "board_entry", "selector": [quote]}


async def test_a_connection_for_one_session_reaches_no_record_of_another(web: Connect, session: str) -> None:
    other = web.team.new_session()
    web.team.write(other, "hid", TEXT)
    body = {"session_id": other, "records": [{**ENVELOPE, "context_id": f"envelope-{other}"}]}
    web.team.ask("POST", "/v1/records", json=body).raise_for_status()
    item_id, envelope_id = f"board:{other}/hid/1.1", f"envelope-{other}"
    listed = web.team.ask("GET", f"/v1/records?session_id={other}&types=context_event").json()
    event_id = next(entry["id"] for entry in listed["records"] if entry["record"]["subject"] == "hid")
    async with web("planner", session) as client:
        for record_id in (item_id, f"session:{other}", envelope_id, event_id):
            shown = await refused(client, TOOL, action="show", record_id=record_id, with_content=True)
            assert (record_id, shown["code"]) == (record_id, "RECORD_NOT_FOUND")
        redacted = await refused(client, TOOL, action="redact", item_id=item_id, state="removed", reason="x")
        refused_state = await refused(
            client, TOOL, action="set_lifecycle", record_id=envelope_id, lifecycle="available"
        )
        assert {redacted["code"], refused_state["code"]} == {"RECORD_NOT_FOUND"}
        for uri in (f"board://{other}/hid", item_id):
            found = await call(client, TOOL, action="resolve", source_ref=source_of(uri))
            assert (found.structured_content["outcome"], "text" in found.structured_content) == ("lost", False)
        for session_id in (other, "nowhere"):
            named = await refused(client, TOOL, action="show", record_id=item_id, session_id=session_id)
            assert named["code"] == "SESSION_NOT_FOUND"
    shown = web.team.ask("GET", f"/v1/records/show?record_id={item_id}&with_content=true&session_id={other}").json()
    assert shown["content"] == TEXT


async def test_a_connection_for_one_session_reaches_the_records_of_its_session(web: Connect, session: str) -> None:
    async with web("planner", session) as client:
        await call(client, "shared_context", action="write", key="here", value=TEXT)
        item_id = f"board:{session}/here/1.1"
        shown = await call(client, TOOL, action="show", record_id=item_id, with_content=True)
        assert shown.structured_content["content"] == TEXT
        found = await call(client, TOOL, action="resolve", source_ref=source_of(item_id))
        assert found.structured_content["outcome"] == "exact"
        await call(client, TOOL, action="redact", item_id=item_id, state="removed", reason="x")
