"""The OpenAPI document is valid, and responses to generated requests conform to it."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from jsonschema import Draft202012Validator

from support.bundles import small_bundle
from support.full_run import FULL
from support.team import Team, team_process
from weftline.app.registry import all_operations
from weftline.kernel.fields import is_name
from weftline.sessions.messages.model import MAX_CHARACTERS
from weftline.transports.http.openapi import openapi_document

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = frozenset({"delete", "get", "patch", "post", "put"})
DOCUMENT = json.loads(json.dumps(openapi_document(all_operations())))
ROUTES = [(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods if method in METHODS]
MAX_WAIT_SECONDS = 0.05
WITH_BODY = frozenset({"patch", "post", "put"})
BUNDLE = small_bundle().decode()
A_SOURCE = {"schema_version": "0.1.0", "source_id": "x", "uri": "board://s1/goal", "source_kind": "board_entry"}
A_PAGE = {"kind": "url", "url": "https://93.184.215.14/", "every_seconds": 3600}
PIN = {
    "session_id": "nowhere",
    "message_id": None,
    "key": "goal",
    "memory_key": None,
    "memory_type": None,
    "workflow_id": None,
    "owner": None,
}
CHUNKING = {"chunk_tokens": 64, "overlap_tokens": 8}
# The schema does not define which scopes match a caller, which actions exist, and what a condition in CEL is. It only
# counts, so that later requests are not prohibited.
GUARDRAILS = [{"name": "count", "prohibited_action": ["board.delete"], "condition": "true", "dry_run": True}]
NO_FILTER = dict.fromkeys(("domain", "domains", "prefix", "owner", "since", "until"))
# Valid values of fields whose rules the schema does not express, such as one of two fields being required.
VALID_FIELDS: dict[str, dict[str, Any]] = {
    "/v1/agents/{agent_id}/definition": {"guardrails": GUARDRAILS},
    "/v1/budgets/{subject}/{period}": {"tokens": 1_000_000},
    "/v1/advice/try": {"recommendation_id": None, "settings": {"min_score": 0.4}},
    "/v1/context/push": {"knowledge": [{"key": "limit", "value": 1}], "remove": [], "if_version": 0},
    "/v1/domains": {"chunking": CHUNKING},
    "/v1/domains/{domain}": {"chunking": CHUNKING},
    "/v1/guardrails/test": {"guardrails": GUARDRAILS},
    "/v1/layers/{layer}": {"text": "Cite sources.", "policy": None, "guardrails": GUARDRAILS},
    "/v1/domains/{domain}/documents": {"text": "Ship.", "content": None, "timestamp": None},
    "/v1/domains/{domain}/documents/batch": {"documents": [{"document_id": "plan.md", "text": "Ship."}]},
    "/v1/domains/{domain}/sources": {**A_PAGE, "folder": None, "watch": False, "secret": None},
    "/v1/domains/{domain}/sources/{source_id}": {"enabled": True},
    "/v1/embed": {"text": "price", "texts": None},
    "/v1/export": {"scope": "session", "session_id": "nowhere"},
    "/v1/gateway/servers": {"command": "a-server", "url": None},
    "/v1/history/{context_id}/snapshots": {"label": "before_migration"},
    "/v1/import": {"bundle": BUNDLE, "expected_digest": None, "session_id": None},
    "/v1/models/migration": {"shares": [0.1, 0.5]},
    "/v1/missing/{missing_id}/request": {"form": "user_question", "agent_id": None, "tool": None},
    "/v1/missing/{missing_id}/resolve": {"answer": "On Friday.", "resolution_refs": []},
    "/v1/pins": PIN,
    "/v1/pins/remove": PIN,
    "/v1/records": {"records": [A_SOURCE]},
    "/v1/registered-tools": {"tools": [{"name": "weather.forecast", "description": "Forecast for a city."}]},
    "/v1/steps/{name}": {"tools": ["shared_context.read"]},
    "/v1/records/resolve": {"source_id": None, "source_ref": A_SOURCE, "against": "Ship."},
    "/v1/retention/{subject}": {"days": 30, "snapshot_from": None},
    "/v1/search": NO_FILTER,
    "/v1/search/get-context": {"query": "price", "ref": None, **NO_FILTER},
    "/v1/search/similar": {"text": "price", "ref": None, **NO_FILTER},
    "/v1/sessions/{session_id}/assemble": {
        **dict.fromkeys(("messages", "system", "tools", "cache_ttl")),
        "task_description": "Ship.",
    },
    "/v1/sessions/{session_id}/read-batch": {"keys": ["goal"]},
    "/v1/sessions/{session_id}/snapshots": {"label": "before_migration"},
    "/v1/webhooks": {"url": "https://93.184.215.14/", "secret": None, "session_id": "nowhere"},
    "/v1/webhooks/{webhook_id}/replay": {"dead": True, "seqs": [], "from_seq": None},
}
TIMES = frozenset({"start_time", "end_time", "since", "until"})
# A value that every parameter refuses.
REFUSED = "\x00"


def make_testable(case: Any) -> None:
    """Replace values that a generator cannot choose or that make a test wait; keep the request valid or invalid.

    Waits are shortened, cursors dropped, and parents set to an existing agent. Times are valid ones, because the schema
    does not define them. A text that is too long becomes one that is too short: the checks do not know status 413.
    Nested 2.0 becomes 2: JSON Schema takes it for an integer, Weftline only at the top level of a request.
    """
    if isinstance(case.query, dict):
        _make_query_testable(case)
    if isinstance(case.body, dict):
        case.body = {
            name: _with_integers(part) if isinstance(part, dict | list) else part for name, part in case.body.items()
        }
        if isinstance(case.body.get("parent_id"), str) and is_name(case.body["parent_id"]):
            case.body["parent_id"] = "planner"
        if len(str(case.body.get("content", ""))) > MAX_CHARACTERS:
            case.body["content"] = ""
    if case.operation.path in VALID_FIELDS and case.operation.method in WITH_BODY:
        _use_valid_fields(case)


def _make_query_testable(case: Any) -> None:
    if _in_range(case.query.get("wait_seconds")):
        case.query["wait_seconds"] = MAX_WAIT_SECONDS
    if isinstance(case.query.get("cursor"), str) and len(case.query["cursor"]) <= 200:
        del case.query["cursor"]
    for name in case.query.keys() & TIMES:
        if isinstance(case.query[name], str) and 10 <= len(case.query[name]) <= 64:
            case.query[name] = "2026-01-15"
    # A query string cannot hold an empty list or object: nothing is sent, and the request would be valid.
    for name in case.query.keys() - _list_parameters(case.operation.path, case.operation.method):
        if case.query[name] in ([], {}):
            case.query[name] = REFUSED


def _list_parameters(path: str, method: str) -> set[str]:
    """Return the parameters of a route that are lists."""
    parameters = DOCUMENT["paths"][path][method].get("parameters", ())
    return {each["name"] for each in parameters if each["in"] == "query" and '"array"' in json.dumps(each)}


def _use_valid_fields(case: Any) -> None:
    """Replace fields that match the schema but not the documented rules."""
    path, method = case.operation.path, case.operation.method
    if type(case.body).__name__ == "NotSet":
        if not DOCUMENT["paths"][path][method]["requestBody"]["required"]:
            case.body, case.media_type = VALID_FIELDS[path], "application/json"
    elif _body_validator(path, method).is_valid(case.body):
        case.body |= VALID_FIELDS[path]


@cache
def _body_validator(path: str, method: str) -> Draft202012Validator:
    schema = DOCUMENT["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def _in_range(wait: Any) -> bool:
    try:
        return MAX_WAIT_SECONDS < float(wait) <= 60
    except (TypeError, ValueError):
        return False


def _with_integers(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _with_integers(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_with_integers(value) for value in part]
    return int(part) if isinstance(part, float) and part.is_integer() else part


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Return a separate server: a fuzzed admin may lock itself out."""
    with team_process(tmp_path_factory.mktemp("fuzzed"), log_level="WARNING") as team:
        yield team


