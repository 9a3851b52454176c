"""HTTP errors: the status, the common body, and a suggestion."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from itertools import product, repeat
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from support.team import Team, team_process
from weftline.app.registry import all_operations
from weftline.kernel.operation import Audience

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import httpx2

    from weftline.kernel.operation import Operation

OPERATIONS = list(all_operations())
FIELDS = {
    "success": bool,
    "error": str,
    "code": str,
    "severity": str,
    "recoverable": bool,
    "suggestions": list,
    "context": dict,
    "related_resources": list,
    "timestamp": str,
}


def check_refusal(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert (answer.status_code, body["code"]) == (status, code), body
    assert {name: type(value) for name, value in body.items()} == FIELDS
    assert body["success"] is False
    assert body["suggestions"]
    return body


def path_of(operation: Operation) -> str:
    return operation.route.path.replace("{", "").replace("}", "")


def test_every_operation_is_reached_by_its_route(team: Team, subtests: pytest.Subtests) -> None:
    with team.http(None) as anonymous, team.http("stranger") as stranger:
        for operation in OPERATIONS:
            with subtests.test(operation.name):
                expect_reached(operation, anonymous, stranger)


def expect_reached(operation: Operation, anonymous: httpx2.Client, stranger: httpx2.Client) -> None:
    unauthenticated = anonymous.request(operation.route.method, path_of(operation))
    if operation.audience is Audience.ANONYMOUS:
        check_refusal(unauthenticated, 400, "INVALID_INPUT_FORMAT")
    else:
        check_refusal(unauthenticated, 401, "AUTHENTICATION_ERROR")
    answer = stranger.request(operation.route.method, path_of(operation))
    assert answer.status_code < 500
    if not answer.is_success:
        assert answer.json()["code"] not in {"NOT_FOUND", "METHOD_NOT_ALLOWED"}


def test_a_parameter_that_is_given_twice_is_refused(team: Team, session: str) -> None:
    body = check_refusal(
        team.ask("GET", f"/v1/sessions/{session}/messages?limit=1&limit=2"), 400, "INVALID_INPUT_FORMAT"
    )
    assert body["context"]["field"] == "limit"
    assert team.ask("GET", f"/v1/records?session_id={session}&types=context_item&types=context_event").is_success


@pytest.mark.req("MS-10")
def test_unknown_resources_are_404(team: Team, session: str) -> None:
    check_refusal(team.ask("GET", "/v1/nothing"), 404, "NOT_FOUND")
    check_refusal(team.ask("GET", f"/v1/sessions/{session}/context/absent"), 404, "KEY_NOT_FOUND")
    body = check_refusal(team.ask("GET", "/v1/sessions/nowhere"), 404, "SESSION_NOT_FOUND")
    assert body["context"] == {"resource_type": "session", "resource_id": "nowhere", "available_alternatives": []}
    body = check_refusal(team.ask("GET", f"/v1/sessions/{session}x"), 404, "SESSION_NOT_FOUND")
    assert session in body["context"]["available_alternatives"]
    body = check_refusal(team.ask("GET", f"/v1/sessions/{session}x/context", "analysis"), 404, "SESSION_NOT_FOUND")
    assert body["context"]["available_alternatives"] == []
    body = check_refusal(team.ask("GET", "/v1/sessions/nowhere"), 404, "SESSION_NOT_FOUND")
    assert body["related_resources"] == ["list_sessions", "create_session"]


def test_a_number_in_a_path_may_be_any_length(team: Team, session: str) -> None:
    path = f"/v1/sessions/{session}/messages/{'9' * 5_000}/visibility"
    check_refusal(team.ask("PUT", path, "admin", json={"visibility": "public"}), 400, "INVALID_INPUT_FORMAT")
    check_refusal(team.ask("PUT", path, None, json={"visibility": "public"}), 401, "AUTHENTICATION_ERROR")


@pytest.mark.req("SC-08")
def test_resources_of_another_tenant_are_404(team: Team, session: str) -> None:
    check_refusal(team.ask("GET", f"/v1/sessions/{session}", "stranger"), 404, "SESSION_NOT_FOUND")
    check_refusal(team.ask("GET", f"/v1/events?session_id={session}", "stranger"), 404, "SESSION_NOT_FOUND")
    check_refusal(team.ask("POST", f"/v1/sessions/{session}/inspect", "stranger"), 404, "SESSION_NOT_FOUND")


def test_an_unsupported_method_is_405_with_an_allow_header(team: Team, session: str) -> None:
    answer = team.ask("PATCH", f"/v1/sessions/{session}/context/goal")
    check_refusal(answer, 405, "METHOD_NOT_ALLOWED")
    assert set(answer.headers["allow"].replace(" ", "").split(",")) == {"GET", "HEAD", "PUT", "DELETE"}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"\xff",
        rb'{"value": "\ud800"}',
        b"[" * 90_000,
        b"{}",
        b'{"value": "v", "unknown": 1}',
        b'{"value": "v", "written_by": "human:admin"}',
        b'{"value": "v", "key": "other"}',
        b'{"value": "v", "if_version": -1}',
        b'{"value": "v", "ttl_seconds": 1e400}',
    ],
)
def test_an_invalid_body_is_400(team: Team, session: str, body: bytes) -> None:
    answer = team.ask("PUT", f"/v1/sessions/{session}/context/goal", content=body)
    check_refusal(answer, 400, "INVALID_INPUT_FORMAT")
    assert team.ask("GET", f"/v1/sessions/{session}/context").json()["keys"] == []


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", "wait_seconds=61", "unknown=1", "keys=%00", "keys=A", "%ff=1"]
)
def test_an_invalid_query_is_400(team: Team, query: str) -> None:
    check_refusal(team.ask("GET", f"/v1/events?{query}"), 400, "INVALID_INPUT_FORMAT")


@pytest.mark.parametrize(
    "credential", [None, "Bearer nonsense", "Bearer weftline.default.key_0.no", "Basic eDp5", "Bearer"]
)
def test_an_invalid_credential_is_401(team: Team, credential: str | None) -> None:
    headers = {} if credential is None else {"Authorization": credential}
    with team.http(None, trust_env=False) as http:
        answer = http.get("/v1/sessions", headers=headers)
    code = answer.json()["code"]
    assert code in {"AUTHENTICATION_ERROR", "INVALID_API_KEY"}
    check_refusal(answer, 401, code)
    assert answer.headers["www-authenticate"] == 'Bearer realm="weftline"'


@pytest.mark.req("SC-01")
def test_a_missing_permission_is_403(team: Team, session: str) -> None:
    body = check_refusal(team.ask("GET", "/v1/audit", "planner"), 403, "PERMISSION_DENIED")
    assert body["context"]["required_permission"] == "admin"
    check_refusal(team.ask("DELETE", f"/v1/sessions/{session}", "analysis"), 403, "PERMISSION_DENIED")
    write = {"json": {"value": "v"}}
    check_refusal(team.ask("PUT", f"/v1/sessions/{session}/context/k", "reader", **write), 403, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": ""}]
)
@pytest.mark.parametrize("path", ["/", "/v1/sessions", "/metrics", "/openapi.json", "/mcp/tool/list_sessions"])
def test_foreign_hosts_and_origins_are_403(team: Team, headers: dict[str, str], path: str) -> None:
    check_refusal(team.ask("GET", path, headers=headers), 403, "HOST_NOT_ALLOWED")


@pytest.mark.parametrize("name", ["Host", "Origin"])
@pytest.mark.parametrize("values", [("evil.example", "localhost"), ("localhost", "evil.example")])
def test_a_second_host_or_origin_does_not_hide_the_first(team: Team, name: str, values: tuple[str, str]) -> None:
    connection = HTTPConnection(urlsplit(team.url).netloc, timeout=10)
    connection.putrequest("GET", "/openapi.json", skip_host=name == "Host")
    for value in values:
        connection.putheader(name, value if name == "Host" else f"http://{value}")
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["code"]) == (403, "HOST_NOT_ALLOWED")
    connection.close()


def test_health_probes_accept_any_host(team: Team) -> None:
    for path in ("/health", "/ready"):
        assert team.ask("GET", path, None, headers={"Host": "10.0.0.7:8787"}).status_code == 200


def test_loopback_hosts_and_origins_are_allowed(team: Team) -> None:
    port = team.url.rpartition(":")[2]
    for host in (f"localhost:{port}", "127.0.0.1", f"[::1]:{port}"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        assert team.ask("GET", "/v1/sessions", headers=headers).status_code == 200


@pytest.mark.req("SC-07")
def test_state_conflicts_are_409(team: Team, session: str) -> None:
    path = f"/v1/sessions/{session}/context/goal"
    team.write(session, "goal")
    body = check_refusal(team.ask("PUT", path, json={"value": "v", "if_version": 7}), 409, "VERSION_CONFLICT")
    assert body["context"]["current_version"] == 1
    again = {"purpose": "again", "session_id": session}
    check_refusal(team.ask("POST", "/v1/sessions", json=again), 409, "SESSION_EXISTS")
    assert team.ask("POST", f"/v1/sessions/{session}/archive").status_code == 200
    check_refusal(team.ask("PUT", path, json={"value": "v"}), 409, "SESSION_ARCHIVED")


def test_a_body_of_ten_megabytes_is_413_with_or_without_a_content_length(
    team: Team, session: str, subtests: pytest.Subtests
) -> None:
    megabyte = b"x" * 1_000_000
    routes = (("PUT", f"/v1/sessions/{session}/context/big"), ("POST", "/mcp/tool/shared_context"))

    def ask(route: tuple[str, str], content: Iterable[bytes] | bytes) -> httpx2.Response:
        return team.ask(*route, content=content)

    # At once: each waits for seconds until the server no longer reads.
    with ThreadPoolExecutor() as threads:
        answers = {
            (*route, chunked): threads.submit(ask, route, repeat(megabyte, 10) if chunked else megabyte * 10)
            for route, chunked in product(routes, (False, True))
        }
    for case, answer in answers.items():
        with subtests.test(case):
            refusal = check_refusal(answer.result(), 413, "CONTENT_TOO_LARGE")
            assert refusal["context"]["limit_bytes"] == 4_194_304


@pytest.mark.req("MS-11")
def test_too_many_calls_are_429_with_retry_after(tmp_path: Path) -> None:
    limits = "board=3/minute authentication=5/minute"
    with team_process(tmp_path, rate_limits=limits) as team:
        answers = [team.ask("GET", "/v1/conventions") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        body = check_refusal(answers[-1], 429, "RATE_LIMITED")
        assert body["severity"] == "warning"
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 60
        assert body["context"]["retry_after_seconds"] == int(answers[-1].headers["retry-after"])
        assert team.ask("GET", "/v1/conventions", "analysis").status_code == 200
        with team.http(None) as http:
            tries = [http.get("/v1/sessions", headers={"Authorization": f"Bearer guess{n}"}) for n in range(6)]
        assert [answer.status_code for answer in tries] == [401] * 5 + [429]
        refused_tool = team.ask("POST", "/mcp/tool/get_board_guidance", json={})
        assert int(check_refusal(refused_tool, 429, "RATE_LIMITED")["context"]["retry_after_seconds"]) >= 1
        assert refused_tool.headers["retry-after"]
