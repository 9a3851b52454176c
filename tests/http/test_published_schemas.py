"""Published JSON schemas: public, at stable URLs, cacheable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weftline.records.model import RECORD_TYPES
from weftline.records.schemas import published_schema

if TYPE_CHECKING:
    from support.team import Team

pytestmark = pytest.mark.req("AC-01")
ITEM = "/schemas/agent-context/0.1.0/context_item.schema.json"


def test_schemas_are_listed_and_readable_without_a_credential(team: Team) -> None:
    listed = team.ask("GET", "/schemas", None).json()
    assert listed["schema_version"] == "0.1.0"
    assert [entry["type"] for entry in listed["schemas"]] == list(RECORD_TYPES)
    for entry in listed["schemas"]:
        answer = team.ask("GET", entry["url"], None)
        assert answer.headers["content-type"] == "application/schema+json"
        assert answer.json() == published_schema(entry["type"])
        assert answer.json()["$id"] == entry["id"]


def test_schemas_have_cache_control_and_etag(team: Team) -> None:
    first = team.ask("GET", ITEM, None)
    assert first.headers["cache-control"] == "public, max-age=86400"
    again = team.ask("GET", ITEM, None, headers={"If-None-Match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    other = team.ask("GET", ITEM, None, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)
    head = team.ask("HEAD", ITEM, None)
    assert (head.status_code, head.content) == (200, b"")


def test_unpublished_schemas_are_not_found(team: Team) -> None:
    for path in (
        "/schemas/agent-context/0.1.0/context_thing.schema.json",
        "/schemas/agent-context/9.9.9/context_item.schema.json",
        "/schemas/agent-context/0.1.0/..%2f..%2f..%2fpy.typed",
    ):
        refusal = team.ask("GET", path, None)
        assert (refusal.status_code, refusal.json()["code"]) == (404, "NOT_FOUND")
    assert team.ask("POST", ITEM, None).status_code == 405


def test_the_operation_returns_the_schema_and_its_url(team: Team) -> None:
    answer = team.ask("GET", "/v1/records/schema?type=context_item").json()
    assert answer["url"] == ITEM
    assert answer["schema"] == team.ask("GET", ITEM, None).json()
    assert team.ask("GET", "/v1/records/schema?type=context_item", None).status_code == 401
    refusal = team.ask("GET", "/v1/records/schema?type=context")
    assert (refusal.status_code, refusal.json()["context"]["field"]) == (400, "type")


def test_openapi_lists_schemas_as_public(team: Team) -> None:
    paths = team.ask("GET", "/openapi.json", None).json()["paths"]
    for path in ("/schemas", "/schemas/agent-context/0.1.0/{type}.schema.json"):
        assert paths[path]["get"]["security"] == []
