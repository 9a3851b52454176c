"""Documents uploaded as the body of a request."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.team import Team

pytestmark = pytest.mark.req("CE-F39")


@pytest.fixture
def domain(team: Team) -> str:
    name = f"d{secrets.token_hex(4)}"
    assert team.ask("POST", "/v1/domains", "admin", json={"domain": name}).status_code == 201
    return name


def test_an_upload_may_exceed_the_limit_of_other_bodies(team: Team, domain: str) -> None:
    content = b"big" + b" " * (5 * 2**20)
    asked = {"document_id": "notes/big.txt", "title": "Big", "metadata": '{"team": "people"}'}
    answer = team.ask("PUT", f"/v1/domains/{domain}/uploads", "admin", content=content, params=asked)
    assert (answer.status_code, answer.json()["bytes"]) == (200, len(content)), answer.text
    shown = team.ask("GET", f"/v1/domains/{domain}/document", "admin", params={"document_id": "notes/big.txt"}).json()
    assert (shown["title"], shown["metadata"]) == ("Big", {"team": "people"})
    again = team.ask("PUT", f"/v1/domains/{domain}/uploads", "admin", content=content, params=asked)
    assert again.json()["unchanged"]


def test_a_pinned_upload_must_be_short(team: Team, domain: str) -> None:
    where, asked = f"/v1/domains/{domain}/uploads", {"document_id": "rules.txt", "pinned": "true"}
    assert team.ask("PUT", where, "admin", content=b"Be kind.", params=asked).status_code == 200
    refused = team.ask("PUT", where, "admin", content=b"Be kind. " * 2_000, params=asked)
    assert (refused.status_code, refused.json()["code"]) == (409, "PIN_LIMIT")


def test_the_content_type_of_the_client_is_used(team: Team, domain: str) -> None:
    where, name = f"/v1/domains/{domain}/uploads", {"document_id": "a"}
    team.ask("PUT", where, "admin", content=b"<p>x</p>", params=name, headers={"content-type": "text/html"})
    shown = team.ask("GET", f"/v1/domains/{domain}/document", "admin", params=name).json()
    assert shown["media_type"] == "text/html"


def test_errors_have_the_common_body(team: Team, domain: str) -> None:
    where, name = f"/v1/domains/{domain}/uploads", {"document_id": "a"}
    expected = {
        "AUTHENTICATION_ERROR": team.ask("PUT", where, None, content=b"x", params=name),
        "DOCUMENT_TOO_LARGE": team.ask("PUT", where, "admin", content=bytes(16 * 2**20 + 1), params=name),
        "DOMAIN_NOT_FOUND": team.ask("PUT", "/v1/domains/none/uploads", "admin", content=b"x", params=name),
    }
    for code, answer in expected.items():
        assert answer.json()["code"] == code
    for wrong in ({}, {**name, "text": "x"}, {**name, "metadata": "{"}, {**name, "importance": "2"}):
        answer = team.ask("PUT", where, "admin", content=b"x", params=wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_INPUT_FORMAT"), wrong
