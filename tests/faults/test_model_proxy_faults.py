"""Faults around the model proxy: clients see only errors of their provider, and the record repairs itself."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import apsw
import asyncpg
import pytest

import support.proxy_process
from support import forked_python
from support.http_server import served
from support.raw_upstream import RawClient, post, upstream
from weftline.windows.model import WindowNotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.raw_upstream import Received, Upstream, Writer
    from support.world import World

PATH = "/anthropic/v1/messages"
SESSION = {"user_id": "user_1_account_2_session_11111111-aaaa"}
LARGE = 40 * 2**20


def reply(turns: int) -> str:
    return f"answer {turns}"


async def provider(request: Received, writer: Writer) -> None:
    """Answer with the number of messages that came."""
    content = [{"type": "text", "text": reply(len(json.loads(request.body)["messages"]))}]
    usage = {"input_tokens": 10, "output_tokens": 1}
    await writer.json(json.dumps({"model": "claude-sonnet-4-5", "content": content, "usage": usage}).encode())


class Agent:
    """A program that keeps its conversation, and sends all of it with each call."""

    def __init__(self, port: int, credential: str = "") -> None:
        self.messages: list[dict[str, str]] = []
        self._headers = [f"x-weftline-key: {credential}"] if credential else []
        self.port = port

    async def says(self, text: str) -> int:
        """Make a call; what was answered belongs to the conversation. Return the status."""
        self.messages.append({"role": "user", "content": text})
        body = {"model": "claude-sonnet-4-5", "metadata": SESSION, "messages": self.messages}
        client = await RawClient.connect(self.port)
        answered = await client.ask(post(PATH, json.dumps(body).encode(), *self._headers))
        client.stream.close()
        if answered.status == 200:
            given = json.loads(answered.body)["content"][0]["text"]
            assert given == reply(len(self.messages))
            self.messages.append({"role": "assistant", "content": given})
        return answered.status

    @property
    def texts(self) -> list[str]:
        return [f"{each['role']}: {each['content']}" for each in self.messages]


async def recorded(world: World) -> list[str]:
    """Return the messages in the window of the conversation.

    A fault while it began may have left another session, with less of it.
    """
    sessions = (await world.planner.call("session.list", limit=1000))["sessions"]
    windows = []
    for session in [each["id"] for each in sessions if "proxy" in each["metadata"]]:
        with suppress(WindowNotFound):
            listed = await world.planner.call("window.events", session_id=session, limit=200)
            messages = [event.get("message", event) for event in listed["events"]]
            windows.append([f"{each['role']}: {each['content']}" for each in messages])
    return max(windows, key=len, default=[])


async def receipts(world: World) -> int:
    return len((await world.planner.call("conversation.calls"))["calls"])


@asynccontextmanager
async def killable(
    world: World, running: Upstream, tmp_path: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    process = await asyncio.create_subprocess_exec(
        forked_python.python(),
        str(Path(support.proxy_process.__file__)),
        world.url,
        str(tmp_path),
        world.tenant,
        "planner",
        running.url,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(60):
        first = (await process.stdout.readline()).decode()
    found = re.search(r":(\d+)", first)
    assert found is not None
    try:
        yield process, int(found[1])
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.both_databases
async def test_a_killed_proxy_loses_nothing_that_was_answered(world: World, tmp_path: Path) -> None:
    holding, go_on = asyncio.Event(), asyncio.Event()

    async def answer(request: Received, writer: Writer) -> None:
        if b"hold" in request.body:
            await writer.start_stream()
            await writer.chunk(b"data: {}\n\n")
            holding.set()
            await go_on.wait()
        else:
            await provider(request, writer)

    async with upstream(answer) as running:
        async with killable(world, running, tmp_path) as (process, port):
            agent = Agent(port)
            other = await RawClient.connect(port)
            assert [await agent.says(f"question {number}") for number in range(3)] == [200] * 3
            other.stream.write(post(PATH, b'{"messages":[{"role":"user","content":"hold"}]}'))
            await holding.wait()
            await agent.says("the last one before")
            # It had not recorded all yet.
            process.send_signal(signal.SIGKILL)
            await process.wait()
            await other.start()
            assert await other.chunk() == b"data: {}\n\n"
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await other.chunk()
            other.stream.close()
        async with killable(world, running, tmp_path) as (process, port):
            agent.port = port
            assert await agent.says("the first one after") == 200
            process.send_signal(signal.SIGTERM)
            await process.wait()
        go_on.set()
    # Both processes have another one that goes on to store what it was given.
    async with asyncio.timeout(60):
        while await recorded(world) != agent.texts or await receipts(world) < 4:  # noqa: ASYNC110 - by others
            await asyncio.sleep(0.1)
    # A process that is killed in the moment in which it passes on an answer may lose the receipt of that call.
    assert await receipts(world) in {4, 5}


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[Agent]:
    async with upstream(provider) as running:
        app = await world.another_app(proxy_upstreams=f"anthropic={running.url}", proxy_wait_ms=200)
        async with served(app) as server:
            yield Agent(server.port, world.planner.credential)
        await world.close_app(app)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_locked_database_ends_no_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.call_notes._METER_SECONDS", 0.2)
    async with serving(world) as agent:
        assert await agent.says("before") == 200
        # Of the same library: another one in this process would end the locks of this one.
        locking = apsw.Connection(world.url)
        # The call before is metered behind its answer.
        locking.set_busy_timeout(30_000)
        locking.execute("BEGIN IMMEDIATE")
        assert await agent.says("during") == 200
        await asyncio.sleep(0.5)
        locking.execute("ROLLBACK")
        locking.close()
        assert await agent.says("after") == 200
    assert await recorded(world) == agent.texts


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_a_full_disk_ends_no_call(world: World) -> None:
    async with upstream(provider) as running:
        app = await world.another_app(proxy_upstreams=f"anthropic={running.url}", proxy_wait_ms=200)
        async with served(app) as server:
            agent = Agent(server.port, world.planner.credential)
            assert await agent.says("before") == 200
            writer = app.database._writer  # type: ignore[attr-defined]
            writer.pragma("max_page_count", writer.pragma("page_count"))
            assert [await agent.says(f"{number}" + "x" * 50_000) for number in range(3)] == [200] * 3
            writer.pragma("max_page_count", 1_000_000)
            assert await agent.says("after") == 200
        await world.close_app(app)
    assert await recorded(world) == agent.texts


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
async def test_a_database_that_is_gone_ends_no_call(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weftline.app.call_notes._METER_SECONDS", 0.5)
    name = urlsplit(world.url).path.strip("/")
    admin = await asyncpg.connect(world.url.replace(f"/{name}", "/postgres", 1))
    try:
        async with serving(world) as agent:
            assert await agent.says("before") == 200
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            assert await agent.says("during") == 200
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
            assert await agent.says("after") == 200
    finally:
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await admin.close()
    assert await recorded(world) == agent.texts


async def test_large_and_slow_requests_and_answers_pass_unchanged(world: World) -> None:
    sent, large = b'{"messages":"' + b"q" * LARGE + b'"}', b"a" * LARGE

    async def answer(request: Received, writer: Writer) -> None:
        assert sha256(request.body).digest() == sha256(sent).digest()
        if request.value(b"x-slow"):
            await writer.start_stream()
            for at in range(60):
                await writer.chunk(large[at : at + 1])
                await asyncio.sleep(0)
            await writer.chunk(b"")
        else:
            await writer.json(large)

    async with upstream(answer) as running:
        app = await world.another_app(proxy_upstreams=f"anthropic={running.url}", proxy_wait_ms=60_000)
        async with served(app) as server:
            client = await RawClient.connect(server.port)
            key = f"x-weftline-key: {world.planner.credential}"
            answered = await client.ask(post(PATH, sent, key))
            assert sha256(answered.body).digest() == sha256(large).digest()
            request = post(PATH, sent, key, "x-slow: 1")
            for at in range(0, len(request), 2**20 - 1):
                client.stream.write(request[at : at + 2**20 - 1])
                await client.stream.drain()
            assert (await client.answer()).body == large[:60]
            client.stream.close()


async def test_retry_headers_and_half_streams_arrive_as_the_provider_sent_them(world: World) -> None:
    errors: list[tuple[int, str, bytes]] = [
        (429, "retry-after: 7\r\nx-should-retry: true\r\n", b'{"type":"error","error":{"type":"rate_limit_error"}}'),
        (529, "retry-after-ms: 900\r\n", b'{"type":"error","error":{"type":"overloaded_error"}}'),
    ]
    half = b'data: {"type":"content_block_start"}\n\n'

    async def answer(request: Received, writer: Writer) -> None:
        kind = json.loads(request.body)["kind"]
        if kind < len(errors):
            status, headers, body = errors[kind]
            await writer.json(body, status, headers)
            return
        await writer.start_stream()
        await writer.chunk(half)
        if kind == len(errors):
            writer.reset()
        else:
            # An orderly end in the middle of a chunked answer.
            writer.stream.close()

    async with upstream(answer) as running:
        app = await world.another_app(proxy_upstreams=f"anthropic={running.url}", proxy_wait_ms=60_000)
        async with served(app) as server:
            for kind in range(4):
                request = post(PATH, json.dumps({"kind": kind}).encode(), f"x-weftline-key: {world.planner.credential}")
                client = await RawClient.connect(server.port)
                if kind < len(errors):
                    answered: Any = await client.ask(request)
                    status, headers, body = errors[kind]
                    assert (answered.status, answered.body) == (status, body)
                    for line in headers.split("\r\n")[:-1]:
                        header, _, value = line.partition(": ")
                        assert answered.value(header.encode()) == value.encode()
                else:
                    client.stream.write(request)
                    assert (await client.start())[0] == 200
                    assert await client.chunk() == half
                    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                        await client.chunk()
                client.stream.close()
