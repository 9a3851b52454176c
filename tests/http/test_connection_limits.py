"""Connections that are opened and left, that send or read slowly, or that send more than any client would."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import httpx2
import pytest

from support.http_server import Served, Stream, served
from weftline.kernel.errors import SystemUnavailable
from weftline.settings import InvalidSetting, Settings
from weftline.storage.sql.database import Scope
from weftline.transports.http.application import HttpApplication, Readiness
from weftline.transports.http.connections import ConnectionLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from support.world import Caller, World
    from weftline.kernel.transaction import Transaction

pytestmark = [
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]
LIMITS = ConnectionLimits(open=64)
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
MEBIBYTE = 2**20


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database_url=database_url, rate_limits="off")


@pytest.fixture
async def server(world: World) -> AsyncIterator[Served]:
    async with served(world.app, LIMITS) as running:
        yield running


def head(caller: Caller | None, length: int, path: str = "/v1/sessions") -> bytes:
    """Return the head of a request with a body."""
    credential = f"authorization: Bearer {caller.credential}\r\n" if caller else ""
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{credential}content-length: {length}\r\n\r\n".encode()


def call(caller: Caller, path: str = "/v1/sessions") -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {caller.credential}\r\n\r\n".encode()


async def gone(stream: Stream) -> bool:
    """Tell whether the server has closed a connection, whatever it sent before."""
    try:
        async with asyncio.timeout(1):
            await stream.rest()
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("sent", [b"", b"\r\n", b"GET /v1/sess", b"GET / HTTP/1.1\r\nhost: localh"])
async def test_a_request_that_does_not_begin_is_closed(server: Served, sent: bytes) -> None:
    stream = await server.connect(sent)
    for _ in range(LIMITS.head_seconds):
        # Another byte of the same head does not help.
        await stream.send(sent[-1:])
        await server.pass_seconds(1)
        assert len(server.connections) == 1
    await server.pass_seconds(1)
    assert await gone(stream)
    assert len(server.connections) == 0


async def test_a_body_that_does_not_come_is_closed(world: World, server: Served) -> None:
    stalled = await server.connect(head(world.planner, 1_000) + b"{")
    dripping = await server.connect(head(world.planner, 1_000) + b"{")
    for _ in range(LIMITS.body_seconds + 1):
        await dripping.send(b" ")
        await server.pass_seconds(1)
    await server.pass_seconds(1)
    assert (await stalled.rest()).startswith(b"HTTP/1.1 408")
    assert await gone(dripping)


async def test_a_slow_client_that_goes_on_is_served(world: World, server: Served) -> None:
    body = b'{"purpose": "' + b"x" * 1_000 + b'"}'
    stream = await server.connect(head(world.planner, len(body)))
    for start in range(0, len(body), 200):
        await stream.send(body[start : start + 200])
        await server.pass_seconds(1)
    assert (await stream.answer()).startswith(b"HTTP/1.1 201")
    await stream.send(HEALTH)
    assert (await stream.answer()).startswith(b"HTTP/1.1 200")


async def test_an_idle_connection_is_kept_for_a_while(server: Served) -> None:
    stream = await server.connect(HEALTH)
    assert (await stream.answer()).startswith(b"HTTP/1.1 200")
    await server.pass_seconds(LIMITS.idle_seconds - 5)
    # Empty lines between requests are no request.
    await stream.send(b"\r\n")
    await server.pass_seconds(3)
    assert len(server.connections) == 1
    await server.pass_seconds(5)
    assert await gone(stream)


async def test_an_answer_that_is_not_read_is_closed(world: World, server: Served) -> None:
    stream = await server.connect()
    # Larger than what the buffers of the system hold.
    await stream.send(call(world.planner, "/openapi.json") * 12)
    for _ in range(200):
        await asyncio.sleep(0.01)
        if server.connections.kept.used:
            break
    assert server.connections.kept.used
    await server.pass_seconds(LIMITS.unread_seconds + 2)
    assert len(server.connections) == 0
    assert server.connections.kept.used == 0


async def test_unauthenticated_connections_make_room_for_new_ones(world: World, server: Served) -> None:
    agent = await server.connect(call(world.planner))
    assert (await agent.answer()).startswith(b"HTTP/1.1 200")
    idle = [await server.connect() for _ in range(LIMITS.anonymous_per_address)]
    assert server.connections.anonymous == LIMITS.anonymous_per_address
    newer = [await server.connect(b"GET / HT") for _ in range(3)]
    assert server.connections.anonymous == LIMITS.anonymous_per_address
    assert [await gone(stream) for stream in idle] == [True] * 3 + [False] * (len(idle) - 3)
    assert not await gone(newer[0])
    await agent.send(call(world.planner))
    assert (await agent.answer()).startswith(b"HTTP/1.1 200")
    async with httpx2.AsyncClient() as http:
        assert (await http.get(f"{server.url}/ready")).status_code == 200


async def test_a_principal_has_a_limited_number_of_connections(world: World, server: Served) -> None:
    streams = [await server.connect(call(world.planner)) for _ in range(LIMITS.per_principal)]
    assert all([(await stream.answer()).startswith(b"HTTP/1.1 200") for stream in streams])
    refused = await server.connect(call(world.planner))
    answer = await refused.rest()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"SERVER_BUSY" in answer
    assert b"retry-after" in answer
    other = await server.connect(call(world.analysis, "/v1/sessions/s1/context"))
    assert not (await other.answer()).startswith(b"HTTP/1.1 503")
    streams[0].writer.close()
    await asyncio.sleep(0.05)
    again = await server.connect(call(world.planner))
    assert (await again.answer()).startswith(b"HTTP/1.1 200")


async def test_a_full_server_refuses_new_connections(world: World) -> None:
    async with served(world.app, ConnectionLimits(open=2)) as server:
        stream = await server.connect(call(world.planner))
        assert (await stream.answer()).startswith(b"HTTP/1.1 200")
        # Half of all is the share of one address.
        refused = await server.connect()
        assert (await refused.rest()).startswith(b"HTTP/1.1 503")
        await stream.send(call(world.planner))
        assert (await stream.answer()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent",
    [
        HEALTH * 5_000,
        HEALTH * 40,
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n" + b"a:\r\n" * 5_000,
        b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000,
        b"GET /health HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"a" * 200_000,
        b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-long: "
        + b"a" * 400_000,
        b"GET /v1/sessions/" + b"%41" * 3_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=["pipelined", "few pipelined", "headers", "chunks", "head", "trailer", "path"],
)
async def test_more_parts_than_any_request_has_end_the_connection(server: Served, sent: bytes) -> None:
    stream = await server.connect()
    with contextlib.suppress(ConnectionError):
        await stream.send(sent)
    await stream.rest()
    assert len(server.connections) == 0
    assert server.connections.kept.used == 0


async def test_a_query_may_be_longer_than_any_path(world: World, server: Served) -> None:
    query = "&".join(["limit=1"] * 1_500)
    stream = await server.connect(call(world.planner, f"/v1/sessions?{query}"))
    # It was read whole: what is wrong with it is its content.
    assert b"limit: given more than once" in await stream.answer()


async def test_what_a_caller_has_half_sent_is_bounded(world: World, server: Served) -> None:
    budget = server.connections.kept
    length = 4 * MEBIBYTE
    streams = [await server.connect() for _ in range(4)]
    for stream in streams:
        await stream.send(head(world.planner, length))
    budget.per_principal = 2 * MEBIBYTE
    for stream in streams:
        with contextlib.suppress(ConnectionError):
            await stream.send(b'{"purpose": "' + b"x" * MEBIBYTE)
    await asyncio.sleep(0.2)
    assert budget.used <= 2 * MEBIBYTE
    answers = []
    for stream in streams:
        try:
            async with asyncio.timeout(0.2):
                answers.append(await stream.answer())
        except TimeoutError:
            answers.append(b"")
    assert any(b"SERVER_BUSY" in answer and b"connection: close" in answer for answer in answers)
    # Others go on.
    other = await server.connect(head(world.admin, 2, "/mcp/resource/subscribe") + b"{}")
    assert (await other.answer()).startswith(b"HTTP/1.1 400")
    for stream in streams:
        stream.writer.close()
    await _until(lambda: budget.used == 0)


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_error(
    world: World, server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/v1/sessions", "/mcp", "/mcp/tool/list_sessions", "/v1/export/stream"):
        stream = await server.connect(head(world.planner, 100_000, path) + b'{"purpose"')
        stream.writer.close()
    await _until(lambda: len(server.connections) == 0)
    assert [record.message for record in caplog.records if record.levelname in {"ERROR", "CRITICAL"}] == []


async def test_an_answer_before_the_body_closes_the_connection(server: Served) -> None:
    stream = await server.connect(head(None, 4 * MEBIBYTE))
    assert (await stream.answer()).startswith(b"HTTP/1.1 401")
    # The client may go on for a moment, and is not reset while it does.
    await stream.send(b"x" * 100_000)
    assert await gone(stream)
    await server.pass_seconds(LIMITS.linger_seconds + 1)
    assert len(server.connections) == 0


@pytest.mark.req("MS-11")
async def test_a_refused_client_that_goes_on_calling_waits_longer_each_time(database_url: str, world: World) -> None:
    app = await world.another_app(rate_limits="anonymous=1/hour")
    async with served(app) as server, httpx2.AsyncClient(base_url=server.url) as http:
        started = asyncio.get_running_loop().time()
        statuses = [(await http.get("/v1/sessions")).status_code for _ in range(6)]
        # 20 ms more each time; the time is only counted, other machines may be slower.
        assert asyncio.get_running_loop().time() - started >= 0.02 * (1 + 2 + 3 + 4 + 5)
    assert statuses == [401, 429, 429, 429, 429, 429]


async def test_connections_of_a_trusted_proxy_are_not_counted_by_its_address(world: World) -> None:
    app = await world.another_app(trusted_proxies="127.0.0.0/8")
    async with served(app, LIMITS) as server:
        streams = [await server.connect() for _ in range(LIMITS.anonymous)]
        assert len(server.connections) == LIMITS.anonymous
        assert all(not stream.reader.at_eof() for stream in streams)


@pytest.mark.parametrize("proxies", ["*", "proxy.internal", "10.0.0.1/8"])
async def test_only_addresses_and_networks_are_trusted(world: World, proxies: str) -> None:
    app = await world.another_app(trusted_proxies=proxies)
    with pytest.raises(InvalidSetting):
        HttpApplication(app)


@pytest.mark.req("MS-11")
async def test_requests_for_other_hosts_are_limited_apart_from_those_without_a_credential(world: World) -> None:
    app = await world.another_app(rate_limits="anonymous=2/hour")
    async with served(app) as server, httpx2.AsyncClient(base_url=server.url) as http:
        strange = [(await http.get("/", headers={"host": "evil.example"})).status_code for _ in range(4)]
        plain = [(await http.get("/")).status_code for _ in range(3)]
    assert strange == [403, 403, 429, 429]
    # A web page cannot use up the limit of the browser's owner.
    assert plain == [200, 200, 429]


async def test_those_who_ask_whether_the_server_is_ready_share_one_check(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, release = 0, asyncio.Event()

    async def names() -> list[str]:
        nonlocal asked
        asked += 1
        await release.wait()
        if asked == 1:
            raise SystemUnavailable
        return []

    monkeypatch.setattr(world.app.tenants, "names", names)
    readiness = Readiness(world.app)
    first = [asyncio.create_task(readiness.problem()) for _ in range(20)]
    await asyncio.sleep(0)
    first[0].cancel()
    release.set()
    problems = await asyncio.gather(*first[1:])
    assert {type(problem) for problem in problems} == {SystemUnavailable}
    # For a second its result is shared as well.
    assert await readiness.problem() is problems[0]
    assert asked == 1
    readiness._until = 0.0
    assert await readiness.problem() is None
    assert asked == 2


async def test_a_heavy_read_of_a_client_that_left_is_not_done(world: World, server: Served) -> None:
    database, release = world.app.database, threading.Event()

    async def block(transaction: Transaction) -> None:
        await transaction.all("SELECT 1")
        release.wait(30)

    threads = database._heavy_reads._threads  # type: ignore[attr-defined]
    scope = Scope(world.tenant, principal="planner")
    blocking = asyncio.create_task(database.read(scope, block, heavy=True))
    await asyncio.sleep(0.05)
    try:
        path = "/v1/receipts"
        # Of a plain route and of a tool.
        plain = await server.connect(call(world.planner, path))
        arguments = b'{"action": "list"}'
        tool = await server.connect(head(world.planner, len(arguments), "/mcp/tool/receipts") + arguments)
        stays = await server.connect(call(world.planner, path))
        await _until(lambda: len(threads._queue) == 3)
        for stream in (plain, tool):
            stream.writer.close()
        await _until(lambda: len(threads._queue) == 1)
    finally:
        release.set()
    assert (await stays.answer()).startswith(b"HTTP/1.1 200")
    await blocking


async def _until(condition: Callable[[], bool]) -> None:
    # Sooner than a heavy read gives up by itself.
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.01)
