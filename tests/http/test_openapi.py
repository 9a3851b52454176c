"""The OpenAPI document: that it is valid, and that the server keeps to it whatever it is sent."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator

from support.bundles import small_bundle
from support.team import Team, team_process
from weft.app.operations import all_operations
from weft.capabilities.messages.model import MOST_CHARACTERS
from weft.kernel.ids import is_name
from weft.transports.http.openapi import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCUMENT = json.loads(json.dumps(openapi_document(all_operations())))
schema = schemathesis.openapi.from_dict(deepcopy(DOCUMENT))
LONGEST_WAIT_SECONDS = 0.05
BUNDLE = small_bundle().decode()
A_SOURCE = {"schema_version": "0.1.0", "source_id": "x", "uri": "board://s1/goal", "source_kind": "board_entry"}
SAID_IN_WORDS: dict[str, dict[str, Any]] = {
    "/v1/context/push": {"knowledge": [{"key": "limit", "value": 1}], "remove": [], "if_version": 0},
    "/v1/export": {"scope": "session", "session_id": "nowhere"},
    "/v1/import": {"bundle": BUNDLE, "expected_digest": None},
    "/v1/records/resolve": {"source_id": None, "source_ref": A_SOURCE, "against": "Ship."},
}


def tame(case: Any) -> None:
    """Leave out what a request cannot know of a server, or a test cannot wait for; its validity stays what it was.

    A long wait is answered as a short one is. Only an answer can give a cursor, and only an admin knows who may be a
    parent. No schema says what is a time. A text that is too long is refused with 413, which the checks do not know of,
    so it becomes one that is too short. To JSON Schema 2.0 is a whole number; Weft takes it for one at the top level of
    a request, not inside. What one entry of a push may hold beside another is said in words, not by the schema, and so
    are what a source ref is, what a bundle is, and what an export of some scope must name.
    """
    if isinstance(case.query, dict):
        if _in_range(case.query.get("wait_seconds")):
            case.query["wait_seconds"] = LONGEST_WAIT_SECONDS
        if isinstance(case.query.get("cursor"), str) and len(case.query["cursor"]) <= 200:
            del case.query["cursor"]
        for name in case.query.keys() & {"start_time", "end_time"}:
            if isinstance(case.query[name], str) and 10 <= len(case.query[name]) <= 64:
                case.query[name] = "2026-01-15"
    if isinstance(case.body, dict):
        case.body = {name: _whole(part) if isinstance(part, dict | list) else part for name, part in case.body.items()}
        if isinstance(case.body.get("parent_id"), str) and is_name(case.body["parent_id"]):
            case.body["parent_id"] = "planner"
        if len(str(case.body.get("content", ""))) > MOST_CHARACTERS:
            case.body["content"] = ""
        case.body |= _in_place_of(case.operation.path, case.body)


def _in_place_of(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what stands for those parts of a body that keep to the document, but not to what is said in words."""
    if path not in SAID_IN_WORDS:
        return {}
    taken = DOCUMENT["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    valid = Draft202012Validator({**taken, "components": DOCUMENT["components"]}).is_valid(body)
    return SAID_IN_WORDS[path] if valid else {}


def _in_range(wait: Any) -> bool:
    try:
        return LONGEST_WAIT_SECONDS < float(wait) <= 60
    except (TypeError, ValueError):
        return False


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
@settings(max_examples=8, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_server_keeps_to_the_document(case: Any, stranger: Team) -> None:
    tame(case)
    case.call_and_validate(base_url=stranger.url, headers=stranger.headers("admin"), timeout=30)
