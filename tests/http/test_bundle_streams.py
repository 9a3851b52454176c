"""Bundles over HTTP: streamed exports and imports of any size."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from support.bundles import items, seal_of
from weftline.exchange.transfer.export import MAX_TEXT_BYTES

if TYPE_CHECKING:
    from support.team import Team

pytestmark = pytest.mark.req("AC-14")


@pytest.fixture
def filled(team: Team, session: str) -> str:
    team.write(session, "goal", "ship")
    team.write(session, "large", "word " * 500)
    return session


def test_an_export_has_media_type_and_file_name_headers(team: Team, filled: str) -> None:
    answer = team.ask("POST", "/v1/export/stream", json={"session_id": filled})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    facts = msgspec.json.decode(answer.headers["weftline-export"])
    assert facts["digest"] == seal_of(answer.content)
    assert facts["bytes"] == len(answer.content) == int(answer.headers["content-length"])
    assert facts["bundle_id"] in answer.headers["content-disposition"]
    assert f"board:{filled}/goal/1.1" in items(answer.content)


@pytest.mark.parametrize("form", ["json", "prov"])
def test_json_and_prov_exports_are_json(team: Team, filled: str, form: str) -> None:
    answer = team.ask("POST", "/v1/export/stream", json={"session_id": filled, "format": form})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()


def test_a_streamed_bundle_is_imported(team: Team, filled: str) -> None:
    bundle = team.ask("POST", "/v1/export/stream", json={"session_id": filled}).content
    assert team.ask("DELETE", f"/v1/sessions/{filled}").status_code == 200
    asked = {"expected_digest": seal_of(bundle), "dry_run": "true"}
    dry_run = team.ask("POST", "/v1/import/stream", "admin", content=bundle, params=asked)
    assert (dry_run.status_code, dry_run.json()["dry_run"]) == (200, True)
    answer = team.ask("POST", "/v1/import/stream", "admin", content=bundle)
    assert answer.status_code == 200, answer.text
    assert answer.json()["session_id"] == filled
    assert team.ask("GET", f"/v1/sessions/{filled}/context/goal").json()["value"] == "ship"


def test_errors_have_the_common_body(team: Team, filled: str) -> None:
    bundle = team.ask("POST", "/v1/export/stream", json={"session_id": filled}).content
    altered = bundle[:200] + bytes([bundle[200] ^ 1]) + bundle[201:]
    expected = {
        "AUTHENTICATION_ERROR": team.ask("POST", "/v1/export/stream", None, json={"session_id": filled}),
        "SESSION_NOT_FOUND": team.ask("POST", "/v1/export/stream", json={"session_id": "nowhere"}),
        "INVALID_INPUT_FORMAT": team.ask("POST", "/v1/export/stream", json={"session_id": filled, "odd": 1}),
        "PERMISSION_DENIED": team.ask("POST", "/v1/import/stream", content=bundle),
        "BUNDLE_DAMAGED": team.ask("POST", "/v1/import/stream", "admin", content=altered),
        "SESSION_EXISTS": team.ask("POST", "/v1/import/stream", "admin", content=bundle),
    }
    for code, answer in expected.items():
        assert answer.json()["code"] == code, answer.text
    assert expected["BUNDLE_DAMAGED"].json()["context"]["line"] == 1
    twice = team.ask("POST", "/v1/import/stream?bundle=x", "admin", content=bundle)
    assert twice.json()["code"] == "INVALID_INPUT_FORMAT"


def test_large_bundles_are_exported_and_imported(team: Team) -> None:
    session = team.new_session(max_value_tokens=300_000, max_total_tokens=1_000_000)
    for number in range(3):
        team.write(session, f"k{number}", secrets.token_hex(200_000))
    bundle = team.ask("POST", "/v1/export/stream", json={"session_id": session}).content
    assert len(bundle) > MAX_TEXT_BYTES
    assert team.ask("DELETE", f"/v1/sessions/{session}").status_code == 200
    # What search had of the deleted session is removed in the background.
    while (imported := team.ask("POST", "/v1/import/stream", "admin", content=bundle)).status_code != 200:
        assert "still being deleted" in imported.text
        time.sleep(0.2)
    as_text = team.ask("POST", "/v1/export", json={"session_id": session})
    assert as_text.json()["code"] == "CONTENT_TOO_LARGE"
