"""Servers for client tests: Weftline in a thread, and a scripted HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from weftline import SyncClient
from weftline.app.app import App
from weftline.settings import Settings
from weftline.transports.http.application import HttpApplication

Answer = Callable[["Handler"], None]


@dataclass(frozen=True, slots=True)
class WeftlineServer:
    """A running server: URL, admin key and database."""

    url: str
    admin_key: str
    database: str


@contextlib.contextmanager
def weftline_server(folder: Path) -> Iterator[WeftlineServer]:
    """Run Weftline's server on a free port, in a thread so that blocking clients can reach it."""
    settings = Settings(data_dir=str(folder), database_url=str(folder / "weftline.db"), rate_limits="off")
    # asyncio disables Nagle's algorithm, which delays by 40 ms, only on sockets created as TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    ready = threading.Event()
    made: dict[str, Any] = {}

    async def serve() -> None:
        app = App(settings)
        await app.open()
        made["key"] = (await app.tenants.ensure_default()).admin_key
        application = HttpApplication(app)
        made["server"] = server = uvicorn.Server(uvicorn.Config(application.asgi, log_config=None, lifespan="on"))
        made["end"] = (asyncio.get_running_loop(), application.streams.end_all)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.01)
        ready.set()
        await serving
        await app.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(60), "the server did not start"
    yield WeftlineServer(f"http://127.0.0.1:{listener.getsockname()[1]}", made["key"], settings.database_url)
    loop, end_streams = made["end"]
    loop.call_soon_threadsafe(end_streams)
    made["server"].should_exit = True
    thread.join(60)


@dataclass(slots=True)
class ScriptedServer:
    """A server that gives scripted answers in order and records the requests."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def answer_with(self, *answers: Answer) -> ScriptedServer:
        self.answers += answers
        return self


class Handler(BaseHTTPRequestHandler):
    """Gives the next scripted answer; without one it closes the connection."""

    script: ScriptedServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer_next()

    def do_PUT(self) -> None:
        self._answer_next()

    def do_POST(self) -> None:
        self._answer_next()

    def _answer_next(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.script.requests.append(f"{self.command} {self.path}")
        self.script.keys.append(self.headers.get("authorization"))
        self.close_connection = True
        if self.script.answers:
            self.script.answers.pop(0)(self)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def responds(status: int, content: Any, **headers: str) -> Answer:
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), "connection": "close", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def streams(*blocks: str) -> Answer:
    """Send blocks of an event stream, then close the connection."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        for block in blocks:
            handler.wfile.write(f"{block}\n\n".encode())

    return answer


def disconnects(_: Handler) -> None:
    """Close the connection without an answer."""


@contextlib.contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = ScriptedServer(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Scripted", (Handler,), {"script": script})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


class AwaitableClient:
    """The blocking client with awaitable methods, so that one test covers every client."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return AwaitableClient(value)
        return lambda *args, **kwargs: asyncio.to_thread(value, *args, **kwargs)

    async def follow(self, *args: Any, **kwargs: Any) -> Any:
        """Iterate over the blocking iterator in a thread."""
        iterator = self._target.follow(*args, **kwargs)
        try:
            while (event := await asyncio.to_thread(next, iterator, None)) is not None:
                yield event
        finally:
            await asyncio.to_thread(iterator.close)


@contextlib.asynccontextmanager
async def threaded_client(*args: Any, **kwargs: Any) -> Any:
    with SyncClient(*args, **kwargs) as client:
        yield AwaitableClient(client)
