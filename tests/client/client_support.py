"""What the client tests stand on: the product's server in a thread, a server that says what it is told, and faces."""

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

from weft import SyncClient
from weft.app.app import App
from weft.settings import Settings
from weft.transports.http.application import HttpApplication

Answer = Callable[["Handler"], None]


@dataclass(frozen=True, slots=True)
class Product:
    """The running product: where it is, who may enter, and where its data lies."""

    url: str
    admin_key: str
    database: str


@contextlib.contextmanager
def product_server(folder: Path) -> Iterator[Product]:
    """Run the product's own server on a free port, in a thread of its own so that blocking callers can reach it."""
    settings = Settings(data_dir=str(folder), database_url=str(folder / "weft.db"), rate_limits="off")
    # Named as TCP outright: asyncio turns the 40 ms of Nagle's algorithm off only where the socket says so.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    ready = threading.Event()
    made: dict[str, Any] = {}

    async def serve() -> None:
        app = App(settings)
        await app.open()
        made["key"] = (await app.tenants.ensure_default()).admin_key
        application = HttpApplication(app)
        made["server"] = server = uvicorn.Server(uvicorn.Config(application.asgi, log_config=None, lifespan="on"))
        made["end"] = (asyncio.get_running_loop(), application.streams.end_all)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event to wait for
            await asyncio.sleep(0.01)
        ready.set()
        await serving
        await app.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(20), "the server did not start"
    yield Product(f"http://127.0.0.1:{listening.getsockname()[1]}", made["key"], settings.database_url)
    loop, end_streams = made["end"]
    loop.call_soon_threadsafe(end_streams)
    made["server"].should_exit = True
    thread.join(20)


@dataclass(slots=True)
class Script:
    """A server that gives the answers it was told, in order, and remembers what it was asked."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    def will(self, *answers: Answer) -> Script:
        self.answers += answers
        return self


class Handler(BaseHTTPRequestHandler):
    """Takes the next answer of the script; without one it closes the connection."""

    script: Script
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._take()

    def do_PUT(self) -> None:
        self._take()

    def do_POST(self) -> None:
        self._take()

    def _take(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.script.asked.append(f"{self.command} {self.path}")
        self.script.keys.append(self.headers.get("authorization"))
        self.close_connection = True
        if self.script.answers:
            self.script.answers.pop(0)(self)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def says(status: int, content: Any, **headers: str) -> Answer:
    body = content if isinstance(content, bytes) else msgspec.json.encode(content)

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"content-length": str(len(body)), "connection": "close", **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def streams(*blocks: str) -> Answer:
    """Send blocks of an event stream, then break off."""

    def answer(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.end_headers()
        for block in blocks:
            handler.wfile.write(f"{block}\n\n".encode())

    return answer


def hangs_up(_: Handler) -> None:
    """Close without a word."""


@contextlib.contextmanager
def scripted_server() -> Iterator[Script]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = Script(f"http://127.0.0.1:{server.server_address[1]}")
    server.RequestHandlerClass = type("Scripted", (Handler,), {"script": script})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class Threaded:
    """The blocking client with methods one can await, so that one test serves every face."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return Threaded(value)
        return lambda *args, **kwargs: asyncio.to_thread(value, *args, **kwargs)

    async def follow(self, *args: Any, **kwargs: Any) -> Any:
        """Step through the blocking iterator off the loop."""
        iterator = self._target.follow(*args, **kwargs)
        try:
            while (event := await asyncio.to_thread(next, iterator, None)) is not None:
                yield event
        finally:
            await asyncio.to_thread(iterator.close)


@contextlib.asynccontextmanager
async def threaded_client(*args: Any, **kwargs: Any) -> Any:
    with SyncClient(*args, **kwargs) as client:
        yield Threaded(client)
