"""The OpenAPI document: that it is valid, and that the server keeps to it whatever it is sent."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator

from support.team import Team, team_process
from weft.app.operations import all_operations
from weft.transports.http.openapi import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = json.loads(json.dumps(openapi_document(all_operations())))
schema = schemathesis.openapi.from_dict(deepcopy(DOCUMENT))
LONGEST_WAIT_SECONDS = 0.05


@schema.hook
def map_query(context: Any, query: Any) -> Any:
    """Let nobody wait for long: a wait that is in range is answered the same whether it is short or not."""
    wait = (query or {}).get("wait_seconds")
    if isinstance(wait, int | float) and 0 < wait <= 60:
        query["wait_seconds"] = LONGEST_WAIT_SECONDS
    return query


@schema.hook
def map_body(context: Any, body: Any) -> Any:
    """Write whole numbers as such: to JSON Schema 2.0 is one, and Weft asks for 2."""
    return _whole(body)


def _whole(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _whole(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_whole(value) for value in part]
    return int(part) if isinstance(part, float) and part.is_integer() else part


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Return a server of its own: an admin that does whatever comes to mind may well lock itself out."""
    with team_process(tmp_path_factory.mktemp("fuzzed"), log_level="WARNING") as team:
        yield team


def test_the_document_served_is_the_one_tested(team: Team) -> None:
    assert team.ask("GET", "/openapi.json", None).json() == DOCUMENT


def test_the_document_is_valid_openapi(team: Team) -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    schema.validate()
    for part in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(part)


@schema.parametrize()
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_server_keeps_to_the_document(case: Any, stranger: Team) -> None:
    case.call_and_validate(base_url=stranger.url, headers=stranger.headers("admin"), timeout=30)
