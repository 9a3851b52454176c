"""Nothing of a body is read before its caller is known, on any route."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from weftline.kernel.operation import RateClass
from weftline.settings import Settings
from weftline.transports.http.application import HttpApplication

if TYPE_CHECKING:
    from starlette.types import Message

    from support.world import World

pytestmark = [
    pytest.mark.req("MS-11"),
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]
WITHOUT_CREDENTIAL = {"/", "/health", "/ready", "/openapi.json", "/console/sign-in"}


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, rate_limits="off")


class BodyRead(Exception):
    """The application asked for the body."""


async def status_of(
    application: HttpApplication, method: str, path: str, credential: str | None, query: bytes = b""
) -> int:
    """Announce a large body, send nothing of it, and return the status of the answer."""
    sent: list[Message] = []

    async def receive() -> Message:
        raise BodyRead(f"{method} {path}")

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"1000000")]
    if credential is not None:
        headers.append((b"authorization", f"Bearer {credential}".encode()))
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": headers,
        "client": ("10.0.0.1", 1),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "server": ("localhost", 80),
    }
    await application.asgi(scope, receive, send)
    status: int = sent[0]["status"]
    answered = dict(sent[0]["headers"])
    if answered.get(b"location", b"").startswith(b"/console/sign-in"):
        # A browser is sent to where it can sign in.
        return 401
    if status >= 400 and sent[1]["body"] and answered[b"content-type"] == b"application/json":
        assert msgspec.json.decode(sent[1]["body"])["code"]
    return status


def routes(application: HttpApplication) -> list[tuple[str, str]]:
    """Return every method and path that the server has."""
    return [
        (method, re.sub(r"{(\w+)(:\w+)?}", r"\1", route.path))  # type: ignore[attr-defined]
        for route in application._routed.routes
        for method in (route.methods or {"POST", "GET", "DELETE"}) - {"HEAD"}  # type: ignore[attr-defined]
    ]


def is_open(path: str) -> bool:
    """Tell whether anyone may read what is at a path."""
    return path in WITHOUT_CREDENTIAL or path.startswith(("/schemas", "/console/assets"))


@pytest.mark.parametrize("credential", [None, "weftline.{tenant}.key_0.wrong", "nonsense"])
async def test_no_route_reads_the_body_of_a_caller_it_does_not_know(world: World, credential: str | None) -> None:
    application = HttpApplication(world.app)
    given = credential and credential.format(tenant=world.tenant)
    async with application.mcp.running():
        statuses = {
            (method, path): await status_of(application, method, path, given)
            for method, path in routes(application)
            if not is_open(path)
        }
    assert len(statuses) > 200
    others = {path: status for (_, path), status in statuses.items() if status != 401}
    # Where no credential is needed a body is small, and the URL of a hook is its credential.
    assert others.pop("/v1/tokens") == 413
    assert others.pop("/v1/knowledge/hooks/tenant/source_id/token") == 404
    others.pop("/metrics", None)
    # Without any credential MCP has only its login.
    assert {path.split("/")[1] for path in others} <= {"mcp"}
    assert set(others.values()) <= {405, 413}
    assert credential is None or not others


async def test_no_route_reads_the_body_of_a_caller_above_its_rate_limit(world: World) -> None:
    app = await world.another_app(rate_limits=" ".join(f"{each}=0/minute" for each in RateClass))
    application = HttpApplication(app)
    async with application.mcp.running():
        statuses = {
            (method, path): await status_of(application, method, path, world.admin.credential)
            for method, path in routes(application)
            if not is_open(path)
        }
    assert {route: status for route, status in statuses.items() if status != 429} == {}


async def test_every_message_of_mcp_counts_before_it_is_read(world: World) -> None:
    app = await world.another_app(rate_limits="mcp=2/minute")
    application = HttpApplication(app)
    async with application.mcp.running():
        for path in ("/mcp", "/mcp/tool/list_sessions"):
            with pytest.raises(BodyRead):
                await status_of(application, "POST", path, world.planner.credential)
        assert await status_of(application, "POST", "/mcp", world.planner.credential) == 429
        # Each caller has its own.
        with pytest.raises(BodyRead):
            await status_of(application, "POST", "/mcp", world.admin.credential)


async def test_nothing_of_a_request_is_parsed_for_a_caller_without_credential(world: World) -> None:
    application = HttpApplication(world.app)
    async with application.mcp.running():
        statuses = {
            (method, path): await status_of(application, method, path, None, b"bundle=1&content=1&wait_seconds=1")
            for method, path in routes(application)
            if not is_open(path)
        }
    others = {path for (_, path), status in statuses.items() if status != 401}
    assert {path for path in others if not path.startswith("/mcp")} == {
        "/v1/tokens",
        "/v1/knowledge/hooks/tenant/source_id/token",
    }


# Parameters that some route refuses, and a query that none can parse.
@pytest.mark.parametrize("query", [b"", b"bundle=1&content=1&text=1&metadata=1", b"%ff"])
@pytest.mark.parametrize("credential", [None, "nonsense"])
async def test_every_request_without_an_accepted_credential_is_limited_by_its_address(
    world: World, credential: str | None, query: bytes
) -> None:
    app = await world.another_app(rate_limits="anonymous=0/minute authentication=0/minute")
    application = HttpApplication(app)
    # Probes of health have to be answered whoever else asks, and cost nothing.
    every = [each for each in routes(application) if each[1] not in {"/health", "/ready"}]
    every += [("GET", "/nowhere"), ("PUT", "/v1/sessions")]
    async with application.mcp.running():
        statuses = {
            (method, path): await status_of(application, method, path, credential, query) for method, path in every
        }
    assert {route: status for route, status in statuses.items() if status != 429} == {}
