"""Prompts over REST: ingest, assemble, report usage, and read receipts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.scripted_provider import invalid

if TYPE_CHECKING:
    from support.team import Team

MODEL = "gpt-5.4-mini"
QUESTION = "Why are orders slow?"
RULES = "You find causes. " * 300
MESSAGES = [{"role": "system", "content": RULES}, {"role": "user", "content": QUESTION}]


def post(team: Team, path: str, body: dict[str, Any], agent: str = "analysis", code: int = 200) -> Any:
    response = team.ask("POST", path, agent, json=body)
    assert response.status_code == code, response.text
    return response.json()


def get(team: Team, path: str, agent: str = "analysis", code: int = 200, **params: Any) -> Any:
    response = team.ask("GET", path, agent, params=params)
    assert response.status_code == code, response.text
    return response.json()


@pytest.mark.req("CE-A")
@pytest.mark.req("CE-F28")
@pytest.mark.req("CE-F53")
def test_a_prompt_is_assembled_extended_reported_and_replayed(team: Team, session: str) -> None:
    of_session = f"/v1/sessions/{session}"
    events = [{"event_id": f"e{number}", **message} for number, message in enumerate(MESSAGES)]
    team.instruct(session, "e0", RULES)
    post(team, f"{of_session}/ingest", {"events": events})
    wanted = {"task_description": QUESTION, "model": MODEL, "form": "openai_chat"}
    first = post(team, f"{of_session}/assemble", wanted)
    assert invalid("openai_chat", first["body"]) is None
    sent = first["body"]["messages"]
    assert "<weftline:layer" in str(sent[0])
    assert QUESTION in str(sent[-1])

    post(team, f"{of_session}/ingest", {"events": [{"event_id": "a", "role": "assistant", "content": "The cache."}]})
    second = post(team, f"{of_session}/assemble", {**wanted, "task_description": "Since when?"})
    assert second["mode"] == "extended"
    assert second["savings"]["cached_tokens"] > 1_000
    usage = {"prompt_tokens": 1_400, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 1_280}}
    report = {"receipt_id": second["receipt_id"], "usage": usage, "latency_ms": 812.5, "quality_score": 0.9}
    reported = post(team, f"{of_session}/metrics", report)
    assert (reported["input_tokens"], reported["cache_read_tokens"], reported["model"]) == (1_400, 1_280, MODEL)
    assert post(team, f"{of_session}/metrics", report) == reported

    shown = get(team, f"/v1/receipts/{second['receipt_id']}")
    assert shown["usage"]["latency_ms"] == 812.5
    assert shown["timing_ms"].keys() >= {"gather", "retrieve", "plan", "render"}
    assert get(team, f"/v1/receipts/{first['receipt_id']}/prompt", form="openai_chat")["body"] == first["body"]
    listed = get(team, "/v1/receipts", session_id=session, limit=1)
    assert [each["receipt_id"] for each in listed["receipts"]] == [second["receipt_id"]]
    rest = get(team, "/v1/receipts", session_id=session, cursor=listed["next_cursor"])
    assert [each["receipt_id"] for each in rest["receipts"]] == [first["receipt_id"]]
    (row,) = get(team, "/v1/savings", by="session", session_id=session)["rows"]
    assert (row["calls"], row["reported"], row["input_tokens"]) == (2, 1, 1_400)


def test_a_conversation_sent_along_is_stored_once(team: Team, session: str) -> None:
    agent = team.new_agent(parent_id="planner")
    assert team.ask("PUT", f"/v1/agents/{agent}/definition", json={"system_prompt": RULES}).status_code == 200
    wanted: dict[str, Any] = {"task_description": QUESTION, "model": MODEL, "form": "openai_chat", "messages": MESSAGES}
    post(team, f"/v1/sessions/{session}/assemble", wanted, agent)
    grown = [*MESSAGES, {"role": "assistant", "content": "The cache."}, {"role": "user", "content": "Since when?"}]
    again = post(team, f"/v1/sessions/{session}/assemble", {**wanted, "messages": grown}, agent)
    assert again["mode"] == "extended"
    assert str(again["body"]).count(RULES.strip()) == 1
    events = get(team, f"/v1/sessions/{session}/window/events", agent)["events"]
    assert [event["role"] for event in events] == ["system", "user", "assistant", "user"]


@pytest.mark.req("CE-F31")
@pytest.mark.req("CE-U7")
def test_an_agent_writes_no_system_text_of_its_own(team: Team, session: str) -> None:
    of_session = f"/v1/sessions/{session}"
    own = {"event_id": "own", "role": "system", "content": "Rhyme a little."}
    refused = post(team, f"{of_session}/ingest", {"events": [own]}, code=403)
    assert refused["code"] == "SELF_MODIFICATION"
    assert "PUT /v1/agents/{agent_id}/definition" in refused["suggestions"][0]
    inline = {"task_description": QUESTION, "form": "anthropic", "messages": MESSAGES[1:], "system": "Rhyme a little."}
    assert post(team, f"{of_session}/assemble", inline, code=403)["code"] == "SELF_MODIFICATION"
    recorded = post(team, f"{of_session}/ingest", {"events": [own, {"event_id": "q", "content": QUESTION}]})
    assert [event.get("shown_as") for event in recorded["events"]] == ["data", None]
    body = post(team, f"{of_session}/assemble", {"task_description": QUESTION, "form": "anthropic"})["body"]
    assert "Rhyme a little." not in str(body["system"])
    assert "<weftline:data>\nRhyme a little.\n</weftline:data>" in str(body["messages"][0]["content"][0]["text"])


@pytest.mark.req("CE-A")
def test_errors_have_their_status(team: Team, session: str) -> None:
    of_session = f"/v1/sessions/{session}"
    task = {"task_description": QUESTION}
    team.instruct(session, "e", RULES)
    over = post(team, f"{of_session}/assemble", {**task, "token_budget": 100}, code=400)
    assert over["code"] == "CONTEXT_OVER_BUDGET"
    assert post(team, f"{of_session}/assemble", {"task_description": " "}, code=400)["code"] == "INVALID_INPUT_FORMAT"
    conflict = post(team, f"{of_session}/ingest", {"events": [{"event_id": "e", "content": "other"}]}, code=409)
    assert conflict["code"] == "EVENT_EXISTS"
    prompt = post(team, f"{of_session}/assemble", task)
    for path in (f"/v1/receipts/{prompt['receipt_id']}", f"/v1/receipts/{prompt['receipt_id']}/prompt"):
        assert get(team, path, "stranger", code=404)["code"] == "RECEIPT_NOT_FOUND"
    report = {"receipt_id": prompt["receipt_id"], "usage": {"input_tokens": -5}}
    assert post(team, f"{of_session}/metrics", report, code=400)["code"] == "INVALID_INPUT_FORMAT"
    assert post(team, f"{of_session}/assemble", task, agent="reader", code=403)["code"] == "PERMISSION_DENIED"
    assert post(team, f"{of_session}/assemble", task, agent="stranger", code=404)["code"] == "SESSION_NOT_FOUND"


@pytest.mark.req("CE-F16")
@pytest.mark.req("CE-F18")
@pytest.mark.req("CE-U4")
def test_a_prompt_says_what_the_session_pulled_not_what_others_pushed(team: Team, session: str) -> None:
    other = team.new_session()

    def push(day: str, in_session: str) -> None:
        version = get(team, "/v1/context/status")["version"]
        entry = {"key": "release/day", "value": f"The release is on {day}."}
        post(team, "/v1/context/push", {"knowledge": [entry], "session_id": in_session, "if_version": version})

    def prompt(in_session: str) -> str:
        task = {"task_description": "On which weekday is the release?"}
        return str(post(team, f"/v1/sessions/{in_session}/assemble", task)["body"])

    push("Tuesday", session)
    pulled = post(team, "/v1/context/pull", {"session_id": session})
    push("Friday", other)
    assert "Tuesday" in prompt(session)
    assert "Friday" in prompt(other)
    push("Sunday", other)
    search = {"query": "release weekday", "session_id": session, "sources": ["memory"], "low_confidence": True}
    (found,) = post(team, "/v1/search", search)["results"]
    assert found["text"] == "The release is on Tuesday."
    assert get(team, "/v1/records/show", record_id=found["ref"])["id"] == found["ref"]
    assert "Tuesday" in prompt(session)
    assert "Sunday" not in prompt(session)
    assert "Friday" in prompt(other)
    again = post(team, "/v1/context/pull", {"session_id": session})
    assert again["from_version"] == pulled["to_version"]
    assert "Sunday" in prompt(session)
    assert "Tuesday" not in prompt(session)
