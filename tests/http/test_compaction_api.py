"""Compactions over REST: compact, list, show, expand, facts, apply and drop, with their statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from support.team import Team

DECISION = "Decision: we use PostgreSQL 16 for the billing service."
EVENTS = [
    {"event_id": "choice", "content": DECISION},
    *({"event_id": f"e{n}", "content": f"Step {n} is done. {'So much for that. ' * 20}"} for n in range(30)),
]


def ask(team: Team, method: str, path: str, agent: str = "analysis", code: int = 200, **options: Any) -> Any:
    response = team.ask(method, path, agent, **options)
    assert response.status_code == code, response.text
    return response.json()


@pytest.mark.req("CE-A")
def test_a_window_is_compacted_shown_expanded_and_dropped(team: Team, session: str) -> None:
    of_session = f"/v1/sessions/{session}"
    ask(team, "POST", f"{of_session}/ingest", json={"events": EVENTS})
    made = ask(
        team, "POST", f"{of_session}/compact", json={"keep_recent": 4, "strategy": "sliding_window", "wait_seconds": 60}
    )
    assert made["state"] == "applied"
    one = f"/v1/compactions/{made['compaction_id']}"
    (listed,) = ask(team, "GET", f"{of_session}/compactions")["compactions"]
    assert (listed["compaction_id"], listed["version"]) == (made["compaction_id"], made["version"])
    first = ask(team, "GET", one, params={"limit": 1})["summaries"][0]
    assert first["originals"][0]["content"] == DECISION
    expanded = ask(team, "POST", f"{of_session}/expand", json={"ids": [first["summary_id"]], "limit": 1})
    assert (expanded["events"][0]["event_id"], expanded["next_offset"]) == ("choice", 1)
    facts = ask(team, "GET", f"{of_session}/facts", params={"kind": "decision"})["facts"]
    assert DECISION in {fact["text"] for fact in facts}
    assert ask(team, "DELETE", f"{of_session}/compaction") == {"dropped": [made["compaction_id"]]}
    assert ask(team, "POST", f"{one}/apply", code=403)["code"] == "PERMISSION_DENIED"


def test_refusals_have_their_status(team: Team, session: str) -> None:
    of_session = f"/v1/sessions/{session}"
    ask(team, "POST", f"{of_session}/ingest", json={"events": EVENTS})
    made = ask(team, "POST", f"{of_session}/compact", json={"wait_seconds": 60})
    one = f"/v1/compactions/{made['compaction_id']}"
    hidden = ask(team, "GET", one, "stranger", 404)
    missing = ask(team, "GET", "/v1/compactions/none", "stranger", 404)
    assert hidden["code"] == missing["code"] == "COMPACTION_NOT_FOUND"
    assert ask(team, "POST", f"{of_session}/compact", "stranger", 404, json={})["code"] == "SESSION_NOT_FOUND"
    assert ask(team, "POST", f"{of_session}/compact", "reader", 403, json={})["code"] == "PERMISSION_DENIED"
    for bad in ({"strategy": "truncation"}, {"target": 2}, {"keep_recent": 0}, {"wait_seconds": 61}):
        assert ask(team, "POST", f"{of_session}/compact", code=400, json=bad)["code"] == "INVALID_INPUT_FORMAT"
