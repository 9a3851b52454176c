"""Server logs: metadata of every change, never values or secrets."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from support.team import LEGACY, MODERN, Team, over_http, team_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "canary_in_the_coal_mine"


@pytest.fixture
def logging_team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    with team_process(tmp_path_factory.mktemp("watched"), log_level="DEBUG") as team:
        yield team


async def send_canary_everywhere(team: Team, session: str) -> None:
    """Send the canary through every interface, in calls that succeed and calls that fail."""
    write = {"session_id": session, "action": "write", "key": "secret", "value": CANARY}
    hostile = [
        write,
        {**write, "key": "Not A Key"},
        {**write, "value": {"nested": CANARY}},
        {**write, "value": CANARY * 1_000},
        {**write, "session_id": "nowhere"},
        {**write, "if_version": 99},
        {**write, "action": "dance"},
        {**write, "unknown": CANARY},
    ]
    path = f"/v1/sessions/{session}/context/secret"
    for body in (
        {"value": CANARY},
        {"value": [CANARY]},
        {"value": CANARY * 1_000},
        {"value": CANARY, "if_version": 99},
        {"value": CANARY, "extra": CANARY},
    ):
        for agent in ("planner", "reader", "stranger", None):
            team.ask("PUT", path, agent, json=body)
    team.ask("PUT", path, content=f'{{"value": "{CANARY}'.encode())
    team.ask("PATCH", path, json={"value": CANARY})
    for arguments in hostile:
        team.ask("POST", "/mcp/tool/shared_context", json=arguments)
    for era in (LEGACY, MODERN):
        async with over_http(team, "analysis", era) as client:
            for arguments in hostile:
                await client.call_tool("shared_context", arguments)
            await client.read_resource(f"board://{session}/secret")
    for operation in ("snapshots", "read-batch", "inspect"):
        body = {"snapshots": {"label": "state"}, "read-batch": {"keys": ["secret"]}, "inspect": {}}[operation]
        assert team.ask("POST", f"/v1/sessions/{session}/{operation}", "admin", json=body).is_success
    team.ask("GET", f"/v1/sessions/{session}/history/secret")
    team.ask("GET", f"/v1/sessions/{session}/snapshots/state/comparison")
    team.ask("POST", f"/v1/sessions/{session}/snapshots/state/restore")
    assert team.ask("DELETE", path).status_code == 200


@pytest.mark.req("SC-19")
async def test_values_are_in_no_log_metric_event_or_audit(logging_team: Team) -> None:
    session = logging_team.new_session()
    await send_canary_everywhere(logging_team, session)
    logged = logging_team.server.logged()
    assert CANARY not in logged
    assert CANARY not in logging_team.ask("GET", "/metrics", "metrics").text
    events = logging_team.ask("GET", "/v1/events?after=0", "admin").text
    assert CANARY not in events
    assert CANARY not in logging_team.ask("GET", "/v1/audit", "admin").text
    records = [json.loads(line) for line in logged.splitlines() if line.startswith("{")]
    assert not [record for record in records if record["level"] in {"ERROR", "CRITICAL"}]


@pytest.mark.req("SC-19")
def test_every_write_and_delete_is_logged_with_its_metadata(team: Team, session: str) -> None:
    team.write(session, "logged", CANARY, agent="analysis")
    assert team.ask("DELETE", f"/v1/sessions/{session}/context/logged").status_code == 200
    records = [json.loads(line) for line in team.server.logged().splitlines() if session in line]
    changes = [record for record in records if record.get("key") == "logged"]
    assert [record["message"] for record in changes] == ["board.written", "board.deleted"]
    assert [record["written_by"] for record in changes] == ["subagent:analysis", "orchestrator:planner"]
    for change in changes:
        assert (change["session_id"], change["version"], change["value_size_tokens"]) == (session, 1, 6)
        assert change["at"].endswith("Z")


@pytest.mark.req("SC-19")
def test_keys_and_tokens_are_in_no_log(logging_team: Team) -> None:
    body = {"agent_id": "planner", "agent_type": "planning", "api_key": logging_team.keys["planner"]}
    token = logging_team.ask("POST", "/v1/tokens", None, json=body).json()["token"]
    with logging_team.http(None) as http:
        assert http.get("/v1/events", headers={"Authorization": f"Bearer {token}"}).status_code == 200
        http.get("/v1/events", headers={"Authorization": f"Bearer {logging_team.keys['planner']}x"})
    logged = logging_team.server.logged()
    assert token not in logged
    assert logging_team.keys["planner"].rpartition(".")[2] not in logged


def test_health_and_readiness_need_no_credential(team: Team) -> None:
    assert team.ask("GET", "/health", None).json()["status"] == "ok"
    assert team.ask("GET", "/ready", None).json()["status"] == "ready"


def test_metrics_are_for_the_operator_s_token(team: Team, session: str) -> None:
    for caller in (None, "admin", "planner", "stranger"):
        refused = team.ask("GET", "/metrics", caller)
        assert (refused.status_code, refused.json()["code"]) == (401, "METRICS_TOKEN")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert "weftline_" not in refused.text
    team.write(session, "goal")
    metrics = team.ask("GET", "/metrics", "metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'weftline_calls_total{operation="board.write",outcome="ok"}' in metrics.text
    assert 'weftline_call_seconds_bucket{le="0.005",operation="board.write"}' in metrics.text
    for figure in ("process_resident_memory_bytes", "weftline_database_transactions_total", "weftline_subscribers"):
        assert f"\n{figure} " in metrics.text
    assert 'weftline_cache_lookups_total{cache="message_pages",outcome="hit"}' in metrics.text
    assert session not in metrics.text
    # The token opens nothing else.
    assert team.ask("GET", "/v1/sessions", "metrics").status_code == 401


def test_a_server_without_a_token_serves_no_metrics_and_limits_guesses(tmp_path: Path) -> None:
    with team_process(tmp_path, metrics_token="", rate_limits="authentication=3/minute") as team:
        answers = [team.ask("GET", "/metrics", agent) for agent in ("metrics", None, "admin", None)]
        assert [answer.json()["code"] for answer in answers] == [*["METRICS_TOKEN"] * 3, "RATE_LIMITED"]
        assert int(answers[-1].headers["retry-after"]) >= 1


def test_the_index_page_describes_the_server_without_tenant_data(team: Team, session: str) -> None:
    page = team.ask("GET", "/", None)
    assert page.headers["content-type"].startswith("text/html")
    assert "/openapi.json" in page.text
    assert session not in page.text