def test_the_served_document_is_the_tested_one(team: Team) -> None:
    assert team.ask("GET", "/openapi.json", None).json() == DOCUMENT


@pytest.fixture(scope="module")
def schema() -> Any:
    """Return the document as schemathesis reads it; importing that takes seconds, so no other test pays for it."""
    import schemathesis  # noqa: PLC0415
    from schemathesis.checks import load_all_checks  # noqa: PLC0415

    load_all_checks()
    schema = schemathesis.openapi.from_dict(deepcopy(DOCUMENT))
    # Some sixty boundary cases for each route; test_bad_input.py sends similar ones in process.
    schema.config.phases.coverage.enabled = FULL
    return schema


def test_the_document_is_valid_openapi(schema: Any) -> None:
    assert DOCUMENT["openapi"] == "3.1.0"
    schema.validate()
    for part in DOCUMENT["components"]["schemas"].values():
        Draft202012Validator.check_schema(part)


@pytest.mark.parametrize(("path", "method"), ROUTES, ids=[f"{method.upper()} {path}" for path, method in ROUTES])
def test_responses_conform_to_the_document(path: str, method: str, schema: Any, fuzzed: Team) -> None:
    from schemathesis.generation.feedback import FeedbackSources  # noqa: PLC0415
    from schemathesis.pytest._test_builder import build_operation_test  # noqa: PLC0415

    @settings(max_examples=16 if FULL else 2, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
    def conforms(case: Any) -> None:
        make_testable(case)
        case.call_and_validate(base_url=fuzzed.url, headers=fuzzed.headers("admin"), timeout=60)

    build_operation_test(
        config=schema.config,
        operation=schema[path][method.upper()],
        test_func=conforms,
        given_kwargs={},
        feedback=FeedbackSources(),
    )()
