"""Hooks of knowledge sources over HTTP: secret URLs and signed requests instead of credentials."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from weftline.sessions.events.webhooks import signed_headers

if TYPE_CHECKING:
    from support.team import Team

pytestmark = pytest.mark.req("CE-F43")
BODY = json.dumps({"documents": [{"document_id": "start.md", "text": "# Start"}]}).encode()


@pytest.fixture
def source(team: Team, session: str) -> Any:
    domain = f"pushed_{session}"
    assert team.ask("POST", "/v1/domains", "admin", json={"domain": domain}).status_code == 201
    answer = team.ask("POST", f"/v1/domains/{domain}/sources", "admin", json={"kind": "hook", "prefix": "wiki/"})
    assert answer.status_code == 201, answer.text
    return answer.json()


def signed(source: Any, body: bytes) -> dict[str, str]:
    return signed_headers(source["secret"], "call-1", int(time.time()), body)


def documents(team: Team, source: Any) -> list[str]:
    listed = team.ask("GET", f"/v1/domains/{source['domain']}/documents", "admin").json()["documents"]
    return [each["document_id"] for each in listed]


def test_a_signed_hook_call_adds_documents_without_a_credential(team: Team, source: Any) -> None:
    answer = team.ask("POST", source["hook"], None, content=BODY, headers=signed(source, BODY))
    assert answer.status_code == 202, answer.text
    assert answer.json() == {"success": True, "sync": False, "accepted": 1, "removed": 0, "refused": []}
    assert documents(team, source) == ["wiki/start.md"]


def test_unsigned_and_guessed_hook_calls_are_refused_alike(team: Team, source: Any) -> None:
    guessed = source["hook"][:-4] + "abcd"
    unsigned = team.ask("POST", source["hook"], None, content=BODY)
    answers = [unsigned, team.ask("POST", guessed, None, content=BODY, headers=signed(source, BODY))]
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(404, "HOOK_REFUSED")}
    assert documents(team, source) == []


def test_a_hook_accepts_post_only(team: Team, source: Any) -> None:
    assert team.ask("GET", source["hook"], None).status_code == 405


def test_a_hook_call_with_very_many_values_is_refused_before_it_is_decoded(team: Team, source: Any) -> None:
    body = json.dumps({"removed": ["a"] * 150_000}).encode()
    answer = team.ask("POST", source["hook"], None, content=body, headers=signed(source, body))
    assert (answer.status_code, answer.json()["code"]) == (413, "CONTENT_TOO_LARGE")
